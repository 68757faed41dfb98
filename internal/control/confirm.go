package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/snapshot"
)

// confirmWithin is how long a call waits until its change is in force on every node.
// acknowledgedWithin is how long a call that does not wait may take to count the nodes that have
// it.
const (
	confirmWithin      = 30 * time.Second
	acknowledgedWithin = 2 * time.Second
)

// ErrChangeLost is returned by Everywhere.Await for a change that was lost in a failover of the database.
var ErrChangeLost = fault.New(fault.Unavailable, "the database was replaced by one that does not have the change: look what is stored, and repeat the call if needed")

// Everywhere tells when changes are in force on every node.
type Everywhere interface {
	// Await returns nil when no node admits without the changes up to p: each has applied them, or
	// holds no lease any more. If ctx ends first, it returns an error, and if p was lost in a failover, ErrChangeLost.
	Await(ctx context.Context, p snapshot.Position) error
	// Acknowledged returns how many of the nodes that hold a lease have applied the changes up to p.
	Acknowledged(ctx context.Context, p snapshot.Position) (have, of int, err error)
}

// CommitReporter is implemented by the transactions of a store that several nodes share.
type CommitReporter interface {
	// OnCommit makes Update call f before it returns nil, and only then. f gets the position of the newest change that
	// the transaction has made or seen, and the number of the account's newest change.
	OnCommit(accountID string, f func(p snapshot.Position, ofAccount int64))
}

// Receipt receives the report of an operation on its change. It is passed in the context.
type Receipt struct {
	// NoWait makes the operation return before other nodes have the change.
	NoWait bool
	// Change is the number of the account's newest change that the operation has seen or made. It reveals nothing
	// about other accounts. It is 0 if there is only one node.
	Change int64
	// Acknowledged is how many of the Nodes have the change, with NoWait. Nodes is 0 if this is not
	// known.
	Acknowledged, Nodes int

	at snapshot.Position // the newest change that the operation has seen or made
}

type receiptKey struct{}

// WithReceipt returns a context for an operation that reports on its change in r.
func WithReceipt(ctx context.Context, r *Receipt) context.Context {
	return context.WithValue(ctx, receiptKey{}, r)
}

// Confirm waits until every change that was committed before the call is durable, and in force on every node. It is
// for a response that an earlier call of the account stored.
func (s *Service) Confirm(ctx context.Context, accountID string) error {
	if s.cfg.Everywhere == nil {
		return nil
	}
	head, number, err := s.cfg.Store.Settle(ctx, accountID)
	if err != nil {
		return err
	}
	return s.confirm(ctx, head, number)
}

// confirm waits until the changes up to p, which are committed, are in force on every node. number is the number
// of the account's newest change. It ends with ctx: the changes stand whether or not anybody waits.
func (s *Service) confirm(ctx context.Context, p snapshot.Position, number int64) error {
	if s.cfg.Everywhere == nil {
		return nil
	}
	receipt, _ := ctx.Value(receiptKey{}).(*Receipt)
	if receipt == nil {
		receipt = &Receipt{}
	}
	receipt.Change, receipt.at = number, p
	if receipt.NoWait {
		ctx, cancel := context.WithTimeout(ctx, acknowledgedWithin)
		defer cancel()
		var err error
		if receipt.Acknowledged, receipt.Nodes, err = s.cfg.Everywhere.Acknowledged(ctx, p); err != nil {
			s.cfg.Log.WarnContext(ctx, "could not read which nodes have a change", "change", p.Number, "error", err)
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, confirmWithin)
	defer cancel()
	if err := s.cfg.Everywhere.Await(ctx, p); err != nil {
		if errors.Is(err, ErrChangeLost) {
			return ErrChangeLost
		}
		return &fault.Error{
			Code: fault.Unavailable, Message: "the change is stored, but not confirmed everywhere: another node may still work without it. Repeat the call to wait for it",
			Err: fmt.Errorf("wait for all nodes to apply change %d: %w", p.Number, err),
		}
	}
	return nil
}
