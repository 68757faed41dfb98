package admit

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/http1"
)

// Guarantee: exactly the targets and authorities of contract 4.5 are accepted, and split
// correctly.
func TestTarget(t *testing.T) {
	long := "/" + strings.Repeat("a", MaxTarget-1)
	longHost := "h:" + strings.Repeat("0", http1.MaxAuthority-2)
	for _, c := range []struct {
		method, host, target string
		code                 fault.Code
		wantHost, wantPath   string
	}{
		{"GET", "h", "/a", "", "h", "/a"},
		{"GET", "h", "/a?", "", "h", "/a"},
		{"GET", "h", "/a?b/../c//%2F\\?", "", "h", "/a"},
		{"GET", "h", long, "", "h", long},
		{"GET", "h", long + "a", fault.TargetTooLong, "", ""},
		{"CONNECT", "h", long + "a", fault.MethodNotAllowed, "", ""},
		{"CONNECT", "", "h:443", fault.MethodNotAllowed, "", ""},
		{"TRACE", "h", "/a", fault.MethodNotAllowed, "", ""},
		{"OPTIONS", "h", "*", fault.InvalidRequest, "", ""},
		{"GET", "h", "*", fault.InvalidRequest, "", ""},
		{"GET", "h", "", fault.InvalidRequest, "", ""},
		{"GET", "h", "a", fault.InvalidRequest, "", ""},
		{"GET", "h", "h:80", fault.InvalidRequest, "", ""},
		{"GET", "h", "//other/a", fault.InvalidRequest, "", ""},
		{"GET", "h", "/a#b", fault.InvalidRequest, "", ""},
		{"GET", "h", "/a?b#c", fault.InvalidRequest, "", ""},
		{"GET", "h", "/a?b c", fault.InvalidRequest, "", ""},
		{"GET", "h", "/a?b\x00", fault.InvalidRequest, "", ""},
		{"GET", "h", "/a?b\r\nX: y", fault.InvalidRequest, "", ""},
		{"GET", "h", "/a?%00%0d%zz", "", "h", "/a"},
		{"GET", "h", "/a?caf\xc3\xa9%c0%af%ff", "", "h", "/a"},
		{"GET", "h", "/a?caf\xe9", fault.InvalidRequest, "", ""},
		{"GET", "h", "/a?\xc0\xaf", fault.InvalidRequest, "", ""},
		{"GET", "h", "/a?b\xe2\x82", fault.InvalidRequest, "", ""},
		{"GET", "h", "http://other/a?\xff", fault.InvalidRequest, "", ""},
		{"GET", "h", "/\xff", fault.InvalidRequest, "", ""},
		{"GET", "h", "/..;/b", fault.InvalidRequest, "", ""},
		{"GET", "h", "/a/%2e%2e/b", fault.InvalidRequest, "", ""},
		{"GET", "h", "/a%2fb", fault.InvalidRequest, "", ""},
		{"GET", "h", "http://other/a?b", "", "other", "/a"},
		{"GET", "h", "HTTPS://other:8443", "", "other:8443", "/"},
		{"GET", "h", "http://other?b", "", "other", "/"},
		{"GET", "h", "http:///a", fault.InvalidRequest, "", ""},
		{"GET", "h", "http://u@other/a", fault.InvalidRequest, "", ""},
		{"GET", "h", "http://other/../a", fault.InvalidRequest, "", ""},
		{"GET", "h", "http://other#f", fault.InvalidRequest, "", ""},
		{"GET", "h", "ftp://other/a", fault.InvalidRequest, "", ""},
		{"GET", "", "http://other/a", "", "other", "/a"},
		{"GET", "", "/a", fault.InvalidRequest, "", ""},
		{"GET", ":80", "/a", fault.InvalidRequest, "", ""},
		{"GET", "h:", "/a", "", "h:", "/a"},
		{"GET", "h:8x", "/a", fault.InvalidRequest, "", ""},
		{"GET", "h:1:2", "/a", fault.InvalidRequest, "", ""},
		{"GET", "a b", "/a", fault.InvalidRequest, "", ""},
		{"GET", "a/b", "/a", fault.InvalidRequest, "", ""},
		{"GET", "a@b", "/a", fault.InvalidRequest, "", ""},
		{"GET", "a,b", "/a", "", "a,b", "/a"},
		{"GET", "[::1]:80", "/a", "", "[::1]:80", "/a"},
		{"GET", "[::1]", "/a", "", "[::1]", "/a"},
		{"GET", "[::1", "/a", fault.InvalidRequest, "", ""},
		{"GET", "[::1]x", "/a", fault.InvalidRequest, "", ""},
		{"GET", "[]", "/a", fault.InvalidRequest, "", ""},
		{"GET", "[g]", "/a", fault.InvalidRequest, "", ""},
		{"GET", longHost, "/a", "", longHost, "/a"},
		{"GET", longHost + "0", "/a", fault.InvalidRequest, "", ""},
		{"GET", "h", "http://" + longHost + "0/a", fault.InvalidRequest, "", ""},
	} {
		var got target
		code, _ := got.read(&Request{Method: c.method, Host: c.host, Target: c.target})
		if got.encoded && code == "" {
			code = fault.InvalidRequest // by decide: see TestEncodedSlashes
		}
		if code != c.code {
			t.Errorf("%s %.60q of %q: code %q, want %q", c.method, c.target, c.host, code, c.code)
		} else if code == "" && (got.host != c.wantHost || got.path != c.wantPath) {
			t.Errorf("%s %.60q of %q: got host %q, path %.60q, want %q, %.60q", c.method, c.target, c.host, got.host, got.path, c.wantHost, c.wantPath)
		}
	}
}

// without is contract 4.2's rule for api_key, written independently: it returns the query
// without the parameters whose decoded name is api_key, and their values.
func without(query string) (rest string, values []string) {
	var kept []string
	for _, p := range strings.Split(query, "&") {
		name, value, _ := strings.Cut(p, "=")
		if decoded, err := url.PathUnescape(name); err == nil && decoded == "api_key" {
			values = append(values, value)
			continue
		}
		kept = append(kept, p)
	}
	return strings.Join(kept, "&"), values
}

func checkQuery(t interface {
	Fatalf(format string, args ...any)
}, query string) {
	var got target
	code, _ := got.read(&Request{Method: "GET", Host: "h", Target: "/p?" + query})
	if code != "" {
		return
	}
	rest, values := without(query)
	if got.apiKeys != len(values) {
		t.Fatalf("%q: %d api_key parameters, want %d", query, got.apiKeys, len(values))
	}
	switch {
	case len(values) == 0 && got.head+got.tail != query:
		t.Fatalf("%q is forwarded as %q, want it unchanged", query, got.head+got.tail)
	case len(values) == 1 && (got.head+got.tail != rest || got.apiKey != values[0]):
		t.Fatalf("%q is forwarded as %q with the key %q, want %q and %q", query, got.head+got.tail, got.apiKey, rest, values[0])
	case len(values) == 1 && rest == "" && !got.emptied:
		t.Fatalf("%q: emptied is false, want true", query)
	case len(values) == 1 && rest != "" && got.emptied:
		t.Fatalf("%q: emptied is true, but %q is left", query, rest)
	}
}

// Guarantee: a query is forwarded byte for byte, without the api_key parameter and one
// adjacent &.
func TestQueryKeepsItsBytes(t *testing.T) {
	piece := rapid.SampledFrom([]string{
		"", "a", "a=1", "=", "api_key=k", "api%5Fkey=k", "%61%70%69_key", "api_key", "api_key=", "api_keys=1", "xapi_key=1",
		"api_ke", "api_key%", "api_key%3d=1", "%", "%4", "q=%00", "a=b=c", "api+key=1", "é", "api_key=a%26b",
	})
	rapid.Check(t, func(t *rapid.T) {
		checkQuery(t, strings.Join(rapid.SliceOfN(piece, 0, 6).Draw(t, "pieces"), "&"))
	})
}

// Guarantee: the same holds for any query; and whatever the target is, the forwarded target
// consists of bytes of it.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{"/a?api_key=1&b", "http://h/a?x", "*", "/a?&&api%5fkey", "//", "/%2e%2e?", "/a?\xc3\xa9", "/a?\xff"} {
		f.Add(s, "h.example:80")
	}
	f.Fuzz(func(t *testing.T, s, host string) {
		if _, query, ok := strings.Cut(s, "?"); ok {
			checkQuery(t, query)
		}
		var got target
		code, reason := got.read(&Request{Method: "GET", Host: host, Target: s})
		if code != "" {
			if code == fault.InvalidRequest && reason == "" {
				t.Fatalf("%q: refused without a reason", s)
			}
			return
		}
		if !utf8.ValidString(s) {
			t.Fatalf("%q: accepted, want it refused, because it is not UTF-8", s)
		}
		whole := got.path
		if got.hasQuery {
			whole += "?" + got.query
		}
		if !strings.HasSuffix(s, whole) && !(got.path == "/" && strings.HasSuffix(s, strings.TrimPrefix(whole, "/"))) {
			t.Fatalf("%q was parsed as %q", s, whole)
		}
		if strings.ContainsAny(got.host, "/@?# \t\r\n") || got.host == "" {
			t.Fatalf("%q of %q has the host %q", s, host, got.host)
		}
	})
}

// Guarantee: a parameter's value is decoded exactly once.
func TestDecode(t *testing.T) {
	for in, want := range map[string]string{"": "", "a+b": "a+b", "%41%6a": "Aj", "%2541": "%41", "%4": "%4", "%zz": "%zz", "%": "%"} {
		if got := decode(in); got != want {
			t.Errorf("decode(%q) = %q, want %q", in, got, want)
		}
	}
	for c := range 256 {
		for _, form := range []string{"%%%02x", "%%%02X"} {
			if got := decode(fmt.Sprintf(form, c)); got != string([]byte{byte(c)}) {
				t.Errorf("decode of %02x is %q", c, got)
			}
		}
	}
}
