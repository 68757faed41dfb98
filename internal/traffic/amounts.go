package traffic

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

const (
	// MaxMeters is the number of meters that are told apart in the counts of an account and interval,
	// and in a report. Units of further meters are counted together, as those of OtherMeter.
	MaxMeters = 64
	// OtherMeter stands for the meters beyond MaxMeters. An account may also have a meter of that name.
	OtherMeter = "other"
)

// Amount is units of a meter that requests were charged by the costs of their routes.
type Amount struct {
	Meter string
	Units int64
}

// Add adds units, which are not negative. The sum stops at the largest number: costs of 2⁵³ − 1 could overflow.
func (a *Amount) Add(units int64) { a.Units += min(units, math.MaxInt64-a.Units) }

// Amounts has each meter once, with more than 0 units.
type Amounts []Amount

// Add adds units, which are not negative. It reports whether the meter was not there before.
func (a *Amounts) Add(meter string, units int64) (isNew bool) {
	if units <= 0 {
		return false
	}
	for i := range *a {
		if known := &(*a)[i]; known.Meter == meter {
			known.Add(units)
			return false
		}
	}
	*a = append(*a, Amount{meter, units})
	return true
}

// sort orders the amounts by meter.
func (a Amounts) sort() {
	slices.SortFunc(a, func(x, y Amount) int { return cmp.Compare(x.Meter, y.Meter) })
}

// Meters tells the first MaxMeters meters apart. The zero value has none.
type Meters struct{ names []string }

// Of returns the name of a meter, in memory of its own, or OtherMeter.
func (m *Meters) Of(meter string) string {
	for _, name := range m.names {
		if name == meter {
			return name
		}
	}
	if len(m.names) >= MaxMeters {
		return OtherMeter
	}
	m.names = append(m.names, strings.Clone(meter))
	return m.names[len(m.names)-1]
}

// Reset forgets all meters, and keeps the memory.
func (m *Meters) Reset() { m.names = m.names[:0] }
