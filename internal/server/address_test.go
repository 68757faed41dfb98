package server

import "testing"

// Guarantee: the URLs that a start prints reach the listeners from this machine, with TLS and on every
// address too.
func TestClientURL(t *testing.T) {
	for _, c := range []struct{ cert, addr, want string }{
		{"", "127.0.0.1:8081", "http://127.0.0.1:8081"},
		{"cert.pem", "10.1.2.3:443", "https://10.1.2.3:443"},
		{"", "0.0.0.0:8081", "http://127.0.0.1:8081"},
		{"", "[::]:8081", "http://127.0.0.1:8081"},
		{"", "[::1]:8081", "http://[::1]:8081"},
	} {
		if got := clientURL(c.cert != "", c.addr); got != c.want {
			t.Errorf("the URL of %s with the certificate %q: got %s, want %s", c.addr, c.cert, got, c.want)
		}
	}
}
