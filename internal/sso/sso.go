// Package sso signs users in through an identity provider, by OpenID Connect's authorization code flow with PKCE
// (identity.md, section 3). What is between its two requests of the browser is in one sealed cookie:
//
//	browser ─► Begin ─► cookie {state, nonce, verifier, …} and a redirect to the provider
//	provider ─► browser ─► Finish: cookie, state, code ─► ID token, verified ─► who it is and which role it has
//
// It decides nothing about users: package control does.
package sso

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/jwk"
	"github.com/keygate/keygate/internal/provider"
	"github.com/keygate/keygate/internal/token"
	"github.com/keygate/keygate/internal/user"
)

// The bounds of sign-ins (docs/limits.md).
const (
	FlowLifetime = 10 * time.Minute // from Begin to Finish
	MaxReturnTo  = 1024             // bytes
	maxQuery     = 4096             // bytes of a parameter from the provider

	fetchedFor   = 5 * time.Minute  // how long what discovery says, and keys, are used
	failedFor    = 5 * time.Second  // how long a failed fetch is not repeated
	renewedAfter = 30 * time.Second // how long keys are not fetched again because of a token

	randomBytes = 32
	cookieMark  = "keygate sso 1\n" // so that nothing else that was sealed is taken for a cookie
)

// Source fetches from the provider; *provider.Client is one.
type Source interface {
	Keys(ctx context.Context, s issuer.Source, public bool) (*provider.Keys, error)
	Endpoints(ctx context.Context, s issuer.Source, public bool) (*provider.Endpoints, error)
	Exchange(ctx context.Context, s issuer.Source, public bool, e *provider.Endpoints, form url.Values, clientID, clientSecret string) (string, error)
}

// Sealer encrypts cookies, and decrypts them.
type Sealer interface {
	Seal(plain []byte) ([]byte, error)
	Open(sealed []byte) ([]byte, error)
}

// Config configures a Provider. Issuer, ClientID, RedirectURL, Source, Sealer, Random and Now are required.
type Config struct {
	Issuer       string // its URL, compared exactly
	CA           string // certificates in PEM for it; "" for the system's roots
	ClientID     string
	ClientSecret string               // "" for a client without one
	Scopes       []string             // of the request; openid is always among them
	RolesClaim   string               // claim with the roles, perhaps a path
	RoleMap      map[string]user.Role // values of that claim; empty: roles are those of the records
	RedirectURL  string               // that of the callback
	Source       Source
	Sealer       Sealer
	Random       io.Reader
	Now          func() time.Time
	Log          *slog.Logger
}

// Provider signs users in. It is safe for concurrent use.
type Provider struct {
	cfg    Config
	source issuer.Source

	mu      sync.Mutex    // never held while something is fetched
	flight  chan struct{} // closed at the end of the fetch that is on its way; nil for none
	said    said
	fetched time.Time // when said was fetched
	renewed time.Time // when keys were fetched because of a token
	failed  time.Time // when a fetch failed
	failure error
}

// said is what the provider says of itself.
type said struct {
	endpoints *provider.Endpoints
	keys      *jwk.Set
}

// New returns a Provider. It fetches nothing until somebody signs in.
func New(cfg Config) (*Provider, error) {
	record := issuer.Issuer{Name: "sso", Settings: issuer.Settings{URL: cfg.Issuer, Audiences: []string{cfg.ClientID}}}
	if err := record.Validate(); err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Provider{cfg: cfg, source: issuer.Source{Issuer: cfg.Issuer, CA: cfg.CA}}, nil
}

// Name returns what users know the provider by: the host of its URL.
func (p *Provider) Name() string {
	u, err := url.Parse(p.cfg.Issuer)
	if err != nil {
		return p.cfg.Issuer
	}
	return u.Hostname()
}

// RedirectURL returns the URL of the callback, which the provider must know.
func (p *Provider) RedirectURL() string { return p.cfg.RedirectURL }

// Request is what a browser asks for.
type Request struct {
	ReturnTo       string       // path below the base path; "" for /
	Invitation     string       // secret of an invitation; "" for none
	Reauthenticate bool         // the user must authenticate anew
	CommandLine    *CommandLine // that the sign-in is for; nil if it is for the browser
	Previous       [32]byte     // digest of the cookie of the session that the browser has
}

// CommandLine is a command line on the machine of the browser, for which it signs in (RFC 8252).
type CommandLine struct {
	RedirectURI string // where it listens, on loopback
	State       string // that it gets back
	Challenge   string // PKCE S256
}

// loopback is where command lines listen: at a port of the machine of the browser, whose address is written as a number, so
// that no name server decides where the code goes.
var loopback = regexp.MustCompile(`^http://(127\.0\.0\.1|\[::1\]):[1-9][0-9]{0,4}/callback$`)

// CheckRedirectURI checks where a command line listens.
func CheckRedirectURI(uri string) error {
	if u, err := url.Parse(uri); err == nil && loopback.MatchString(uri) {
		if port, err := strconv.Atoi(u.Port()); err == nil && port <= 65535 {
			return nil
		}
	}
	return fault.Invalid("redirect_uri", "must be http://127.0.0.1:PORT/callback or http://[::1]:PORT/callback")
}

// CheckRandom returns a check of a field with 256 bits in base64url without padding.
func CheckRandom(field string) func(value string) error {
	return func(value string) error {
		if b, err := base64.RawURLEncoding.Strict().DecodeString(value); err != nil || len(b) != randomBytes {
			return fault.Invalid(field, "must have 43 characters of base64url, which stand for 256 bits")
		}
		return nil
	}
}

// flow is what the cookie holds.
type flow struct {
	State, Nonce, Verifier string
	ReturnTo               string `json:",omitzero"`
	Invitation             string `json:",omitzero"`
	Reauthenticate         bool   `json:",omitzero"`
	Previous               [32]byte
	CommandLine            *CommandLine `json:",omitzero"`
	Until                  int64        // Unix time
}

// CheckReturnTo checks where a browser is to go after a sign-in: a path of this server.
func CheckReturnTo(path string) error {
	switch {
	case path == "":
		return nil
	case len(path) > MaxReturnTo:
		return fault.Invalid("return_to", "must have at most %d characters", MaxReturnTo)
	case path[0] != '/' || strings.HasPrefix(path, "//"):
		return fault.Invalid("return_to", "must be a path that begins with one slash, such as /keys")
	case strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' || r == '#' }):
		return fault.Invalid("return_to", "must have visible ASCII characters alone, and neither a backslash nor a fragment")
	}
	return nil
}

// Begin returns the URL at the provider to which the browser goes, and the value of the cookie that Finish needs.
// A provider that does not respond is fault.Unavailable.
func (p *Provider) Begin(ctx context.Context, r *Request) (location, cookie string, err error) {
	if err := CheckReturnTo(r.ReturnTo); err != nil {
		return "", "", err
	}
	endpoints, err := p.endpointsNow(ctx)
	if err != nil {
		return "", "", err
	}
	now := p.cfg.Now()
	f := flow{ReturnTo: r.ReturnTo, Invitation: r.Invitation, Reauthenticate: r.Reauthenticate, Previous: r.Previous, CommandLine: r.CommandLine, Until: now.Add(FlowLifetime).Unix()}
	for _, to := range []*string{&f.State, &f.Nonce, &f.Verifier} {
		random := make([]byte, randomBytes)
		if _, err := io.ReadFull(p.cfg.Random, random); err != nil {
			return "", "", fmt.Errorf("begin a sign-in: %w", err)
		}
		*to = base64.RawURLEncoding.EncodeToString(random)
	}
	if cookie, err = p.seal(&f); err != nil {
		return "", "", err
	}
	u, err := url.Parse(endpoints.Authorization)
	if err != nil {
		return "", "", fmt.Errorf("begin a sign-in: %w", err)
	}
	challenge := sha256.Sum256([]byte(f.Verifier))
	q := u.Query()
	for name, value := range map[string]string{
		"response_type": "code", "client_id": p.cfg.ClientID, "redirect_uri": p.cfg.RedirectURL, "scope": p.scope(), "state": f.State, "nonce": f.Nonce,
		"code_challenge": base64.RawURLEncoding.EncodeToString(challenge[:]), "code_challenge_method": "S256",
	} {
		q.Set(name, value)
	}
	if r.Reauthenticate {
		q.Set("max_age", "0")
	}
	u.RawQuery = q.Encode()
	return u.String(), cookie, nil
}

func (p *Provider) scope() string {
	scopes := []string{"openid"}
	for _, s := range p.cfg.Scopes {
		if s != "openid" {
			scopes = append(scopes, s)
		}
	}
	return strings.Join(scopes, " ")
}

func (p *Provider) seal(f *flow) (string, error) {
	content, err := json.Marshal(f)
	if err != nil {
		return "", fmt.Errorf("encode a sign-in: %w", err)
	}
	sealed, err := p.cfg.Sealer.Seal(append([]byte(cookieMark), content...))
	if err != nil {
		return "", fmt.Errorf("seal a sign-in: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(sealed), nil
}

func (p *Provider) open(cookie string) (*flow, bool) {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(cookie)
	if err != nil {
		return nil, false
	}
	plain, err := p.cfg.Sealer.Open(sealed)
	if err != nil {
		return nil, false
	}
	content, marked := strings.CutPrefix(string(plain), cookieMark)
	var f flow
	if !marked || json.Unmarshal([]byte(content), &f) != nil || f.State == "" || f.Nonce == "" || f.Verifier == "" {
		return nil, false
	}
	return &f, p.cfg.Now().Unix() < f.Until
}

// Result is who has signed in at the provider.
type Result struct {
	control.UserSignIn // without the request
	ReturnTo           string
	CommandLine        *CommandLine
}

// refused returns the 401 of a sign-in that the provider has not vouched for.
func refused(format string, args ...any) error {
	return &fault.Error{Code: fault.Unauthorized, Auth: fault.KeyInvalid, Message: fmt.Sprintf(format, args...)}
}

// Finish returns who has signed in, from the cookie of Begin and the query of the callback. A provider that does not respond
// is fault.Unavailable. Every other failure is fault.Unauthorized: its message has the reason without secrets.
func (p *Provider) Finish(ctx context.Context, cookie string, query url.Values) (*Result, error) {
	f, ok := p.open(cookie)
	if !ok {
		return nil, refused("the sign-in was not begun in this browser, or more than 10 minutes ago: sign in again")
	}
	code, err := p.codeOf(ctx, f, query)
	if err != nil {
		return nil, err
	}
	endpoints, err := p.endpointsNow(ctx)
	if err != nil {
		return nil, err
	}
	compact, err := p.cfg.Source.Exchange(ctx, p.source, false, endpoints, url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {p.cfg.RedirectURL}, "code_verifier": {f.Verifier},
	}, p.cfg.ClientID, p.cfg.ClientSecret)
	var known *provider.Error
	switch {
	case errors.As(err, &known) && known.Refused:
		return nil, refused("%s", known.Message)
	case err != nil:
		return nil, p.unavailable(err)
	}
	principal, claims, err := p.verify(ctx, compact)
	if err != nil {
		return nil, err
	}
	if err := p.checkClaims(f, claims); err != nil {
		return nil, err
	}
	r := &Result{ReturnTo: f.ReturnTo, CommandLine: f.CommandLine}
	r.Identity = user.Identity{
		Issuer: p.cfg.Issuer, Subject: principal.Subject, Email: claims.Text("email"), EmailVerified: claims.True("email_verified"), Name: claims.Text("name"),
	}
	r.Roles, r.Invitation, r.Previous = p.rolesOf(claims), f.Invitation, f.Previous
	r.AuthTime = p.authTime(f, claims)
	return r, nil
}

// codeOf returns the code of a callback that belongs to the flow.
func (p *Provider) codeOf(ctx context.Context, f *flow, query url.Values) (string, error) {
	one := func(name string) (string, bool) {
		values := query[name]
		if len(values) != 1 || len(values[0]) > maxQuery {
			return "", len(values) == 0
		}
		return values[0], true
	}
	state, ok := one("state")
	if !ok || subtle.ConstantTimeCompare([]byte(state), []byte(f.State)) != 1 {
		return "", refused("the response of the identity provider is not one to this sign-in: sign in again")
	}
	endpoints, err := p.endpointsNow(ctx)
	if err != nil {
		return "", err
	}
	iss, ok := one("iss")
	if !ok || iss != "" && iss != p.cfg.Issuer || iss == "" && endpoints.SendsIssuer {
		return "", refused("the response comes from another identity provider than --sso-issuer: sign in again")
	}
	if query.Has("error") {
		word, _ := one("error")
		return "", refused("the identity provider refuses the sign-in: %s", shown(word))
	}
	code, ok := one("code")
	if !ok || code == "" {
		return "", refused("the response of the identity provider has no code: sign in again")
	}
	return code, nil
}

// shown returns a word of the provider as a message has it.
func shown(word string) string { return fmt.Sprintf("%+.100q", word) }

// verify verifies an ID token. If the keys that are known do not verify it, it fetches them again.
func (p *Provider) verify(ctx context.Context, compact string) (*token.Principal, *token.Claims, error) {
	for again := false; ; again = true {
		keys, err := p.keysNow(ctx, again)
		if err != nil {
			return nil, nil, err
		}
		of, err := token.NewIssuer(&issuer.Issuer{ID: "sso", Settings: issuer.Settings{
			URL: p.cfg.Issuer, Audiences: []string{p.cfg.ClientID}, Algorithms: jwk.Algorithms(), MaxLifetime: "9600h",
		}}, keys, nil, 1)
		if err != nil {
			return nil, nil, fmt.Errorf("verify an ID token: %w", err)
		}
		principal, claims, refusal := token.CheckClaims(compact, of, p.cfg.Now())
		switch {
		case refusal == nil:
			return principal, claims, nil
		case again || !refusal.NeedsKeys():
			return nil, nil, refused("the ID token of the identity provider is not valid: %s", refusal.Error())
		}
	}
}

// checkClaims checks what an ID token has beside the claims of every token (OpenID Connect Core, 3.1.3.7).
func (p *Provider) checkClaims(f *flow, claims *token.Claims) error {
	if subtle.ConstantTimeCompare([]byte(claims.Text("nonce")), []byte(f.Nonce)) != 1 {
		return refused("the ID token is not one of this sign-in: its nonce differs")
	}
	party := claims.Text("azp")
	if claims.Has("azp") && party != p.cfg.ClientID || party == "" && len(claims.Texts("aud")) > 1 {
		return refused("the ID token is for another client of the identity provider than --sso-client-id")
	}
	return nil
}

// rolesOf returns what the claim with the roles says.
func (p *Provider) rolesOf(claims *token.Claims) (r control.RoleClaim) {
	if len(p.cfg.RoleMap) == 0 || !claims.Has(p.cfg.RolesClaim) {
		return r
	}
	r.Given = true
	for _, value := range claims.Texts(p.cfg.RolesClaim) {
		if role := p.cfg.RoleMap[value]; role.Above(r.Role) {
			r.Role = role
		}
	}
	return r
}

// authTime returns when the user has authenticated; zero if that is not known.
func (p *Provider) authTime(f *flow, claims *token.Claims) time.Time {
	now := p.cfg.Now()
	at := claims.Time("auth_time")
	switch {
	case claims.Has("auth_time") && at.After(now):
		return now
	case claims.Has("auth_time"):
		return at
	case f.Reauthenticate: // it was asked for
		return now
	}
	return time.Time{}
}

// SignOutURL returns where a browser signs out at the provider; "" if that is not known.
func (p *Provider) SignOutURL() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.said.endpoints == nil || p.said.endpoints.EndSession == "" {
		return ""
	}
	u, err := url.Parse(p.said.endpoints.EndSession)
	if err != nil {
		return ""
	}
	q := u.Query()
	q.Set("client_id", p.cfg.ClientID)
	u.RawQuery = q.Encode()
	return u.String()
}

// Check fetches from the provider, for keygate doctor.
func (p *Provider) Check(ctx context.Context) error {
	_, err := p.endpointsNow(ctx)
	return err
}

func (p *Provider) endpointsNow(ctx context.Context) (*provider.Endpoints, error) {
	now, err := p.saidNow(ctx, false)
	return now.endpoints, err
}

// keysNow returns the keys of the provider. again asks for newer ones.
func (p *Provider) keysNow(ctx context.Context, again bool) (*jwk.Set, error) {
	now, err := p.saidNow(ctx, again)
	return now.keys, err
}

// saidNow returns what the provider says, fetched lately. It waits until ctx ends for the one fetch that is on its way. That does
// not end with the call that began it: a failure is to count for the next calls.
func (p *Provider) saidNow(ctx context.Context, again bool) (said, error) {
	for {
		p.mu.Lock()
		if now, known, err := p.known(again); known {
			p.mu.Unlock()
			return now, err
		}
		if p.flight == nil {
			p.flight = make(chan struct{})
			go p.fetch(context.WithoutCancel(ctx), again) // ends within twice issuer.FetchTime
		}
		flight := p.flight
		p.mu.Unlock()
		select {
		case <-flight:
		case <-ctx.Done():
			return said{}, ctx.Err()
		}
	}
}

// known returns what was fetched, or the failure of the last fetch, and whether that still counts. p.mu is held.
func (p *Provider) known(again bool) (now said, known bool, err error) {
	at := p.cfg.Now()
	within := func(since time.Time, d time.Duration) bool {
		return !since.IsZero() && at.Sub(since).Abs() < d
	}
	switch {
	case within(p.fetched, fetchedFor) && (!again || within(p.renewed, renewedAfter)):
		return p.said, true, nil
	case within(p.failed, failedFor):
		return said{}, true, p.failure
	}
	return said{}, false, nil
}

// fetch fetches what the provider says, and ends the flight.
func (p *Provider) fetch(ctx context.Context, again bool) {
	began := p.cfg.Now()
	now, err := p.ask(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.failed, p.failure = p.cfg.Now(), err
	} else {
		p.said, p.fetched = now, began
		if again {
			p.renewed = began
		}
	}
	close(p.flight)
	p.flight = nil
}

// ask makes the requests of a fetch.
func (p *Provider) ask(ctx context.Context) (now said, err error) {
	if now.endpoints, err = p.cfg.Source.Endpoints(ctx, p.source, false); err != nil {
		return said{}, p.unavailable(err)
	}
	keys, err := p.cfg.Source.Keys(ctx, p.source, false)
	if err != nil {
		return said{}, p.unavailable(err)
	}
	now.keys = keys.Set
	return now, nil
}

// unavailable returns the 503 for a provider that does not respond as it should. Its reason is for the log, and for the
// operator, who alone configures the provider.
func (p *Provider) unavailable(err error) error {
	var known *provider.Error
	if !errors.As(err, &known) {
		return err
	}
	p.cfg.Log.Warn("the identity provider cannot be used", "issuer", p.cfg.Issuer, "reason", known.Message)
	return &fault.Error{Code: fault.Unavailable, Message: "the identity provider cannot be used now: " + known.Message + ". Sign in with a key meanwhile", Err: err}
}
