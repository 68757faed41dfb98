package control

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
)

// AuditReader reads the audit log.
type AuditReader interface {
	// Audit lists the account's management records that are not in a block yet, newest
	// first. Page.After is the Seq of the last record of the previous page.
	Audit(ctx context.Context, accountID string, p Page) ([]audit.Record, error)
	// AuditLog lists all of the account's audit records, newest first. Page.After is the cursor of
	// the last record of the previous page.
	AuditLog(ctx context.Context, accountID string, f audit.Filter, p Page) ([]audit.Record, error)
	// AuditSource returns the account's log for a step of audit.Scan. It must not be used
	// after the transaction.
	AuditSource(accountID string) audit.Source
	// AuditChain describes the account's chain of blocks.
	AuditChain(ctx context.Context, accountID string) (audit.Chain, error)
	// AuditWaiting returns the size of the part of the account's log that is not sealed yet.
	AuditWaiting(ctx context.Context, accountID string) (audit.Waiting, error)
	// AuditBlocks returns up to limit blocks of the account's chain in order, starting
	// with the one that follows the number after.
	AuditBlocks(ctx context.Context, accountID string, after int64, limit int) ([]*audit.Block, error)
}

// AuditStore reads the audit log and appends to it.
type AuditStore interface {
	AuditReader
	AppendAudit(ctx context.Context, r *audit.Record) error
}

// ChangeLogReader reads the change log, which snapshots follow.
type ChangeLogReader interface {
	// Changes returns up to limit entries after seq, oldest first. complete is false if
	// entries after seq were already trimmed; the reader must then load everything again.
	Changes(ctx context.Context, seq int64, limit int) (changes []snapshot.Change, complete bool, err error)
}

// ChangeLog reads the change log and appends to it.
type ChangeLog interface {
	ChangeLogReader
	// AppendChange appends an entry and returns its sequence number, or 0 if the entry gets a number only when the
	// transaction commits.
	AppendChange(ctx context.Context, k snapshot.ChangeKind, recordID string) (seq int64, err error)
	// AppendChanges appends an entry of kind k for each of the records, of which there must be one, and returns the sequence
	// number of the first, which those of the others follow, or 0 as AppendChange.
	AppendChanges(ctx context.Context, k snapshot.ChangeKind, recordIDs []string) (first int64, err error)
	// AppendRevocation appends a KeyChange by which a key with the given digest is revoked. Other nodes
	// refuse the key before they read any record.
	AppendRevocation(ctx context.Context, keyID string, digest apikey.Digest) (seq int64, err error)
}

// StoredResponse is the response to a call with an Idempotency-Key, kept to be returned
// again. It holds no secret.
type StoredResponse struct {
	KeyID       string   // of the calling key
	Key         string   // the Idempotency-Key
	Fingerprint [32]byte // of method, path, query and body
	Status      int
	Header      map[string]string
	Body        []byte
	CreatedAt   time.Time
}

// IdempotencyReader finds stored responses.
type IdempotencyReader interface {
	StoredResponse(ctx context.Context, keyID, key string) (*StoredResponse, error)
}

// IdempotencyStore finds and keeps responses.
type IdempotencyStore interface {
	IdempotencyReader
	// PutStoredResponse stores r and replaces an older response to the same key.
	PutStoredResponse(ctx context.Context, r *StoredResponse) error
}

// DailyCountsReader reads the counts of daily caps.
type DailyCountsReader interface {
	// DailyCounts returns the counts of a day, given as days since 1970 in UTC, as the node sees them: of the
	// named limits, or of all limits if none is named.
	DailyCounts(ctx context.Context, node string, day int64, limitIDs ...string) ([]ratelimit.DailyCount, error)
}

// DailyCounts reads and writes the counts of daily caps.
type DailyCounts interface {
	DailyCountsReader
	// ReserveDaily writes what the node claims, and sets the answers (DailyClaim.Grant). No two claims
	// may be to the same cap.
	ReserveDaily(ctx context.Context, node string, day int64, claims []ratelimit.DailyClaim) error
}

// Trimmer removes records after their retention. more reports whether there may be
// other records to remove.
type Trimmer interface {
	// Trim removes stored responses older than responses, entries of the change log older than
	// changes, events older than events, and counts of days before day: at most limit rows of each
	// kind. The part of an event that deliveries need stays until its last delivery is removed.
	Trim(ctx context.Context, responses, changes, events time.Time, day int64, limit int) (more bool, err error)
	// TrimRevisions removes about limit revisions that are not kept, in this order: all of deleted
	// gateways; of each gateway, the oldest, up to the first that is among its newest or was created
	// since k.Since; and of accounts whose revisions take too many bytes, the oldest of the gateway
	// whose revisions, apart from its newest, take the most.
	TrimRevisions(ctx context.Context, k KeptRevisions, limit int) (more bool, err error)
	// TrimTables removes at most limit rows: of route tables that were replaced, of route tables
	// that Prepare stored before staged and that no transaction used, and of what is left of
	// removed revisions.
	TrimTables(ctx context.Context, staged time.Time, limit int) (more bool, err error)
	// TrimQuotas removes windows of quotas that ended before ended, with their grants, and quotas that have no other window:
	// about limit rows. It also removes the shares of processes that do not live and have claimed nothing since ended: what
	// they have taken stays taken.
	TrimQuotas(ctx context.Context, ended time.Time, limit int) (more bool, err error)
	// DeleteQuotas removes about limit rows of quotas, by their numbers.
	DeleteQuotas(ctx context.Context, quotas []int64, limit int) (more bool, err error)
	// TrimDenials removes denials that ended before ended, or else those of issuers that were deleted: at most limit.
	TrimDenials(ctx context.Context, ended time.Time, limit int) (more bool, err error)
	// TrimDeliveries removes deliveries that were delivered before delivered or failed
	// before failed, at most limit of each.
	TrimDeliveries(ctx context.Context, delivered, failed time.Time, limit int) (more bool, err error)
}
