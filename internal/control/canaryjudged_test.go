package control_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/canary/lead"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
)

// judged is canaries with a process that judges them and one that counts their requests, in virtual time.
type judged struct {
	*canaries
	leader *lead.Leader
}

func newJudged(t *testing.T) *judged {
	t.Helper()
	j := &judged{canaries: newCanaries(t)}
	j.lead("first")
	return j
}

// lead begins a process that judges.
func (j *judged) lead(process string) {
	j.tb.Helper()
	var err error
	j.leader, err = lead.New(lead.Config{Store: j.db, Control: j.Service, Process: process, Now: j.clock.now})
	j.must(err)
}

// pass lets 5 s pass, in which each of 200 callers has made a request, of which the canary has its share, and looks.
func (j *judged) pass(id string, bad func(side canary.Side, caller int) bool) {
	j.tb.Helper()
	c := j.of(id)
	if s := j.now().Canary; s != nil && s.Counts {
		var t canary.Tally
		for caller := range 200 {
			side := canary.Other
			if float64(caller) < float64(c.Weight())/10000*200 {
				side = canary.Next
			}
			n := canary.Counts{Requests: 1}
			if bad(side, caller) {
				n.Bad = 1
			}
			t.Add(side, uint64(caller), n)
			t.AddLatency(side, 20*time.Millisecond)
		}
		data, err := t.MarshalBinary()
		j.must(err)
		j.must(j.db.AppendCanaryCounts(ctx(), accesslog.BatchID{}, []canary.CountRow{{CanaryID: id, Number: s.Step, At: j.clock.now(), Data: data}}))
	}
	j.clock.advance(5 * time.Second)
	j.must(j.leader.Look(ctx()))
}

// until lets time pass until the canary is in a state, for at most so many times 5 s.
func (j *judged) until(id string, s canary.State, most int, bad func(side canary.Side, caller int) bool) {
	j.tb.Helper()
	for range most {
		if j.of(id).State == s {
			return
		}
		j.pass(id, bad)
	}
	if got := j.of(id); got.State != s {
		j.tb.Fatalf("after %d × 5 s the canary is %s (%s), want %s", most, got.State, got.Explanation, s)
	}
}

// equallyBad has one of 100 requests fail on both sides.
func equallyBad(_ canary.Side, caller int) bool { return caller%100 == 3 }

// Guarantee: a canary whose upstream is as good as the other one passes through all of its steps, each for its time and until it
// has enough requests, and is promoted; another process that judges goes on in the middle of a step.
func TestEqualCanaryIsPromoted(t *testing.T) {
	j := newJudged(t)
	id := j.start(func(in *control.CanaryInput) {
		in.Steps, in.Hold, in.MinRequests, in.WhenDone = []gateway.Percent{10_00, 50_00}, "1m", new(int64(300)), "promote"
	}).ID
	for range 10 { // 50 s: 200 of 2,000 requests on the canary
		j.pass(id, equallyBad)
	}
	if c := j.of(id); c.Step != 0 || c.Progress[0].Next.Requests != 200 || c.Progress[0].Other.Requests != 1800 {
		t.Fatalf("got %+v after 50 s, want 200 and 1,800 requests", c.Progress)
	}
	j.must(second(j.PauseCanary(ctx(), j.caller, j.id, id, nil)))
	for range 100 { // nothing counts, and time stands still
		j.pass(id, equallyBad)
	}
	j.must(second(j.ResumeCanary(ctx(), j.caller, j.id, id, nil)))
	j.restart("second")
	for range 4 { // 1m10s: 280 requests
		j.pass(id, equallyBad)
	}
	if c := j.of(id); c.Step != 0 || c.Progress[0].Next.Requests != 280 || !strings.Contains(c.Explanation, "waits until both have 300") {
		t.Fatalf("got %+v (%s), want the first step with the 280 requests that both processes have counted", c.Progress, c.Explanation)
	}
	j.pass(id, equallyBad)
	j.wantShare("50 3 true")
	j.until(id, canary.Promoted, 14, equallyBad)
	if c := j.of(id); len(c.Progress) != 2 || c.Progress[1].Next.Requests < 1200 || !strings.Contains(c.Explanation, "failed on next") {
		t.Errorf("got %+v (%s)", c.Progress, c.Explanation)
	}
	if got := j.upstreamsOf(j.routes...); got != "next next" {
		t.Errorf("the routes have the upstreams %q", got)
	}
}

// restart opens the store again, and another process judges.
func (j *judged) restart(process string) {
	j.tb.Helper()
	j.reopen()
	j.lead(process)
}

// Guarantee: a canary that is worse is aborted, with the figures in words, and its callers go back; a change of its routes while it
// is judged pauses it.
func TestWorseCanaryIsAborted(t *testing.T) {
	j := newJudged(t)
	id := j.start(func(in *control.CanaryInput) { in.Steps = []gateway.Percent{10_00} }).ID
	j.pass(id, equallyBad)
	j.must(second(j.UpdateRoute(ctx(), j.caller, j.id, j.routes[0], control.RoutePatch{RateLimit: value(control.RateLimitPatch{Sustained: value("5/s")})}, nil)))
	j.pass(id, equallyBad)
	j.wantState(id, canary.Paused, "the route /a was changed")
	j.must(second(j.ResumeCanary(ctx(), j.caller, j.id, id, nil)))
	j.until(id, canary.Aborted, 20, func(side canary.Side, caller int) bool { return side == canary.Next && caller%2 == 0 })
	j.wantShare("")
	c := j.of(id)
	words := fmt.Sprintf("%d of %d failed on next (", c.Progress[0].Next.Bad, c.Progress[0].Next.Requests)
	if !strings.HasPrefix(c.Explanation, words) || !strings.HasSuffix(c.Explanation, "points more; allowed 1.0") {
		t.Errorf("got the explanation %q, want one that begins with %q", c.Explanation, words)
	}
	data := dataOf(j.newest(j.caller.Account.ID, 1, 1).events[0])
	if data["explanation"] != c.Explanation || j.newest(j.caller.Account.ID, 1, 1).events[0].Type != "canary.aborted" {
		t.Errorf("got the event %v", data)
	}
}
