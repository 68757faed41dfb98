package adminapi

import (
	"cmp"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/traffic"
)

type trafficRecord struct {
	Data []trafficRowRecord `json:"data" nullable:"false" doc:"One row for each interval and group, oldest first. An interval without requests has zeros."`

	Incomplete       bool   `json:"incomplete,omitempty" doc:"true if the newest requests are missing, because the store did not take them; otherwise absent."`
	IncompleteReason string `json:"incomplete_reason,omitempty" doc:"Why requests are missing; absent if none are." example:"the newest records are missing, and are added as soon as the store takes them: the disk is full"`
}

type trafficRowRecord struct {
	Start             time.Time        `json:"start" doc:"Start of the interval."`
	Group             *string          `json:"group" doc:"Identifier of the gateway, route or key, the status code, the name of the upstream or of the side, the address of the target, or the subject of the token; null without group_by, and for requests that have no such value." example:"rt_01jz8y5c3te9b8r2m6q4v7x0bb"`
	IssuerID          string           `json:"issuer_id,omitempty" doc:"Issuer of the subject; absent unless the report is grouped by subject." example:"iss_01jz8y5c3te9b8r2m6q4v7x0aa"`
	Requests          int64            `json:"requests" doc:"Number of requests, including refused ones." example:"1200"`
	Status2xx         int64            `json:"status_2xx" doc:"Responses with a status from 200 to 299." example:"1100"`
	Status3xx         int64            `json:"status_3xx" doc:"Responses with a status from 300 to 399." example:"0"`
	Status4xx         int64            `json:"status_4xx" doc:"Responses with a status from 400 to 499, including requests whose client disconnected before the response (499)." example:"90"`
	Status5xx         int64            `json:"status_5xx" doc:"Responses with a status from 500 to 599." example:"10"`
	Limited           int64            `json:"limited" doc:"Responses with status 429, whether from Keygate or from the upstream." example:"40"`
	Unauthorized      int64            `json:"unauthorized" doc:"Responses with status 401, whether from Keygate or from the upstream." example:"20"`
	Forbidden         int64            `json:"forbidden" doc:"Responses with status 403, whether from Keygate or from the upstream." example:"10"`
	UpstreamErrors    int64            `json:"upstream_errors" doc:"Responses with a 5xx status from the upstream, and 502 and 504 responses from Keygate." example:"10"`
	BytesIn           int64            `json:"bytes_in" doc:"Total size of request bodies, in bytes." example:"52000"`
	BytesOut          int64            `json:"bytes_out" doc:"Total size of response bodies, in bytes." example:"734000"`
	Meters            map[string]int64 `json:"meters" nullable:"false" doc:"Units that requests were charged by the costs of their routes, by meter; at most 64 meters of a report are told apart, and the units of others are those of other. Empty if there are none."`
	LatencyMS         *latenciesRecord `json:"latency_ms" doc:"Time from the request headers to the last byte of the response; null if the report is grouped by key or subject, or filtered by key."`
	UpstreamLatencyMS *latenciesRecord `json:"upstream_latency_ms" doc:"Time from sending the request to the upstream's response headers; null if the report is grouped by key or subject, or filtered by key."`
}

type latenciesRecord struct {
	_   struct{} `nullable:"true"`
	P50 float64  `json:"p50" doc:"50th percentile, in milliseconds." example:"3.1"`
	P90 float64  `json:"p90" doc:"90th percentile, in milliseconds." example:"8.4"`
	P95 float64  `json:"p95" doc:"95th percentile, in milliseconds." example:"12.9"`
	P99 float64  `json:"p99" doc:"99th percentile, in milliseconds." example:"40.2"`
}

// intervals returns the intervals of a report, each with how far a report without
// since goes back.
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

// maxIntervals is the maximum number of intervals in a report.
const maxIntervals = 10_000

func trafficParams() []queryParam {
	interval := enumParam("interval", "Length of an interval.", "1m", "1h", "1d")
	interval.schema.Default = "1h"
	return []queryParam{
		{name: "gateway_id", doc: "Only requests of this gateway.", schema: textSchema(), example: "gw_01jz8y5c3te9b8r2m6q4v7x0aa"},
		{name: "route_id", doc: "Only requests of this route.", schema: textSchema(), example: "rt_01jz8y5c3te9b8r2m6q4v7x0bb"},
		{name: "key_id", doc: "Only requests with this key.", schema: textSchema(), example: "key_01jz8y5c3te9b8r2m6q4v7x0dd"},
		{name: "upstream", doc: "Only requests that were sent to the upstream with this name, of the gateway gateway_id.", schema: textSchema(), example: "default"},
		{name: "target", doc: "Only requests that were sent to the target with this address, the last time if they were sent several times: its host and port. " +
			"upstream and target cannot be combined with route_id or key_id, or with group_by=route or key.", schema: textSchema(), example: "10.0.0.1:8443"},
		timeParam("since", "Start of the report, inclusive: an RFC 3339 time, or a date, which means midnight UTC. Default: 60 intervals of 1m, 24 of 1h or 30 of 1d before until. An interval that overlaps the report is included as a whole."),
		timeParam("until", "End of the report, exclusive, in the same form as since. Default: now."),
		interval,
		enumParam("group_by", "Returns separate rows for each gateway, route, key, status code, upstream, target, side (the upstream that a split decided for) or subject. Upstreams of the same name in several gateways are counted together. "+
			"upstream and target cannot be combined with route_id or key_id. subject has the requests with a valid token alone, a row for each issuer and subject, and cannot be combined with route_id, key_id, upstream or target.",
			string(traffic.ByGateway), string(traffic.ByRoute), string(traffic.ByKey), string(traffic.ByStatus), string(traffic.ByUpstream), string(traffic.ByTarget), string(traffic.BySide), string(traffic.BySubject)),
	}
}

func (a *API) trafficOperations() []operation {
	return []operation{{
		id: "reportTraffic", method: http.MethodGet, path: "/v1/reports/traffic", tag: "Traffic",
		summary: "Get the traffic report",
		description: "Returns request counts and latencies of the account's gateways, complete to the last second. Intervals of 1m are kept for 48 hours, " +
			"of 1h for 35 days, of 1d for 400 days.",
		query: trafficParams(), success: http.StatusOK, result: reflect.TypeFor[trafficRecord](),
		run: a.reportTraffic,
	}, {
		id: "reportTop", method: http.MethodGet, path: "/v1/reports/top", tag: "Traffic",
		summary:     "Get what has the most traffic",
		description: "Returns the routes, keys, gateways, upstreams, targets or subjects with the most requests, errors, refusals or bytes in the whole time of the report, the greatest first.",
		query:       topParams(), success: http.StatusOK, result: reflect.TypeFor[topRecord](),
		run: a.reportTop,
	}}
}

type topRecord struct {
	Data []topRowRecord `json:"data" nullable:"false" doc:"One row for each route, key, gateway, upstream, target or subject, the greatest first. Those without any are left out."`

	Incomplete       bool   `json:"incomplete,omitempty" doc:"true if the newest requests are missing, because the store did not take them; otherwise absent."`
	IncompleteReason string `json:"incomplete_reason,omitempty" doc:"Why requests are missing; absent if none are." example:"the newest records are missing, and are added as soon as the store takes them: the disk is full"`
}

type topRowRecord struct {
	Group          *string `json:"group" doc:"Identifier of the route, key or gateway, name of the upstream, address of the target, or subject of the token; null for requests that have none." example:"rt_01jz8y5c3te9b8r2m6q4v7x0bb"`
	IssuerID       string  `json:"issuer_id,omitempty" doc:"Issuer of the subject; absent unless subjects are listed." example:"iss_01jz8y5c3te9b8r2m6q4v7x0aa"`
	GatewayID      *string `json:"gateway_id" doc:"Gateway of the route, or the gateway itself; null for keys, upstreams, targets and subjects." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	Requests       int64   `json:"requests" doc:"Number of requests, including refused ones." example:"1200"`
	Status2xx      int64   `json:"status_2xx" doc:"Responses with a status from 200 to 299." example:"1100"`
	Status3xx      int64   `json:"status_3xx" doc:"Responses with a status from 300 to 399." example:"0"`
	Status4xx      int64   `json:"status_4xx" doc:"Responses with a status from 400 to 499." example:"90"`
	Status5xx      int64   `json:"status_5xx" doc:"Responses with a status from 500 to 599." example:"10"`
	Limited        int64   `json:"limited" doc:"Responses with status 429." example:"40"`
	Unauthorized   int64   `json:"unauthorized" doc:"Responses with status 401." example:"20"`
	Forbidden      int64   `json:"forbidden" doc:"Responses with status 403." example:"10"`
	UpstreamErrors int64   `json:"upstream_errors" doc:"Responses with a 5xx status from the upstream, and 502 and 504 responses from Keygate." example:"10"`
	BytesIn        int64   `json:"bytes_in" doc:"Total size of request bodies, in bytes." example:"52000"`
	BytesOut       int64   `json:"bytes_out" doc:"Total size of response bodies, in bytes." example:"734000"`

	Meters map[string]int64 `json:"meters" nullable:"false" doc:"Units that requests were charged by the costs of their routes, by meter; at most 64 meters of a report are told apart, and the units of others are those of other. Empty if there are none."`
}

// The number of rows of a top report.
const (
	defaultTop = 10
	maxTop     = 100
)

func topParams() []queryParam {
	params := slices.DeleteFunc(trafficParams(), func(p queryParam) bool { return p.name == "group_by" })
	group := enumParam("group_by", "What is listed.", string(traffic.ByRoute), string(traffic.ByKey), string(traffic.ByGateway), string(traffic.ByUpstream), string(traffic.ByTarget), string(traffic.BySide), string(traffic.BySubject))
	group.schema.Default = string(traffic.ByRoute)
	order := enumParam("order", "What is counted: requests, errors (5xx), refused (401, 403 and 429) or bytes_out.",
		string(traffic.ByRequests), string(traffic.ByErrors), string(traffic.ByRefused), string(traffic.ByBytesOut))
	order.schema.Default = string(traffic.ByRequests)
	return append(params, group, order, countParam("limit", "Maximum number of rows.", defaultTop, maxTop))
}

func (a *API) reportTop(c *call) (response, error) {
	q, err := c.trafficQuery()
	if err != nil {
		return response{}, err
	}
	q.Group = cmp.Or(q.Group, traffic.ByRoute)
	limit := defaultTop
	if v := c.query.Get("limit"); v != "" {
		limit, _ = strconv.Atoi(v) // checked by countParam
	}
	rows, err := searching(c, func() ([]traffic.Total, error) {
		return a.cfg.Control.TopTraffic(c.ctx, &c.actor, q, traffic.Order(c.query.Get("order")), limit)
	})
	if err != nil {
		return response{}, err
	}
	out := topRecord{Data: make([]topRowRecord, len(rows)), Incomplete: c.completeness.Missing != "", IncompleteReason: c.completeness.Missing}
	for i := range rows {
		r := &rows[i]
		out.Data[i] = topRowRecord{
			Group: optionalText(r.Group), IssuerID: r.IssuerID, GatewayID: optionalText(r.GatewayID), Requests: r.Requests, Status2xx: r.Status[0], Status3xx: r.Status[1], Status4xx: r.Status[2], Status5xx: r.Status[3],
			Limited: r.Limited, Unauthorized: r.Unauthorized, Forbidden: r.Forbidden, UpstreamErrors: r.UpstreamErrors, BytesIn: r.BytesIn, BytesOut: r.BytesOut,
			Meters: presentAmounts(r.Meters),
		}
	}
	return ok(out), nil
}

func (a *API) reportTraffic(c *call) (response, error) {
	q, err := c.trafficQuery()
	if err != nil {
		return response{}, err
	}
	rows, err := searching(c, func() ([]traffic.Row, error) { return a.cfg.Control.Traffic(c.ctx, &c.actor, q) })
	if err != nil {
		return response{}, err
	}
	out := trafficRecord{Data: make([]trafficRowRecord, len(rows)), Incomplete: c.completeness.Missing != "", IncompleteReason: c.completeness.Missing}
	for i := range rows {
		out.Data[i] = presentTraffic(&rows[i], q.Group != traffic.ByKey && q.Group != traffic.BySubject && q.KeyID == "")
	}
	return ok(out), nil
}

func (c *call) trafficQuery() (traffic.Query, error) {
	since, until, err := c.timeRange()
	if err != nil {
		return traffic.Query{}, err
	}
	name := cmp.Or(c.query.Get("interval"), "1h")
	interval := intervals()[name]
	if until.IsZero() {
		// until is exclusive, and requests that ended just before this call count.
		until = c.now.Add(time.Microsecond)
	}
	if since.IsZero() {
		since = until.Add(-interval.back)
	}
	if !since.Before(until) {
		return traffic.Query{}, fault.Invalid("since", "must not be in the future")
	}
	if until.Sub(since)/time.Duration(interval.length) > maxIntervals {
		return traffic.Query{}, fault.Invalid("since", "must be at most %d intervals before until: use a later time or a longer interval", maxIntervals)
	}
	return traffic.Query{
		GatewayID: c.query.Get("gateway_id"), RouteID: c.query.Get("route_id"), KeyID: c.query.Get("key_id"),
		Upstream: c.query.Get("upstream"), Target: c.query.Get("target"),
		Since: since, Until: until, Interval: interval.length, Group: traffic.Grouping(c.query.Get("group_by")),
	}, nil
}

// presentTraffic returns the JSON form of a row. hasLatency is false for rows of
// single keys or subjects, for which no latencies are kept.
func presentTraffic(r *traffic.Row, hasLatency bool) trafficRowRecord {
	out := trafficRowRecord{
		Start: r.Start.UTC(), Group: optionalText(r.Group), IssuerID: r.IssuerID, Requests: r.Requests,
		Status2xx: r.Status[0], Status3xx: r.Status[1], Status4xx: r.Status[2], Status5xx: r.Status[3],
		Limited: r.Limited, Unauthorized: r.Unauthorized, Forbidden: r.Forbidden, UpstreamErrors: r.UpstreamErrors,
		BytesIn: r.BytesIn, BytesOut: r.BytesOut, Meters: presentAmounts(r.Meters),
	}
	if hasLatency {
		out.LatencyMS, out.UpstreamLatencyMS = presentLatencies(r.Latency), presentLatencies(r.Upstream)
	}
	return out
}

func presentAmounts(amounts traffic.Amounts) map[string]int64 {
	out := make(map[string]int64, len(amounts))
	for _, a := range amounts {
		out[a.Meter] = a.Units
	}
	return out
}

// presentLatencies returns zeros if there were no requests.
func presentLatencies(q *traffic.Quantiles) *latenciesRecord {
	if q == nil {
		return &latenciesRecord{}
	}
	return &latenciesRecord{P50: q.P50, P90: q.P90, P95: q.P95, P99: q.P99}
}
