package health

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world runs a schedule by virtual time.
type world struct {
	tb       rapid.TB
	schedule *schedule
	now      time.Duration
	ends     map[*probe]time.Duration // of the checks that run
	lasts    func(*probe) time.Duration
	began    func(*probe)
	leads    func(*probe) string // where the name of a probe leads, or nil
}

func newWorld(tb rapid.TB, lasts func(*probe) time.Duration, began func(*probe)) *world {
	w := &world{tb: tb, ends: map[*probe]time.Duration{}, lasts: lasts, began: began}
	w.schedule = newSchedule(func(d time.Duration) time.Duration { return d })
	return w
}

func (w *world) add(account, address string, interval time.Duration) *probe {
	p := &probe{}
	w.schedule.add(p, account, address, interval)
	return p
}

// run lets time pass until end, from event to event.
func (w *world) run(end time.Duration) {
	w.tb.Helper()
	for steps := 0; ; steps++ {
		if steps > 1<<20 {
			w.tb.Fatal("the schedule does not let time pass")
		}
		for _, p := range w.schedule.due(w.now, nil) {
			if _, runs := w.ends[p]; runs {
				w.tb.Fatal("two checks of one probe run at once")
			}
			w.ends[p] = w.now + w.lasts(p)
			w.began(p)
		}
		if len(w.ends) > maxRunning {
			w.tb.Fatalf("%d checks run at once, want at most %d", len(w.ends), maxRunning)
		}
		next := end
		if at, never := w.schedule.wakeAt(); !never {
			next = min(next, at)
		}
		for _, at := range w.ends {
			next = min(next, at)
		}
		if w.now = max(w.now, next); w.now >= end {
			return
		}
		for p, at := range w.ends {
			if at <= w.now {
				delete(w.ends, p)
				if w.leads != nil {
					w.schedule.move(p, w.leads(p))
				}
				w.schedule.ended(w.now, p)
			}
		}
	}
}

// paced checks that no more than most of something happen within a second.
type paced struct {
	most int
	at   map[string][]time.Duration
}

func (p *paced) note(tb rapid.TB, of string, now time.Duration) {
	list := p.at[of]
	list = append(list, now)
	for len(list) > 0 && list[0] <= now-time.Second {
		list = list[1:]
	}
	if p.at[of] = list; len(list) > p.most {
		tb.Fatalf("%s: %d checks within a second, want at most %d", of, len(list), p.most)
	}
}

// Guarantee: targets.md 1, within any second at most 100 checks of a tenant begin, and at most 10 of an address, whatever there is to
// check, however long checks take, and while probes come and go; and a schedule without probes has forgotten everything.
func TestRatesOfChecks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		accounts, addresses := rapid.IntRange(1, 4).Draw(t, "accounts"), rapid.IntRange(1, 40).Draw(t, "addresses")
		longest := rapid.SampledFrom([]time.Duration{time.Millisecond, 300 * time.Millisecond, 5 * time.Second}).Draw(t, "longest check")
		ofAccount, ofAddress := paced{100, map[string][]time.Duration{}}, paced{10, map[string][]time.Duration{}}
		began := map[*probe]bool{}
		var w *world
		w = newWorld(t, func(*probe) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(longest)).Draw(t, "check"))
		}, func(p *probe) {
			began[p] = true
			ofAccount.note(t, p.account.name, w.now)
			ofAddress.note(t, p.address.name, w.now)
		})
		if rapid.Bool().Draw(t, "names") {
			w.leads = func(*probe) string { return fmt.Sprint("address ", rapid.IntRange(1, addresses).Draw(t, "leads")) }
		}
		var probes []*probe
		for range rapid.IntRange(1, 5).Draw(t, "changes") {
			for range rapid.IntRange(0, 60).Draw(t, "new") {
				probes = append(probes, w.add(fmt.Sprint("account ", rapid.IntRange(1, accounts).Draw(t, "account")), fmt.Sprint("address ", rapid.IntRange(1, addresses).Draw(t, "address")),
					rapid.SampledFrom([]time.Duration{time.Second, 3 * time.Second}).Draw(t, "interval")))
			}
			w.run(w.now + time.Duration(rapid.IntRange(0, 4000).Draw(t, "ms"))*time.Millisecond)
			for i := range rapid.IntRange(0, len(probes)).Draw(t, "gone") {
				w.schedule.remove(probes[i])
				if probes[i] = nil; i == len(probes)-1 {
					probes = nil
				}
			}
			var left []*probe
			for _, p := range probes {
				if p != nil {
					left = append(left, p)
				}
			}
			probes = left
		}
		// At 5 checks a second at the worst, as each may be put off by one that is moved there, of which each account has its share, all
		// that are left have had their turn by then.
		w.run(w.now + time.Duration(accounts*(1+len(probes)))*(2*addressPace+longest))
		for _, p := range probes {
			if !began[p] {
				t.Fatalf("a probe of %s at %s was never checked", p.account.name, p.address.name)
			}
			w.schedule.remove(p)
		}
		w.run(w.now + longest + time.Second)
		if s := w.schedule; len(s.accounts)+len(s.addresses)+len(s.timers)+s.ready.n+len(s.ready.of)+s.running > 0 {
			t.Fatalf("got %d accounts, %d addresses, %d timers, %d ready and %d running, want nothing left", len(s.accounts), len(s.addresses), len(s.timers), s.ready.n, s.running)
		}
	})
}

// Guarantee: a target is checked although new names of another account are led to its address all the time.
func TestNewNamesDoNotStarveAnAddress(t *testing.T) {
	const shared = "10.0.0.1:80"
	var w *world
	checked := 0
	w = newWorld(t, func(*probe) time.Duration { return time.Millisecond }, func(p *probe) {
		if p.account.name == "other" {
			checked++
		}
	})
	w.leads = func(*probe) string { return shared }
	w.add("other", shared, time.Second)
	for i := range 1200 { // a minute
		p := w.add("one", fmt.Sprintf("h%d.test:80", i), time.Second)
		w.run(w.now + 50*time.Millisecond)
		w.schedule.remove(p)
	}
	if checked < 50 {
		t.Errorf("the target was checked %d times in a minute, want about once a second", checked)
	}
}

// Guarantee: of names that lead to one address, at most 10 checks a second begin there once each has been checked, and those of other
// addresses are not delayed.
func TestNamesOfOneAddressShareItsPace(t *testing.T) {
	const names = 60
	var w *world
	at, others := paced{10, map[string][]time.Duration{}}, 0
	checked := map[*probe]int{}
	w = newWorld(t, func(*probe) time.Duration { return time.Millisecond }, func(p *probe) {
		if checked[p]++; checked[p] == 1 {
			return
		}
		if p.account.name == "other" {
			others++
			return
		}
		at.note(t, "10.0.0.1:80", w.now)
	})
	w.leads = func(p *probe) string {
		if p.account.name == "other" {
			return "10.0.0.2:80"
		}
		return "10.0.0.1:80"
	}
	for i := range names {
		w.add(fmt.Sprint("account ", i%3), fmt.Sprintf("h%d.test:80", i), time.Second)
	}
	w.add("other", "other.test:80", time.Second)
	w.run(time.Minute)
	for p, n := range checked {
		if n < 5 {
			t.Errorf("%s of %s was checked %d times in a minute, want its share", p.address.name, p.account.name, n)
		}
	}
	if others < 55 {
		t.Errorf("another address was checked %d times in a minute, want once a second", others)
	}
	if len(w.schedule.addresses) != 2 {
		t.Errorf("%d addresses are known, want 2", len(w.schedule.addresses))
	}
}

// Guarantee: what the rates allow is checked at its interval, and for the first time at once.
func TestChecksComeAtTheirInterval(t *testing.T) {
	times := map[*probe][]time.Duration{}
	var w *world
	w = newWorld(t, func(*probe) time.Duration { return time.Millisecond }, func(p *probe) { times[p] = append(times[p], w.now) })
	for i := range 100 {
		for j := range 10 {
			w.add(fmt.Sprint("account ", i), fmt.Sprint("address ", i, j), 10*time.Second)
		}
	}
	w.run(35 * time.Second)
	for _, list := range times {
		if len(list) != 4 || list[0] > 500*time.Millisecond {
			t.Fatalf("got checks at %v, want four from the start on", list)
		}
		for i := range list[1:] {
			if gap := list[i+1] - list[i]; gap < 10*time.Second || gap > 10*time.Second+200*time.Millisecond {
				t.Fatalf("got checks at %v, want one each 10 s", list)
			}
		}
	}
	if len(times) != 1000 {
		t.Errorf("got %d probes with checks, want 1000", len(times))
	}
}

// Guarantee: a tenant that checks more than the rates allow, or whose checks all hang, delays those of others by less than a second.
func TestAccountsTakeTurnsWithChecks(t *testing.T) {
	for name, lasts := range map[string]time.Duration{"many": time.Millisecond, "hang": time.Minute} {
		t.Run(name, func(t *testing.T) {
			var times []time.Duration
			var w *world
			w = newWorld(t, func(p *probe) time.Duration {
				if p.account.name == "small" {
					return time.Millisecond
				}
				return lasts
			}, func(p *probe) {
				if p.account.name == "small" {
					times = append(times, w.now)
				}
			})
			for i := range 6 {
				for j := range 3000 {
					address := "shared"
					if j%2 == 0 {
						address = fmt.Sprint("address ", i, j)
					}
					w.add(fmt.Sprint("large ", i), address, time.Second)
				}
			}
			w.run(20 * time.Second)
			w.add("small", "shared", time.Second)
			began := w.now
			w.run(w.now + 20*time.Second)
			last := began
			for _, at := range times {
				if at-last > 2*time.Second {
					t.Fatalf("got checks at %v after %v, want none to wait for a second", times, began)
				}
				last = at
			}
			if len(times) < 10 {
				t.Errorf("got %d checks in 20 s, want at least 10", len(times))
			}
		})
	}
}
