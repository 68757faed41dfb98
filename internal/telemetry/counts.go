package telemetry

import (
	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/ratelimit"
)

// counts is what is counted about requests. The zero value is empty.
type counts struct {
	statuses          [6]uint64 // by the first digit; 0 is for invalid ones
	limited           [ratelimit.ReportedScopes]uint64
	upstream          [upstreamReasons]uint64
	bytesIn, bytesOut int64

	took, upstreamTook histogram
	costs              costs
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

// count adds a request that ended.
func (c *counts) count(scale *scale, e *accesslog.Entry) {
	if class := int(e.Status / 100); class < len(c.statuses) {
		c.statuses[class]++
	} else {
		c.statuses[0]++
	}
	c.bytesIn += e.BytesIn
	c.bytesOut += e.BytesOut
	if scope := ratelimit.Scope(e.LimitScope).Reported(); e.Result == accesslog.Limited && int(scope) < len(c.limited) {
		c.limited[scope]++
	}
	switch {
	case e.Result == accesslog.Unreachable:
		c.upstream[reasonUnreachable]++
	case e.Result == accesslog.TimedOut:
		c.upstream[reasonTimeout]++
	case e.UpstreamStatus >= 500:
		c.upstream[reasonStatus]++
	}
	if e.Status != switching { // the duration of a tunnel says nothing
		c.took.observe(scale, e.Duration)
	}
	if e.Upstream >= 0 {
		c.upstreamTook.observe(scale, e.Upstream)
	}
	if e.Cost != "" {
		c.costs.count(e.Cost)
	}
}

const switching = 101

// moveTo adds c to another, and empties c. c keeps its memory for later counts.
func (c *counts) moveTo(to *counts) {
	move(c.statuses[:], to.statuses[:])
	move(c.limited[:], to.limited[:])
	move(c.upstream[:], to.upstream[:])
	to.bytesIn, to.bytesOut = to.bytesIn+c.bytesIn, to.bytesOut+c.bytesOut
	c.bytesIn, c.bytesOut = 0, 0
	c.took.moveTo(&to.took)
	c.upstreamTook.moveTo(&to.upstreamTook)
	c.costs.moveTo(&to.costs)
}

// move adds the numbers of from to the numbers of to, and sets from to 0.
func move(from, to []uint64) {
	for i, n := range from {
		to[i] += n
		from[i] = 0
	}
}

// The lines of a series in the text format.
const (
	// linesOfHistogram is the number of lines of a histogram: one for each classic bucket, for the
	// bucket without a bound, for the sum and for the count.
	linesOfHistogram = 12 + 3
	// linesOfNew is the assumed number of lines of a new series: one status, bytes in and out, two
	// histograms and keygate_route_info.
	linesOfNew = 1 + 2 + 2*linesOfHistogram + 1
	// mostLines is the largest number of lines of a series, with every status, refusal, reason and meter.
	mostLines = linesOfNew - 1 + 6 + ratelimit.ReportedScopes + upstreamReasons + metersOfSeries + 1 + unknownReasons - 1
)

// countLines returns the number of lines that s has at the next scrape.
func (s *series) countLines() int {
	n := 2 + 1 + s.total.costs.countLines(&s.pending.costs)
	used := func(a, b uint64) {
		if a+b > 0 {
			n++
		}
	}
	for i := range s.total.statuses {
		used(s.total.statuses[i], s.pending.statuses[i])
	}
	for i := range s.total.limited {
		used(s.total.limited[i], s.pending.limited[i])
	}
	for i := range s.total.upstream {
		used(s.total.upstream[i], s.pending.upstream[i])
	}
	if s.total.took.count+s.pending.took.count > 0 {
		n += linesOfHistogram
	}
	if s.total.upstreamTook.count+s.pending.upstreamTook.count > 0 {
		n += linesOfHistogram
	}
	return n
}
