package postgres

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/internal/cluster/lease"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/snapshot"
)

// Guarantee: no mutation writes a change that a node with a lease cannot read, even if the node joined while the
// mutation waited; the error names the node. Once the lease has ended, the mutation succeeds.
func TestChangesAreReadableByEveryNode(t *testing.T) {
	h := newClusterHarness(t)
	h.leases.node.Format = snapshot.ChangeFormat - 1
	if _, err := h.views.pool.Exec(t.Context(), `UPDATE change_head SET format = $1`, snapshot.ChangeFormat-1); err != nil {
		t.Fatal(err)
	}
	change := func() error {
		return h.db.mutate(context.WithoutCancel(t.Context()), func(tx *tx) error {
			_, _ = tx.AppendChange(context.Background(), snapshot.CertificateChange, "gw_1") // the transaction fails nevertheless
			return nil
		})
	}
	tx, err := h.views.pool.Begin(t.Context()) // a join that holds the head
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM change_head FOR SHARE`); err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() { result <- change() }()
	watch, err := pgx.Connect(t.Context(), h.url)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close(context.Background())
	for blocked := false; !blocked && t.Context().Err() == nil; {
		if err := watch.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database())`).Scan(&blocked); err != nil {
			t.Fatal(err)
		}
	}
	a := h.carry(lease.Call{Kind: lease.Join, Node: "old", TTL: time.Hour})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	err = <-result
	if fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), `"old" (version 1.2.3)`) || h.db.Trouble() != "" {
		t.Errorf("with an older node: got %v and the trouble %q, want 503 that names the node", err, h.db.Trouble())
	}
	if last, err := h.db.LastPosition(t.Context()); err != nil || last.Number != 0 {
		t.Errorf("the last change is %v, %v; want none", last, err)
	}
	h.carry(lease.Call{Kind: lease.Leave, Node: "old", Epoch: a.Row.Epoch})
	if err := change(); err != nil {
		t.Errorf("after the node has left: %v", err)
	}
}

// Guarantee: a node cannot join if there was ever a change in a format that it does not read, also if the change
// was trimmed.
func TestNodeThatIsTooOldCannotJoin(t *testing.T) {
	h := newClusterHarness(t)
	p := h.changeOf(snapshot.CertificateChange, "gw_1") // of the newest format
	if _, err := h.views.pool.Exec(t.Context(), `DELETE FROM changes`); err != nil {
		t.Fatal(err)
	}
	h.leases.node.Format = snapshot.ChangeFormat - 1
	_, err := h.leases.Carry(t.Context(), lease.Call{Kind: lease.Join, Node: "old", TTL: time.Hour, Position: p})
	if !errors.Is(err, lease.ErrTooOld) || !strings.Contains(err.Error(), "upgrade this node") {
		t.Errorf("got %v, want that the version is too old", err)
	}
}

// Guarantee: a binary that is older than the schema starts if the schema supports it, and changes nothing;
// otherwise the error names the required version.
func TestOlderBinaryStartsIfTheSchemaSupportsIt(t *testing.T) {
	url := migrated(t)
	db := openWith(t, Config{URL: url})
	set := func(statement string, args ...any) {
		t.Helper()
		if _, err := db.writer.Exec(t.Context(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	v, err := SchemaVersion(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	set(`INSERT INTO goose_db_version (version_id, is_applied) VALUES ($1, true)`, v.Newest+1)
	older := openWith(t, Config{URL: url})
	if err := change(t, older); err != nil {
		t.Errorf("a change by an older binary: %v", err)
	}
	if err := Migrate(t.Context(), url, "1.2.3", slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("migrating with an older binary: %v", err)
	}
	set(`UPDATE schema_support SET oldest = $1`, v.Newest+1)
	if _, err := Open(t.Context(), Config{URL: url}); fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "run 1.2.3") {
		t.Errorf("starting a binary that is too old: got %v, want an error that names the version", err)
	}
	if err := change(t, older); err != nil {
		t.Errorf("a change by a binary that runs: %v", err)
	}
}

// Guarantee: a migration waits for the lock of a table for a tenth of the shortest lease at most, so that no
// lease ends because its renewal waits behind the migration.
func TestMigrationsWaitBrieflyForLocks(t *testing.T) {
	h := newClusterHarness(t)
	c := h.views.pool
	timeout := func() time.Duration {
		t.Helper()
		one, err := c.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer one.Release()
		d, err := lockTimeout(t.Context(), one.Conn())
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if got := timeout(); got != tableWait {
		t.Errorf("without nodes: %v, want %v", got, tableWait)
	}
	h.carry(lease.Call{Kind: lease.Join, Node: "a", TTL: 4 * time.Second})
	h.carry(lease.Call{Kind: lease.Join, Node: "b", TTL: 2 * time.Second})
	if got := timeout(); got != 200*time.Millisecond {
		t.Errorf("with a lease of 2 s: %v, want 200ms", got)
	}
}
