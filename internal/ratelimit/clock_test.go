package ratelimit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/ratelimit"
)

// Guarantee: the wall clock follows the store's, and a delayed response does not set it back.
func TestClockFollowsTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := ratelimit.NewClock()
		ahead := func() time.Duration { return time.Until(c.WallTime()) }
		for _, step := range []struct {
			shown, took, want time.Duration
		}{
			{0, 0, 0},
			{50 * time.Millisecond, time.Millisecond, 0},                 // what is small is ignored
			{-5 * time.Second, 5 * time.Second, 0},                       // right when it was shown, and late
			{-5 * time.Second, 4 * time.Second, -time.Second},            // behind by a second at least
			{3 * time.Second, time.Millisecond, 3 * time.Second},         // ahead
			{-2 * time.Second, 10 * time.Second, 3 * time.Second},        // late, and says nothing
			{-time.Hour, time.Millisecond, time.Millisecond - time.Hour}, // far behind
		} {
			c.Steer(time.Now().Add(step.shown), step.took)
			if got := ahead(); got != step.want {
				t.Errorf("after a time that is %v from now and took %v: the clock is ahead by %v, want %v", step.shown, step.took, got, step.want)
			}
		}
	})
}
