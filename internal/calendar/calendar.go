// Package calendar divides time into calendar windows: days, weeks and months of a time zone (plans.md, section 4).
package calendar

import (
	"fmt"
	"iter"
	"sync"
	"time"
	_ "time/tzdata" // zones do not depend on the machine

	"github.com/keygate/keygate/internal/fault"
)

// Unit is the kind of a window. The numbers are stored, so they never change.
type Unit uint8

// The units.
const (
	Day   Unit = iota + 1
	Week       // from Monday
	Month      // from the anchor day
	Total      // one window that never ends
)

// String returns the unit as it is written after the count of a quota.
func (u Unit) String() string {
	switch u {
	case Day:
		return "day"
	case Week:
		return "week"
	case Month:
		return "month"
	default:
		return "total"
	}
}

// ParseUnit parses what String returns. The error is a validation error.
func ParseUnit(text string) (Unit, error) {
	for u := Day; u <= Total; u++ {
		if u.String() == text {
			return u, nil
		}
	}
	return 0, fault.Invalid("", "%.32q is not a window: use day, week, month or total", text)
}

// zones has the zones that were loaded, by name: each takes some kilobytes.
var zones sync.Map //nolint:gochecknoglobals // a cache of what never changes, with an entry for each zone at most

// Zone returns the time zone with an IANA name. The error says that there is none.
func Zone(name string) (*time.Location, error) {
	if z, ok := zones.Load(name); ok {
		return z.(*time.Location), nil
	}
	z, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("time zone %.64q: %w", name, err)
	}
	known, _ := zones.LoadOrStore(name, z)
	return known.(*time.Location), nil
}

// Forever is the end of the window of Total.
func Forever() time.Time { return time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) }

// Calendar is how a quota divides time. Anchor is the day of the month on which months begin, 1 to 28.
type Calendar struct {
	Unit   Unit
	Zone   *time.Location
	Anchor int
}

// Window returns the window that has t: from start until just before end. A window begins at the first instant of a
// local date. If the clocks go back over midnight, the instants that show the earlier date once more belong to the
// later window. A date that the zone leaves out has no window.
func (c Calendar) Window(t time.Time) (start, end time.Time) {
	if c.Unit == Total {
		return time.Unix(0, 0).UTC(), Forever()
	}
	first := c.after(c.floor(t.In(c.Zone)))
	for end = c.begin(first); ; end = start {
		earlier := c.before(first)
		if start = c.begin(earlier); !start.After(t) {
			return start, end
		}
		first = earlier
	}
}

// Between returns the window that has the time, as far as there is room for it between other windows, which do not have the
// time: after a change of the zone or the anchor, the next window begins where the last one has ended.
func (c Calendar) Between(at time.Time, others iter.Seq2[time.Time, time.Time]) (start, end time.Time) {
	start, end = c.Window(at)
	for from, to := range others {
		if !to.After(at) && to.After(start) {
			start = to
		}
		if from.After(at) && from.Before(end) {
			end = from
		}
	}
	return start, end
}

// floor returns the date on which the window of the local date of t begins. Dates are midnights in UTC.
func (c Calendar) floor(t time.Time) time.Time {
	y, m, d := t.Date()
	switch c.Unit {
	case Week:
		d -= (int(t.Weekday()) + 6) % 7
	case Month:
		if d < c.Anchor {
			m--
		}
		d = c.Anchor
	}
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}

// after returns the date on which the next window begins, and before that of the previous one.
func (c Calendar) after(date time.Time) time.Time  { return c.step(date, 1) }
func (c Calendar) before(date time.Time) time.Time { return c.step(date, -1) }

func (c Calendar) step(date time.Time, n int) time.Time {
	switch c.Unit {
	case Week:
		return date.AddDate(0, 0, 7*n)
	case Month:
		return date.AddDate(0, n, 0)
	default:
		return date.AddDate(0, 0, n)
	}
}

// begin returns the first instant whose local date is date, or a later one if the zone leaves that date out.
func (c Calendar) begin(date time.Time) time.Time {
	t := date.Add(-26 * time.Hour).In(c.Zone) // no zone is as much ahead of UTC
	for {
		_, offset := t.Zone()
		midnight := date.Add(-time.Duration(offset) * time.Second)
		if midnight.Before(t) {
			midnight = t
		}
		_, next := t.ZoneBounds()
		if next.IsZero() || midnight.Before(next) {
			return midnight.UTC()
		}
		t = next
	}
}

// Own is the zone and the anchor that a subject has of its own. A nil Zone and the Anchor 0 stand for those of the plan.
type Own struct {
	Zone   *time.Location
	Anchor int
}

// With returns the calendar with what o, which may be nil, has of its own.
func (c Calendar) With(o *Own) Calendar {
	if o != nil && o.Zone != nil {
		c.Zone = o.Zone
	}
	if o != nil && o.Anchor != 0 {
		c.Anchor = o.Anchor
	}
	return c
}
