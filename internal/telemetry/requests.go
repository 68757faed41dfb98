package telemetry

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Places tells which gateways and routes there are.
type Places interface {
	// Describe returns the gateway's hostname and, of a route, its path and
	// methods. ok is false if the gateway, or the route, which may be "", is no
	// more.
	Describe(gatewayID, routeID string) (hostname, path, methods string, ok bool)
}

// RequestsConfig is what Requests are made of.
type RequestsConfig struct {
	// Places returns the configuration in force. Required.
	Places func() Places
	// Sync makes sure that what ended is counted before it is told, as
	// outcome.Collector.Sync does. Nil: what is on its way is told the next time.
	Sync func(ctx context.Context) error
	// Now is the wall clock. Nil is time.Now.
	Now func() time.Time
}

// Requests is an outcome.Sink that counts requests by gateway and route, and a
// prometheus.Collector that tells of them. There is a series only for what the
// configuration has: a caller's words never make one, and what is deleted
// disappears with the next look at the figures, at the latest when there is twice
// as much as at the last.
type Requests struct {
	cfg   RequestsConfig
	scale *scale
	descs descs

	mu     sync.Mutex
	series map[place]*series
	prune  int // the number of series at which those of what is no more go
	// The series that was counted last, which is the next one's more often than
	// not.
	at   place
	last *series

	ended [accesslog.Abandoned + 1]uint64 // requests by what ended them
	lag   lag
}

// place is where a request ended: zeros are what was not found.
type place struct{ gateway, route [16]byte }

// series are the figures of a place.
type series struct {
	gateway, route string // "" for zeros
	since          time.Time

	statuses          [6]uint64 // by the first digit; 0 is what is no status
	limited           [ratelimit.GlobalScope + 1]uint64
	upstream          [upstreamReasons]uint64
	bytesIn, bytesOut int64

	took, upstreamTook histogram
}

// The reasons of errors upstream.
const (
	reasonStatus = iota
	reasonUnreachable
	reasonTimeout
	upstreamReasons
)

func reasonName(reason int) string {
	return [upstreamReasons]string{"upstream_status", "unreachable", "timeout"}[reason]
}

// leastPrune keeps small installations from looking often.
const leastPrune = 1024

// NewRequests returns Requests that have counted nothing.
func NewRequests(cfg RequestsConfig) (*Requests, error) {
	if cfg.Places == nil {
		return nil, errors.New("telemetry: Places is required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	r := &Requests{cfg: cfg, scale: newScale(), descs: newDescs(), series: map[place]*series{}, prune: leastPrune}
	r.forget()
	return r, nil
}

// Take counts a batch.
func (r *Requests) Take(batch []accesslog.Entry) {
	now := r.cfg.Now().UnixMicro()
	r.mu.Lock()
	defer r.mu.Unlock()
	first := now // when the first of them ended
	for i := range batch {
		e := &batch[i].Record
		if e.Part == accesslog.Started {
			continue
		}
		first = min(first, e.Start+e.Duration/1000)
		r.count(e)
	}
	r.lag.note(now, now-first)
	if len(r.series) >= r.prune {
		r.drop()
		r.prune = max(leastPrune, 2*len(r.series))
	}
}

func (r *Requests) count(e *accesslog.Record) {
	if int(e.Result) < len(r.ended) {
		r.ended[e.Result]++
	}
	if r.at != (place{e.Gateway, e.Route}) {
		r.find(place{e.Gateway, e.Route})
	}
	s := r.last
	if class := int(e.Status / 100); class < len(s.statuses) {
		s.statuses[class]++
	} else {
		s.statuses[0]++
	}
	s.bytesIn += e.BytesIn
	s.bytesOut += e.BytesOut
	if e.Result == accesslog.Limited && int(e.LimitScope) < len(s.limited) {
		s.limited[e.LimitScope]++
	}
	switch {
	case e.Result == accesslog.Unreachable:
		s.upstream[reasonUnreachable]++
	case e.Result == accesslog.TimedOut:
		s.upstream[reasonTimeout]++
	case e.UpstreamStatus >= 500:
		s.upstream[reasonStatus]++
	}
	if e.Status != switching { // a tunnel lasts as long as its ends like
		s.took.observe(r.scale, e.Duration)
	}
	if e.Upstream >= 0 {
		s.upstreamTook.observe(r.scale, e.Upstream)
	}
}

const switching = 101

// find makes the series of p the last one.
func (r *Requests) find(p place) {
	s := r.series[p]
	if s == nil {
		s = &series{gateway: text(id.Gateway, p.gateway), route: text(id.Route, p.route), since: r.cfg.Now()}
		r.series[p] = s
	}
	r.at, r.last = p, s
}

// forget makes sure that the next record looks for its series.
func (r *Requests) forget() { r.find(place{}) }

func text(k id.Kind, u [16]byte) string {
	if u == ([16]byte{}) {
		return ""
	}
	return id.Format(k, u)
}

// drop drops the series of what is no more. The caller holds mu.
func (r *Requests) drop() {
	places := r.cfg.Places()
	for p, s := range r.series {
		if !stands(places, s) {
			delete(r.series, p)
		}
	}
	r.forget()
}

// stands reports whether the configuration has what s is of.
func stands(places Places, s *series) bool {
	if s.gateway == "" {
		return true
	}
	_, _, _, ok := places.Describe(s.gateway, s.route)
	return ok
}
