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

// Guarantee: the last use of a key is stored within two seconds, or when Stop returns. A use
// that could not be stored is stored later, and an older time never replaces a newer one.
func TestLastUseIsStored(t *testing.T) {
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
		use(ids[0], at.Add(-time.Hour)) // as from another node
		use(ids[1], at.Add(1500))       // nanoseconds
		use("key_gone", at)
		<-time.After(1100 * time.Millisecond) // on the bubble's clock
		synctest.Wait()
		if got := h.lastUsed(caller, ids[0]); !got.IsZero() {
			t.Errorf("got last use %v with a broken store; want none", got)
		}
		broken.Store(false)
		<-time.After(time.Second) // on the bubble's clock
		synctest.Wait()
		for id, want := range map[string]time.Time{ids[0]: at, ids[1]: at.Add(time.Microsecond), ids[2]: {}} {
			if got := h.lastUsed(caller, id); !got.Equal(want) {
				t.Errorf("got last use %v; want %v", got, want)
			}
		}
		use(ids[2], at)
		h.must(u.Stop(ctx()))
		if got := h.lastUsed(caller, ids[2]); !got.Equal(at) {
			t.Errorf("got last use %v after Stop; want %v", got, at)
		}
	})
}

func (h *harness) lastUsed(c *control.Actor, keyID string) time.Time {
	h.tb.Helper()
	k := must[*apikey.Key](h)(h.Key(ctx(), c, keyID))
	if k.Version != 1 {
		h.tb.Errorf("got version %d after a use; want 1", k.Version)
	}
	return k.LastUsedAt
}

// Guarantee: maintenance indexes new and changed keys for searches within a second, and then leaves
// the store alone.
func TestMaintenanceIndexesKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHarness(t, sqlitetest.Path(t))
		defer h.close()
		var changes atomic.Int64
		m, err := control.NewMaintenance(control.MaintenanceConfig{Service: h.Service, Store: countedStore{h.db, &changes}, Now: h.clock.now, TrimPeriod: time.Hour})
		h.must(err)
		h.must(m.Start(ctx()))
		defer func() { h.must(m.Stop(ctx())) }()
		pass := func(want int64) {
			t.Helper()
			before := changes.Load()
			<-time.After(control.DefaultExpiryPeriod) // on the bubble's clock
			synctest.Wait()
			if got := changes.Load() - before; got != want {
				t.Errorf("got %d changes of the store in a second; want %d", got, want)
			}
			h.must(h.db.View(ctx(), func(tx control.ReadTx) error {
				if waiting := must[int](h)(tx.KeysToIndex(ctx(), 10)); waiting != 0 {
					t.Errorf("%d keys are still to be indexed", waiting)
				}
				return nil
			}))
		}
		synctest.Wait()
		caller := h.caller("acme", "admin")
		pass(2) // some keys, and then none
		pass(0)
		k := must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "k", Scope: "read"}))
		pass(2)
		must[*apikey.Key](h)(h.RevokeKey(ctx(), caller, k.ID, nil))
		pass(2)
		pass(0)
	})
}

// countedStore counts changes.
type countedStore struct {
	control.Store
	changes *atomic.Int64
}

func (s countedStore) Update(ctx context.Context, f func(control.Tx) error) error {
	s.changes.Add(1)
	return s.Store.Update(ctx, f)
}

// switchedStore fails every change while broken is set.
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

// Guarantee: maintenance emits the event of an expiry within five seconds, and removes change
// log entries and stored responses only when their retention has ended.
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
		later := func(d time.Duration) { // skips the thousands of runs in between
			t.Helper()
			h.clock.advance(d)
			elapse(control.DefaultTrimPeriod)
		}
		caller := h.caller("acme", "admin")
		idempotency := &control.Idempotency{KeyID: caller.KeyID, Key: "once", Encode: func(any) (int, map[string]string, []byte, error) { return 201, nil, nil, nil }}
		expires := h.clock.now().Add(30 * time.Second).Format(time.RFC3339Nano)
		must[*control.NewKey](h)(h.CreateKey(control.WithIdempotency(ctx(), idempotency), caller, control.KeyInput{Name: "k", Scope: "read", ExpiresAt: expires}))
		u, err := control.NewMaintenance(control.MaintenanceConfig{Service: h.Service, Store: h.db, Now: h.clock.now})
		h.must(err)
		h.must(u.Start(ctx()))
		before := h.records(caller.Account.ID)
		elapse(29 * time.Second)
		if got := h.records(caller.Account.ID).since(before).events; len(got) != 0 {
			t.Errorf("got %d events before the expiry; want 0", len(got))
		}
		elapse(2 * time.Second)
		if _, got, _ := h.records(caller.Account.ID).since(before).summary(); len(got) != 1 {
			t.Errorf("got events %q after the expiry; want one", got)
		}
		if _, complete := h.changes(); !complete {
			t.Error("got an incomplete change log within the hour; want all of it")
		}
		later(62 * time.Minute)
		if n, complete := h.changes(); complete || n != 0 {
			t.Errorf("got %d entries in the change log after an hour, complete %t; want 0, false", n, complete)
		}
		if _, err := h.storedResponse(caller.KeyID); err != nil {
			t.Errorf("got error %v for a response within 24 hours; want it", err)
		}
		later(24 * time.Hour)
		if _, err := h.storedResponse(caller.KeyID); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("got error %v for a response after 24 hours; want not found", err)
		}
		h.must(u.Stop(ctx()))
	})
}

// Guarantee: maintenance removes records by the time of retention and not by the wall clock, which
// may be ahead for a moment, and nothing while that time is not known.
func TestMaintenanceGoesByRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHarness(t, sqlitetest.Path(t))
		defer h.close()
		caller := h.caller("acme", "admin")
		idempotency := &control.Idempotency{KeyID: caller.KeyID, Key: "once", Encode: func(any) (int, map[string]string, []byte, error) { return 201, nil, nil, nil }}
		must[*control.NewKey](h)(h.CreateKey(control.WithIdempotency(ctx(), idempotency), caller, control.KeyInput{Name: "k", Scope: "read"}))
		var past atomic.Pointer[time.Time]
		past.Store(&time.Time{})
		u, err := control.NewMaintenance(control.MaintenanceConfig{
			Service: h.Service, Store: h.db, Now: h.clock.now, Retention: func() time.Time { return *past.Load() },
		})
		h.must(err)
		h.must(u.Start(ctx()))
		now := h.clock.now()
		h.clock.advance(800 * 24 * time.Hour)
		for _, known := range []time.Time{{}, now, now.Add(59 * time.Minute)} {
			past.Store(&known)
			<-time.After(control.DefaultTrimPeriod)
			synctest.Wait()
			if _, complete := h.changes(); !complete {
				t.Errorf("retention at %v: entries of the change log were removed", known)
			}
			if _, err := h.storedResponse(caller.KeyID); err != nil {
				t.Errorf("retention at %v: got error %v for a stored response", known, err)
			}
		}
		later := now.Add(25 * time.Hour)
		past.Store(&later)
		<-time.After(control.DefaultTrimPeriod)
		synctest.Wait()
		if _, err := h.storedResponse(caller.KeyID); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("got error %v for a response after 24 hours; want not found", err)
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

func (h *harness) storedResponse(keyID string) (a *control.StoredResponse, err error) {
	err = h.db.View(ctx(), func(tx control.ReadTx) (err error) {
		a, err = tx.StoredResponse(ctx(), keyID, "once")
		return err
	})
	return a, err
}

// Guarantee: Stop returns when its context ends, and does nothing before Start. New fails
// without a store.
func TestStop(t *testing.T) {
	h := newHarness(t)
	u, err := control.NewMaintenance(control.MaintenanceConfig{Service: h.Service, Store: h.db})
	h.must(err)
	h.must(u.Stop(ctx()))
	if _, err := control.NewMaintenance(control.MaintenanceConfig{}); err == nil {
		t.Error("got a maintenance without a store; want an error")
	}
	if _, err := control.NewUsage(control.UsageConfig{}); err == nil {
		t.Error("got a usage without a store; want an error")
	}
	hold, entered := make(chan struct{}), make(chan struct{})
	usage, err := control.NewUsage(control.UsageConfig{Store: h.db, Drain: func(func(string, time.Time)) {
		close(entered)
		<-hold
	}})
	h.must(err)
	h.must(usage.Start(ctx()))
	<-entered
	ended, cancel := context.WithCancel(ctx())
	cancel()
	if err := usage.Stop(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v of Stop while a step hangs; want %v", err, context.Canceled)
	}
	close(hold)
}
