package snapshot

import "context"

// ChangeLog is the store's list of committed changes, in the order of their
// commits. A Follower reads it to learn which records it must read again.
type ChangeLog interface {
	// LastSeq returns the Seq of the newest change ever written, or 0 before
	// the first.
	LastSeq(ctx context.Context) (int64, error)
	// Changes returns up to limit changes after seq, oldest first. It returns
	// complete as false if changes after seq have already been trimmed;
	// the caller must then load the whole configuration again.
	Changes(ctx context.Context, seq int64, limit int) (changes []Change, complete bool, err error)
}

// Position names a state of a change log that several nodes share: its newest change, and the random
// mark of that change. After a failover that lost changes, numbers are used again but marks are not. The
// zero value is the empty log.
type Position struct {
	Number int64
	Mark   [8]byte
}

// PositionLog is a ChangeLog that several nodes share, whose entries have marks.
type PositionLog interface {
	// LastPosition returns the position of the newest change.
	LastPosition(ctx context.Context) (Position, error)
	// ChangesAfter returns up to limit changes after p, oldest first. It returns known as false if
	// the log does not contain p: it was trimmed beyond it, or is of another history.
	ChangesAfter(ctx context.Context, p Position, limit int) (changes []Change, known bool, err error)
}

// Change is one entry of the change log. It is written in the transaction that
// makes the change. Seq increases from entry to entry, in the order of commits,
// possibly with gaps.
type Change struct {
	Seq  int64
	Kind ChangeKind
	ID   string  // of the changed record; of a RouteChange, what RouteChangeID returns
	Mark [8]byte // from a PositionLog
}

// ChangeKind is the kind of record that a Change touched.
type ChangeKind string

// The kinds of changes that must be in force before a call is answered.
const (
	AccountChange ChangeKind = "account"
	// GatewayChange means that a gateway was created or deleted, or that its settings and any
	// of its routes may have changed.
	GatewayChange ChangeKind = "gateway"
	// SettingsChange means that settings of a gateway changed, and none of its routes.
	SettingsChange ChangeKind = "settings"
	// RouteChange means that one route of a gateway was created, changed or deleted.
	RouteChange ChangeKind = "route"
	KeyChange   ChangeKind = "key"
	// WebhookChange means that a webhook endpoint was changed or deleted.
	WebhookChange ChangeKind = "webhook"
	// NodeChange means that a node has joined those that share the store. Its ID is the node's name.
	NodeChange ChangeKind = "node"
)
