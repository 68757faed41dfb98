package detect

import (
	"strings"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// The statuses of Keygate's own responses.
const (
	badGateway     = 502
	gatewayTimeout = 504
)

// Take implements accesslog.Sink.
func (d *Detector) Take(entries []accesslog.Entry) {
	d.mu.Lock()
	wake := false
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Part == accesslog.Started || e.Account == [16]byte{}:
		case e.Result == accesslog.Limited && ratelimit.Scope(e.LimitScope) == ratelimit.SelfServiceScope: // there is no route
		case e.Result == accesslog.Limited:
			wake = d.countBreach(e) || wake
		default:
			if status, reason := upstreamError(&e.Record); status != 0 {
				wake = d.countError(e, status, reason) || wake
			}
		}
	}
	d.mu.Unlock()
	if wake {
		d.work.Notify()
	}
}

// upstreamError returns the status and reason of an upstream error, or 0 if there was none.
func upstreamError(r *accesslog.Record) (status uint16, reason string) {
	switch {
	case r.Result == accesslog.Unreachable:
		return badGateway, event.Unreachable
	case r.Result == accesslog.TimedOut:
		return gatewayTimeout, event.Timeout
	case r.UpstreamStatus >= 500 && r.UpstreamStatus <= 599:
		return r.UpstreamStatus, event.UpstreamStatus
	default:
		return 0, ""
	}
}

// countBreach counts a breach and reports whether it makes an event.
func (d *Detector) countBreach(e *accesslog.Entry) bool {
	name := limit{e.Gateway, e.Route, uint8(ratelimit.Scope(e.LimitScope).Reported())}
	n, known := d.counts[name]
	if !known && len(d.counts) >= maxCounts && !d.forget() {
		d.lost.Add(1)
		return false
	}
	n++
	d.counts[name] = n
	if (n-1)%event.SampleRate != 0 {
		return false
	}
	if len(d.queue) >= maxQueue {
		d.lost.Add(1)
		return false
	}
	b := event.Breach{
		GatewayID: id.Format(id.Gateway, e.Gateway), RouteID: id.Format(id.Route, e.Route),
		LimitScope: ratelimit.Scope(e.LimitScope).String(), Limit: e.Limit,
		Method: strings.Clone(e.MethodName()), SampleRate: event.SampleRate, Breaches: n,
	}
	if e.Key != [16]byte{} {
		key := id.Format(id.Key, e.Key)
		b.KeyID = &key
	}
	if prefix := strings.TrimRight(string(e.Prefix[:]), "\x00"); prefix != "" {
		b.KeyPrefix = &prefix
	}
	if e.Detail != "" {
		name := strings.Clone(e.Detail)
		b.LimitName = &name
	}
	b.Path = d.cfg.Routes.RoutePath(b.GatewayID, b.RouteID, e.Start)
	d.queue = append(d.queue, breach{id.Format(id.Account, e.Account), b})
	return true
}

// forget removes the counts of deleted routes, at most once in each forgetEvery, and reports
// whether there is room again. The caller holds mu.
func (d *Detector) forget() bool {
	now := d.cfg.Now()
	if now.Before(d.forgetAt) {
		return false
	}
	d.forgetAt = now.Add(forgetEvery)
	for name := range d.counts {
		if d.cfg.Routes.RoutePath(id.Format(id.Gateway, name.gateway), id.Format(id.Route, name.route), now.UnixMicro()) == "" {
			delete(d.counts, name)
		}
	}
	return len(d.counts) < maxCounts
}

// countError counts an error in its group, and reports whether the group is new.
func (d *Detector) countError(e *accesslog.Entry, status uint16, reason string) bool {
	name := outage{e.Gateway, e.Route, status}
	g, known := d.groups[name]
	if !known {
		if len(d.groups) >= maxGroups {
			d.lost.Add(1)
			return false
		}
		g = &group{name: name, account: id.Format(id.Account, e.Account)}
		g.data.GatewayID, g.data.RouteID = id.Format(id.Gateway, e.Gateway), id.Format(id.Route, e.Route)
		g.data.Status = int(status)
		d.groups[name] = g
		d.fresh = append(d.fresh, g)
	}
	if g.data.Occurrences == 0 { // the route may have moved since the last event
		g.data.Path = d.cfg.Routes.RoutePath(g.data.GatewayID, g.data.RouteID, e.Start)
	}
	g.data.Occurrences++
	g.last, g.reason = e.Request, reason
	if g.data.Method != e.MethodName() {
		g.data.Method = strings.Clone(e.MethodName())
	}
	return !known
}
