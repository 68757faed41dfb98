package proxy

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/ratelimit"
)

// tryTargets is an upstream with several targets, whose attempts an Exchange records.
func tryTargets(n int) *balance.Upstream {
	c := &balance.Config{Ejection: balance.DefaultEjection(), Retries: balance.DefaultRetries()}
	for i := range n {
		c.Targets = append(c.Targets, balance.TargetConfig{URL: string(rune('a' + i)), Origin: string(rune('a' + i)), Address: string(rune('a'+i)) + ":1", Weight: 1})
	}
	return balance.NewFleet(nil).Upstream(0, balance.Name{Account: "a", Gateway: "g", Upstream: "u"}, c)
}

// Guarantee: targets.md, section 9: at most 6 attempts are recorded, in their order; one without a failure before it is not, and
// an end that says nothing about the target, as it has not processed the request, is one only with another after it.
func TestAttemptsOfAnExchange(t *testing.T) {
	x := &Exchange{start: ratelimit.Instant{Wall: int64(time.Hour), Mono: int64(time.Second)}}
	var a balance.Attempts
	a.Begin(0, tryTargets(9))
	var want []accesslog.Attempt
	results := []balance.Result{balance.OK, balance.Connect, balance.Timeout, balance.Status503, balance.Canceled, balance.OK, balance.Reset, balance.Reset}
	for i, r := range results {
		began, ended := time.Duration(i)*time.Second, time.Duration(i)*time.Second+time.Millisecond
		at := a.Pick(began)
		a.End(ended, r)
		x.EndAttempt(at, r, syscall.ECONNREFUSED, began, ended)
		if i > 0 && i <= balance.MaxAttempts {
			want = append(want, accesslog.Attempt{Target: at.Address().Key().Address, Result: r.String(), Took: time.Millisecond})
		}
	}
	for i, reason := range []accesslog.Reason{accesslog.ConnectionRefused, accesslog.ConnectionRefused, accesslog.ConnectionRefused, accesslog.ClosedEarly, accesslog.NoReason, accesslog.ConnectionRefused} {
		want[i].Reason = reason
	}
	want[2].Status = 503
	if got := x.tried.list[:x.tried.n]; !slices.Equal(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	var texts accesslog.Texts
	x.tried = nil
	x.EndAttempt(tryTargets(1).Observe(0, nil)[0].Target, balance.Canceled, errors.New("reset by the client"), 0, 1)
	if x.fillTarget(&texts); texts.AttemptList != "" {
		t.Error("got the attempts of a request whose only one was canceled, want none")
	}
	x.tried = nil
	x.EndAttempt(tryTargets(1).Observe(0, nil)[0].Target, balance.Timeout, errors.New("cut off"), 0, 1)
	if got := x.tried.list[0].Reason; got != accesslog.ResponseTimeout {
		t.Errorf("got the reason %v of a timeout, want %v", got, accesslog.ResponseTimeout)
	}
}

// Guarantee: targets.md, section 9: a request that had a failed attempt, and one for which there was no target, records which targets
// were not to be chosen, with times of the clock; one that went to any target because all were out, that this was so. One whose
// attempts have all succeeded records nothing.
func TestUntriedTargetsOfAnExchange(t *testing.T) {
	const wall, mono, at = int64(time.Hour), int64(time.Second), 3 * time.Second
	u := tryTargets(3)
	request := func(end func(a *balance.Attempts, to string)) accesslog.Untried {
		x := &Exchange{start: ratelimit.Instant{Wall: wall, Mono: mono}}
		var a balance.Attempts
		a.Begin(at, u)
		for range 3 {
			end(&a, a.Pick(at).Address().Key().Address)
		}
		x.NoteUntried(&a)
		a.Finish(at)
		var texts accesslog.Texts
		x.fillTarget(&texts)
		return accesslog.UntriedOf(texts.AttemptList)
	}
	fail := func(which string) func(*balance.Attempts, string) {
		return func(a *balance.Attempts, to string) {
			if strings.Contains(which, to) {
				a.End(at, balance.Connect)
			} else {
				a.End(at, balance.Canceled)
			}
		}
	}
	for range 5 {
		if got := request(fail("a:1")); got.Count != 0 {
			t.Fatalf("got %+v of a request that has tried every target, want none", got)
		}
	}
	var first balance.Attempts
	first.Begin(at, u)
	first.Pick(at)
	first.End(at, balance.Reset)
	x := &Exchange{start: ratelimit.Instant{Wall: wall, Mono: mono}}
	x.NoteUntried(&first)
	first.Finish(at)
	want := []accesslog.UntriedTarget{{Target: "a:1", State: accesslog.StateEjected, Reason: "connect", Since: 3_602_000, Until: 3_612_000, Failures: 5}}
	if got := x.tried.untried; !slices.Equal(got.Targets, want) || got.Count != 1 || got.AllUnhealthy {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for range 5 {
		request(fail("b:1 c:1"))
	}
	if got := request(fail("")); got.Count != 0 || !got.AllUnhealthy {
		t.Errorf("got %+v, want that all were ejected", got)
	}
}

// Guarantee: an exchange whose only attempt succeeds records it without an allocation.
func TestGoodAttemptAllocatesNothing(t *testing.T) {
	x := &Exchange{}
	at := tryTargets(2).Observe(0, nil)[0].Target
	if n := testing.AllocsPerRun(100, func() {
		x.MarkAttempt("a:1")
		x.AnswerAttempt(balance.OK)
		x.EndAttempt(at, balance.OK, nil, 0, time.Millisecond)
		var texts accesslog.Texts
		x.fillTarget(&texts)
	}); n != 0 || x.tried != nil {
		t.Errorf("%v allocations, want none, and no attempts", n)
	}
}
