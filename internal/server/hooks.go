package server

import (
	"context"

	"github.com/keygate/keygate/internal/event/detect"
	"github.com/keygate/keygate/internal/secret"
	"github.com/keygate/keygate/internal/webhook/sender"
)

// startWebhooks starts the sender of webhook deliveries. It stops after everything that
// creates events, and before the store.
func (s *Server) startWebhooks(ctx context.Context, box *secret.Box) (err error) {
	settings := s.cfg.Settings
	cfg := sender.Config{
		Queue: s.db, Exclusive: s.db, Sealer: box, Guard: s.guard,
		Allow: settings.WebhookAllowNetwork, AllowHTTP: settings.WebhookAllowHTTP, Backoff: settings.WebhookBackoff, Log: s.log,
		MaxInFlight: s.descriptors.hooks,
	}
	if settings.Shared() {
		cfg.Poll = sender.SharedPoll
	}
	if s.sender, err = sender.New(cfg); err != nil {
		return err
	}
	if err := s.running.Start(ctx, s.sender); err != nil {
		return err
	}
	s.registerWebhookMetrics()
	return nil
}

// openEvents returns the sink that creates events.
func (s *Server) openEvents() (sink, error) {
	wake := func() {} // another node has the sender
	if s.sender != nil {
		wake = s.sender.Wake
	}
	w, err := detect.New(detect.Config{Store: s.records, Routes: s.follower, Wake: wake, Log: s.log})
	if err != nil {
		return nil, err
	}
	s.events = w
	s.metrics.Counter("keygate_event_lost_total", "Exceeded limits and upstream errors that raised no event because too many were waiting.",
		func() float64 { return float64(w.Lost()) })
	return w, nil
}

// registerWebhookMetrics registers the metrics of the sender.
func (s *Server) registerWebhookMetrics() {
	stats := s.sender.Stats
	for _, g := range []struct {
		name, help string
		read       func(sender.Stats) int
	}{
		{"keygate_webhook_in_flight", "Webhook deliveries being sent.", func(t sender.Stats) int { return t.InFlight }},
		{"keygate_webhook_held", "Webhook deliveries that this server has claimed, including those being sent.", func(t sender.Stats) int { return t.Held }},
		{"keygate_webhook_endpoints_paused", "Webhook endpoints paused after consecutive failures.", func(t sender.Stats) int { return t.Paused }},
	} {
		s.metrics.Gauge(g.name, g.help, func() float64 { return float64(g.read(stats())) })
	}
	for _, c := range []struct {
		name, help string
		read       func(sender.Stats) int64
	}{
		{"keygate_webhook_delivered_total", "Webhook deliveries accepted by their endpoint.", func(t sender.Stats) int64 { return t.Delivered }},
		{"keygate_webhook_retried_total", "Failed webhook attempts that will be retried.", func(t sender.Stats) int64 { return t.Retried }},
		{"keygate_webhook_failed_total", "Webhook deliveries that failed after their last attempt.", func(t sender.Stats) int64 { return t.Failed }},
		{"keygate_webhook_postponed_total", "Webhook deliveries postponed because their endpoint is paused.", func(t sender.Stats) int64 { return t.Postponed }},
		{"keygate_webhook_late_total", "Results of webhook attempts that came after another sender had claimed the delivery.", func(t sender.Stats) int64 { return t.Late }},
		{"keygate_webhook_unwritten_total", "Results of webhook attempts that could not be stored; those deliveries are sent again.", func(t sender.Stats) int64 { return t.Unwritten }},
		{"keygate_webhook_store_errors_total", "Failed calls of the webhook sender to the store.", func(t sender.Stats) int64 { return t.StoreErrors }},
	} {
		s.metrics.Counter(c.name, c.help, func() float64 { return float64(c.read(stats())) })
	}
}
