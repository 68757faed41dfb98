package balance

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Guarantee (section 9): after each pick, Untried has the first targets that are unhealthy, ejected, half-open or drained, in the
// order of the configuration, without those that the request has tried, and their number. Their state is what Observe shows; of
// those that drain, only that counts. While no target takes part, only these were not to be chosen.
func TestUntried(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, now := NewFleet(nil), time.Duration(0)
		cfg := benchConfig(rapid.IntRange(1, 14).Draw(t, "targets"), 1, LeastRequests)
		for i := range cfg.Targets {
			cfg.Targets[i].Drain = rapid.IntRange(0, 4).Draw(t, "drain") == 0
		}
		u := f.Upstream(now, Name{"acc", "gw", "default"}, cfg)
		for i := range cfg.Targets {
			if u.table.targets[i].health.Report(now, true, ""); rapid.IntRange(0, 3).Draw(t, "unhealthy") == 0 {
				u.table.targets[i].health.Report(now, false, "status 503")
				u.table.targets[i].health.Report(now, false, "status 503")
			}
		}
		a := Attempts{Small: rapid.Bool().Draw(t, "small")}
		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) {
				now += time.Duration(rapid.IntRange(1, 12_000).Draw(t, "ms")) * time.Millisecond
			},
			"eject": func(t *rapid.T) {
				e := &u.table.targets[rapid.IntRange(0, len(u.table.targets)-1).Draw(t, "target")]
				for range cfg.Ejection.Failures {
					u.failed(now, e.address, &cfg.Ejection, phase(e.address.phase.Load()), Connect, 1, false)
				}
			},
			"request": func(t *rapid.T) {
				a.Begin(now, u)
				defer a.Finish(now)
				if first, count := a.Untried(); first != nil || count != 0 {
					t.Fatal("there are targets that were not tried before the first pick")
				}
				for range rapid.IntRange(1, 3).Draw(t, "attempts") {
					picked := a.Pick(now)
					if picked != nil {
						a.End(now, Canceled)
					} else if a.WithoutHealthy() {
						t.Fatal("no target was chosen without a healthy one")
					}
					checkUntried(t, &a, u.Observe(now, nil), u.AllUnhealthy(now))
					if picked == nil {
						return
					}
				}
			},
		})
	})
}

// checkUntried compares with what is observed.
func checkUntried(t *rapid.T, a *Attempts, all []Status, allUnhealthy bool) {
	want := slices.DeleteFunc(all, func(s Status) bool {
		out := s.Draining || !allUnhealthy && (s.State == Unhealthy || s.State == Ejected)
		return !out || slices.Contains(a.tried[:], s.Target)
	})
	got, count := a.Untried()
	if count != len(want) || len(got) != min(count, MaxUntried) {
		t.Fatalf("got %d of %d targets that were not tried, want the first of %d", len(got), count, len(want))
	}
	for i, s := range got {
		w := want[i]
		w.InFlight, w.Own, w.Requests = s.InFlight, s.Own, s.Requests // of another moment
		if s.Target != w.Target || s.Draining != w.Draining || !s.Draining && s != w {
			t.Fatalf("target %d:\n got %+v\nwant %+v", i, s, w)
		}
	}
}

// Guarantee (section 9): a backup that is not needed is not among them, whatever its state, and a target that waits for its first
// check beside a healthy one is. An ejection is there with the failures that led to it.
func TestUntriedBackupsAndUnchecked(t *testing.T) {
	f := NewFleet(nil)
	cfg := benchConfig(4, 1, LeastRequests)
	cfg.Targets[2].Backup = true
	u := f.Upstream(0, Name{"acc", "gw", "default"}, cfg)
	states := func(now time.Duration) (states []State, last Status) {
		var a Attempts
		a.Begin(now, u)
		defer a.Finish(now)
		a.Pick(now)
		a.End(now, OK)
		first, _ := a.Untried()
		for _, s := range first {
			states, last = append(states, s.State), s
		}
		return states, last
	}
	report := func(i int, isGood bool) { u.table.targets[i].health.Report(0, isGood, "status 503") }
	report(0, true)
	report(2, false)
	report(3, false)
	if got, _ := states(0); !slices.Equal(got, []State{Warming, Unhealthy}) {
		t.Errorf("got %v, want the target without a check and the unhealthy one that is not a backup", got)
	}
	report(1, true)
	report(3, true)
	report(3, true)
	at := time.Minute
	for range 5 {
		u.failed(at, u.table.targets[3].address, &cfg.Ejection, phase(u.table.targets[3].address.phase.Load()), Connect, 1, false)
	}
	got, last := states(at + time.Second)
	if !slices.Equal(got, []State{Ejected}) || last.Since != at || last.Until != at+10*time.Second || last.EjectedAfter != 5 || last.HalfOpen {
		t.Errorf("got %v, the last %+v, want the one that was ejected after 5 failures", got, last)
	}
	if _, last = states(at + 10*time.Second); !last.HalfOpen || last.EjectedAfter != 5 {
		t.Errorf("got %+v, want it half-open", last)
	}
}
