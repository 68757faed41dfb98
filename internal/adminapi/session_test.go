package adminapi_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/adminapi"
	"github.com/keygate/keygate/internal/cookie"
)

// signIn signs in with a key and returns the response and the cookie, as name=value.
func (s *server) signIn(key string) (r *response, value string) {
	s.t.Helper()
	r = s.do(request{method: "POST", path: "/v1/session", key: "-", body: map[string]any{"key": key}})
	value, _, _ = strings.Cut(r.header.Get("Set-Cookie"), ";")
	return r, value
}

// with makes a call with a cookie, from a page of the server itself, and other fields.
func (s *server) with(value, method, path string, header map[string]string, body any) *response {
	s.t.Helper()
	all := map[string]string{"Cookie": value, "Origin": s.http.URL}
	for name, v := range header {
		all[name] = v
	}
	return s.do(request{method: method, path: path, key: "-", body: body, header: all})
}

// denied fails the test unless the response is this 401 or 403.
func (r *response) denied(status int, name, code string) {
	r.t.Helper()
	r.refused(status, name, "")
	if got, _ := r.json["code"].(string); got != code {
		r.t.Errorf("%s: got code %q, want %q", r.what, got, code)
	}
}

// Guarantee: an account-level key is exchanged for a cookie with the attributes of the contract
// (3.4), which then stands for the key: it has its scope and its rate limit, works for 12 hours
// and over a restart, and is stored only as a digest.
func TestSession(t *testing.T) {
	s := start(t)
	key := s.accountKey("read write:keys")
	r, value := s.signIn(key)
	r.want(200)
	wantFields(t, r.json, "account_id key user expires_at")
	if got, want := r.json["expires_at"], "2027-03-02T00:00:00Z"; got != want {
		t.Errorf("got expires_at %v, want %v", got, want)
	}
	name, secret, _ := strings.Cut(value, "=")
	if got, want := r.header.Get("Set-Cookie"), value+"; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict"; got != want || name != "keygate_session" || len(secret) != 43 {
		t.Errorf("got cookie %q, want %q", got, want)
	}
	if r.header.Get("X-RateLimit-Limit") != "200" {
		t.Errorf("got headers %v, want those of the key's limit", r.header)
	}
	if strings.Contains(r.raw, secret) || strings.Contains(r.raw, key) {
		t.Errorf("the response shows a secret: %s", r.raw)
	}
	s.with(value, "GET", "/v1/gateways", nil, nil).want(200)
	s.with(value, "POST", "/v1/keys", nil, map[string]any{"name": "a", "scope": "read"}).want(201)
	s.with(value, "POST", "/v1/webhooks", nil, map[string]any{}).denied(403, "forbidden", "scope_insufficient")
	s.with(value, "GET", "/v1/gateways", map[string]string{"Authorization": "Bearer " + s.admin}, nil).want(200)
	s.with(value, "GET", "/v1/gateways", map[string]string{"Authorization": "Bearer x"}, nil).denied(401, "unauthorized", "key_invalid")
	s.restart()
	s.with(value, "GET", "/v1/gateways", nil, nil).want(200)
	s.clock.move(12*time.Hour - time.Second)
	s.with(value, "GET", "/v1/gateways", nil, nil).want(200)
	s.clock.move(time.Second)
	s.with(value, "GET", "/v1/gateways", nil, nil).denied(401, "unauthorized", "key_invalid")
}

// Guarantee: a session ends at once when its key ends, in whatever way, and with a sign-out.
func TestSessionEnds(t *testing.T) {
	s := start(t)
	for _, c := range []struct {
		name, code string
		end        func(s *server, keyID, value string)
	}{
		{"sign-out", "key_invalid", func(s *server, _, value string) {
			r := s.with(value, "DELETE", "/v1/session", nil, nil).want(200)
			if got := r.header.Get("Set-Cookie"); !strings.HasPrefix(got, "keygate_session=; Path=/; Max-Age=0; ") {
				s.t.Errorf("got cookie %q, want one that removes it", got)
			}
		}},
		{"revocation", "key_invalid", func(s *server, keyID, _ string) {
			s.do(request{method: "DELETE", path: "/v1/keys/" + keyID}).want(200)
		}},
		{"rotation", "key_expired", func(s *server, keyID, _ string) {
			s.post("/v1/keys/"+keyID+"/rotate", map[string]any{"overlap_days": 0}).want(201)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := s.in(t)
			k := s.newKey(map[string]any{"level": "account", "scope": "admin"})
			_, value := s.signIn(k.text("key"))
			s.with(value, "GET", "/v1/account", nil, nil).want(200)
			c.end(s, k.text("key_id"), value)
			s.with(value, "GET", "/v1/account", nil, nil).denied(401, "unauthorized", c.code)
		})
	}
	t.Run("suspension", func(t *testing.T) {
		s := s.in(t)
		accountID, key := s.tenant("suspended")
		_, value := s.signIn(key)
		s.with(value, "GET", "/v1/account", nil, nil).want(200)
		s.patchAccount(accountID, `{"state": "suspended"}`).want(200)
		s.with(value, "GET", "/v1/account", nil, nil).denied(401, "unauthorized", "key_invalid")
	})
	s.do(request{method: "DELETE", path: "/v1/session"}).refused(404, "not_found", "")
	s.do(request{method: "GET", path: "/v1/session"}).refused(404, "not_found", "")
}

// Guarantee: a key that may not call this API gets no session: the responses reveal no more than a
// call with the key would.
func TestSignInIsRefused(t *testing.T) {
	s := start(t)
	expiring := s.newKey(map[string]any{"level": "account", "scope": "admin", "expires_at": "2027-03-01T12:00:01Z"}).text("key")
	gatewayKey := s.newKey(nil).text("key")
	s.clock.move(time.Second)
	for key, code := range map[string]string{
		expiring: "key_expired", gatewayKey: "key_invalid", "kga_x": "key_invalid", s.admin[:len(s.admin)-1] + "!": "key_invalid",
	} {
		r, value := s.signIn(key)
		r.denied(401, "unauthorized", code)
		if value != "" || strings.Contains(r.raw, key) {
			t.Errorf("%s: got cookie %q and %s", key, value, r.raw)
		}
	}
	for body, field := range map[string]string{`{}`: "key", `{"key": 1}`: "key", `{"key": "x", "name": 1}`: "name"} {
		s.do(request{method: "POST", path: "/v1/session", key: "-", body: body}).refused(422, "validation_failed", field)
	}
	s.do(request{method: "POST", path: "/v1/session", key: "-", body: `{"key": "` + strings.Repeat("x", 5000) + `"}`}).refused(413, "body_too_large", "")
	for _, value := range []string{"keygate_session=" + strings.Repeat("a", 43), "keygate_session=", "keygate_session=x", "other=1"} {
		s.with(value, "GET", "/v1/account", nil, nil).denied(401, "unauthorized", "key_invalid")
	}
	_, value := s.signIn(s.admin)
	s.with(value+"; "+value, "GET", "/v1/account", nil, nil).denied(401, "unauthorized", "key_invalid")
}

// Guarantee: a call with a session that changes something must come from a page of this server
// (contract, 3.4). A call with a key need not. A call that signs in may lack an Origin, but must
// not have another Origin.
func TestSessionsAreSafeFromOtherSites(t *testing.T) {
	s := start(t)
	_, value := s.signIn(s.admin)
	own := s.http.URL
	for _, c := range []struct {
		origin, site string
		ok           bool
	}{
		{own, "", true}, {own, "same-origin", true}, {own, "none", true},
		{strings.Replace(own, "http:", "https:", 1), "", true}, // a proxy in front has TLS
		{strings.ToUpper(own), "", true},
		{"", "", false}, {"", "same-origin", false}, {"null", "", false}, {own, "same-site", false}, {own, "cross-site", false},
		{"http://evil.example", "", false}, {own + "0", "", false}, {"http://127.0.0.1", "", false}, {own + ".evil.example", "", false},
		{"http://evil.example@" + strings.TrimPrefix(own, "http://"), "same-site", false}, {"ftp" + strings.TrimPrefix(own, "http"), "", false},
	} {
		header := map[string]string{"Origin": c.origin, "Sec-Fetch-Site": c.site}
		r := s.with(value, "POST", "/v1/keys", header, map[string]any{"name": "a", "scope": "read"})
		signIn := s.do(request{method: "POST", path: "/v1/session", key: "-", body: map[string]any{"key": s.admin}, header: header})
		if c.ok {
			r.want(201)
			signIn.want(200)
			continue
		}
		r.denied(403, "forbidden", "")
		if c.origin == "" && c.site != "same-site" {
			signIn.want(200)
		} else {
			signIn.denied(403, "forbidden", "")
		}
	}
	s.with(value, "GET", "/v1/keys", map[string]string{"Origin": "", "Sec-Fetch-Site": "cross-site"}, nil).want(200)
	s.with("", "POST", "/v1/keys", map[string]string{"Origin": "http://evil.example", "Authorization": "Bearer " + s.admin}, map[string]any{"name": "a", "scope": "read"}).want(201)
	s.with(value, "DELETE", "/v1/session", map[string]string{"Origin": "http://evil.example"}, nil).denied(403, "forbidden", "")
	s.with(value, "GET", "/v1/keys", nil, nil).want(200)
}

// Guarantee: the Location of a new record has the base path.
func TestLocationHasTheBasePath(t *testing.T) {
	s := start(t)
	for base, want := range map[string]string{"/": "/v1/keys/key_", "/keygate": "/keygate/v1/keys/key_"} {
		s.api.BasePath = base
		r := httptest.NewRequest("POST", "http://admin.example.com/v1/keys", strings.NewReader(`{"name": "a", "scope": "read"}`))
		r.Header.Set("Authorization", "Bearer "+s.admin)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		must(adminapi.New(s.api))(t).ServeHTTP(w, r)
		if got := w.Header().Get("Location"); w.Code != 201 || !strings.HasPrefix(got, want) {
			t.Errorf("below %s: got %d and the Location %q, want it to begin with %s", base, w.Code, got, want)
		}
	}
}

// Guarantee: over TLS, the listener's or a trusted proxy's, the cookie is Secure, bound to the host
// by its name, and counts only under that name.
func TestSessionOverTLS(t *testing.T) {
	s := start(t)
	s.api.Trusted = func(peer netip.Addr) bool { return peer == netip.MustParseAddr("192.0.2.7") }
	s.api.BasePath = "/keygate/"
	handler := must(adminapi.New(s.api))(t)
	call := func(method, path, peer, value string, overTLS bool, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "http://admin.example.com"+path, strings.NewReader(`{"key": "`+s.admin+`"}`))
		r.RemoteAddr = peer + ":5000"
		r.Header.Set("Content-Type", "application/json")
		if value != "" {
			r.Header.Set("Cookie", value)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		if overTLS {
			r.TLS = &tls.ConnectionState{}
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	const attributes = "; Max-Age=43200; HttpOnly"
	for _, c := range []struct {
		peer    string
		overTLS bool
		header  []string
		name    string
		rest    string
	}{
		{"192.0.2.1", false, nil, cookie.Session, "; Path=/keygate/" + attributes + "; SameSite=Strict"},
		{"192.0.2.1", true, nil, cookie.Secure, "; Path=/" + attributes + "; Secure; SameSite=Strict"},
		{"192.0.2.7", false, []string{"X-Forwarded-Proto", "https"}, cookie.Secure, "; Path=/" + attributes + "; Secure; SameSite=Strict"},
		{"192.0.2.1", false, []string{"X-Forwarded-Proto", "https"}, cookie.Session, "; Path=/keygate/" + attributes + "; SameSite=Strict"},
	} {
		w := call("POST", "/v1/session", c.peer, "", c.overTLS, c.header...)
		value, _, _ := strings.Cut(w.Header().Get("Set-Cookie"), ";")
		if w.Code != 200 || w.Header().Get("Set-Cookie") != value+c.rest || !strings.HasPrefix(value, c.name+"=") {
			t.Errorf("%+v: got %d %q", c, w.Code, w.Header().Get("Set-Cookie"))
		}
		if w := call("GET", "/v1/account", c.peer, value, c.overTLS, c.header...); w.Code != 200 {
			t.Errorf("%+v: got %d with the cookie", c, w.Code)
		}
		_, secret, _ := strings.Cut(value, "=")
		other := map[string]string{cookie.Session: cookie.Secure, cookie.Secure: cookie.Session}[c.name]
		if w := call("GET", "/v1/account", c.peer, other+"="+secret, c.overTLS, c.header...); w.Code != 401 {
			t.Errorf("%+v: got %d with the cookie under its other name", c, w.Code)
		}
		plain := append([]string{"Origin", "http://admin.example.com"}, c.header...)
		if w, want := call("DELETE", "/v1/session", c.peer, value, c.overTLS, plain...), map[string]int{cookie.Session: 200, cookie.Secure: 403}[c.name]; w.Code != want {
			t.Errorf("%+v: got %d for a page without TLS, want %d", c, w.Code, want)
		}
	}
	proxied := []string{"X-Forwarded-Proto", "https", "X-Forwarded-Host", "public.example.com", "Origin", "https://public.example.com"}
	if w := call("POST", "/v1/session", "192.0.2.7", "", false, proxied...); w.Code != 200 {
		t.Errorf("got %d for the host that a trusted proxy names, want 200", w.Code)
	}
	if w := call("POST", "/v1/session", "192.0.2.1", "", false, proxied...); w.Code != 403 {
		t.Errorf("got %d for the host that a stranger names, want 403", w.Code)
	}
}

// Guarantee: after ten failed attempts to sign in within a minute, an address is refused, with a
// right key too, and other addresses are not. A successful attempt clears the count.
func TestSignInIsLimited(t *testing.T) {
	s := start(t)
	attempt := func(from, key string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "/v1/session", strings.NewReader(`{"key": "`+key+`"}`))
		r.RemoteAddr = from
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		return w
	}
	want := func(from, key string, status int) *httptest.ResponseRecorder {
		t.Helper()
		w := attempt(from, key)
		if w.Code != status {
			t.Fatalf("%s: got %d, want %d: %s", from, w.Code, status, w.Body)
		}
		return w
	}
	const one, same, other = "[2001:db8::1]:1", "[2001:db8::2]:9", "[2001:db8:0:1::1]:1"
	for range 9 {
		want(one, "kga_wrong", 401)
	}
	want(same, s.admin, 200) // of the same /64: clears the count
	for range 10 {
		want(one, "kga_wrong", 401)
		s.clock.move(time.Second)
	}
	w := want(same, s.admin, 429)
	if got := w.Header().Get("Retry-After"); got != "50" || !strings.Contains(w.Body.String(), `"limit":10,`) {
		t.Errorf("got headers %v, want the time until the first failure is a minute old", w.Header())
	}
	if !strings.Contains(w.Body.String(), `"limit_scope":"address"`) {
		t.Errorf("got %s, want limit_scope address", w.Body)
	}
	want(other, s.admin, 200)
	s.clock.move(50 * time.Second)
	want(one, s.admin, 200)
	t.Run("and attempts at the same time are counted too", func(t *testing.T) {
		s.clock.move(time.Minute)
		body, send := io.Pipe()
		late := httptest.NewRequest("POST", "/v1/session", body)
		late.RemoteAddr = one
		late.Header.Set("Content-Type", "application/json")
		w, done := httptest.NewRecorder(), make(chan struct{})
		go func() {
			defer close(done)
			s.handler.ServeHTTP(w, late)
		}()
		if _, err := io.WriteString(send, `{"key": `); err != nil { // it has arrived
			t.Fatal(err)
		}
		s.clock.move(time.Second)
		var failed atomic.Int32
		var all sync.WaitGroup
		for range 40 {
			all.Go(func() {
				if attempt(one, "kga_wrong").Code == http.StatusUnauthorized {
					failed.Add(1)
				}
			})
		}
		all.Wait()
		if n := failed.Load(); n != 10 {
			t.Errorf("got %d failures of 40 attempts, want 10", n)
		}
		_, _ = io.WriteString(send, `"kga_wrong"}`)
		_ = send.Close()
		if <-done; w.Code != http.StatusTooManyRequests {
			t.Errorf("an attempt that began before them got %d, want 429", w.Code)
		}
		s.clock.move(time.Minute)
	})
	t.Run("and what is remembered of addresses is bounded", func(t *testing.T) {
		for i := range 10_100 {
			attempt(fmt.Sprintf("10.%d.%d.1:1", i/250, i%250), "kga_wrong")
		}
		if n := adminapi.SignInAddresses(s.handler); n > 10_000 {
			t.Errorf("the failures of %d addresses are remembered, want at most 10,000", n)
		}
	})
}

// Guarantee: a key has at most 100 sessions and an account 1,000. Beyond that the oldest ends.
func TestSessionsAreBounded(t *testing.T) {
	s := start(t)
	var first, second string
	for i := range 101 {
		_, value := s.signIn(s.admin)
		switch i {
		case 0:
			first = value
		case 1:
			second = value
		}
		s.clock.move(time.Second)
	}
	s.with(first, "GET", "/v1/account", nil, nil).want(401)
	s.with(second, "GET", "/v1/account", nil, nil).want(200)
}

// Guarantee: signing in and each call with a session is in the audit log, with the key and
// without a secret; a change is recorded as a change by the key.
func TestSessionsInTheAuditLog(t *testing.T) {
	s := start(t)
	r, value := s.signIn(s.admin)
	r.want(200)
	s.signIn("kga_wrong")
	created := s.with(value, "POST", "/v1/keys", nil, map[string]any{"name": "a", "scope": "read"}).want(201)
	if err := s.logs.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
	_, secret, _ := strings.Cut(value, "=")
	log := s.get("/v1/audit-log?limit=100").want(200)
	if strings.Contains(log.raw, secret) || strings.Contains(log.raw, s.admin) {
		t.Error("the audit log shows a secret")
	}
	found := map[string]int{}
	for _, record := range log.data() {
		found[fmt.Sprint(record["kind"], " ", record["method"], " ", record["path"], " ", record["outcome"], " ", record["key_prefix"] == s.admin[:10])]++
		if record["target"] == created.text("key_id") && record["actor_key_id"] != r.json["key"].(map[string]any)["key_id"] {
			t.Errorf("got %v, want the key of the session as the actor", record)
		}
	}
	for _, want := range []string{
		"authentication POST /v1/session success true", "authentication POST /v1/keys success true",
	} {
		if found[want] != 1 {
			t.Errorf("got %v, want one %q", found, want)
		}
	}
}
