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

// Routes looks up gateways and routes in the current configuration.
type Routes interface {
	// Describe returns the hostname of a gateway, and the path and methods of its
	// route. routeID may be "", for the gateway alone. ok is false if the gateway or
	// the route does not exist.
	Describe(gatewayID, routeID string) (hostname, path, methods string, ok bool)
}

// RequestsConfig configures Requests.
type RequestsConfig struct {
	// Routes returns the current configuration. Required.
	Routes func() Routes
	// Sync is called at each scrape and returns after every request that has ended
	// was passed to Take, as accesslog.Collector.Sync does. If it is nil, a scrape
	// may miss requests that ended just before.
	Sync func(ctx context.Context) error
	// Now returns the wall clock time. Nil means time.Now.
	Now func() time.Time
}

// Requests is an accesslog.Sink that counts requests by gateway and route, and a
// prometheus.Collector that exports the counts. There are series only for gateways and
// routes of the configuration: clients cannot create one. The series of a deleted
// gateway or route are removed at the next scrape, or when the number of series has
// doubled since they were last checked.
type Requests struct {
	cfg   RequestsConfig
	scale *scale
	descs descs

	mu     sync.Mutex
	series map[seriesKey]*series
	prune  int // number of series at which those of deleted routes are removed
	// The series that was counted last, which is often the next one too.
	at   seriesKey
	last *series

	ended [accesslog.Abandoned + 1]uint64 // requests by result
	delay maxDelay
}

// seriesKey identifies a series. An identifier is zero if none was found.
type seriesKey struct{ gateway, route [16]byte }

// series is the counts of one gateway and route.
type series struct {
	gateway, route string // "" for zero identifiers
	since          time.Time

	statuses          [6]uint64 // by the first digit; 0 is for invalid ones
	limited           [ratelimit.GlobalScope + 1]uint64
	upstream          [upstreamReasons]uint64
	bytesIn, bytesOut int64

	took, upstreamTook histogram
}

// The reasons of upstream errors.
const (
	reasonStatus = iota
	reasonUnreachable
	reasonTimeout
	upstreamReasons
)

func reasonName(reason int) string {
	return [upstreamReasons]string{"upstream_status", "unreachable", "timeout"}[reason]
}

// leastPrune is the least number of series to check for deleted routes.
const leastPrune = 1024

// NewRequests returns Requests with no counts.
func NewRequests(cfg RequestsConfig) (*Requests, error) {
	if cfg.Routes == nil {
		return nil, errors.New("telemetry: RequestsConfig.Routes is required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	r := &Requests{cfg: cfg, scale: newScale(), descs: newDescs(), series: map[seriesKey]*series{}, prune: leastPrune}
	r.forget()
	return r, nil
}

// Take counts a batch.
func (r *Requests) Take(batch []accesslog.Entry) {
	now := r.cfg.Now().UnixMicro()
	r.mu.Lock()
	defer r.mu.Unlock()
	first := now // when the earliest of them ended
	for i := range batch {
		e := &batch[i].Record
		if e.Part == accesslog.Started {
			continue
		}
		first = min(first, e.Start+e.Duration/1000)
		r.count(e)
	}
	r.delay.note(now, now-first)
	if len(r.series) >= r.prune {
		r.drop()
		r.prune = max(leastPrune, 2*len(r.series))
	}
}

func (r *Requests) count(e *accesslog.Record) {
	if int(e.Result) < len(r.ended) {
		r.ended[e.Result]++
	}
	if r.at != (seriesKey{e.Gateway, e.Route}) {
		r.find(seriesKey{e.Gateway, e.Route})
	}
	s := r.last
	if class := int(e.Status / 100); class < len(s.statuses) {
		s.statuses[class]++
	} else {
		s.statuses[0]++
	}
	s.bytesIn += e.BytesIn
	s.bytesOut += e.BytesOut
	if scope := ratelimit.Scope(e.LimitScope).Reported(); e.Result == accesslog.Limited && int(scope) < len(s.limited) {
		s.limited[scope]++
	}
	switch {
	case e.Result == accesslog.Unreachable:
		s.upstream[reasonUnreachable]++
	case e.Result == accesslog.TimedOut:
		s.upstream[reasonTimeout]++
	case e.UpstreamStatus >= 500:
		s.upstream[reasonStatus]++
	}
	if e.Status != switching { // the duration of a tunnel says nothing
		s.took.observe(r.scale, e.Duration)
	}
	if e.Upstream >= 0 {
		s.upstreamTook.observe(r.scale, e.Upstream)
	}
}

const switching = 101

// find makes the series of p the last one, and creates it if needed.
func (r *Requests) find(p seriesKey) {
	s := r.series[p]
	if s == nil {
		s = &series{gateway: text(id.Gateway, p.gateway), route: text(id.Route, p.route), since: r.cfg.Now()}
		r.series[p] = s
	}
	r.at, r.last = p, s
}

// forget makes the next record look up its series.
func (r *Requests) forget() { r.find(seriesKey{}) }

func text(k id.Kind, u [16]byte) string {
	if u == ([16]byte{}) {
		return ""
	}
	return id.Format(k, u)
}

// drop removes the series of deleted gateways and routes. The caller holds mu.
func (r *Requests) drop() {
	routes := r.cfg.Routes()
	for p, s := range r.series {
		if !exists(routes, s) {
			delete(r.series, p)
		}
	}
	r.forget()
}

// exists reports whether the configuration has the gateway and route of s.
func exists(routes Routes, s *series) bool {
	if s.gateway == "" {
		return true
	}
	_, _, _, ok := routes.Describe(s.gateway, s.route)
	return ok
}
