package balance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// benchConfig returns a configuration of n targets, whose weights are 1 to weights.
func benchConfig(n, weights int, p Policy) *Config {
	c := &Config{Policy: p, Ejection: DefaultEjection(), Retries: DefaultRetries(), Check: Check{ID: "check", Unhealthy: 2, Healthy: 2}}
	for i := range n {
		address := fmt.Sprintf("10.0.%d.%d:8443", i/256, i%256)
		c.Targets = append(c.Targets, TargetConfig{URL: "https://" + address, Origin: "https://" + address, Address: address, Weight: i%weights + 1})
	}
	return c
}

// budgetRequest is a request in the model of TestRetryBudget.
type budgetRequest struct {
	began  time.Duration
	second int64
	open   bool
}

// Guarantee (section 4): of the last 10 s, retries are never more than the percentage of the requests begun in that time or
// in flight, and 30. Unless a second more of retries and a second less of requests exceeds it, a retry is allowed.
func TestRetryBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b budget
		var requests []*budgetRequest
		var retries []time.Duration
		now := time.Duration(0)
		percent := rapid.SampledFrom([]int{0, 1, 20, 100}).Draw(t, "percent")
		count := func(window time.Duration) (begun, retried int) {
			for _, r := range requests {
				if r.open || now-r.began < window {
					begun++
				}
			}
			for _, at := range retries {
				if now-at < window {
					retried++
				}
			}
			return begun, retried
		}
		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) {
				now += time.Duration(rapid.SampledFrom([]int{1, 300, 1000, 4500, 9999, 30_000}).Draw(t, "ms")) * time.Millisecond
			},
			"begin": func(t *rapid.T) {
				for range rapid.SampledFrom([]int{1, 3, 50}).Draw(t, "requests") {
					requests = append(requests, &budgetRequest{now, b.begin(now), true})
				}
			},
			"end": func(t *rapid.T) {
				for range rapid.SampledFrom([]int{1, 20}).Draw(t, "requests") {
					if len(requests) == 0 {
						return
					}
					if r := requests[rapid.IntRange(0, len(requests)-1).Draw(t, "request")]; r.open {
						r.open = false
						b.end(r.second)
					}
				}
			},
			"retry": func(t *rapid.T) {
				for range rapid.SampledFrom([]int{1, 20}).Draw(t, "retries") {
					fewer, _ := count(9 * time.Second)
					_, more := count(11 * time.Second)
					allowed := b.retry(now, percent)
					if allowed {
						retries = append(retries, now)
					}
					begun, retried := count(10*time.Second + 1)
					if allowed && retried > begun*percent/100+30 {
						t.Fatalf("%d retries for %d requests", retried, begun)
					}
					if !allowed && more+1 <= fewer*percent/100+30 {
						t.Fatalf("refused with %d retries for %d requests", more, fewer)
					}
				}
			},
		})
	})
}

func testUpstream(n int, p Policy) (*Fleet, *Upstream, *Config) {
	cfg := benchConfig(n, 1, p)
	cfg.Check = Check{}
	f := NewFleet(nil)
	f.random = rand.New(rand.NewPCG(1, 2)).Uint64
	return f, f.Upstream(0, Name{"acc", "gw", "default"}, cfg), cfg
}

// pickOne begins a request, and returns the address that it has picked.
func pickOne(now time.Duration, u *Upstream, a *Attempts) string {
	a.Begin(now, u)
	defer a.Finish(now)
	t := a.Pick(now)
	if t == nil {
		return ""
	}
	a.End(now, OK)
	return t.Address().Key().Address
}

// Guarantee (section 2): with hash only the callers of a lost target move, and they come back with it. A target with more
// weight takes callers from others, and only to itself.
func TestHashMovesOnlyCallersOfALostTarget(t *testing.T) {
	for _, weights := range []int{1, 7} {
		t.Run(fmt.Sprint("weights ", weights), func(t *testing.T) {
			cfg := benchConfig(20, weights, Hash)
			cfg.Check = Check{}
			f := NewFleet(nil)
			n := Name{"acc", "gw", "default"}
			u := f.Upstream(0, n, cfg)
			pick := func(now time.Duration) (of []string) {
				for c := range 20_000 {
					a := Attempts{HasValue: true, Value: HashValue(fmt.Append(nil, "caller ", c))}
					of = append(of, pickOne(now, u, &a))
				}
				return of
			}
			before := pick(0)
			lost := cfg.Targets[3].Address
			without := *cfg
			without.Targets = slices.Delete(slices.Clone(cfg.Targets), 3, 4)
			f.Upstream(0, n, &without)
			moved := 0
			for c, to := range pick(0) {
				switch {
				case before[c] == lost:
					moved++
				case to != before[c]:
					t.Fatalf("caller %d moved from %s to %s", c, before[c], to)
				}
			}
			if moved == 0 {
				t.Fatal("nobody was there")
			}
			f.Upstream(0, n, cfg)
			if !slices.Equal(pick(time.Minute), before) {
				t.Error("callers did not come back with the target")
			}
			heavier := *cfg
			heavier.Targets = slices.Clone(cfg.Targets)
			heavier.Targets[3].Weight *= 2
			f.Upstream(time.Minute, n, &heavier)
			for c, to := range pick(time.Minute) {
				if to != before[c] && to != lost {
					t.Fatalf("caller %d moved from %s to %s", c, before[c], to)
				}
			}
		})
	}
}

// Guarantee: round robin is smooth: of any turns in a row as many as the sum of the weights, each target has exactly its
// weight, and a heavy one is spread among them.
func TestRoundRobinIsSmooth(t *testing.T) {
	_, u, cfg := testUpstream(7, RoundRobin)
	for i := range cfg.Targets {
		cfg.Targets[i].Weight = []int{5, 1, 1, 2, 2, 5, 1}[i]
	}
	u = u.fleet.Upstream(time.Hour, u.name, cfg)
	var turns []string
	var a Attempts
	for range 10 * blockSize {
		turns = append(turns, pickOne(time.Hour, u, &a))
	}
	const sum = 17
	turns = turns[sum:] // the first ones begin at random
	for i := 0; i+sum <= len(turns); i++ {
		counts := map[string]int{}
		for _, name := range turns[i : i+sum] {
			counts[name]++
		}
		for _, c := range cfg.Targets {
			if counts[c.Address] != c.Weight {
				t.Fatalf("turns %d to %d: %s has %d, want %d", i, i+sum, c.Address, counts[c.Address], c.Weight)
			}
		}
	}
	longest, run := 0, 0
	for i := range turns {
		run++
		if i > 0 && turns[i] != turns[i-1] {
			run = 1
		}
		longest = max(longest, run)
	}
	if longest > 1 {
		t.Errorf("one target has %d turns in a row", longest)
	}
}

// Guarantee (section 2): the weight of a target that joins others, or comes back, grows over 10 s from a tenth. Targets that
// are there from the start have their whole weight at once.
func TestWarmUp(t *testing.T) {
	f, u, cfg := testUpstream(2, RoundRobin)
	share := func(now time.Duration, of string) float64 {
		n, a := 0, Attempts{}
		for range 11_000 {
			if pickOne(now, u, &a) == of {
				n++
			}
		}
		return float64(n) / 11_000
	}
	expect := func(what string, now time.Duration, of string, weight, others float64) {
		t.Helper()
		if got, want := share(now, of), weight/(weight+others); math.Abs(got-want) > 0.01*want+0.001 {
			t.Errorf("%s: the share is %.4f, want %.4f", what, got, want)
		}
	}
	expect("at the start", 0, cfg.Targets[0].Address, 1, 1)

	larger := benchConfig(3, 1, RoundRobin)
	larger.Check = Check{}
	joined := time.Second
	f.Upstream(joined, u.name, larger)
	of := larger.Targets[2].Address
	expect("joined", joined, of, 0.1, 2)
	expect("after 5 s", joined+5*time.Second, of, 0.55, 2)
	expect("after 10 s", joined+10*time.Second, of, 1, 2)
	expect("the others", joined+10*time.Second, cfg.Targets[0].Address, 1, 2)

	a := f.Address(Key{"acc", larger.Targets[0].Origin, larger.Targets[0].Address})
	e := DefaultEjection()
	out := time.Minute
	for range 5 {
		a.fail(&e, phase(a.phase.Load()), Connect, 0, false)
	}
	a.eject(out, &e, phase(a.phase.Load()), Connect)
	expect("ejected", out, a.key.Address, 0, 2)
	if !a.Return(out + time.Second) {
		t.Error("the address was not ejected")
	}
	expect("returned", out+time.Second, a.key.Address, 0.1, 2)
	expect("returned for 10 s", out+11*time.Second, a.key.Address, 1, 2)

	drained := *larger
	drained.Targets = slices.Clone(larger.Targets)
	drained.Targets[1].Drain = true
	f.Upstream(2*time.Minute, u.name, &drained)
	expect("drained", 2*time.Minute, larger.Targets[1].Address, 0, 2)
	f.Upstream(2*time.Minute, u.name, larger)
	expect("in use again", 2*time.Minute, larger.Targets[1].Address, 0.1, 2)
}

// Guarantee: changes of the table while requests run lose no request and no count, and reset nothing.
func TestChangesUnderLoad(t *testing.T) {
	for _, p := range []Policy{LeastRequests, RoundRobin, Hash} {
		t.Run(fmt.Sprint("policy ", p), func(t *testing.T) {
			t.Parallel()
			const targets, workers = 5, 64
			cfg := benchConfig(targets, 3, p)
			cfg.Check = Check{ID: "check", Unhealthy: 2, Healthy: 2}
			cfg.Ejection.On = On(Connect, Reset, Timeout)
			f := NewFleet(func(Transition) {})
			n := Name{"acc", "gw", "default"}
			u := f.Upstream(0, n, cfg)
			other := f.Upstream(0, Name{"acc", "gw2", "default"}, cfg)
			kept := u.table.targets[0].Target // never leaves

			var clock, picks, atKept, none atomic.Int64
			var stop atomic.Bool
			var workersDone, changerDone sync.WaitGroup
			for w := range workers {
				workersDone.Go(func() {
					random := rand.New(rand.NewPCG(uint64(w), 0))
					a := Attempts{HasValue: true}
					for range 3000 {
						now := time.Duration(clock.Add(int64(100 * time.Microsecond)))
						a.Value, a.Small, a.Caller = random.Uint64(), random.IntN(2) == 0, uint64(w)
						to := u
						if w%4 == 0 {
							to = other
						}
						a.Begin(now, to)
						for {
							got := a.Pick(now)
							if got == nil {
								none.Add(1)
								break
							}
							if picks.Add(1); got == kept {
								atKept.Add(1)
							}
							r := Result(random.IntN(int(results) * 3))
							if r >= results {
								r = OK
							}
							if r == OK {
								a.Answer(now, OK)
							}
							a.End(now, r)
							if !r.Failed() || !a.Retry(now) {
								break
							}
						}
						a.Finish(now)
					}
				})
			}
			changerDone.Go(func() {
				random := rand.New(rand.NewPCG(7, 7))
				for i := 0; !stop.Load(); i++ {
					now := time.Duration(clock.Load())
					c := *cfg
					c.Targets = slices.Clone(cfg.Targets)
					for j := 1; j < targets; j++ {
						c.Targets[j].Drain, c.Targets[j].Backup, c.Targets[j].Weight = random.IntN(3) == 0, random.IntN(3) == 0, 1+random.IntN(5)
					}
					if random.IntN(2) == 0 {
						c.Targets = c.Targets[:targets-1]
					}
					c.Policy = Policy((int(p) + i) % 3)
					f.Upstream(now, n, &c)
					f.Sweep(0)
					u.Observe(now, nil)
					f.Healths(func(h *Health, _ Check) bool {
						h.Report(now, random.IntN(4) > 0, "status 500")
						return true
					})
				}
			})
			workersDone.Wait()
			stop.Store(true)
			changerDone.Wait()

			if none.Load() > 0 {
				t.Errorf("%d picks found no target, though one never leaves", none.Load())
			}
			u.mu.Lock()
			if got := u.table.targets[0].Target; got != kept {
				t.Error("a target that stays was replaced")
			}
			u.mu.Unlock()
			otherKept := other.table.targets[0].Target
			if got, want := kept.begun.Load(), uint64(atKept.Load()); got < want {
				t.Errorf("the target has %d requests, want at least the %d that were picked", got, want)
			}
			if kept.address != otherKept.address {
				t.Error("the upstreams do not share the address")
			}
			f.Sweep(0)
			for k, a := range f.addresses {
				if a.inFlight.Load() != 0 || a.trying.Load() {
					t.Errorf("%v has %d in flight at the end (trying %v), want none", k, a.inFlight.Load(), a.trying.Load())
				}
			}
			if len(u.leaving) != 0 {
				t.Errorf("%d targets are still leaving", len(u.leaving))
			}
			for _, s := range u.Observe(time.Duration(clock.Load()), nil) {
				if s.Own != 0 {
					t.Errorf("%s has %d in flight at the end", s.Target.URL(), s.Own)
				}
			}
		})
	}
}

// Guarantee (section 6): once a change that drains a target has returned, no attempt begins there, not even of a request that
// had chosen it before. Such a request gets another target.
func TestNothingBeginsAtADrainedTarget(t *testing.T) {
	f, u, cfg := testUpstream(2, RoundRobin)
	drained := *cfg
	drained.Targets = slices.Clone(cfg.Targets)
	drained.Targets[0].Drain = true
	var a Attempts
	a.Begin(0, u)
	for a.choose(0, u.view(0)) != u.table.targets[0].Target {
	}
	before := u.current.Load()
	f.Upstream(0, u.name, &drained)
	if a.start(u.table.targets[0].Target) {
		t.Error("an attempt is in flight after the drain")
	}
	u.current.Store(before) // as a goroutine sees it that has loaded it before
	for range 4 {
		if got := pickOne(0, u, &Attempts{}); got != cfg.Targets[1].Address {
			t.Errorf("%s was picked, which drains", got)
		}
		u.current.Store(before)
	}
	if n := u.table.targets[0].InFlight(); n != 0 {
		t.Errorf("%d in flight at the drained target", n)
	}
}

// Guarantee (section 3): one caller alone ejects no address for timeouts and statuses, but does for failures to connect; and
// max_percent bounds only the former.
func TestOneCallerEjectsNothing(t *testing.T) {
	for _, r := range []Result{Timeout, Status503, Connect} {
		for _, callers := range []uint64{1, 2} {
			t.Run(fmt.Sprint(r, " of ", callers), func(t *testing.T) {
				f, u, cfg := testUpstream(4, RoundRobin)
				c := *cfg
				c.Ejection.On = On(Connect, Timeout, Status503)
				f.Upstream(0, u.name, &c)
				a := Attempts{}
				for i := range uint64(400) {
					a.Caller = i / 4 % callers
					a.Begin(0, u)
					a.Pick(0)
					a.End(0, r)
					a.Finish(0)
				}
				ejections := 0
				for _, s := range u.Observe(0, nil) {
					if s.State == Ejected {
						ejections++
					}
				}
				want := 4
				if r != Connect {
					want = int(callers-1) * 2 // 50 % of 4
				}
				if ejections != want {
					t.Errorf("%d addresses are ejected, want %d", ejections, want)
				}
			})
		}
	}
}

// Guarantee (section 7): a sticky split keeps each caller on its side, a larger share only adds callers, and the share is
// met. Without sticky, any 10,000 requests in a row meet it to 1 in 1,000.
func TestSplit(t *testing.T) {
	const callers = 50_000
	var before [callers]bool
	for _, share := range []Share{0, 1, 100, 5_00, 12_34, 50_00, 99_99, MaxShare} {
		n := 0
		for c := range callers {
			is := Split{Share: share, Sticky: true}.Weighted(HashValue(fmt.Append(nil, c)), rand.Uint64())
			if before[c] && !is {
				t.Fatalf("caller %d left at %d", c, share)
			}
			before[c] = is
			if is {
				n++
			}
		}
		want := float64(callers) * float64(share) / 10_000
		if math.Abs(float64(n)-want) > 5*math.Sqrt(want+1) {
			t.Errorf("%d of %d callers at %d hundredths of a percent, want %.0f", n, callers, share, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		share := Share(rapid.IntRange(0, int(MaxShare)).Draw(t, "share"))
		from := rapid.Uint64Range(0, 1<<40).Draw(t, "from")
		n := 0
		for i := range uint64(10_000) {
			if (Split{Share: share}).Weighted(0, from+i) {
				n++
			}
		}
		if math.Abs(float64(n)-float64(share)) > 10 {
			t.Fatalf("%d of 10,000 requests, want %d", n, share)
		}
	})
	for _, c := range []struct{ fallback, weighted, weightedServes, otherServes, want bool }{
		{false, true, false, true, true}, {false, false, true, false, false},
		{true, true, false, true, false}, {true, true, false, false, true}, {true, true, true, true, true},
		{true, false, true, false, true}, {true, false, false, false, false}, {true, false, true, true, false},
	} {
		if got := (Split{Fallback: c.fallback}).Serving(c.weighted, c.weightedServes, c.otherServes); got != c.want {
			t.Errorf("Serving of %+v = %v", c, got)
		}
	}
}

// Guarantee: a pick allocates nothing.
func TestPickDoesNotAllocate(t *testing.T) {
	for _, p := range []Policy{LeastRequests, RoundRobin, Hash} {
		_, u, _ := testUpstream(256, p)
		a := Attempts{HasValue: true}
		if n := testing.AllocsPerRun(1000, func() { pickOne(0, u, &a) }); n != 0 {
			t.Errorf("policy %d: %.0f allocations", p, n)
		}
	}
}

// Guarantee (section 3): a new address beside healthy ones waits for its first check, which counts alone; one that the address
// rules refuse is unhealthy for a while.
func TestFirstCheckAndRefusedAddresses(t *testing.T) {
	cfg := benchConfig(2, 1, RoundRobin)
	f := NewFleet(nil)
	u := f.Upstream(0, Name{"acc", "gw", "default"}, cfg)
	health := map[string]*Health{}
	collect := func() {
		f.Healths(func(h *Health, _ Check) bool {
			health[h.Address().Key().Address] = h
			return true
		})
	}
	uses := func(now time.Duration, of string) bool {
		var a Attempts
		for range 100 {
			if pickOne(now, u, &a) == of {
				return true
			}
		}
		return false
	}
	collect()
	first, second := cfg.Targets[0].Address, cfg.Targets[1].Address
	if !uses(0, first) || !uses(0, second) {
		t.Error("addresses wait for a check though none is healthy")
	}
	health[first].Report(1, true, "")
	if uses(1, second) {
		t.Error("an address beside a healthy one does not wait for its check")
	}
	if s := u.Observe(1, nil); s[1].State != Warming || !s[1].Waits || s[0].State != Healthy {
		t.Errorf("the states are %+v", s)
	}
	health[second].Report(2, true, "")
	if !uses(2, second) {
		t.Error("the first good check does not count")
	}
	health[second].Report(3, false, "status 500")
	if !uses(3, second) {
		t.Error("one bad check of two counts")
	}
	health[second].Report(4, false, "status 500")
	if s := u.Observe(4, nil); uses(4, second) || s[1].State != Unhealthy || s[1].Reason != "status 500" || s[1].LastCheck.At != 4 {
		t.Errorf("two bad checks do not count: %+v", s)
	}

	var a Attempts
	a.Begin(5, u)
	a.Pick(5)
	a.End(5, NotAllowed)
	a.Finish(5)
	if s := u.Observe(5, nil); s[0].State != Unhealthy || s[0].Reason != "address_not_allowed" || !u.AllUnhealthy(5) {
		t.Errorf("a refused address is %+v", s[0])
	}
	if !uses(5+refusal, first) || u.AllUnhealthy(5+refusal) {
		t.Error("a refused address is not tried again")
	}
}

// Guarantee: an upstream that is dropped leaves nothing behind once its requests have ended, and its requests end as before.
func TestDrop(t *testing.T) {
	f, u, cfg := testUpstream(2, LeastRequests)
	var a Attempts
	a.Begin(0, u)
	target := a.Pick(0)
	f.Drop(1, u.name)
	if len(f.addresses) != 1 || f.Address(target.Address().Key()) != target.Address() {
		t.Errorf("%d addresses are left, want the one in use", len(f.addresses))
	}
	if got := pickOne(1, u, &Attempts{}); got != "" {
		t.Errorf("%s was picked of an upstream that was dropped", got)
	}
	again := f.Upstream(2, u.name, cfg)
	a.End(3, Connect)
	a.Finish(3)
	f.Drop(4, again.name)
	f.Sweep(0)
	if len(f.addresses) != 0 || len(f.dropped) != 0 || len(f.healths) != 0 || len(f.upstreams) != 0 {
		t.Errorf("%d addresses, %d upstreams, %d dropped ones and %d checks are left", len(f.addresses), len(f.upstreams), len(f.dropped), len(f.healths))
	}
}

// Guarantee (section 9): what an explanation needs of an ejection is there, and an address knows its upstreams.
func TestEjectionIsShown(t *testing.T) {
	var seen []Transition
	cfg := benchConfig(2, 1, RoundRobin)
	cfg.Check = Check{}
	f := NewFleet(func(x Transition) { seen = append(seen, x) })
	first := f.Upstream(0, Name{"acc", "a", "default"}, cfg)
	f.Upstream(0, Name{"acc", "b", "default"}, cfg)
	const at = 3 * time.Second
	for first.Serves(at) {
		var a Attempts
		a.Begin(at, first)
		a.Pick(at)
		a.End(at, Connect)
		a.Finish(at)
	}
	target := first.Observe(at, nil)[0].Target
	e, out := target.Address().Ejection(at + 1)
	if want := (EjectionStatus{Since: at, Until: at + 10*time.Second, Reason: Connect, Failures: 5, Number: 1, hard: true}); !out || e != want {
		t.Errorf("the ejection is %+v (%v), want %+v", e, out, want)
	}
	if target.Failures(Connect) != 5 {
		t.Errorf("%d failures, want 5", target.Failures(Connect))
	}
	var names []Name
	target.Address().Upstreams(func(n Name) bool {
		names = append(names, n)
		return true
	})
	if len(names) != 2 || !slices.Equal(f.Names(), []Name{{"acc", "a", "default"}, {"acc", "b", "default"}}) {
		t.Errorf("the address is of %v, all are %v", names, f.Names())
	}
	if len(seen) != 2 || seen[0].State != Ejected || seen[0].Count != 5 || seen[0].Reason != "connect" || seen[0].Until != e.Until {
		t.Errorf("the transitions are %+v", seen)
	}
	var a Attempts
	a.Begin(at, first)
	if a.Pick(at); !a.WithoutHealthy() || first.WithoutHealthy() != 1 {
		t.Error("a request without a healthy target is not counted")
	}
	a.End(at, OK)
	a.Finish(at)
	if len(seen) != 3 || seen[2].State != Healthy || seen[2].Reason != "answered" || !first.Serves(at) {
		t.Errorf("an ejected address that answers does not serve again: %+v", seen)
	}
}

// Guarantee (section 6): what is in flight at a target that drains or is gone ends after the drain timeout that was in force when it
// left: a second drain moves nothing, and one that gets requests again before that keeps what is in flight. Ending is true in time.
func TestWhatIsOpenAtATargetThatLeaves(t *testing.T) {
	const timeout = 30 * time.Second
	f, u, cfg := testUpstream(3, RoundRobin)
	configure := func(at time.Duration, timeout time.Duration, change func(c *Config)) {
		next := *cfg
		next.Targets = slices.Clone(cfg.Targets)
		next.DrainTimeout = timeout
		change(&next)
		f.Upstream(at, u.name, &next)
	}
	configure(0, timeout, func(*Config) {})
	all := map[string]*Target{}
	var open []*Attempts
	for range 3 {
		a := &Attempts{}
		a.Begin(0, u)
		all[a.Pick(0).URL()] = a.Target()
		open = append(open, a)
	}
	drained, back, removed := all[cfg.Targets[0].URL], all[cfg.Targets[1].URL], all[cfg.Targets[2].URL]
	expect := func(at time.Duration, ending bool, of map[*Target]bool) {
		t.Helper()
		f.Sweep(at)
		if got := f.Ending(); got != ending {
			t.Errorf("at %v: got Ending %t, want %t", at, got, ending)
		}
		for target, want := range of {
			if got := target.Ends(at); got != want {
				t.Errorf("at %v: got %t for %s, want %t", at, got, target.URL(), want)
			}
		}
	}
	configure(time.Second, timeout, func(c *Config) { c.Targets[0].Drain, c.Targets[1].Drain, c.Targets = true, true, c.Targets[:2] })
	expect(time.Second, false, map[*Target]bool{drained: false, back: false, removed: false})
	configure(20*time.Second, time.Second, func(c *Config) { c.Targets[0].Drain, c.Targets = true, c.Targets[:2] })
	expect(29*time.Second, true, map[*Target]bool{drained: false, back: false, removed: false})
	expect(31*time.Second, true, map[*Target]bool{drained: true, back: false, removed: true})
	for _, a := range open {
		a.End(31*time.Second, OK)
		a.Finish(31 * time.Second)
	}
	expect(40*time.Second, false, map[*Target]bool{drained: true, back: false})

	a := &Attempts{}
	a.Begin(50*time.Second, u)
	last := a.Pick(50 * time.Second)
	f.Drop(51*time.Second, u.name) // its drain timeout was 1s
	expect(52*time.Second, true, map[*Target]bool{last: true})
}

// Guarantee (sections 5 and 6): what is in flight at a target that was reached by its name goes on when its addresses are known, and ends
// with the drain timeout once the target itself is drained or gone. An address that is not its name's any more drains.
func TestWhatIsOpenAtATargetByName(t *testing.T) {
	const timeout = 30 * time.Second
	for _, drain := range []bool{true, false} {
		f := NewFleet(nil)
		name := Name{Account: "a", Gateway: "g", Upstream: "u"}
		configure := func(at time.Duration, targets ...TargetConfig) *Upstream {
			return f.Upstream(at, name, &Config{Targets: targets, DrainTimeout: timeout})
		}
		by := TargetConfig{URL: "http://n", Origin: "http://n:80", Address: "n:80", Weight: 1, ByName: true}
		one, two := by, by
		one.Address, one.ByName, two.Address, two.ByName = "10.0.0.1:80", false, "10.0.0.2:80", false
		u := configure(0, by)
		open := func(at time.Duration) *Target {
			a := &Attempts{}
			a.Begin(at, u)
			return a.Pick(at)
		}
		named := open(0)
		configure(time.Second, one)
		address := open(time.Second)
		configure(2*time.Second, two)
		if at := 50 * time.Second; named.Ends(at) || !address.Ends(at) {
			t.Errorf("got ends %t by name and %t at the address that is gone; want the latter alone", named.Ends(at), address.Ends(at))
		}
		if two.Drain = drain; drain {
			configure(60*time.Second, two)
		} else {
			f.Drop(60*time.Second, name)
		}
		if named.Ends(89*time.Second) || !named.Ends(90*time.Second) {
			t.Errorf("drained %t: what is open by name does not end after the drain timeout", drain)
		}
	}
}
