package adminapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/targetreport"
)

// The bounds of calls that wait until nothing is in flight at a target.
const (
	drainsPerAccount = 16
	drainsInAll      = 256

	minDrain = time.Second
	maxDrain = 10 * time.Minute
)

// targetStatusRecord is the state of a target at one address on one node.
type targetStatusRecord struct {
	Target    string     `json:"target" doc:"URL of the target. One that the upstream does not have any more is listed while requests are in flight there." example:"https://10.0.0.1:8443"`
	Address   string     `json:"address" doc:"Host and port that the node connects to." example:"10.0.0.1:8443"`
	Node      string     `json:"node" doc:"Name of the node that sees the target so." example:"node-1"`
	Degraded  bool       `json:"degraded" doc:"Whether the last look-up of the target's name has failed, so that an earlier result is used." example:"false"`
	State     string     `json:"state" enum:"healthy,unhealthy,ejected,warming" doc:"healthy; unhealthy by the checks, or because its address is not allowed; ejected after failures; or warming: its share of the requests grows, or its first check is awaited." example:"healthy"`
	Draining  bool       `json:"draining" doc:"Whether the target gets no more requests, because it drains or was removed." example:"false"`
	Since     time.Time  `json:"since" doc:"Since when it is in this state." example:"2026-07-01T12:00:00.000000Z"`
	Until     *time.Time `json:"until" doc:"Until when an ejected target gets no requests; from then on it is tried with one at a time, and stays ejected until one succeeds. Null for a target that is not ejected." example:"2026-07-01T12:00:10.000000Z"`
	Reason    *string    `json:"reason" doc:"Why it is unhealthy or ejected; null otherwise." example:"connect"`
	InFlight  int64      `json:"in_flight" doc:"Requests of the upstream in flight there." example:"3"`
	Requests  int64      `json:"requests" doc:"Attempts of requests there since the node has started, or since the upstream has the target." example:"1250"`
	Failures  int64      `json:"failures" doc:"How many of them failed." example:"2"`
	LastCheck *time.Time `json:"last_check" doc:"When the last check has ended; null without checks." example:"2026-07-01T12:00:09.000000Z"`
}

func presentTargetStatus(r *targetreport.NodeReport) targetStatusRecord {
	s := targetStatusRecord{
		Target: r.URL, Address: r.Address, Node: r.Node, Degraded: r.Degraded, State: r.State, Draining: r.Draining, Since: r.Since,
		InFlight: r.InFlight, Requests: r.Requests, Failures: r.Failures,
	}
	if r.Reason != "" {
		s.Reason = &r.Reason
	}
	s.Until, s.LastCheck = optionalTime(r.Until), optionalTime(r.LastCheck)
	return s
}

// inFlightRecord is the response to a call that has waited in vain.
type inFlightRecord struct {
	InFlight map[string]*int64 `json:"in_flight" doc:"The requests in flight at the target, by the names of the nodes on which there are some; null for a node that has not reported since the change." example:"{\"node-1\": 3}"`
}

// drainParam is the query parameter of calls that take a target away.
func drainParam() queryParam {
	return queryParam{
		name: "drain", schema: textSchema(), example: "30s",
		doc: "Wait for up to this long, from 1s to 10m as a Go duration, until each node has reported that nothing is in flight at the target any more: the response is 202 if that is not so. The change stands in any case.",
		check: func(text string) error {
			if d, err := time.ParseDuration(text); err != nil || d < minDrain || d > maxDrain {
				return fault.Invalid("drain", "must be from 1s to 10m, such as 30s")
			}
			return nil
		},
	}
}

// waitDrained makes a change that takes a target away. With the parameter drain, it then waits until nothing is in flight there.
func (a *API) waitDrained(c *call, change func() (*control.NamedUpstream, error)) (response, error) {
	if !c.query.Has("drain") || c.invalid != nil {
		return respond(upstreamResponse)(change())
	}
	within, err := time.ParseDuration(c.query.Get("drain"))
	if err != nil {
		return response{}, err // drainParam has checked it
	}
	release, err := c.take(a.bounds.drains, drainsPerAccount,
		"too many calls wait until targets are drained: at most %d of an account do; nothing was changed. Retry when one has ended, or leave out drain")
	if err != nil {
		return response{}, err
	}
	defer release()
	u, err := change()
	if err != nil {
		return response{}, err
	}
	// A call that waits holds no slot among the calls of the account, and the timeouts of the server are for others.
	if c.held.call != nil {
		c.held.call()
		c.held.call = nil
	}
	_ = c.conn.SetReadDeadline(time.Time{}) // a writer in a test has no deadlines
	_ = c.conn.SetWriteDeadline(time.Now().Add(within + a.cfg.Stall))
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	stop := context.AfterFunc(a.stopping, cancel)
	defer stop()
	open, err := a.cfg.Control.AwaitDrained(ctx, u, within, c.mayGoOn)
	switch {
	case a.stopping.Err() != nil && c.ctx.Err() == nil:
		return response{}, fault.New(fault.Unavailable, "the change is in force, and this server shuts down: repeat the call to go on waiting")
	case err != nil:
		return response{}, err
	case len(open) > 0:
		return response{status: http.StatusAccepted, body: inFlightRecord{open}}, nil
	}
	return upstreamResponse(u), nil
}

// mayGoOn returns the 401 of a call whose key or session has ended meanwhile.
func (c *call) mayGoOn() error {
	if err := c.recheck(c.api.cfg.Now()); err != nil {
		return &fault.Error{Code: fault.Unauthorized, Auth: fault.KeyInvalid, Message: "the change is in force, and the key or session of the call has ended", Err: fmt.Errorf("go on waiting: %w", err)}
	}
	return nil
}

func (a *API) returnTarget(c *call) (response, error) {
	return respond(upstreamResponse)(a.cfg.Control.ReturnTarget(withIdempotency(c, upstreamResponse), &c.actor, c.params["gateway_id"], c.params["upstream"], c.query.Get("url")))
}
