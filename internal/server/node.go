package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"time"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/cluster"
	"github.com/keygate/keygate/internal/cluster/lease"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store"
	"github.com/keygate/keygate/internal/store/postgres"
)

// node is the part of a server that exists only if it may share its database with others. A nil *node shares with none.
type node struct {
	db     *postgres.DB
	member *cluster.Member
	hints  *cluster.Hints
	waiter *cluster.Waiter
	shares *cluster.Shares
}

// openNode opens the connections that are the node's own. Without a database that nodes can share, it does
// nothing.
func (s *Server) openNode(ctx context.Context, engine store.Engine) error {
	db, shared := engine.(*postgres.DB)
	if !shared {
		return nil
	}
	settings := s.cfg.Settings
	url := string(settings.DatabaseURL)
	leases, err := postgres.OpenLeases(ctx, url, postgres.Node{Role: settings.Role, Version: s.cfg.Version, Format: snapshot.ChangeFormat, Limits: string(settings.SharedLimits), StartedAt: time.Now()})
	if err != nil {
		return err
	}
	s.pushClose(leases.Close)
	listener, err := postgres.OpenListener(ctx, cmp.Or(string(settings.DatabaseListenURL), url), db)
	if err != nil {
		return err
	}
	s.pushClose(listener.Close)
	n := &node{db: db, hints: cluster.NewHints(listener, s.log)}
	clock := cluster.NewClock()
	views, err := postgres.OpenViews(ctx, url)
	if err != nil {
		return err
	}
	s.pushClose(views.Close)
	n.waiter = cluster.NewWaiter(cluster.WaiterConfig{Store: views, TTL: settings.LeaseTTL, Clock: clock, Log: s.log})
	n.shares = cluster.NewShares(cluster.SharesConfig{
		Node: settings.NodeName, Store: db, Everywhere: n.waiter, Interval: min(settings.LeaseTTL/10, time.Second), Log: s.log,
		CatchUp: func(ctx context.Context) error { return s.follower.CatchUp(ctx) },
		Changed: func() { s.sharing.Reshare() },
	})
	n.member, err = cluster.NewMember(cluster.MemberConfig{
		Name: settings.NodeName, TTL: settings.LeaseTTL, Store: leases, Clock: clock, Quick: cluster.NewQuickClock(clock), Random: rand.Reader,
		Confirm: n.shares.Confirm, Steer: s.clock.Steer, Serve: settings.OnDatabaseLoss == config.LossServe, Log: s.log,
		Regained: func() { s.slots.Regained() },
	})
	if err != nil {
		return err
	}
	s.node = n
	s.readiness.SetUnready(n.unready)
	return nil
}

// openSlots starts to share the limits of requests in flight with other nodes, if there may be some.
func (s *Server) openSlots(ctx context.Context) (err error) {
	s.metrics.Gauge("keygate_slots", "Keys, owners and routes of whose limits of requests in flight this node has some. 0 without PostgreSQL.", func() float64 { return float64(s.slots.Count()) })
	s.metrics.Counter("keygate_slots_unconfirmed_total", "Requests for which this node alone has counted what is in flight, because the database could not be reached or its lease had ended, as --on-database-loss=serve says.",
		func() float64 { return float64(s.slots.Unconfirmed()) })
	if s.node == nil {
		return nil
	}
	if s.slots, err = ratelimit.NewSlotKeeper(ratelimit.SlotKeeperConfig{
		Store: s.node.db, Process: s.node.process(), Nodes: s.node.count, Leased: s.node.member.Leased,
		Serve: s.cfg.Settings.OnDatabaseLoss == config.LossServe, Log: s.log,
	}); err != nil {
		return err
	}
	return s.running.Start(ctx, s.slots)
}

// lease returns the lease that says whether this node may decide, or nil if it always may.
func (s *Server) lease() admit.Lease {
	switch {
	case s.cfg.Lease != nil:
		return s.cfg.Lease
	case s.node != nil:
		return s.node.member
	default:
		return nil
	}
}

func (s *Server) pushClose(f func()) {
	s.running.Push(func(context.Context) error {
		f()
		return nil
	})
}

// startNode joins the other nodes. When it returns, the node's lease is held.
func (s *Server) startNode(ctx context.Context) error {
	if s.node == nil {
		return nil
	}
	if err := s.running.Start(ctx, s.node.hints); err != nil {
		return err
	}
	s.node.member.Follow(s.follower)
	// The member waits for the others, through the waiter.
	if err := s.running.Start(ctx, s.node.waiter, s.node.member, s.node.shares); err != nil {
		return err
	}
	s.registerNodeMetrics()
	oldest := &snapshotAge{db: s.node.db}
	s.metrics.Gauge("keygate_database_oldest_snapshot_seconds", "How long the oldest transaction has run that keeps PostgreSQL from removing dead rows.", oldest.seconds)
	return s.running.Start(ctx, oldest)
}

// shared returns the configuration of the follower of one of several nodes, or nil.
func (n *node) shared() *snapshot.Shared {
	if n == nil {
		return nil
	}
	return &snapshot.Shared{
		Log: n.db, Hint: n.hints.C(), Applied: n.member.Applied, Restarted: n.member.Restarted, Unreadable: n.member.Unreadable, Joined: n.shares.Joined,
	}
}

// share returns the share of each divided limit that this node has.
func (n *node) share() ratelimit.Share {
	if n == nil {
		return ratelimit.Share{Of: 1}
	}
	index, of := n.shares.Share()
	return ratelimit.Share{Index: index, Of: of}
}

// process returns the name of this process among those that share its database, or "" if none do.
func (n *node) process() string {
	if n == nil {
		return ""
	}
	return n.member.Process()
}

// count returns how many nodes share the limits, this one included.
func (n *node) count() int { return max(1, n.share().Of) }

// everywhere returns the control.Everywhere that waits for the other nodes, or nil.
func (n *node) everywhere() control.Everywhere {
	if n == nil {
		return nil
	}
	return n.waiter
}

// unready returns why this node must not get requests, or "".
func (n *node) unready() string {
	if n.member.Held() {
		return ""
	}
	if why := n.member.TooOld(); why != "" {
		return "no lease: " + why
	}
	return "no lease: the database cannot be reached, or this node has not applied the newest changes"
}

// degraded returns noLease while this node works without a lease, or "".
func (n *node) degraded() string {
	if n == nil || n.member.Leased() || !n.member.Held() {
		return ""
	}
	return noLease
}

// noLease is the result of degraded: changes made since the lease has ended may not be in force on this node.
const noLease = "no_lease"

// registerNodeMetrics registers the metrics of several nodes.
func (s *Server) registerNodeMetrics() {
	n := s.node
	s.metrics.Gauge("keygate_lease_remaining_seconds", "How long this node's lease still runs, or 0 without one.",
		func() float64 { return n.member.Remaining().Seconds() })
	s.metrics.Gauge("keygate_lease_serving_without", "1 if this node works without a lease, as --on-database-loss=serve says.",
		func() float64 {
			if n.degraded() != "" {
				return 1
			}
			return 0
		})
	s.metrics.Gauge("keygate_change_lag", "How many changes this node has read and not yet applied.",
		func() float64 { return float64(s.follower.Lag()) })
	s.metrics.Gauge("keygate_unusable_keys", "Keys that this node cannot read and refuses.",
		func() float64 { keys, _, _ := s.follower.Unusable(); return float64(keys) })
	s.metrics.Gauge("keygate_unusable_gateways", "Gateways that this node cannot read or compile, and that are out of service.",
		func() float64 { _, gateways, _ := s.follower.Unusable(); return float64(gateways) })
	s.metrics.Gauge("keygate_unusable_accounts", "Accounts that this node cannot read and takes for suspended.",
		func() float64 { _, _, accounts := s.follower.Unusable(); return float64(accounts) })
	s.metrics.Gauge("keygate_unusable_plans", "Plans that this node cannot read. What they limit is refused.",
		func() float64 { plans, _ := s.follower.UnusablePlans(); return float64(plans) })
	s.metrics.Gauge("keygate_unusable_owners", "Owners that this node cannot read and takes for suspended.",
		func() float64 { _, owners := s.follower.UnusablePlans(); return float64(owners) })
	for _, state := range []lease.State{lease.Live, lease.Expired, lease.Stopped} {
		s.metrics.Gauge("keygate_nodes_"+string(state), "Nodes in the state "+string(state)+".",
			func() float64 { return float64(n.waiter.Nodes()[state]) })
	}
}
