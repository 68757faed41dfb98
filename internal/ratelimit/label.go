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

// NewLabel returns the label of a limit of a plan, which counts a meter. No name may have characters that a quoted
// string escapes.
func NewLabel(plan, limit, meter string) *Label {
	item := `"` + plan + "." + limit + `"`
	l := &Label{name: item[1 : len(item)-1], item: item, meter: meter, unit: `;qu="` + meter + `"`}
	switch meter {
	case Requests:
		l.meter = ""
	case BytesIn, BytesOut:
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

// String returns the names of the plan and of the limit, as in "pro.per-minute".
func (l *Label) String() string {
	if l == nil {
		return ""
	}
	return l.name
}

// Exceeded returns what a refusal calls the limit, such as "the key's rate limit".
func (s *Status) Exceeded() string {
	if s.Label != nil {
		return "the limit " + s.Label.name + " of the plan"
	}
	return s.Scope.Exceeded()
}
