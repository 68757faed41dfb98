package server

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/health"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/resolve"
	"github.com/keygate/keygate/internal/service"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/targetreport"
)

// openFleet makes what chooses between the targets of upstreams, whose reports become events, and what looks up their names.
func (s *Server) openFleet(ctx context.Context) error {
	s.fleet = balance.NewFleet(func(t balance.Transition) {
		if s.events != nil { // nothing is sent to a target before
			s.events.NoteTarget(t)
		}
	})
	s.toCheck = service.NewSignal()
	s.fleet.OnChecks(s.toCheck.Notify)
	by := s.cfg.Resolver
	if by == nil {
		by = net.DefaultResolver
	}
	var err error
	if s.names, err = resolve.New(resolve.Config{
		Lookup: by, Now: func() time.Duration { return time.Duration(s.clock.Mono()) },
		Changed: func(n balance.Name) { s.follower.Resolved(n) }, // it is started after the Follower is there
	}); err != nil {
		return err
	}
	s.metrics.Counter("keygate_name_lookups_total", "Look-ups of the names of targets with resolve a or srv.", func() float64 {
		good, failed := s.names.Lookups()
		return float64(good + failed)
	})
	s.metrics.Counter("keygate_name_lookups_failed_total", "Look-ups of the names of targets that have failed or found no address.", func() float64 {
		_, failed := s.names.Lookups()
		return float64(failed)
	})
	return s.running.Start(ctx, &fleetSweeper{fleet: s.fleet, now: func() time.Duration { return time.Duration(s.clock.Mono()) }})
}

// startChecks starts what checks targets, on a node with a data plane.
func (s *Server) startChecks(ctx context.Context) error {
	checks, err := health.New(health.Config{
		Healths: s.fleet.Healths, Changed: s.toCheck, Pools: s.pools, Version: s.cfg.Version,
		Serves: func(accountID string) bool {
			a := s.follower.Current().Account(accountID)
			return a != nil && a.State == account.Active
		},
		Now: func() time.Duration { return time.Duration(s.clock.Mono()) },
	})
	if err != nil {
		return err
	}
	return s.running.Start(ctx, checks)
}

// mayReach reports whether targets of accounts that may reach only public addresses may be at an address.
func (s *Server) mayReach(addr netip.AddrPort) bool {
	return s.guard.Check(netguard.Policy{PublicOnly: true, Allow: s.cfg.Settings.UpstreamAllowNetwork}, addr) == nil
}

// upstreams returns the upstreams that are checked, whose names are looked up, or that have or had several targets, ordered by account,
// gateway and name.
func (s *Server) upstreams() (all []*balance.Upstream) {
	current := s.follower.Current()
	for _, name := range s.fleet.Names() {
		g := current.GatewayByID(name.Gateway)
		if g == nil {
			continue
		}
		for u := range g.Upstreams {
			if u.Name == name.Upstream && u.Balance != nil {
				all = append(all, u.Balance)
			}
		}
	}
	return all
}

// fleetSweeper calls Sweep of a Fleet.
type fleetSweeper struct {
	fleet *balance.Fleet
	now   func() time.Duration
	group service.Group
}

// Start begins to sweep, until Stop.
func (f *fleetSweeper) Start(context.Context) error {
	return f.group.Start(func(ctx context.Context) {
		service.Every(ctx, balance.SweepPeriod, func(context.Context) { f.fleet.Sweep(f.now()) })
	})
}

// Stop ends the sweeps.
func (f *fleetSweeper) Stop(ctx context.Context) error { return f.group.Stop(ctx) }

// targetClock returns the clock for reports of targets.
func (s *Server) targetClock() targetreport.Clock {
	return targetreport.Clock{Mono: func() time.Duration { return time.Duration(s.clock.Now().Mono) }, Wall: s.clock.WallTime}
}

// openReports starts to report the state of targets to other nodes, if there may be some and this one has a data plane.
func (s *Server) openReports(ctx context.Context) (err error) {
	s.metrics.Gauge("keygate_target_reports_left_out", "Targets that this node does not report to other nodes, because there are too many. 0 without PostgreSQL.", func() float64 {
		if s.reporter == nil {
			return 0
		}
		return float64(s.reporter.LeftOut())
	})
	if s.node == nil || !s.cfg.Settings.ServesGateway() {
		return nil
	}
	if s.reporter, err = targetreport.New(targetreport.Config{
		Store: s.node.db, Fleet: s.fleet, Clock: s.targetClock(), Claimant: s.node.member.Claimant, Log: s.log,
		InForce: func() int64 { return s.follower.Applied().Number },
	}); err != nil {
		return err
	}
	return s.running.Start(ctx, s.reporter)
}

// targetView is what management knows of targets.
type targetView struct {
	*targetreport.View
	follower *snapshot.Follower
}

// TakesPart implements control.Targets.
func (v targetView) TakesPart(n balance.Name, url string) bool {
	for u := range upstreamsNamed(v.follower, n) {
		for _, t := range u.Targets {
			if t.URL == url && !t.Drain {
				return true
			}
		}
	}
	return false
}

// upstreamsNamed returns the upstream of a name, if there is one.
func upstreamsNamed(f *snapshot.Follower, n balance.Name) func(func(*snapshot.Upstream) bool) {
	return func(yield func(*snapshot.Upstream) bool) {
		g := f.Current().GatewayByID(n.Gateway)
		if g == nil || g.AccountID != n.Account {
			return
		}
		for u := range g.Upstreams {
			if u.Name == n.Upstream {
				yield(u)
				return
			}
		}
	}
}

func (s *Server) targetView() control.Targets {
	host, _ := os.Hostname() // without a database for several nodes, a node needs no name
	cfg := targetreport.ViewConfig{
		Node: cmp.Or(s.cfg.Settings.NodeName, host, "localhost"), Fleet: s.fleet, Clock: s.targetClock(), Serves: s.cfg.Settings.ServesGateway(),
		Lone: func(n balance.Name) *balance.Lone {
			for u := range upstreamsNamed(s.follower, n) {
				return u.Lone()
			}
			return nil
		},
	}
	if s.node != nil {
		cfg.Store, cfg.Claimant = s.node.db, s.node.member.Claimant
	}
	return targetView{targetreport.NewView(cfg), s.follower}
}
