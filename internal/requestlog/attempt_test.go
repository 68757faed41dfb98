package requestlog

import (
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/id"
)

// Guarantee: targets.md, section 9: each attempt is explained in words, with the ejection that it led to.
func TestExplainAttempt(t *testing.T) {
	at := time.Date(2026, 5, 6, 12, 0, 3, 0, time.UTC).UnixMilli()
	for want, a := range map[string]accesslog.Attempt{
		"attempt 1 → a:1: connection refused (ejected 12:00:03 after 5 failures, for 10 s)": {Result: "connect", Reason: accesslog.ConnectionRefused, Ejected: at, EjectedUntil: at + 10_000, Failures: 5},
		"attempt 1 → a:1: connection refused (ejected 12:00:03 after 1 failure, for 1.5 s)": {Result: "connect", Reason: accesslog.ConnectionRefused, Ejected: at, EjectedUntil: at + 1500, Failures: 1},
		"attempt 1 → a:1: 200 in 4 ms":                                  {Result: "ok", Status: 200, Took: 4 * time.Millisecond},
		"attempt 1 → a:1: 503 in 0.31 ms":                               {Result: "503", Status: 503, Took: 312 * time.Microsecond},
		"attempt 1 → a:1: 200 with grpc-status 14 in 2 s":               {Result: "grpc_unavailable", Status: 200, Took: 2 * time.Second},
		"attempt 1 → a:1: no response within 1.5 s":                     {Result: "timeout", Reason: accesslog.ResponseTimeout, Took: 1500 * time.Millisecond},
		"attempt 1 → a:1: the connection ended before the response":     {Result: "reset", Reason: accesslog.ClosedEarly},
		"attempt 1 → a:1: 200, and the connection ended after 61 s":     {Result: "reset", Status: 200, Took: 61 * time.Second},
		"attempt 1 → a:1: host unreachable":                             {Result: "connect", Reason: accesslog.HostUnreachable},
		"attempt 1 → a:1: the address is not allowed for this account":  {Result: "address_not_allowed"},
		"attempt 1 → a:1: no connection within 1 s":                     {Result: "connect", Took: time.Second},
		"attempt 1 → a:1: ended by the client or by Keygate after 0 ms": {Result: "canceled"},
		"attempt 1 → a:1: not processed by the target":                  {Result: "canceled", Reason: accesslog.ClosedEarly},
		"attempt 1 → a:1: a result of later":                            {Result: "a_result_of_later"},
	} {
		a.Target = "a:1"
		if got := ExplainAttempt(1, &a); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	for r := balance.OK; r <= balance.GRPCUnavailable; r++ {
		a := accesslog.Attempt{Result: r.String(), Status: 200}
		if got := attemptWords(&a); !strings.Contains(got, " ") {
			t.Errorf("the result %s: got %q, want it in words", r, got)
		}
	}
}

// Guarantee: targets.md, section 9: a target to which a request was not sent is explained by its state, in the words of an attempt
// that has led to its ejection. A state of a later version is explained by its name.
func TestExplainUntried(t *testing.T) {
	at := time.Date(2026, 5, 6, 12, 0, 3, 0, time.UTC).UnixMilli()
	for want, u := range map[string]accesslog.UntriedTarget{
		"a:1 (ejected 12:00:03 after 5 failures, for 10 s)":                                                  {State: accesslog.StateEjected, Reason: "connect", Since: at, Until: at + 10_000, Failures: 5},
		"a:1 (ejected 12:00:03 after 1 failure, for 20 s; that is over, and one request at a time tries it)": {State: accesslog.StateHalfOpen, Reason: "connect", Since: at, Until: at + 20_000, Failures: 1},
		"a:1 (unhealthy since 12:00:03: status 503)":                                                         {State: accesslog.StateUnhealthy, Reason: "status 503", Since: at},
		"a:1 (unhealthy since 12:00:03: address not allowed)":                                                {State: accesslog.StateUnhealthy, Reason: "address_not_allowed", Since: at},
		"a:1 (waits for its first check)":                                                                    {State: accesslog.StateWaits},
		"a:1 (draining)":                                                                                     {State: accesslog.StateDraining},
		"a:1 (of later)":                                                                                     {State: "of_later"},
	} {
		u.Target = "a:1"
		if got := ExplainUntried(&u); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

// Guarantee: requests with several attempts are in the log, whatever their status, and the filter retried finds them. One attempt
// alone keeps none.
func TestRequestsWithSeveralAttemptsBelong(t *testing.T) {
	failed := accesslog.AppendAttempt(nil, &accesslog.Attempt{Target: "a:1", Result: "reset", Status: 200})
	both := string(accesslog.AppendAttempt(failed, &accesslog.Attempt{Target: "b:1", Result: "ok", Status: 200}))
	cost := string(accesslog.AppendCost(nil, &accesslog.Cost{Meter: "tokens", Units: 1}))
	for _, c := range []struct {
		status                                uint16
		attempts, cost                        string
		want                                  Belonging
		isListed, isCharged, isRetried, isOne bool
	}{
		{200, both, "", Retried, false, false, true, false},
		{200, both, cost, Retried, false, true, true, false},
		{502, both, "", Ended, true, false, true, false},
		{502, string(failed), "", Ended, true, false, false, true},
		{200, string(failed), "", NotKept, false, false, false, true},
		{200, string(failed), cost, Charged, false, true, false, true},
	} {
		e := accesslog.Entry{Record: accesslog.Record{Account: id.NewFast(), Status: c.status}, AttemptList: c.attempts, Cost: c.cost}
		if got := Belongs(&e); got != c.want {
			t.Errorf("%+v: Belongs is %d, want %d", c, got, c.want)
		}
		r := NewRecord(&e)
		for result, want := range map[string]bool{"": c.isListed, ResultCharged: c.isCharged, ResultRetried: c.isRetried} {
			if f := (Filter{Result: result}); c.want != NotKept && f.Matches(&r) != want {
				t.Errorf("%+v: the filter %q matches: %t, want %t", c, result, !want, want)
			}
		}
		if got := r.Request().Attempts; (len(got) == 1) != c.isOne {
			t.Errorf("%+v: got the attempts %v", c, got)
		}
	}
}
