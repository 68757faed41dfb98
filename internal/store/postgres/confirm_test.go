package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/internal/cluster/lease"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
)

// shortLease makes the statements of a test time out soon.
const shortLease = 2 * time.Second

// withoutReplica starts a server that waits for a synchronous replica which does not exist, and returns the URL of
// a database with the schema.
func withoutReplica(t *testing.T) (*postgrestest.Server, string) {
	t.Helper()
	s := postgrestest.Start(t, postgrestest.Config{})
	url := s.Database(t, "")
	openWith(t, Config{URL: url}) // migrates it
	standby(t, s, "absent")
	return s, url
}

// standby sets the name of the synchronous replica that the server waits for, "" for none, and returns when commits
// wait for it, or do not.
func standby(t *testing.T, s *postgrestest.Server, name string) {
	t.Helper()
	if err := s.Admin(t.Context(), `ALTER SYSTEM SET synchronous_standby_names = '`+name+`'`, `SELECT pg_reload_conf()`); err != nil {
		t.Fatal(err)
	}
	settings, err := parseURL(s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	configure(settings.ConnConfig)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // only a failing test reaches it
	defer cancel()
	for waits := name == ""; waits != (name != ""); {
		c, err := pgx.ConnectConfig(ctx, settings.ConnConfig)
		if err != nil {
			t.Fatal(err)
		}
		if waits, err = unconfirmed(ctx, c, time.Second); err != nil { // a busy machine has not reached COMMIT within a second
			waits = name == ""
		}
		_ = c.Close(context.Background())
		if ctx.Err() != nil {
			t.Fatalf("whether commits wait for %q is not found out: %v", name, err)
		}
	}
}

// cancelCommits cancels every commit that waits for a replica, as an administrator may, until the test ends.
func cancelCommits(t *testing.T, s *postgrestest.Server) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() {
		ended <- s.Admin(ctx, `DO $$ BEGIN LOOP
			PERFORM pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep';
			PERFORM pg_sleep(0.02), pg_stat_clear_snapshot();
		END LOOP; END $$`)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// Guarantee: a transaction that the server commits without the synchronous replica that it waits for is 503, whatever
// it does and however it is committed. It says that the change is stored. A repeated call that finds the change
// already made is 503 too, until a replica has the change.
func TestCommitThatNoReplicaHas(t *testing.T) {
	s, url := withoutReplica(t)
	cancelCommits(t, s)
	db := openWith(t, Config{URL: url, LeaseTTL: shortLease})
	for _, tc := range []struct {
		name string
		do   func(ctx context.Context) error
	}{
		{"a change that is sent with COMMIT", func(context.Context) error { return change(t, db) }},
		{"a change and a read", func(ctx context.Context) error {
			return db.Update(ctx, func(tx control.Tx) error {
				_, err := tx.AppendChange(ctx, snapshot.KeyChange, "key_1")
				_, countErr := tx.KeysToIndex(ctx, 1)
				return errors.Join(err, countErr)
			})
		}},
		{"a change that finds nothing to do", func(ctx context.Context) error {
			return db.Update(ctx, func(tx control.Tx) error {
				_, err := tx.KeysToIndex(ctx, 1)
				return err
			})
		}},
		{"a stored response that is repeated", func(ctx context.Context) error {
			_, _, err := db.Settle(ctx, "")
			return err
		}},
		{"a claim to a daily cap", func(ctx context.Context) error {
			day := time.Now().Unix() / int64(24*time.Hour/time.Second)
			_, err := db.ReserveDaily(ctx, "a", day, []ratelimit.DailyClaim{{LimitID: "l", KeyID: "k", Cap: 10, Ahead: 1}})
			return err
		}},
	} {
		err := tc.do(t.Context())
		var public *fault.Error
		if !errors.As(err, &public) || public.Code != fault.Unavailable || public.Message != unconfirmedMessage || !errors.Is(err, control.ErrInDoubt) {
			t.Errorf("%s: got %v, want 503 and that the change is stored", tc.name, err)
		}
	}
	if seq, err := db.LastSeq(t.Context()); seq != 2 || err != nil {
		t.Errorf("the newest change is %d, error %v; want 2", seq, err)
	}
}

// Guarantee: a lease is not granted, renewed, given back or ended by a commit that no synchronous replica has, and
// nobody relies on the end of a lease before one has it.
func TestLeaseThatNoReplicaHas(t *testing.T) {
	s, url := withoutReplica(t)
	standby(t, s, "")
	h := newClusterHarnessAt(t, url)
	a := h.carry(lease.Call{Kind: lease.Join, Node: "a", TTL: shortLease})
	standby(t, s, "absent")
	cancelCommits(t, s)
	for _, c := range []lease.Call{
		{Kind: lease.Renew, Node: "a", Epoch: a.Row.Epoch, TTL: shortLease},
		{Kind: lease.Join, Node: "b", TTL: shortLease},
		{Kind: lease.Leave, Node: "b", Epoch: 1},
	} {
		if got, err := h.leases.Carry(t.Context(), c); !errors.Is(err, control.ErrInDoubt) || got.Result == lease.Done {
			t.Errorf("call %d for %s: got %v, %v; want that it is not confirmed", c.Kind, c.Node, got.Result, err)
		}
	}
	seen := lease.Seen{Node: "a", Epoch: a.Row.Epoch, Grant: a.Row.Grant + 1} // of the renewal, which stands here
	if ended, err := h.views.EndLease(t.Context(), seen); ended || !errors.Is(err, control.ErrInDoubt) {
		t.Errorf("ending a lease: got %t, %v; want that it is not confirmed", ended, err)
	}
	if _, err := h.views.LeaseView(t.Context(), nil); !errors.Is(err, control.ErrInDoubt) {
		t.Errorf("reading the leases then: got %v, want that the end of one is not confirmed", err)
	}
	standby(t, s, "")
	if v := h.view(); len(v.Rows) != 2 || v.Rows[0].State != lease.Expired {
		t.Errorf("once commits wait for no replica: got %+v, want the lease ended", v.Rows)
	}
}

// Guarantee: an inspection counts the replicas that a commit waits for apart from others, and finds out when none of them
// confirms a commit although other replicas are connected. Without the right to see which replicas are synchronous, it says so.
func TestInspectCountsSynchronousReplicas(t *testing.T) {
	s := postgrestest.Start(t, postgrestest.Config{})
	url := s.Database(t, "")
	s.Replica(t)
	check := func(replicas, synchronous int, unconfirmed bool) {
		t.Helper()
		i, err := Inspect(t.Context(), url, "a")
		if err != nil {
			t.Fatal(err)
		}
		if i.Replicas != replicas || i.SyncReplicas != synchronous || i.Unconfirmed != unconfirmed {
			t.Errorf("got %d replicas, of which %d are synchronous, unconfirmed %v; want %d, %d and %v", i.Replicas, i.SyncReplicas, i.Unconfirmed, replicas, synchronous, unconfirmed)
		}
	}
	check(1, -1, false)
	if err := s.Admin(t.Context(), `GRANT pg_read_all_stats TO keygate`); err != nil {
		t.Fatal(err)
	}
	check(1, 1, false)
	standby(t, s, "absent") // the replica is asynchronous from now on
	check(1, 0, true)
}
