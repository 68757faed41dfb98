package adminapi_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
)

// commandLine is keygate login --sso, as far as the server sees it.
type commandLine struct {
	s                         *server
	redirect, state, verifier string
}

func (s *server) commandLine() *commandLine {
	return &commandLine{
		s: s, redirect: "http://127.0.0.1:41777/callback", state: base64.RawURLEncoding.EncodeToString(make([]byte, 32)), verifier: strings.Repeat("v", 43),
	}
}

// query returns the query of the URL that the command line opens in the browser.
func (l *commandLine) query() string {
	sum := sha256.Sum256([]byte(l.verifier))
	return "?" + url.Values{
		"redirect_uri": {l.redirect}, "state": {l.state}, "code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	}.Encode()
}

var linkOfPage = regexp.MustCompile(`href="(http://[^"]+)"`)

// code returns the code that the browser takes to the command line when the user signs in.
func (l *commandLine) code(b *browser, p *signIns, claims map[string]any) string {
	l.s.t.Helper()
	w := b.want(b.signIn(p, claims, l.query()), 200, "Sign in to the command line")
	link := linkOfPage.FindStringSubmatch(w.Body.String())
	if link == nil {
		l.s.t.Fatalf("got no link: %s", w.Body)
	}
	to, err := url.Parse(html.UnescapeString(link[1]))
	if err != nil || !strings.HasPrefix(to.String(), l.redirect+"?") || to.Query().Get("state") != l.state {
		l.s.t.Fatalf("got the link %s, want one to %s", link[1], l.redirect)
	}
	return to.Query().Get("code")
}

func (l *commandLine) redeem(code string) *response {
	l.s.t.Helper()
	return l.s.do(request{method: "POST", path: "/v1/session/sso/token", key: "-", body: map[string]any{
		"code": code, "code_verifier": l.verifier, "redirect_uri": l.redirect, "machine": "ada-laptop",
	}})
}

// tokenOf returns the token of a user that signs in with claims.
func (s *server) tokenOf(p *signIns, claims map[string]any) (token, userID string) {
	s.t.Helper()
	l := s.commandLine()
	made := l.redeem(l.code(s.browser(), p, claims)).want(200)
	return made.text("access_token"), made.json["user"].(map[string]any)["user_id"].(string)
}

func (s *server) withKey(key, method, path string, body any) *response {
	s.t.Helper()
	return s.do(request{method: method, path: path, key: key, body: body})
}

// Guarantee: a command line on the machine of a browser gets a token of the form of the contract, and the browser no session. The
// provider is asked to authenticate the user anew. The token is what a session is: role and state are read at each call, it ends
// after 12 hours, is listed with its user, and its string is in no record.
func TestCommandLinesSignIn(t *testing.T) {
	s, p := startSSO(t, admins)
	b, l := s.browser(), s.commandLine()
	q := b.begin(l.query())
	if q.Get("max_age") != "0" {
		t.Errorf("got max_age %q, want 0", q.Get("max_age"))
	}
	p.claims = map[string]any{"groups": "platform", "name": "<b>Ada</b>"}
	w := b.want(b.finish(p, q), 200, "127.0.0.1:41777")
	if strings.Contains(w.Body.String(), "<b>Ada") || b.cookies["__Host-keygate_session"] != "" || len(b.cookies) != 0 || w.Header().Get("Location") != "" ||
		!strings.Contains(w.Header().Get("Content-Security-Policy"), "frame-ancestors 'none'") || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("got %v %v %s", b.cookies, w.Header(), w.Body)
	}
	made := l.redeem(l.code(b, p, map[string]any{"groups": "platform"})).want(200)
	token := made.text("access_token")
	if !regexp.MustCompile(`^kgs_[0-9A-Za-z]{36}$`).MatchString(token) || made.text("token_type") != "Bearer" || made.json["expires_in"] != 43200.0 {
		t.Errorf("got %s", made.raw)
	}
	user := made.json["user"].(map[string]any)["user_id"].(string)
	tokens := "/v1/users/" + user + "/tokens"
	if got := s.withKey(token, "GET", "/v1/session", nil).want(200); got.json["key"] != nil || got.text("expires_at") != made.text("expires_at") {
		t.Errorf("got %s", got.raw)
	}
	s.withKey(token, "POST", "/v1/gateways", map[string]any{"name": "g", "upstream_url": "http://127.0.0.1:9"}).want(201)
	s.withKey(token, "POST", "/v1/keys", map[string]any{"name": "k", "scope": "read", "level": "account"}).want(201)
	s.clock.move(5*time.Minute + time.Second)
	s.withKey(token, "POST", "/v1/keys", map[string]any{"name": "k", "scope": "read", "level": "account"}).denied(403, "forbidden", "reauthentication_required")
	listed := s.get(tokens).want(200)
	if got := listed.data(); len(got) != 1 || got[0]["token_prefix"] != token[:10] || got[0]["machine"] != "ada-laptop" || got[0]["token_id"] != made.text("token_id") || got[0]["last_used_at"] == nil || got[0]["current"] != false {
		t.Errorf("got %s", listed.raw)
	}
	if got := s.withKey(token, "GET", tokens, nil).want(200).data(); got[0]["current"] != true {
		t.Errorf("got %v", got)
	}

	s.do(request{method: "PATCH", path: "/v1/users/" + user, body: map[string]any{"role": "viewer"}}).want(409) // the last admin
	other, bob := s.tokenOf(p, map[string]any{"groups": "platform", "sub": "bob"})
	s.withKey(other, "PATCH", "/v1/users/"+user, map[string]any{"role": "viewer"}).want(200)
	s.withKey(token, "GET", "/v1/gateways", nil).want(200)
	s.withKey(token, "POST", "/v1/gateways", map[string]any{"name": "h", "upstream_url": "http://127.0.0.1:9"}).denied(403, "forbidden", "scope_insufficient")
	s.withKey(other, "PATCH", "/v1/users/"+user, map[string]any{"state": "suspended"}).want(200)
	s.withKey(token, "GET", "/v1/gateways", nil).denied(401, "unauthorized", "key_invalid")
	s.withKey(other, "PATCH", "/v1/users/"+user, map[string]any{"state": "active"}).want(200)
	s.withKey(token, "GET", "/v1/gateways", nil).denied(401, "unauthorized", "key_invalid") // its tokens have ended
	s.clock.move(12*time.Hour - time.Second)
	s.withKey(other, "GET", "/v1/gateways", nil).want(200)
	s.clock.move(time.Second)
	s.withKey(other, "GET", "/v1/gateways", nil).denied(401, "unauthorized", "key_expired")
	if n := len(s.get("/v1/users/" + bob + "/tokens").want(200).data()); n != 0 {
		t.Errorf("got %d tokens that have expired", n)
	}
	if err := s.logs.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
	log := s.get("/v1/audit-log?limit=100").want(200)
	found := map[string]bool{}
	for _, r := range log.data() {
		if by, ok := r["actor"].(map[string]any); ok {
			found[fmt.Sprint(r["action"], " ", by["kind"], " ", by["id"] == user)] = true
		} else {
			found[fmt.Sprint(r["path"], " ", r["subject"] == user, " ", r["outcome"], " ", r["key_prefix"])] = true
		}
	}
	for _, want := range []string{
		"user.sign_in user true", "user.token_create user true", "gateway.create user true",
		"/v1/session/sso/token true success " + token[:10], "/v1/gateways true success " + token[:10], "/v1/gateways false key_invalid " + token[:10],
	} {
		if !found[want] {
			t.Errorf("got %v, want %q", found, want)
		}
	}
	if strings.Contains(log.raw, token[10:]) || strings.Contains(listed.raw, token[10:]) {
		t.Error("a record has the string of a token")
	}
}

// Guarantee: a code is redeemed once, within two minutes, with its own verifier and redirect URI; otherwise it is used up. The
// browser takes it to a port of its own machine alone. Failed attempts count as those to sign in do.
func TestForgedCodesAreRefused(t *testing.T) {
	s, p := startSSO(t, admins)
	ok := map[string]any{"groups": "dev"}
	l := s.commandLine()
	code := l.code(s.browser(), p, ok)
	l.redeem(code).want(200)
	l.redeem(code).denied(401, "unauthorized", "key_invalid")
	for what, change := range map[string]func(l *commandLine){
		"another verifier":     func(l *commandLine) { l.verifier = strings.Repeat("w", 43) },
		"another redirect URI": func(l *commandLine) { l.redirect = "http://127.0.0.1:41778/callback" },
		"after two minutes":    func(*commandLine) { s.clock.move(2 * time.Minute) },
	} {
		code, other := l.code(s.browser(), p, ok), *l
		change(&other)
		other.redeem(code).denied(401, "unauthorized", "key_invalid")
		if r := l.redeem(code); r.status != 401 {
			t.Errorf("%s: the code was not used up: got %d %s", what, r.status, r.raw)
		}
	}
	s.clock.move(time.Minute)
	for range 10 {
		l.redeem(strings.Repeat("A", 43)).want(401)
	}
	l.redeem(strings.Repeat("A", 43)).want(429)
	s.clock.move(time.Minute)
	for _, to := range []string{
		"https://evil.example/callback", "http://evil.example:41777/callback", "http://localhost:41777/callback", "http://127.0.0.1/callback", "http://127.0.0.1:0/callback", "http://127.0.0.1:65536/callback",
		"http://127.0.0.1:41777/", "http://127.0.0.1:41777/callback?x", "http://127.0.0.1:41777/callback#x", "http://127.0.0.1:41777@evil.example/callback", "http://evil@127.0.0.1:41777/callback",
		"http://127.0.0.1:41777/callback\n", "//127.0.0.1:41777/callback", "http://127.0.0.1:41777\\@evil.example/callback", "http://127.1:41777/callback", "http://[::]:41777/callback", "https://127.0.0.1:41777/callback",
	} {
		l := *l
		l.redirect = to
		if w := s.browser().get("/v1/session/sso" + l.query()); w.Code != 422 || !strings.Contains(w.Body.String(), "redirect_uri") {
			t.Errorf("redirect_uri %q: got %d %s, want 422", to, w.Code, w.Body)
		}
	}
	six := *l
	six.redirect = "http://[::1]:41777/callback"
	six.redeem(six.code(s.browser(), p, ok)).want(200)
	full, _ := url.ParseQuery(l.query()[1:])
	for name := range full {
		q, _ := url.ParseQuery(l.query()[1:])
		q.Del(name)
		if w := s.browser().get("/v1/session/sso?" + q.Encode()); w.Code != 422 || !strings.Contains(w.Body.String(), name) {
			t.Errorf("without %s: got %d %s, want 422", name, w.Code, w.Body)
		}
	}
	for name, value := range map[string]string{"code_challenge_method": "plain", "code_challenge": "x", "state": "x", "return_to": "/keys", "invitation": strings.Repeat("A", 43)} {
		q, _ := url.ParseQuery(l.query()[1:])
		q.Set(name, value)
		if w := s.browser().get("/v1/session/sso?" + q.Encode()); w.Code != 422 || !strings.Contains(w.Body.String(), name) {
			t.Errorf("%s %q: got %d %s, want 422", name, value, w.Code, w.Body)
		}
	}
	b := s.browser()
	b.want(b.signIn(p, map[string]any{"groups": "none"}, l.query()), 403, "--sso-role-map")
}

// Guarantee: tokens are seen and revoked by administrators and by their own user, of the account alone. A token that was revoked is
// refused when the call returns, and by signing out too. A user has at most 20: one more ends the oldest.
func TestTokensOfUsers(t *testing.T) {
	s, p := startSSO(t, admins)
	token, ada := s.tokenOf(p, map[string]any{"groups": "dev"})
	second, _ := s.tokenOf(p, map[string]any{"groups": "dev"})
	eve, _ := s.tokenOf(p, map[string]any{"groups": "ops", "sub": "eve"})
	tokens := "/v1/users/" + ada + "/tokens"
	list := s.withKey(token, "GET", tokens, nil).want(200).data()
	if len(list) != 2 || list[1]["current"] != true {
		t.Fatalf("got %v", list)
	}
	if got := s.withKey(token, "GET", tokens+"?limit=1", nil).want(200); len(got.data()) != 1 || len(s.withKey(token, "GET", tokens+"?limit=1&cursor="+got.text("next_cursor"), nil).want(200).data()) != 1 {
		t.Errorf("got %s", got.raw)
	}
	one := tokens + "/" + list[0]["token_id"].(string)
	_, acme := s.tenant("acme")
	for _, c := range [][2]string{{"GET", tokens}, {"DELETE", tokens}, {"DELETE", one}} {
		for _, key := range []string{s.accountKey("read"), s.accountKey("write"), s.accountKey("admin:users"), eve} {
			s.withKey(key, c[0], c[1], nil).denied(403, "forbidden", "scope_insufficient")
		}
		s.withKey(acme, c[0], c[1], nil).want(404)
		s.withKey("", c[0], strings.Replace(c[1], ada, "usr_01jz8y5c3te9b8r2m6q4v7x0dd", 1), nil).want(404)
	}
	if got := s.withKey(token, "DELETE", one, nil).want(200); got.json["current"] != false {
		t.Errorf("got %s", got.raw)
	}
	s.withKey(second, "GET", "/v1/gateways", nil).denied(401, "unauthorized", "key_invalid")
	s.withKey(token, "DELETE", one, nil).want(404)
	s.withKey(token, "DELETE", "/v1/session", nil).want(200)
	s.withKey(token, "GET", "/v1/gateways", nil).denied(401, "unauthorized", "key_invalid")

	first, _ := s.tokenOf(p, map[string]any{"groups": "dev"})
	for range 20 {
		token, _ = s.tokenOf(p, map[string]any{"groups": "dev"})
		s.clock.move(time.Minute)
	}
	s.withKey(first, "GET", "/v1/gateways", nil).want(401)
	admin, _ := s.tokenOf(p, map[string]any{"groups": "platform", "sub": "bob"})
	s.clock.move(6 * time.Minute)
	s.withKey(admin, "DELETE", tokens, nil).denied(403, "forbidden", "reauthentication_required")
	if n := len(s.do(request{method: "DELETE", path: tokens}).want(200).data()); n != 20 {
		t.Errorf("got %d tokens that were revoked, want 20", n)
	}
	s.withKey(token, "GET", "/v1/gateways", nil).want(401)
	s.withKey(admin, "GET", "/v1/gateways", nil).want(200)
	waiting := s.commandLine()
	code := waiting.code(s.browser(), p, map[string]any{"groups": "dev"})
	s.do(request{method: "DELETE", path: tokens}).want(200)
	waiting.redeem(code).want(401)
	for _, bad := range []string{"kgs_" + strings.Repeat("0", 36), "kgs_x", admin[:len(admin)-1]} {
		s.withKey(bad, "GET", "/v1/gateways", nil).denied(401, "unauthorized", "key_invalid")
	}
	s.do(request{method: "POST", path: "/v1/session", key: "-", body: map[string]any{"key": admin}}).want(401)
}

// device is keygate login --device, as far as the server sees it.
type device struct {
	s              *server
	code, userCode string
}

const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

func (s *server) form(path string, values url.Values) *response {
	s.t.Helper()
	return s.do(request{method: "POST", path: path, key: "-", body: values.Encode(), header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}})
}

func (s *server) device() *device {
	s.t.Helper()
	r := s.form("/v1/session/device", url.Values{"client_id": {"keygate-cli"}, "scope": {""}, "machine": {"build-7"}, "resource": {"x"}}).want(200)
	return &device{s, r.text("device_code"), r.text("user_code")}
}

func (d *device) ask() *response {
	d.s.t.Helper()
	return d.s.form("/v1/session/device/token", url.Values{"grant_type": {deviceGrant}, "device_code": {d.code}, "client_id": {"keygate-cli"}})
}

func (b *browser) decide(code string, approve bool) *httptest.ResponseRecorder {
	b.s.t.Helper()
	body, _ := json.Marshal(map[string]any{"user_code": code, "approve": approve})
	return b.call("POST", "/v1/session/device/approve", string(body))
}

// Guarantee: a device gets a token by RFC 8628: its fields and its errors, an interval of 5 seconds that slow_down makes longer,
// by form and as JSON. The user sees address and machine, types the code in any case, and must have authenticated after the device
// began. A code is approved once and redeemed once.
func TestDevicesSignIn(t *testing.T) {
	s, p := startSSO(t, admins)
	begun := s.form("/v1/session/device", url.Values{"client_id": {"keygate-cli"}, "machine": {"build-7"}}).want(200)
	if !regexp.MustCompile(`^[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}$`).MatchString(begun.text("user_code")) || len(begun.text("device_code")) != 43 || begun.json["expires_in"] != 600.0 ||
		begun.json["interval"] != 5.0 || begun.text("verification_uri") != "https://keygate.example.com/device" || begun.json["verification_uri_complete"] != nil {
		t.Errorf("got %s", begun.raw)
	}
	d := &device{s, begun.text("device_code"), begun.text("user_code")}
	d.ask().denied(400, "authorization_pending", "")
	d.ask().denied(400, "slow_down", "") // the interval is 10 seconds
	s.clock.move(5 * time.Second)
	d.ask().denied(400, "slow_down", "") // 15 seconds
	s.clock.move(10 * time.Second)
	d.ask().denied(400, "authorization_pending", "")
	for range 20 {
		d.ask().denied(400, "slow_down", "")
	}
	s.clock.move(time.Minute)
	d.ask().denied(400, "authorization_pending", "")

	b := s.browser()
	b.want(b.signIn(p, map[string]any{"groups": "dev", "auth_time": s.clock.Now().Add(-3 * time.Minute).Unix()}, ""), 302, "")
	for _, typed := range []string{d.userCode, strings.ToLower(d.userCode), strings.ReplaceAll(d.userCode, "-", ""), " " + strings.ReplaceAll(d.userCode, "-", " ")} {
		got := b.want(b.get("/v1/session/device?user_code="+url.QueryEscape(typed)), 200, `"state":"pending"`).Body.String()
		if !strings.Contains(got, `"user_code":"`+d.userCode+`"`) || !strings.Contains(got, `"address":"127.0.0.1"`) || !strings.Contains(got, `"machine":"build-7"`) || strings.Contains(got, d.code) {
			t.Errorf("got %s", got)
		}
	}
	b.want(b.decide(d.userCode, true), 403, "reauthentication_required") // it has authenticated before the device began
	b.want(b.signIn(p, map[string]any{"groups": "dev"}, "?reauthenticate=true"), 302, "")
	b.want(b.decide(strings.ToLower(d.userCode), true), 200, `"state":"approved"`)
	b.want(b.decide(d.userCode, true), 404, "no device waits")
	b.want(b.get("/v1/session/device?user_code="+d.userCode), 404, "no device waits")
	made := s.do(request{method: "POST", path: "/v1/session/device/token", key: "-", body: map[string]any{"grant_type": deviceGrant, "device_code": d.code}}).want(200)
	if made.text("token_type") != "Bearer" || made.header.Get("Cache-Control") != "no-store" {
		t.Errorf("got %v %s", made.header, made.raw)
	}
	token := made.text("access_token")
	d.ask().denied(400, "invalid_grant", "")
	s.withKey(token, "GET", "/v1/gateways", nil).want(200)
	if got := s.withKey(token, "GET", "/v1/users/"+b.me()+"/tokens", nil).want(200).data(); len(got) != 1 || got[0]["machine"] != "build-7" {
		t.Errorf("got %v", got)
	}

	t.Run("and is denied, or expires", func(t *testing.T) {
		s := s.in(t)
		denied, late := s.device(), s.device()
		s.clock.move(6 * time.Minute) // to deny needs no new authentication
		b.want(b.decide(denied.userCode, false), 200, `"state":"denied"`)
		denied.ask().denied(400, "access_denied", "")
		denied.ask().denied(400, "access_denied", "")
		s.clock.move(4 * time.Minute)
		late.ask().denied(400, "expired_token", "")
		b.want(b.decide(late.userCode, false), 404, "no device waits")
	})
	t.Run("and of a user that was suspended meanwhile gets nothing", func(t *testing.T) {
		s := s.in(t)
		d := s.device()
		eve := s.browser()
		eve.want(eve.signIn(p, map[string]any{"groups": "dev", "sub": "eve"}, "?reauthenticate=true"), 302, "")
		user := eve.me()
		eve.want(eve.decide(d.userCode, true), 200, "approved")
		s.do(request{method: "PATCH", path: "/v1/users/" + user, body: map[string]any{"state": "suspended"}}).want(200)
		s.do(request{method: "PATCH", path: "/v1/users/" + user, body: map[string]any{"state": "active"}}).want(200)
		d.ask().denied(400, "invalid_grant", "")
	})
	t.Run("and says what is wrong with its questions", func(t *testing.T) {
		s := s.in(t)
		const to = "/v1/session/device/token"
		s.form(to, url.Values{"device_code": {"x"}}).refused(400, "invalid_request", "grant_type")
		s.form(to, url.Values{"grant_type": {deviceGrant}}).refused(400, "invalid_request", "device_code")
		s.form(to, url.Values{"grant_type": {deviceGrant, deviceGrant}, "device_code": {"x"}}).denied(400, "invalid_request", "")
		s.form(to, url.Values{"grant_type": {"password"}, "device_code": {"x"}}).denied(400, "unsupported_grant_type", "")
		s.form(to, url.Values{"grant_type": {deviceGrant}, "device_code": {"x"}, "client_id": {"other"}}).denied(400, "invalid_client", "")
		s.form("/v1/session/device", url.Values{"client_id": {"other"}}).denied(400, "invalid_client", "")
		s.form("/v1/session/device", url.Values{"machine": {strings.Repeat("x", 101)}}).refused(400, "invalid_request", "machine")
		s.form("/v1/session/device", url.Values{"machine": {"a\x1b[2J"}}).refused(400, "invalid_request", "machine")
		s.do(request{method: "POST", path: to, key: "-", body: "x", header: map[string]string{"Content-Type": "text/plain"}}).want(415)
		s.clock.move(time.Minute)
		for range 10 {
			s.form(to, url.Values{"grant_type": {deviceGrant}, "device_code": {"x"}}).denied(400, "invalid_grant", "")
		}
		s.form(to, url.Values{"grant_type": {deviceGrant}, "device_code": {"x"}}).want(429)
	})
	if err := s.logs.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
	log := s.get("/v1/audit-log?limit=100&kind=management").want(200)
	for _, action := range []string{"user.device_approve", "user.device_deny", "user.token_create"} {
		if !strings.Contains(log.raw, action) {
			t.Errorf("the audit log has no %s", action)
		}
	}
	if strings.Contains(log.raw, token[10:]) || strings.Contains(log.raw, d.code) {
		t.Error("the audit log has a secret")
	}
}

// Guarantee: only the session of a user decides about a device: no key, and no token, which could get others. A user types at most
// 10 wrong codes in a minute, whether it asks or decides; another user does not suffer from that. At most 20 devices of an address
// wait.
func TestDevicesAreBounded(t *testing.T) {
	s, p := startSSO(t, admins)
	d := s.device()
	token, _ := s.tokenOf(p, map[string]any{"groups": "platform"})
	for _, key := range []string{"", token} {
		s.withKey(key, "GET", "/v1/session/device?user_code="+d.userCode, nil).want(403)
		s.withKey(key, "POST", "/v1/session/device/approve", map[string]any{"user_code": d.userCode, "approve": true}).want(403)
	}
	b, other := s.browser(), s.browser()
	b.want(b.signIn(p, map[string]any{"groups": "dev"}, "?reauthenticate=true"), 302, "")
	other.want(other.signIn(p, map[string]any{"groups": "dev", "sub": "eve"}, "?reauthenticate=true"), 302, "")
	b.want(b.get("/v1/session/device"), 422, "user_code")
	b.want(b.call("POST", "/v1/session/device/approve", `{"user_code": "`+d.userCode+`"}`), 422, "approve")
	for n := range 10 {
		if n%2 == 0 {
			b.want(b.get("/v1/session/device?user_code=BBBB-BBBB"), 404, "no device waits")
		} else {
			b.want(b.decide("not a code", true), 404, "no device waits")
		}
	}
	b.want(b.get("/v1/session/device?user_code="+d.userCode), 429, "too many wrong codes")
	b.want(b.decide(d.userCode, true), 429, "too many wrong codes")
	other.want(other.get("/v1/session/device?user_code="+d.userCode), 200, "pending")
	s.clock.move(time.Minute)
	b.want(b.decide(d.userCode, true), 200, "approved")
	d.ask().want(200)

	for range 20 {
		d = s.device()
	}
	s.form("/v1/session/device", nil).denied(429, "rate_limit_exceeded", "")
	b.want(b.decide(d.userCode, false), 200, "denied")
	s.form("/v1/session/device", nil).want(200)
	cross := httptest.NewRequest("POST", "https://keygate.example.com/v1/session/device/approve", strings.NewReader(`{"user_code": "`+d.userCode+`", "approve": true}`))
	cross.Header.Set("Content-Type", "application/json")
	cross.Header.Set("Origin", "https://evil.example")
	cross.Header.Set("Cookie", "__Host-keygate_session="+b.cookies["__Host-keygate_session"])
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, cross)
	if w.Code != 403 {
		t.Errorf("from another site: got %d, want 403", w.Code)
	}
}
