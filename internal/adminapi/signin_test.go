package adminapi_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/jwk"
	"github.com/keygate/keygate/internal/provider"
	"github.com/keygate/keygate/internal/secret"
	"github.com/keygate/keygate/internal/sso"
	"github.com/keygate/keygate/internal/token/tokentest"
	"github.com/keygate/keygate/internal/user"
)

const identityProvider = "https://login.example.com"

// signIns is an identity provider, and what the server knows of it.
type signIns struct {
	policy  *control.SignInPolicy
	roleMap map[string]user.Role
	signer  *tokentest.Signer
	clock   *clock
	codes   map[string]url.Values // the query of the authorization, by code
	claims  map[string]any        // of the next ID token
	change  func(map[string]any)  // changes the claims of the next ID token
	down    bool                  // it does not respond
	sendIss bool                  // it says that it sends iss
	asked   int                   // how many codes it was asked for
}

// startSSO starts a server with an identity provider. The roles of its users are in the claim groups if roles are given.
func startSSO(t *testing.T, roles map[string]user.Role, domains ...string) (*server, *signIns) {
	t.Helper()
	s := start(t)
	p := &signIns{
		policy: &control.SignInPolicy{Issuer: identityProvider, Account: "default", Domains: domains}, roleMap: roles,
		signer: tokentest.New([32]byte{1}), clock: s.clock, codes: map[string]url.Values{},
	}
	s.signIns = p
	s.close()
	s.open()
	return s, p
}

func (p *signIns) provider(s *server, box *secret.Box) *sso.Provider {
	claim := ""
	if p.roleMap != nil {
		claim = "groups"
	}
	return must(sso.New(sso.Config{
		Issuer: identityProvider, ClientID: "keygate", ClientSecret: "s3cret", Scopes: []string{"openid", "email"}, RolesClaim: claim, RoleMap: p.roleMap,
		RedirectURL: "https://keygate.example.com/v1/session/sso/callback", Source: p, Sealer: box, Random: rand.Reader, Now: s.clock.Now,
	}))(s.t)
}

// Keys implements sso.Source.
func (p *signIns) Keys(context.Context, issuer.Source, bool) (*provider.Keys, error) {
	set, err := jwk.ParseSet([]byte(p.signer.JWKS()))
	return &provider.Keys{Set: set, Life: -1}, err
}

// Endpoints implements sso.Source.
func (p *signIns) Endpoints(context.Context, issuer.Source, bool) (*provider.Endpoints, error) {
	if p.down {
		return nil, &provider.Error{Message: "the provider cannot be reached", Err: errors.New("refused")}
	}
	return &provider.Endpoints{Authorization: identityProvider + "/authorize?tenant=1", Token: identityProvider + "/token", EndSession: identityProvider + "/logout", SendsIssuer: p.sendIss}, nil
}

// Exchange implements sso.Source. It checks what a provider checks: the code, the verifier, the redirect URI and the client.
func (p *signIns) Exchange(_ context.Context, _ issuer.Source, _ bool, _ *provider.Endpoints, form url.Values, clientID, clientSecret string) (string, error) {
	p.asked++
	q, known := p.codes[form.Get("code")]
	delete(p.codes, form.Get("code"))
	sum := sha256.Sum256([]byte(form.Get("code_verifier")))
	if !known || base64.RawURLEncoding.EncodeToString(sum[:]) != q.Get("code_challenge") || form.Get("redirect_uri") != q.Get("redirect_uri") || clientID != "keygate" || clientSecret != "s3cret" {
		return "", &provider.Error{Message: "the provider gives no token: invalid_grant", Refused: true}
	}
	claims := map[string]any{"aud": "keygate", "sub": "ada", "nonce": q.Get("nonce"), "email": "ada@example.com", "email_verified": true, "name": "Ada"}
	for name, value := range p.claims {
		claims[name] = value
	}
	if p.change != nil {
		p.change(claims)
	}
	return p.signer.Token(identityProvider, p.clock.Now(), claims), nil
}

// browser is a client that keeps cookies.
type browser struct {
	s       *server
	cookies map[string]string
	from    string
}

func (s *server) browser() *browser {
	return &browser{s: s, cookies: map[string]string{}, from: "192.0.2.1:1"}
}

func (b *browser) get(path string) *httptest.ResponseRecorder { return b.call("GET", path, "") }

func (b *browser) call(method, path, body string) *httptest.ResponseRecorder {
	b.s.t.Helper()
	r := httptest.NewRequest(method, "https://keygate.example.com"+path, strings.NewReader(body))
	r.RemoteAddr = b.from
	r.Header.Set("Accept", "text/html")
	r.Header.Set("Origin", "https://keygate.example.com")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	w := httptest.NewRecorder()
	b.s.handler.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		if b.cookies[c.Name] = c.Value; c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	return w
}

// begin goes to the provider and returns the query of the authorization.
func (b *browser) begin(query string) url.Values {
	b.s.t.Helper()
	w := b.get("/v1/session/sso" + query)
	to, err := url.Parse(w.Header().Get("Location"))
	if w.Code != http.StatusFound || err != nil || to.Host != "login.example.com" {
		b.s.t.Fatalf("got %d to %q: %s", w.Code, w.Header().Get("Location"), w.Body)
	}
	return to.Query()
}

// finish comes back from the provider with a code for an authorization.
func (b *browser) finish(p *signIns, q url.Values) *httptest.ResponseRecorder {
	b.s.t.Helper()
	code := fmt.Sprintf("code-%d-%d", len(p.codes), p.asked)
	p.codes[code] = q
	return b.get("/v1/session/sso/callback?session_state=x&code=" + code + "&state=" + url.QueryEscape(q.Get("state")))
}

// signIn signs in with claims in the ID token.
func (b *browser) signIn(p *signIns, claims map[string]any, query string) *httptest.ResponseRecorder {
	b.s.t.Helper()
	p.claims = claims
	return b.finish(p, b.begin(query))
}

func (b *browser) want(w *httptest.ResponseRecorder, status int, text string) *httptest.ResponseRecorder {
	b.s.t.Helper()
	if w.Code != status || !strings.Contains(w.Body.String()+w.Header().Get("Location"), text) {
		b.s.t.Fatalf("got %d %q %s, want %d with %q", w.Code, w.Header().Get("Location"), w.Body, status, text)
	}
	return w
}

// me returns the identifier of the user who is signed in.
func (b *browser) me() string {
	b.s.t.Helper()
	_, after, _ := strings.Cut(b.want(b.get("/v1/session"), 200, `"user_id":"`).Body.String(), `"user_id":"`)
	id, _, _ := strings.Cut(after, `"`)
	return id
}

var admins = map[string]user.Role{"platform": user.Admin, "dev": user.Viewer, "ops": user.Editor}

// Guarantee: a sign-in is an authorization code flow with PKCE S256, a state and a nonce, and gives a session cookie of a
// new value with the attributes of the contract. Its user has the highest role that the claim maps to, and its calls are in
// the audit log with the user.
func TestSingleSignOn(t *testing.T) {
	s, p := startSSO(t, admins)
	b := s.browser()
	q := b.begin("?return_to=/keys?q=a")
	for name, want := range map[string]string{"response_type": "code", "client_id": "keygate", "code_challenge_method": "S256", "scope": "openid email", "tenant": "1",
		"redirect_uri": "https://keygate.example.com/v1/session/sso/callback", "max_age": ""} {
		if q.Get(name) != want {
			t.Errorf("got %s %q, want %q", name, q.Get(name), want)
		}
	}
	if len(b.cookies["__Host-keygate_session_sign_in"]) < 100 || strings.Contains(b.cookies["__Host-keygate_session_sign_in"], q.Get("state")) {
		t.Errorf("got the cookies %v", b.cookies)
	}
	p.claims = map[string]any{"groups": []string{"dev", "platform", "other"}}
	w := b.want(b.finish(p, q), 302, "/keys?q=a#signed-in")
	if got := strings.Join(w.Header().Values("Set-Cookie"), "\n"); !strings.Contains(got, "__Host-keygate_session="+b.cookies["__Host-keygate_session"]+"; Path=/; Max-Age=43200; HttpOnly; Secure; SameSite=Strict") ||
		!strings.Contains(got, "__Host-keygate_session_sign_in=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Lax") {
		t.Errorf("got the cookies %s", got)
	}
	first := b.cookies["__Host-keygate_session"]
	b.want(b.get("/v1/session"), 200, `"role":"admin"`)
	b.want(b.get("/v1/account"), 200, `"key":null`)
	b.want(b.call("POST", "/v1/gateways", `{"name": "g", "upstream_url": "http://127.0.0.1:9"}`), 201, "gw_")
	b.want(b.signIn(p, p.claims, ""), 302, "/")
	if b.cookies["__Host-keygate_session"] == first {
		t.Error("the session has the same value after another sign-in")
	}
	if err := s.logs.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
	log := s.get("/v1/audit-log?limit=100").want(200)
	id := b.me()
	found := map[string]bool{}
	for _, r := range log.data() {
		if by, ok := r["actor"].(map[string]any); ok {
			found[fmt.Sprint(r["action"], " ", by["kind"], " ", by["id"] == id, " ", by["name"])] = true
		} else if r["credential"] == "user" {
			found[fmt.Sprint(r["path"], " ", r["subject"] == id, " ", r["outcome"])] = true
		}
	}
	for _, want := range []string{"user.create system false <nil>", "user.sign_in user true Ada", "gateway.create user true Ada", "/v1/gateways true success", "/v1/session/sso/callback true success"} {
		if !found[want] {
			t.Errorf("got %v, want %q", found, want)
		}
	}
	if n := len(s.get("/v1/audit-log?kind=management&actor=" + id).want(200).data()); n != 3 {
		t.Errorf("got %d changes of the user, want 3", n)
	}
	b.want(b.call("DELETE", "/v1/session", ""), 200, `"sign_out_url":"https://login.example.com/logout?client_id=keygate"`)
	b.want(b.get("/v1/session"), 401, "")
	b.cookies["__Host-keygate_session"] = first
	b.want(b.get("/v1/session"), 401, "")
}

// Guarantee: a sign-in that the provider has not vouched for, or that is not the one of this browser, is refused.
func TestForgedSignInsAreRefused(t *testing.T) {
	s, p := startSSO(t, admins)
	p.claims = map[string]any{"groups": "platform"}
	ok := map[string]any{"groups": "platform"}
	try := func(what, from string, do func(b *browser) *httptest.ResponseRecorder, status int, text string) {
		t.Helper()
		b := s.browser()
		b.from = from
		w := do(b)
		if w.Code != status || !strings.Contains(w.Body.String(), text) || b.cookies["__Host-keygate_session"] != "" {
			t.Errorf("%s: got %d %s, want %d with %q", what, w.Code, w.Body, status, text)
		}
	}
	change := func(f func(map[string]any)) func(b *browser) *httptest.ResponseRecorder {
		return func(b *browser) *httptest.ResponseRecorder {
			p.change = f
			defer func() { p.change = nil }()
			return b.signIn(p, ok, "")
		}
	}
	set := func(name string, value any) func(b *browser) *httptest.ResponseRecorder {
		return change(func(c map[string]any) {
			if c[name] = value; value == nil {
				delete(c, name)
			}
		})
	}
	other := s.browser()
	foreign := other.begin("")
	for n, c := range []struct {
		what string
		do   func(b *browser) *httptest.ResponseRecorder
		text string
	}{
		{"without a cookie", func(b *browser) *httptest.ResponseRecorder { return b.finish(p, foreign) }, "not begun in this browser"},
		{"the state of another browser", func(b *browser) *httptest.ResponseRecorder {
			b.begin("")
			return b.finish(p, foreign)
		}, "not one to this sign-in"},
		{"no state", func(b *browser) *httptest.ResponseRecorder {
			b.begin("")
			return b.get("/v1/session/sso/callback?code=x")
		}, "not one to this sign-in"},
		{"the code of another sign-in", func(b *browser) *httptest.ResponseRecorder {
			q := b.begin("")
			stolen := other.begin("")
			stolen.Set("state", q.Get("state"))
			return b.finish(p, stolen)
		}, "invalid_grant"},
		{"a changed cookie", func(b *browser) *httptest.ResponseRecorder {
			q := b.begin("")
			b.cookies["__Host-keygate_session_sign_in"] = "A" + b.cookies["__Host-keygate_session_sign_in"]
			return b.finish(p, q)
		}, "not begun in this browser"},
		{"after 10 minutes", func(b *browser) *httptest.ResponseRecorder {
			q := b.begin("")
			s.clock.move(10 * time.Minute)
			return b.finish(p, q)
		}, "more than 10 minutes ago"},
		{"iss of another provider", func(b *browser) *httptest.ResponseRecorder {
			q := b.begin("")
			p.codes["x"] = q
			return b.get("/v1/session/sso/callback?code=x&iss=https://evil.example&state=" + q.Get("state"))
		}, "another identity provider"},
		{"an error", func(b *browser) *httptest.ResponseRecorder {
			q := b.begin("")
			return b.get("/v1/session/sso/callback?error=%3Cscript%3E&state=" + q.Get("state"))
		}, "&lt;script&gt;"},
		{"another nonce", set("nonce", "x"), "nonce"},
		{"no nonce", set("nonce", nil), "nonce"},
		{"another audience", set("aud", "other"), "audience"},
		{"another party", set("azp", "other"), "another client"},
		{"several audiences and no party", set("aud", []string{"keygate", "other"}), "another client"},
		{"another issuer", set("iss", "https://evil.example"), "not valid"},
		{"expired", set("exp", s.clock.Now().Add(-time.Hour).Unix()), "not valid"},
		{"no subject", set("sub", 7), "not valid"},
	} {
		try(c.what, fmt.Sprintf("192.0.2.%d:1", n), c.do, 401, c.text)
	}
	p.signer = tokentest.New([32]byte{2}) // the keys of the provider were fetched some minutes ago
	b := s.browser()
	b.want(b.signIn(p, ok, ""), 302, "/")
	p.sendIss = true
	s.clock.move(time.Hour)
	try("no iss, though the provider sends it", "198.51.100.1:1", func(b *browser) *httptest.ResponseRecorder { return b.signIn(p, ok, "") }, 401, "another identity provider")
	for _, to := range []string{"//evil.example", "https://evil.example", "/\\evil.example", "keys", "/a%23b", "/a%0d%0ab", "/%20x"} {
		try("return_to="+to, "198.51.100.2:1", func(b *browser) *httptest.ResponseRecorder { return b.get("/v1/session/sso?return_to=" + to) }, 422, "return_to")
	}
}

// Guarantee: failed sign-ins count as those with a key do; a provider that is down counts nothing, and is 503.
func TestFailedSignInsAreLimited(t *testing.T) {
	s, p := startSSO(t, admins)
	b := s.browser()
	for range 10 {
		q := b.begin("")
		p.down = true
		s.clock.move(6 * time.Minute)
		b.want(b.finish(p, q), 503, "cannot be used now")
		p.down = false
		s.clock.move(6 * time.Second)
	}
	for range 10 {
		b.want(b.get("/v1/session/sso/callback"), 401, "")
	}
	s.clock.move(20 * time.Second)
	refused := b.get("/v1/session/sso/callback")
	b.want(refused, 429, "too many failed attempts")
	if got := refused.Header().Get("Retry-After"); got != "40" {
		t.Errorf("got Retry-After %q, want the time until the first failure is a minute old", got)
	}
	b.want(b.call("POST", "/v1/session", `{"key": "`+s.admin+`"}`), 429, "")
	s.clock.move(time.Minute)
	b.want(b.signIn(p, map[string]any{"groups": "dev"}, ""), 302, "/")
	if p.asked != 1 {
		t.Errorf("the provider was asked for %d tokens, want 1", p.asked)
	}
}

// Guarantee: who has no role does not get in: a new user without a mapped role and without an invitation, one of another
// domain, an unverified email, and a user whose claim maps to nothing any more, whose record stays.
func TestWhoMaySignIn(t *testing.T) {
	s, p := startSSO(t, admins, "example.com")
	for n, c := range []struct {
		what   string
		claims map[string]any
		text   string
	}{
		{"no claim", map[string]any{}, "has no role"},
		{"nothing that is mapped", map[string]any{"groups": []string{"sales"}}, "--sso-role-map"},
		{"a claim of another type", map[string]any{"groups": map[string]any{"platform": true}}, "--sso-role-map"},
		{"a value in another case", map[string]any{"groups": "Platform"}, "--sso-role-map"},
		{"another domain", map[string]any{"groups": "dev", "email": "ada@example.com@evil.example"}, "--sso-allowed-domains"},
		{"a domain below", map[string]any{"groups": "dev", "email": "ada@x.example.com"}, "--sso-allowed-domains"},
		{"an unverified email", map[string]any{"groups": "dev", "email_verified": false}, "--sso-allowed-domains"},
		{"an email that is verified in words", map[string]any{"groups": "dev", "email_verified": "true"}, "--sso-allowed-domains"},
	} {
		b := s.browser()
		b.from = fmt.Sprintf("192.0.2.%d:1", n)
		if w := b.signIn(p, c.claims, ""); w.Code != 403 || !strings.Contains(w.Body.String(), c.text) || b.cookies["__Host-keygate_session"] != "" {
			t.Errorf("%s: got %d %s, want 403 with %q", c.what, w.Code, w.Body, c.text)
		}
	}
	if n := len(s.get("/v1/users").want(200).data()); n != 0 {
		t.Errorf("got %d users, want none", n)
	}
	log := s.get("/v1/audit-log?kind=management").want(200).data()
	if r := log[0]; r["action"] != "user.sign_in_refused" || !strings.Contains(fmt.Sprint(r["diff"]), "--sso-allowed-domains") {
		t.Errorf("got %v, want the refusal with its reason", r)
	}
	b := s.browser()
	b.want(b.signIn(p, map[string]any{"groups": "ops", "email": "ada@EXAMPLE.com"}, ""), 302, "")
	id := b.me()
	b.want(b.signIn(p, map[string]any{"groups": []string{}}, ""), 403, "--sso-role-map")
	b.want(b.get("/v1/gateways"), 200, "")
	b.want(b.signIn(p, map[string]any{}, ""), 302, "") // the claim is missing: the record says it
	if got := s.get("/v1/users/" + id).want(200).text("role"); got != "editor" {
		t.Errorf("got the role %s, want editor", got)
	}
	t.Run("and a user is the issuer and the subject, not the email", func(t *testing.T) {
		other := s.browser()
		other.want(other.signIn(p, map[string]any{"sub": "mallory", "groups": "dev"}, ""), 302, "")
		if other.me() == id {
			t.Error("another subject with the same email is the same user")
		}
		renamed := s.browser()
		renamed.want(renamed.signIn(p, map[string]any{"email": "countess@example.com", "name": "Countess"}, ""), 302, "")
		if renamed.me() != id || s.get("/v1/users/"+id).want(200).text("email") != "countess@example.com" {
			t.Error("a user with another email is another one")
		}
	})
}

// Guarantee: an invitation lets one account with its verified email in, once, within 72 hours, and a refused attempt does
// not use it up. Its link is shown once, and needs a caller who is an administrator.
func TestInvitations(t *testing.T) {
	s, p := startSSO(t, nil, "example.com")
	invite := func(email string) (link, id string) {
		t.Helper()
		r := s.post("/v1/users/invitations", map[string]any{"email": email, "role": "editor"}).want(201)
		to, err := url.Parse(r.text("link"))
		if err != nil || to.Host != "keygate.example.com" || to.Path != "/v1/session/sso" || len(to.Query().Get("invitation")) != 43 {
			t.Fatalf("got the link %q", r.text("link"))
		}
		return "?" + to.RawQuery, r.text("invitation_id")
	}
	link, _ := invite("Ada@example.com")
	if raw := s.get("/v1/users/invitations").want(200).raw; strings.Contains(raw, link[1:]) || !strings.Contains(raw, "Ada@example.com") {
		t.Errorf("got %s", raw)
	}
	b := s.browser()
	b.want(b.signIn(p, map[string]any{"email": "eve@example.com", "sub": "eve"}, link), 403, "another email")
	b.want(b.signIn(p, map[string]any{"email_verified": false}, link), 403, "")
	b.want(b.signIn(p, map[string]any{}, ""), 403, "has no role")
	b.want(b.signIn(p, map[string]any{}, link), 302, "/")
	b.want(b.get("/v1/session"), 200, `"role":"editor"`)
	ada := b.me()
	if u := s.get("/v1/users/" + ada).want(200); u.json["invited"] != true {
		t.Errorf("got %v", u.json)
	}
	b.want(b.signIn(p, map[string]any{"sub": "second"}, link), 403, "was used")
	b.want(b.signIn(p, map[string]any{}, ""), 302, "/") // the record has a role

	expired, _ := invite("eve@example.com")
	s.clock.move(72 * time.Hour)
	b.want(b.signIn(p, map[string]any{"email": "eve@example.com", "sub": "eve"}, expired), 403, "expired")
	if n := len(s.get("/v1/users/invitations").want(200).data()); n != 0 {
		t.Errorf("got %d invitations, want none", n)
	}
	deleted, id := invite("eve@example.com")
	s.delete("/v1/users/invitations/" + id).want(200)
	s.delete("/v1/users/invitations/" + id).want(404)
	b.want(b.signIn(p, map[string]any{"email": "eve@example.com", "sub": "eve"}, deleted), 403, "deleted")
	s.post("/v1/users/invitations", map[string]any{"email": "eve@evil.example", "role": "owner"}).refused(422, "validation_failed", "email")

	t.Run("and lifts the bar of a user that was deleted", func(t *testing.T) {
		s.delete("/v1/users/" + ada).want(200)
		s.get("/v1/users/" + ada).want(404)
		b.want(b.signIn(p, map[string]any{}, ""), 403, "stays barred")
		link, _ := invite("ada@example.com")
		b.want(b.signIn(p, map[string]any{}, link), 302, "/")
	})
	t.Run("and a replay does not show it", func(t *testing.T) {
		body := map[string]any{"email": "kim@example.com", "role": "viewer"}
		header := map[string]string{"Idempotency-Key": "one"}
		s.do(request{method: "POST", path: "/v1/users/invitations", body: body, header: header}).want(201)
		again := s.do(request{method: "POST", path: "/v1/users/invitations", body: body, header: header}).want(201)
		if again.json["link"] != nil || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("got %s", again.raw)
		}
	})
}

// Guarantee: suspension, deletion and demotion are in force at the next call, and a suspended user stays out until it is
// resumed. The last admin stays one, but the provider can demote it.
func TestUsersAreSuspendedAndDemoted(t *testing.T) {
	s, p := startSSO(t, admins)
	ada, eve := s.browser(), s.browser()
	ada.want(ada.signIn(p, map[string]any{"groups": "platform"}, ""), 302, "")
	eve.want(eve.signIn(p, map[string]any{"sub": "eve", "groups": "ops"}, ""), 302, "")
	id := eve.me()
	gateway := `{"name": "%s", "upstream_url": "http://127.0.0.1:9"}`
	eve.want(eve.call("POST", "/v1/gateways", fmt.Sprintf(gateway, "a")), 201, "")
	eve.want(eve.get("/v1/users"), 403, "administrators")
	s.patch("/v1/users/"+id, `{"role": "viewer"}`).want(200)
	eve.want(eve.call("POST", "/v1/gateways", fmt.Sprintf(gateway, "b")), 403, "role viewer")
	eve.want(eve.get("/v1/gateways"), 200, "")
	s.patch("/v1/users/"+id, `{"state": "suspended"}`).want(200)
	eve.want(eve.get("/v1/gateways"), 401, "sign in again")
	eve.want(eve.signIn(p, map[string]any{"sub": "eve", "groups": "platform"}, ""), 403, "suspended")
	s.patch("/v1/users/"+id, `{"state": "active"}`).want(200)
	eve.want(eve.get("/v1/gateways"), 401, "") // its sessions have ended for good
	eve.want(eve.signIn(p, map[string]any{"sub": "eve", "groups": "ops"}, ""), 302, "")
	s.delete("/v1/users/" + id).want(200)
	eve.want(eve.get("/v1/gateways"), 401, "")
	eve.want(eve.signIn(p, map[string]any{"sub": "eve", "groups": "platform"}, ""), 403, "stays barred")

	last := "/v1/users/" + ada.me()
	for _, change := range []string{`{"role": "editor"}`, `{"state": "suspended"}`} {
		s.patch(last, change).refused(409, "conflict", "")
	}
	s.delete(last).refused(409, "conflict", "")
	s.patch(last, `{"role": "owner"}`).refused(422, "validation_failed", "role")
	ada.want(ada.signIn(p, map[string]any{"groups": "dev"}, ""), 302, "")
	ada.want(ada.get("/v1/session"), 200, `"role":"viewer"`)
	var types []string
	for _, e := range s.get("/v1/events?limit=100").want(200).data() {
		if kind := fmt.Sprint(e["type"]); strings.HasPrefix(kind, "user.") {
			types = append(types, kind)
		}
	}
	slices.Sort(types)
	if got := strings.Join(types, " "); got != "user.role_changed user.role_changed user.role_changed user.suspended" {
		t.Errorf("got the events %s", got)
	}
}

// Guarantee: users and invitations are for keys with the scope admin without a resource, and for users with the role admin,
// of the account alone.
func TestUsersAreForAdministrators(t *testing.T) {
	s, p := startSSO(t, admins)
	b := s.browser()
	b.want(b.signIn(p, map[string]any{"groups": "dev"}, ""), 302, "")
	id := b.me()
	invitation := s.post("/v1/users/invitations", map[string]any{"email": "eve@example.com", "role": "viewer"}).want(201).text("invitation_id")
	calls := []request{
		{method: "GET", path: "/v1/users"}, {method: "GET", path: "/v1/users/" + id}, {method: "PATCH", path: "/v1/users/" + id, body: map[string]any{"role": "admin"}},
		{method: "DELETE", path: "/v1/users/" + id}, {method: "GET", path: "/v1/users/invitations"},
		{method: "POST", path: "/v1/users/invitations", body: map[string]any{"email": "a@example.com", "role": "admin"}}, {method: "DELETE", path: "/v1/users/invitations/" + invitation},
	}
	for _, scope := range []string{"read", "write", "admin:users", "admin:users write"} {
		key := s.accountKey(scope)
		for _, c := range calls {
			c.key = key
			s.do(c).denied(403, "forbidden", "scope_insufficient")
		}
	}
	_, other := s.tenant("acme")
	for _, c := range calls {
		switch c.key = other; {
		case c.path == "/v1/users" || c.method == "GET" && c.path == "/v1/users/invitations":
			if n := len(s.do(c).want(200).data()); n != 0 {
				t.Errorf("another account gets %d records of %s", n, c.path)
			}
		case c.method == "POST":
			s.do(c).want(409)
		default:
			s.do(c).want(404)
		}
	}
}

// Guarantee: a session of a user ends after 12 hours, and after 2 hours without a call. Users, keys of the level account,
// and the deletion of gateways need an authentication within 5 minutes; signing in anew gives it, and the provider is then
// asked for it.
func TestSessionsOfUsersEnd(t *testing.T) {
	s, p := startSSO(t, admins)
	b := s.browser()
	groups := func(more map[string]any) map[string]any {
		all := map[string]any{"groups": "platform"}
		for name, value := range more {
			all[name] = value
		}
		return all
	}
	b.want(b.signIn(p, groups(nil), ""), 302, "")
	key := `{"name": "k", "scope": "read", "level": "account"}`
	refused := func(text string) {
		t.Helper()
		for _, c := range [][3]string{{"POST", "/v1/keys", key}, {"POST", "/v1/users/invitations", `{"email": "a@example.com", "role": "admin"}`}, {"PATCH", "/v1/users/" + b.me(), `{"role": "viewer"}`}} {
			b.want(b.call(c[0], c[1], c[2]), 403, text)
		}
	}
	refused("reauthentication_required") // it is not known when the user has authenticated
	b.want(b.call("POST", "/v1/keys", `{"name": "k", "scope": "read"}`), 201, "")
	if q := b.begin("?reauthenticate=true"); q.Get("max_age") != "0" {
		t.Errorf("got max_age %q, want 0", q.Get("max_age"))
	}
	b.want(b.signIn(p, groups(map[string]any{"auth_time": s.clock.Now().Add(-5*time.Minute - time.Second).Unix()}), "?reauthenticate=true"), 302, "")
	refused("reauthentication_required")
	b.want(b.signIn(p, groups(nil), "?reauthenticate=true"), 302, "")
	b.want(b.call("POST", "/v1/keys", key), 201, "")
	s.clock.move(5*time.Minute + time.Second)
	refused("reauthentication_required")
	for range 5 {
		b.want(b.get("/v1/gateways"), 200, "")
		s.clock.move(2*time.Hour - 2*time.Minute)
	}
	b.want(b.get("/v1/gateways"), 200, "")
	s.clock.move(2 * time.Hour)
	b.want(b.get("/v1/gateways"), 401, "")
	b.want(b.signIn(p, groups(nil), ""), 302, "")
	for range 12 {
		b.want(b.get("/v1/gateways"), 200, "")
		s.clock.move(time.Hour)
	}
	b.want(b.get("/v1/gateways"), 401, "")
}

// Guarantee: without an identity provider nothing changes: the calls of sign-ins are 404, nobody can be invited, and
// sessions of users from before count no more.
func TestWithoutAnIdentityProvider(t *testing.T) {
	s, p := startSSO(t, admins)
	b := s.browser()
	b.want(b.signIn(p, map[string]any{"groups": "platform"}, ""), 302, "")
	b.want(b.get("/v1/session/sso/provider"), 200, `"name":"login.example.com"`)
	s.signIns = nil
	s.close()
	s.open()
	b.want(b.get("/v1/gateways"), 401, "")
	b.want(b.get("/v1/session/sso/provider"), 200, `{"name":null,"redirect_uri":null}`)
	for _, path := range []string{"/v1/session/sso", "/v1/session/sso/callback"} {
		b.want(b.get(path), 404, "--sso-issuer")
	}
	s.post("/v1/users/invitations", map[string]any{"email": "eve@example.com", "role": "viewer"}).refused(409, "conflict", "")
	if n := len(s.get("/v1/users").want(200).data()); n != 1 {
		t.Errorf("got %d users, want 1", n)
	}
}
