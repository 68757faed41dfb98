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

// Guarantee: the owners that keys of a database of the first schema name become owners, also if the migration was
// interrupted before.
func TestOwnersOfOldKeys(t *testing.T) {
	for _, interrupted := range []bool{false, true} {
		url := postgrestest.Empty(t)
		MigrateTo(t, url, 1, func(db *sql.DB) error { return storetest.InsertOldKeys(t.Context(), db) })
		if interrupted {
			MigrateTo(t, url, 3, func(db *sql.DB) error {
				for _, statement := range []string{
					`DELETE FROM goose_db_version WHERE version_id = 3`, `DROP INDEX keys_plan`, `UPDATE keys SET owner_id = NULL WHERE id < 'key_2'`,
					`DELETE FROM owners WHERE external_id = 'gone'`, `UPDATE keys SET owner_id = NULL WHERE owner = 'gone'`,
				} {
					if _, err := db.ExecContext(t.Context(), statement); err != nil {
						return err
					}
				}
				return nil
			})
		}
		storetest.CheckOldKeys(t, openWith(t, Config{URL: url}))
	}
}

// Guarantee: what a node of the version before writes, which knows owners only as texts of keys, names owners that
// exist.
func TestOlderNodesNameOwners(t *testing.T) {
	db := fresh(t)
	exec := func(statement string) {
		t.Helper()
		if _, err := db.writer.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	owner := func() (name, ofKey string) {
		t.Helper()
		if err := db.writer.QueryRow(t.Context(), `SELECT coalesce((SELECT external_id FROM owners o WHERE o.id = k.owner_id), ''), coalesce(owner, '') FROM keys k`).Scan(&name, &ofKey); err != nil {
			t.Fatal(err)
		}
		return name, ofKey
	}
	exec(`INSERT INTO accounts (id, name, plan, default_plan_id, created_at) VALUES ('acct_a', 'a', 'starter', 'plan_1', 1)`)
	exec(`INSERT INTO keys (id, account_id, digest, prefix, level, phase, word, owner, created_at, version, name) VALUES ('key_1', 'acct_a', '1', 'k', 1, 0, 1, 'ada', 1, 1, 'k')`)
	for _, name := range []string{"ada", "bob", "ada", ""} {
		exec(`UPDATE keys SET owner = nullif('` + name + `', ''), name = name || 'k'`)
		if got, of := owner(); got != name || of != name {
			t.Errorf("a key of %q has the owner %q", of, got)
		}
	}
	var owners, counted, withPlan int
	if err := db.writer.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM owners), (SELECT owners FROM account_counts), (SELECT count(*) FROM owners WHERE plan_id = 'plan_1')`).Scan(&owners, &counted, &withPlan); err != nil {
		t.Fatal(err)
	}
	if owners != 2 || counted != 2 || withPlan != 2 {
		t.Errorf("got %d owners, %d counted and %d with the default plan, want 2", owners, counted, withPlan)
	}
}
