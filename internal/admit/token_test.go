package admit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/token"
	"github.com/keygate/keygate/internal/token/tokentest"
)

// signer mints the tokens of an issuer.
type signer struct {
	*tokentest.Signer
	h      *harness
	record issuer.Issuer
}

// issuer stores an issuer; edit may change it first.
func (h *harness) issuer(name string, edit func(*issuer.Issuer)) *signer {
	h.t.Helper()
	var seed [32]byte
	if _, err := h.random.Read(seed[:]); err != nil {
		h.t.Fatal(err)
	}
	s := &signer{Signer: tokentest.New(seed), h: h}
	s.record = issuer.Issuer{
		ID: id.New(id.Issuer), AccountID: h.account.ID, Name: name,
		Settings: issuer.Settings{URL: "https://" + name + ".example", Audiences: []string{"api"}, JWKS: s.JWKS()},
	}
	if edit != nil {
		edit(&s.record)
	}
	h.source.PutIssuer(s.record)
	h.catchUp()
	return s
}

// token mints a token of ada with an hour to live and the scope admin; claims replace or add members.
func (s *signer) token(claims map[string]any) string {
	return s.Token(s.record.URL, s.h.clock.Wall(), claims)
}

func withAuth(r gateway.Route, auth gateway.Auth) gateway.Route {
	r.Auth = auth
	return r
}

// tokenGateway stores a gateway with a route of each kind, and the issuers.
func (h *harness) tokenGateway(edit func(*gateway.Gateway), issuers ...string) gateway.Gateway {
	return h.gateway(func(g *gateway.Gateway) {
		g.Requests.Issuers = issuers
		if edit != nil {
			edit(g)
		}
	}, route("/key", "GET"), withAuth(route("/token", "GET", "POST"), gateway.AuthToken), withAuth(route("/any", "GET"), gateway.AuthAny), public(route("/none", "GET")))
}

// Guarantee: what a route requires decides which credentials pass, and a token that is missing or bad never passes where one is
// required.
func TestCredentialsByRoute(t *testing.T) {
	h := newHarness(t)
	s := h.issuer("login", nil)
	foreign := h.issuer("other", nil)
	h.tokenGateway(func(g *gateway.Gateway) { g.Requests.KeyHeaders = []string{"Authorization", "X-API-Key"} }, "login")
	_, key := h.key(nil)
	good, bad, expired := s.token(nil), s.token(map[string]any{"aud": "x"}), s.token(map[string]any{"exp": h.clock.Wall().Add(-time.Hour).Unix()})
	strange := foreign.token(nil)
	for _, c := range []struct {
		name, path, authorization, header, query string
		code                                     fault.Code
		auth                                     fault.AuthCode
		forwards                                 bool
	}{
		{name: "token on token", path: "/token", authorization: good, forwards: true},
		{name: "token on any", path: "/any", authorization: good, forwards: true},
		{name: "token on key", path: "/key", authorization: good, code: fault.Unauthorized, auth: fault.KeyInvalid},
		{name: "token on none", path: "/none", authorization: good, forwards: true},
		{name: "bad token on none", path: "/none", authorization: bad, forwards: true},
		{name: "key on key", path: "/key", authorization: key, forwards: true},
		{name: "key on any", path: "/any", authorization: key, forwards: true},
		{name: "key in header on any", path: "/any", header: key, forwards: true},
		{name: "key in query on any", path: "/any", query: key, forwards: true},
		{name: "key on token", path: "/token", authorization: key, code: fault.Unauthorized, auth: fault.TokenInvalid},
		{name: "key in header on token", path: "/token", header: key, code: fault.Unauthorized, auth: fault.TokenInvalid},
		{name: "key in query on token", path: "/token", query: key, code: fault.Unauthorized, auth: fault.TokenInvalid},
		{name: "bad on token", path: "/token", authorization: bad, code: fault.Unauthorized, auth: fault.TokenInvalid},
		{name: "bad on any", path: "/any", authorization: bad, code: fault.Unauthorized, auth: fault.TokenInvalid},
		{name: "expired on any", path: "/any", authorization: expired, code: fault.Unauthorized, auth: fault.TokenExpired},
		{name: "another issuer's", path: "/any", authorization: strange, code: fault.Unauthorized, auth: fault.TokenInvalid},
		{name: "text", path: "/any", authorization: "x", code: fault.Unauthorized, auth: fault.TokenInvalid},
		{name: "wrong key on any", path: "/any", authorization: "kg_wrong", code: fault.Unauthorized, auth: fault.KeyInvalid},
		{name: "nothing on token", path: "/token", code: fault.Unauthorized, auth: fault.KeyInvalid},
		{name: "nothing on any", path: "/any", code: fault.Unauthorized, auth: fault.KeyInvalid},
		{name: "both on token", path: "/token", authorization: good, header: key, code: fault.InvalidRequest},
		{name: "both on any", path: "/any", authorization: good, query: key, code: fault.InvalidRequest},
		{name: "two keys on any", path: "/any", authorization: key, header: key, code: fault.InvalidRequest},
		{name: "token without a route", path: "/else", authorization: good, code: fault.RouteNotFound},
		{name: "key without a route", path: "/else", authorization: key, code: fault.RouteNotFound},
		{name: "bad without a route", path: "/else", authorization: bad, code: fault.Unauthorized, auth: fault.TokenInvalid},
		{name: "nothing without a route", path: "/else", code: fault.Unauthorized, auth: fault.KeyInvalid},
	} {
		req := Request{Target: c.path, Client: netip.MustParseAddr("192.0.2.1")}
		if c.authorization != "" {
			req.Authorization = "Bearer " + c.authorization
		}
		if c.query != "" {
			req.Target += "?api_key=" + c.query
		}
		req.Header = oneHeader{"X-API-Key", c.header}
		v := h.decide(req)
		if v.Action == Forward != c.forwards || v.Code != c.code || v.Auth != c.auth {
			t.Errorf("%s: got action %v, code %q and %q, want forwarded %v, %q and %q", c.name, v.Action, v.Code, v.Auth, c.forwards, c.code, c.auth)
		}
		challenge := fields(v)["WWW-Authenticate"]
		if want := map[fault.AuthCode]string{fault.TokenInvalid: `Bearer error="invalid_token"`, fault.TokenExpired: `Bearer error="invalid_token"`, fault.KeyInvalid: "Bearer"}[c.auth]; challenge != want {
			t.Errorf("%s: got WWW-Authenticate %q, want %q", c.name, challenge, want)
		}
		h.clock.Advance(time.Second) // so that the failures do not add up
	}
}

// oneHeader is a request with one header, or none if the value is "".
type oneHeader struct{ name, value string }

func (o oneHeader) HeaderValue(name string) (string, int) {
	if o.value == "" || name != o.name {
		return "", 0
	}
	return o.value, 1
}

func (h *harness) withToken(path, text string) *Verdict {
	h.t.Helper()
	return h.decide(Request{Target: path, Authorization: "Bearer " + text, Client: netip.MustParseAddr("192.0.2.9")})
}

// Guarantee: a change of an issuer, of its keys, and of the issuers that a gateway names is in force when it was read: also for
// tokens that are remembered, and for requests that are on their way.
func TestTokensFollowChanges(t *testing.T) {
	h := newHarness(t)
	s := h.issuer("login", nil)
	g := h.tokenGateway(nil, "login")
	text := s.token(nil)
	must := func(what string, forwards bool) *Verdict {
		t.Helper()
		v := h.withToken("/token", text)
		if v.Action == Forward != forwards {
			t.Fatalf("%s: got %v and %v, want forwarded %v", what, v.Action, v.Fault(), forwards)
		}
		return v
	}
	admitted := must("a good token", true).Admission("GET")
	changed := s.record
	changed.Audiences = []string{"else"}
	h.source.PutIssuer(changed)
	h.catchUp()
	must("another audience", false)
	h.source.PutIssuer(s.record)
	h.catchUp()
	must("the audience again", true)
	other := h.issuer("spare", nil)
	changed = s.record
	changed.JWKS = other.record.JWKS
	h.source.PutIssuer(changed)
	h.catchUp()
	must("another key", false)
	h.source.PutIssuer(s.record)
	h.catchUp()
	must("the key again", true)
	r := h.admit.Review()
	if got := r.Cut(&admitted); got != accesslog.Forwarded {
		t.Errorf("a stream after changes that allow its token: got %v, want it to go on", got)
	}
	without := g
	without.Requests.Issuers = []string{"spare"}
	h.source.PutGateway(without, withAuth(route("/token", "GET"), gateway.AuthToken))
	h.catchUp()
	must("the gateway does not name the issuer", false)
	r = h.admit.Review()
	if got := r.Cut(&admitted); got != accesslog.KeyInvalid {
		t.Errorf("a stream whose issuer was taken away: got %v, want it cut", got)
	}
	without.Requests.Issuers = []string{"login", "missing"}
	h.source.PutGateway(without, withAuth(route("/token", "GET"), gateway.AuthToken))
	h.catchUp()
	if v := must("an issuer that is not there", false); v.Code != fault.Unavailable {
		t.Errorf("got code %q, want unavailable: the headers of the issuer are not known", v.Code)
	}
}

// Guarantee: a stream ends when its token expires, and a request may begin within the leeway.
func TestTokenExpires(t *testing.T) {
	h := newHarness(t)
	s := h.issuer("login", nil)
	h.tokenGateway(nil, "login")
	v := h.withToken("/token", s.token(nil))
	stream := v.Admission("GET")
	h.clock.Advance(time.Hour - time.Second)
	if r := h.admit.Review(); r.Cut(&stream) != accesslog.Forwarded {
		t.Error("a stream was cut before its token expired")
	}
	h.clock.Advance(time.Second)
	if r := h.admit.Review(); r.Cut(&stream) != accesslog.KeyExpired {
		t.Error("a stream went on after its token expired")
	}
	if r := h.admit.Review(); r.Result(&stream) != accesslog.Forwarded {
		t.Error("a request that begins within the leeway was refused")
	}
	h.clock.Advance(time.Minute)
	if r := h.admit.Review(); r.Result(&stream) != accesslog.KeyExpired {
		t.Error("a request that begins after the leeway was not refused")
	}
}

// Guarantee: scopes, owner and plan of a token count as those of a key, and limits per key count (issuer, subject).
func TestTokenGives(t *testing.T) {
	h := newHarness(t)
	s := h.issuer("login", func(i *issuer.Issuer) { i.Claims = issuer.Claims{Owner: "org", Plan: "tier"} })
	h.tokenGateway(nil, "login")
	if v := h.decide(Request{Method: "POST", Target: "/token", Authorization: "Bearer " + s.token(map[string]any{"scope": "read"})}); v.Auth != fault.ScopeInsufficient {
		t.Errorf("POST with the scope read: got %v", v.Fault())
	}
	if v := h.withToken("/token", s.token(map[string]any{"scope": "unknown"})); v.Auth != fault.ScopeInsufficient {
		t.Errorf("a token without a scope: got %v", v.Fault())
	}
	text := s.token(map[string]any{"org": "acme"})
	if v := h.withToken("/token", text); v.Action != Forward || v.Owner() != "login/acme" || v.Caller.OwnerUUID() != [16]byte{} {
		t.Errorf("an owner without a record: got %v, owner %q", v.Action, v.Owner())
	}
	o := owner.Owner{ID: id.New(id.Owner), AccountID: h.account.ID, ExternalID: "login/acme", State: owner.Suspended}
	h.source.PutOwner(o)
	h.catchUp()
	if v := h.withToken("/token", text); v.Auth != fault.OwnerSuspended {
		t.Errorf("an owner that was suspended: got %v", v.Fault())
	}
	h.source.DeleteOwner(o.ID)
	h.catchUp()
	if v := h.withToken("/token", text); v.Action != Forward {
		t.Errorf("an owner that was deleted: got %v", v.Fault())
	}
	h.plan("small", "second key 2/min")
	for i, want := range []Action{Forward, Forward, Refuse} {
		// Each request has another token of the same subject.
		v := h.withToken("/token", s.token(map[string]any{"sub": "bob", "tier": "small", "jti": fmt.Sprint(i)}))
		if v.Action != want {
			t.Errorf("request %d with the plan small: got %v and %v, want %v", i, v.Action, v.Fault(), want)
		}
	}
	if v := h.withToken("/token", s.token(map[string]any{"sub": "eve", "tier": "small"})); v.Action != Forward {
		t.Errorf("another subject: got %v", v.Fault())
	}
}

// Guarantee: an address of which 20 tokens have failed is refused before a check for the rest of 10 seconds, while remembered
// tokens pass.
func TestFailingAddress(t *testing.T) {
	h := newHarness(t)
	s := h.issuer("login", nil)
	h.tokenGateway(nil, "login")
	good := s.token(nil)
	if v := h.withToken("/token", good); v.Action != Forward {
		t.Fatal(v.Fault())
	}
	for i := range token.MaxFailures {
		if v := h.withToken("/token", fmt.Sprint("junk", i)); v.Auth != fault.TokenInvalid || v.KeyReason != accesslog.TokenRefused {
			t.Fatalf("failure %d: got %v", i, v.Fault())
		}
	}
	v := h.withToken("/token", s.token(map[string]any{"sub": "new"}))
	if v.Code != fault.RateLimitExceeded || fields(v)["Retry-After"] != "10" || v.Fault().Limit.Limit != token.MaxFailures {
		t.Errorf("a new token of an address that failed: got %v with Retry-After %s, want 429 with 10", v.Fault(), fields(v)["Retry-After"])
	}
	if v := h.withToken("/token", good); v.Action != Forward {
		t.Errorf("a remembered token: got %v", v.Fault())
	}
	h.clock.Advance(token.FailurePeriod)
	if v := h.withToken("/token", s.token(map[string]any{"sub": "new"})); v.Action != Forward {
		t.Errorf("after the period: got %v", v.Fault())
	}
}

// Guarantee: what one request's check has found is never used for another token, another gateway, or a newer configuration,
// even if the verdict and the memory of the request are used again.
func TestVerifiedIsForOneRequest(t *testing.T) {
	h := newHarness(t)
	s := h.issuer("login", nil)
	h.tokenGateway(nil, "login")
	h.tokenGateway(func(g *gateway.Gateway) { g.Hostname, g.HostGiven = "b.example", true }, h.issuer("b", nil).record.Name)
	client := netip.MustParseAddr("192.0.2.7")
	req := Request{Method: "GET", Target: "/token", Host: "any.example", Authorization: "Bearer " + s.token(nil), Authorizations: 1, Client: client}
	var v Verdict
	if h.admit.Decide(&req, &v); v.Action != Wait {
		t.Fatalf("got %v, want that a new token waits for its check", v.Action)
	}
	if err := h.admit.Wait(t.Context(), &v); err != nil {
		t.Fatal(err)
	}
	other := req
	other.Host = "b.example"
	if h.admit.Decide(&other, &v); v.Action != Wait {
		t.Errorf("another gateway: got %v, want a check of its own", v.Action)
	}
	if err := h.admit.Wait(t.Context(), &v); err != nil {
		t.Fatal(err)
	}
	if h.admit.Decide(&other, &v); v.Auth != fault.TokenInvalid {
		t.Errorf("another gateway: got %v, want token_invalid", v.Fault())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	req.Authorization = "Bearer " + s.token(map[string]any{"sub": "late"})
	h.admit.Decide(&req, &v)
	if err := h.admit.Wait(ended, &v); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the error of the context", err)
	}
}

// Guarantee: a remembered token costs no allocation.
func TestTokenAllocatesNothing(t *testing.T) {
	h := newHarness(t)
	s := h.issuer("login", func(i *issuer.Issuer) { i.Claims.Owner = "org" })
	h.tokenGateway(nil, "login")
	req := Request{Method: "GET", Host: "a.example", Target: "/any", Authorization: "Bearer " + s.token(map[string]any{"org": "acme"}), Authorizations: 1}
	v := h.decide(req)
	if n := testing.AllocsPerRun(200, func() {
		h.clock.Advance(time.Microsecond)
		h.admit.Decide(&req, v)
	}); n != 0 || v.Action != Forward {
		t.Errorf("%v allocations and %v, want 0 and forwarded", n, v.Action)
	}
}
