package gateway

import "testing"

// Guarantee: each kind of authentication of a route is read from a file, and written again if it is not the default.
func TestAuthInFiles(t *testing.T) {
	for _, auth := range Auths() {
		d, err := ParseDocument([]byte("routes: [{path: /a, methods: [GET], auth: " + string(auth) + "}]"))
		if err != nil || d.Routes[0].Auth != auth {
			t.Fatalf("%s: got %+v and %v", auth, d, err)
		}
		again, err := ParseDocument(d.Encode())
		if err != nil || again.Routes[0].Auth != auth {
			t.Errorf("%s: got %s, want it in the file", auth, d.Encode())
		}
	}
}
