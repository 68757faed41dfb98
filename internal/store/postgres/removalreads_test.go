package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/store/rows"
)

// mostRead is the most rows that one transaction of a removal may read, for all that it removes and whatever stays behind.
const mostRead = 1000

// readSoFar returns how many rows of tables the connection has read since some time before the transaction.
func (t *tx) readSoFar(tb testing.TB) (n int64) {
	tb.Helper()
	err := t.Query(tb.Context(), "count what was read", `SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_xact_user_tables`,
		nil, func(r *rows.Row) error { return r.Scan(&n) })
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// Guarantee: a transaction that removes some of very many records reads about as many rows as it removes, from the first
// transaction to the last: it does not pass again over what the transactions before it have looked at. So an account that
// leaves a million revisions, or 100,000 responses, delays nobody for longer than one that leaves a few.
func TestRemovalsPassOverNothing(t *testing.T) {
	const day = 24 * time.Hour
	db := openWith(t, Config{URL: migrated(t), LeaseTTL: 10 * time.Minute})
	_, err := db.writer.Exec(t.Context(), strings.Join([]string{
		`ALTER TABLE answers DISABLE TRIGGER USER`, `ALTER TABLE revisions DISABLE TRIGGER USER`, // counting each row of a large INSERT takes minutes
		`INSERT INTO accounts (id, name, plan, created_at, state) VALUES ('acct_1', 'a', 'scale', 0, 'deleted'), ('acct_2', 'b', 'scale', 0, 'active')`,
		`INSERT INTO gateways (id, account_id, name, shares_name, upstream, hostname, host_given, global_sustained, global_burst, timeout, max_body_bytes, requests, revision, is_default, version, created_at)
			SELECT 'gw_' || i, 'acct_1', 'g', true, '{}', 'h' || i, false, '', '', '', 0, '{}', 0, false, 1, 0 FROM generate_series(1, 30) AS i`,
		`INSERT INTO route_tables (gateway_id, revision_id, state, version, created_at) SELECT 'gw_1', 'rev_staged' || i, 2, 1, i FROM generate_series(1, 2000) AS i`,
		`INSERT INTO route_pages (table_id, first, routes, content) SELECT id, '', 1, 'x' FROM route_tables`,
		`INSERT INTO revision_parts (revision_id, kind, n, content) SELECT 'rev_staged' || i, 0, 0, 'x' FROM generate_series(1, 2000) AS i`,
		`INSERT INTO revisions (id, gateway_id, number, source, kind, author, commit_id, created_at, added, removed, changed, bytes)
			SELECT 'rev_' || i, 'gw_' || 1 + i / 1900 * i % 30, i, 'api', 'spec', '', '', 0, 0, 0, 0, 600 FROM generate_series(1, 2000) AS i`,
		`INSERT INTO revision_parts (revision_id, kind, n, content) SELECT 'rev_' || i, 0, 0, 'x' FROM generate_series(1, 2000) AS i`,
		`INSERT INTO keys (id, account_id, digest, prefix, level, phase, word, created_at, version, name)
			SELECT 'key_' || i, 'acct_' || i, sha256(i::text::bytea), 'kg', 1, 0, 1, 0, 1, 'k' FROM generate_series(1, 2) AS i`,
		`INSERT INTO answers (key_id, key, fingerprint, status, body, created_at)
			SELECT 'key_' || 1 + i % 2, i::text, 'x', 200, repeat('x', CASE WHEN i > 9900 THEN 20000 ELSE 10 END)::bytea, i FROM generate_series(1, 10000) AS i`,
		`INSERT INTO revision_counts (gateway_id, account_id, revisions, newest, newest_bytes, older_bytes, oldest_at)
			SELECT gateway_id, 'acct_1', count(*), max(number), 600, 600 * (count(*) - 1), 0 FROM revisions GROUP BY gateway_id`,
		`UPDATE account_counts SET responses = 5000`,
		`ALTER TABLE answers ENABLE TRIGGER USER`, `ALTER TABLE revisions ENABLE TRIGGER USER`, `ANALYZE`,
	}, ";\n"), pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	remove := func(of string, some func(tx control.Tx) (more bool, err error)) {
		most, n := int64(0), 0
		for more := true; more; n++ {
			err := db.update(t.Context(), headFirst, func(tx *tx) (err error) {
				for _, setting := range []string{"enable_seqscan", "jit"} { // a scan would be cheaper in tables as small as here
					if _, err := tx.Exec(t.Context(), "set", `SET LOCAL `+setting+` = off`); err != nil {
						return err
					}
				}
				before := tx.readSoFar(t)
				more, err = some(tx)
				most = max(most, tx.readSoFar(t)-before)
				return err
			})
			if err != nil || most > mostRead {
				t.Fatalf("%s: transaction %d read %d rows (%v); want at most %d", of, n, most, err, mostRead)
			}
		}
		t.Logf("%s: %d transactions, which read at most %d rows", of, n, most)
	}
	now := time.UnixMicro(0).Add(400 * day)
	remove("old responses", func(tx control.Tx) (bool, error) {
		return tx.Trim(t.Context(), time.UnixMicro(5001), time.UnixMicro(0), time.UnixMicro(0), 0, 200)
	})
	remove("the account", func(tx control.Tx) (bool, error) { return tx.RemoveAccount(t.Context(), "acct_1", 100) })
	remove("route tables and parts of revisions", func(tx control.Tx) (bool, error) { return tx.TrimTables(t.Context(), now, 100) })
	for table, want := range map[string]int64{"route_tables": 0, "route_pages": 0, "revisions": 0, "revision_parts": 0, "revisions_gone": 0, "gateways": 0, "answers": 2500} {
		var left int64
		if err := db.writer.QueryRow(t.Context(), `SELECT count(*) FROM `+table).Scan(&left); err != nil || left != want {
			t.Errorf("%s has %d rows left (%v), want %d", table, left, err, want)
		}
	}
}
