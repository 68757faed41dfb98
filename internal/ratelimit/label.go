package ratelimit

// Label names a limit of a plan. A nil Label names none.
type Label struct {
	name  string // <plan>.<limit>
	item  string // the name in quotes
	meter string // "" for requests
	unit  string // the parameter qu of RateLimit-Policy
}

// The meters that every account has.
const (
	Requests = "requests"
	BytesIn  = "bytes_in"
	BytesOut = "bytes_out"
)

// UseOf returns what of a request a limit of the meter counts if the request has no cost of it: UseCost for nothing.
func UseOf(meter string) Use {
	switch meter {
	case Requests:
		return UseRequest
	case BytesIn:
		return UseBytesIn
	case BytesOut:
		return UseBytesOut
	default:
		return UseCost
	}
}

// NewLabel returns the label of a limit of a plan, which counts a meter. No name may have characters that a quoted
// string escapes.
func NewLabel(plan, limit, meter string) *Label {
	item := `"` + plan + "." + limit + `"`
	l := &Label{name: item[1 : len(item)-1], item: item, meter: meter, unit: `;qu="` + meter + `"`}
	switch UseOf(meter) {
	case UseRequest:
		l.meter = ""
	case UseBytesIn, UseBytesOut:
		l.unit = `;qu="content-bytes"`
	}
	return l
}

// Meter returns what the limit counts, if not requests; otherwise "".
func (l *Label) Meter() string {
	if l == nil {
		return ""
	}
	return l.meter
}

// LimitName returns what the property limit_name says of the limit, or "".
func (s *Status) LimitName() string {
	if s.Label != nil {
		return s.Label.name
	}
	return s.Scope.row().limit
}

// String returns the names of the plan and of the limit, as in "pro.per-minute".
func (l *Label) String() string {
	if l == nil {
		return ""
	}
	return l.name
}

// Exceeded returns what a refusal calls the limit, such as "the key's rate limit".
func (s *Status) Exceeded() string {
	switch {
	case s.Label == nil:
		return s.Scope.Exceeded()
	case s.Scope == ConcurrencyScope:
		return "the limit " + s.Label.name + " of the plan, of requests in flight,"
	default:
		return "the limit " + s.Label.name + " of the plan"
	}
}
