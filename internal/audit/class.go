package audit

// class is the number of a pair of kind and outcome.
type class uint8

// classes is the number of classes, which is the number of bits of a set of them.
const classes = 8

type pair struct {
	kind    Kind
	outcome Outcome
}

// pairs returns the kinds and outcomes of the classes, whose numbers are part of the stored format. A management record is
// always a Success. The last class was kept for another one before there was AddressNotAllowed, and was never stored.
func pairs() [classes]pair {
	return [classes]pair{
		{Authentication, Success}, {Authentication, KeyInvalid}, {Authentication, KeyExpired}, {Authentication, ScopeInsufficient},
		{Management, Success}, {Management, KeyInvalid}, {Management, KeyExpired}, {Authentication, AddressNotAllowed},
	}
}

// classOf returns the class of a record. ok is false if the kind or outcome is unknown.
func classOf(k Kind, o Outcome) (c class, ok bool) {
	for i, p := range pairs() {
		if p.kind == k && p.outcome == o {
			return class(i), true
		}
	}
	return 0, false
}

func (c class) kind() Kind       { return pairs()[c].kind }
func (c class) outcome() Outcome { return pairs()[c].outcome }
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
