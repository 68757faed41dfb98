package gateway

import (
	"cmp"
	"strings"
	"testing"
)

// Guarantee: a route of a file that does not say what it requires requires what the gateway says, which is a key if that
// says nothing either. A route that says key keeps saying it in a file with another default, and none is written for it
// in other files.
func TestDefaultAuthInFiles(t *testing.T) {
	for _, c := range []struct {
		gateway, route string
		want           Auth
		written        bool // what the route says
	}{
		{"", "", AuthKey, false}, {"", ", auth: key", AuthKey, false}, {"", ", auth: any", AuthAny, true},
		{"default_auth: token", "", AuthToken, false}, {"default_auth: token", ", auth: key", AuthKey, true},
		{"default_auth: none", "", AuthNone, false}, {"default_auth: key", ", auth: none", AuthNone, true},
	} {
		text := "gateway: {" + c.gateway + "}\nroutes: [{path: /a, methods: [GET]" + c.route + "}]\n"
		d, err := ParseDocument([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		again, err := ParseDocument(d.Encode())
		if err != nil {
			t.Fatalf("%s: %v", d.Encode(), err)
		}
		for _, d := range []*Document{d, again} {
			g := &Gateway{Requests: Requests{DefaultAuth: Auth(d.Gateway.DefaultAuth.Value)}}
			if got := g.AuthInForce(Route{Auth: d.Routes[0].Auth}); got.Auth != c.want {
				t.Errorf("%s: got %s, want %s", text, got.Auth, c.want)
			}
		}
		if written := strings.Contains(string(d.Encode()), " auth:"); written != c.written {
			t.Errorf("%s: got encoded %s, want auth of the route written: %t", text, d.Encode(), c.written)
		}
	}
	for _, bad := range []string{"optional", "", "KEY"} {
		if err := CheckDefaultAuth(bad); err == nil {
			t.Errorf("got default_auth %q accepted, want an error", bad)
		}
	}
}

// Guarantee: each kind of authentication of a route is read from a file, and written again if it is not the default.
func TestAuthInFiles(t *testing.T) {
	for _, auth := range Auths() {
		d, err := ParseDocument([]byte("routes: [{path: /a, methods: [GET], auth: " + string(auth) + "}]"))
		if err != nil || d.Routes[0].Auth != auth {
			t.Fatalf("%s: got %+v and %v", auth, d, err)
		}
		again, err := ParseDocument(d.Encode())
		if err != nil || cmp.Or(again.Routes[0].Auth, DefaultAuth) != auth {
			t.Errorf("%s: got %s, want it in the file", auth, d.Encode())
		}
	}
}
