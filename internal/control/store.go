package control

import (
	"context"
	"errors"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/snapshot"
)

// ErrInDoubt is in the error of an Update that cannot find out whether its changes are stored,
// because the store went away while it committed.
var ErrInDoubt = errors.New("the changes may be stored")

// Store holds everything that survives a restart. Every database engine implements it and
// passes store/storetest.
//
// A method that looks a record up by its identifier returns fault.NotFound if there is
// no such record, or if it belongs to another account than the one given. A store that
// is locked by another process, read-only, full or newer than the binary returns
// fault.Unavailable.
type Store interface {
	// Update runs f in one serializable transaction. It commits if f returns nil;
	// otherwise nothing of the transaction remains. A committed transaction survives a
	// power loss. f may be called again, if the store ends the transaction to resolve a
	// conflict; then nothing of the first call remains. An error means that nothing was
	// changed, unless it has ErrInDoubt in it or ctx has ended.
	Update(ctx context.Context, f func(tx Tx) error) error
	// Prepare does the work of RevisionStore.InsertPrepared that takes long, before the
	// transaction: whatever the size of r, no other change waits for it for more than some
	// milliseconds. If InsertPrepared is not committed, the caller must call Discard.
	Prepare(ctx context.Context, r *gateway.Revision) (Prepared, error)
	// Discard gives up what Prepare returned. After a crash, Trimmer.TrimTables does it.
	Discard(ctx context.Context, p Prepared) error
	// Settle returns the position of the newest change, and the number of the newest one of the account, which is "" for
	// none. When it returns, all changes up to this position are as durable as changes of Update: if Update waits for a
	// synchronous replica, so does Settle, also for changes of other calls.
	Settle(ctx context.Context, accountID string) (p snapshot.Position, ofAccount int64, err error)
	// View runs f over one consistent state.
	View(ctx context.Context, f func(tx ReadTx) error) error
	// Search is View for reads that may take long. They never delay a View or an Update, and
	// stop when ctx ends, also within a statement.
	Search(ctx context.Context, f func(tx ReadTx) error) error
	// Analyze lets the store learn the sizes of tables that have grown much since it last looked, so that statements go on
	// to use the right indexes. It takes milliseconds if there are none.
	Analyze(ctx context.Context) error
}

// ReadTx reads one consistent state of the store.
type ReadTx interface {
	AccountReader
	GatewayReader
	RouteReader
	RevisionReader
	RepositoryReader
	CanaryReader
	KeyReader
	ImportReader
	OwnerReader
	PlanReader
	IssuerReader
	SessionReader
	UserReader
	WebhookReader
	EventReader
	DeliveryReader
	AuditReader
	ChangeLogReader
	IdempotencyReader
	DailyCountsReader
	QuotaReader
}

// Tx reads and changes the store in one transaction. A store may collect writes and send them later; the error of a
// write then comes from a later call or from Update. In any case the transaction fails with it. The arguments of a
// write must not change before the transaction ends.
type Tx interface {
	AccountStore
	GatewayStore
	RouteStore
	RevisionStore
	RepositoryStore
	CanaryStore
	KeyStore
	ImportStore
	OwnerStore
	PlanStore
	IssuerStore
	SessionStore
	UserStore
	WebhookStore
	EventStore
	DeliveryStore
	AuditStore
	ChangeLog
	IdempotencyStore
	DailyCounts
	QuotaGranter
	Trimmer
}

// Page asks for up to Limit records, newest first, that follow the record After; ""
// asks for the first page.
type Page struct {
	Limit int
	After string
}
