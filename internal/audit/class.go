package audit

import "slices"

// class is the number of a pair of kind and outcome.
type class uint8

// classes is the number of classes.
const classes = 8

// The kinds and outcomes in the order of their numbers, which are part of the stored
// format: only append.
func kinds() [2]Kind { return [2]Kind{Authentication, Management} }

func outcomes() [4]Outcome { return [4]Outcome{Success, KeyInvalid, KeyExpired, ScopeInsufficient} }

// classOf returns the class of a record. ok is false if the kind or outcome is unknown.
func classOf(k Kind, o Outcome) (c class, ok bool) {
	ks, os := kinds(), outcomes()
	i, j := slices.Index(ks[:], k), slices.Index(os[:], o)
	return class(i*len(os) + j), i >= 0 && j >= 0
}

func (c class) kind() Kind       { return kinds()[c/4] }
func (c class) outcome() Outcome { return outcomes()[c%4] }
func (c class) notable() bool    { return c.kind() != Authentication || c.outcome() != Success }

// classes returns the set of classes that f matches, a bit for each.
func (f *Filter) classes() (set uint8) {
	for c := range class(classes) {
		if (f.Kind == "" || f.Kind == c.kind()) && (f.Outcome == "" || f.Outcome == c.outcome()) && (!f.Notable || c.notable()) {
			set |= 1 << c
		}
	}
	return set
}
