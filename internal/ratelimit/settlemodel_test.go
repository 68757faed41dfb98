package ratelimit_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/ratelimit/quotatest"
)

// settleStep is one step of TestSettlementModel.
type settleStep struct {
	kind          string
	node, request int
	units         int64
}

// settledRequest is a request in flight.
type settledRequest struct {
	charge *ratelimit.Charge
	node   *quotaNode
	window time.Time
	taken  int64
}

// settleModel is what a quota must do whose requests use more or less than they reserve.
type settleModel struct {
	t        *testing.T
	store    *quotatest.Store
	nodes    []*quotaNode
	terms    *ratelimit.QuotaTerms
	used     map[time.Time]int64 // by the start of the window: what ended requests have used, and what others have taken
	over     map[time.Time]int64 // what requests have used beyond what they reserved
	inFlight []*settledRequest
}

// Guarantee: a request that reserves units is refused only if what is used, with what requests in flight have taken,
// leaves less than it reserves, and passes only if it leaves as much. When it ends, the window in which it was decided has
// what it has used, to the unit, however late it ends and whatever it reserved.
func TestSettlementModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		nodes := rapid.IntRange(1, 3).Draw(rt, "nodes")
		count := rapid.SampledFrom([]int64{1, 50, 1000, 30_000}).Draw(rt, "count")
		kinds := []string{"begin", "begin", "begin", "begin", "extend", "end", "end", "end", "release", "sleep", "sleep", "next window", "next window", "minutes"}
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) settleStep {
			return settleStep{
				kind: rapid.SampledFrom(kinds).Draw(rt, "kind"), node: rapid.IntRange(0, nodes-1).Draw(rt, "node"),
				request: rapid.IntRange(0, 9).Draw(rt, "request"), units: rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, count+5)).Draw(rt, "units"),
			}
		}), 1, 30).Draw(rt, "steps")
		var problem string
		synctest.Test(t, func(t *testing.T) {
			m := &settleModel{t: t, store: quotatest.New(), terms: monthly(count), used: map[time.Time]int64{}, over: map[time.Time]int64{}}
			m.terms.Calendar.Unit = calendar.Day
			for i := range nodes {
				m.nodes = append(m.nodes, startQuotas(t, m.store, fmt.Sprint("process", i), nodes))
			}
			problem = m.run(steps)
		})
		if problem != "" {
			rt.Fatal(problem)
		}
	})
}

func (m *settleModel) run(steps []settleStep) (problem string) {
	for i, s := range steps {
		if problem := m.step(s); problem != "" {
			return fmt.Sprintf("step %d, %+v: %s", i, s, problem)
		}
	}
	for len(m.inFlight) > 0 {
		m.end(0, m.inFlight[0].taken)
	}
	for _, n := range m.nodes {
		n.stop()
	}
	for start, want := range m.used {
		if w := m.store.WindowAt(aKey(), start); w.All.Reserved != 0 || w.All.Taken != want {
			return fmt.Sprintf("the store has %+v of the window from %s, want %d used", w.All, start, want)
		}
	}
	return ""
}

func (m *settleModel) step(s settleStep) (problem string) {
	switch s.kind {
	case "begin":
		return m.begin(m.nodes[s.node], s.units)
	case "sleep":
		pass(time.Second)
	case "minutes":
		if s.request == 0 { // seldom, since a keeper works ten times a second
			pass(12 * time.Minute) // idle quotas are dropped
		}
	case "next window":
		_, end := m.terms.Calendar.Window(time.Now())
		pass(time.Until(end))
	default:
		if len(m.inFlight) == 0 {
			return ""
		}
		i := s.request % len(m.inFlight)
		switch r := m.inFlight[i]; s.kind {
		case "extend":
			r.node.limits.Extend(r.charge, &ratelimit.Used{ratelimit.UseBytesOut: s.units})
			if s.units > r.taken {
				m.add(r, s.units)
				r.taken = s.units
			}
		case "end":
			m.end(i, s.units)
		case "release":
			r.node.limits.Release(r.charge)
			r.node.limits.Settle(r.charge, &ratelimit.Used{ratelimit.UseBytesOut: 9}) // has no effect
			m.used[r.window] -= r.taken
			m.drop(i)
		}
		if len(m.nodes) > 1 {
			pass(time.Second) // until other processes know
		}
	}
	return ""
}

// end ends a request that has used units.
func (m *settleModel) end(i int, units int64) {
	r := m.inFlight[i]
	r.node.limits.Settle(r.charge, &ratelimit.Used{ratelimit.UseBytesOut: units})
	r.node.limits.Settle(r.charge, &ratelimit.Used{ratelimit.UseBytesOut: units + 9}) // has no effect
	m.add(r, units)
	m.drop(i)
}

// add notes that a request has used units.
func (m *settleModel) add(r *settledRequest, units int64) {
	m.used[r.window] += units - r.taken
	m.over[r.window] += max(0, units-r.taken)
}

func (m *settleModel) drop(i int) { m.inFlight = append(m.inFlight[:i], m.inFlight[i+1:]...) }

func (m *settleModel) begin(n *quotaNode, reserve int64) (problem string) {
	c, result, err := n.askUse(m.terms, ratelimit.UseBytesOut, reserve)
	window, _ := m.terms.Calendar.Window(time.Now())
	room := m.terms.Count - m.used[window]
	over := int64(0)
	if len(m.nodes) > 1 {
		over = m.over[window] // units that this process has taken in the store before
	}
	switch {
	case err != nil:
		return err.Error()
	case result == ratelimit.Admitted && reserve > room+over:
		return fmt.Sprintf("passed, but %d are left", room)
	case result == ratelimit.Refused && reserve <= room:
		return fmt.Sprintf("refused, but %d are left", room)
	case result == ratelimit.Refused:
		if s := c.Worst(); len(m.nodes) == 1 && (s.Left != max(0, room) || s.Needed != reserve) {
			return fmt.Sprintf("says that %d of %d needed are left, want %d", s.Left, s.Needed, room)
		}
		return ""
	}
	m.used[window] += reserve
	m.inFlight = append(m.inFlight, &settledRequest{c, n, window, reserve})
	return ""
}
