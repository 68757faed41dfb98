package ratelimit

import (
	"context"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/calendar"
)

// QuotaName says, together with a subject, what a quota has counted: whatever the plan, and however its limit changes
// (plans.md, section 3).
type QuotaName struct {
	AccountID string
	Limit     string // name of the limit
	Meter     string
	Unit      calendar.Unit
}

// QuotaKey is a name with its subject: the identifier of an owner, or of a key's bucket.
type QuotaKey struct {
	QuotaName
	Subject string
}

// QuotaFigures are units that a process, or all of them, have taken of a quota in one window. Reserved is how many of
// Taken are not used yet, at most: a process that crashes loses them.
type QuotaFigures struct{ Taken, Reserved int64 }

// QuotaWindow is what the store has of one window of a quota. Its edges never change.
type QuotaWindow struct {
	Start, End time.Time
	All        QuotaFigures // of all processes
	Grants     int64        // units that were granted in addition
	Told       []int        // the percentages of which quota.threshold has told, in no order
}

// QuotaShare is what the store has of one process in a window, and of the others that live.
type QuotaShare struct {
	Own        QuotaFigures
	OthersHold int64 // reserved units of the other processes that live
}

// QuotaClaim is what a process claims of a quota. Its figures are absolute, so that a claim that is repeated, because its
// end is not known, changes nothing.
type QuotaClaim struct {
	QuotaKey
	Terms    *QuotaTerms
	Calendar calendar.Calendar // of the next window, if none has the present time
	Holder   QuotaHolder       // for events
	Window   time.Time         // start of the window that Own is of; zero if the process knows of none
	Own      QuotaFigures      // what the process has taken until now
	Want     int64             // units that it wants to take in addition
	Need     int64             // how many of these requests wait for, at most Want
	Quiet    bool              // it tells of no percentage: a later claim does

	// The answer, of the window that has the present time.
	Answer  QuotaWindow // All has all processes, with what was granted
	Share   QuotaShare  // Own has what was granted
	Granted int64       // of Want
	Passed  []int       // the percentages of which this claim is the first to tell
	Err     error       // why nothing of this claim was stored, though the others were
}

// QuotaHolder is the subject of a quota, for events. KeyID is "" for an owner, and the others are "" without one.
type QuotaHolder struct{ OwnerID, Owner, KeyID string }

// QuotaStore stores quotas. A node is a process here: it has a name that no other process ever had.
type QuotaStore interface {
	// ClaimQuotas writes what the process claims, all of it or nothing, and sets the answers. An error may come after it
	// was written. now is the time by the clock of the process, by which a store without a clock of its own goes; a store
	// with one returns its time. No other claim to the same quotas comes in between.
	//
	// The window of a claim is the one with the present time: a stored one, or else a new one from the end of the
	// previous, if that lies within the window of the calendar, to the end of the calendar's. Figures of another window
	// replace those that the process has there, and it then starts with what it had in the present one.
	//
	// If less than Need was granted and other processes hold units, these are asked to give them back.
	ClaimQuotas(ctx context.Context, process string, now time.Time, claims []QuotaClaim) (time.Time, error)
	// RecalledQuotas returns up to limit quotas of which this process holds units that other processes need.
	RecalledQuotas(ctx context.Context, process string, limit int) ([]QuotaKey, error)
	// RecallQuotas asks the other processes that live and hold units of the quotas to write what they have used, and to
	// give the rest back. It returns how many of them have not answered yet.
	RecallQuotas(ctx context.Context, process string, keys []QuotaKey) (waiting int, err error)
}

// Grant sets the answer to the claim. The store has window and share for the quota, of the window that has the present
// time; if c is of that window, its figures take the place of those of the share. The store must then write the figures
// of the answer.
//
// Beyond what requests wait for, no more is granted than all processes together may lose if all of them crash.
func (c *QuotaClaim) Grant(w QuotaWindow, s QuotaShare) {
	others := QuotaFigures{w.All.Taken - s.Own.Taken, w.All.Reserved - s.Own.Reserved}
	if c.Window.Equal(w.Start) {
		s.Own = c.Own
	}
	room := c.Terms.limit(w.Grants) - others.Taken - s.Own.Taken
	ahead := max(0, budgetOf(c.Terms.Count)-others.Reserved-s.Own.Reserved)
	c.Granted = max(0, min(c.Want, room, c.Need+ahead))
	s.Own.Taken += c.Granted
	s.Own.Reserved += c.Granted
	w.All = QuotaFigures{others.Taken + s.Own.Taken, others.Reserved + s.Own.Reserved}
	c.Passed = nil
	for _, percent := range c.Terms.WarnAt {
		if !c.Quiet && !slices.Contains(w.Told, percent) && w.Used() >= c.Terms.unitsAt(percent, w.Grants) {
			c.Passed = append(c.Passed, percent)
		}
	}
	w.Told = append(slices.Clone(w.Told), c.Passed...)
	c.Answer, c.Share = w, s
}

// Recalls reports whether the answer lacks units that other processes hold, which must be asked to give them back.
func (c *QuotaClaim) Recalls() bool { return c.Granted < c.Need && c.Share.OthersHold > 0 }

// Used returns how many units are used, at least.
func (w *QuotaWindow) Used() int64 { return w.All.Taken - w.All.Reserved }

// QuotaTerms is what a limit of a plan says of a quota. It is immutable.
type QuotaTerms struct {
	Plan     string // name of the plan
	Count    int64  // units of a window
	Allow    bool   // beyond the count, requests are counted and not refused
	WarnAt   []int  // percentages
	Calendar calendar.Calendar
}

// limit returns how many units may be taken of a window with the grants. If nothing is refused, that is MaxUnits.
func (t *QuotaTerms) limit(grants int64) int64 {
	if t.Allow {
		return MaxUnits
	}
	return t.Units(grants)
}

// Units returns how many units a window with the grants has.
func (t *QuotaTerms) Units(grants int64) int64 { return min(t.Count+grants, MaxUnits) }

// isTighter reports whether t allows less than o.
func (t *QuotaTerms) isTighter(o *QuotaTerms) bool {
	if t.Allow != o.Allow {
		return o.Allow
	}
	return t.Count < o.Count
}

// unitsAt returns how many units are a percentage of the count and the grants, rounded up.
func (t *QuotaTerms) unitsAt(percent int, grants int64) int64 {
	whole := t.Units(grants)
	return whole/100*int64(percent) + (whole%100*int64(percent)+99)/100
}

// MaxUnits is the largest count of a quota (plans.md, section 3). No more units are counted in a window.
const MaxUnits = 1<<53 - 1
