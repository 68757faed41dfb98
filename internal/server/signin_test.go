package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/providertest"
	"github.com/keygate/keygate/internal/server"
)

// The names of the cookies of a listener without TLS.
const (
	sessionCookie = "keygate_session"
	signInCookie  = "keygate_session_sign_in"
)

// platform are the claims of an administrator.
func platform(subject string) map[string]any {
	return map[string]any{"sub": subject, "email": subject + "@example.com", "email_verified": true, "name": strings.ToUpper(subject[:1]) + subject[1:], "groups": []string{"platform"}}
}

// ssoFlags returns the flags of serve for a provider.
func ssoFlags(t *testing.T, p *providertest.Provider, more ...string) []string {
	t.Helper()
	dir := t.TempDir()
	secret, ca := filepath.Join(dir, "secret"), filepath.Join(dir, "ca.pem")
	for path, content := range map[string][]byte{secret: []byte(p.ClientSecret + "\n"), ca: p.CA} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return append([]string{
		"--sso-issuer", p.URL, "--sso-client-id", providertest.ClientID, "--sso-client-secret-file", secret, "--sso-ca", ca,
		"--sso-roles-claim", "groups", "--sso-role-map", "platform=admin,dev=viewer,ops=editor",
	}, more...)
}

// visitor is a browser: it keeps cookies, and goes where it is sent only if the test says so.
type visitor struct {
	t      *testing.T
	client *http.Client
	home   *url.URL // of Keygate
}

func newVisitor(t *testing.T, s *keygatetest.Server, p *providertest.Provider) *visitor {
	t.Helper()
	v := &visitor{t: t, client: p.Browser(t), home: must(url.Parse(s.AdminURL()))}
	v.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return v
}

// do makes a call; header holds alternating names and values.
func (v *visitor) do(method, address, body string, header ...string) keygatetest.Response {
	v.t.Helper()
	if strings.HasPrefix(address, "/") {
		address = v.home.String() + address
	}
	r := must(http.NewRequestWithContext(v.t.Context(), method, address, strings.NewReader(body)))
	r.Header.Set("Accept", "text/html")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for n := 0; n < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	res, err := v.client.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	defer res.Body.Close()
	return keygatetest.Response{Status: res.StatusCode, Header: res.Header, Body: string(must(io.ReadAll(res.Body)))}
}

func (v *visitor) get(address string) keygatetest.Response {
	v.t.Helper()
	return v.do(http.MethodGet, address, "")
}

// write makes a call as the dashboard does: with the Origin of its page.
func (v *visitor) write(method, path, body string) keygatetest.Response {
	v.t.Helper()
	return v.do(method, path, body, "Origin", v.home.String(), "Accept", "application/json")
}

// to returns where a redirect leads.
func (v *visitor) to(r keygatetest.Response) *url.URL {
	v.t.Helper()
	if r.Status != http.StatusFound {
		v.t.Fatalf("got %d %s, want a redirect", r.Status, r.Body)
	}
	return must(url.Parse(r.Header.Get("Location")))
}

// begin goes to the provider, and returns the address of the callback to which that sends the browser.
func (v *visitor) begin(query string) *url.URL {
	v.t.Helper()
	return v.to(v.get(v.to(v.get("/v1/session/sso" + query)).String()))
}

// signIn signs in.
func (v *visitor) signIn(query string) keygatetest.Response {
	v.t.Helper()
	return v.get(v.begin(query).String())
}

// cookie returns the value of a cookie, "" if there is none.
func (v *visitor) cookie(name string) string {
	for _, c := range v.client.Jar.Cookies(v.home) {
		if c.Name == name {
			return c.Value
		}
	}
	return ""
}

func (v *visitor) setCookie(name, value string) {
	v.client.Jar.SetCookies(v.home, []*http.Cookie{{Name: name, Value: value, Path: "/"}})
}

// isIn reports whether the browser has a session.
func (v *visitor) isIn() bool {
	v.t.Helper()
	return v.get("/v1/session").Status == http.StatusOK
}

// want checks the status of a response, and that its body or address has a text.
func (v *visitor) want(r keygatetest.Response, status int, text string) keygatetest.Response {
	v.t.Helper()
	if r.Status != status || !strings.Contains(r.Body+r.Header.Get("Location"), text) {
		v.t.Fatalf("got %d %q %s, want %d with %q", r.Status, r.Header.Get("Location"), r.Body, status, text)
	}
	return r
}

// with changes the query of an address.
func with(u *url.URL, name string, values ...string) string {
	changed, q := *u, u.Query()
	q[name] = values
	changed.RawQuery = q.Encode()
	return changed.String()
}

func startSSO(t *testing.T, log io.Writer, more ...string) (*keygatetest.Server, *providertest.Provider) {
	t.Helper()
	p := providertest.Start(t)
	s := keygatetest.StartWith(t, keygatetest.Options{Args: ssoFlags(t, p, more...), Log: log})
	p.Register(s.AdminURL() + "/v1/session/sso/callback")
	return s, p
}

// Guarantee: over HTTP, with a provider that checks what a provider has to: a user signs in with the role that its claim maps to,
// works with the session, and signs out. A rotation of the provider's keys refuses nobody. No secret of it is in the log.
func TestSignInOverHTTP(t *testing.T) {
	log := &lockedBuffer{}
	s, p := startSSO(t, log)
	p.SignsIn(platform("ada"))
	v := newVisitor(t, s, p)
	callback := v.begin("?return_to=/keys?q=a")
	flow := v.cookie(signInCookie)
	v.want(v.get(callback.String()), http.StatusFound, "/keys?q=a#signed-in")
	first := v.cookie(sessionCookie)
	v.want(v.get("/v1/session"), http.StatusOK, `"role":"admin"`)
	v.want(v.write(http.MethodPost, "/v1/gateways", `{"name": "g", "upstream_url": "http://127.0.0.1:9"}`), http.StatusCreated, "gw_")
	v.want(v.write(http.MethodPost, "/v1/users/invitations", `{"email": "eve@example.com", "role": "viewer"}`), http.StatusCreated, "/v1/session/sso?invitation=")
	v.want(v.write(http.MethodDelete, "/v1/session", ""), http.StatusOK, "")
	if v.isIn() {
		t.Error("the session lives after a sign-out")
	}
	p.Rotate()
	v.want(v.signIn("?reauthenticate=true"), http.StatusFound, "/#signed-in")
	for what, value := range map[string]string{
		"the client secret": p.ClientSecret, "the cookie of the sign-in": flow, "the session": first, "the next session": v.cookie(sessionCookie),
		"the state": callback.Query().Get("state"), "the code": callback.Query().Get("code"),
	} {
		if value == "" || strings.Contains(log.String(), value) {
			t.Errorf("%s, %q, is empty or in the log", what, value)
		}
	}
}

// Guarantee: an attacker who has a browser of their own, and can make that of a victim open any address, gets no session for either
// that the provider has not vouched for in the same browser and sign-in.
func TestSignInsAreNotForgedOverHTTP(t *testing.T) {
	s, p := startSSO(t, nil)
	refusedAs := func(t *testing.T, v *visitor, r keygatetest.Response, text string) {
		t.Helper()
		v.want(r, http.StatusUnauthorized, text)
		if v.isIn() {
			t.Error("the browser has a session")
		}
		// What an address may fail is for other tests: a sign-in that succeeds forgets it.
		p.Change(nil)
		p.SignsIn(platform("ada"))
		ok := newVisitor(t, s, p)
		ok.want(ok.signIn(""), http.StatusFound, "/")
	}
	callbacks := map[string]struct {
		change func(callback *url.URL) string
		text   string
	}{
		"another state":         {func(u *url.URL) string { return with(u, "state", strings.Repeat("A", 43)) }, "not one to this sign-in"},
		"no state":              {func(u *url.URL) string { return with(u, "state") }, "not one to this sign-in"},
		"another issuer's code": {func(u *url.URL) string { return with(u, "iss", "https://evil.example.com") }, "another identity provider"},
		"no issuer":             {func(u *url.URL) string { return with(u, "iss") }, "another identity provider"},
		"no code":               {func(u *url.URL) string { return with(u, "code") }, "no code"},
		"a code that is not":    {func(u *url.URL) string { return with(u, "code", "x") }, "invalid_grant"},
		"an error":              {func(u *url.URL) string { return with(u, "error", "access_denied") }, "access_denied"},
	}
	for name, c := range callbacks {
		t.Run("callback with "+name, func(t *testing.T) {
			p.SignsIn(platform("ada"))
			v := newVisitor(t, s, p)
			callback := v.begin("")
			before, _ := p.Asked()
			r := v.get(c.change(callback))
			if after, _ := p.Asked(); c.text != "invalid_grant" && after != before {
				t.Error("the code went to the provider")
			}
			refusedAs(t, v, r, c.text)
		})
	}
	tokens := map[string]struct {
		change func(claims map[string]any)
		text   string
	}{
		"another nonce":         {func(c map[string]any) { c["nonce"] = strings.Repeat("A", 43) }, "nonce"},
		"no nonce":              {func(c map[string]any) { c["nonce"] = nil }, "nonce"},
		"another audience":      {func(c map[string]any) { c["aud"] = "another" }, "not valid"},
		"another party":         {func(c map[string]any) { c["aud"], c["azp"] = []string{providertest.ClientID, "another"}, "another" }, "another client"},
		"many audiences":        {func(c map[string]any) { c["aud"] = []string{providertest.ClientID, "another"} }, "another client"},
		"another issuer":        {func(c map[string]any) { c["iss"] = "https://evil.example.com" }, "not valid"},
		"an expiry in the past": {func(c map[string]any) { c["exp"] = time.Now().Add(-time.Hour).Unix() }, "not valid"},
		"a number as subject":   {func(c map[string]any) { c["sub"] = 7 }, "not valid"},
	}
	for name, c := range tokens {
		t.Run("token with "+name, func(t *testing.T) {
			p.SignsIn(platform("ada"))
			p.Change(c.change)
			v := newVisitor(t, s, p)
			refusedAs(t, v, v.signIn(""), c.text)
		})
	}
	t.Run("callback of another browser", func(t *testing.T) {
		p.SignsIn(platform("mallory"))
		attacker, victim := newVisitor(t, s, p), newVisitor(t, s, p)
		refusedAs(t, victim, victim.get(attacker.begin("").String()), "not begun in this browser")
	})
	t.Run("code of another sign-in", func(t *testing.T) {
		p.SignsIn(platform("mallory"))
		attacker, victim := newVisitor(t, s, p), newVisitor(t, s, p)
		code := attacker.begin("").Query().Get("code")
		refusedAs(t, victim, victim.get(with(victim.begin(""), "code", code)), "invalid_grant") // PKCE
	})
	t.Run("callback a second time", func(t *testing.T) {
		p.SignsIn(platform("ada"))
		v := newVisitor(t, s, p)
		callback := v.begin("")
		flow := v.cookie(signInCookie)
		v.want(v.get(callback.String()), http.StatusFound, "/")
		again := newVisitor(t, s, p)
		again.setCookie(signInCookie, flow)
		refusedAs(t, again, again.get(callback.String()), "invalid_grant")
	})
	t.Run("callback with two states", func(t *testing.T) {
		p.SignsIn(platform("ada"))
		v := newVisitor(t, s, p)
		callback := v.begin("")
		v.want(v.get(with(callback, "state", callback.Query().Get("state"), "x")), http.StatusUnprocessableEntity, "state")
		if v.isIn() {
			t.Error("the browser has a session")
		}
	})
	t.Run("cookie that was changed", func(t *testing.T) {
		p.SignsIn(platform("ada"))
		v := newVisitor(t, s, p)
		callback := v.begin("")
		flow := []byte(v.cookie(signInCookie))
		flow[len(flow)/2] ^= 1
		v.setCookie(signInCookie, string(flow))
		refusedAs(t, v, v.get(callback.String()), "not begun in this browser")
	})
}

// Guarantee: a sign-in leads to a path of this server alone, whatever return_to says.
func TestSignInIsNoOpenRedirect(t *testing.T) {
	s, p := startSSO(t, nil)
	p.SignsIn(platform("ada"))
	v := newVisitor(t, s, p)
	for _, to := range []string{
		"https://evil.example.com/", "//evil.example.com/", "/\\evil.example.com/", "\\\\evil.example.com", "evil", "javascript:alert(1)", "/\t/evil.example.com", "/a\r\nX: y",
		"/#", "/é", "/" + strings.Repeat("a", 1024),
	} {
		v.want(v.get("/v1/session/sso?return_to="+url.QueryEscape(to)), http.StatusUnprocessableEntity, "return_to")
	}
	for _, to := range []string{"", "/", "/keys", "/keys?q=https://evil.example.com", "/.//evil.example.com/", "/..//evil.example.com/", "/%2f/evil.example.com", "/@evil.example.com"} {
		r := v.signIn("?return_to=" + url.QueryEscape(to))
		if got := v.home.ResolveReference(v.to(r)); got.Host != v.home.Host || got.Fragment != "signed-in" {
			t.Errorf("return_to %q leads to %s", to, got)
		}
	}
}

// Guarantee: a session has a value that nobody knew before the sign-in, and ends that which the browser had; calls with it that
// change something must come from a page of this server.
func TestSessionsAreNeitherFixedNorRidden(t *testing.T) {
	s, p := startSSO(t, nil)
	p.SignsIn(platform("mallory"))
	attacker := newVisitor(t, s, p)
	attacker.want(attacker.signIn(""), http.StatusFound, "/")
	planted := attacker.cookie(sessionCookie)

	p.SignsIn(platform("ada"))
	victim := newVisitor(t, s, p)
	victim.setCookie(sessionCookie, planted)
	victim.want(victim.signIn("?reauthenticate=true"), http.StatusFound, "/")
	if got := victim.cookie(sessionCookie); got == planted || got == "" {
		t.Errorf("got the session %q after a sign-in with a planted one", got)
	}
	if attacker.isIn() {
		t.Error("the planted session lives after a sign-in in its place")
	}
	victim.want(victim.get("/v1/session"), http.StatusOK, `"ada@example.com"`)

	gateway := must(s.Admin.CreateGateway(t.Context(), client.CreateGatewayRequest{Name: "g", UpstreamURL: "http://127.0.0.1:9"}))
	for _, call := range [][3]string{
		{http.MethodPost, "/v1/users/invitations", `{"email": "eve@example.com", "role": "admin"}`},
		{http.MethodPatch, "/v1/users/usr_0", `{"role": "admin"}`}, {http.MethodDelete, "/v1/users/usr_0", ""}, {http.MethodDelete, "/v1/users/invitations/inv_0", ""},
		{http.MethodPost, "/v1/keys", `{"name": "k", "level": "account", "scope": "admin"}`}, {http.MethodPost, "/v1/gateways", `{"name": "h", "upstream_url": "http://127.0.0.1:9"}`},
		{http.MethodDelete, "/v1/gateways/" + gateway.GatewayID, ""}, {http.MethodDelete, "/v1/session", ""},
	} {
		for _, header := range [][]string{
			{}, {"Origin", "https://evil.example.com"}, {"Origin", "null"}, {"Origin", p.URL}, {"Origin", victim.home.String(), "Sec-Fetch-Site", "cross-site"},
		} {
			if r := victim.do(call[0], call[1], call[2], append(header, "Accept", "application/json")...); r.Status != http.StatusForbidden {
				t.Errorf("%s %s with %q: got %d %s, want 403", call[0], call[1], header, r.Status, r.Body)
			}
		}
	}
	if !victim.isIn() {
		t.Error("another site has ended the session")
	}
}

// Guarantee: an email decides nothing about who somebody is: not of another subject with the email of an administrator, nor of
// somebody who has an invitation for an email that the provider has not verified.
func TestEmailsAreNotTakenOver(t *testing.T) {
	s, p := startSSO(t, nil)
	p.SignsIn(platform("ada"))
	ada := newVisitor(t, s, p)
	ada.want(ada.signIn(""), http.StatusFound, "/")
	var link struct{ Link string }
	made := ada.want(ada.write(http.MethodPost, "/v1/users/invitations", `{"email": "new@example.com", "role": "admin"}`), http.StatusCreated, "")
	if err := json.Unmarshal([]byte(made.Body), &link); err != nil {
		t.Fatal(err)
	}
	_, query, _ := strings.Cut(link.Link, "/v1/session/sso")

	mallory := newVisitor(t, s, p)
	p.SignsIn(map[string]any{"sub": "mallory", "email": "ada@example.com", "email_verified": true})
	mallory.want(mallory.signIn(""), http.StatusForbidden, "is new and has no role")
	for _, claims := range []map[string]any{
		{"sub": "mallory", "email": "new@example.com"},
		{"sub": "mallory", "email": "new@example.com", "email_verified": false},
		{"sub": "mallory", "email": "new@example.com", "email_verified": "true"},
		{"sub": "mallory", "email": "ada@example.com", "email_verified": true},
		{"sub": "mallory", "email": "new@example.com@evil.example.com", "email_verified": true},
		{"sub": "mallory", "email": []string{"new@example.com"}, "email_verified": true},
	} {
		p.SignsIn(claims)
		mallory.want(mallory.signIn(query), http.StatusForbidden, "the invitation is for another email")
	}
	if mallory.isIn() {
		t.Error("mallory has a session")
	}
	p.SignsIn(map[string]any{"sub": "new", "email": "New@Example.com", "email_verified": true})
	invited := newVisitor(t, s, p)
	invited.want(invited.signIn(query), http.StatusFound, "/")
	invited.want(invited.get("/v1/session"), http.StatusOK, `"role":"admin"`)
	p.SignsIn(map[string]any{"sub": "other", "email": "new@example.com", "email_verified": true})
	mallory.want(mallory.signIn(query), http.StatusForbidden, "the invitation is not valid")
}

// calm repeats a call that gets a 503, as a machine with little time for the database may give it, and checks its status.
func calm(t *testing.T, call func() keygatetest.Response, status int) (r keygatetest.Response) {
	t.Helper()
	awaittest.True(t, "the call is not refused with 503", func() bool {
		r = call()
		return r.Status != http.StatusServiceUnavailable
	})
	if r.Status != status {
		t.Errorf("got %d %s, want %d", r.Status, r.Body, status)
	}
	return r
}

// Guarantee: suspending, demoting and deleting a user is in force on every node when the call returns, for a session of another node
// as well.
func TestUsersAreSuspendedOnEveryNode(t *testing.T) {
	p := providertest.Start(t)
	c := startCluster(t, 2, ssoFlags(t, p)...)
	one, other := c.nodes[0], c.nodes[1]
	for _, node := range c.nodes {
		p.Register(node.AdminURL() + "/v1/session/sso/callback")
	}
	p.SignsIn(platform("root")) // so that ada is not the last admin
	root := newVisitor(t, one, p)
	calm(t, func() keygatetest.Response { return root.signIn("") }, http.StatusFound)
	for n, change := range []struct {
		method, body string
		status       int
	}{
		{http.MethodPatch, `{"role": "viewer"}`, http.StatusForbidden},
		{http.MethodPatch, `{"state": "suspended"}`, http.StatusUnauthorized},
		{http.MethodDelete, "", http.StatusUnauthorized},
	} {
		p.SignsIn(platform(fmt.Sprint("ada", n)))
		v := newVisitor(t, other, p)
		calm(t, func() keygatetest.Response { return v.signIn("") }, http.StatusFound)
		var session struct {
			User struct {
				ID string `json:"user_id"`
			}
		}
		got := calm(t, func() keygatetest.Response { return v.get("/v1/session") }, http.StatusOK)
		if err := json.Unmarshal([]byte(got.Body), &session); err != nil {
			t.Fatal(err)
		}
		// A call that got a 503 may have been made nevertheless.
		awaittest.True(t, "the change is confirmed", func() bool {
			r := one.Call(change.method, "/v1/users/"+session.User.ID, c.operator, change.body)
			return r.Status == http.StatusOK || change.method == http.MethodDelete && r.Status == http.StatusNotFound
		})
		for _, node := range c.nodes {
			there := newVisitor(t, node, p)
			there.setCookie(sessionCookie, v.cookie(sessionCookie))
			calm(t, func() keygatetest.Response {
				return there.write(http.MethodPost, "/v1/keys", `{"name": "k", "scope": "read"}`)
			}, change.status)
		}
	}
}

// Guarantee: the sign-in of a device is begun on one node, approved on another and redeemed on a third, for a token that all of them
// take; so is a code of a browser. A token is refused on every node when the call that revokes it, or suspends its user, returns.
func TestDevicesSignInOverSeveralNodes(t *testing.T) {
	p := providertest.Start(t)
	c := startCluster(t, 3, ssoFlags(t, p)...)
	for _, node := range c.nodes {
		p.Register(node.AdminURL() + "/v1/session/sso/callback")
	}
	p.SignsIn(platform("root")) // so that ada is not the last admin
	root := newVisitor(t, c.nodes[0], p)
	calm(t, func() keygatetest.Response { return root.signIn("") }, http.StatusFound)
	p.SignsIn(platform("ada"))
	post := func(node *keygatetest.Server, path string, body map[string]string) func() keygatetest.Response {
		return func() keygatetest.Response {
			content := must(json.Marshal(body))
			return node.Call(http.MethodPost, path, "", string(content))
		}
	}
	type made struct {
		Token string `json:"access_token"`
		User  struct {
			ID string `json:"user_id"`
		} `json:"user"`
	}
	read := func(r keygatetest.Response, to any) {
		t.Helper()
		if err := json.Unmarshal([]byte(r.Body), to); err != nil {
			t.Fatal(err)
		}
	}
	device := func() (m made) {
		t.Helper()
		var begun struct {
			DeviceCode string `json:"device_code"`
			UserCode   string `json:"user_code"`
		}
		read(calm(t, post(c.nodes[0], "/v1/session/device", map[string]string{"machine": "build-7"}), http.StatusOK), &begun)
		v := newVisitor(t, c.nodes[1], p)
		calm(t, func() keygatetest.Response { return v.signIn("?reauthenticate=true") }, http.StatusFound)
		awaittest.True(t, "the device is approved", func() bool { // a call that got a 503 may have been made nevertheless
			r := v.write(http.MethodPost, "/v1/session/device/approve", `{"user_code": "`+begun.UserCode+`", "approve": true}`)
			return r.Status == http.StatusOK || r.Status == http.StatusNotFound
		})
		r := post(c.nodes[2], "/v1/session/device/token", map[string]string{"grant_type": "urn:ietf:params:oauth:grant-type:device_code", "device_code": begun.DeviceCode})()
		if r.Status == http.StatusServiceUnavailable { // the code may be used up
			return made{}
		}
		v.want(r, http.StatusOK, "kgs_")
		read(r, &m)
		return m
	}
	everywhere := func(token string, status int) {
		t.Helper()
		for _, node := range c.nodes {
			calm(t, func() keygatetest.Response { return node.Call(http.MethodGet, "/v1/gateways", token, "") }, status)
		}
	}
	got := func() (m made) {
		t.Helper()
		awaittest.True(t, "a device gets a token", func() bool {
			m = device()
			return m.Token != ""
		})
		everywhere(m.Token, http.StatusOK)
		return m
	}
	m := got()
	awaittest.True(t, "the tokens are revoked", func() bool {
		return c.nodes[0].Call(http.MethodDelete, "/v1/users/"+m.User.ID+"/tokens", c.operator, "").Status == http.StatusOK
	})
	everywhere(m.Token, http.StatusUnauthorized)
	m = got()
	awaittest.True(t, "the user is suspended", func() bool {
		return c.nodes[2].Call(http.MethodPatch, "/v1/users/"+m.User.ID, c.operator, `{"state": "suspended"}`).Status == http.StatusOK
	})
	everywhere(m.Token, http.StatusUnauthorized)
}

// Guarantee: doctor fetches from the identity provider as a sign-in does, and says which redirect URI has to be registered; a
// provider that cannot be used is a warning with the reason.
func TestDoctorTriesTheIdentityProvider(t *testing.T) {
	p := providertest.Start(t)
	dir := filepath.Join(t.TempDir(), "data")
	flags := ssoFlags(t, p, "--admin-url", "https://keygate.example.com", "--admin-base-path", "/keys")
	expect(t, examine(t, dir, flags...), "identity provider", server.FindingOK, "https://keygate.example.com/keys/v1/session/sso/callback")
	other := ssoFlags(t, p, "--sso-issuer", p.URL+"/")
	expect(t, examine(t, dir, other...), "identity provider", server.FindingWarning, "check --sso-issuer")
	missing := ssoFlags(t, p, "--sso-client-secret-file", filepath.Join(dir, "none"))
	expect(t, examine(t, dir, missing...), "identity provider", server.FindingProblem, "--sso-client-secret-file")
}
