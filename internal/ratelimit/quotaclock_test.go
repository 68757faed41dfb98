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

// clockStep is one step of TestQuotaWithClocksThatStep.
type clockStep struct {
	kind string
	node int
	by   time.Duration
}

// Guarantee: however the clocks of two nodes step, no window admits more than its count, a request counts in the window of
// the node's clock or of the store's, and what has room in the store's window passes as soon as the node has asked it.
func TestQuotaWithClocksThatStep(t *testing.T) {
	steps := []time.Duration{-49 * time.Hour, -25 * time.Hour, -time.Hour, -30 * time.Second, -2 * time.Second, 2 * time.Second, 30 * time.Second, time.Hour, 25 * time.Hour, 49 * time.Hour}
	rapid.Check(t, func(rt *rapid.T) {
		count := rapid.SampledFrom([]int64{1, 10, 1000}).Draw(rt, "count")
		life := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) clockStep {
			return clockStep{
				kind: rapid.SampledFrom([]string{"ask", "ask", "many", "clock", "clock", "sleep", "midnight"}).Draw(rt, "kind"),
				node: rapid.IntRange(0, 1).Draw(rt, "node"), by: rapid.SampledFrom(steps).Draw(rt, "by"),
			}
		}), 1, 40).Draw(rt, "steps")
		var problem string
		synctest.Test(t, func(t *testing.T) { problem = runClockSteps(t, count, life) })
		if problem != "" {
			rt.Fatal(problem)
		}
	})
}

func runClockSteps(t *testing.T, count int64, life []clockStep) (problem string) {
	store := quotatest.New()
	store.UseOwnClock()
	terms := monthly(count)
	terms.Calendar.Unit = calendar.Day
	nodes := []*quotaNode{startQuotas(t, store, "a", 2), startQuotas(t, store, "b", 2)}
	used := map[time.Time]int64{}
	ask := func(n *quotaNode) (problem string, passed bool) {
		for tries := 0; ; tries++ {
			wrong := time.Duration(n.ahead.Load())
			c, result, err := n.ask(terms, 1)
			present, _ := terms.Calendar.Window(time.Now())
			switch {
			case err != nil:
				return err.Error(), false
			case result == ratelimit.Admitted:
				of, _ := terms.Calendar.Window(time.Unix(c.Worst().ResetAt, 0).Add(-time.Hour))
				if used[of]++; used[of] > count {
					return fmt.Sprintf("%d of %d passed in the window of %v", used[of], count, of), false
				}
				for _, clock := range []time.Duration{wrong, wrong - 2*time.Second, 0, -2 * time.Second} { // both have a tolerance
					if shown, _ := terms.Calendar.Window(time.Now().Add(clock)); shown.Equal(of) {
						return "", true
					}
				}
				return fmt.Sprintf("counted in the window of %v with a clock that is %v ahead", of, wrong), false
			case used[present] >= count:
				return "", false
			case tries == 2:
				return fmt.Sprintf("refused, but %d of %d are used", used[present], count), false
			}
			pass(time.Second) // until the node asks the store again, and the other has given back what it holds
		}
	}
	for i, s := range life {
		switch s.kind {
		case "ask":
			problem, _ = ask(nodes[s.node])
		case "many":
			for passed := true; passed && problem == ""; {
				problem, passed = ask(nodes[s.node])
			}
		case "clock":
			nodes[s.node].ahead.Store(int64(s.by))
		case "sleep":
			pass(s.by.Abs())
		case "midnight":
			_, end := terms.Calendar.Window(time.Now())
			pass(time.Until(end) - time.Second)
		}
		if problem != "" {
			return fmt.Sprintf("step %d, %+v: %s", i, s, problem)
		}
	}
	return ""
}

// Guarantee: a node that knows a window as used up and whose clock is then set back asks the store, rather than refusing
// until its clock shows again when it asked last.
func TestUsedUpQuotaAfterAClockWasSetBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := quotatest.New()
		store.UseOwnClock()
		terms := monthly(1)
		terms.Calendar.Unit = calendar.Day
		n := startQuotas(t, store, "a", 2)
		_, midnight := terms.Calendar.Window(time.Now())
		pass(time.Until(midnight) - time.Second)
		if passed := n.passes(terms, 2); passed != 1 {
			t.Fatalf("%d passed, want 1", passed)
		}
		pass(2 * time.Second)
		n.ahead.Store(int64(-time.Hour))
		if passed := n.passes(terms, 2); passed != 1 {
			t.Errorf("%d passed on the next day with a clock that shows the day before, want 1", passed)
		}
	})
}
