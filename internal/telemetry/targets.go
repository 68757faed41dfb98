package telemetry

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/fairslots"
)

// TargetsConfig configures Targets. Upstreams and Now are required.
type TargetsConfig struct {
	// Upstreams returns the upstreams that are checked, or have or had several targets, ordered by account.
	Upstreams func() []*balance.Upstream
	// Now returns the time as package balance has it.
	Now func() time.Duration
	// MaxLines is as in RequestsConfig, of which targets take a part.
	MaxLines int
}

// Targets is a prometheus.Collector that exports the state of the targets of upstreams that have several, are checked, or whose names
// are looked up (targets.md, section 9). Each address is one.
//
// The number of series is bounded: targets have at most a quarter of the lines of a scrape, which accounts share by max-min
// fairness. Within an account, upstreams come in the order of their gateways and names, so that which targets have series changes
// only with the configuration.
type Targets struct {
	cfg   TargetsConfig
	lines int // the most that there may be

	up, inFlight, requests, failures, ejections, allUnhealthy, leftOut *prometheus.Desc
}

// linesOfTarget is how many lines a target takes at most: four, and one for each reason of failures. An upstream takes one.
const linesOfTarget = 4 + int(balance.GRPCUnavailable-balance.NotAllowed) + 1

// targetShare is the part of the lines of accounts that targets may take.
const targetShare = 4

// NewTargets returns Targets. The error is a missing or invalid setting.
func NewTargets(cfg TargetsConfig) (*Targets, error) {
	if cfg.Upstreams == nil || cfg.Now == nil {
		return nil, errors.New("telemetry: TargetsConfig.Upstreams and TargetsConfig.Now are required")
	}
	cfg.MaxLines = cmp.Or(cfg.MaxLines, DefaultLines)
	if cfg.MaxLines < LeastLines || cfg.MaxLines > MostLines {
		return nil, fmt.Errorf("telemetry: TargetsConfig.MaxLines must be between %d and %d", LeastLines, MostLines)
	}
	at := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	of := func(name, help string, more ...string) *prometheus.Desc {
		return at(name, help, append([]string{"gateway", "upstream", "target"}, more...)...)
	}
	return &Targets{
		cfg: cfg, lines: (cfg.MaxLines - reservedLines) / targetShare,
		up:           of("keygate_target_up", "1 if the target may get requests, 0 if it is unhealthy or ejected, as this node sees it. Only of upstreams with several targets or with checks."),
		inFlight:     of("keygate_target_in_flight", "Requests of the upstream in flight at the target."),
		requests:     of("keygate_target_requests_total", "Attempts of requests of the upstream at the target."),
		failures:     of("keygate_target_failures_total", "Attempts at the target that failed, by reason: address_not_allowed, unusable, connect, reset, timeout, 502, 503, 504, grpc_unavailable.", "reason"),
		ejections:    of("keygate_target_ejections_total", "Ejections of the target after failures in a row, by any upstream of the account."),
		allUnhealthy: at("keygate_upstream_all_unhealthy", "1 if every target of the upstream is unhealthy or ejected, so that all get requests; otherwise 0.", "gateway", "upstream"),
		leftOut:      at("keygate_targets_left_out", "Targets without series of their own, because there are too many."),
	}, nil
}

// Lines returns how many lines the targets take at present, at most.
func (t *Targets) Lines() (n int) {
	all, _ := t.share()
	for _, u := range all {
		n += u.lines()
	}
	return n
}

// Describe implements prometheus.Collector.
func (t *Targets) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{t.up, t.inFlight, t.requests, t.failures, t.ejections, t.allUnhealthy, t.leftOut} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (t *Targets) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	all, leftOut := t.share()
	gauge(t.leftOut, float64(leftOut))
	for _, u := range all {
		name := u.of.Name()
		gauge(t.allUnhealthy, bit(u.allUnhealthy), name.Gateway, name.Upstream)
		for i := range u.targets {
			s := &u.targets[i]
			labels := []string{name.Gateway, name.Upstream, label(s.address)}
			gauge(t.up, bit(s.up), labels...)
			gauge(t.inFlight, float64(s.inFlight), labels...)
			to <- counter(t.requests, float64(s.requests), labels...)
			to <- counter(t.ejections, float64(s.ejections), labels...)
			for r, n := range s.failures {
				if n > 0 {
					to <- counter(t.failures, float64(n), append(slices.Clone(labels), balance.Result(r).String())...)
				}
			}
		}
	}
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// observed is an upstream with those of its targets that have series.
type observed struct {
	of           *balance.Upstream
	allUnhealthy bool
	targets      []observedTarget
}

// observedTarget is what an upstream has at one address.
type observedTarget struct {
	address   string
	up        bool
	inFlight  int64
	requests  uint64
	ejections uint64
	failures  [balance.GRPCUnavailable + 1]uint64
}

func (o *observed) lines() int { return 1 + linesOfTarget*len(o.targets) }

// share returns the upstreams with the targets that have series, and how many targets have none.
func (t *Targets) share() (all []observed, leftOut int) {
	now := t.cfg.Now()
	var wanted []int // lines of each account
	account := ""
	for _, u := range t.cfg.Upstreams() {
		o := observe(u, now)
		if a := u.Name().Account; len(wanted) == 0 || a != account {
			account, wanted = a, append(wanted, 0)
		}
		wanted[len(wanted)-1] += o.lines()
		all = append(all, o)
	}
	most := fairslots.Most(t.lines, wanted)
	account, left := "", 0
	kept := all[:0]
	for i, o := range all {
		if a := o.of.Name().Account; i == 0 || a != account {
			account, left = a, most
		}
		n := min(len(o.targets), max(0, left-1)/linesOfTarget)
		leftOut += len(o.targets) - n
		if n < len(o.targets) {
			left, o.targets = 0, o.targets[:n] // nothing of a smaller upstream after it, either
		}
		if n > 0 || len(o.targets) == 0 && left > 0 {
			left -= o.lines()
			kept = append(kept, o)
		}
	}
	return kept, leftOut
}

// observe reads the state of an upstream. Targets at one address count together.
func observe(u *balance.Upstream, now time.Duration) observed {
	o := observed{of: u, allUnhealthy: u.AllUnhealthy(now)}
	index := map[string]int{}
	for _, s := range u.Observe(now, nil) {
		address := s.Target.Address().Key().Address
		i, known := index[address]
		if !known {
			i = len(o.targets)
			index[address] = i
			o.targets = append(o.targets, observedTarget{address: address, up: s.State != balance.Unhealthy && s.State != balance.Ejected, ejections: s.Ejections})
		}
		one := &o.targets[i]
		one.inFlight += s.Own
		one.requests += s.Requests
		for r := balance.NotAllowed; r <= balance.GRPCUnavailable; r++ {
			one.failures[r] += s.Target.Failures(r)
		}
	}
	return o
}
