package balance

import "time"

// MaxUntried is how many targets Attempts.Untried returns at most.
const MaxUntried = 4

// untried has the targets that a view leaves out because of their state. It is immutable.
type untried struct {
	all   []*Target
	first []Status // of the first, as many as Attempts.Untried may need: it leaves out those that were tried
}

// note notes that a target was left out. The caller holds the lock of the upstream.
func (o *untried) note(now time.Duration, t *entry, heeds bool) {
	if o.all = append(o.all, t.Target); len(o.all) <= MaxUntried+MaxAttempts {
		o.first = append(o.first, t.status(now, heeds, true))
	}
}

// leavesOut reports whether the state of a target, which has the level l, keeps it out of a view. best is the level of the targets
// in the view.
func leavesOut(l, best level, allUnhealthy bool) bool {
	switch l {
	case primaryUnknown, backupUnknown:
		return best == l-1
	case halfOpened, excluded:
		return !allUnhealthy
	case drains:
		return true
	case primary, backup:
	}
	return false
}

// Untried returns the first targets that the last Pick did not choose from because of their state, in the order of the
// configuration and as they were when that was looked at last, and how many there are in all. Those that an attempt of the
// request had are not among them. A half-open one may be: only one request at a time tries it.
func (a *Attempts) Untried() (first []Status, count int) {
	if a.seen == nil {
		return nil, 0
	}
	for _, t := range a.seen.untried.all {
		if !a.hasTried(t) {
			count++
		}
	}
	for i := range a.seen.untried.first {
		if s := &a.seen.untried.first[i]; len(first) < MaxUntried && !a.hasTried(s.Target) {
			first = append(first, *s)
		}
	}
	return first, count
}
