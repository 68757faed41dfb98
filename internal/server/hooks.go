package server

import (
	"github.com/keygate/keygate/internal/event/detect"
	"github.com/keygate/keygate/internal/secret"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/webhook/fanout"
	"github.com/keygate/keygate/internal/webhook/sender"
)

// buildSender builds the sender of webhook deliveries, and the fan-out of events for it. The sender is started when the
// node's lease is held, and stopped before the lease is given back.
func (s *Server) buildSender(box *secret.Box) (err error) {
	settings := s.cfg.Settings
	cfg := sender.Config{
		Queue: s.db, Sealer: box, Guard: s.guard,
		Allow: settings.WebhookAllowNetwork, AllowHTTP: settings.WebhookAllowHTTP, Backoff: settings.WebhookBackoff, Log: s.log,
		MaxInFlight: s.descriptors.hooks,
	}
	if s.node != nil {
		cfg.Node, cfg.Peers, cfg.Poll = s.node.member, s.node.db, sender.SharedPoll
	} else {
		cfg.Exclusive = s.db
	}
	if s.sender, err = sender.New(cfg); err != nil {
		return err
	}
	if s.fanOut, err = fanout.New(fanout.Config{Store: s.db, Wake: s.sender.Wake, Poll: cfg.Poll, Log: s.log}); err != nil {
		return err
	}
	s.registerWebhookMetrics()
	return nil
}

// recall hands back the deliveries that the sender holds for what has changed.
func (s *Server) recall(c snapshot.Change) {
	switch {
	case s.sender == nil: // another node has the sender, or this one has claimed nothing yet
	case c.Kind == snapshot.WebhookChange:
		s.sender.Recall(c.ID)
	case c.Kind == snapshot.AccountChange:
		s.sender.RecallAccount(c.ID)
	case c == snapshot.Change{}:
		s.sender.RecallAll()
	}
}

// openEvents returns the sink that creates events.
func (s *Server) openEvents() (_ sink, err error) {
	wake := func() {} // another node has the sender
	if s.fanOut != nil {
		wake = s.fanOut.Wake
	}
	if s.events, err = detect.New(detect.Config{Store: s.records, Routes: s.follower, Wake: wake, Full: s.backlog.FullForTraffic, Node: s.cfg.Settings.NodeName, Healths: s.fleet.Healths, Log: s.log}); err != nil {
		return nil, err
	}
	s.metrics.Counter("keygate_event_lost_total", "Exceeded limits, upstream errors and changes of targets that raised no event because too many were waiting, in memory or for their deliveries to be written, or because their account had raised too many.",
		func() float64 { return float64(s.events.Lost()) })
	return s.events, nil
}

// registerWebhookMetrics registers the metrics of the sender.
func (s *Server) registerWebhookMetrics() {
	registerStats(s.metrics, s.sender.Stats, []statMetric[sender.Stats]{
		{"keygate_webhook_in_flight", "Webhook deliveries being sent.", func(t sender.Stats) int64 { return int64(t.InFlight) }},
		{"keygate_webhook_held", "Webhook deliveries that this server has claimed, including those being sent.", func(t sender.Stats) int64 { return int64(t.Held) }},
		{"keygate_webhook_endpoints_paused", "Webhook endpoints paused after consecutive failures.", func(t sender.Stats) int64 { return int64(t.Paused) }},
		{"keygate_webhook_delivered_total", "Webhook deliveries accepted by their endpoint.", func(t sender.Stats) int64 { return t.Delivered }},
		{"keygate_webhook_retried_total", "Failed webhook attempts that will be retried.", func(t sender.Stats) int64 { return t.Retried }},
		{"keygate_webhook_failed_total", "Webhook deliveries that failed after their last attempt.", func(t sender.Stats) int64 { return t.Failed }},
		{"keygate_webhook_postponed_total", "Webhook deliveries postponed because their endpoint is paused.", func(t sender.Stats) int64 { return t.Postponed }},
		{"keygate_webhook_late_total", "Results of webhook attempts that came after another sender had claimed the delivery.", func(t sender.Stats) int64 { return t.Late }},
		{"keygate_webhook_taken_over_total", "Webhook deliveries that this server has released because the lease of the node that held them had ended.", func(t sender.Stats) int64 { return t.TakenOver }},
		{"keygate_webhook_unwritten_total", "Results of webhook attempts that could not be stored; those deliveries are sent again.", func(t sender.Stats) int64 { return t.Unwritten }},
		{"keygate_webhook_store_errors_total", "Failed calls of the webhook sender to the store.", func(t sender.Stats) int64 { return t.StoreErrors }},
	})
}
