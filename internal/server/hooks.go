package server

import (
	"context"

	"github.com/keygate/keygate/internal/event/detect"
	"github.com/keygate/keygate/internal/secret"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/webhook/sender"
)

// startHooks starts what delivers events. It ends after everything that makes
// some, and before the store.
func (s *Server) startHooks(ctx context.Context, box *secret.Box) (err error) {
	settings := s.cfg.Settings
	if s.sender, err = sender.New(sender.Config{
		Queue: s.db, Exclusive: s.db, Sealer: box, Guard: s.guard,
		Allow: settings.WebhookAllowNetwork, AllowHTTP: settings.WebhookAllowHTTP, Backoff: settings.WebhookBackoff, Log: s.log,
	}); err != nil {
		return err
	}
	if err := s.sender.Start(ctx); err != nil {
		return err
	}
	s.started(s.sender.Stop)
	s.countHooks()
	return nil
}

// routePaths finds the paths of routes for events.
type routePaths struct{ live *snapshot.Follower }

// RoutePath implements watch.Routes.
func (p routePaths) RoutePath(gatewayID, routeID string) string {
	if g := p.live.Current().GatewayByID(gatewayID); g != nil {
		if r := g.RouteByID(routeID); r != nil {
			return r.Path
		}
	}
	return ""
}

// openWatch makes the sink of the events.
func (s *Server) openWatch() (sink, error) {
	w, err := detect.New(detect.Config{Store: s.db, Routes: routePaths{s.live}, Wake: s.sender.Wake, Log: s.log})
	if err != nil {
		return nil, err
	}
	s.metrics.Counter("keygate_event_lost_total", "Refusals by a limit and errors of upstreams that could make no event, because too many waited.",
		func() float64 { return float64(w.Lost()) })
	return w, nil
}

// countHooks shows the figures of the sender.
func (s *Server) countHooks() {
	stats := s.sender.Stats
	for _, g := range []struct {
		name, help string
		read       func(sender.Stats) int
	}{
		{"keygate_webhook_in_flight", "Webhook deliveries that are being sent.", func(t sender.Stats) int { return t.InFlight }},
		{"keygate_webhook_held", "Webhook deliveries that this server took on, those being sent included.", func(t sender.Stats) int { return t.Held }},
		{"keygate_webhook_endpoints_paused", "Endpoints that are left alone for a while after failures in a row.", func(t sender.Stats) int { return t.Paused }},
	} {
		s.metrics.Gauge(g.name, g.help, func() float64 { return float64(g.read(stats())) })
	}
	for _, c := range []struct {
		name, help string
		read       func(sender.Stats) int64
	}{
		{"keygate_webhook_delivered_total", "Webhook deliveries that a receiver took.", func(t sender.Stats) int64 { return t.Delivered }},
		{"keygate_webhook_retried_total", "Failed attempts of webhook deliveries that another attempt follows.", func(t sender.Stats) int64 { return t.Retried }},
		{"keygate_webhook_failed_total", "Webhook deliveries whose every attempt failed.", func(t sender.Stats) int64 { return t.Failed }},
		{"keygate_webhook_postponed_total", "Webhook deliveries put off because their endpoint failed in a row.", func(t sender.Stats) int64 { return t.Postponed }},
		{"keygate_webhook_late_total", "Results of attempts that came after another sender had taken the delivery over.", func(t sender.Stats) int64 { return t.Late }},
		{"keygate_webhook_unwritten_total", "Results of attempts that the store did not take; those deliveries are sent again.", func(t sender.Stats) int64 { return t.Unwritten }},
		{"keygate_webhook_store_errors_total", "Calls of the sender to the store that failed.", func(t sender.Stats) int64 { return t.StoreErrors }},
	} {
		s.metrics.Counter(c.name, c.help, func() float64 { return float64(c.read(stats())) })
	}
}
