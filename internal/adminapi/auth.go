package adminapi

import (
	"strings"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/snapshot"
)

// Principal is who holds a key.
type Principal struct {
	Account   *account.Account
	KeyID     string
	KeyPrefix string
	Scope     apikey.Scope
	Expired   bool
}

// BySnapshot returns a Config.Authenticate that finds account-level keys in
// what the data plane has in force, so that a revoked key is refused from the
// moment of its revocation. It marks the key as used.
func BySnapshot(live *snapshot.Live) func(secret string, now time.Time) (Principal, bool) {
	return func(secret string, now time.Time) (Principal, bool) {
		s := live.Current()
		k := s.FindKey(secret)
		if k == nil || k.Level() != apikey.AccountLevel {
			return Principal{}, false
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
	if c.op.operator && !c.principal.Account.IsDefault() {
		return fault.Denied("the settings are for keys of the operator's account alone")
	}
	if c.op.anyScope || c.op.ownKey && c.params["key_id"] == c.principal.KeyID {
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

// bucketOf names the limit of a key.
func bucketOf(keyID string) [16]byte {
	u, _ := id.Parse(id.Key, keyID)
	return u
}
