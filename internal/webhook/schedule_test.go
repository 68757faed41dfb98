package webhook_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/webhook"
)

var defaultWaits = [4]time.Duration{10 * time.Second, time.Minute, 6 * time.Minute, 36 * time.Minute}

// Guarantee: each wait is the schedule's ±20 %. Retry-After may lengthen it to at most twice
// the schedule's and never shortens it. The fifth failure is final (contract, section 6).
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
				t.Fatalf("after the fifth failure: got %s, %v; want failed and no next attempt", state, next)
			}
			return
		}
		own, wait := defaultWaits[attempt-1], next.Sub(ended)
		low, high := own-own/5, own+own/5
		if asked > high {
			high = min(asked, 2*own)
		}
		if state != webhook.RetryScheduled || wait < max(low, min(asked, 2*own)) || wait > high {
			t.Fatalf("after attempt %d with Retry-After %v: got %s after %v, want retry_scheduled after %v to %v", attempt, asked, state, wait, low, high)
		}
	})
	for random, want := range map[float64]time.Duration{0: 8 * time.Second, 0.5: 10 * time.Second, 1: 12 * time.Second} {
		if _, next := s.After(1, ended, random, 0); next.Sub(ended).Round(time.Millisecond) != want {
			t.Errorf("with the random number %v: got a wait of %v, want %v", random, next.Sub(ended), want)
		}
	}
}

// Guarantee: a schedule in which a wait is not more than 0 is rejected.
func TestNewSchedule(t *testing.T) {
	for _, waits := range [][4]time.Duration{{}, {1, 2, 3, 0}, {1, -2, 3, 4}} {
		if _, err := webhook.NewSchedule(waits); err == nil {
			t.Errorf("NewSchedule(%v) succeeded, want an error", waits)
		}
	}
}

// Guarantee: a 410 disables the endpoint at once, and so do 5 days in which every attempt
// failed. A success restarts the 5 days. Enabling forgets the failures (contract, section 6).
func TestObserve(t *testing.T) {
	day := 24 * time.Hour
	start := time.Unix(1767225600, 0)
	w := webhook.Webhook{State: webhook.Active}
	for _, step := range []struct {
		name    string
		after   time.Duration // since start
		status  int
		problem string
		enable  bool // before the attempt
		changed bool
		want    webhook.State
	}{
		{"a success changes nothing", 0, 200, "", false, false, webhook.Active},
		{"the first failure starts the 5 days", 0, 500, "", false, true, webhook.Active},
		{"a failure within the 5 days changes nothing", 4 * day, 0, "refused", false, false, webhook.Active},
		{"an incomplete response is not a success", 5*day - 2*time.Second, 200, "broke off", false, false, webhook.Active},
		{"a success just before their end clears the failures", 5*day - time.Second - 1, 204, "", false, true, webhook.Active},
		{"the next failure starts the 5 days again", 5 * day, 404, "", false, true, webhook.Active},
		{"after 4 more days the endpoint is still active", 9 * day, 503, "", false, false, webhook.Active},
		{"after 5 more days it is disabled", 10*day - time.Second, 503, "", false, true, webhook.Disabled},
		{"a late 410 changes nothing", 10 * day, 410, "", false, false, webhook.Disabled},
		{"a late success does not enable it", 10 * day, 200, "", false, true, webhook.Disabled},
		{"enabling forgets the failures", 10 * day, 503, "", true, true, webhook.Active},
		{"an incomplete 410 does not disable it", 10 * day, 410, "broke off", false, false, webhook.Active},
		{"a 410 disables it at once", 10 * day, 410, "", false, true, webhook.Disabled},
	} {
		if step.enable {
			w.Enable()
		}
		a := &webhook.Attempt{StartedAt: start.Add(step.after), Duration: time.Second, Status: step.status, Error: step.problem}
		if changed := w.Observe(a); changed != step.changed {
			t.Fatalf("%s: changed is %v, want %v", step.name, changed, step.changed)
		}
		if w.State != step.want {
			t.Fatalf("%s: got the state %s, want %s", step.name, w.State, step.want)
		}
		if w.State == webhook.Disabled && w.DisabledReason == "" {
			t.Fatalf("%s: the disabled endpoint has no reason", step.name)
		}
		if w.State == webhook.Active && w.DisabledReason != "" {
			t.Fatalf("%s: the active endpoint has the reason %q", step.name, w.DisabledReason)
		}
	}
}
