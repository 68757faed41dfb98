package snapshot

import (
	"context"
	"errors"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
)

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

// ErrDamaged matches the error of a Source or PositionLog about one record that is damaged, so that others can be
// read. Any other error says nothing about the record.
var ErrDamaged = errors.New("the stored record is damaged")

// PositionLog is a ChangeLog that several nodes share, whose entries have marks. It also reads keys and accounts in
// such a way that an unreadable record does not keep others from being read, and so plans and owners.
type PositionLog interface {
	// LastPosition returns the position of the newest change.
	LastPosition(ctx context.Context) (Position, error)
	// ChangesAfter returns up to limit changes after p, oldest first. It returns known as false if
	// the log does not contain p: it was trimmed beyond p, or has another history.
	ChangesAfter(ctx context.Context, p Position, limit int) (changes []Change, known bool, err error)
	// KeysByID calls f for each existing key, in any order: with its record, or with the error of a
	// record that cannot be read. It may call f again for a key with the same result. f may keep the
	// Key.
	KeysByID(ctx context.Context, keyIDs []string, f func(keyID string, k *apikey.Key, unreadable error)) error
	// EachReadableKey does the same as KeySource.EachKey, but calls bad for a key whose record
	// cannot be read. It may call f or bad more than once for a key, each time with the same result.
	EachReadableKey(ctx context.Context, revokedSince time.Time, f func(*apikey.Key) error, bad func(keyID string, err error)) error
	// ReadableAccounts does the same as AccountSource.Accounts, but calls bad for an account whose record
	// cannot be read. The account is in the list nevertheless, as suspended.
	ReadableAccounts(ctx context.Context, bad func(accountID string, err error)) ([]account.Account, error)
	// EachReadablePlan does the same as PlanSource.EachPlan, but calls bad for a plan whose record cannot be read. It
	// may call f or bad more than once for a plan, each time with the same result.
	EachReadablePlan(ctx context.Context, f func(*plan.Plan) error, bad func(planID string, err error)) error
	// EachReadableOwner does the same as PlanSource.EachOwner, but calls bad for an owner whose record cannot be read.
	// It may call f or bad more than once for an owner, each time with the same result.
	EachReadableOwner(ctx context.Context, f func(*owner.Owner) error, bad func(ownerID string, err error)) error
	// EachReadableIssuer does the same as IssuerSource.EachIssuer, but calls bad for an issuer whose record cannot be read.
	// It may call f or bad more than once for an issuer, each time with the same result.
	EachReadableIssuer(ctx context.Context, f func(*issuer.Issuer) error, bad func(issuerID string, err error)) error
}

// ChangeFormat is the newest format of changes that this version reads. Formats are numbers. A new kind of
// change, or a new meaning of a kind, gets the next number if earlier versions would not put it in force
// correctly. No node writes a change that another node with a lease cannot read.
const ChangeFormat = 6

// Format returns the format that a node must read to put changes of this kind in force.
func (k ChangeKind) Format() int {
	switch k {
	case OwnerChange, PlanChange:
		return 2
	case HolderChange:
		return 3
	case ConcurrencyChange:
		return 4
	case UpstreamChange, ReturnChange, ImportChange, AddressChange, IssuerChange, DenialChange:
		return 5
	case CertificateChange:
		return 6
	}
	return 1
}

// isKey reports whether a change of this kind is one of a key.
func (k ChangeKind) isKey() bool {
	switch k {
	case KeyChange, HolderChange, ConcurrencyChange, ImportChange, AddressChange:
		return true
	}
	return false
}

// Change is one entry of the change log. It is written in the transaction that
// makes the change. Seq increases from entry to entry, in the order of commits,
// possibly with gaps.
type Change struct {
	Seq  int64
	Kind ChangeKind
	ID   string  // of the changed record; for a RouteChange, what RouteChangeID returns, and so for a ReturnChange and a DenialChange
	Mark [8]byte // from a PositionLog
	// Format is the format that a node must read to put the change in force, from a PositionLog.
	Format int
	// Revoked is the digest of the key if the change revokes it, from a PositionLog. Else it is nil.
	Revoked *apikey.Digest
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
	// UpstreamChange is a SettingsChange of a gateway that has several upstreams, several targets or other settings of its
	// upstreams that earlier versions do not read, or lists of addresses, maintenance or issuers: they would send every request to
	// one URL, serve everybody, or refuse tokens, so no such change is made beside them. A GatewayChange of such a gateway comes
	// with an UpstreamChange.
	UpstreamChange ChangeKind = "upstream"
	// ReturnChange ends the ejections of a target on every node, and changes no record. Its ID is what ReturnChangeID returns.
	ReturnChange ChangeKind = "return"
	// RouteChange means that one route of a gateway was created, changed or deleted.
	RouteChange ChangeKind = "route"
	KeyChange   ChangeKind = "key"
	// HolderChange is a KeyChange: the holder of a key has rotated it, and the ID is that of the new key. Earlier versions
	// would not revoke that key together with the old one, so no such change is made beside them.
	HolderChange ChangeKind = "holder"
	// ConcurrencyChange is a KeyChange of a key that has a limit of requests in flight. Earlier versions would not enforce
	// it, and their rotations would lose it, so no such change is made beside them.
	ConcurrencyChange ChangeKind = "concurrency"
	// ImportChange is a KeyChange of an imported key. Earlier versions would not accept the key, so no such change is made
	// beside them.
	ImportChange ChangeKind = "import"
	// AddressChange is a KeyChange of a key with lists of addresses. Earlier versions would accept it from every address, and
	// their rotations would lose the lists, so no such change is made beside them.
	AddressChange ChangeKind = "address"
	// OwnerChange means that an owner was created, changed or deleted.
	OwnerChange ChangeKind = "owner"
	// PlanChange means that a plan was created, changed or deleted.
	PlanChange ChangeKind = "plan"
	// IssuerChange means that an issuer, or its keys, were created, changed or deleted.
	IssuerChange ChangeKind = "issuer"
	// DenialChange means that a denial of an issuer was created or deleted. Its ID is what DenialChangeID returns.
	DenialChange ChangeKind = "denial"
	// WebhookChange means that a webhook endpoint was changed or deleted.
	WebhookChange ChangeKind = "webhook"
	// CertificateChange means that a certificate by ACME, or what validates one, was stored or deleted. Earlier versions would not
	// serve it, so no such change is made beside them.
	CertificateChange ChangeKind = "certificate"
	// NodeChange means that a node has joined the nodes that share the store. Its ID is the node's name.
	NodeChange ChangeKind = "node"
)
