package gateway

import (
	"strings"
	"testing"
)

// TestInspectPath holds the path rules of contract 4.5: what another parser
// could read differently is refused, plain or encoded.
func TestInspectPath(t *testing.T) {
	for _, c := range []struct {
		path, problem string
		normal        bool
	}{
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
	} {
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

// TestPathClass holds the table of classes against RFC 3986's pchar.
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
			t.Errorf("the class of %q is %q, want %q", b, pathClass[c], want)
		}
	}
	if len(pathClass) != 256 {
		t.Errorf("%d classes", len(pathClass))
	}
}

// TestNormalizePath holds the form in which paths are compared.
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
		t.Errorf("NormalizePath allocates %v times", n)
	}
}

// FuzzPath holds that a well-formed path has one normal form, which is
// well-formed and means the same, and that what InspectPath lets through holds
// nothing of what contract 4.5 refuses, however it is written.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"/", "/a/%2e%2e", "/a%2Fb", "/%41%c3", "/a//", "/a|b\xff", "/..%2f", "%%610"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		problem, normal := InspectPath(path)
		form := NormalizePath(nil, path)
		if problem != "" {
			return // a stray % may become part of an escape: nothing is matched with it
		}
		if again := NormalizePath(nil, form); again != form {
			t.Fatalf("the normal form of %q is %q, and that of this %q", path, form, again)
		}
		if normal != (form == path) {
			t.Fatalf("InspectPath(%q) says normal=%v, but its normal form is %q", path, normal, form)
		}
		decoded := decodeAll(path)
		if decodeAll(form) != decoded {
			t.Fatalf("%q and its normal form %q mean different paths", path, form)
		}
		if strings.ContainsAny(decoded, "\\\x00\r\n") || strings.Count(decoded, "/") != strings.Count(path, "/") {
			t.Fatalf("%q holds an encoded slash, a backslash or a control byte", path)
		}
		segments := strings.Split(decoded[1:], "/")
		for i, s := range segments {
			if s == "." || s == ".." || s == "" && i < len(segments)-1 {
				t.Fatalf("%q holds the segment %q", path, s)
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
