package adminapi

import (
	"net/http"
	"reflect"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/traffic"
)

type trafficRecord struct {
	Data []trafficRowRecord `json:"data" nullable:"false" doc:"One row for each interval and group, the oldest first; an interval without requests has zeros."`
}

type trafficRowRecord struct {
	Start             time.Time        `json:"start" doc:"When the interval begins."`
	Group             *string          `json:"group" doc:"Identifier of the gateway, route or key, or the status code; null without group_by, and for requests that have none." example:"rt_01jz8y5c3te9b8r2m6q4v7x0bb"`
	Requests          int64            `json:"requests" doc:"Requests, those included that were refused." example:"1200"`
	Status2xx         int64            `json:"status_2xx" doc:"Answers with a status from 200 to 299." example:"1100"`
	Status3xx         int64            `json:"status_3xx" doc:"Answers with a status from 300 to 399." example:"0"`
	Status4xx         int64            `json:"status_4xx" doc:"Answers with a status from 400 to 499, callers included that left before one (499)." example:"90"`
	Status5xx         int64            `json:"status_5xx" doc:"Answers with a status from 500 to 599." example:"10"`
	Limited           int64            `json:"limited" doc:"Answers with 429: of a limit, or of the upstream." example:"40"`
	Unauthorized      int64            `json:"unauthorized" doc:"Answers with 401: for the key, or of the upstream." example:"20"`
	Forbidden         int64            `json:"forbidden" doc:"Answers with 403: for the key's gateway or scope, or of the upstream." example:"10"`
	UpstreamErrors    int64            `json:"upstream_errors" doc:"Answers of the upstream with a 5xx, and requests that it did not answer (502, 504)." example:"10"`
	BytesIn           int64            `json:"bytes_in" doc:"Bytes of request bodies." example:"52000"`
	BytesOut          int64            `json:"bytes_out" doc:"Bytes of answer bodies." example:"734000"`
	LatencyMS         *latenciesRecord `json:"latency_ms" doc:"From the request's head to the last byte of the answer; null grouped or filtered by key."`
	UpstreamLatencyMS *latenciesRecord `json:"upstream_latency_ms" doc:"From sending the request to the head of the upstream's answer; null grouped or filtered by key."`
}

type latenciesRecord struct {
	_   struct{} `nullable:"true"`
	P50 float64  `json:"p50" doc:"Milliseconds that half of the requests took at most." example:"3.1"`
	P90 float64  `json:"p90" doc:"Milliseconds that 90 % of the requests took at most." example:"8.4"`
	P95 float64  `json:"p95" doc:"Milliseconds that 95 % of the requests took at most." example:"12.9"`
	P99 float64  `json:"p99" doc:"Milliseconds that 99 % of the requests took at most." example:"40.2"`
}

// intervals are those of a report, each with the time that a report goes back
// if it is not told.
func intervals() map[string]struct {
	length traffic.Interval
	back   time.Duration
} {
	return map[string]struct {
		length traffic.Interval
		back   time.Duration
	}{
		"1m": {traffic.Minute, time.Hour},
		"1h": {traffic.Hour, 24 * time.Hour},
		"1d": {traffic.Day, 30 * 24 * time.Hour},
	}
}

// maxIntervals bounds a report.
const maxIntervals = 10_000

func trafficParams() []queryParam {
	interval := enumParam("interval", "Length of the rows' intervals.", "1m", "1h", "1d")
	interval.schema.Default = "1h"
	return []queryParam{
		{name: "gateway_id", doc: "Only requests of this gateway.", schema: textSchema(), example: "gw_01jz8y5c3te9b8r2m6q4v7x0aa"},
		{name: "route_id", doc: "Only requests of this route.", schema: textSchema(), example: "rt_01jz8y5c3te9b8r2m6q4v7x0bb"},
		{name: "key_id", doc: "Only requests with this key.", schema: textSchema(), example: "key_01jz8y5c3te9b8r2m6q4v7x0dd"},
		timeParam("since", "Where the report begins: RFC 3339, or a date, which is its midnight in UTC. Without it, 60 intervals of 1m, 24 of 1h or 30 of 1d before until. An interval of which a part lies between since and until is counted whole."),
		timeParam("until", "Where the report ends, itself excluded: as since. Without it, now."),
		interval,
		enumParam("group_by", "What has rows of its own.", string(traffic.ByGateway), string(traffic.ByRoute), string(traffic.ByKey), string(traffic.ByStatus)),
	}
}

func (a *API) trafficOperations() []operation {
	return []operation{{
		id: "reportTraffic", method: http.MethodGet, path: "/v1/reports/traffic", tag: "Traffic",
		summary: "Report the traffic",
		description: "Counts the requests of the account's gateways, with their latencies, complete to the last second. Minutes are kept for 48 hours, " +
			"hours for 35 days, days for 400 days.",
		query: trafficParams(), success: http.StatusOK, result: reflect.TypeFor[trafficRecord](),
		run: a.reportTraffic,
	}}
}

func (a *API) reportTraffic(c *call) (response, error) {
	q, err := c.trafficQuery()
	if err != nil {
		return response{}, err
	}
	rows, err := a.cfg.Control.Traffic(c.ctx, &c.caller, q)
	if err != nil {
		return response{}, err
	}
	out := trafficRecord{Data: make([]trafficRowRecord, len(rows))}
	for i := range rows {
		out.Data[i] = presentTraffic(&rows[i], q.Group != traffic.ByKey && q.KeyID == "")
	}
	return ok(out), nil
}

func (c *call) trafficQuery() (traffic.Query, error) {
	since, until, err := c.timeRange()
	if err != nil {
		return traffic.Query{}, err
	}
	name := c.query.Get("interval")
	if name == "" {
		name = "1h"
	}
	interval := intervals()[name]
	if until.IsZero() {
		// now, but not before what was answered just before this call
		until = c.now.Add(time.Microsecond)
	}
	if since.IsZero() {
		since = until.Add(-interval.back)
	}
	if !since.Before(until) {
		return traffic.Query{}, fault.Invalid("since", "must not lie in the future")
	}
	if until.Sub(since)/time.Duration(interval.length) > maxIntervals {
		return traffic.Query{}, fault.Invalid("since", "must be at most %d intervals before until: give a later time, or a longer interval", maxIntervals)
	}
	return traffic.Query{
		GatewayID: c.query.Get("gateway_id"), RouteID: c.query.Get("route_id"), KeyID: c.query.Get("key_id"),
		Since: since, Until: until, Interval: interval.length, Group: traffic.Grouping(c.query.Get("group_by")),
	}, nil
}

// presentTraffic shows a row. timed tells that latencies are kept of what it
// counts: of single keys they are not.
func presentTraffic(r *traffic.Row, timed bool) trafficRowRecord {
	out := trafficRowRecord{
		Start: r.Start.UTC(), Group: optionalText(r.Group), Requests: r.Requests,
		Status2xx: r.Status[0], Status3xx: r.Status[1], Status4xx: r.Status[2], Status5xx: r.Status[3],
		Limited: r.Limited, Unauthorized: r.Unauthorized, Forbidden: r.Forbidden, UpstreamErrors: r.UpstreamErrors,
		BytesIn: r.BytesIn, BytesOut: r.BytesOut,
	}
	if timed {
		out.LatencyMS, out.UpstreamLatencyMS = presentLatencies(r.Latency), presentLatencies(r.Upstream)
	}
	return out
}

// presentLatencies shows zeros where nothing was measured.
func presentLatencies(q *traffic.Quantiles) *latenciesRecord {
	if q == nil {
		return &latenciesRecord{}
	}
	return &latenciesRecord{P50: q.P50, P90: q.P90, P95: q.P95, P99: q.P99}
}
