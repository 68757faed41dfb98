package adminapi

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/user"
)

// Recorder writes audit records.
type Recorder interface {
	// Record takes a record and returns without waiting for it to be stored.
	// AccountID is "" if the account is unknown.
	Record(r *audit.Record)
}

// Principal is the account and the key that a call is made with.
type Principal struct {
	Account   *account.Account // may also be set if the key is refused
	KeyID     string
	KeyPrefix string
	Scope     apikey.Scopes
	Expired   bool
	// User is set, and the fields of a key are not, for the session or token of a user. AuthTime is when it has authenticated,
	// and Lately is set if that was within control.LatelyAuthenticated. TokenID is set for a token.
	User     *user.User
	AuthTime time.Time
	Lately   bool
	TokenID  string
	// Unconfirmed is set if this node does not hold its lease, so that it cannot authenticate anything.
	Unconfirmed bool
}

// Lease says whether this node may decide by the configuration that it has.
type Lease interface {
	// Held reports whether every change that was answered before the call is in force on this
	// node. It does not block.
	Held() bool
}

// BySnapshot returns a Config.Authenticate that looks account-level keys up in
// the snapshot of the data plane, so that a revoked key is refused from the
// moment of its revocation. It marks the key as used. For a gateway-level key it returns false and
// a Principal with only the account. For a key that was revoked within the last 24 hours, or whose
// account is suspended, the Principal also has the KeyID. It never sets KeyPrefix. While lease is
// not held, no key is accepted; a nil lease counts as held.
func BySnapshot(follower *snapshot.Follower, lease Lease) func(digest apikey.Digest, now time.Time) (Principal, bool) {
	return func(digest apikey.Digest, now time.Time) (Principal, bool) {
		if lease != nil && !lease.Held() { // before the snapshot is read, so that the snapshot is at least as new
			return Principal{Unconfirmed: true}, false
		}
		s := follower.Current()
		k := s.KeyByDigest(digest)
		if k == nil {
			return revoked(follower, s, digest), false
		}
		if k.Level() != apikey.AccountLevel {
			return Principal{Account: s.Account(k.AccountID())}, false
		}
		p := Principal{Account: s.Account(k.AccountID()), KeyID: k.ID(), Scope: k.Scope(), Expired: k.Expired(now)}
		if p.Account == nil { // deleted
			return Principal{}, false
		}
		if p.Account.State == account.Suspended {
			return p, false
		}
		if !p.Expired {
			k.MarkUsed(now)
		}
		return p, true
	}
}

// revoked returns what audit records show of a key that was revoked a short time ago: its
// account and identifier. It is empty for any other digest.
func revoked(follower *snapshot.Follower, s *snapshot.Snapshot, digest apikey.Digest) Principal {
	keyID, accountID, ok := follower.RevokedKey(digest)
	a := s.Account(accountID)
	if !ok || a == nil {
		return Principal{}
	}
	return Principal{Account: a, KeyID: id.Format(id.Key, keyID)}
}

// authenticate performs the 401 check and sets c.principal and c.actor. A key takes precedence
// over a session.
func (c *call) authenticate() error {
	values := c.request.Header.Values("Authorization")
	if value := c.sessionValue(); value != "" && len(values) == 0 {
		return c.useSession(value)
	}
	secret, given := bearer(values)
	if !given {
		return c.unauthorized(fault.KeyInvalid, "the Authorization header is missing or malformed: send Authorization: Bearer KEY with an account-level API key")
	}
	if level, ok := apikey.LevelOf(secret); ok && level == apikey.UserLevel {
		return c.useToken(secret)
	}
	return c.useKey(secret)
}

// useToken performs the 401 check of a call with the token of a user.
func (c *call) useToken(secret string) error {
	c.presented = presentedKey{given: true, prefix: apikey.PrefixOf(secret)}
	t, err := c.api.cfg.Control.UserByToken(c.ctx, secret)
	if fault.CodeOf(err) == fault.NotFound {
		return c.unauthorized(fault.KeyInvalid, "the token is not valid: it was revoked, or its user may not sign in any more; run keygate login --sso again")
	}
	if err != nil {
		return err
	}
	c.presented.account, c.presented.userID = t.Account, t.UserID
	if !c.now.Before(t.ExpiresAt) {
		return c.unauthorized(fault.KeyExpired, "the token has expired: run keygate login --sso again")
	}
	c.useUser(t.Account, &t.User, t.AuthTime, t.ExpiresAt)
	c.principal.TokenID, c.tokenDigest = t.ID, t.Digest
	c.setActor()
	return nil
}

// useKey performs the 401 check of a call with a key.
func (c *call) useKey(secret string) error {
	var p Principal
	var found bool
	level, wellFormed := apikey.LevelOf(secret)
	if wellFormed {
		c.keyDigest = apikey.DigestOf(secret)
		p, found = c.api.cfg.Authenticate(c.keyDigest, c.now)
	}
	if p.Unconfirmed {
		return c.refuseUnconfirmed()
	}
	if level == apikey.GatewayLevel {
		p.KeyID = ""
	}
	p.KeyPrefix = apikey.PrefixOf(secret)
	c.presented = presentedKey{given: true, account: p.Account, prefix: p.KeyPrefix, keyID: p.KeyID}
	switch {
	case !found && level == apikey.GatewayLevel:
		return c.unauthorized(fault.KeyInvalid, "the API key is a gateway-level key (kg_…), which is for calls through a gateway: use an account-level key (kga_…)")
	case !found:
		return c.unauthorized(fault.KeyInvalid, "the API key is not a valid account-level key: check it, or create a new one")
	case p.Expired:
		return c.unauthorized(fault.KeyExpired, "the API key has expired: use another key")
	}
	c.principal = p
	c.setActor()
	return nil
}

// refuseUnconfirmed returns the 503 of a node that does not hold its lease. Nothing was
// authenticated, so nothing is recorded.
func (c *call) refuseUnconfirmed() error {
	c.unconfirmed = true
	c.header.Del("Allow")
	return fault.New(fault.Unavailable, "the database cannot be reached, so no key can be checked and nothing can be changed: try again; if it lasts, the log and /readyz of this node say more")
}

func (c *call) unauthorized(code fault.AuthCode, message string) error {
	c.header.Del("Allow") // only callers with a valid key may learn which paths exist
	return &fault.Error{Code: fault.Unauthorized, Auth: code, Message: message}
}

// bearer returns the key of the Authorization header. It refuses two such
// headers, because software in front of the server might use the other one.
func bearer(values []string) (secret string, ok bool) {
	if len(values) != 1 {
		return "", false
	}
	scheme, secret, found := strings.Cut(values[0], " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	secret = strings.TrimLeft(secret, " ")
	return secret, secret != ""
}

// authorize performs the part of the 403 check that needs neither the body nor the
// store. Package control checks what rights a key may give to other keys.
func (c *call) authorize() error {
	if c.op.operatorOnly && !c.principal.Account.IsDefault() {
		return fault.Denied("this call is only for keys of the account default")
	}
	if c.op.allowOwnUser && c.principal.User != nil && c.params["user_id"] == c.principal.User.ID {
		return nil
	}
	if c.op.anyScope || c.op.allowOwnKey && c.principal.KeyID != "" && c.params["key_id"] == c.principal.KeyID {
		return nil
	}
	method := c.op.method
	if c.op.readScope {
		method = "GET"
	}
	if c.principal.Scope.Allows(method, strings.TrimPrefix(c.normalPath(), "/v1")) {
		return c.authorizeEffect()
	}
	if c.principal.User != nil {
		return fault.Denied("the role %s does not allow this call: an administrator can give you another one", c.principal.User.Role)
	}
	return fault.Denied("the scope of this key, %s, does not allow this call: use a key with a sufficient scope", c.principal.Scope)
}

// authorizeEffect refuses a call that asks for the effect of a change unless the key may also read the
// traffic report and simulate limits, which say the same.
func (c *call) authorizeEffect() error {
	if !slices.ContainsFunc(c.op.query, func(q queryParam) bool { return q.name == "effect" }) || c.request.URL.Query().Get("effect") != "true" ||
		c.principal.Scope.Allows("GET", "/reports/traffic") || c.params["gateway_id"] != "" && c.principal.Scope.Allows("POST", "/gateways/"+c.params["gateway_id"]+"/limits/simulate") {
		return nil
	}
	return fault.Denied("the scope of this key, %s, does not allow to read traffic, which effect=true shows: use a key that may also GET /v1/reports/traffic, or call without effect", c.principal.Scope)
}

// presentedKey is what is known about the key of a call, whether it was accepted
// or refused.
type presentedKey struct {
	given   bool // a call that needs no key was made with one
	account *account.Account
	prefix  string
	keyID   string
	userID  string // of the session or token of a user
}

// credentialID returns the identifier of the key or user.
func (p *Principal) credentialID() string {
	if p.User != nil {
		return p.User.ID
	}
	return p.KeyID
}

// record records the authentication of a call that needs a key. Its outcome is
// success unless the call was refused because of its key or scope.
func (c *call) record(err error) {
	if c.api.cfg.Recorder == nil || c.unconfirmed || c.op != nil && c.op.public && !c.presented.given {
		return
	}
	r := &audit.Record{
		Time: c.now, Kind: audit.Authentication, Outcome: audit.Success, KeyPrefix: c.presented.prefix, KeyID: c.presented.keyID,
		Method: c.request.Method, Path: c.request.URL.EscapedPath(), ClientIP: c.api.clientIP(c.request), RequestID: c.requestID,
	}
	if c.presented.userID != "" {
		r.Token, r.Subject = true, c.presented.userID
	}
	if c.presented.account != nil {
		r.AccountID = c.presented.account.ID
	}
	var refused *fault.Error
	if errors.As(err, &refused) && refused.Auth != "" {
		if r.Outcome = audit.Outcome(refused.Auth); refused.Auth == fault.ReauthenticationRequired {
			r.Outcome = audit.ScopeInsufficient
		}
	}
	c.api.cfg.Recorder.Record(r)
}

// bucketKey returns the name of the bucket of a calling key or user.
func bucketKey(p *Principal) [16]byte {
	if p.User != nil {
		u, _ := id.Parse(id.User, p.User.ID)
		return u
	}
	u, _ := id.Parse(id.Key, p.KeyID)
	return u
}
