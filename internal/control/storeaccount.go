package control

import (
	"context"

	"github.com/keygate/keygate/internal/account"
)

// AccountFilter selects accounts for a list. Fields that are zero select every account.
type AccountFilter struct {
	State account.State
	Tier  account.Tier
	Query string // a part of the name, ignoring the case of ASCII letters
}

// AccountReader finds accounts.
type AccountReader interface {
	// Account also returns an account that is deleted.
	Account(ctx context.Context, accountID string) (*account.Account, error)
	AccountByName(ctx context.Context, name string) (*account.Account, error)
	// Accounts lists accounts that are not deleted, newest first.
	Accounts(ctx context.Context, f AccountFilter, p Page) ([]account.Account, error)
	// DeletedAccounts returns the deleted accounts whose records are still being removed.
	DeletedAccounts(ctx context.Context) ([]string, error)
	// AccountCounts returns how many records an account has of the kinds that are counted. Its
	// cost does not depend on these numbers.
	AccountCounts(ctx context.Context, accountID string) (AccountCounts, error)
	// AccountRoom returns which of the account's counts are below the counts in most. An Update that asks this way
	// is not repeated when another one changes a count that stays below its bound.
	AccountRoom(ctx context.Context, accountID string, most AccountCounts) (AccountRoom, error)
}

// AccountCounts is how many records an account has.
type AccountCounts struct {
	Keys          int64 // in any state
	LiveKeys      int64 // not revoked
	Owners        int64 // in any state
	Plans         int64
	Quotas        int64 // of which windows are kept
	Responses     int64 // stored for the account's keys that exist
	ResponseBytes int64 // of their bodies and encoded headers
	RevisionBytes int64 // as stored, including revisions that are no longer kept but not removed yet
	Targets       int64 // of the upstreams of all gateways

	// The configuration that every node has in memory, as far as the account chooses its size.
	GatewayBytes int64 // settings of gateways
	RouteBytes   int64 // gateway.RouteBytes
	KeyBytes     int64 // scopes and lists of addresses of keys that are not revoked
	WebhookBytes int64 // URLs and events of endpoints
	OwnerBytes   int64 // external IDs and time zones of owners
	PlanBytes    int64 // names and limits of plans
}

// ConfigurationBytes returns the size of the account's configuration.
func (n *AccountCounts) ConfigurationBytes() int64 {
	return n.GatewayBytes + n.RouteBytes + n.KeyBytes + n.WebhookBytes + n.OwnerBytes + n.PlanBytes
}

// AccountRoom says for each number of AccountCounts whether it is below its bound. Configuration says so for
// ConfigurationBytes.
type AccountRoom struct {
	Keys, LiveKeys, Owners, Plans, Responses, ResponseBytes, RevisionBytes, Targets, Configuration bool
}

// AccountStore finds and changes accounts. A name that is in use is fault.Conflict with the
// field "name".
type AccountStore interface {
	AccountReader
	// InsertAccount adds an active account with the version 1, whatever a says.
	InsertAccount(ctx context.Context, a *account.Account) error
	// UpdateAccount writes all fields but ID and CreatedAt. The caller sets Version.
	UpdateAccount(ctx context.Context, a *account.Account) error
	// RequireRoomForResponse makes Update fail with refusal unless the account has fewer than most stored responses
	// with fewer than mostBytes bytes, including what the transaction has written.
	RequireRoomForResponse(ctx context.Context, accountID string, most, mostBytes int64, refusal error) error
	// NoteConfiguration notes the size of the account's configuration, and ConfigurationFits reports whether it is at
	// most most bytes, or not larger than noted. It may return true unchecked; if that turns out to be wrong, Update
	// calls its function again.
	NoteConfiguration(ctx context.Context, accountID string) error
	ConfigurationFits(ctx context.Context, accountID string, most int64) (bool, error)
	// RemoveAccount removes about limit records of a deleted account, and writes the change
	// log entries of its gateways. It leaves the audit log, which ends with its retention, and
	// daily counts, which end within two days. more is false when there is nothing left; the
	// account is then no longer one of DeletedAccounts.
	RemoveAccount(ctx context.Context, accountID string, limit int) (more bool, err error)
}
