package postgres

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/secret"
	"github.com/keygate/keygate/internal/snapshot"
)

// raise queues a statement that fails with an SQLSTATE.
func raise(t *testing.T, c control.Tx, state string) error {
	t.Helper()
	tx, _ := c.(*tx)
	return tx.Queue(t.Context(), "fail", `DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '`+state+`'; END $$`)
}

// Guarantee: a transaction with a queued statement that fails stores nothing, and returns the error of that
// statement, wherever the store finds it out and whatever the transaction's function makes of it. The next
// transaction is not affected.
func TestQueuedStatementFails(t *testing.T) {
	for _, mode := range modes() {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			db := openWith(t, Config{URL: migrated(t) + "&default_query_exec_mode=" + mode})
			a := &account.Account{ID: id.New(id.Account), Name: "a", Tier: account.Scale}
			if err := db.Update(t.Context(), func(tx control.Tx) error { return tx.InsertAccount(t.Context(), a) }); err != nil {
				t.Fatal(err)
			}
			mistaken := errors.New("the function takes the error for another one")
			for _, tc := range []struct {
				name string
				f    func(ctx context.Context, tx control.Tx) error
				code fault.Code
			}{
				{"with COMMIT", func(ctx context.Context, tx control.Tx) error {
					b := *a
					b.ID = id.New(id.Account)
					return tx.InsertAccount(ctx, &b)
				}, fault.Conflict},
				{"with a read", func(ctx context.Context, tx control.Tx) error {
					b := *a
					b.ID = id.New(id.Account)
					if err := tx.InsertAccount(ctx, &b); err != nil {
						return err
					}
					if _, err := tx.Account(ctx, a.ID); err != nil {
						return mistaken
					}
					return nil
				}, fault.Conflict},
				{"changes no row, with COMMIT", func(ctx context.Context, tx control.Tx) error {
					return tx.UpdateKey(ctx, &apikey.Key{ID: "key_1", AccountID: a.ID})
				}, fault.NotFound},
				{"changes no row, with a read", func(ctx context.Context, tx control.Tx) error {
					if err := tx.AppendAudit(ctx, &audit.Record{AccountID: "acc_1"}); err != nil {
						return err
					}
					_, _ = tx.Account(ctx, a.ID)
					return nil
				}, fault.NotFound},
				{"another one", func(_ context.Context, tx control.Tx) error { return raise(t, tx, divisionByZero) }, fault.Internal},
			} {
				failures := db.Stats().Failures
				err := db.Update(t.Context(), func(tx control.Tx) error {
					if _, err := tx.AppendChange(t.Context(), snapshot.KeyChange, "before"); err != nil {
						return err
					}
					if err := tc.f(t.Context(), tx); err != nil {
						return err
					}
					_, err := tx.AppendChange(t.Context(), snapshot.KeyChange, "after")
					return err
				})
				if fault.CodeOf(err) != tc.code || errors.Is(err, control.ErrInDoubt) {
					t.Errorf("%s: got %v, want an error with the code %s", tc.name, err, tc.code)
				}
				if counted := db.Stats().Failures > failures; counted != (tc.code == fault.Internal) || db.Trouble() != "" {
					t.Errorf("%s: counts as a failure of the database: %t; the trouble is %q", tc.name, counted, db.Trouble())
				}
				if seq, err := db.LastSeq(t.Context()); seq != 0 || err != nil {
					t.Errorf("%s: the last change has the number %d, error %v; want none", tc.name, seq, err)
				}
			}
			if err := change(t, db); err != nil {
				t.Error(err)
			}
		})
	}
}

// Guarantee: a transaction is tried again if the server ends a queued statement to resolve a conflict, as
// with any other statement.
func TestQueuedConflictIsRetried(t *testing.T) {
	db := fresh(t)
	calls := 0
	err := db.Update(t.Context(), func(tx control.Tx) error {
		if _, err := tx.AppendChange(t.Context(), snapshot.KeyChange, "key_1"); err != nil {
			return err
		}
		if calls++; calls < 3 {
			return raise(t, tx, deadlock)
		}
		return nil
	})
	if seq, readErr := db.LastSeq(t.Context()); err != nil || calls != 3 || seq != 1 || readErr != nil {
		t.Errorf("got %d calls, the errors %v and %v, and %d changes; want 3, none and 1", calls, err, readErr, seq)
	}
}

// Guarantee: the queue is bounded in statements and bytes. Statements are carried out in order, however many there are.
func TestQueueIsBounded(t *testing.T) {
	const changes, large = 2*maxQueued + 7, maxQueuedBytes/3 + 1
	db := fresh(t)
	body := bytes.Repeat([]byte("x"), large)
	err := db.mutate(t.Context(), func(tx *tx) error {
		for i := range changes {
			if seq, err := tx.AppendChange(t.Context(), snapshot.KeyChange, "key_1"); err != nil || tx.held && seq != int64(i+1) {
				t.Errorf("change %d has the number %d, error %v", i+1, seq, err)
			}
			if n := len(tx.queued); n > maxQueued {
				t.Fatalf("%d statements are queued", n)
			}
		}
		for range 10 {
			if err := tx.Queue(t.Context(), "send a large text", `SELECT length($1::bytea)`, body); err != nil {
				return err
			}
			if n := tx.queuedBytes; n > maxQueuedBytes {
				t.Fatalf("%d bytes are queued", n)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := db.ChangesAfter(t.Context(), snapshot.Position{}, math.MaxInt32)
	if err != nil || len(list) != changes {
		t.Fatalf("got %d changes, error %v; want %d", len(list), err, changes)
	}
	for i := range list {
		if list[i].Seq != int64(i+1) {
			t.Errorf("change %d has the number %d", i, list[i].Seq)
		}
	}
}

// inForce is a data plane that has every change at once.
type inForce struct{}

func (inForce) CatchUp(context.Context, ...snapshot.Change) error { return nil }

// Guarantee: the transaction of a call that revokes a key takes at most revokeTrips round trips. Under full
// load each round trip waits for a processor on both sides, so their number decides how long the call
// takes.
func TestRoundTripsOfRevocation(t *testing.T) {
	const revokeTrips = 6 // BEGIN and the head; account, calling key and key; the changes with the endpoints; COMMIT
	c, through := throughCutter(t, migrated(t))
	db := openWith(t, Config{URL: through})
	box, err := secret.New(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	s, err := control.New(control.Config{Store: db, Publisher: inForce{}, Sealer: box, Now: time.Now, Random: rand.Reader, GatewayDomain: "keygate.example"})
	if err != nil {
		t.Fatal(err)
	}
	a, own, err := s.CreateAccount(t.Context(), "a", account.Scale, nil)
	if err != nil {
		t.Fatal(err)
	}
	caller := &control.Actor{Kind: control.KeyActor, Account: a, KeyID: own.ID, KeyPrefix: own.Prefix, Scope: own.Scope}
	least := int64(math.MaxInt64)
	for range 5 { // a connection prepares a statement at its first use, and is tested after a pause
		k, err := s.CreateKey(t.Context(), caller, control.KeyInput{Name: "k", Scope: "read"})
		if err != nil {
			t.Fatal(err)
		}
		before := c.trips.Load()
		if _, err := s.RevokeKey(t.Context(), caller, k.ID, nil); err != nil {
			t.Fatal(err)
		}
		least = min(least, c.trips.Load()-before)
	}
	if least > revokeTrips {
		t.Errorf("a revocation took %d round trips, want at most %d", least, revokeTrips)
	}
	t.Logf("a revocation took %d round trips", least)
}
