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

// Change is one entry of the change log. It is written in the transaction that
// makes the change. Seq increases from entry to entry, in the order of commits,
// possibly with gaps.
type Change struct {
	Seq  int64
	Kind ChangeKind
	ID   string // of the changed record; of a RouteChange, what RouteChangeID returns
}

// ChangeKind is the kind of record that a Change touched.
type ChangeKind string

// The kinds of records that a Snapshot is compiled from.
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
)
