package control

import (
	"slices"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
)

// No key grants more than it has (contract, section 3). The API has already checked that the scope
// allows the method on the path. The rules here depend on the key that a call creates or changes.

// keysPath is the path of keys below /v1.
const keysPath = "/keys"

// mayChange returns nil if a may update k, or revoke it if revoke is set. An account-level key
// requires the scope admin without a resource, but every key may revoke itself.
func (a *Actor) mayChange(k *apikey.Key, revoke bool) error {
	if k.Level != apikey.AccountLevel || revoke && a.KeyID == k.ID {
		return nil
	}
	if a.isFullAdmin() {
		return a.authenticatedLately()
	}
	return fault.Denied("changing an account-level key requires the scope admin without a resource")
}

// mayIssue returns nil if a may issue a key with the level and scopes, by a call of path, which is the path
// below /v1. The highest word of a's own scopes that cover path counts: a key with admin:webhooks and
// write:keys may not issue keys with the scope admin.
func (a *Actor) mayIssue(path string, level apikey.Level, scope apikey.Scopes) error {
	if level == apikey.AccountLevel {
		if a.isFullAdmin() {
			return a.authenticatedLately()
		}
		return fault.Denied("issuing an account-level key requires the scope admin without a resource")
	}
	if scope.Word() > a.Scope.WordOn(path) {
		return fault.Denied("a key with the scope %s must not issue one with the scope %s: that requires the word %s for %s", a.Scope, scope, scope.Word(), path)
	}
	return nil
}

func (a *Actor) isFullAdmin() bool {
	return slices.Contains(a.Scope, apikey.Scope{Word: apikey.Admin})
}
