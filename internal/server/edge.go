package server

import (
	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/edge"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/h1"
	"github.com/keygate/keygate/internal/proxy/h2"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/secret"
	"github.com/keygate/keygate/internal/selfservice"
	"github.com/keygate/keygate/internal/telemetry"
	"github.com/keygate/keygate/internal/upstream"
)

// buildGateway builds the data plane on the loaded snapshot.
func (s *Server) buildGateway(clock *ratelimit.Clock, box *secret.Box) (err error) {
	settings := s.cfg.Settings
	holders, err := s.selfService(box)
	if err != nil {
		return err
	}
	if s.pools, err = upstream.NewPools(upstream.Config{
		Guard: s.guard, Resolver: s.cfg.Resolver, Allow: settings.UpstreamAllowNetwork, MaxDescriptors: s.descriptors.upstreams,
	}); err != nil {
		return err
	}
	s.pushClose(s.pools.Close)
	admitter, err := admit.New(admit.Config{Follower: s.follower, Now: clock.Now, Mono: clock.Mono, Lease: s.lease(), Renewer: s.issuerKeys})
	if err != nil {
		return err
	}
	shared := proxy.Config{
		SelfService: holders, Checker: s.checker,
		Admit: admitter, Pools: s.pools, Trust: s.trust, Shard: s.collector.Shard, Mono: clock.Mono, Linger: &s.linger, Log: telemetry.Throttle(s.log),
	}
	if s.tracer != nil {
		shared.Tracer = s.tracer
	}
	engine, err := h1.New(h1.Config{Config: shared, MaxPipes: s.descriptors.pipes})
	if err != nil {
		return err
	}
	shared.Via = engine.Via()
	http2, err := h2.New(h2.Config{Config: shared, Trusted: edge.Trusted})
	if err != nil {
		return err
	}
	s.gateway, err = edge.New(edge.Config{
		HTTP1: engine, HTTP2: http2, Trust: s.trust, TLS: tlsOf(s.certificates.gateway),
		MaxConnections: s.descriptors.clients, Linger: &s.linger, Inherited: s.cfg.Sockets["gateway"] != nil, Log: s.log,
		MaxConnectionsPerAddress: s.descriptors.perAddress(settings.MaxConnections, settings.MaxConnectionsPerAddress),
	})
	if err != nil {
		return err
	}
	// Stop drains the data plane before; this is for a start that fails.
	s.running.Push(s.gateway.Shutdown)
	s.registerConnectionMetrics()
	return nil
}

// selfService builds what serves the holders of keys. This node may serve no management API.
func (s *Server) selfService(box *secret.Box) (*selfservice.Service, error) {
	around := dependencies{publisher: s.follower, now: s.clock.WallTime, everywhere: s.node.everywhere(), quotas: s.quotas, heavy: s.heavy}
	if s.fanOut != nil {
		around.wake, around.full = s.fanOut.Wake, s.backlog.FullForCalls
	}
	ops, err := newControl(s.cfg.Settings, s.db, box, around, s.log)
	if err != nil {
		return nil, err
	}
	return selfservice.New(selfservice.Config{
		Control: ops, Now: s.clock.WallTime, Account: func(accountID string) *account.Account { return s.follower.Current().Account(accountID) },
	}), nil
}

// registerConnectionMetrics registers the metrics of the data plane's listener.
func (s *Server) registerConnectionMetrics() {
	registerStats(s.metrics, s.gateway.Stats, []statMetric[edge.Stats]{
		{"keygate_gateway_connections", "Open connections of the data plane.",
			func(t edge.Stats) int64 { return t.Open }},
		{"keygate_gateway_connections_accepted_total", "Connections accepted by the data plane, including those closed at once.",
			func(t edge.Stats) int64 { return t.Accepted }},
		{"keygate_gateway_connections_refused_total", "Connections closed at once because of the limit in total or for one address.",
			func(t edge.Stats) int64 { return t.RefusedTotal + t.RefusedAddress }},
		{"keygate_gateway_handshakes_failed_total", "Failed TLS handshakes of the data plane.",
			func(t edge.Stats) int64 { return t.BadHandshakes }},
		{"keygate_gateway_proxy_headers_refused_total", "Malformed PROXY headers from trusted proxies.",
			func(t edge.Stats) int64 { return t.BadProxyHeaders }},
		{"keygate_gateway_accept_errors_total", "Failed attempts to accept a connection on the data plane.",
			func(t edge.Stats) int64 { return t.AcceptErrors }},
	})
}
