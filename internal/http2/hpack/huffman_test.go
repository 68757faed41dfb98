package hpack

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// Guarantee: the Huffman code is as in RFC 7541, appendix B, for each byte and EOS.
func TestHuffmanCode(t *testing.T) {
	for c := range 256 {
		got, want := appendHuffman(nil, []byte{byte(c)}), hpack.AppendHuffmanString(nil, string([]byte{byte(c)}))
		if !bytes.Equal(got, want) {
			t.Errorf("code of byte %#02x: got %x, want %x", c, got, want)
		}
	}
	if symbol, length := codes.lookUp(0xffffffff); symbol != eos || length != 30 {
		t.Errorf("the code of 30 ones: got symbol %d of %d bits, want EOS", symbol, length)
	}
}

// Guarantee: after coding and decoding every text is the same, however small the buffer is that
// just holds it. A smaller buffer is an overflow.
func TestHuffmanRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		s := make([]byte, r.IntN(60))
		for k := range s {
			s[k] = byte(r.IntN(256))
			if i%2 == 0 {
				s[k] = "abcdeio0123-/=; XZ"[r.IntN(18)]
			}
		}
		code := appendHuffman(nil, s)
		if len(code) != huffmanLen(s) || !bytes.Equal(code, hpack.AppendHuffmanString(nil, string(s))) {
			t.Fatalf("code of %q: got %x, of expected length %d; want %x", s, code, huffmanLen(s), hpack.AppendHuffmanString(nil, string(s)))
		}
		if len(s) < minDecoded(len(code)) || len(s) > maxDecoded(len(code)) {
			t.Fatalf("%q: got bounds from %d to %d", s, minDecoded(len(code)), maxDecoded(len(code)))
		}
		dst := make([]byte, len(s))
		if n, result := decodeHuffman(dst, code); n != len(s) || result != decoded || !bytes.Equal(dst, s) {
			t.Fatalf("%x: got %q, result %d; want %q", code, dst[:n], result, s)
		}
		if len(s) > 0 {
			if _, result := decodeHuffman(dst[:len(s)-1], code); result != overflow {
				t.Fatalf("%x with room for a byte less: got result %d, want an overflow", code, result)
			}
		}
	}
}

// Guarantee: EOS, a padding with a zero, and a padding of more than 7 bits are invalid (RFC 7541,
// 5.2).
func TestHuffmanPadding(t *testing.T) {
	for code, want := range map[string]decoding{
		"":               decoded,
		"1f":             decoded, // a, 3 ones
		"18":             invalid, // a, 3 zeros
		"1e":             invalid, // a, 110
		"1f ff":          invalid, // a, 11 ones
		"ff":             invalid, // 8 ones
		"f8":             decoded, // &
		"f8 ff":          invalid, // &, 8 ones
		"ff ff ff ff":    invalid, // EOS
		"ff ff ff":       invalid, // the beginning of a code
		"1f ff ff ff ff": invalid, // a, EOS
		"ff ff ff f3":    decoded, // LF, 2 ones
	} {
		if _, got := decodeHuffman(make([]byte, 64), fromHex(t, code)); got != want {
			t.Errorf("%s: got result %d, want %d", code, got, want)
		}
	}
}
