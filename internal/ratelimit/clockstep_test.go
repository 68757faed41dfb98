package ratelimit

import (
	"testing"
	"time"
)

// Guarantee: a wall clock that is ahead for less than a minute moves nothing; if it stays ahead, it is followed
// after the minute. A clock that is set back, or drifts, is followed at once.
func TestClockIgnoresShortStepsAhead(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		step, lasts, after time.Duration // step of the wall clock, for how long, and the time by it afterwards
		during, want       time.Duration // how far ahead the clock is
	}{
		"ahead for 8 s":        {48 * time.Hour, 8 * time.Second, 0, 0, 0},
		"ahead for 59 s":       {48 * time.Hour, 59 * time.Second, 0, 0, 0},
		"ahead for good":       {48 * time.Hour, time.Minute, 48 * time.Hour, 0, 48 * time.Hour},
		"a little ahead":       {9 * time.Second, time.Second, 9 * time.Second, 9 * time.Second, 9 * time.Second},
		"set back":             {-48 * time.Hour, time.Second, -48 * time.Hour, -48 * time.Hour, -48 * time.Hour},
		"set back for a while": {-time.Hour, time.Second, 0, -time.Hour, -time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClockAt(start)
			ahead := func(mono, wrong time.Duration) time.Duration {
				at := c.read(int64(mono), start.Add(mono+wrong).UnixNano())
				return time.Unix(0, at.Wall).Sub(start.Add(mono))
			}
			for at := time.Duration(0); at < tc.lasts; at += 500 * time.Millisecond {
				if got := ahead(time.Minute+at, tc.step); got != tc.during {
					t.Fatalf("%v after the step the clock is %v ahead, want %v", at, got, tc.during)
				}
			}
			if got := ahead(time.Minute+tc.lasts, tc.after); got != tc.want {
				t.Errorf("then the clock is %v ahead, want %v", got, tc.want)
			}
		})
	}
}

// Guarantee: however long a wall clock drifts, by less than a step at a time, it is followed.
func TestClockFollowsDrift(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c := newClockAt(start)
	var mono, wall time.Duration
	for range 100_000 {
		mono += time.Second
		wall += time.Second + time.Millisecond
		if at := c.read(int64(mono), start.Add(wall).UnixNano()); at.Wall != start.Add(wall).UnixNano() {
			t.Fatalf("after %v the clock is %v behind", mono, start.Add(wall).Sub(time.Unix(0, at.Wall)))
		}
	}
}

// Guarantee: no step of the machine's clock moves a clock that follows a database's.
func TestSteeredClockIgnoresTheMachine(t *testing.T) {
	c := NewClock()
	c.Steer(time.Now().Add(-time.Hour), 0)
	now := c.Now()
	at := c.read(now.Mono+int64(time.Minute), now.Wall+int64(48*time.Hour))
	if want := now.Wall + int64(time.Minute); at.Wall != want {
		t.Errorf("after a step of the machine's clock it shows %v, want %v", time.Unix(0, at.Wall), time.Unix(0, want))
	}
}
