package telemetry

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/ratelimit"
)

// descs describe what Requests tell.
type descs struct {
	requests, took, upstreamTook, upstreamErrors, limited, bytesIn, bytesOut, info, decisions, lag *prometheus.Desc
}

func newDescs() descs {
	at := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"gateway", "route"}, more...), nil)
	}
	return descs{
		requests:       at("keygate_requests_total", "Requests on the data plane that ended, by gateway, route and class of status. Without a gateway or route: none was found.", "status"),
		took:           at("keygate_request_duration_seconds", "Time from a request's head to the last byte of its answer. Upgraded connections are not in it."),
		upstreamTook:   at("keygate_upstream_duration_seconds", "Time from sending a request upstream to the head of the answer."),
		upstreamErrors: at("keygate_upstream_errors_total", "Requests whose upstream failed, by reason: upstream_status (it answered 5xx), unreachable, timeout.", "reason"),
		limited:        at("keygate_limit_refusals_total", "Requests refused by a rate limit, by its scope: key, route, daily, global.", "scope"),
		bytesIn:        at("keygate_request_body_bytes_total", "Bytes of the bodies of requests."),
		bytesOut:       at("keygate_response_body_bytes_total", "Bytes of the bodies of answers."),
		info: prometheus.NewDesc("keygate_route_info", "Always 1; tells the host name, path and methods of each gateway and route that was called.",
			[]string{"gateway", "route", "host", "path", "methods"}, nil),
		decisions: prometheus.NewDesc("keygate_gateway_decisions_total",
			"Requests on the data plane that ended, by how: forwarded, preflight, abandoned by the client, or the code of the error.", []string{"outcome"}, nil),
		lag: prometheus.NewDesc("keygate_outcome_lag_seconds",
			"Longest time, in this minute and the one before, from the end of a request until the sinks (audit, traffic, events, metrics) had its record.", nil, nil),
	}
}

const syncTimeout = time.Second

// Describe implements prometheus.Collector.
func (r *Requests) Describe(to chan<- *prometheus.Desc) {
	d := &r.descs
	for _, one := range []*prometheus.Desc{d.requests, d.took, d.upstreamTook, d.upstreamErrors, d.limited, d.bytesIn, d.bytesOut, d.info, d.decisions, d.lag} {
		to <- one
	}
}

// Collect implements prometheus.Collector.
func (r *Requests) Collect(to chan<- prometheus.Metric) {
	if r.cfg.Sync != nil {
		ctx, cancel := context.WithTimeout(context.Background(), syncTimeout)
		_ = r.cfg.Sync(ctx) // else some figures are a moment old
		cancel()
	}
	places := r.cfg.Places()
	ended, all, lagged := r.copy(places)
	to <- prometheus.MustNewConstMetric(r.descs.lag, prometheus.GaugeValue, lagged)
	for outcomeName, n := range decisionCounts(&ended) {
		to <- counter(r.descs.decisions, float64(n), outcomeName)
	}
	for i := range all {
		r.tell(to, &all[i], places)
	}
}

// copyAtOnce is how many series are copied while no sink may count.
const copyAtOnce = 256

// copy returns what was counted, less what is no more. Whoever counts meanwhile
// waits for no more than a few series.
func (r *Requests) copy(places Places) (ended [accesslog.Abandoned + 1]uint64, all []series, lagged float64) {
	r.mu.Lock()
	ended, lagged = r.ended, r.lag.seconds(r.cfg.Now().UnixMicro())
	at, list := make([]place, 0, len(r.series)), make([]*series, 0, len(r.series))
	for p, s := range r.series {
		at, list = append(at, p), append(list, s)
	}
	r.mu.Unlock()
	kept := list[:0]
	var gone []place
	for i, s := range list {
		if stands(places, s) {
			kept = append(kept, s)
		} else {
			gone = append(gone, at[i])
		}
	}
	all = make([]series, len(kept))
	for i := 0; i < len(kept); i += copyAtOnce {
		r.mu.Lock()
		for j := i; j < min(len(kept), i+copyAtOnce); j++ {
			s := kept[j]
			all[j] = *s
			s.took.copyTo(&all[j].took)
			s.upstreamTook.copyTo(&all[j].upstreamTook)
		}
		r.mu.Unlock()
	}
	if len(gone) > 0 {
		r.mu.Lock()
		for _, p := range gone {
			delete(r.series, p)
		}
		r.forget()
		r.mu.Unlock()
	}
	return ended, all, lagged
}

func (r *Requests) tell(to chan<- prometheus.Metric, s *series, places Places) {
	d := &r.descs
	total := uint64(0)
	for class, n := range s.statuses {
		total += n
		if n > 0 {
			name := "other"
			if class > 0 {
				name = strconv.Itoa(class) + "xx"
			}
			to <- counter(d.requests, float64(n), s.gateway, s.route, name)
		}
	}
	if total == 0 {
		return
	}
	to <- counter(d.bytesIn, float64(s.bytesIn), s.gateway, s.route)
	to <- counter(d.bytesOut, float64(s.bytesOut), s.gateway, s.route)
	for scope, n := range s.limited {
		if n > 0 {
			to <- counter(d.limited, float64(n), s.gateway, s.route, ratelimit.Scope(scope).String())
		}
	}
	for reason, n := range s.upstream {
		if n > 0 {
			to <- counter(d.upstreamErrors, float64(n), s.gateway, s.route, reasonName(reason))
		}
	}
	for _, h := range []struct {
		desc *prometheus.Desc
		h    *histogram
	}{{d.took, &s.took}, {d.upstreamTook, &s.upstreamTook}} {
		if h.h.count > 0 {
			to <- &histogramMetric{desc: h.desc, message: h.h.message(r.scale, s.since), labels: prometheus.MakeLabelPairs(h.desc, []string{s.gateway, s.route})}
		}
	}
	if s.gateway == "" {
		return
	}
	if host, path, methods, ok := places.Describe(s.gateway, s.route); ok {
		to <- prometheus.MustNewConstMetric(d.info, prometheus.GaugeValue, 1, s.gateway, s.route, valid(host), valid(path), valid(methods))
	}
}

// valid makes a label's value of what may hold any bytes.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func counter(desc *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.CounterValue, value, labels...)
}

// histogramMetric is a histogram that is both native and classic.
type histogramMetric struct {
	desc    *prometheus.Desc
	message *dto.Histogram
	labels  []*dto.LabelPair
}

// Desc implements prometheus.Metric.
func (m *histogramMetric) Desc() *prometheus.Desc { return m.desc }

// Write implements prometheus.Metric.
func (m *histogramMetric) Write(to *dto.Metric) error {
	to.Histogram, to.Label = m.message, m.labels
	return nil
}

// decisionCounts returns the requests by the word for what ended them. Every
// word is there from the beginning.
func decisionCounts(ended *[accesslog.Abandoned + 1]uint64) map[string]uint64 {
	out := map[string]uint64{}
	for decision, n := range ended {
		out[decisionName(accesslog.Result(decision))] += n
	}
	return out
}

// decisionName is the error code of a refusal (contract, 2), or a word.
func decisionName(d accesslog.Result) string {
	switch d {
	case accesslog.Forwarded:
		return "forwarded"
	case accesslog.Unreachable:
		return "upstream_unreachable"
	case accesslog.TimedOut:
		return "upstream_timeout"
	case accesslog.Preflight:
		return "preflight"
	case accesslog.Malformed:
		return "invalid_request"
	case accesslog.NoGateway:
		return "gateway_not_found"
	case accesslog.KeyInvalid, accesslog.KeyExpired:
		return "unauthorized"
	case accesslog.WrongGateway, accesslog.WrongScope:
		return "forbidden"
	case accesslog.NoRoute:
		return "route_not_found"
	case accesslog.NoMethod:
		return "method_not_allowed"
	case accesslog.Limited:
		return "rate_limit_exceeded"
	case accesslog.Abandoned:
		return "abandoned"
	default:
		return "internal"
	}
}
