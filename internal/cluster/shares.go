package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/service"
	"github.com/keygate/keygate/internal/snapshot"
)

// NodeStore tells which nodes there are.
type NodeStore interface {
	// ServingNodes returns the names of the nodes with a data plane whose leases have not ended, in an
	// order that is the same on every node.
	ServingNodes(ctx context.Context) ([]string, error)
	// AnnounceNode commits a change that says that a node has joined, and returns its position.
	AnnounceNode(ctx context.Context, name string) (snapshot.Position, error)
}

// Everywhere waits until a change is in force on every node.
type Everywhere interface {
	Await(ctx context.Context, p snapshot.Position) error
}

// SharesConfig configures Shares. All fields are required except Interval and Log.
type SharesConfig struct {
	Node       string // name of this node
	Store      NodeStore
	Everywhere Everywhere
	// CatchUp puts every change in force that was committed before the call.
	CatchUp func(ctx context.Context) error
	// Changed is called when the share of this node has changed, before the change that caused it is in
	// force.
	Changed func()
	// Interval is the time between two reads of the nodes. A share grows with the first read after other
	// nodes have left. Zero means 1 s.
	Interval time.Duration
	Log      *slog.Logger
}

// Shares tells which share of each divided limit this node has. The shares of all nodes that decide about
// requests are never more than the whole:
//
//   - A node that joins announces itself by a change, and decides about no request until that change is in
//     force on every other node, which have made their shares smaller by then (Confirm, Joined). That
//     holds for a node whose lease was ended, too.
//   - A share grows when another node's lease has ended, after which that node decides about no request.
//
// It is safe for concurrent use.
type Shares struct {
	cfg   SharesConfig
	group service.Group

	// reading is held while the nodes are read and the share is changed, so that an older read never
	// replaces a newer one.
	reading sync.Mutex
	share   atomic.Uint64 // the index in the upper half, the number of nodes in the lower
}

// NewShares returns Shares of a node that has the whole.
func NewShares(cfg SharesConfig) *Shares {
	cfg.Interval = cmp.Or(cfg.Interval, time.Second)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Shares{cfg: cfg}
	s.share.Store(1)
	return s
}

// Share returns which of the equal shares this node has, from 0, and how many there are.
func (s *Shares) Share() (index, of int) {
	v := s.share.Load()
	return int(v >> 32), int(v & (1<<32 - 1))
}

// Nodes returns how many nodes share the limits, at least 1.
func (s *Shares) Nodes() int {
	_, of := s.Share()
	return of
}

// Start begins to read the nodes again and again.
func (s *Shares) Start(context.Context) error {
	if err := s.group.Start(s.run); err != nil {
		return fmt.Errorf("start reading the nodes: %w", err)
	}
	return nil
}

// Stop ends what Start began. The share stays as it is.
func (s *Shares) Stop(ctx context.Context) error {
	if err := s.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop reading the nodes: %w", err)
	}
	return nil
}

func (s *Shares) run(ctx context.Context) {
	ticker := time.NewTicker(s.cfg.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			// A failed read leaves the share as it is. The lease reports that the database is away.
			if err := s.Joined(ctx); err != nil && !errors.Is(err, context.Canceled) {
				s.cfg.Log.Debug("the nodes cannot be read", "error", err)
			}
		}
	}
}

// Joined reads the nodes and changes the share of this node. When it has returned nil, the share takes
// account of every node that had joined before the call.
func (s *Shares) Joined(ctx context.Context) error {
	s.reading.Lock()
	defer s.reading.Unlock()
	names, err := s.cfg.Store.ServingNodes(ctx)
	if err != nil {
		return fmt.Errorf("read which nodes share the limits: %w", err)
	}
	index := slices.Index(names, s.cfg.Node)
	if index < 0 {
		return nil // this node has no lease, or no data plane
	}
	if v := uint64(index)<<32 | uint64(len(names)); s.share.Swap(v) != v {
		s.cfg.Changed()
	}
	return nil
}

// Confirm returns nil when every other node that decides about requests has taken account of this node.
// This node must have joined before the call.
func (s *Shares) Confirm(ctx context.Context) error {
	p, err := s.cfg.Store.AnnounceNode(ctx, s.cfg.Node)
	if err != nil {
		return fmt.Errorf("announce this node: %w", err)
	}
	if err := s.cfg.CatchUp(ctx); err != nil {
		return fmt.Errorf("apply the newest changes: %w", err)
	}
	return s.cfg.Everywhere.Await(ctx, p)
}
