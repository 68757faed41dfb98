package server

import (
	"cmp"
	"context"
	"crypto/rand"

	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/ratelimit/limitstore"
)

// openSharing builds what makes the limits of this node parts of limits that all nodes share. With
// one node and without a limit store there is nothing to share.
func (s *Server) openSharing(clock *ratelimit.Clock) (err error) {
	settings := s.cfg.Settings
	if settings.Redis == nil && s.node == nil {
		return nil
	}
	cfg := ratelimit.SharingConfig{
		Mode: settings.SharedLimits, OnLoss: settings.OnLimitStoreLoss, Shares: s.node.share, Now: clock.Now, Log: s.log,
		Version: func() int64 { return s.follower.InForce() },
		CatchUp: func(ctx context.Context) error { return s.follower.CatchUp(ctx) },
	}
	if settings.Redis != nil {
		s.limitStore, err = limitstore.New(limitstore.Config{
			Address: settings.Redis, Installation: func() string { return s.operatorID }, Node: rand.Text(), Log: s.log,
		})
		if err != nil {
			return err
		}
		s.pushClose(s.limitStore.Close)
		cfg.Store = s.limitStore
	}
	s.sharing, err = ratelimit.NewSharing(cfg)
	return err
}

// startSharing connects to the limit store, whose keys are named after the operator's account.
func (s *Server) startSharing(ctx context.Context) error {
	if s.sharing == nil {
		return nil
	}
	if err := s.running.Start(ctx, s.sharing); err != nil {
		return err
	}
	store := "none"
	if s.limitStore != nil {
		store = s.cfg.Settings.Redis.String()
	}
	s.log.Info("limits are shared", "mode", string(s.sharing.Mode()), "limit_store", store, "on_loss", string(s.cfg.Settings.OnLimitStoreLoss))
	return nil
}

// trouble returns what is wrong without stopping traffic, or "".
func (s *Server) trouble() string {
	return cmp.Or(s.db.Trouble(), s.node.degraded(), s.sharing.Trouble(), s.slots.Degraded(), s.issuerKeys.Trouble(), s.issued.degraded(s))
}

// registerSharingMetrics registers the metrics of limits and of shared limits.
func (s *Server) registerSharingMetrics() {
	m, stats, budget := s.metrics, s.sharing.Stats, s.follower.BucketBudget()
	m.Gauge("keygate_key_limits_bytes", "Memory of the buckets and daily counts of limits with per: key or per: address.", func() float64 { return float64(budget.Used()) })
	m.Counter("keygate_key_limits_refused_total", "Requests refused because there was no room to count another key for a limit with per: key, or another address.", func() float64 { return float64(budget.Refused()) })
	m.Gauge("keygate_address_limits", "Buckets of limits that count each client address.", func() float64 { return float64(budget.Addresses()) })
	m.Counter("keygate_address_limits_shared_total", "Requests that were counted together with others because there was no place to count their address on its own.", func() float64 { return float64(budget.AddressesShared()) })
	m.Labelled("keygate_shared_limits", "1 for the way in which nodes share rate limits, 0 for the others.", "mode", false, func() map[string]float64 {
		now := map[string]float64{string(ratelimit.Leased): 0, string(ratelimit.Exact): 0, string(ratelimit.Divided): 0}
		if mode := s.sharing.Mode(); mode != "" {
			now[string(mode)] = 1
		}
		return now
	})
	m.Counter("keygate_limit_store_questions_total", "Questions to the limit store, each about the buckets of a request or of several alike.", func() float64 { return float64(stats().Trips) })
	m.Counter("keygate_limit_store_round_trips_total", "Round trips to the limit store.", func() float64 { return float64(stats().RoundTrips) })
	m.Counter("keygate_limit_store_waits_total", "Requests that waited for the limit store.", func() float64 { return float64(stats().Waits) })
	m.Counter("keygate_limit_store_late_total", "Requests that were decided without the limit store because it took longer than 50 ms.", func() float64 { return float64(stats().Late) })
	m.Counter("keygate_limit_store_granted_total", "Requests that the limit store has granted to this node ahead of use.", func() float64 { return float64(stats().Granted) })
	m.Counter("keygate_limit_store_losses_total", "How often the limit store was lost.", func() float64 { return float64(stats().Losses) })
	m.Counter("keygate_limit_store_replaced_total", "How often a server of the limit store was restarted or has taken over, or the store was emptied.", func() float64 { return float64(s.limitStore.Stats().Replaced) })
	m.Counter("keygate_limit_store_evicted_total", "Keys that the limit store has evicted.", func() float64 { return float64(s.limitStore.Stats().Evicted) })
}
