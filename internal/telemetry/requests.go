package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/id"
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
	// MaxLines is the largest number of lines of a scrape, including all other metrics of the
	// server, from LeastLines to MostLines. 0 means DefaultLines.
	MaxLines int
	// Others, if set, is called at each scrape and returns how many of the lines the metrics of targets take.
	Others func() int
	// Sync is called at each scrape and returns after every request that has ended
	// was passed to Take, as accesslog.Collector.Sync does. If it is nil, a scrape
	// may miss requests that ended just before.
	Sync func(ctx context.Context) error
	// Now returns the wall clock time. Nil means time.Now.
	Now func() time.Time
}

// The bounds of RequestsConfig.MaxLines.
const (
	LeastLines   = 1000
	DefaultLines = 20_000
	MostLines    = 50_000 // 32 MB of memory for a scrape
)

// Requests is an accesslog.Sink that counts requests by gateway and route, and a
// prometheus.Collector that exports the counts. There are series only for gateways and
// routes of the configuration: clients cannot create one. The series of a deleted
// gateway or route are removed at the next scrape.
//
// The number of series is bounded, and the room for them is shared between accounts. The
// requests of the routes with the least traffic are counted together (naming.go).
type Requests struct {
	cfg   RequestsConfig
	scale *scale
	descs descs

	collecting sync.Mutex // held during a scrape; guards series.total
	mu         sync.Mutex // guards everything below; Take waits for it

	series   map[seriesKey]*series // those that count
	leaving  map[seriesKey]*series // series that only remain to be scraped
	accounts map[[16]byte]*tenant
	lines    int // of series and leaving
	room     int // largest value of lines while waiting routes get names
	most     int // largest value of lines, including routes that replace others
	settled  time.Time
	// The series that was counted last, which is often the next one too.
	at   route
	last *series

	ended   [accesslog.Results]uint64 // requests by result
	retries [retryResults]uint64      // attempts after the first, by result
	delay   maxDelay
}

// route is the account, gateway and route of a request. An identifier is zero if none was
// found.
type route struct{ account, gateway, route [16]byte }

// seriesKey identifies a series.
type seriesKey struct {
	gateway, route [16]byte
	// other says that the series counts the routes of the gateway without a series of their own,
	// or, with a zero gateway, the routes of all gateways without such a series.
	other bool
}

// series is the counts of one gateway and route, or of several together.
type series struct {
	key            seriesKey
	tenant         *tenant // nil for the series of no gateway and of all other gateways
	gateway, route string  // labels: "" for zero identifiers, or otherLabel
	since          time.Time
	until          time.Time // when it is removed, if it is leaving
	replaced       bool      // it is leaving, and the series that replaces it counts already
	lines          int       // at the last scrape, or an estimate

	requests, before uint64 // counted by now, and when the names were last settled
	rate             uint64 // requests between two settlements, older ones with less weight

	pending counts // since the last scrape
	total   counts // until the last scrape
}

// otherLabel is the label of routes, or gateways, that are counted together.
const otherLabel = "other"

// NewRequests returns Requests with no counts.
func NewRequests(cfg RequestsConfig) (*Requests, error) {
	if cfg.Routes == nil {
		return nil, errors.New("telemetry: RequestsConfig.Routes is required")
	}
	cfg.MaxLines = cmp.Or(cfg.MaxLines, DefaultLines)
	if cfg.MaxLines < LeastLines || cfg.MaxLines > MostLines {
		return nil, fmt.Errorf("telemetry: RequestsConfig.MaxLines must be between %d and %d", LeastLines, MostLines)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	r := &Requests{
		cfg: cfg, scale: newScale(), descs: newDescs(),
		series: map[seriesKey]*series{}, leaving: map[seriesKey]*series{}, accounts: map[[16]byte]*tenant{},
		settled: cfg.Now(),
	}
	r.divide(0)
	r.forget()
	return r, nil
}

// divide sets how many lines the series may have, beside others.
func (r *Requests) divide(others int) {
	r.most = r.cfg.MaxLines - reservedLines - others
	r.room = r.most - max(linesOfNew, r.most/replaceLines)
}

// Take counts a batch.
func (r *Requests) Take(batch []accesslog.Entry) {
	now := r.cfg.Now().UnixMicro()
	r.mu.Lock()
	defer r.mu.Unlock()
	first := now // when the earliest of them ended
	for i := range batch {
		e := &batch[i]
		if e.Part == accesslog.Started {
			continue
		}
		first = min(first, e.Start+e.Duration/1000)
		r.count(e)
	}
	r.delay.note(now, now-first)
}

func (r *Requests) count(e *accesslog.Entry) {
	if int(e.Result) < len(r.ended) {
		r.ended[e.Result]++
	}
	if e.AttemptList != "" {
		r.countRetries(e.AttemptList)
	}
	if at := (route{e.Account, e.Gateway, e.Route}); r.at != at || r.last == nil {
		s, own := r.find(at)
		// Each request of a route without a series of its own has to be noted.
		r.at, r.last = at, nil
		if own {
			r.last = s
		}
		s.count(r.scale, e)
		return
	}
	r.last.count(r.scale, e)
}

// retryResults is the number of results of a retry, of which the last is that of all others.
const retryResults = balance.GRPCUnavailable + 2

// countRetries counts the attempts of a request after the first.
func (r *Requests) countRetries(attempts string) {
	first := true
	for a := range accesslog.Attempts(attempts) {
		if first {
			first = false
			continue
		}
		result := balance.OK
		for result < retryResults-1 && result.String() != a.Result {
			result++
		}
		r.retries[result]++
	}
}

func (s *series) count(scale *scale, e *accesslog.Entry) {
	s.requests++
	s.pending.count(scale, e)
}

// forget makes the next record look up its series.
func (r *Requests) forget() { r.at, r.last = route{}, nil }

func text(k id.Kind, u [16]byte) string {
	if u == ([16]byte{}) {
		return ""
	}
	return id.Format(k, u)
}

// exists reports whether the configuration has the gateway and route of s.
func exists(routes Routes, s *series) bool {
	if s.key.gateway == ([16]byte{}) {
		return true
	}
	routeID := s.route
	if s.key.other {
		routeID = ""
	}
	_, _, _, ok := routes.Describe(s.gateway, routeID)
	return ok
}
