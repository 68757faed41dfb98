package adminapi

import (
	"errors"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/snapshot"
)

// Recorder keeps authentication events. Record must not wait.
type Recorder interface {
	// Record takes an event; one of no account has no AccountID.
	Record(r *audit.Record)
}

// Principal is who holds a key.
type Principal struct {
	Account   *account.Account // also of a key that is known and not let in, if only that is known
	KeyID     string
	KeyPrefix string
	Scope     apikey.Scope
	Expired   bool
}

// BySnapshot returns a Config.Authenticate that finds account-level keys in
// what the data plane has in force, so that a revoked key is refused from the
// optionalTime of its revocation. It marks the key as used.
func BySnapshot(live *snapshot.Follower) func(secret string, now time.Time) (Principal, bool) {
	return func(secret string, now time.Time) (Principal, bool) {
		s := live.Current()
		k := s.FindKey(secret)
		if k == nil {
			return Principal{}, false
		}
		if k.Level() != apikey.AccountLevel {
			return Principal{Account: s.Account(k.AccountID())}, false
		}
		p := Principal{
			Account: s.Account(k.AccountID()), KeyID: k.ID(), KeyPrefix: apikey.PrefixOf(secret), Scope: k.Scope(), Expired: k.Expired(now),
		}
		if p.Account == nil {
			return Principal{}, false
		}
		if !p.Expired {
			k.MarkUsed(now)
		}
		return p, true
	}
}

// authenticate is the check 401.
func (c *call) authenticate() error {
	secret, given := bearer(c.request.Header.Values("Authorization"))
	if !given {
		return c.unauthorized(fault.KeyInvalid, "give an account-level API key in one field: Authorization, the word Bearer, a space, the key")
	}
	p, found := c.api.cfg.Authenticate(secret, c.now)
	c.presented = presentedKey{account: p.Account, prefix: apikey.PrefixOf(secret), keyID: p.KeyID}
	switch {
	case !found:
		return c.unauthorized(fault.KeyInvalid, "the key is not a valid account-level API key: check it, or create another")
	case p.Expired:
		return c.unauthorized(fault.KeyExpired, "the key has expired: use another")
	}
	c.principal = p
	c.setCaller()
	return nil
}

func (c *call) unauthorized(code fault.AuthCode, message string) error {
	c.header.Del("Allow") // what the path takes is told to who holds a key
	return &fault.Error{Code: fault.Unauthorized, Auth: code, Message: message}
}

// bearer returns the key of the Authorization fields. Two fields are as bad as
// none: which of them counts must not depend on who reads them.
func bearer(fields []string) (secret string, ok bool) {
	if len(fields) != 1 {
		return "", false
	}
	scheme, secret, found := strings.Cut(fields[0], " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	secret = strings.TrimLeft(secret, " ")
	return secret, secret != ""
}

// authorise is the check 403, as far as it needs neither body nor store; what
// a key may give to others, control checks.
func (c *call) authorise() error {
	if c.op.operatorOnly && !c.principal.Account.IsDefault() {
		return fault.Denied("the settings are for keys of the operator's account alone")
	}
	if c.op.anyScope || c.op.allowOwnKey && c.params["key_id"] == c.principal.KeyID {
		return nil
	}
	method := c.op.method
	if c.op.readScope {
		method = "GET"
	}
	if c.principal.Scope.Allows(method, strings.TrimPrefix(c.normalPath(), "/v1")) {
		return nil
	}
	return fault.Denied("the key's scope %s does not allow this call: use a key with a scope that does", c.principal.Scope)
}

// presentedKey is what is known of the key that was presented, let in or not.
type presentedKey struct {
	account *account.Account
	prefix  string
	keyID   string
}

// record tells the recorder how the authentication of a call that needs a key
// ended: whatever was not refused for its key or scope is a success.
func (c *call) record(err error) {
	if c.api.cfg.Recorder == nil || c.op != nil && c.op.public {
		return
	}
	r := &audit.Record{
		Time: c.now, Kind: audit.Authentication, Outcome: audit.Success, KeyPrefix: c.presented.prefix, KeyID: c.presented.keyID,
		Method: c.request.Method, Path: c.request.URL.EscapedPath(), ClientIP: c.api.clientIP(c.request), RequestID: c.requestID,
	}
	if c.presented.account != nil {
		r.AccountID = c.presented.account.ID
	}
	var refusal *fault.Error
	if errors.As(err, &refusal) && refusal.Auth != "" {
		r.Outcome = audit.Outcome(refusal.Auth)
	}
	c.api.cfg.Recorder.Record(r)
}

// bucketKey names the limit of a key.
func bucketKey(keyID string) [16]byte {
	u, _ := id.Parse(id.Key, keyID)
	return u
}
