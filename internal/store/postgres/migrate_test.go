package postgres

import (
	"context"
	"database/sql"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/store/storetest"
)

// Guarantee: a database with an earlier schema is migrated once, however many nodes start at the same time, and keeps
// its rows. While another transaction holds the lock of a table, the migration gives up and tries again.
func TestMigrationBySeveralNodes(t *testing.T) {
	url := postgrestest.Empty(t)
	MigrateTo(t, url, 1, func(db *sql.DB) error {
		for _, statement := range []string{
			`INSERT INTO accounts (id, name, plan, created_at) VALUES ('acct_a', 'a', 'starter', 1)`,
			// The shortest lease decides how long a migration waits for a lock.
			`INSERT INTO nodes (id, name, boot, epoch, granted, ttl, number, mark, state, role, version, limits, started_at, renewed)
				VALUES ('node_a', 'a', '', 1, 1, 2000000000, 0, '', 'live', '', '', '', 1, now())`,
		} {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				return err
			}
		}
		return nil
	})
	files, err := migrations()
	if err != nil {
		t.Fatal(err)
	}
	files, number := storetest.NextSchema(t, files, `LOCK TABLE keys IN ACCESS EXCLUSIVE MODE; UPDATE accounts SET name = name || ' of the next schema';`)
	connect := func() *pgx.Conn {
		c, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
		return c
	}
	holder, watcher := connect(), connect()
	if _, err := holder.Exec(t.Context(), `BEGIN; LOCK TABLE keys IN ACCESS SHARE MODE`); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	ended := make(chan struct{})
	for range 3 {
		group.Go(func() {
			err := withSchema(t.Context(), url, func(db *sql.DB) error {
				return migrate(t.Context(), db, files, "1.2.3", slog.New(slog.DiscardHandler))
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	go func() {
		group.Wait()
		close(ended)
	}()
	attempts := map[time.Time]bool{}
	for len(attempts) < 2 {
		var begun *time.Time
		err := watcher.QueryRow(t.Context(), `SELECT min(a.xact_start) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND l.relation = 'keys'::regclass`).Scan(&begun)
		if err != nil {
			t.Fatal(err)
		}
		if begun != nil {
			attempts[*begun] = true
		}
		select {
		case <-ended:
			t.Fatalf("the nodes have given up after %d attempts that were seen", len(attempts))
		default:
		}
	}
	if _, err := holder.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	<-ended
	var name string
	var schema int64
	err = watcher.QueryRow(t.Context(), `SELECT (SELECT name FROM accounts), (SELECT max(version_id) FROM goose_db_version)`).Scan(&name, &schema)
	if err != nil || name != "a of the next schema" || schema != number {
		t.Errorf("the account is named %q, and the schema is %d, %v; want that the migration ran once, to %d", name, schema, err, number)
	}
}
