package cluster

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/cluster/lease"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/snapshot"
)

// waitFor begins to wait for p.
func waitFor(t *testing.T, w *Waiter, p snapshot.Position) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	ctx := t.Context()
	go func() { done <- w.Await(ctx, p) }()
	synctest.Wait()
	return done
}

func result(done <-chan error) (ok bool, err error) {
	select {
	case err = <-done:
		return true, err
	default:
		return false, nil
	}
}

// Guarantee: a change is answered when every node has applied it.
func TestWaiterWaitsForEveryNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		a, b := newNode(t, store, store, "a", false).started(t), newNode(t, store, store, "b", false).started(t)
		w := newTestWaiter(t, store)
		p := store.commit(1)
		done := waitFor(t, w, p)
		a.apply()
		after(time.Second)
		if ok, _ := result(done); ok {
			t.Error("the change was answered although a node does not have it")
		}
		if have, of, err := w.Acknowledged(t.Context(), p); err != nil || have != 1 || of != 2 {
			t.Errorf("Acknowledged returned %d, %d, %v; want 1 of 2", have, of, err)
		}
		b.apply()
		after(100 * time.Millisecond)
		if ok, err := result(done); !ok || err != nil {
			t.Errorf("the wait returned %v, %t; want nil after every node has applied the change", err, ok)
		}
	})
}

// Guarantee: a change waits for a node that is cut off until its lease has ended, and by then the node does
// not hold it any more.
func TestWaiterWaitsForTheLeaseOfALostNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		toB := &line{memory: store}
		a, b := newNode(t, store, store, "a", false).started(t), newNode(t, toB, store, "b", false).started(t)
		w := newTestWaiter(t, store)
		after(ttl)
		toB.set(true)
		began := time.Now()
		done := waitFor(t, w, store.commit(1))
		a.apply()
		for {
			ok, err := result(done)
			if ok {
				if err != nil || b.Held() {
					t.Errorf("the wait returned %v while Held is %t, want nil and false", err, b.Held())
				}
				break
			}
			after(5 * time.Millisecond)
		}
		if took := time.Since(began); took > ttl+2*time.Second || store.ended != 1 {
			t.Errorf("it took %v and %d leases were ended, want at most a TTL and a margin, and 1", took, store.ended)
		}
		toB.set(false)
		b.apply()
		after(ttl / 3)
		if !b.Held() {
			t.Error("the node does not hold a lease again")
		}
	})
}

// Guarantee: a waiter that cannot read the leases returns an error, and so does a waiter whose change a
// failover lost, or whose caller has given up.
func TestWaiterFailsRatherThanGuess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		newNode(t, store, store, "a", false).started(t)
		w := newTestWaiter(t, store)
		p := store.commit(1)
		store.set(func() { store.down = true })
		done := waitFor(t, w, p)
		after(failingWithin + 2*slowPoll)
		if ok, err := result(done); !ok || !errors.Is(err, errDown) {
			t.Errorf("with the store down: got %v, %t; want its error", err, ok)
		}
		store.set(func() { store.down, store.unknown = false, lease.Position(p) })
		done = waitFor(t, w, p)
		after(slowPoll)
		if ok, err := result(done); !ok || !errors.Is(err, control.ErrChangeLost) {
			t.Errorf("with another history: got %v, %t; want ErrChangeLost", err, ok)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Await(ctx, store.commit(2)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the deadline: got %v", err)
		}
	})
}

// Guarantee: nobody waits for a node that has given its lease back.
func TestWaiterDoesNotWaitForStoppedNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		n := newNode(t, store, store, "a", false)
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		w := newTestWaiter(t, store)
		n.stop(t)
		if err := w.Await(t.Context(), store.commit(1)); err != nil {
			t.Errorf("got %v, want nil", err)
		}
		if got := w.Nodes(); got[lease.Stopped] != 1 || got[lease.Live] != 0 {
			t.Errorf("the nodes are %v, want one stopped", got)
		}
	})
}

// Guarantee: the leases are read rarely while nobody waits.
func TestWaiterPollsRarelyWhileNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		newTestWaiter(t, store)
		after(time.Minute)
		if store.views < 40 || store.views > 130 {
			t.Errorf("%d reads in a minute, want about 60", store.views)
		}
	})
}
