package telemetry

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/ratelimit"
)

// descs are the descriptions of the metrics of Requests.
type descs struct {
	requests, took, upstreamTook, upstreamErrors, limited, bytesIn, bytesOut, units, unknown, info, results, retries, delay *prometheus.Desc
}

func newDescs() descs {
	at := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"gateway", "route"}, more...), nil)
	}
	return descs{
		requests:       at("keygate_requests_total", "Completed data plane requests, by gateway, route and status class. The gateway or route is empty if none was found.", "status"),
		took:           at("keygate_request_duration_seconds", "Time from the head of a request to the last byte of its response, without upgraded connections."),
		upstreamTook:   at("keygate_upstream_duration_seconds", "Time from sending a request upstream to the head of the response."),
		upstreamErrors: at("keygate_upstream_errors_total", "Requests whose upstream failed, by reason: upstream_status (a 5xx response), unreachable, timeout.", "reason"),
		limited:        at("keygate_limit_refusals_total", "Requests refused by a rate limit, by its scope: key, route, daily, global.", "scope"),
		bytesIn:        at("keygate_request_body_bytes_total", "Bytes of request bodies."),
		bytesOut:       at("keygate_response_body_bytes_total", "Bytes of response bodies."),
		units:          at("keygate_units_total", "Units that requests were charged by the costs of their routes, by meter.", "meter"),
		unknown:        at("keygate_cost_unknown_total", "Costs of requests that are not known, by reason.", "reason"),
		info: prometheus.NewDesc("keygate_route_info", "Always 1. The labels are the hostname, path and methods of each gateway and route that had requests.",
			[]string{"gateway", "route", "host", "path", "methods"}, nil),
		results: prometheus.NewDesc("keygate_gateway_decisions_total",
			"Completed data plane requests, by result: forwarded, preflight, abandoned by the client, or the error code.", []string{"outcome"}, nil),
		retries: prometheus.NewDesc("keygate_retries_total",
			"Attempts of requests at a second or further target of an upstream, by result: ok, or how they failed.", []string{"result"}, nil),
		delay: prometheus.NewDesc("keygate_outcome_lag_seconds",
			"Longest time from the end of a request until the sinks (audit, traffic, events, metrics) had its access record, in this minute and the one before.", nil, nil),
	}
}

// syncTimeout bounds the wait of a scrape for requests that have just ended.
const syncTimeout = 250 * time.Millisecond

// Describe implements prometheus.Collector.
func (r *Requests) Describe(to chan<- *prometheus.Desc) {
	d := &r.descs
	for _, one := range []*prometheus.Desc{d.requests, d.took, d.upstreamTook, d.upstreamErrors, d.limited, d.bytesIn, d.bytesOut, d.units, d.unknown, d.info, d.results, d.retries, d.delay} {
		to <- one
	}
}

// Collect implements prometheus.Collector.
func (r *Requests) Collect(to chan<- prometheus.Metric) {
	if r.cfg.Sync != nil {
		ctx, cancel := context.WithTimeout(context.Background(), syncTimeout)
		_ = r.cfg.Sync(ctx) // an error means that some counts are a moment old
		cancel()
	}
	r.collecting.Lock()
	defer r.collecting.Unlock()
	routes := r.cfg.Routes()
	ended, all, delay := r.read(routes)
	to <- prometheus.MustNewConstMetric(r.descs.delay, prometheus.GaugeValue, delay)
	for outcomeName, n := range resultCounts(&ended) {
		to <- counter(r.descs.results, float64(n), outcomeName)
	}
	for result, n := range r.readRetries() {
		to <- counter(r.descs.retries, float64(n), retryName(balance.Result(result)))
	}
	for _, s := range all {
		r.export(to, s, routes)
	}
}

// read settles which routes have series, and brings their totals up to date. The totals include
// every request that was taken before. The caller holds collecting.
func (r *Requests) read(routes Routes) (ended [accesslog.Results]uint64, all []*series, delay float64) {
	others := 0
	if r.cfg.Others != nil {
		others = r.cfg.Others()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.divide(others)
	now := r.cfg.Now()
	r.drop(routes)
	r.settle(routes, now)
	r.forget()
	all = make([]*series, 0, len(r.series)+len(r.leaving))
	for _, list := range []map[seriesKey]*series{r.series, r.leaving} {
		for _, s := range list {
			s.pending.moveTo(&s.total)
			all = append(all, s)
		}
	}
	return r.ended, all, r.delay.seconds(now.UnixMicro())
}

func (r *Requests) readRetries() [retryResults]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.retries
}

// export sends the metrics of s. The caller holds collecting.
func (r *Requests) export(to chan<- prometheus.Metric, s *series, routes Routes) {
	d, c := &r.descs, &s.total
	total := uint64(0)
	for class, n := range c.statuses {
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
	to <- counter(d.bytesIn, float64(c.bytesIn), s.gateway, s.route)
	to <- counter(d.bytesOut, float64(c.bytesOut), s.gateway, s.route)
	for scope, n := range c.limited {
		if n > 0 {
			to <- counter(d.limited, float64(n), s.gateway, s.route, ratelimit.Scope(scope).String())
		}
	}
	for reason, n := range c.upstream {
		if n > 0 {
			to <- counter(d.upstreamErrors, float64(n), s.gateway, s.route, reasonName(reason))
		}
	}
	for _, one := range c.costs.units {
		to <- counter(d.units, one.units, s.gateway, s.route, label(one.meter))
	}
	for reason, n := range c.costs.unknown {
		if n > 0 {
			to <- counter(d.unknown, float64(n), s.gateway, s.route, cost.Reason(reason).String())
		}
	}
	for _, h := range []struct {
		desc *prometheus.Desc
		h    *histogram
	}{{d.took, &c.took}, {d.upstreamTook, &c.upstreamTook}} {
		if h.h.count > 0 {
			to <- &histogramMetric{desc: h.desc, message: h.h.message(r.scale, s.since), labels: prometheus.MakeLabelPairs(h.desc, []string{s.gateway, s.route})}
		}
	}
	if host, path, methods, ok := describe(routes, s); ok {
		to <- prometheus.MustNewConstMetric(d.info, prometheus.GaugeValue, 1, s.gateway, s.route, label(host), label(path), label(methods))
	}
}

// describe returns the labels of s for people. ok is false if s has none.
func describe(routes Routes, s *series) (hostname, path, methods string, ok bool) {
	switch noGateway := s.key.gateway == ([16]byte{}); {
	case s.key.other && noGateway:
		return otherLabel, otherLabel, "", true
	case s.key.other:
		hostname, _, _, ok = routes.Describe(s.gateway, "")
		return hostname, otherLabel, "", ok
	case noGateway:
		return "", "", "", false
	default:
		return routes.Describe(s.gateway, s.route)
	}
}

// maxLabel is the largest length of a label in bytes. Longer labels are cut.
const maxLabel = 512

// label makes s the value of a label, which must be valid UTF-8.
func label(s string) string {
	if s = strings.ToValidUTF8(s, "\uFFFD"); len(s) > maxLabel {
		s = strings.ToValidUTF8(s[:maxLabel-len("…")], "") + "…"
	}
	return s
}

func counter(desc *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.CounterValue, value, labels...)
}

// histogramMetric is a histogram with both native and classic buckets.
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

// retryName returns the label of the result of a retry.
func retryName(r balance.Result) string {
	if r == retryResults-1 {
		return otherLabel
	}
	return r.String()
}

// resultCounts returns the number of requests by the name of their result, including
// those with 0 requests.
func resultCounts(ended *[accesslog.Results]uint64) map[string]uint64 {
	out := map[string]uint64{}
	for result, n := range ended {
		out[resultName(accesslog.Result(result))] += n
	}
	return out
}

// resultName returns the error code of a refusal (contract, section 2), or a word for
// another result.
func resultName(r accesslog.Result) string {
	switch r {
	case accesslog.Forwarded:
		return "forwarded"
	case accesslog.Unreachable:
		return "upstream_unreachable"
	case accesslog.TimedOut:
		return "upstream_timeout"
	case accesslog.Preflight:
		return "preflight"
	case accesslog.SelfServed:
		return "self_service"
	case accesslog.Responded:
		return "responded"
	case accesslog.Redirected:
		return "redirected"
	case accesslog.Malformed:
		return "invalid_request"
	case accesslog.NoGateway:
		return "gateway_not_found"
	case accesslog.KeyInvalid, accesslog.KeyExpired:
		return "unauthorized"
	case accesslog.WrongGateway, accesslog.WrongScope, accesslog.OwnerSuspended, accesslog.AddressDenied:
		return "forbidden"
	case accesslog.NoRoute:
		return "route_not_found"
	case accesslog.NoMethod:
		return "method_not_allowed"
	case accesslog.Limited:
		return "rate_limit_exceeded"
	case accesslog.Abandoned:
		return "abandoned"
	case accesslog.Maintenance:
		return "maintenance"
	default:
		return "internal"
	}
}
