package audit

import "slices"

// class numbers the pairs of kind and outcome.
type class uint8

// classes is how many there are.
const classes = 8

// Kinds and outcomes in the order of their numbers, which stand in blocks on
// disk: add at the end alone.
func kinds() [2]Kind { return [2]Kind{Authentication, Management} }

func outcomes() [4]Outcome { return [4]Outcome{Success, KeyInvalid, KeyExpired, ScopeInsufficient} }

// classOf returns the class of a record; ok is false for a kind or outcome that
// is none.
func classOf(k Kind, o Outcome) (c class, ok bool) {
	ks, os := kinds(), outcomes()
	i, j := slices.Index(ks[:], k), slices.Index(os[:], o)
	return class(i*len(os) + j), i >= 0 && j >= 0
}

func (c class) kind() Kind       { return kinds()[c/4] }
func (c class) outcome() Outcome { return outcomes()[c%4] }

// classes returns the set of classes, a bit for each, that the filter lets pass.
func (f *Filter) classes() (set uint8) {
	for c := range class(classes) {
		if (f.Kind == "" || f.Kind == c.kind()) && (f.Outcome == "" || f.Outcome == c.outcome()) {
			set |= 1 << c
		}
	}
	return set
}
