package fanout_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/webhook/fanout"
)

// counter is a Counter.
type counter struct {
	of    map[string]int
	away  atomic.Bool
	calls atomic.Int64
}

func (c *counter) FanOutBacklog(context.Context) (map[string]int, error) {
	c.calls.Add(1)
	if c.away.Load() {
		return nil, errors.New("away")
	}
	return c.of, nil
}

// Guarantee: an account with 1,000 events to fan out may raise no more by calls, and with ten times as many no more
// by requests. If all accounts together have 20,000, an account that has any may add none, but an account without
// any may.
func TestBacklogIsBounded(t *testing.T) {
	many := map[string]int{"a": 999, "b": 1000, "c": 1001, "d": 10_000}
	crowd := map[string]int{"a": 1, "b": 0}
	for i := range 20 {
		crowd["other"+strconv.Itoa(i)] = 999
	}
	for _, c := range []struct {
		of             map[string]int
		calls, traffic string // the accounts that are full
	}{
		{map[string]int{}, "", ""},
		{many, "bcd", "d"},
		{crowd, "", ""},
		{map[string]int{"a": 1, "c": 20_000}, "ac", "c"},
		{map[string]int{"a": 1, "c": 200_000}, "ac", "ac"},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, err := fanout.NewBacklog(&counter{of: c.of})
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.FullForCalls("a") // asks
			synctest.Wait()
			calls, traffic := "", ""
			for _, account := range []string{"a", "b", "c", "d", "e"} {
				if b.FullForCalls(account) {
					calls += account
				}
				if b.FullForTraffic(account) {
					traffic += account
				}
			}
			if calls != c.calls || traffic != c.traffic {
				t.Errorf("%v: full for calls are %q and for requests %q, want %q and %q", c.of, calls, traffic, c.calls, c.traffic)
			}
			if err := b.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Guarantee: the backlog is counted at most once a second, and only while somebody asks. A count does not outlive a
// store that fails.
func TestBacklogIsCountedWhenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{of: map[string]int{"a": 5000}}
		b, err := fanout.NewBacklog(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour) // on the bubble's clock
		if n := c.calls.Load(); n != 0 {
			t.Errorf("%d counts that nobody asked for", n)
		}
		for range 100 {
			b.FullForCalls("a")
			<-time.After(100 * time.Millisecond) // on the bubble's clock
		}
		synctest.Wait()
		if n := c.calls.Load(); n < 9 || n > 11 {
			t.Errorf("%d counts in 10 s", n)
		}
		if !b.FullForCalls("a") {
			t.Error("an account with 5,000 events is not full")
		}
		c.away.Store(true)
		<-time.After(10 * time.Second) // on the bubble's clock
		if b.FullForCalls("a") {
			t.Error("a count is in force although the store has failed for 10 s")
		}
		if err := b.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
