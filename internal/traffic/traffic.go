// Package traffic defines the traffic reports and their stored form: counts of requests,
// sums of bytes and latency sketches, by interval (contract, section 7). Its package meter
// counts and writes them.
package traffic

import "time"

// Interval is the length of the interval of a report's row.
type Interval time.Duration

// The intervals.
const (
	Minute = Interval(time.Minute)
	Hour   = Interval(time.Hour)
	Day    = Interval(24 * time.Hour)
)

// Grouping is what a report groups by, besides time.
type Grouping string

// The groupings.
const (
	Together  Grouping = ""
	ByGateway Grouping = "gateway"
	ByRoute   Grouping = "route"
	ByKey     Grouping = "key"
	ByStatus  Grouping = "status"
	// Those of Destination. The names of upstreams and sides belong to a gateway: in a report about several gateways, those
	// of the same name are counted together.
	ByUpstream Grouping = "upstream"
	ByTarget   Grouping = "target"
	BySide     Grouping = "side"
	// BySubject has the requests with a valid token, by its issuer and subject.
	BySubject Grouping = "subject"
)

// ofTargets reports whether g groups by something that only part Targets has.
func (g Grouping) ofTargets() bool { return g == ByUpstream || g == ByTarget || g == BySide }

// Query selects a report. Since is inclusive, Until exclusive.
type Query struct {
	GatewayID, RouteID, KeyID string // "" does not filter
	// Upstream is the name of an upstream of the gateway GatewayID, Target the host and port of a target. Both are those
	// to which requests were sent last. They do not go with RouteID or KeyID, and not with a report by route or key.
	Upstream, Target string
	Since, Until     time.Time
	Interval         Interval
	Group            Grouping
}

// Row is one interval of one group of a report.
type Row struct {
	Start          time.Time
	Group          string // an identifier, a status code, a text of Destination, or a subject; "" for requests without one
	IssuerID       string // of a subject; else ""
	Requests       int64
	Status         [4]int64 // 2xx to 5xx
	Limited        int64    // 429
	Unauthorized   int64    // 401
	Forbidden      int64    // 403
	UpstreamErrors int64    // 502 and 504 by Keygate, and 5xx responses of the upstream
	BytesIn        int64
	BytesOut       int64
	Meters         Amounts    // what was charged by the costs of routes, ordered by meter
	Latency        *Quantiles // nil if grouped by key or subject, or if nothing was measured
	Upstream       *Quantiles
}

// Quantiles are latencies in milliseconds.
type Quantiles struct{ P50, P90, P95, P99 float64 }
