package balance

import (
	"fmt"
	"testing"
)

// Guarantee: targets.md, 6. What is in flight at an only target counts from when it began, also after the upstream got a second target,
// was replaced or is gone; a request that was decided before goes where the new configuration says, and none to a target that drains.
func TestOnlyTargetCounts(t *testing.T) {
	n := Name{Account: "acct_1", Gateway: "gw_1", Upstream: "default"}
	f := NewFleet(nil)
	lone := f.Alone(0, n, nil, "http://a", "a:80", false)
	if !lone.Begin() || !lone.Begin() || f.Alone(1, n, lone, "http://a", "a:80", false) != lone {
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
	f.EndAlone(n, lone, u)
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
	lone = f.Alone(0, other, nil, "http://a", "a:80", false)
	lone.Begin()
	if f.Alone(1, other, lone, "http://a", "a:80", true) != lone || lone.Begin() || f.InFlight(2, other, "http://a") != 1 || !f.ObserveOne(2, other)[0].Draining {
		t.Error("a target that drains takes requests, or does not show what is in flight")
	}
	seen := 0
	f.Observe(2, func(n Name, list []Status) bool {
		if n == other && len(list) == 1 && list[0].Own == 1 {
			seen++
		}
		return true
	})
	if next := f.Alone(3, other, lone, "http://c", "c:80", false); seen != 1 || next == lone || f.InFlight(4, other, "http://a") != 1 {
		t.Error("a target that was replaced does not show what is in flight")
	}
	lone.End()
	f.Sweep(5)
	last := f.Alone(6, other, nil, "http://c", "c:80", false)
	last.Begin()
	f.EndAlone(other, last, nil)
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
