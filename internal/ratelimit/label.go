package ratelimit

// Label names a limit of a plan. A nil Label names none.
type Label struct {
	name string // <plan>.<limit>
	item string // the name in quotes
}

// NewLabel returns the label of a limit of a plan. Neither name may have characters that a quoted string escapes.
func NewLabel(plan, limit string) *Label {
	item := `"` + plan + "." + limit + `"`
	return &Label{name: item[1 : len(item)-1], item: item}
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
