package detect_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/event/detect"
)

// fleetHarness is a Detector with a Fleet whose transitions it gets.
type fleetHarness struct {
	*testing.T
	fleet    *balance.Fleet
	detector *detect.Detector
	store    *memoryStore
	full     atomic.Bool
	began    time.Time
}

func openFleet(t *testing.T) *fleetHarness {
	t.Helper()
	h := &fleetHarness{T: t, store: &memoryStore{known: map[string]bool{}}, began: time.Now()}
	h.fleet = balance.NewFleet(func(x balance.Transition) { h.detector.NoteTarget(x) })
	var err error
	h.detector, err = detect.New(detect.Config{
		Store: h.store, Routes: &harness{tb: t}, Node: "gw-1", Healths: h.fleet.Healths, Full: func(string) bool { return h.full.Load() },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.detector.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *fleetHarness) stop() {
	h.Helper()
	if err := h.detector.Stop(context.Background()); err != nil {
		h.Fatal(err)
	}
}

func (h *fleetHarness) now() time.Duration { return time.Since(h.began) }

// configure gives the account acct_1 an upstream of a gateway with targets at some addresses, and a check.
func (h *fleetHarness) configure(gateway, check string, addresses ...string) {
	c := &balance.Config{Ejection: balance.DefaultEjection(), Check: balance.Check{ID: check, Unhealthy: 1, Healthy: 1}}
	for _, a := range addresses {
		c.Targets = append(c.Targets, balance.TargetConfig{URL: "http://" + a, Origin: "http://" + a, Address: a, Weight: 1})
	}
	h.fleet.Upstream(h.now(), balance.Name{Account: "acct_1", Gateway: gateway, Upstream: "default"}, c)
}

func (h *fleetHarness) address(a string) *balance.Address {
	return h.fleet.Address(balance.Key{Account: "acct_1", Origin: "http://" + a, Address: a})
}

// eject makes attempts at the upstream of a gateway, which must have one target, fail until it is ejected.
func (h *fleetHarness) eject(gateway string) {
	h.Helper()
	u := h.fleet.Upstream(h.now(), balance.Name{Account: "acct_1", Gateway: gateway, Upstream: "default"}, h.config(gateway))
	for range balance.DefaultEjection().Failures {
		var a balance.Attempts
		a.Begin(h.now(), u)
		a.Pick(h.now())
		a.End(h.now(), balance.Connect)
		a.Finish(h.now())
	}
}

func (h *fleetHarness) config(gateway string) *balance.Config {
	a := "10.0.0.1:80"
	if gateway == "gw_2" {
		a = "10.0.0.2:80"
	}
	return &balance.Config{Ejection: balance.DefaultEjection(), Targets: []balance.TargetConfig{{URL: "http://" + a, Origin: "http://" + a, Address: a, Weight: 1}}}
}

// events returns the events so far, as "type target upstreams reason ×count @seconds".
func (h *fleetHarness) events() (all []string) {
	h.Helper()
	synctest.Wait()
	h.store.mu.Lock()
	defer h.store.mu.Unlock()
	for _, e := range h.store.events {
		var got struct {
			Data event.TargetState `json:"data"`
		}
		if err := json.Unmarshal(e.Payload, &got); err != nil {
			h.Fatal(err)
		}
		d := got.Data
		if e.AccountID != "acct_1" || d.Node == nil || *d.Node != "gw-1" {
			h.Fatalf("got the event %s of %s, want one of acct_1 and gw-1", e.Payload, e.AccountID)
		}
		var names []string
		for _, u := range d.Upstreams {
			names = append(names, u.GatewayID+"/"+u.Upstream)
		}
		all = append(all, fmt.Sprintf("%s %s %s %s ×%d @%.0f", strings.TrimPrefix(string(e.Type), "upstream.target_"), d.Target, strings.Join(names, ","), d.Reason, d.Count, e.CreatedAt.Sub(h.began).Seconds()))
	}
	return all
}

func (h *fleetHarness) want(want ...string) {
	h.Helper()
	if got := h.events(); !slices.Equal(got, want) {
		h.Fatalf("\n got %q\nwant %q", got, want)
	}
}

func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
}

// Guarantee: targets.md, section 3: a target that goes down and comes back makes an event at once, with the upstreams that have it.
// Then there is at most one of a type in 10 seconds; the last state is told by then, with the number of changes between.
func TestTargetEventsAreCombined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openFleet(t)
		defer h.stop()
		h.configure("gw_1", "", "10.0.0.1:80")
		h.configure("gw_3", "", "10.0.0.1:80")
		h.eject("gw_1")
		down := "down 10.0.0.1:80 gw_1/default,gw_3/default connect ×1 @0"
		h.want(down)
		pass(time.Second)
		h.address("10.0.0.1:80").Return(h.now())
		up := "up 10.0.0.1:80 gw_1/default,gw_3/default returned ×1 @1"
		h.want(down, up)
		for range 3 { // down, up, down, up, down
			h.eject("gw_1")
			pass(time.Second)
			h.address("10.0.0.1:80").Return(h.now())
		}
		h.eject("gw_1")
		h.want(down, up)
		pass(6 * time.Second)
		again := "down 10.0.0.1:80 gw_1/default,gw_3/default connect ×7 @10"
		h.want(down, up, again)
		h.address("10.0.0.1:80").Return(h.now())
		pass(time.Second)
		h.want(down, up, again, "up 10.0.0.1:80 gw_1/default,gw_3/default returned ×1 @11")
		pass(time.Hour)
		h.want(down, up, again, "up 10.0.0.1:80 gw_1/default,gw_3/default returned ×1 @11")
	})
}

// Guarantee: a target that several things keep down comes up with the last of them. A check that was removed keeps none down, and a
// target that was removed has no further event.
func TestWhatKeepsATargetDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openFleet(t)
		defer h.stop()
		h.configure("gw_1", "", "10.0.0.1:80")
		h.configure("gw_3", "a", "10.0.0.1:80")
		report := func(good bool) {
			h.fleet.Healths(func(x *balance.Health, _ balance.Check) bool {
				x.Report(h.now(), good, "status 500")
				return true
			})
		}
		report(false)
		want := []string{"down 10.0.0.1:80 gw_1/default,gw_3/default status 500 ×1 @0"}
		h.want(want...)
		h.eject("gw_1")
		pass(time.Second)
		h.address("10.0.0.1:80").Return(h.now())
		h.want(want...)
		report(true)
		want = append(want, "up 10.0.0.1:80 gw_1/default,gw_3/default check ×1 @1")
		h.want(want...)
		pass(20 * time.Second)
		report(false)
		want = append(want, "down 10.0.0.1:80 gw_1/default,gw_3/default status 500 ×1 @21")
		h.want(want...)
		h.configure("gw_3", "b", "10.0.0.1:80")
		pass(10 * time.Second)
		if got := h.events(); len(got) != 4 || !strings.HasPrefix(got[3], "up 10.0.0.1:80 gw_1/default,gw_3/default changed ×1 @3") {
			t.Fatalf("got %q, want an event that the target is up, since the check is another one", got)
		}
		h.configure("gw_2", "", "10.0.0.2:80")
		h.eject("gw_2")
		if got := h.events(); len(got) != 5 {
			t.Fatalf("got %q, want an event of the second target", got)
		}
		h.configure("gw_2", "")
		pass(time.Hour)
		if got := h.events(); len(got) != 5 {
			t.Fatalf("got %q, want none of a target that was removed", got)
		}
	})
}

// Guarantee: while too many events of the account wait, none is made; the last state is told later. Stop tells what is left.
func TestTargetEventsOfAFullAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openFleet(t)
		h.configure("gw_1", "", "10.0.0.1:80")
		h.full.Store(true)
		h.eject("gw_1")
		pass(5 * time.Second)
		h.want()
		h.full.Store(false)
		pass(time.Second)
		down := "down 10.0.0.1:80 gw_1/default connect ×1 @6"
		h.want(down)
		h.address("10.0.0.1:80").Return(h.now())
		h.eject("gw_1")
		h.address("10.0.0.1:80").Return(h.now())
		h.stop()
		if got := h.events(); len(got) != 2 || !strings.HasPrefix(got[1], "up 10.0.0.1:80 gw_1/default returned") {
			t.Fatalf("got %q, want the last state when the detector stops", got)
		}
	})
}

// Guarantee: docs/limits.md: what is remembered of targets is bounded, for each account and in all, and what is beyond is counted.
func TestTargetsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openFleet(t)
		defer h.stop()
		const most, more = 4096, 50
		var addresses []string
		for i := range most + more {
			addresses = append(addresses, fmt.Sprintf("10.0.%d.%d:80", i/256, i%256))
		}
		h.configure("gw_1", "a", addresses...)
		h.fleet.Healths(func(x *balance.Health, _ balance.Check) bool {
			x.Report(h.now(), false, "status 500")
			return true
		})
		synctest.Wait()
		if events, lost := len(h.store.events), h.detector.Lost(); events != most || lost != more {
			t.Errorf("got %d events and %d lost, want %d and %d", events, lost, most, more)
		}
	})
}

// Guarantee: however a target changes, the events of each type are at least 10 seconds apart, they alternate, the last state is told
// within 10 seconds, and their counts add up to the changes.
func TestTargetEventsOfAnyChanges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.IntRange(0, 15_000), 1, 40).Draw(rt, "waits")
		synctest.Test(t, func(t *testing.T) {
			h := openFleet(t)
			defer h.stop()
			h.configure("gw_1", "", "10.0.0.1:80")
			isDown := false
			for _, wait := range steps {
				if isDown = !isDown; isDown {
					h.eject("gw_1")
				} else {
					h.address("10.0.0.1:80").Return(h.now())
				}
				pass(time.Duration(wait) * time.Millisecond)
			}
			pass(10 * time.Second)
			total, last := 0, map[event.Type]time.Time{}
			before := event.UpstreamTargetUp
			for _, e := range h.store.events {
				var got struct {
					Data event.TargetState `json:"data"`
				}
				if err := json.Unmarshal(e.Payload, &got); err != nil {
					t.Fatal(err)
				}
				total += int(got.Data.Count)
				if at, known := last[e.Type]; e.Type == before || known && e.CreatedAt.Sub(at) < 10*time.Second {
					t.Fatalf("got %q, want alternate types, each at most once in 10 seconds", h.events())
				}
				before, last[e.Type] = e.Type, e.CreatedAt
			}
			if told := before == event.UpstreamTargetDown; told != isDown {
				t.Fatalf("the last event says that the target is down: %t, want %t", told, isDown)
			}
			if total > len(steps) || (len(steps)-total)%2 != 0 {
				t.Fatalf("the counts add up to %d, want the %d changes, but for those after the last event", total, len(steps))
			}
		})
	})
}
