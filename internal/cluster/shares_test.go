package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/snapshot"
)

// Guarantee: a node that has joined decides about no request before the others have confirmed it, at its
// start and after its lease was ended.
func TestMemberDecidesOnlyWhenConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		n := newNode(t, store, store, "a", false)
		confirm := make(chan error)
		n.cfg.Confirm = func(ctx context.Context) error {
			select {
			case err := <-confirm:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		started := make(chan error, 1)
		go func() { started <- n.Start(t.Context()) }()
		t.Cleanup(func() { n.stop(t) })

		after(ttl)
		if !n.Leased() || n.Held() {
			t.Fatalf("before the confirmation Leased is %t and Held %t, want true and false", n.Leased(), n.Held())
		}
		confirm <- errors.New("another node has not applied the change")
		after(time.Second)
		if n.Held() || len(started) > 0 {
			t.Fatal("the node decides although it was not confirmed")
		}
		confirm <- nil
		if err := <-started; err != nil || !n.Held() {
			t.Fatalf("after the confirmation Start returned %v and Held is %t", err, n.Held())
		}

		store.set(func() {
			r := store.rows["a"]
			store.rows["a"], _ = r.End(r.Seen())
		})
		after(ttl)
		if !n.Leased() || n.Held() {
			t.Fatalf("after it has joined again Leased is %t and Held %t, want true and false", n.Leased(), n.Held())
		}
		confirm <- nil
		after(time.Millisecond)
		if !n.Held() {
			t.Error("the node does not decide although it was confirmed again")
		}
	})
}

// nodeList is a NodeStore in memory.
type nodeList struct {
	mu    sync.Mutex
	names []string
	err   error
	hold  chan struct{} // if it is not nil, reads wait until it is closed
}

func (l *nodeList) ServingNodes(context.Context) ([]string, error) {
	l.mu.Lock()
	names, err, hold := slices.Clone(l.names), l.err, l.hold
	l.mu.Unlock()
	if hold != nil {
		<-hold
	}
	return names, err
}

func (l *nodeList) AnnounceNode(context.Context, string) (snapshot.Position, error) {
	return snapshot.Position{Number: 7}, l.err
}

func (l *nodeList) set(names ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names = names
}

func (l *nodeList) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// Guarantee: the nodes divide a limit into equal shares, which change as nodes join and leave; a failed
// read changes nothing.
func TestSharesFollowTheNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list, changes := &nodeList{names: []string{"b"}}, 0
		s := NewShares(SharesConfig{Node: "b", Store: list, Changed: func() { changes++ }})
		want := func(index, of int) {
			t.Helper()
			if i, n := s.Share(); i != index || n != of {
				t.Fatalf("the share is %d of %d, want %d of %d", i, n, index, of)
			}
		}
		want(0, 1)
		list.set("a", "b", "c")
		if err := s.Joined(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(1, 3)
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		list.set("b", "c")
		after(2 * time.Second)
		want(0, 2)
		list.set("a", "c") // without this node: it decides about nothing then
		after(2 * time.Second)
		want(0, 2)
		list.fail(errDown)
		list.set("b")
		after(2 * time.Second)
		want(0, 2)
		if changes != 2 {
			t.Errorf("the share was said to have changed %d times, want twice", changes)
		}
	})
}

// Guarantee: a read that began before another node joined never takes back what Joined has changed.
func TestJoinedIsNotUndoneByAnOlderRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		list := &nodeList{names: []string{"a"}, hold: hold}
		s := NewShares(SharesConfig{Node: "a", Store: list, Changed: func() {}})
		older := make(chan error, 1)
		go func() { older <- s.Joined(context.Background()) }()
		synctest.Wait()
		list.mu.Lock()
		list.names, list.hold = []string{"a", "b"}, nil
		list.mu.Unlock()
		newer := make(chan error, 1)
		go func() { newer <- s.Joined(context.Background()) }()
		close(hold)
		if err := errors.Join(<-older, <-newer); err != nil {
			t.Fatal(err)
		}
		if index, of := s.Share(); index != 0 || of != 2 {
			t.Errorf("the share is %d of %d, want 0 of 2", index, of)
		}
	})
}

// applied is an Everywhere that notes what was waited for.
type applied struct{ at snapshot.Position }

func (a *applied) Await(_ context.Context, p snapshot.Position) error {
	a.at = p
	return nil
}

// Guarantee: a node is confirmed when the change by which it was announced is in force everywhere, itself
// included; an error of any step is returned.
func TestConfirmWaitsForTheAnnouncement(t *testing.T) {
	everywhere, caughtUp, list := &applied{}, 0, &nodeList{}
	s := NewShares(SharesConfig{Node: "a", Store: list, Everywhere: everywhere, CatchUp: func(context.Context) error {
		caughtUp++
		return nil
	}})
	if err := s.Confirm(t.Context()); err != nil || everywhere.at.Number != 7 || caughtUp != 1 {
		t.Errorf("Confirm returned %v after waiting for %v and applying %d times", err, everywhere.at, caughtUp)
	}
	list.err = errDown
	if err := s.Confirm(t.Context()); !errors.Is(err, errDown) {
		t.Errorf("Confirm returned %v, want that the store is down", err)
	}
}
