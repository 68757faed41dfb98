package control

import (
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
)

// No key grants more than it has (contract, section 3). The API has already checked that the scope
// allows the method on the path. The rules here depend on the key that a call creates or changes.

// mayChange returns nil if c may update k, or revoke it if revoke is set. An account-level key
// requires the scope admin without a resource, but every key may revoke itself.
func (c *Caller) mayChange(k *apikey.Key, revoke bool) error {
	if k.Level != apikey.AccountLevel || c.isFullAdmin() || revoke && c.KeyID == k.ID {
		return nil
	}
	return fault.Denied("changing an account-level key requires the scope admin without a resource")
}

// mayIssue returns nil if c may issue a key with the level and scope, by creation or rotation.
func (c *Caller) mayIssue(level apikey.Level, scope apikey.Scope) error {
	if level == apikey.AccountLevel {
		if c.isFullAdmin() {
			return nil
		}
		return fault.Denied("issuing an account-level key requires the scope admin without a resource")
	}
	if scope.Word > c.Scope.Word {
		return fault.Denied("a key with the scope %s must not issue one with the scope %s", c.Scope, scope)
	}
	return nil
}

func (c *Caller) isFullAdmin() bool {
	return c.Scope.Word == apikey.Admin && c.Scope.Resource == ""
}
