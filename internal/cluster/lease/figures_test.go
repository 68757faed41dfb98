package lease

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"
)

var figures = flag.Bool("figures", false, "print what 3, 30 and 300 nodes cost, for docs/several-nodes.md")

// load is a healthy cluster under a steady load of changes.
type load struct {
	nodes, perSecond int
	length           time.Duration
}

// cost is what the simulation of a load has measured.
type cost struct {
	held        float64       // share of the time in which nodes held their leases
	calls       float64       // of all nodes to the database in a second, without the changes themselves
	median, p99 time.Duration // from a call for a change to its answer
	answered    int
	changes     int
	violations  []string
}

// measure simulates a load with the times of the product: the default TTL, its polls, and notifications. A message
// takes up to 1 ms and a step of the server up to 0.5 ms; one message or step in ten takes up to ten times as
// long.
func measure(l load) cost {
	c := scenario{nodes: l.nodes, length: l.length, changes: l.perSecond * int(l.length/time.Second)}
	s := newSimulation(1, &c)
	s.product, s.ttl, s.poll, s.apply = true, 10*time.Second, 250*time.Millisecond, 2*time.Millisecond
	s.net.latency, s.net.step, s.net.loss, s.net.double, s.net.tail = time.Millisecond, 500*time.Microsecond, 0, 0, 10
	s.store.notify = func() {
		for _, n := range s.nodes {
			n.in(s.net.delay(s.net.latency), n.hint)
		}
	}
	before := 0
	s.w.after(2*time.Second, func() { before = s.calls })
	var calls float64
	s.w.after(time.Second/2+l.length, func() { calls = float64(s.calls-before) / (l.length - 3*time.Second/2).Seconds() })
	s.run(&c)
	out := cost{held: float64(s.held) / float64(max(1, s.held+s.not)), calls: calls, answered: len(s.order), changes: c.changes, violations: s.violations}
	if slices.Sort(s.took); len(s.took) > 0 {
		out.median, out.p99 = s.took[len(s.took)/2], s.took[len(s.took)*99/100]
	}
	return out
}

// Guarantee: 3 and 30 healthy nodes hold their leases at least 99.9 % of the time at 500 changes a second with the
// times of the product, and answer every change.
func TestClusterSizes(t *testing.T) {
	for _, nodes := range []int{3, 30} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			t.Parallel()
			got := measure(load{nodes: nodes, perSecond: 500, length: 4 * time.Second})
			if got.held < 0.999 || got.answered != got.changes || len(got.violations) > 0 {
				t.Errorf("leases were held %.3f %% of the time, %d of %d changes answered, %v", got.held*100, got.answered, got.changes, got.violations)
			}
		})
	}
}

// TestFigures prints the table for docs/several-nodes.md.
func TestFigures(t *testing.T) {
	if !*figures {
		t.Skip("prints a table with -figures")
	}
	fmt.Println("| Nodes | Changes a second | Calls of the database a second, each node | In all | A change is answered after (median, 99 %) | Leases held |")
	fmt.Println("|---|---|---|---|---|---|")
	for _, nodes := range []int{3, 30, 300} {
		for _, perSecond := range []int{0, 10, 100, 500} {
			got := measure(load{nodes: nodes, perSecond: perSecond, length: 6 * time.Second})
			if got.held < 0.999 || got.answered != got.changes || len(got.violations) > 0 {
				t.Errorf("%d nodes at %d changes a second: held %.3f %%, %d of %d answered, %v", nodes, perSecond, got.held*100, got.answered, got.changes, got.violations)
			}
			answer := "–"
			if perSecond > 0 {
				answer = fmt.Sprintf("%.1f ms, %.1f ms", got.median.Seconds()*1e3, got.p99.Seconds()*1e3)
			}
			fmt.Printf("| %d | %d | %.0f | %.0f | %s | %.2f %% |\n", nodes, perSecond, got.calls/float64(nodes), got.calls, answer, got.held*100)
		}
	}
}
