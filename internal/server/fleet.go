package server

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/health"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/resolve"
	"github.com/keygate/keygate/internal/service"
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
