package server

import (
	"github.com/keygate/keygate/internal/provider"
	"github.com/keygate/keygate/internal/secret"
)

// buildIssuerKeys creates what fetches the keys of issuers. Every node has it: those that are due are fetched by one of
// them, and a token that needs newer keys lets its node fetch them.
func (s *Server) buildIssuerKeys(box *secret.Box) error {
	ops, err := newControl(s.cfg.Settings, s.db, box, dependencies{publisher: s.follower, now: s.clock.WallTime, wake: s.wakeFanOut, heavy: s.heavy}, s.log)
	if err != nil {
		return err
	}
	client := provider.NewClient(provider.ClientConfig{Guard: s.guard, Allow: s.cfg.Settings.UpstreamAllowNetwork, Resolver: s.cfg.Resolver})
	if s.issuerKeys, err = provider.New(provider.Config{Service: ops, Source: client, Log: s.log}); err != nil {
		return err
	}
	registerStats(s.metrics, s.issuerKeys.Stats, []statMetric[provider.Stats]{
		{"keygate_issuers_unreachable", "Issuers whose keys could not be fetched the last time.", func(t provider.Stats) int64 { return int64(t.Unreachable) }},
		{"keygate_issuer_fetches_in_flight", "Fetches of keys of issuers that are running or wait for their turn.", func(t provider.Stats) int64 { return int64(t.InFlight) }},
		{"keygate_issuer_fetches_awaited", "Requests that wait for a fetch of keys.", func(t provider.Stats) int64 { return int64(t.Waiting) }},
		{"keygate_issuer_fetches_total", "Fetches of keys of issuers by this node.", func(t provider.Stats) int64 { return t.Fetches }},
		{"keygate_issuer_fetches_failed_total", "Fetches of keys that failed.", func(t provider.Stats) int64 { return t.Failed }},
		{"keygate_issuer_fetches_by_token_total", "Fetches of keys that a token has caused, because its issuer had no key for it or its signature was not one of the key.", func(t provider.Stats) int64 { return t.Caused }},
	})
	return nil
}

// wakeFanOut lets the fan-out of events know that there may be new ones, if this node has it.
func (s *Server) wakeFanOut() {
	if s.fanOut != nil {
		s.fanOut.Wake()
	}
}
