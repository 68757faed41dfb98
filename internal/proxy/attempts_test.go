package proxy

import (
	"errors"
	"slices"
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
