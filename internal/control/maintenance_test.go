package control_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
)

// Guarantee: the last use of a key is in the store within two seconds and at
// the latest when Stop returns; what could not be written is written later, and
// an older time never replaces a newer one.
func TestUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHarness(t, sqlitetest.Path(t))
		defer h.close()
		caller := h.caller("acme", "admin")
		var ids []string
		for i := range 3 {
			ids = append(ids, must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: fmt.Sprint(i), Scope: "read"})).ID)
		}
		var broken atomic.Bool
		broken.Store(true)
		var mu sync.Mutex
		uses := map[string]time.Time{}
		use := func(id string, at time.Time) {
			mu.Lock()
			defer mu.Unlock()
			uses[id] = at
		}
		u, err := control.NewUsage(control.UsageConfig{
			Store: switchedStore{h.db, &broken},
			Drain: func(f func(string, time.Time)) {
				mu.Lock()
				defer mu.Unlock()
				for id, at := range uses {
					f(id, at)
				}
				clear(uses)
			},
		})
		h.must(err)
		at := h.clock.now()
		use(ids[0], at)
		h.must(u.Start(ctx()))
		synctest.Wait()
		use(ids[0], at.Add(-time.Hour)) // of another node, say
		use(ids[1], at.Add(1500))       // nanoseconds
		use("key_gone", at)
		<-time.After(1100 * time.Millisecond) // on the bubble's clock
		synctest.Wait()
		if got := h.lastUsed(caller, ids[0]); !got.IsZero() {
			t.Errorf("written by a broken store: %v", got)
		}
		broken.Store(false)
		<-time.After(time.Second) // on the bubble's clock
		synctest.Wait()
		for id, want := range map[string]time.Time{ids[0]: at, ids[1]: at.Add(time.Microsecond), ids[2]: {}} {
			if got := h.lastUsed(caller, id); !got.Equal(want) {
				t.Errorf("key used at %v; want %v", got, want)
			}
		}
		use(ids[2], at)
		h.must(u.Stop(ctx()))
		if got := h.lastUsed(caller, ids[2]); !got.Equal(at) {
			t.Errorf("after Stop the key was used at %v; want %v", got, at)
		}
	})
}

func (h *harness) lastUsed(c *control.Caller, keyID string) time.Time {
	h.tb.Helper()
	k := must[*apikey.Key](h)(h.Key(ctx(), c, keyID))
	if k.Version != 1 {
		h.tb.Errorf("a use made version %d", k.Version)
	}
	return k.LastUsedAt
}

// switchedStore refuses changes while broken is set.
type switchedStore struct {
	control.Store
	broken *atomic.Bool
}

func (s switchedStore) Update(ctx context.Context, f func(control.Tx) error) error {
	if s.broken.Load() {
		return errBroken
	}
	return s.Store.Update(ctx, f)
}

// Guarantee: maintenance reports an expiry within five seconds, and removes what
// is kept no longer, and nothing else.
func TestMaintenance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHarness(t, sqlitetest.Path(t))
		defer h.close()
		elapse := func(d time.Duration) {
			t.Helper()
			h.clock.advance(d)
			<-time.After(d) // on the bubble's clock
			synctest.Wait()
		}
		later := func(d time.Duration) { // without the thousands of looks in between
			t.Helper()
			h.clock.advance(d)
			elapse(control.DefaultTrimPeriod)
		}
		caller := h.caller("acme", "admin")
		kept := &control.Idempotency{KeyID: caller.KeyID, Key: "once", Encode: func(any) (int, map[string]string, []byte, error) { return 201, nil, nil, nil }}
		expires := h.clock.now().Add(30 * time.Second).Format(time.RFC3339Nano)
		must[*control.NewKey](h)(h.CreateKey(control.WithIdempotency(ctx(), kept), caller, control.KeyInput{Name: "k", Scope: "read", ExpiresAt: expires}))
		u, err := control.NewMaintenance(control.MaintenanceConfig{Service: h.Service, Store: h.db, Now: h.clock.now})
		h.must(err)
		h.must(u.Start(ctx()))
		before := h.records(caller.Account.ID)
		elapse(29 * time.Second)
		if got := h.records(caller.Account.ID).since(before).events; len(got) != 0 {
			t.Errorf("events before the expiry: %d", len(got))
		}
		elapse(2 * time.Second)
		if _, got, _ := h.records(caller.Account.ID).since(before).summary(); len(got) != 1 {
			t.Errorf("events after the expiry: %q", got)
		}
		if _, complete := h.changes(); !complete {
			t.Error("the change log was trimmed within the hour")
		}
		later(62 * time.Minute)
		if n, complete := h.changes(); complete || n != 0 {
			t.Errorf("after an hour the change log has %d entries", n)
		}
		if _, err := h.answer(caller.KeyID); err != nil {
			t.Errorf("answer within 24 hours: %v", err)
		}
		later(24 * time.Hour)
		if _, err := h.answer(caller.KeyID); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("answer after 24 hours: %v", err)
		}
		h.must(u.Stop(ctx()))
	})
}

func (h *harness) changes() (n int, complete bool) {
	h.tb.Helper()
	h.must(h.db.View(ctx(), func(tx control.ReadTx) error {
		list, ok, err := tx.Changes(ctx(), 0, 1000)
		n, complete = len(list), ok
		return err
	}))
	return n, complete
}

func (h *harness) answer(keyID string) (a *control.StoredResponse, err error) {
	err = h.db.View(ctx(), func(tx control.ReadTx) (err error) {
		a, err = tx.StoredResponse(ctx(), keyID, "once")
		return err
	})
	return a, err
}

// Guarantee: Stop gives up when its context ends, and without Start does
// nothing.
func TestStop(t *testing.T) {
	h := newHarness(t)
	u, err := control.NewMaintenance(control.MaintenanceConfig{Service: h.Service, Store: h.db})
	h.must(err)
	h.must(u.Stop(ctx()))
	if _, err := control.NewMaintenance(control.MaintenanceConfig{}); err == nil {
		t.Error("an maintenance without a store was made")
	}
	if _, err := control.NewUsage(control.UsageConfig{}); err == nil {
		t.Error("a usage without a store was made")
	}
	hold, entered := make(chan struct{}), make(chan struct{})
	usage, err := control.NewUsage(control.UsageConfig{Store: h.db, Drain: func(func(string, time.Time)) {
		close(entered)
		<-hold
	}})
	h.must(err)
	h.must(usage.Start(ctx()))
	<-entered
	gone, cancel := context.WithCancel(ctx())
	cancel()
	if err := usage.Stop(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("Stop of a step that hangs: %v", err)
	}
	close(hold)
}
