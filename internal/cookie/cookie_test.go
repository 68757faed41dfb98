package cookie_test

import (
	"testing"

	"github.com/keygate/keygate/internal/cookie"
)

// Guarantee: the cookie of a session is removed wherever it stands, under both of its names, and
// every other cookie keeps its bytes and its position.
func TestAppendOthers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{"keygate_session=a", ""},
		{"__Host-keygate_session=a", ""},
		{"a=1; keygate_session=s; b=2", "a=1; b=2"},
		{"keygate_session=s;a=1", "a=1"},
		{"a=\"x y\";  keygate_session = s ;;keygate_session", "a=\"x y\""},
		{"a=keygate_session; Keygate_Session=1; keygate_session2=1; x_keygate_session=1", "a=keygate_session; Keygate_Session=1; keygate_session2=1; x_keygate_session=1"},
		{"", ""},
	} {
		if got := string(cookie.AppendOthers([]byte("Cookie: "), c.in)); got != "Cookie: "+c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
		if c.in != c.want && !cookie.HasSession(c.in) {
			t.Errorf("%q: no session found", c.in)
		}
	}
}

// Guarantee: a Set-Cookie field sets the cookie of a session exactly if a browser would send it back under
// one of the cookie's names, however the field is spelled.
func TestSetsSession(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{
		"keygate_session=a":                              true,
		"__Host-keygate_session=a; Secure; Path=/":       true,
		" keygate_session = a;Domain=example.com":        true,
		"keygate_session":                                true,
		"keygate_session=":                               true,
		"=keygate_session=a":                             true,
		"= =\t__Host-keygate_session=a":                  true,
		"keygate_session; Max-Age=0":                     true,
		"a=keygate_session=b":                            false,
		"keygate_session2=a":                             false,
		"x_keygate_session=a":                            false,
		"a=b; keygate_session=c":                         false,
		"":                                               false,
		"session=keygate_session; Path=/keygate_session": false,
	} {
		if got := cookie.SetsSession(value); got != want {
			t.Errorf("%q: got %v, want %v", value, got, want)
		}
	}
}
