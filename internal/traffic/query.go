package traffic

import (
	"bytes"
	"cmp"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
)

// The retention of the counts of each tier, and of the counts of single seconds.
const (
	MinutesKept = 48 * time.Hour
	HoursKept   = 35 * 24 * time.Hour
	DaysKept    = 400 * 24 * time.Hour
	SecondsKept = 24 * time.Hour
)

// maxRows is the maximum number of rows of a report.
const maxRows = 50_000

// plan is a validated query.
type query struct {
	Query
	chunks    ChunkQuery
	length    int64 // seconds of an interval
	intervals int
	filter    Identity // zero fields do not filter
	nothing   bool     // an identifier of the filter is malformed, so nothing matches
	latencies bool

	texts   []string // of groups
	indexes map[string]uint32
}

// newPlan validates q. The default Interval is a minute, the default Until is now, and the
// default Since is 60 minutes, 24 hours or 30 days before Until. The report has every
// interval that overlaps the time between them.
func newQuery(accountID string, q Query, now time.Time) (*query, error) {
	q.Interval = cmp.Or(q.Interval, Minute)
	tier, back, keep := Minutes, time.Hour, MinutesKept
	switch q.Interval {
	case Minute:
	case Hour:
		tier, back, keep = Hours, 24*time.Hour, HoursKept
	case Day:
		tier, back, keep = Days, 30*24*time.Hour, DaysKept
	default:
		return nil, fault.Invalid("interval", "must be 1m, 1h or 1d")
	}
	if q.Until.IsZero() {
		q.Until = now.Add(time.Microsecond)
	}
	if q.Since.IsZero() {
		q.Since = q.Until.Add(-back)
	}
	if !q.Since.Before(q.Until) {
		return nil, fault.Invalid("since", "must be before until")
	}
	p := &query{Query: q, length: tier.Length()}
	from := floor(q.Since.Unix(), p.length)
	// One interval more, since now has passed on since the client computed since.
	if oldest := floor(now.Add(-keep).Unix(), p.length); from < oldest-p.length {
		return nil, tooOld(q.Interval, oldest)
	}
	before := ceil(q.Until, p.length)
	if (before-from)/p.length > maxRows {
		return nil, tooMany()
	}
	p.intervals = int((before - from) / p.length)
	if err := q.checkSubjects(); err != nil {
		return nil, err
	}
	if err := q.checkTargets(); err != nil {
		return nil, err
	}
	p.filter, p.nothing = q.filter()
	p.chunks = ChunkQuery{AccountID: accountID, Tier: tier, From: from, Before: before}
	p.choosePart()
	return p, nil
}

// choosePart chooses the smallest part that has the data of the query.
func (p *query) choosePart() {
	var only *[16]byte
	switch {
	case p.Group == BySubject:
		p.chunks.Part, only = Subjects, &p.filter.Gateway
	case p.Upstream != "" || p.Target != "" || p.Group.ofTargets():
		p.chunks.Part, only = Targets, &p.filter.Gateway
	case p.KeyID != "" || p.Group == ByKey:
		p.chunks.Part, only = Keys, &p.filter.Key
	case p.RouteID != "" || p.Group == ByRoute:
		p.chunks.Part, only = Routes, &p.filter.Route
	default:
		p.chunks.Part, only = Gateways, &p.filter.Gateway
	}
	if *only != ([16]byte{}) {
		p.chunks.Only = only
	}
	p.latencies = p.chunks.Part.hasLatencies()
	p.chunks.Tier = p.chunks.Part.In(p.chunks.Tier)
}

// checkSubjects checks that a report by subject is of all requests of one or all gateways: others are not counted by subject.
func (q *Query) checkSubjects() error {
	if q.Group != BySubject {
		return nil
	}
	for _, filter := range []struct{ name, value string }{{"route_id", q.RouteID}, {"key_id", q.KeyID}, {"upstream", q.Upstream}, {"target", q.Target}} {
		if filter.value != "" {
			return fault.Invalid(filter.name, "cannot be combined with group_by=subject: leave one of them out")
		}
	}
	return nil
}

// checkTargets checks that what a query asks of upstreams and targets is counted together.
func (q *Query) checkTargets() error {
	if q.Upstream != "" && q.GatewayID == "" {
		return fault.Invalid("gateway_id", "must be given with upstream, because the name of an upstream belongs to a gateway")
	}
	what := ""
	switch {
	case q.Upstream != "":
		what = "upstream"
	case q.Target != "":
		what = "target"
	case q.Group.ofTargets():
		what = "group_by=" + string(q.Group)
	}
	switch {
	case what == "":
		return nil
	case q.RouteID != "":
		return fault.Invalid("route_id", "cannot be combined with %s: leave one of them out", what)
	case q.KeyID != "":
		return fault.Invalid("key_id", "cannot be combined with %s: leave one of them out", what)
	case q.Group == ByRoute || q.Group == ByKey:
		return fault.Invalid("group_by", "cannot be %s with %s: use gateway, upstream or target, or leave %s out", q.Group, what, what)
	}
	return nil
}

// filter parses the identifiers. nothing is whether one is malformed.
func (q *Query) filter() (f Identity, nothing bool) {
	for _, m := range []struct {
		kind id.Kind
		text string
		to   *[16]byte
	}{{id.Gateway, q.GatewayID, &f.Gateway}, {id.Route, q.RouteID, &f.Route}, {id.Key, q.KeyID, &f.Key}} {
		if m.text == "" {
			continue
		}
		u, ok := id.Parse(m.kind, m.text)
		nothing = nothing || !ok || u == [16]byte{}
		*m.to = u
	}
	return f, nothing
}

// passes reports whether the filter matches an entry.
func (p *query) passes(e *row) bool {
	return (p.GatewayID == "" || e.Gateway == p.filter.Gateway) &&
		(p.RouteID == "" || e.Route == p.filter.Route) &&
		(p.KeyID == "" || e.Key == p.filter.Key) &&
		(p.Upstream == "" || e.to.Upstream == p.Upstream) &&
		(p.Target == "" || e.to.Target == p.Target)
}

// group returns the group of an entry.
func (p *query) group(e *row) (g group) {
	switch p.Group {
	case ByGateway:
		g.id = e.Gateway
	case ByRoute:
		g.id = e.Route
	case ByKey:
		g.id = e.Key
	case ByStatus:
		g.status = e.Status
	case ByUpstream:
		g.text = p.index(e.to.Upstream)
	case ByTarget:
		g.text = p.index(e.to.Target)
	case BySide:
		g.text = p.index(e.to.Side)
	case BySubject:
		g.text = p.index(e.to.Target + "\x00" + e.to.Upstream)
	}
	return g
}

// index returns the text of a group as the group has it.
func (p *query) index(text string) uint32 {
	if text == "" {
		return 0
	}
	index := p.indexes[text]
	if index == 0 {
		if p.indexes == nil {
			p.indexes = map[string]uint32{}
		}
		p.texts = append(p.texts, text)
		index = uint32(len(p.texts))
		p.indexes[text] = index
	}
	return index
}

// text returns the text of a group.
func (p *query) text(g group) string {
	if g.text == 0 {
		return ""
	}
	return p.texts[g.text-1]
}

// compare orders groups.
func (p *query) compare(a, b group) int {
	return cmp.Or(bytes.Compare(a.id[:], b.id[:]), cmp.Compare(a.status, b.status), cmp.Compare(p.text(a), p.text(b)))
}

// tooOld returns the error for a since before the retention. It names the earliest since,
// and the next longer interval.
func tooOld(i Interval, oldest int64) error {
	switch since := time.Unix(oldest, 0).UTC().Format(time.RFC3339); i {
	case Minute:
		return fault.Invalid("interval", "minutes are kept for 48 hours: set since to %s or later, or the interval to 1h", since)
	case Hour:
		return fault.Invalid("interval", "hours are kept for 35 days: set since to %s or later, or the interval to 1d", since)
	default:
		return fault.Invalid("since", "days are kept for 400 days: set since to %s or later", since)
	}
}

func tooMany() error {
	return fault.Invalid("since", "the report would have more than %d rows: set a later since, a longer interval or a filter", maxRows)
}

// floor returns the start of the interval with the given Unix second.
func floor(second, length int64) int64 {
	m := second % length
	if m < 0 {
		m += length
	}
	return second - m
}

// ceil returns the end of the interval with the last moment before t.
func ceil(t time.Time, length int64) int64 {
	return floor(t.Add(-1).Unix(), length) + length
}
