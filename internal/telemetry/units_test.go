package telemetry

import (
	"fmt"
	"testing"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/cost"
)

// Guarantee: a series tells 8 meters apart and adds up the others, over all scrapes; its number of lines is known before.
func TestMetersOfSeriesAreBounded(t *testing.T) {
	h := newRequestsHarness(t)
	s := h.series[seriesKey{gateway: number(1), route: number(2)}]
	for round := range 3 {
		for n := range 20 {
			e := record(1, 2)
			e.Cost = string(accesslog.AppendCost(nil, &accesslog.Cost{Meter: fmt.Sprintf("m%d_%d", round, n), Units: 1 << 53, Unknown: cost.Missing.String()}))
			h.Take([]accesslog.Entry{e})
		}
		lines := s.countLines()
		shown(h.registry, "")
		if got := s.countLines(); got != lines {
			t.Errorf("the series has %d lines, want %d as before the scrape", got, lines)
		}
	}
	sum := 0.0
	for _, one := range s.total.costs.units {
		sum += one.units
	}
	if n, want := len(s.total.costs.units), 60*float64(1<<53)+1207; n != metersOfSeries+1 || s.total.costs.units[metersOfSeries].meter != otherLabel || sum != want {
		t.Errorf("got %d meters with %v units: %v; want %d, the last %q, with %v", n, sum, s.total.costs.units, metersOfSeries+1, otherLabel, want)
	}
}

// Guarantee: a meter that has the name of the sum of other meters has one series with it.
func TestMeterWithTheNameOther(t *testing.T) {
	var pending, total costs
	for n := range 12 {
		pending.add([]string{otherLabel, fmt.Sprint("m", n)}[min(n, 1)], 1)
	}
	pending.moveTo(&total)
	if n := len(total.units); n != metersOfSeries || total.units[0] != (meterUnits{otherLabel, 5}) {
		t.Errorf("got %d meters, the first %v, want %d, the first with 5 units", n, total.units[0], metersOfSeries)
	}
}

// Guarantee: every reason for an unknown cost has a series of its own.
func TestReasonsOfUnknownCostsAreCounted(t *testing.T) {
	var c costs
	for _, r := range cost.Reasons() {
		c.count(string(accesslog.AppendCost(nil, &accesslog.Cost{Meter: "tokens", Unknown: r.String()})))
		if c.unknown[r] != 1 {
			t.Errorf("%s: got %d, want 1", r, c.unknown[r])
		}
	}
	c.count(string(accesslog.AppendCost(nil, &accesslog.Cost{Meter: "tokens", Unknown: "of a later version"})))
	total := uint64(0)
	for _, n := range c.unknown {
		total += n
	}
	if int(total) != len(cost.Reasons()) {
		t.Errorf("%d unknown costs are counted, want %d", total, len(cost.Reasons()))
	}
}
