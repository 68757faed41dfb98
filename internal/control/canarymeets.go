package control

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// What changes of a gateway, of its upstreams and of its routes do to a canary that has not ended (targets.md, section 8). One
// that changes its routes or upstreams pauses it; one that gives its routes its upstream ends it; one that removes its upstream
// is refused.

// checkCanary checks that after has the upstream of the canary of before. The error is a validation error of the list of
// upstreams.
func checkCanary(before, after *gateway.Gateway) error {
	if c := before.Canary; c != nil && after.UpstreamNamed(c.Upstream) == nil {
		return fault.Invalid(upstreamsField, "would not have the upstream %s, to which the canary %s sends requests: keep it, or abort the canary first", c.Upstream, c.ID)
	}
	return nil
}

// checkCanaryOf is checkCanary for a push.
func (p *pushChange) checkCanaryOf(before *gateway.Gateway) error {
	err := checkCanary(before, &p.after)
	if err == nil || p.doc.rollback {
		return inField("number", err)
	}
	return p.doc.located(fault.Prefixed("gateway", err))
}

// refuseSplit returns fault.Conflict if a route, or a gateway, of a canary would get a split.
func refuseSplit(c *gateway.CanaryShare) error {
	return fault.New(fault.Conflict, "the canary %s decides where requests to the route go: promote or abort it before you give a split", c.ID)
}

// inCanary reports whether a route belongs to a canary, which may be nil.
func inCanary(c *gateway.CanaryShare, routeID string) bool {
	if c == nil {
		return false
	}
	_, is := slices.BinarySearch(c.Routes, routeID)
	return is
}

// pauseFor pauses the canary c of g, unless it is paused.
func (w *work) pauseFor(ctx context.Context, g *gateway.Gateway, c *canary.Canary, why string) error {
	if !c.Pausable() {
		return nil
	}
	return w.pauseCanary(ctx, g, c, why+": resume the canary to go on, or abort it")
}

// besideCanary changes or deletes a route as change does, and pauses the canary that has the route.
func (w *work) besideCanary(ctx context.Context, r *gateway.Route, what string, change func() error) error {
	g, err := w.Gateway(ctx, w.actor.Account.ID, r.GatewayID) // before the change is queued
	if err != nil {
		return err
	}
	if err := change(); err != nil || !inCanary(g.Canary, r.ID) {
		return err
	}
	c, err := w.CanaryByID(ctx, g.Canary.ID)
	if err != nil {
		return err
	}
	return w.pauseFor(ctx, g, c, "the route "+r.Path+" was "+what)
}

// canaryMeetsSettings pauses the canary of a gateway if its settings changed from those of before to those of g in what concerns one
// of the canary's upstreams.
func (w *work) canaryMeetsSettings(ctx context.Context, before, g *gateway.Gateway) error {
	if before.Canary == nil {
		return nil
	}
	c, err := w.CanaryByID(ctx, before.Canary.ID)
	if err != nil {
		return err
	}
	if name := changedUpstream(before, g, c); name != "" {
		return w.pauseFor(ctx, g, c, "the upstream "+name+" was changed")
	}
	return nil
}

// changedUpstream returns which upstream of a canary differs; "" if none does.
func changedUpstream(before, after *gateway.Gateway, c *canary.Canary) string {
	for path := range gatewayDiff(before, after) {
		for _, name := range []string{c.Plan.Upstream, c.Plan.Other} {
			ofDefault := name == gateway.DefaultUpstream && strings.HasPrefix(path, "upstream_")
			if ofDefault || path == "timeout" || path == upstreamsField || strings.HasPrefix(path, upstreamPath(name, "")) {
				return name
			}
		}
	}
	return ""
}

// canaryMeetsPush pauses the canary of a gateway if a push changes its routes or upstreams, and ends it if all of its routes have
// its upstream then. now is the gateway as it is when the push is stored.
func (w *work) canaryMeetsPush(ctx context.Context, p *pushChange, now *gateway.Gateway) error {
	p.after.Canary = now.Canary
	if now.Canary == nil {
		return nil
	}
	c, err := w.CanaryByID(ctx, now.Canary.ID)
	if err != nil {
		return err
	}
	why, moved := p.meets(c)
	revision := fmt.Sprintf("revision %d", p.after.Revision)
	if !moved {
		if why == "" {
			return nil
		}
		return w.pauseFor(ctx, &p.after, c, revision+" changes "+why)
	}
	before := *c
	c.State, c.Explanation, c.Lines = canary.Promoted, fmt.Sprintf("promoted: with %s, its routes have the upstream %s", revision, c.Plan.Upstream), nil
	if err := w.storeCanary(ctx, &p.after, &before, c, audit.CanaryPromote); err != nil {
		return err
	}
	return w.raiseCanary(ctx, event.CanaryPromoted, c, before.Weight())
}

// meets returns what of a canary p changes, or "", and whether all of its routes that are left have its upstream then. The routes of
// one that waits for a push of its lines may get the upstream one after the other.
func (p *pushChange) meets(c *canary.Canary) (what string, moved bool) {
	has := func(r *gateway.Route) bool {
		return upstreamName(r) == c.Plan.Upstream && len(p.after.SplitOf(r.Split)) == 0
	}
	var routes []string // that p changes or removes
	note := func(list []gateway.Route, expected func(*gateway.Route) bool) {
		for i := range list {
			if _, is := slices.BinarySearch(c.Plan.Routes, list[i].ID); is && !expected(&list[i]) {
				routes = append(routes, list[i].Path)
			}
		}
	}
	note(p.delta.removed, func(*gateway.Route) bool { return false })
	note(p.delta.changed, func(r *gateway.Route) bool { return c.Whole() && has(r) })
	left, have := 0, 0
	for i := range p.delta.table {
		r := &p.delta.table[i]
		if _, is := slices.BinarySearch(c.Plan.Routes, r.ID); is {
			if left++; has(r) {
				have++
			}
		}
	}
	switch n := len(routes); {
	case left > 0 && have == left:
		return "", true
	case n == 1:
		return "the route " + routes[0], false
	case n > 1:
		return fmt.Sprintf("%d routes, %s among them", n, routes[0]), false
	}
	if !p.before.Requests.Split.Equal(p.after.Requests.Split) {
		return "the split of the gateway", false
	}
	if name := changedUpstream(p.before, &p.after, c); name != "" {
		return "the upstream " + name, false
	}
	return "", false
}

// warnOfCanary returns what a push says of the canary of its gateway, or "".
func (p *pushChange) warnOfCanary(ctx context.Context, tx CanaryReader) (string, error) {
	if p.before.Canary == nil {
		return "", nil
	}
	c, err := tx.CanaryByID(ctx, p.before.Canary.ID)
	if err != nil {
		return "", err
	}
	what := "push"
	if p.doc.rollback {
		what = "rollback"
	}
	switch why, moved := p.meets(c); {
	case moved:
		return fmt.Sprintf("the %s ends the canary %s as promoted: its routes have the upstream %s then", what, c.ID, c.Plan.Upstream), nil
	case why != "" && c.Pausable():
		return fmt.Sprintf("the %s pauses the canary %s, because it changes %s", what, c.ID, why), nil
	}
	return "", nil
}
