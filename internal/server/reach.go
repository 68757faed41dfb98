package server

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/requestlog"
	"github.com/keygate/keygate/internal/upstream"
)

// reachTime bounds the attempt to connect to the upstream of a gateway.
const reachTime = 2 * time.Second

// reach connects to the first target of a gateway's default upstream as this node's data plane does, within its bounds, and returns why that
// fails, without addresses; "" if it does not fail.
func (s *Server) reach(ctx context.Context, gatewayID string) string {
	g := s.follower.Current().GatewayByID(gatewayID)
	if g == nil || g.OutOfService {
		return "" // it was changed meanwhile
	}
	within, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	err := s.pools.Reach(within, proxy.OriginOf(g.Upstream.Targets[0]))
	reason := upstream.ReasonOf(err)
	switch {
	case err == nil, ctx.Err() != nil, reason == accesslog.NoDescriptors:
		return ""
	case within.Err() != nil, reason == accesslog.ConnectTimeout:
		return "there was no connection to the upstream within 2 s"
	}
	return requestlog.ReasonText(reason, "connecting to the upstream failed")
}
