package canary

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func minute(n int) time.Duration { return time.Duration(n) * time.Minute }

func testConfig() *Config {
	return &Config{Next: "next", Other: "default", Hold: minute(10), MinRequests: 1000, Errors: true, MoreThan: 1, P95Ratio: 1.5}
}

// addCallers adds requests, of which some are bad, shared evenly between a number of callers.
func addCallers(s *Step, side Side, callers, requests, bad uint64) {
	for c := range callers {
		s.Add(side, c, Counts{requests*(c+1)/callers - requests*c/callers, bad*(c+1)/callers - bad*c/callers})
	}
}

// Guarantee: the explanation of an abort is that of the contract, with the figures that it has.
func TestExplanation(t *testing.T) {
	s := NewStep()
	addCallers(s, Next, 29, 290, 18)
	addCallers(s, Other, 500, 28_710, 31)
	d := s.Decide(testConfig(), minute(3))
	const want = "18 of 290 failed on next (6.2 %), 31 of 28,710 on default (0.1 %): at least 2.0 points more; allowed 1.0"
	if d.Action != Abort || d.Reason != "errors" || d.Explanation != want {
		t.Errorf("got %+v, want an abort that says\n%s", d, want)
	}
}

// Guarantee: one request and one caller are not said in the plural.
func TestOneIsSaidAsOne(t *testing.T) {
	s, cfg := NewStep(), testConfig()
	addCallers(s, Next, 1, 1, 0)
	addCallers(s, Other, 2, 1_200, 0)
	if got, want := s.Decide(cfg, cfg.Hold).Explanation, "1 request on next and 1,200 on default; waits until both have 1,000"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := cfg.Warnings([]float64{50}, 1), "the step of 50 % has about 0 of the only caller of the last hour: fewer than 5 say little"; len(got) != 1 || got[0] != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Guarantee: the bounds are those of the contract: just inside of them the inequality holds, just outside it does not.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(0, 1_000_000).Draw(t, "n")
		x := rapid.Uint64Range(0, n).Draw(t, "x")
		a := rapid.SampledFrom([]float64{nextError, otherError}).Draw(t, "a")
		lower, upper := Bounds(x, n, a)
		if rate := (Counts{n, x}).rate(); lower > rate || upper < rate && n > 0 || lower < 0 || upper > 1 {
			t.Fatalf("%d of %d: [%v, %v]", x, n, lower, upper)
		}
		inside := func(q float64) bool {
			left := logBeta(float64(x)+0.5, float64(n-x)+5) - logBeta(0.5, 5)
			return left < float64(x)*math.Log(q)+float64(n-x)*math.Log1p(-q)-math.Log(a)
		}
		if d := 1e-7 * (lower + 1e-9); lower > 0 && (!inside(lower+100*d+1e-10) || inside(lower-100*d)) {
			t.Fatalf("%d of %d: the lower bound is not %v", x, n, lower)
		}
		if upper < 1 && (!inside(upper-1e-6*upper) || upper+1e-6*upper < 1 && inside(upper+1e-6*upper)) {
			t.Fatalf("%d of %d: the upper bound is not %v", x, n, upper)
		}
	})
}

// Guarantee: a step waits for hold and for min_requests of both sides, advances then, pauses after 24 h, and is aborted at any
// time.
func TestDecision(t *testing.T) {
	for _, c := range []struct {
		name                            string
		nextRequests, nextBad, nextMany uint64
		otherRequests, otherBad         uint64
		age                             time.Duration
		want                            Action
		says                            string
	}{
		{"before hold", 5000, 0, 50, 5000, 0, minute(9), Wait, "0 of 5,000 failed on next"},
		{"too few", 999, 0, 50, 50_000, 0, minute(20), Wait, "waits until both have 1,000"},
		{"too few of the other", 5000, 0, 50, 999, 0, minute(20), Wait, "waits until both have 1,000"},
		{"passes", 1000, 1, 50, 50_000, 50, minute(10), Advance, "1 of 1,000 failed on next (0.1 %)"},
		{"a day", 999, 0, 50, 50_000, 0, 24 * time.Hour, Pause, "min_requests is 1,000"},
		{"aborted early", 40, 20, 20, 100, 0, time.Second, Abort, "20 of 40 failed on next (50.0 %)"},
		{"only one caller", 40, 20, 1, 100, 0, time.Second, Abort, "20 of 40"},
		{"within what is allowed", 100_000, 1000, 50, 100_000, 100, minute(10), Advance, ""},
		{"nothing", 0, 0, 1, 0, 0, minute(10), Wait, ""},
	} {
		s := NewStep()
		addCallers(s, Next, c.nextMany, c.nextRequests, c.nextBad)
		addCallers(s, Other, 10, c.otherRequests, c.otherBad)
		if d := s.Decide(testConfig(), c.age); d.Action != c.want || !strings.Contains(d.Explanation, c.says) {
			t.Errorf("%s: got %+v, want %d with %q", c.name, d, c.want, c.says)
		}
	}
}

// Guarantee: one caller alone aborts nothing if there are others, and those who were bad before are left out.
func TestOneBadCaller(t *testing.T) {
	s := NewStep()
	addCallers(s, Next, 20, 1000, 1)
	s.Add(Next, 99, Counts{500, 400})
	addCallers(s, Other, 20, 50_000, 50)
	if d := s.Decide(testConfig(), minute(10)); d.Action != Advance {
		t.Errorf("got %+v with one bad caller, want to advance", d)
	}
	s.Add(Next, 98, Counts{500, 400})
	if d := s.Decide(testConfig(), minute(10)); d.Action != Abort {
		t.Errorf("got %+v with two bad callers, want an abort", d)
	}
	c := testConfig()
	if c.LeavesOut(1000, 10) || !c.LeavesOut(1000, 11) || c.LeavesOut(0, 0) {
		t.Error("callers are not left out above more_than")
	}
}

// addLatencies adds n requests of a minute, of which slow take 10 times as long.
func addLatencies(s *Step, side Side, at time.Duration, n, slow int) {
	var l Sketch
	for i := range n {
		d := 10*time.Millisecond + time.Duration(i%10)*time.Millisecond
		if i < slow {
			d *= 10
		}
		l.Add(d)
	}
	s.AddLatencies(side, at, &l)
}

// Guarantee: a step is aborted if certainly more than 5 % of next's requests take longer than p95_ratio times the other side's
// p95, also without the two worst minutes; with a hold below 4 minutes, never.
func TestLatency(t *testing.T) {
	step := func(slow ...int) *Step {
		s := NewStep()
		for i, n := range slow {
			addLatencies(s, Next, minute(i), 500, n)
			addLatencies(s, Other, minute(i), 5000, 50)
		}
		return s
	}
	c := testConfig()
	for _, x := range []struct {
		name string
		step *Step
		want Action
	}{
		{"equal", step(5, 5, 5, 5, 5), Wait},
		{"slow", step(100, 100, 100, 100, 100), Abort},
		{"slow at first", step(100), Wait},
		{"slow for two minutes", step(500, 0, 500, 0, 0), Wait},
		{"slow for three minutes", step(500, 0, 500, 0, 500), Abort},
	} {
		if d := x.step.Decide(c, minute(5)); d.Action != x.want {
			t.Errorf("%s: got %+v, want %d", x.name, d, x.want)
		}
	}
	d := step(100, 100, 100, 100, 100).Decide(c, minute(5))
	const want = "500 of 2,500 on next took more than 29ms (20.0 %), 1.5 times the p95 of default: at least 16.8 %; allowed 5.0"
	if d.Reason != "latency" || d.Explanation != want {
		t.Errorf("got %q, want %q", d.Explanation, want)
	}
	c.Hold = minute(3)
	if d := step(100, 100, 100).Decide(c, minute(2)); d.Action != Wait {
		t.Errorf("with a short hold: got %+v", d)
	}
	if w := c.Warnings([]float64{1, 5}, 100); len(w) != 2 || !strings.Contains(w[0], "1 %") || !strings.Contains(w[1], "4m") {
		t.Errorf("the warnings are %q", w)
	}
}

// Guarantee: every latency up to an hour is between the edges of its bin, which are at most 1/16 apart above 64 µs.
func TestSketch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "d"))
		bin := binOf(d)
		if low, high := edge(bin), edge(bin+1); d < low || d >= high || low > sketchUnit && float64(high-low) > float64(low)/octave+1 {
			t.Fatalf("%v is in bin %d from %v to %v", d, bin, low, high)
		}
		var s Sketch
		s.Add(d)
		if got, _ := s.P95(); got < d || got > d+d/octave+sketchUnit {
			t.Fatalf("p95 of %v is %v", d, got)
		}
		if s.slower(d+1) != 0 || d > sketchUnit && s.slower(d-d/8) != 1 {
			t.Fatalf("%d latencies are slower than %v", s.slower(d-d/8), d-d/8)
		}
	})
	var s Sketch
	s.Add(1000 * time.Hour)
	if got, is := s.P95(); !is || got < time.Hour {
		t.Errorf("p95 of a very long latency is %v", got)
	}
}
