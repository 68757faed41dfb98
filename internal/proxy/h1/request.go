package h1

import (
	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
)

// request decides a request whose head is complete, and acts on the verdict.
func (c *conn) request(x *exchange) step {
	x.known, x.Client = true, c.client
	x.Major, x.Minor, x.ForwardedFor = 1, x.req.Minor, x.forwardedFor[:0]
	x.ReadHead(c.engine.cfg.Trust, &x.ask, &x.req, x.head, x)
	x.ask.Bound = c.affinity.Upstream()
	c.engine.cfg.Admit.Decide(&x.ask, &x.Verdict)
	x.Begin(&c.engine.cfg.Config, x.Verdict.Now)
	if x.Verdict.Action == admit.Wait {
		if next := c.awaitCap(x); next != stepReady {
			return next
		}
	}
	if x.validates() {
		return stepBlock
	}
	switch x.Verdict.Action {
	case admit.Forward:
		return c.forward(x)
	case admit.Preflight:
		x.Result = accesslog.Preflight
		return c.respond(x, http1.StatusNoContent, nil)
	case admit.Respond:
		status, body := x.RespondByRoute()
		return c.respond(x, status, body)
	case admit.Serve:
		return c.serveHolder(x)
	default:
		return c.refuse(x, x.Verdict.Fault())
	}
}

// HeaderValue implements admit.Header.
func (x *exchange) HeaderValue(name string) (value string, count int) {
	return proxy.HeaderValue(x.req.Fields(), x.head, name)
}

// awaitCap repeats the decision until the count of the route's daily cap is known. It
// returns stepReady once there is a verdict to act on.
func (c *conn) awaitCap(x *exchange) step {
	c.upstream.Store(nil)
	c.phase.enter(phaseWait, 0)
	ctx, done := c.context()
	defer done()
	for x.Verdict.Action == admit.Wait {
		if err := c.engine.cfg.Admit.Wait(ctx, &x.Verdict); err != nil {
			if ctx.Err() != nil {
				return x.emitNoResponse(c.phase.enter(phaseNone, 0))
			}
			return c.refuse(x, err)
		}
		c.engine.cfg.Admit.Decide(&x.ask, &x.Verdict)
	}
	c.phase.enter(phaseNone, 0)
	x.MarkSent()
	return stepReady
}
