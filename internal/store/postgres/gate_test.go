package postgres

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/snapshot"
)

// queueAt lets mutations queue at the gate one after another, and returns the order in which they pass it. When none
// can go on, the mutation that passed last leaves.
func queueAt(t *testing.T, g *gate, ordinary, urgent []string) (order string) {
	t.Helper()
	entered := make(chan string, len(ordinary)+len(urgent))
	leave := map[string]chan struct{}{}
	wait := func(ctx context.Context, name string) {
		out := make(chan struct{})
		leave[name] = out
		go func() {
			end, err := g.enter(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			entered <- name
			<-out
			end()
		}()
		synctest.Wait()
	}
	for _, name := range ordinary {
		wait(t.Context(), name)
	}
	for _, name := range urgent {
		wait(control.Urgent(t.Context()), name)
	}
	for len(order) < cap(entered) {
		synctest.Wait()
		var names []string
		for len(entered) > 0 {
			names = append(names, <-entered)
		}
		if len(names) == 0 {
			t.Fatalf("nobody enters after %s", order)
		}
		order += strings.Join(names, "")
		for _, name := range slices.Backward(names) {
			close(leave[name])
			synctest.Wait()
		}
	}
	return order
}

// Guarantee: however many mutations of a node wait, an urgent mutation goes on at once, and a second urgent one when
// the first has ended. The others go on in their order meanwhile.
func TestUrgentMutationsPassOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		if got, want := queueAt(t, &g, []string{"1", "2", "3", "4", "5"}, []string{"a", "b", "c"}), "12ab345c"; got != want {
			t.Errorf("got the order %s, want %s", got, want)
		}
	})
}

// Guarantee: a mutation that gives up while it waits leaves the gate as it was.
func TestWaitAtTheGateEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		var leave []func()
		for range mutators {
			out, err := g.enter(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			leave = append(leave, out)
		}
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error)
		go func() {
			_, err := g.enter(ctx)
			gaveUp <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-gaveUp; err == nil {
			t.Error("a mutation entered that had given up")
		}
		for _, out := range leave {
			out()
		}
		if len(g.slots) != 0 || len(g.urgent) != 0 {
			t.Error("places are held by nobody")
		}
	})
}

// Guarantee: a revocation commits even while the maximum number of other mutations of its node run and more of them
// wait.
func TestUrgentMutationCommitsBesideOthers(t *testing.T) {
	db := fresh(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // only a failing test reaches it
	defer cancel()
	running, end, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	for range mutators + 3 {
		go func() {
			ended <- db.Update(ctx, func(tx control.Tx) error {
				_, err := tx.AppendChange(ctx, snapshot.KeyChange, "key_1")
				select {
				case running <- struct{}{}:
					<-end
				case <-end:
				}
				return err
			})
		}()
	}
	for range mutators {
		<-running
	}
	urgent := control.Urgent(ctx)
	err := db.Update(urgent, func(tx control.Tx) error {
		_, err := tx.AppendChange(urgent, snapshot.KeyChange, "key_2")
		return err
	})
	if seq, readErr := db.LastSeq(ctx); err != nil || readErr != nil || seq != 1 {
		t.Errorf("got the errors %v and %v, and %d changes; want none and 1", err, readErr, seq)
	}
	close(end)
	for range mutators + 3 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
