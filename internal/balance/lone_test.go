package balance

import (
	"fmt"
	"testing"
	"time"
)

// Guarantee: targets.md, 6. What is in flight at an only target counts from when it began, also after the upstream got a second target,
// was replaced or is gone; a request that was decided before goes where the new configuration says, and none to a target that drains.
func TestOnlyTargetCounts(t *testing.T) {
	n := Name{Account: "acct_1", Gateway: "gw_1", Upstream: "default"}
	f := NewFleet(nil)
	lone := f.Alone(0, n, nil, "http://a", "a:80", false, time.Second)
	for range 2 {
		if !lone.Begin() {
			t.Fatal("a request may not go to the only target")
		}
	}
	if f.Alone(1, n, lone, "http://a", "a:80", false, time.Second) != lone {
		t.Fatal("the target takes no requests, or a change that does not concern it made another one")
	}
	of := func(url string) string {
		text := ""
		for _, s := range f.ObserveOne(5, n) {
			if s.URL == url {
				text += fmt.Sprint(s.Draining, " ", s.Own, " ")
			}
		}
		return text
	}
	cfg := &Config{Targets: []TargetConfig{{URL: "http://a", Origin: "http://a", Address: "a:80", Weight: 1}, {URL: "http://b", Origin: "http://b", Address: "b:80", Weight: 1}}}
	u := f.Upstream(2, n, cfg)
	f.EndAlone(2, n, lone, u, time.Second)
	if lone.Begin() || lone.Next() != u {
		t.Error("a request that was decided before does not go to the upstream with several targets")
	}
	if got := of("http://a"); got != "false 2 " || f.InFlight(5, n, "http://a") != 2 {
		t.Errorf("got %q, want 2 in flight at a target that takes part", got)
	}
	f.Upstream(3, n, &Config{Targets: cfg.Targets[1:]})
	f.Sweep(3)
	if got := of("http://a"); got != "true 2 " {
		t.Errorf("got %q, want 2 in flight at a target that was removed", got)
	}
	lone.End()
	lone.End()
	f.Sweep(3)
	if got := of("http://a"); got != "" || f.InFlight(5, n, "http://a") != 0 || len(f.lones) != 0 {
		t.Errorf("got %q after the last request, want nothing", got)
	}

	other := Name{Account: "acct_1", Gateway: "gw_2", Upstream: "default"}
	lone = f.Alone(0, other, nil, "http://a", "a:80", false, time.Second)
	lone.Begin()
	if f.Alone(1, other, lone, "http://a", "a:80", true, time.Second) != lone || lone.Begin() || f.InFlight(2, other, "http://a") != 1 || !f.ObserveOne(2, other)[0].Draining {
		t.Error("a target that drains takes requests, or does not show what is in flight")
	}
	seen := 0
	f.Observe(2, func(n Name, list []Status) bool {
		if n == other && len(list) == 1 && list[0].Own == 1 {
			seen++
		}
		return true
	})
	if next := f.Alone(3, other, lone, "http://c", "c:80", false, time.Second); seen != 1 || next == lone || f.InFlight(4, other, "http://a") != 1 {
		t.Error("a target that was replaced does not show what is in flight")
	}
	lone.End()
	f.Sweep(5)
	last := f.Alone(6, other, nil, "http://c", "c:80", false, time.Second)
	last.Begin()
	f.EndAlone(6, other, last, nil, time.Second)
	if f.InFlight(7, other, "http://c") != 1 {
		t.Error("the only target of an upstream that is gone does not show what is in flight")
	}
}

// Guarantee: targets.md, 3. Return ends the ejection of a target at all of its addresses, and of no other target.
func TestReturnByURL(t *testing.T) {
	f := NewFleet(nil)
	n := Name{Account: "acct_1", Gateway: "gw_1", Upstream: "default"}
	u := f.Upstream(0, n, &Config{Ejection: Ejection{Failures: 1, On: On(Connect), Base: 1e12, Max: 1e12}, Targets: []TargetConfig{
		{URL: "http://a", Origin: "http://a", Address: "1:80", Weight: 1}, {URL: "http://a", Origin: "http://a", Address: "2:80", Weight: 1}, {URL: "http://b", Origin: "http://b", Address: "3:80", Weight: 1},
	}})
	for range 3 {
		var a Attempts
		a.Begin(1, u)
		a.Pick(1)
		a.End(1, Connect)
		a.Finish(1)
	}
	if !u.AllUnhealthy(2) || !f.AllUnhealthy(2, n) {
		t.Fatal("the targets are not all ejected")
	}
	if f.Return(3, n, "http://none") || !f.Return(3, n, "http://a") || f.Return(3, n, "http://a") || f.Return(3, Name{}, "http://a") {
		t.Error("Return reports an ejection that there is not, or none")
	}
	for _, s := range f.ObserveOne(3, n) {
		if ejected := s.State == Ejected; ejected != (s.URL == "http://b") {
			t.Errorf("%s at %s is %s", s.URL, s.Address, s.State)
		}
	}
}

// Guarantee (section 6): what is in flight at the only target of an upstream ends like all else there once it is taken away: as one of
// several since, by a configuration without it, or while it is still the only one.
func TestWhatIsOpenAtAnOnlyTarget(t *testing.T) {
	const timeout = 30 * time.Second
	f, n := NewFleet(nil), Name{Account: "a", Gateway: "g", Upstream: "u"}
	at := func(url string, drain bool) TargetConfig {
		return TargetConfig{URL: url, Origin: url, Address: url, Weight: 1, Drain: drain}
	}
	open := func() *Lone {
		l := f.Alone(0, n, nil, "http://a", "a:80", false, timeout)
		l.Begin()
		return l
	}
	expect := func(what string, l *Lone, ends time.Duration) {
		t.Helper()
		if f.Sweep(ends - time.Second); l.Ending().Ends(ends-1) || !l.Ending().Ends(ends) || !f.Ending() {
			t.Errorf("%s: what is open does not end at %v", what, ends)
		}
		l.End()
		if f.Sweep(ends); f.Ending() {
			t.Errorf("%s: something must end that has", what)
		}
	}
	drained := open()
	u := f.Upstream(time.Second, n, &Config{Targets: []TargetConfig{at("http://a", false), at("http://b", false)}, DrainTimeout: timeout})
	f.EndAlone(time.Second, n, drained, u, timeout)
	if f.Sweep(time.Hour); drained.Ending().Ends(time.Hour) {
		t.Error("what is open ends at a target that takes part")
	}
	f.Upstream(2*time.Hour, n, &Config{Targets: []TargetConfig{at("http://a", true), at("http://b", false)}, DrainTimeout: timeout})
	expect("drained", drained, 2*time.Hour+timeout)

	replaced := open()
	u = f.Upstream(time.Second, n, &Config{Targets: []TargetConfig{at("http://b", false), at("http://c", false)}, DrainTimeout: timeout})
	f.EndAlone(time.Second, n, replaced, u, timeout)
	expect("replaced", replaced, time.Second+timeout)

	alone := open()
	f.Alone(time.Second, n, alone, "http://a", "a:80", true, timeout)
	expect("the only one", alone, time.Second+timeout)
}

// Guarantee (sections 5 and 6): what began at a name, at the only target or among several, may be at any of its addresses. It ends with
// the drain timeout once the target is drained or the upstream is gone, however its addresses change, and goes on if the target is back
// before.
func TestWhatBeganAtANameEndsWithItsTarget(t *testing.T) {
	const timeout = 30 * time.Second
	n, by := Name{Account: "a", Gateway: "g", Upstream: "u"}, TargetConfig{URL: "http://n", Origin: "http://n:80", Address: "n:80", Weight: 1, ByName: true}
	for _, alone := range []bool{true, false} {
		f := NewFleet(nil)
		var lone *Lone
		var ending *Ending
		configure := func(at time.Duration, drain bool, addresses ...string) *Upstream {
			cfg := &Config{DrainTimeout: timeout}
			for _, address := range addresses {
				one := by
				one.Drain, one.Address, one.ByName = drain, address, address == by.Address
				cfg.Targets = append(cfg.Targets, one)
			}
			defer f.Sweep(at)
			return f.Upstream(at, n, cfg)
		}
		if alone {
			lone = f.Alone(0, n, nil, by.URL, by.Address, false, timeout)
			lone.Begin()
			f.EndAlone(time.Second, n, lone, configure(time.Second, false, by.Address), timeout)
			ending = lone.Ending()
		} else {
			a := &Attempts{}
			a.Begin(0, configure(0, false, by.Address))
			ending = a.Pick(0).Ending()
		}
		configure(2*time.Second, false, "10.0.0.1:80", "10.0.0.2:80")
		configure(3*time.Second, false, "10.0.0.2:80")
		if ending.Ends(time.Hour) {
			t.Errorf("alone %t: it ends because an address of the name is gone", alone)
		}
		configure(10*time.Second, true, "10.0.0.2:80")
		configure(20*time.Second, true, "10.0.0.3:80")
		if f.Sweep(39 * time.Second); ending.Ends(40*time.Second-1) || !ending.Ends(40*time.Second) || !f.Ending() {
			t.Errorf("alone %t: it does not end after the drain timeout", alone)
		}
		if configure(30*time.Second, false, "10.0.0.3:80"); ending.Ends(time.Hour) {
			t.Errorf("alone %t: it ends although its target is back", alone)
		}
		if f.Drop(time.Hour, n); ending.Ends(time.Hour+timeout-1) || !ending.Ends(time.Hour+timeout) {
			t.Errorf("alone %t: it does not end after its upstream is gone", alone)
		}
	}

	f := NewFleet(nil)
	last := f.Alone(0, n, nil, by.URL, by.Address, false, timeout)
	last.Begin()
	if f.EndAlone(time.Second, n, last, nil, timeout); last.Ending().Ends(timeout) || !last.Ending().Ends(time.Second+timeout) {
		t.Error("what is in flight at the only target of an upstream that is gone does not end after the drain timeout")
	}
}
