package detect

import (
	"strings"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Statuses of ours.
const (
	badGateway     = 502
	gatewayTimeout = 504
)

// Take implements outcome.Sink.
func (w *Detector) Take(entries []accesslog.Entry) {
	w.mu.Lock()
	wake := false
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Part == accesslog.Started || e.Account == [16]byte{}:
		case e.Result == accesslog.Limited:
			wake = w.countBreach(e) || wake
		default:
			if status, reason := upstreamError(&e.Record); status != 0 {
				wake = w.countError(e, status, reason) || wake
			}
		}
	}
	w.mu.Unlock()
	if wake {
		w.signal()
	}
}

func (w *Detector) signal() {
	select {
	case w.work <- struct{}{}:
	default:
	}
}

// upstreamError returns 0 for a record that tells of none.
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
func (w *Detector) countBreach(e *accesslog.Entry) bool {
	name := limit{e.Gateway, e.Route, e.LimitScope}
	n, known := w.counts[name]
	if !known && len(w.counts) >= maxCounts && !w.forget() {
		w.lost.Add(1)
		return false
	}
	n++
	w.counts[name] = n
	if (n-1)%event.SampleRate != 0 {
		return false
	}
	if len(w.queue) >= maxQueue {
		w.lost.Add(1)
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
	b.Path = w.cfg.Routes.RoutePath(b.GatewayID, b.RouteID)
	w.queue = append(w.queue, breach{id.Format(id.Account, e.Account), b})
	return true
}

// forget drops the counts of routes that are gone and reports whether there is
// room again. It looks at most once in forgetEvery. The mutex is held.
func (w *Detector) forget() bool {
	now := w.cfg.Now()
	if now.Before(w.forgetAt) {
		return false
	}
	w.forgetAt = now.Add(forgetEvery)
	for name := range w.counts {
		if w.cfg.Routes.RoutePath(id.Format(id.Gateway, name.gateway), id.Format(id.Route, name.route)) == "" {
			delete(w.counts, name)
		}
	}
	return len(w.counts) < maxCounts
}

// countError counts an error in its group and reports whether that is a new one.
func (w *Detector) countError(e *accesslog.Entry, status uint16, reason string) bool {
	name := outage{e.Gateway, e.Route, status}
	g, known := w.groups[name]
	if !known {
		if len(w.groups) >= maxGroups {
			w.lost.Add(1)
			return false
		}
		g = &group{name: name, account: id.Format(id.Account, e.Account)}
		g.data.GatewayID, g.data.RouteID = id.Format(id.Gateway, e.Gateway), id.Format(id.Route, e.Route)
		g.data.Path = w.cfg.Routes.RoutePath(g.data.GatewayID, g.data.RouteID)
		g.data.Status = int(status)
		w.groups[name] = g
		w.fresh = append(w.fresh, g)
	}
	g.data.Occurrences++
	g.last, g.reason = e.Request, reason
	if g.data.Method != e.MethodName() {
		g.data.Method = strings.Clone(e.MethodName())
	}
	return !known
}
