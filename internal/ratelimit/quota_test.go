package ratelimit_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/ratelimit/quotatest"
)

// bubble runs a test in virtual time, which begins in the middle of a window.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func TestQuotaAdmitsExactlyItsCount(t *testing.T) {
	for _, count := range []int64{1, 2, 7, 99, 100, 101, 1000, 5000} {
		bubble(t, func(t *testing.T) {
			m := quotatest.New()
			n := startQuotas(t, m, "a", 1)
			if passed := n.passes(monthly(count), 6000); int64(passed) != count {
				t.Errorf("%d of a quota of %d passed", passed, count)
			}
			pass(time.Second)
			if told := m.Told(); count >= 7 && !slices.Equal(told, []int{80, 100}) {
				t.Errorf("told of %v", told)
			}
		})
	}
}

// Guarantee: plans.md, section 10: a quota that is just enough refuses nobody, and one that is not admits exactly its count,
// whatever 64 callers on one node and on three do at once.
func TestQuotaOnNodesAtOnceAdmitsExactlyItsCount(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		for _, more := range []int{0, 8} { // requests of each caller beyond what the quota has for it
			bubble(t, func(t *testing.T) {
				const each = 20
				callers := 64 / nodes * nodes
				count := int64(callers * each)
				m := quotatest.New()
				terms := monthly(count)
				var passed, failed atomic.Int64
				var all sync.WaitGroup
				for i := range nodes {
					n := startQuotas(t, m, string(rune('a'+i)), nodes)
					for range callers / nodes {
						all.Go(func() {
							for range each + more {
								_, r, err := n.ask(terms, 1)
								switch {
								case err != nil:
									failed.Add(1)
								case r == ratelimit.Admitted:
									passed.Add(1)
								}
							}
						})
					}
				}
				all.Wait()
				if passed.Load() != count || failed.Load() > 0 {
					t.Errorf("with %d nodes %d of %d passed, and %d could not be counted; want %d", nodes, passed.Load(), callers*(each+more), failed.Load(), count)
				}
			})
		}
	}
}

// TestLastUnitsAreFoundOnOtherNodes uses a quota that is just enough, on a node that has used none of it until then.
func TestLastUnitsAreFoundOnOtherNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := quotatest.New()
		terms := monthly(10_000)
		a, b := startQuotas(t, m, "a", 2), startQuotas(t, m, "b", 2)
		if a.passes(terms, 100) != 100 {
			t.Fatal("refused at the begin")
		}
		if held := m.Window(aKey()).All.Reserved; held == 0 {
			t.Fatal("a holds nothing")
		}
		if passed := b.passes(terms, 11_000); passed != 9_900 {
			t.Errorf("%d passed on b, want 9,900", passed)
		}
	})
}

func TestCrashLosesAHundredthAtMost(t *testing.T) {
	for _, count := range []int64{5, 100, 1000, 20_000} {
		bubble(t, func(t *testing.T) {
			m := quotatest.New()
			passed := 0
			for crash := range 30 {
				n := startQuotas(t, m, string(rune('A'+crash)), 1)
				passed += n.passes(monthly(count), int(count)/40+1)
				n.crash(m)
			}
			n := startQuotas(t, m, "last", 1)
			passed += n.passes(monthly(count), int(count)+1)
			if lost := count - int64(passed); lost < 0 || lost > max(1, count/100) {
				t.Errorf("of a quota of %d, 30 crashes lost %d", count, lost)
			}
		})
	}
}

func TestStoppingLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := quotatest.New()
		passed := 0
		for i := range 20 {
			n := startQuotas(t, m, string(rune('A'+i)), 1)
			passed += n.passes(monthly(10_000), 300)
			n.stop()
			if w := m.Window(aKey()); w.All != (ratelimit.QuotaFigures{int64(passed), 0}) {
				t.Fatalf("the store has %+v after %d requests", w.All, passed)
			}
		}
	})
}

func TestQuotaBeginsAgainWithItsWindow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := quotatest.New()
		n := startQuotas(t, m, "a", 1)
		terms := monthly(50)
		terms.Calendar.Unit = calendar.Day
		for day := range 5 {
			if passed := n.passes(terms, 100); passed != 50 {
				t.Errorf("on day %d, %d passed", day, passed)
			}
			c, r, _ := n.ask(terms, 1)
			now := time.Now()
			_, end := terms.Calendar.Window(now)
			if s := c.Worst(); r != ratelimit.Refused || s.ResetAt != end.Unix() || s.RetryAfter != int64(end.Sub(now)/time.Second) || s.Limit != 50 || s.Remaining != 0 {
				t.Errorf("refused with %+v, want a reset at %d", s, end.Unix())
			}
			pass(time.Until(end) - 1)
			if _, r, _ := n.ask(terms, 1); r != ratelimit.Refused {
				t.Error("a request passed before the end of the window")
			}
			pass(1)
		}
	})
}

func TestRefundLeavesTheUnits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := quotatest.New()
		n := startQuotas(t, m, "a", 1)
		terms := monthly(10)
		for range 30 {
			c, r, _ := n.ask(terms, 1)
			if r != ratelimit.Admitted {
				t.Fatal("refused")
			}
			n.limits.Release(c)
		}
		p := ratelimit.Compile(ratelimit.Config{Sustained: ratelimit.Rate{Count: 3, Per: time.Hour}})
		few := ratelimit.Limit{Scope: ratelimit.KeyScope, Params: &p, Bucket: new(ratelimit.Bucket)}
		for i := range 20 {
			if _, r, _ := n.ask(terms, 1, few); (r == ratelimit.Admitted) != (i < 3) {
				t.Fatalf("request %d: %v", i, r)
			}
		}
		if passed := n.passes(terms, 20); passed != 7 {
			t.Errorf("%d passed, want 7", passed)
		}
	})
}

func TestChangedCountAndGrants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := quotatest.New()
		n := startQuotas(t, m, "a", 1)
		if passed := n.passes(monthly(1000), 600); passed != 600 {
			t.Fatalf("%d passed", passed)
		}
		if passed := n.passes(monthly(500), 10); passed != 0 {
			t.Errorf("%d passed beyond a count that was lowered", passed)
		}
		if passed := n.passes(monthly(610), 100); passed != 10 {
			t.Errorf("%d passed after the count was raised by 10", passed)
		}
		m.Grant(aKey(), 25)
		if err := n.keeper.Granted(t.Context(), aKey()); err != nil {
			t.Fatal(err)
		}
		if passed := n.passes(monthly(610), 100); passed != 25 {
			t.Errorf("%d passed after 25 were granted", passed)
		}
	})
}

// Guarantee: plans.md, section 4: after a change of a plan, the subject's next request tells which percentages are passed,
// also if it is refused, and if the store was asked just before.
func TestPercentagesAfterAChange(t *testing.T) {
	for _, nodes := range []int{1, 2} {
		for name, change := range map[string]func(*ratelimit.QuotaTerms){
			"a lowered count":       func(t *ratelimit.QuotaTerms) { t.Count = 500 },
			"a count that still is": func(t *ratelimit.QuotaTerms) { t.Count = 700 },
			"other percentages":     func(t *ratelimit.QuotaTerms) { t.WarnAt = []int{50, 55} },
		} {
			bubble(t, func(t *testing.T) {
				m := quotatest.New()
				n := startQuotas(t, m, "a", nodes)
				if passed := n.passes(monthly(1000), 600); passed != 600 {
					t.Fatalf("%d passed", passed)
				}
				pass(50 * time.Millisecond)
				changed := monthly(1000)
				change(changed)
				if _, _, err := n.ask(changed, 1); err != nil {
					t.Fatal(err)
				}
				pass(100 * time.Millisecond)
				if told := m.Told(); len(told) == 0 {
					t.Errorf("%s, %d nodes: nothing was told", name, nodes)
				}
			})
		}
	}
}

// Guarantee: a count that is lowered holds from the next request on, while nodes hold units that they took for the old one.
func TestLoweredCountOnNodes(t *testing.T) {
	for _, want := range []int{0, 50} {
		bubble(t, func(t *testing.T) {
			m := quotatest.New()
			a, b := startQuotas(t, m, "a", 2), startQuotas(t, m, "b", 2)
			// So few that neither asks the store a second time: a holds many more, and does not know of b.
			if a.passes(monthly(100_000), 100)+b.passes(monthly(100_000), 100) != 200 {
				t.Fatal("refused below the count")
			}
			lower := monthly(200 + int64(want))
			if passed := a.passes(lower, 100) + b.passes(lower, 100); passed != want {
				t.Errorf("%d passed, want %d", passed, want)
			}
		})
	}
}

func TestLostStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := quotatest.New()
		n := startQuotas(t, m, "a", 1)
		terms, free := monthly(100_000), monthly(100_000)
		free.Allow = true
		if n.passes(terms, 10) != 10 {
			t.Fatal("refused")
		}
		m.SetFailing(true, true)
		passed := 10
		for {
			_, r, err := n.ask(terms, 1)
			if err != nil {
				break
			}
			if r == ratelimit.Admitted {
				passed++
			}
		}
		if passed < 300 || passed > 1000 {
			t.Errorf("%d passed, want what was held", passed)
		}
		if more := n.passes(free, 2000); more != 2000 {
			t.Errorf("with overage: allow, %d of 2,000 passed", more)
		}
		m.SetFailing(false, false)
		pass(5 * time.Second)
		if err := n.keeper.Settle(t.Context(), []ratelimit.QuotaKey{aKey()}); err != nil {
			t.Fatal(err)
		}
		if w := m.Window(aKey()); w.Used() != int64(passed)+2000 {
			t.Errorf("the store has %d, want %d", w.Used(), passed+2000)
		}
	})
}

func TestOverageIsCountedAndTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := quotatest.New()
		n := startQuotas(t, m, "a", 1)
		terms := monthly(100)
		terms.Allow, terms.WarnAt = true, []int{50, 100, 150}
		if passed := n.passes(terms, 300); passed != 300 {
			t.Errorf("%d passed", passed)
		}
		n.stop()
		if w := m.Window(aKey()); w.All != (ratelimit.QuotaFigures{300, 0}) {
			t.Errorf("the store has %+v", w.All)
		}
		if told := m.Told(); !slices.Equal(told, []int{50, 100, 150}) {
			t.Errorf("told of %v", told)
		}
	})
}

func TestIdleRangesAreGivenBackAndQuotasDropped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := quotatest.New()
		n := startQuotas(t, m, "a", 1)
		n.passes(monthly(10_000), 100)
		pass(time.Minute + time.Second)
		if w := m.Window(aKey()); w.Used() != 100 || w.All.Reserved == 0 {
			t.Errorf("after a minute the store has %+v", w.All)
		}
		pass(12 * time.Minute)
		if w := m.Window(aKey()); w.All != (ratelimit.QuotaFigures{100, 0}) {
			t.Errorf("after 13 minutes the store has %+v", w.All)
		}
		pass(12 * time.Minute)
		if count := n.keeper.Count(); count != 0 {
			t.Errorf("%d quotas are kept", count)
		}
		if passed := n.passes(monthly(10_000), 20_000); passed != 9_900 {
			t.Errorf("%d passed afterwards", passed)
		}
	})
}

func TestSettleAsksOtherNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := quotatest.New()
		a, b := startQuotas(t, m, "a", 2), startQuotas(t, m, "b", 2)
		a.passes(monthly(10_000), 111)
		b.passes(monthly(10_000), 222)
		if err := a.keeper.Settle(t.Context(), []ratelimit.QuotaKey{aKey()}); err != nil {
			t.Fatal(err)
		}
		if w := m.Window(aKey()); w.Used() != 333 {
			t.Errorf("%d are used, want 333", w.Used())
		}
	})
}

// TestQuotaNeverReservesMoreThanCrashesMayLose starts many processes at once: what they hold together is bounded.
func TestQuotaNeverReservesMoreThanCrashesMayLose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := quotatest.New()
		for i := range 20 {
			n := startQuotas(t, m, string(rune('A'+i)), 2)
			n.passes(monthly(10_000), 50)
			if w := m.Window(aKey()); w.All.Reserved > 100+int64(i)+1 { // a hundredth, and what a request of each has waited for
				t.Fatalf("%d processes have reserved %d of 10,000", i+1, w.All.Reserved)
			}
		}
	})
}
