package adminapi

import (
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/cookie"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/user"
)

// sessionValueLen is the length of the value of a session's cookie: 256 bits in base64.
const sessionValueLen = 43

func (a *API) sessionOperations() []operation {
	return []operation{{
		id: "createSession", method: http.MethodPost, path: "/v1/session", tag: "Account",
		summary: "Sign in",
		description: "Exchanges an account-level key for a session, whose cookie then takes the place of the key in calls from a browser. The session ends after 12 hours, or with its key. " +
			"Needs no key besides the one in the body. An Origin must be the server's own. After 10 failed attempts in a minute from one address, further ones are 429.",
		public: true, maxBody: 4 << 10, body: reflect.TypeFor[createSessionRequest](), success: http.StatusOK, result: reflect.TypeFor[sessionRecord](),
		errors: []int{
			http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
			http.StatusTooManyRequests, http.StatusServiceUnavailable,
		},
		run: a.createSession,
	}, {
		id: "getSession", method: http.MethodGet, path: "/v1/session", tag: "Account",
		summary: "Get the session", description: "Returns the session whose cookie the call has, or the token of a user that it is made with, with the time when it ends. A call with a key is a 404.",
		anyScope: true, success: http.StatusOK, result: reflect.TypeFor[sessionRecord](), errors: []int{http.StatusNotFound},
		run: a.getSession,
	}, {
		id: "deleteSession", method: http.MethodDelete, path: "/v1/session", tag: "Account",
		summary: "Sign out", description: "Ends the session whose cookie the call has, or revokes the token of a user that it is made with. A call with a key is a 404.",
		anyScope: true, success: http.StatusOK, result: reflect.TypeFor[sessionRecord](), errors: []int{http.StatusNotFound},
		run: a.deleteSession,
	}}
}

func (a *API) createSession(c *call) (response, error) {
	if err := c.checkOrigin(true); err != nil {
		return response{}, err
	}
	var in createSessionRequest
	if err := c.decode(&in); err != nil || c.invalid != nil {
		return response{}, err
	}
	client := networkOf(c.api.clientIP(c.request))
	var refused error
	until := a.signIns.attempt(client, a.cfg.Now, func() (failed bool) {
		refused = c.useKey(in.Key)
		return refused != nil && !c.unconfirmed
	})
	if !until.IsZero() {
		return response{}, tooManySignIns(until)
	}
	if refused != nil {
		return response{}, refused
	}
	if err := c.charge(); err != nil {
		return response{}, err
	}
	value, expiresAt, err := a.cfg.Control.SignIn(c.ctx, &c.actor)
	if err != nil {
		return response{}, err
	}
	a.signIns.succeeded(client)
	record, err := c.presentSession(expiresAt)
	if err != nil {
		return response{}, err
	}
	return ok(record).with("Set-Cookie", c.sessionCookie(value, control.SessionLifetime).String()), nil
}

func tooManySignIns(until time.Time) error {
	return &fault.Error{
		Code:    fault.RateLimitExceeded,
		Message: "too many failed attempts to sign in from this address: at most 10 in a minute; retry after the seconds in the Retry-After header",
		Limit:   &fault.Limit{Limit: signInFailures, ResetAt: ceilSecond(until), Scope: "address"},
	}
}

func (a *API) getSession(c *call) (response, error) {
	if c.session == "" && c.principal.TokenID == "" {
		return response{}, noSession()
	}
	record, err := c.presentSession(c.sessionEnds)
	return ok(record), err
}

func noSession() error {
	return fault.New(fault.NotFound, "the call has no cookie of a session: it was made with a key in the Authorization header")
}

func (a *API) deleteSession(c *call) (response, error) {
	if c.session == "" && c.principal.TokenID == "" {
		return response{}, noSession()
	}
	record, err := c.presentSession(c.now)
	if err != nil {
		return response{}, err
	}
	if c.principal.TokenID != "" {
		_, err := a.cfg.Control.RevokeUserToken(c.ctx, &c.actor, c.principal.User.ID, c.principal.TokenID)
		return ok(record), err
	}
	if a.cfg.SSO != nil && c.principal.User != nil {
		record.SignOutURL = optionalText(a.cfg.SSO.SignOutURL())
	}
	if err := a.cfg.Control.SignOut(c.ctx, c.session); err != nil {
		return response{}, err
	}
	return ok(record).with("Set-Cookie", c.sessionCookie("", 0).String()), nil
}

// presentSession returns the record of the session of the calling key.
func (c *call) presentSession(expiresAt time.Time) (sessionRecord, error) {
	if u := c.principal.User; u != nil {
		return sessionRecord{AccountID: c.actor.Account.ID, ExpiresAt: expiresAt, User: presentCallingUser(u)}, nil
	}
	k, err := c.api.cfg.Control.Key(c.ctx, &c.actor, c.actor.KeyID)
	if err != nil {
		return sessionRecord{}, err
	}
	return sessionRecord{
		AccountID: c.actor.Account.ID, ExpiresAt: expiresAt,
		Key: &accountKeyRecord{KeyID: k.ID, Name: k.Name, Scope: k.Scope.String()},
	}, nil
}

// sessionCookie returns the cookie of a session; with an empty value, one that removes it.
func (c *call) sessionCookie(value string, lifetime time.Duration) *http.Cookie {
	k := &http.Cookie{
		Name: cookie.Session, Value: value, Path: c.api.cfg.BasePath, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		MaxAge: int(lifetime / time.Second),
	}
	if value == "" {
		k.MaxAge = -1
	}
	if c.secure() {
		k.Name, k.Path, k.Secure = cookie.Secure, "/", true
	}
	return k
}

// sessionValue returns the value of the session's cookie; "" means that the call has none, or
// more than one. Over TLS only the cookie name that no other host can set counts.
func (c *call) sessionValue() string {
	name := cookie.Session
	if c.secure() {
		name = cookie.Secure
	}
	if found := c.request.CookiesNamed(name); len(found) == 1 && len(found[0].Value) == sessionValueLen {
		return found[0].Value
	}
	return ""
}

// useSession performs the 401 check of a call with a session.
func (c *call) useSession(value string) error {
	session, err := c.api.cfg.Control.SignedIn(c.ctx, value)
	if fault.CodeOf(err) == fault.NotFound {
		return c.unauthorized(fault.KeyInvalid, "the session has ended: sign in again")
	}
	if err != nil {
		return err
	}
	if session.User != nil {
		c.presented = presentedKey{given: true, account: session.Account, userID: session.UserID}
		c.useUser(session.Account, session.User, session.AuthTime, session.ExpiresAt)
		c.session = value
		c.setActor()
		return nil
	}
	p, found := c.api.cfg.Authenticate(session.KeyDigest, c.now)
	if p.Unconfirmed {
		return c.refuseUnconfirmed()
	}
	c.presented = presentedKey{given: true, account: p.Account, prefix: session.KeyPrefix, keyID: session.KeyID}
	switch {
	case !found:
		return c.unauthorized(fault.KeyInvalid, "the key of the session is no longer active: sign in with another key")
	case p.Expired:
		return c.unauthorized(fault.KeyExpired, "the key of the session has expired: sign in with another key")
	}
	p.KeyPrefix = session.KeyPrefix
	c.principal, c.keyDigest, c.session, c.sessionEnds = p, session.KeyDigest, value, session.ExpiresAt
	c.setActor()
	return nil
}

// useUser makes a user, who is active, the principal of a call with a session or token.
func (c *call) useUser(of *account.Account, u *user.User, authenticated, ends time.Time) {
	c.principal = Principal{
		Account: of, Scope: u.Role.Scopes(), User: u, AuthTime: authenticated,
		Lately: !authenticated.IsZero() && c.now.Sub(authenticated) <= control.LatelyAuthenticated,
	}
	c.sessionEnds = ends
}

// checkOrigin checks that a page of this server made the call, which matters because a browser
// sends the cookie with the calls of other pages too (contract, 3.4). The Origin may be missing if optional
// is set.
func (c *call) checkOrigin(optional bool) error {
	refused := fault.New(fault.Forbidden, "the call comes from another site: its Origin must be this server's own address")
	switch site := c.request.Header.Values("Sec-Fetch-Site"); {
	case len(site) == 0:
	case len(site) > 1 || site[0] != "same-origin" && site[0] != "none":
		return refused
	}
	origins := c.request.Header.Values("Origin")
	if len(origins) == 0 && optional {
		return nil
	}
	if len(origins) != 1 {
		return refused
	}
	origin, err := url.Parse(origins[0])
	if err != nil || origin.Host == "" || origin.Scheme != "https" && (origin.Scheme != "http" || c.secure()) {
		return refused
	}
	if withPort(origin.Host, origin.Scheme) != withPort(c.host(), origin.Scheme) {
		return refused
	}
	return nil
}

// withPort returns a host in lower case with its port, or with the default port of the scheme.
func withPort(host, scheme string) string {
	host = strings.ToLower(host)
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.IndexByte(host[i:], ']') < 0 {
		return host
	}
	if scheme == "https" {
		return host + ":443"
	}
	return host + ":80"
}

// secure reports whether the client's connection has TLS, either with the listener or, as a trusted
// proxy says, with that proxy.
func (c *call) secure() bool {
	return c.request.TLS != nil || strings.EqualFold(c.fromProxy("X-Forwarded-Proto"), "https")
}

// host returns the host that the client addressed.
func (c *call) host() string {
	if h := c.fromProxy("X-Forwarded-Host"); h != "" {
		return h
	}
	return c.request.Host
}

// fromProxy returns the value of a field that a trusted proxy has set, "" from anybody else.
func (c *call) fromProxy(name string) string {
	values := c.request.Header.Values(name)
	if c.api.cfg.Trusted == nil || len(values) != 1 {
		return ""
	}
	peer, err := netip.ParseAddrPort(c.request.RemoteAddr)
	if err != nil || !c.api.cfg.Trusted(peer.Addr()) {
		return ""
	}
	return strings.TrimSpace(values[0])
}

// The bounds of attempts to sign in (contract, 3.4).
const (
	signInFailures  = 10 // of one address in signInPeriod
	signInPeriod    = time.Minute
	signInAddresses = 10_000
)

// attempts counts failed attempts: to sign in by address, an IPv6 address by its /64; to type a user code by user.
type attempts[K comparable] struct {
	mu       sync.Mutex
	failures map[K][]time.Time // at most signInFailures of each, oldest first
}

func newAttempts[K comparable]() *attempts[K] { return &attempts[K]{failures: map[K][]time.Time{}} }

// attempt makes an attempt. If it has failed too often from there, it makes none and returns when the next may be made. Attempts are made one at a time, so that there are never more than may fail;
// check must take no longer than a look-up in memory.
func (s *attempts[K]) attempt(from K, clock func() time.Time, check func() (failed bool)) (refusedUntil time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock()
	recent := s.recent(from, now)
	if len(recent) >= signInFailures {
		return recent[0].Add(signInPeriod)
	}
	if !check() {
		return time.Time{}
	}
	if recent == nil && len(s.failures) >= signInAddresses {
		s.makeRoom(now)
	}
	s.failures[from] = append(recent, now)
	return time.Time{}
}

// begin counts an attempt that takes longer as a failed one, until it has succeeded or is forgiven. If it has failed too often
// from there, it returns when the next may be made.
func (s *attempts[K]) begin(from K, clock func() time.Time) (at, refusedUntil time.Time) {
	refusedUntil = s.attempt(from, func() time.Time {
		at = clock()
		return at
	}, func() (failed bool) { return true })
	return at, refusedUntil
}

// forgive removes a failure that begin has counted at a time.
func (s *attempts[K]) forgive(from K, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.failures[from], at); i >= 0 {
		s.failures[from] = slices.Delete(slices.Clone(s.failures[from]), i, i+1)
	}
	if len(s.failures[from]) == 0 {
		delete(s.failures, from)
	}
}

func (s *attempts[K]) succeeded(from K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.failures, from)
}

// recent returns the failures from there that still count.
func (s *attempts[K]) recent(from K, now time.Time) []time.Time {
	list := s.failures[from]
	for len(list) > 0 && (now.Sub(list[0]) >= signInPeriod || list[0].After(now)) {
		list = list[1:]
	}
	return list
}

// makeRoom forgets the addresses or users whose failures no longer count. If there are none, it forgets the one whose last
// failure is oldest.
func (s *attempts[K]) makeRoom(now time.Time) {
	var oldest K
	var last time.Time
	for from, list := range s.failures {
		at := list[len(list)-1]
		if now.Sub(at) >= signInPeriod || at.After(now) {
			delete(s.failures, from)
			continue
		}
		if last.IsZero() || at.Before(last) {
			oldest, last = from, at
		}
	}
	if len(s.failures) >= signInAddresses {
		delete(s.failures, oldest)
	}
}

// networkOf returns the address itself, or the /64 of an IPv6 address. All text that is not an
// address counts as one.
func networkOf(client string) netip.Prefix {
	addr, err := netip.ParseAddr(client)
	if err != nil {
		return netip.Prefix{}
	}
	bits := 64
	if addr = addr.Unmap(); addr.Is4() {
		bits = 32
	}
	network, _ := addr.Prefix(bits) // fails only for bits beyond the address
	return network
}

// ceilSecond returns t as a Unix time, rounded up.
func ceilSecond(t time.Time) int64 { return t.Add(time.Second - 1).Unix() }
