// Package traffic counts requests and measures their latency (contract, section
// 7, traffic report).
package traffic

import "time"

// Interval is the length of a report's rows.
type Interval time.Duration

// The intervals.
const (
	Minute = Interval(time.Minute)
	Hour   = Interval(time.Hour)
	Day    = Interval(24 * time.Hour)
)

// Grouping is what a report's rows are told apart by, beside time.
type Grouping string

// The groupings.
const (
	Together  Grouping = ""
	ByGateway Grouping = "gateway"
	ByRoute   Grouping = "route"
	ByKey     Grouping = "key"
	ByStatus  Grouping = "status"
)

// Query asks for a report. Since is included, Until is not.
type Query struct {
	GatewayID, RouteID, KeyID string // "" does not filter
	Since, Until              time.Time
	Interval                  Interval
	Group                     Grouping
}

// Row is one interval of one group.
type Row struct {
	Start          time.Time
	Group          string // an identifier or a status code; "" for what has none
	Requests       int64
	Status         [4]int64 // 2xx to 5xx
	Limited        int64    // 429
	Unauthorized   int64    // 401
	Forbidden      int64    // 403
	UpstreamErrors int64    // 502 and 504 of ours, and upstream 5xx
	BytesIn        int64
	BytesOut       int64
	Latency        *Quantiles // nil grouped by key, and where nothing was measured
	Upstream       *Quantiles
}

// Quantiles are latencies in milliseconds.
type Quantiles struct{ P50, P90, P95, P99 float64 }
