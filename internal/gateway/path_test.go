package gateway

import (
	"strings"
	"testing"
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
		err := CheckPath(c.path)
		if c.problem == "" && err != nil {
			t.Errorf("CheckPath(%q) = %v, want nil", c.path, err)
		}
		if c.problem != "" && err == nil {
			t.Errorf("CheckPath(%q) = nil, want %q", c.path, c.problem)
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

// FuzzPath looks for a valid path whose normal form changes when it is normalized again, or
// decodes to another path, and for a path that InspectPath accepts and contract 4.5 rejects.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"/", "/a/%2e%2e", "/a%2Fb", "/%41%c3", "/a//", "/a|b\xff", "/..%2f", "%%610"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		problem, normal := InspectPath(path)
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
		decoded := decodeAll(path)
		if decodeAll(form) != decoded {
			t.Fatalf("got normal form %q of %q, which decodes to another path; want the same", form, path)
		}
		if strings.ContainsAny(decoded, "\\\x00\r\n") || strings.Count(decoded, "/") != strings.Count(path, "/") {
			t.Fatalf("got %q accepted; want no encoded slash, backslash or control character", path)
		}
		segments := strings.Split(decoded[1:], "/")
		for i, s := range segments {
			if s == "." || s == ".." || s == "" && i < len(segments)-1 {
				t.Fatalf("got %q accepted; want no segment %q", path, s)
			}
		}
	})
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
