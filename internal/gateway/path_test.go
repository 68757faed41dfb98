package gateway

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// inspectedPath is a path with the results of InspectPath.
type inspectedPath struct {
	path, problem string
	normal        bool
}

func inspectedPaths() []inspectedPath {
	return []inspectedPath{
		{"/", "", true},
		{"/a/b", "", true},
		{"/a/b/", "", true},
		{"/a.b/..c/...", "", true},
		{"/a/.b", "", true},
		{"/~-_.!$&'()*+,;=:@", "", true},
		{"/caf%C3%A9", "", true},
		{"/caf%c3%a9", "", false},
		{"/%41", "", false},
		{"/a%20b", "", true},
		{"/a|b", "", false},
		{"/caf\xc3\xa9", "", false},
		{"/\xe2\x82\xac/\xf0\x9f\x94\x91", "", false},
		{"", badStart, false},
		{"a", badStart, false},
		{"//", badEmpty, false},
		{"//a", badEmpty, false},
		{"/a//b", badEmpty, false},
		{"/a//", badEmpty, false},
		{"/.", badDots, false},
		{"/..", badDots, false},
		{"/a/../b", badDots, false},
		{"/a/./b", badDots, false},
		{"/a/..", badDots, false},
		{"/a/%2e%2E/b", badDots, false},
		{"/a/%2e", badDots, false},
		{"/a/.%2e/b", badDots, false},
		{"/a/%2e./b", badDots, false},
		{"/..;/a", badDots, false},
		{"/..;a=b/c", badDots, false},
		{"/a/.;", badDots, false},
		{"/.%3bx", badDots, false},
		{"/a/%2e%2E%3B/b", badDots, false},
		{"/%2e;", badDots, false},
		{"/a;..", "", true},
		{"/;../a", "", true},
		{"/...;a/.a;b", "", true},
		{"/..%3", badEscape, false},
		{"/..%3a", "", false},
		{"/a%c0%aeb", badOverlong, false},
		{"/%C0%AE%C0%AE/a", badOverlong, false},
		{"/a%c0%afb", badOverlong, false},
		{"/a%c1%9cb", badOverlong, false},
		{"/%e0%80%ae", badOverlong, false},
		{"/%E0%80%AFa", badOverlong, false},
		{"/%e0%81%9c", badOverlong, false},
		{"/%f0%80%80%ae", badOverlong, false},
		{"/%f0%80%80%af", badOverlong, false},
		{"/%f8%80%80%80%ae", badOverlong, false},
		{"/%fc%80%80%80%80%af", badOverlong, false},
		{"/%c0%c0%af", badOverlong, false},
		{"/%C0", "", true}, // not UTF-8, as older clients write it
		{"/%C0%", badEscape, false},
		{"/%C0%A8", "", true},
		{"/%C0.%AE", "", true},
		{"/%FF%FE%AF%AF", "", true},
		{"/\xc0\xae\xc0\xae/a", badUTF8, false},
		{"/\xc0\xaf", badUTF8, false},
		{"/%c0\xae", badUTF8, false},
		{"/\xc0%ae", badUTF8, false},
		{"/\xe0\x80\xaf", badUTF8, false},
		{"/\xf0\x80\x80\xae", badUTF8, false},
		{"/a\xff", badUTF8, false},
		{"/a\xe9", badUTF8, false},
		{"/\xed\xa0\x80", badUTF8, false}, // a surrogate
		{"/a%2fb", badEncoded, false},
		{"/a%2Fb", badEncoded, false},
		{"/a%5cb", badEncoded, false},
		{"/a%5Cb", badEncoded, false},
		{`/a\b`, badSlash, false},
		{"/a\x00b", badControl, false},
		{"/a\x7fb", badControl, false},
		{"/a\tb", badControl, false},
		{"/a%00b", badControl, false},
		{"/a%1fb", badControl, false},
		{"/a%7Fb", badControl, false},
		{"/a%", badEscape, false},
		{"/a%4", badEscape, false},
		{"/a%4g", badEscape, false},
		{"/a%g4", badEscape, false},
		{"/a#b", badMark, false},
	}
}

// Guarantee: contract 4.5, a path that another parser could read differently is rejected,
// plain or encoded.
func TestInspectPath(t *testing.T) {
	for _, c := range inspectedPaths() {
		problem, normal := InspectPath(c.path)
		if problem != c.problem || normal != c.normal {
			t.Errorf("InspectPath(%q) = %q, %v, want %q, %v", c.path, problem, normal, c.problem, c.normal)
		}
	}
}

// Guarantee: contract 3.3, allow_encoded_slashes: an encoded slash or backslash is a part of
// its segment, but a dot segment between such slashes is rejected in every spelling.
func TestInspectRequestPath(t *testing.T) {
	for _, c := range []struct {
		path, problem   string
		normal, encoded bool
	}{
		{"/a", "", true, false},
		{"/a%2Fb", "", true, true},
		{"/a%2fb", "", false, true},
		{"/a%5Cb", "", true, true},
		{"/%2F", "", true, true},
		{"/a%2F", "", true, true},
		{"/a%2F%2Fb", "", true, true},
		{"/a%2F...%2Fb", "", true, true},
		{"/a%2F.b", "", true, true},
		{"/a%252F..", "", true, false},
		{"/a%2F..%2Fb", badDots, false, false},
		{"/a%2f%2e%2E%5cb", badDots, false, false},
		{"/a%2F.", badDots, false, false},
		{"/a%5C..", badDots, false, false},
		{"/..%2Fa", badDots, false, false},
		{"/a/.%5Cb", badDots, false, false},
		{"/a%2F../b", badDots, false, false},
		{"/a%2F..;b", badDots, false, false},
		{"/a%2f.%3Bb%2fc", badDots, false, false},
		{"/a%5C%2e%2e;", badDots, false, false},
		{"/a%2F;..", "", true, true},
		{"/a%2F%c0%ae%c0%ae", badOverlong, false, false},
		{"/a%c0%afb", badOverlong, false, false},
		{"/a%2F\xff", badUTF8, false, false},
		{"/a%2Fb%00", badControl, false, false},
	} {
		problem, normal, encoded := InspectRequestPath(c.path)
		if problem != c.problem || normal != c.normal || encoded != c.encoded {
			t.Errorf("InspectRequestPath(%q) = %q, %v, %v, want %q, %v, %v", c.path, problem, normal, encoded, c.problem, c.normal, c.encoded)
		}
	}
}

// Guarantee: the table of classes agrees with RFC 3986, 3.3 (pchar).
func TestPathClass(t *testing.T) {
	for c := range 256 {
		b := byte(c)
		want := byte(raw)
		switch {
		case b < 0x20 || b == 0x7f:
			want = control
		case b == '/':
			want = slash
		case b == '%':
			want = percent
		case b == '\\':
			want = backslash
		case b == '?' || b == '#':
			want = mark
		case isUnreserved(b) || strings.IndexByte("!$&'()*+,;=:@", b) >= 0:
			want = plain
		}
		if pathClass[c] != want {
			t.Errorf("got class %q of %q, want %q", pathClass[c], b, want)
		}
	}
	if len(pathClass) != 256 {
		t.Errorf("got %d classes, want 256", len(pathClass))
	}
}

// Guarantee: NormalizePath returns the form in which paths are compared, and does not allocate
// if it has a buffer or nothing to change.
func TestNormalizePath(t *testing.T) {
	for _, c := range [][2]string{
		{"/a/b", "/a/b"},
		{"/%61%2Db%2e%5F%7e", "/a-b._~"},
		{"/caf%c3%a9", "/caf%C3%A9"},
		{"/café", "/caf%C3%A9"},
		{"/a b", "/a%20b"},
		{"/a%3ab", "/a%3Ab"},
		{"/a:b", "/a:b"},
		{"/%2561", "/%2561"},
		{"/%", "/%"},
		{"/%4", "/%4"},
	} {
		if got := NormalizePath(nil, c[0]); got != c[1] {
			t.Errorf("NormalizePath(%q) = %q, want %q", c[0], got, c[1])
		}
	}
	buf := make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() { NormalizePath(buf, "/users/%61bc"); NormalizePath(nil, "/users/abc") }); n != 0 {
		t.Errorf("got %v allocations of NormalizePath, want 0", n)
	}
}

// FuzzPath looks for a valid path whose normal form changes when it is normalized again, or decodes
// to another path, and for an accepted path that contract 4.5 rejects.
func FuzzPath(f *testing.F) {
	for _, s := range []string{
		"/", "/a/%2e%2e", "/a%2Fb", "/%41%c3", "/a//", "/a|b\xff", "/..%2f", "%%610", "/a%2F..;b", "/.%3bx", "/..;/a", "/%c0%ae/", "/\xc0\xaf",
		"/%e0%80%af", "/%f0%80%80%ae", "/\xc3\xa9%C3%A9",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		problem, normal, encoded := InspectRequestPath(path)
		form := NormalizePath(nil, path)
		if problem != "" {
			return // a stray % may become part of an escape; such a path matches no route
		}
		if again := NormalizePath(nil, form); again != form {
			t.Fatalf("got %q as the normal form of %q, which is that of %q; want no change", again, form, path)
		}
		if normal && form != path {
			t.Fatalf("InspectPath(%q): got normal, but the normal form is %q", path, form)
		}
		if !normal && form == path {
			t.Fatalf("InspectPath(%q): got not normal, want normal", path)
		}
		if decodeAll(form) != decodeAll(path) {
			t.Fatalf("got normal form %q of %q, which decodes to another path; want the same", form, path)
		}
		checkAccepted(t, path, encoded)
	})
}

// checkAccepted fails if contract 4.5 rejects a path. encoded is set if the path has
// encoded slashes, which the gateway allows. The rules are written independently of
// InspectRequestPath.
func checkAccepted(t *testing.T, path string, encoded bool) {
	t.Helper()
	decoded := decodeAll(path)
	if !utf8.ValidString(path) {
		t.Fatalf("got %q accepted; want only valid UTF-8", path)
	}
	if strings.Contains(path, "\\") || strings.ContainsFunc(decoded, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		t.Fatalf("got %q accepted; want no backslash or control character", path)
	}
	if got := strings.Count(decoded, "/") != strings.Count(path, "/") || strings.Contains(decoded, "\\"); got != encoded {
		t.Fatalf("InspectRequestPath(%q): got %t for encoded slashes, want %t", path, encoded, got)
	}
	for _, c := range []byte(`./\`) {
		for _, long := range []string{
			string([]byte{0xc0 | c>>6, 0x80 | c&0x3f}), string([]byte{0xe0, 0x80 | c>>6, 0x80 | c&0x3f}), string([]byte{0xf0, 0x80, 0x80 | c>>6, 0x80 | c&0x3f}),
			string([]byte{0xf8, 0x80, 0x80, 0x80 | c>>6, 0x80 | c&0x3f}), string([]byte{0xfc, 0x80, 0x80, 0x80, 0x80 | c>>6, 0x80 | c&0x3f}),
		} {
			if strings.Contains(decoded, long) {
				t.Fatalf("got %q accepted; want no overlong form of %q", path, c)
			}
		}
	}
	segments := strings.Split(path[1:], "/")
	for i, s := range segments {
		if s == "" && i < len(segments)-1 {
			t.Fatalf("got %q accepted; want no empty segment", path)
		}
	}
	for _, s := range strings.FieldsFunc(decoded, func(r rune) bool { return r == '/' || r == '\\' }) {
		if name, _, _ := strings.Cut(s, ";"); name == "." || name == ".." {
			t.Fatalf("got %q accepted; want no dot segment %q", path, s)
		}
	}
}

func decodeAll(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if c, ok := unescape(s[i:]); ok && s[i] == '%' {
			b.WriteByte(c)
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
