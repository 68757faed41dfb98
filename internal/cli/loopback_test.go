package cli

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// Guarantee: a command that waits for a code takes the first one that comes with its state, by GET and at its own host. Whatever else
// comes changes nothing.
func TestLoopback(t *testing.T) {
	l, err := startLoopback(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if u, err := url.Parse(l.uri); err != nil || !isLoopback(l.uri) || u.Path != "/callback" || u.Port() == "" {
		t.Fatalf("got %s", l.uri)
	}
	call := func(method, query, host string) int {
		w, r := httptest.NewRecorder(), httptest.NewRequest(method, l.uri+query, nil)
		r.Host = host
		l.serve(w, r)
		if strings.Contains(w.Body.String(), "secret") {
			t.Error("the page has the code")
		}
		return w.Code
	}
	state := "state=" + l.state
	for _, c := range [][3]string{
		{http.MethodGet, "?code=secret", l.host}, {http.MethodGet, "?code=secret&state=x", l.host}, {http.MethodGet, "?" + state, l.host}, {http.MethodGet, "?code=&" + state, l.host},
		{http.MethodGet, "?code=secret&" + state + "&state=x", l.host}, {http.MethodGet, "?code=a&code=b&" + state, l.host},
		{http.MethodPost, "?code=secret&" + state, l.host}, {http.MethodGet, "?code=secret&" + state, "evil.example"}, {http.MethodGet, "/x?code=secret&" + state, l.host},
	} {
		if got := call(c[0], c[1], c[2]); got != http.StatusBadRequest {
			t.Errorf("%v: got %d, want 400", c, got)
		}
	}
	for _, code := range []string{"secret", "another"} {
		if got := call(http.MethodGet, "?code="+code+"&"+state, l.host); got != http.StatusOK {
			t.Errorf("got %d, want 200", got)
		}
	}
	if got := <-l.codes; got != "secret" {
		t.Errorf("got the code %q, want the first", got)
	}
}

// Guarantee: the address at which users sign in, which a server says, is used only if it is one of https, or of loopback.
func TestSignInURL(t *testing.T) {
	for callback, ok := range map[string]bool{
		"https://keygate.example.com/v1/session/sso/callback": true, "https://keygate.example.com/admin/v1/session/sso/callback": true, "http://127.0.0.1:8081/v1/session/sso/callback": true,
		"http://keygate.example.com/v1/session/sso/callback": false, "file:///callback": false, "javascript:alert(1)/callback": false, "https:///callback": false,
		"https://a:b@keygate.example.com/callback": false, "https://keygate.example.com/callback?x": false, "https://keygate.example.com/": false, "": false,
	} {
		got, err := signInURL(callback, url.Values{"state": {"x"}})
		if (err == nil) != ok || ok && got != strings.TrimSuffix(callback, "/callback")+"?state=x" {
			t.Errorf("%q: got %q, %v", callback, got, err)
		}
	}
}
