package control

import (
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
)

// No key gives more than it has (contract, section 3). Whether a scope allows
// a method on a path was asked before; what stands here depends on the key that
// a call makes or changes.

// mayChange tells whether c may patch k, or revoke it if revoke is set: an
// account-level key only with admin over everything, but any key may end
// itself.
func (c *Caller) mayChange(k *apikey.Key, revoke bool) error {
	if k.Level != apikey.AccountLevel || c.isFullAdmin() || revoke && c.KeyID == k.ID {
		return nil
	}
	return fault.Denied("an account-level key is changed only with the scope admin, without a resource")
}

// mayIssue tells whether c may make a key of the level and scope, anew or by a
// rotation.
func (c *Caller) mayIssue(level apikey.Level, scope apikey.Scope) error {
	if level == apikey.AccountLevel {
		if c.isFullAdmin() {
			return nil
		}
		return fault.Denied("an account-level key is created only with the scope admin, without a resource")
	}
	if scope.Word > c.Scope.Word {
		return fault.Denied("a key with the scope %s may not issue one with the scope %s", c.Scope, scope)
	}
	return nil
}

func (c *Caller) isFullAdmin() bool {
	return c.Scope.Word == apikey.Admin && c.Scope.Resource == ""
}
