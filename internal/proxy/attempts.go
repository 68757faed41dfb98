package proxy

import (
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/upstream"
)

// attempts are the attempts of a request to an upstream with several targets, and the targets that were not tried, for the access
// record (targets.md, section 9). A nil *attempts is that of a request all of whose attempts have succeeded.
type attempts struct {
	list    [balance.MaxAttempts]accesslog.Attempt
	n       int
	untried accesslog.Untried
}

// AnswerAttempt records what the head of a response that goes to the client says about the target of the attempt.
func (x *Exchange) AnswerAttempt(r balance.Result) { x.answer = r }

// BeginAttempt notes that an attempt begins, and when it must end because of its target. Nil means that it has ended.
func (x *Exchange) BeginAttempt(e *balance.Ending) { x.ending.Store(e) }

// Ending returns when the attempt that runs must end, or nil. A sweeper may call it while x is in use.
func (x *Exchange) Ending() *balance.Ending { return x.ending.Load() }

// EndAttempt records that an attempt of the request at a target has ended with a result, after this was reported to the target.
// began and ended are times by Mono. err is the error that ended it, or nil. It reports whether the attempt has failed.
func (x *Exchange) EndAttempt(at *balance.Target, r balance.Result, err error, began, ended time.Duration) (failed bool) {
	if r == balance.OK && x.answer.Failed() {
		r = x.answer
	}
	x.sending, x.answer = false, balance.OK
	x.ending.Store(nil)
	if x.ended || x.tried == nil && r == balance.OK {
		return r.Failed()
	}
	a := accesslog.Attempt{Target: at.Address().Key().Address, Result: r.String(), Took: ended - began, Status: uint16(statusOf(r))}
	switch {
	case x.head != 0: // the response went to the client
		a.Status = uint16(x.upstreamStatus)
		if r == balance.OK {
			a.Took = time.Duration(x.head) - began
		}
	case r == balance.Timeout:
		a.Reason = accesslog.ResponseTimeout
	}
	if r.Failed() {
		if reason := upstream.ReasonOf(err); reason != accesslog.NoReason {
			a.Reason = reason
		}
		x.noteEjection(&a, at, began, ended)
	}
	if x.tried == nil {
		x.tried = &attempts{}
	}
	x.tried.add(&a)
	return r.Failed()
}

// noteEjection notes that the target was ejected while an attempt that failed ran: for its failure, or for another's.
func (x *Exchange) noteEjection(a *accesslog.Attempt, at *balance.Target, began, ended time.Duration) {
	e, out := at.Address().Ejection(ended)
	if !out || e.Since < began || e.Since > ended {
		return
	}
	a.Ejected, a.EjectedUntil, a.Failures = x.wall(e.Since), x.wall(e.Until), e.Failures
}

// wall returns a time by Mono in milliseconds since 1970.
func (x *Exchange) wall(at time.Duration) int64 {
	return (x.start.Wall + int64(at) - x.start.Mono) / int64(time.Millisecond)
}

// NoteUntried records which targets the last choice has left out because of their state. It is called after an attempt that has
// failed, after each choice of another target, and if there is no target.
func (x *Exchange) NoteUntried(a *balance.Attempts) {
	first, count := a.Untried()
	if x.ended || count == 0 && !a.WithoutHealthy() {
		return
	}
	if x.tried == nil {
		x.tried = &attempts{}
	}
	u := &x.tried.untried
	*u = accesslog.Untried{Count: count, AllUnhealthy: a.WithoutHealthy(), Targets: u.Targets[:0]}
	for i := range first {
		u.Targets = append(u.Targets, x.untriedTarget(&first[i]))
	}
}

// untriedTarget returns what is recorded of a target that was not tried.
func (x *Exchange) untriedTarget(s *balance.Status) accesslog.UntriedTarget {
	t := accesslog.UntriedTarget{Target: s.Address}
	switch {
	case s.Draining:
		t.State = accesslog.StateDraining
	case s.State == balance.Unhealthy:
		t.State, t.Reason, t.Since = accesslog.StateUnhealthy, s.Reason, x.wall(s.Since)
	case s.State == balance.Ejected:
		t.State, t.Reason, t.Since, t.Until, t.Failures = accesslog.StateEjected, s.Reason, x.wall(s.Since), x.wall(s.Until), s.EjectedAfter
		if s.HalfOpen {
			t.State = accesslog.StateHalfOpen
		}
	default:
		t.State = accesslog.StateWaits
	}
	return t
}

// statusOf returns the status of the response that the result is of, or 0.
func statusOf(r balance.Result) int {
	switch r {
	case balance.Status502:
		return http1.StatusBadGateway
	case balance.Status503:
		return http1.StatusServiceUnavailable
	case balance.Status504:
		return http1.StatusGatewayTimeout
	case balance.GRPCUnavailable:
		return http1.StatusOK
	default:
		return 0
	}
}

// add adds an attempt. One before it that says nothing about its target was not processed there, or there would be no other.
func (t *attempts) add(a *accesslog.Attempt) {
	if t.n > 0 {
		if before := &t.list[t.n-1]; before.Result == balance.Canceled.String() {
			before.Reason = accesslog.ClosedEarly
		}
	}
	if t.n < len(t.list) {
		t.list[t.n] = *a
		t.n++
	}
}

// fillTarget sets the texts about where the request went. An attempt that has led to a tunnel has not ended.
func (x *Exchange) fillTarget(t *accesslog.Texts) {
	t.Target = x.target
	t.SideReason = x.Verdict.SideReason
	if u := x.Verdict.Upstream; u != nil && (x.attempts > 0 || x.tried != nil || t.SideReason != "") {
		t.UpstreamName = u.Name
	}
	if x.tried == nil {
		return
	}
	if x.sending && x.head != 0 {
		x.tried.add(&accesslog.Attempt{Target: x.target, Result: balance.OK.String(), Status: uint16(x.upstreamStatus), Took: time.Duration(x.head - x.sent)})
		x.sending = false
	}
	if t := x.tried; t.n == 1 && t.list[0].Result == balance.Canceled.String() {
		return // it was the only one, and has not failed
	}
	var b []byte
	for i := range x.tried.list[:x.tried.n] {
		b = accesslog.AppendAttempt(b, &x.tried.list[i])
	}
	b = accesslog.AppendUntried(b, &x.tried.untried)
	t.AttemptList = Text(b)
}
