package control

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
)

// Node is one of the nodes that share the store.
type Node struct {
	ID        string
	Name      string
	Role      string
	Version   string
	Limits    string // how it applies limits over several nodes
	StartedAt time.Time
	State     string // live, expired or stopped
	Applied   int64  // number of the newest change that it has applied
	Lag       int64  // number of changes that it has not applied
	// LeaseUntil is when its lease ends unless it is renewed, by the clock of the database. It is zero
	// without a lease.
	LeaseUntil time.Time
}

// NodeReader is implemented by the transactions of a store that several nodes share.
type NodeReader interface {
	// Nodes returns all nodes in the order of their names.
	Nodes(ctx context.Context) ([]Node, error)
	Node(ctx context.Context, nodeID string) (*Node, error)
}

// NodeStore also deletes nodes.
type NodeStore interface {
	NodeReader
	DeleteNode(ctx context.Context, nodeID string) error
}

// Nodes lists the nodes that share the store. It returns none if the store is not shared.
func (s *Service) Nodes(ctx context.Context) ([]Node, error) {
	return view(ctx, s, func(tx ReadTx) ([]Node, error) {
		nodes, ok := tx.(NodeReader)
		if !ok {
			return nil, nil
		}
		return nodes.Nodes(ctx)
	})
}

// Node returns a node.
func (s *Service) Node(ctx context.Context, nodeID string) (*Node, error) {
	return view(ctx, s, func(tx ReadTx) (*Node, error) {
		nodes, ok := tx.(NodeReader)
		if !ok {
			return nil, fault.Missing("node")
		}
		return nodes.Node(ctx, nodeID)
	})
}

// DeleteNode declares that a node is dead and will not come back: no change waits for it any more. It
// returns the node as it was. If the node still runs, it joins again, and may until then admit with the
// configuration that it has.
func (s *Service) DeleteNode(ctx context.Context, actor *Actor, nodeID string) (*Node, error) {
	return inTx(ctx, s, actor, func(w *work) (*Node, error) {
		nodes, ok := w.Tx.(NodeStore)
		if !ok {
			return nil, fault.Missing("node")
		}
		n, err := nodes.Node(ctx, nodeID)
		if err != nil {
			return nil, err
		}
		if err := nodes.DeleteNode(ctx, nodeID); err != nil {
			return nil, err
		}
		return n, w.audit(ctx, audit.NodeDelete, nodeID, "", audit.Diff{"name": {n.Name, nil}, "state": {n.State, nil}})
	})
}
