package webhook_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/webhook"
)

var defaultWaits = [4]time.Duration{10 * time.Second, time.Minute, 6 * time.Minute, 36 * time.Minute}

// Guarantee: each wait is the schedule's own ±20 %, a Retry-After makes it longer
// but not beyond twice the schedule's own, never shorter, and the fifth failure
// is the last (contract, 6).
func TestSchedule(t *testing.T) {
	s, err := webhook.NewSchedule(defaultWaits)
	if err != nil {
		t.Fatal(err)
	}
	ended := time.Unix(1767225600, 0)
	rapid.Check(t, func(t *rapid.T) {
		attempt := rapid.IntRange(1, 5).Draw(t, "attempt")
		random := rapid.Float64Range(0, 0.999999).Draw(t, "random")
		asked := time.Duration(rapid.Int64Range(0, int64(3*time.Hour)).Draw(t, "retryAfter"))
		state, next := s.After(attempt, ended, random, asked)
		if attempt == 5 {
			if state != webhook.Failed || !next.IsZero() {
				t.Fatalf("after the fifth: %s, %v", state, next)
			}
			return
		}
		own, wait := defaultWaits[attempt-1], next.Sub(ended)
		low, high := own-own/5, own+own/5
		if asked > high {
			high = min(asked, 2*own)
		}
		if state != webhook.RetryScheduled || wait < max(low, min(asked, 2*own)) || wait > high {
			t.Fatalf("after attempt %d with Retry-After %v: %s, %v; want %v to %v", attempt, asked, state, wait, low, high)
		}
	})
	for random, want := range map[float64]time.Duration{0: 8 * time.Second, 0.5: 10 * time.Second, 1: 12 * time.Second} {
		if _, next := s.After(1, ended, random, 0); next.Sub(ended).Round(time.Millisecond) != want {
			t.Errorf("the wait for %v is %v, want %v", random, next.Sub(ended), want)
		}
	}
}

// Guarantee: a schedule without a wait is refused.
func TestNewSchedule(t *testing.T) {
	for _, waits := range [][4]time.Duration{{}, {1, 2, 3, 0}, {1, -2, 3, 4}} {
		if _, err := webhook.NewSchedule(waits); err == nil {
			t.Errorf("%v was taken", waits)
		}
	}
}

// Guarantee: 410 disables at once; nothing but failures for 5 days does; one
// success in between begins anew; enabling gives a clean record (contract, 6).
func TestObserve(t *testing.T) {
	day := 24 * time.Hour
	start := time.Unix(1767225600, 0)
	at := func(after time.Duration, status int, problem string) *webhook.Attempt {
		return &webhook.Attempt{StartedAt: start.Add(after), Duration: time.Second, Status: status, Error: problem}
	}
	w := webhook.Webhook{State: webhook.Active}
	step := func(a *webhook.Attempt, wantChanged bool, want webhook.State) {
		t.Helper()
		if changed := w.Observe(a); changed != wantChanged || w.State != want || (w.DisabledReason != "") != (want == webhook.Disabled) {
			t.Fatalf("after %+v: changed %v, %s, %q", a, changed, w.State, w.DisabledReason)
		}
	}
	step(at(0, 200, ""), false, webhook.Active)
	step(at(0, 500, ""), true, webhook.Active)
	step(at(4*day, 0, "refused"), false, webhook.Active)
	step(at(5*day-2*time.Second, 200, "broke off"), false, webhook.Active) // an answer that did not arrive whole
	step(at(5*day-time.Second-1, 204, ""), true, webhook.Active)
	step(at(5*day, 404, ""), true, webhook.Active)
	step(at(9*day, 503, ""), false, webhook.Active)
	step(at(10*day-time.Second, 503, ""), true, webhook.Disabled)
	step(at(10*day, 410, ""), false, webhook.Disabled)
	step(at(10*day, 200, ""), true, webhook.Disabled) // a late one: people enable, not answers
	w.Enable()
	step(at(10*day, 503, ""), true, webhook.Active)
	step(at(10*day, 410, "broke off"), false, webhook.Active)
	step(at(10*day, 410, ""), true, webhook.Disabled)
}
