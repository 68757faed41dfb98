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

// quotaStep is one step of TestQuotaModel.
type quotaStep struct {
	kind           string
	node           int
	amount, number int64
}

// quotaModel is what a quota must do: it knows what every request has used.
type quotaModel struct {
	t     *testing.T
	store *quotatest.Store
	nodes []*quotaNode
	terms *ratelimit.QuotaTerms

	window             time.Time // start of the window
	used, grants, lost int64     // in the window; lost is what crashes may have lost
	highest            int64     // the largest count of the window
	charges            []*ratelimit.Charge
	starts             []time.Time // the windows of the charges
	processes          int
}

// TestQuotaModel compares a quota on up to three processes, one request after the other, with the model: nothing passes
// beyond count and grants, and nothing is refused that fits, but for what crashes have lost: a hundredth or one unit.
func TestQuotaModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		nodes := rapid.IntRange(1, 3).Draw(rt, "nodes")
		count := rapid.SampledFrom([]int64{1, 3, 50, 199, 200, 1000, 30_000}).Draw(rt, "count")
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) quotaStep {
			return quotaStep{
				kind: rapid.SampledFrom([]string{"ask", "ask", "ask", "ask", "many", "release", "grant", "count", "sleep", "crash", "restart", "next window"}).Draw(rt, "kind"),
				node: rapid.IntRange(0, nodes-1).Draw(rt, "node"), amount: rapid.Int64Range(1, 3).Draw(rt, "amount"), number: rapid.Int64Range(1, 400).Draw(rt, "number"),
			}
		}), 1, 40).Draw(rt, "steps")
		var problem string
		synctest.Test(t, func(t *testing.T) { problem = runQuotaModel(t, nodes, count, steps) })
		if problem != "" {
			rt.Fatal(problem)
		}
	})
}

func runQuotaModel(t *testing.T, nodes int, count int64, steps []quotaStep) (problem string) {
	m := &quotaModel{t: t, store: quotatest.New(), terms: monthly(count)}
	m.terms.Calendar.Unit = calendar.Day
	m.enter()
	for range nodes {
		m.nodes = append(m.nodes, nil)
	}
	for i := range nodes {
		m.begin(i)
	}
	for i, s := range steps {
		if problem := m.step(s); problem != "" {
			return fmt.Sprintf("step %d, %+v: %s", i, s, problem)
		}
	}
	return ""
}

func (m *quotaModel) begin(i int) {
	m.processes++
	m.nodes[i] = startQuotas(m.t, m.store, fmt.Sprint("process", m.processes), len(m.nodes))
}

// enter begins the window that has the present time, unless it has begun.
func (m *quotaModel) enter() {
	if start, _ := m.terms.Calendar.Window(time.Now()); !start.Equal(m.window) {
		m.window, m.used, m.grants, m.lost, m.highest = start, 0, 0, 0, m.terms.Count
	}
}

func (m *quotaModel) step(s quotaStep) (problem string) {
	m.enter()
	switch s.kind {
	case "ask":
		return m.ask(m.nodes[s.node])
	case "many":
		for range s.number {
			if problem := m.ask(m.nodes[s.node]); problem != "" {
				return problem
			}
		}
	case "release":
		if last := len(m.charges) - 1; last >= 0 {
			m.nodes[0].limits.Release(m.charges[last])
			if m.starts[last].Equal(m.window) {
				m.used--
			}
			m.charges, m.starts = m.charges[:last], m.starts[:last]
			pass(time.Second) // until other processes may know
		}
	case "grant":
		key := aKey()
		if m.store.Window(key).Start.Equal(m.window) {
			m.store.Grant(key, s.number)
			m.grants += s.number
			for _, n := range m.nodes {
				if err := n.keeper.Granted(m.t.Context(), key); err != nil {
					return err.Error()
				}
			}
		}
	case "count":
		terms := *m.terms
		terms.Count = s.number * s.amount
		m.terms = &terms
		m.highest = max(m.highest, terms.Count)
	case "sleep":
		pass(time.Duration(s.number) * time.Second)
	case "next window":
		_, end := m.terms.Calendar.Window(time.Now())
		pass(time.Until(end))
	case "crash", "restart":
		m.end(s.node, s.kind == "crash")
	}
	return ""
}

// end ends a process, and starts another in its place.
func (m *quotaModel) end(i int, crash bool) {
	n := m.nodes[i]
	m.charges, m.starts = nil, nil // they are the process's, or others' that could be told apart
	if crash {
		n.crash(m.store)
		m.lost = max(1, m.highest/100)
	} else {
		n.stop()
		m.store.SetLive(n.name, false)
	}
	m.begin(i)
}

func (m *quotaModel) ask(n *quotaNode) (problem string) {
	c, result, err := n.ask(m.terms, 1)
	limit := m.terms.Count + m.grants
	switch {
	case err != nil:
		return err.Error()
	case result == ratelimit.Admitted:
		if m.used++; m.used > limit {
			return fmt.Sprintf("passed, and makes %d of %d", m.used, limit)
		}
		if s := c.Worst(); len(m.nodes) == 1 && m.lost == 0 && s.Remaining != limit-m.used {
			return fmt.Sprintf("shows %d left, but %d of %d are used", s.Remaining, m.used, limit)
		}
		if m.nodes[0] == n { // only charges of one process are given back
			m.charges, m.starts = append(m.charges, c), append(m.starts, m.window)
		}
	case m.used < limit-m.lost:
		return fmt.Sprintf("refused, but %d of %d are used", m.used, limit)
	}
	return ""
}
