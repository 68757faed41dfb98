package telemetry

import (
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/cost"
)

// metersOfSeries is the number of meters that a series tells apart, in the order in which they come. A route has at most
// cost.MaxRules at a time.
const metersOfSeries = 8

// unknownReasons is the number of reasons for unknown costs, and one for cost.None.
const unknownReasons = int(cost.Missing) + 1

// costs is what the costs of requests were. The zero value is empty.
type costs struct {
	units   []meterUnits // at most metersOfSeries, and those of others
	unknown [unknownReasons]uint64
}

// meterUnits is units of a meter.
type meterUnits struct {
	meter string
	units float64 // many costs of 2⁵³ − 1 would overflow a whole number
}

// count adds the costs of a request.
func (c *costs) count(text string) {
	for one := range accesslog.Costs(text) {
		if one.Units > 0 {
			c.add(one.Meter, float64(one.Units))
		}
		if reason := cost.ReasonOf(one.Unknown); reason != cost.None {
			c.unknown[reason]++
		}
	}
}

// add adds units. It keeps no memory of meter.
func (c *costs) add(meter string, units float64) {
	i := c.index(meter)
	if i < 0 && len(c.units) >= metersOfSeries {
		meter = otherLabel // a meter may have this name, too
		i = c.index(meter)
	}
	if i < 0 {
		i = len(c.units)
		c.units = append(c.units, meterUnits{meter: strings.Clone(meter)})
	}
	c.units[i].units += units
}

// moveTo adds c to another, and empties c.
func (c *costs) moveTo(to *costs) {
	for i, one := range c.units {
		to.add(one.meter, one.units)
		c.units[i] = meterUnits{}
	}
	c.units = c.units[:0]
	move(c.unknown[:], to.unknown[:])
}

// countLines returns the number of lines of c with what is still to be added.
func (c *costs) countLines(pending *costs) int {
	n := len(c.units)
	for _, one := range pending.units {
		if c.index(one.meter) < 0 {
			n++
		}
	}
	n = min(n, metersOfSeries+1)
	for i := range c.unknown {
		if c.unknown[i]+pending.unknown[i] > 0 {
			n++
		}
	}
	return n
}

// index returns the index of a meter, or -1.
func (c *costs) index(meter string) int {
	return slices.IndexFunc(c.units, func(one meterUnits) bool { return one.meter == meter })
}
