package http1

import (
	"errors"
	"strings"
	"testing"
)

// Guarantee: contract 4.5: the extensions of a chunk are accepted exactly if they are
// well formed (RFC 9112, 7.1.1) and without white space around ";" and "=". That holds for the last
// chunk too, and however the bytes are split.
func TestChunkExtensions(t *testing.T) {
	for ext, ok := range map[string]bool{
		"": true, ";a": true, ";a=b": true, ";a=b;c;d=e": true, ";!#$%&'*+-.^_`|~=1": true,
		`;a=""`: true, `;a="b; c=d"`: true, `;a="\"\\";b`: true, ";a=\"\tb\xff\"": true, `;a="b";c="d"`: true,
		";": false, ";;": false, ";a;": false, ";=b": false, ";a=": false, ";a=;b": false, ";a=b=c": false, ";a==b": false,
		" ;a": false, "; a": false, ";a ": false, ";a =b": false, ";a= b": false, ";a=b ": false, "\t": false, " ": false,
		";a b": false, ";a=b c": false, ";a@": false, ";@": false, ";a=[": false, ";a=b,c": false, ";a{}": false, ";a=\xff": false, ";\xe9": false,
		`;a="`: false, `;a="b`: false, `;a="b"c`: false, `;a="b"=c`: false, `;a=b"c"`: false, `;"a"`: false, `;a="b\`: false, `;a="b" `: false,
		";a\x00": false, ";a=\x00": false, ";a=\"\x00\"": false, ";a=\"\x7f\"": false, ";a=\"\\\x01\"": false, ";a=\"\r\"": false, ";a=\"\n\"": false, ";a\n": false,
		";a=" + strings.Repeat("b", maxExtension-5): true, ";a=" + strings.Repeat("b", maxExtension): false,
		strings.Repeat(";a", maxExtension): false, `;a="` + strings.Repeat("b", maxExtension) + `"`: false,
	} {
		for _, body := range []string{"1" + ext + "\r\nx\r\n0\r\n", "1\r\nx\r\n0" + ext + "\r\n"} {
			for _, size := range []int{1, 3, len(body)} {
				if data, err := unchunk(body, size); (err == nil) != ok || ok && data != "x" || err != nil && !errors.Is(err, ErrChunk) {
					t.Errorf("%.60q in pieces of %d: got data %q, error %v; want it accepted: %v", body, size, data, err, ok)
				}
			}
		}
	}
}

// unchunk decodes a chunked body up to its trailer section, which arrives in pieces of size
// bytes.
func unchunk(body string, size int) (data string, err error) {
	var c Chunked
	for len(body) > 0 && !c.InTrailer() {
		piece := []byte(body[:min(size, len(body))])
		used, d, err := c.Next(piece)
		if err != nil {
			return data, err
		}
		data += string(d)
		body = body[used:]
	}
	return data, nil
}
