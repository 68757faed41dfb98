package cluster

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/cluster/lease"
)

// Guarantee: a node holds its lease while the store answers, and loses it one TTL after the last renewal
// that it sent.
func TestMemberHoldsItsLeaseUntilTheStoreIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		n := newNode(t, store, store, "a", false).started(t)
		for range 100 {
			after(time.Second)
			if !n.Held() {
				t.Fatal("the lease is not held although the store answers")
			}
		}
		store.set(func() { store.down = true })
		rest := n.Remaining()
		after(rest - time.Millisecond)
		if !n.Held() {
			t.Error("the lease ended before its deadline")
		}
		after(time.Millisecond)
		if n.Held() {
			t.Error("the lease is held after its deadline")
		}
		store.set(func() { store.down = false })
		after(ttl / 10)
		if !n.Held() {
			t.Error("the lease is not held again after the store has returned")
		}
	})
}

// Guarantee: whenever a lease is held that does not continue the last one, Regained is called before: also if the store has
// not ended it, because the renewal came late. Renewals in time do not call it.
func TestRegainedComesBeforeTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		n := newNode(t, store, store, "a", false)
		var calls, held atomic.Int64
		n.cfg.Regained = func() {
			if calls.Add(1); n.Leased() {
				held.Add(1)
			}
		}
		n.started(t)
		check := func(when string, want int64) {
			t.Helper()
			if calls.Load() != want || held.Load() != 0 || !n.Held() {
				t.Errorf("%s: called %d times, want %d; %d times while the lease was held; held now: %v", when, calls.Load(), want, held.Load(), n.Held())
			}
		}
		check("after the start", 1)
		after(10 * ttl)
		check("after renewals in time", 1)
		store.set(func() { store.down = true })
		after(2 * ttl)
		store.set(func() { store.down = false })
		after(ttl / 10)
		check("after a late renewal", 2)
		n.Restarted()
		after(ttl)
		check("after it was given up", 3)
	})
}

// Guarantee: a node knows the time of the store before it holds its lease, and with each renewal again.
func TestMemberFollowsTheStoresClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		store.ahead = time.Hour
		n := newNode(t, store, store, "a", false)
		var ahead time.Duration
		heldBefore := false
		n.cfg.Steer = func(now time.Time, took time.Duration) {
			heldBefore = heldBefore || ahead == 0 && n.Held()
			store.set(func() { ahead = time.Until(now) + took })
		}
		n.started(t)
		if heldBefore || ahead != time.Hour {
			t.Errorf("joined with a clock that is %v ahead (lease held before: %v); want the store's: 1h", ahead, heldBefore)
		}
		store.set(func() { store.ahead = time.Minute })
		after(ttl / 2)
		store.set(func() {
			if ahead != time.Minute {
				t.Errorf("after a renewal the clock is %v ahead, want 1m", ahead)
			}
		})
	})
}

// Guarantee: a renewal whose answer was lost does not extend the lease.
func TestMemberDoesNotCountUnansweredRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		n := newNode(t, store, store, "a", false).started(t)
		store.set(func() { store.deaf = true })
		after(ttl)
		if n.Held() {
			t.Error("the lease is held after its deadline")
		}
		store.set(func() { store.deaf = false })
	})
}

// Guarantee: with Serve, a node that held a lease once goes on without one, and says so.
func TestMemberServesOnIfConfigured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		n := newNode(t, store, store, "a", true)
		if n.Held() {
			t.Error("the node may decide before its first lease")
		}
		n.started(t)
		store.set(func() { store.down = true })
		after(2 * ttl)
		if !n.Held() || n.Leased() {
			t.Errorf("Held is %t and Leased %t, want true and false", n.Held(), n.Leased())
		}
	})
}

// Guarantee: a node that stops gives its lease back.
func TestMemberGivesItsLeaseBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		n := newNode(t, store, store, "a", true)
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.stop(t)
		if r := store.rows["a"]; r.State != lease.Stopped || n.Held() {
			t.Errorf("the row is %+v and Held %t, want stopped and false", r, n.Held())
		}
	})
}

// Guarantee: a node loses its lease at once when its row is not its own any more, when the store has
// another history, and joins again.
func TestMemberGivesUpAndJoinsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		n := newNode(t, store, store, "a", false).started(t)
		store.set(func() { delete(store.rows, "a") })
		after(ttl / 2) // the next renewal is due after a third of the TTL, and a jitter
		if r := store.rows["a"]; !n.Held() || r.State != lease.Live {
			t.Errorf("after the row was deleted: Held %t, row %+v", n.Held(), r)
		}
		epoch := store.rows["a"].Epoch
		n.Restarted()
		if n.Held() {
			t.Error("the lease is held although the history changed")
		}
		after(ttl / 2) // the next renewal is due after a third of the TTL, and a jitter
		if r := store.rows["a"]; !n.Held() || r.Epoch <= epoch {
			t.Errorf("after another history: Held %t, row %+v, want a new lease", n.Held(), r)
		}
	})
}

// Guarantee: a node waits for the lease of an earlier process with its name, and refuses to start if that
// lease is renewed.
func TestMemberWaitsForItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		first := newNode(t, store, store, "a", false).started(t)
		second := newNode(t, store, store, "a", false)
		if err := second.Start(t.Context()); !errors.Is(err, lease.ErrNameInUse) {
			t.Errorf("Start returned %v, want ErrNameInUse", err)
		}
		store.set(func() { // the first process dies without giving its lease back
			r := store.rows["a"]
			defer func() { store.rows["a"] = r }()
			r.Boot[0]++
		})
		_ = first
		began := time.Now()
		third := newNode(t, store, store, "a", false).started(t)
		if waited := time.Since(began); !third.Held() || waited < ttl || waited > ttl+2*time.Second {
			t.Errorf("Held %t after %v, want true after the TTL and a margin", third.Held(), waited)
		}
	})
}

// Guarantee: Held does not allocate.
func TestHeldDoesNotAllocate(t *testing.T) {
	h := lease.NewHolder(lease.HolderConfig{Clock: NewClock()})
	m := &Member{holder: h}
	if n := testing.AllocsPerRun(100, func() { m.Held() }); n != 0 {
		t.Errorf("Held allocates %v times, want 0", n)
	}
}

func BenchmarkHeld(b *testing.B) {
	h := lease.NewHolder(lease.HolderConfig{Clock: NewClock()})
	m := &Member{holder: h}
	for b.Loop() {
		m.Held()
	}
}

// Guarantee: a node that meets a change which it cannot read does not decide any more, even with Serve, and says why,
// until it can join again.
func TestMemberWithoutTheFormatOfAChangeGivesItsLeaseUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		n := newNode(t, store, store, "a", true).started(t)
		n.follower.set(true)
		store.commit(1)
		n.Unreadable(errors.New("change 1 has format 2"))
		if n.Held() || n.TooOld() != "change 1 has format 2" {
			t.Errorf("held: %t, and the reason is %q", n.Held(), n.TooOld())
		}
		n.follower.set(false)
		n.apply()
		after(ttl)
		if !n.Held() || n.TooOld() != "" {
			t.Errorf("after the node was able to join: held: %t, and the reason is %q", n.Held(), n.TooOld())
		}
	})
}

// moments is a context that calls f whenever its error is asked for.
type moments struct {
	context.Context
	f func()
}

func (m moments) Err() error {
	m.f()
	return m.Context.Err()
}

// slowAnswers is a store that calls f after a call was carried out and before it is answered.
type slowAnswers struct {
	*memory
	f func()
}

func (s *slowAnswers) Carry(ctx context.Context, c lease.Call) (lease.Answer, error) {
	a, err := s.memory.Carry(ctx, c)
	s.f()
	return a, err
}

// Guarantee: a node that cannot read a change does not decide, even if it meets the change at the moment when it joins.
// Whenever the change comes, the node either joins after it, or is too old and does not serve.
func TestUnreadableWhileJoining(t *testing.T) {
	for at, more := 0, true; more; at++ {
		n, seen := (*testNode)(nil), 0
		moment := func() {
			if !n.mu.TryLock() {
				return // Unreadable would wait
			}
			n.mu.Unlock()
			if seen++; seen == at+1 {
				n.Unreadable(errors.New("too old"))
			}
		}
		store := newMemory()
		n = newNode(t, &slowAnswers{store, moment}, store, "a", true)
		n.mu.Lock()
		c, _, due := n.holder.Next(lease.Position(n.follower.Applied()))
		n.mu.Unlock()
		if !due {
			t.Fatal("a new node does not join")
		}
		n.call(moments{t.Context(), moment}, c, &reports{log: slog.New(slog.DiscardHandler)})
		if tooOld := n.TooOld() != ""; n.Held() == tooOld || n.serving.Load() == tooOld {
			t.Errorf("at moment %d: too old %t, held %t and serving %t", at, tooOld, n.Held(), n.serving.Load())
		}
		if more = seen > at; !more && at < 2 {
			t.Errorf("there were %d moments, want one before the lease is held and one after it", at)
		}
	}
}
