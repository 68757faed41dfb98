package rows

import "testing"

// Guarantee: each engine gets a statement in its own dialect.
func TestDialects(t *testing.T) {
	for _, c := range []struct{ name, statement, sqlite, postgres string }{
		{"parameters in order are positions", `WHERE a = $1 AND b = $2`, `WHERE a = ? AND b = ?`, `WHERE a = $1 AND b = $2`},
		{"a parameter may be repeated", `WHERE a = $1 OR b = $1`, `WHERE a = ?1 OR b = ?1`, `WHERE a = $1 OR b = $1`},
		{"parameters may be in any order", `WHERE a = $2 OR b = $1`, `WHERE a = ?2 OR b = ?1`, `WHERE a = $2 OR b = $1`},
		{"there may be more than nine", `$1 $2 $3 $4 $5 $6 $7 $8 $9 $10 $11`, `? ? ? ? ? ? ? ? ? ? ?`, `$1 $2 $3 $4 $5 $6 $7 $8 $9 $10 $11`},
		{"a limit is planned once", `ORDER BY id LIMIT $1`, `ORDER BY id LIMIT ?+0`, `ORDER BY id LIMIT $1`},
		{"an offset is planned once", `LIMIT 1 OFFSET $1`, `LIMIT 1 OFFSET ?+0`, `LIMIT 1 OFFSET $1`},
		{"an offset without a limit", `LIMIT ALL OFFSET $1`, `LIMIT -1 OFFSET ?+0`, `LIMIT ALL OFFSET $1`},
		{"indexes are SQLite's", `FROM keys INDEXED BY keys_list WHERE id = $1`, `FROM keys INDEXED BY keys_list WHERE id = ?`, `FROM keys WHERE id = $1`},
		{"booleans are numbers in SQLite", `WHERE ended = false AND listed = true`, `WHERE ended = 0 AND listed = 1`, `WHERE ended = false AND listed = true`},
		{"the order of a join is SQLite's", `FROM a CROSS JOIN b x ON x.n = a.n CROSS JOIN c`, `FROM a CROSS JOIN b x ON x.n = a.n CROSS JOIN c`, `FROM a JOIN b x ON x.n = a.n CROSS JOIN c`},
		{"an index may stand in a join", `a CROSS JOIN b x INDEXED BY i ON true`, `a CROSS JOIN b x INDEXED BY i ON true`, `a JOIN b x ON true`},
		{"functions", `greatest(0, a), least(a, b), strpos(a, b)`, `max(0, a), min(a, b), instr(a, b)`, `greatest(0, a), least(a, b), strpos(a, b)`},
		{"a list is JSON in SQLite", `WHERE a = $1 AND id = ANY ($2)`, `WHERE a = ? AND id IN (SELECT value FROM json_each(?))`, `WHERE a = $1 AND id = ANY ($2)`},
		{"SQLite has no types", `sum(n)::bigint, $1::text[]`, `sum(n), ?`, `sum(n)::bigint, $1::text[]`},
		{"SQLite compares bytes", `lower($1 COLLATE "C")`, `lower(?)`, `lower($1 COLLATE "C")`},
		{"SQLite has no locks of rows", `LIMIT 1 FOR UPDATE SKIP LOCKED`, `LIMIT 1`, `LIMIT 1 FOR UPDATE SKIP LOCKED`},
		{
			"columns are a row in SQLite", `SELECT $1, a, b FROM unnest($2::text[], $3::bytea[]) WITH ORDINALITY AS c (a, b, place) ORDER BY place`,
			`SELECT ?, a, b FROM (SELECT ? AS a, ? AS b, 0 AS place) AS c ORDER BY place`,
			`SELECT $1, a, b FROM unnest($2::text[], $3::bytea[]) WITH ORDINALITY AS c (a, b, place) ORDER BY place`,
		},
		{
			"objects are rows", `SELECT c.n FROM json_to_recordset($1::json) AS c (n bigint, name text) CROSS JOIN quotas q ON q.n = c.n`,
			`SELECT c.n FROM (SELECT value ->> 'n' AS n, value ->> 'name' AS name FROM json_each(?)) AS c CROSS JOIN quotas q ON q.n = c.n`,
			`SELECT c.n FROM json_to_recordset($1::json) AS c (n bigint, name text) JOIN quotas q ON q.n = c.n`,
		},
		{"the queue of one node has its clock", `due_at <= queue_now($1)`, `due_at <= ?`, `due_at <= queue_now($1)`},
		{"locks within parentheses", `(SELECT 1 FOR NO KEY UPDATE) AS a`, `(SELECT 1) AS a`, `(SELECT 1 FOR NO KEY UPDATE) AS a`},
		{
			"rows by their addresses", `DELETE FROM a WHERE rowid = ANY (ARRAY(SELECT rowid FROM (SELECT 1) b LIMIT $1)) AND c`,
			`DELETE FROM a WHERE rowid IN (SELECT rowid FROM (SELECT 1) b LIMIT ?+0) AND c`,
			`DELETE FROM a WHERE ctid = ANY (ARRAY(SELECT ctid FROM (SELECT 1) b LIMIT $1)) AND c`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := ForSQLite(c.statement); got != c.sqlite {
				t.Errorf("SQLite: got  %s\nwant %s", got, c.sqlite)
			}
			if got := ForPostgreSQL(c.statement); got != c.postgres {
				t.Errorf("PostgreSQL: got  %s\nwant %s", got, c.postgres)
			}
		})
	}
}

// Guarantee: a statement that an engine has written itself stays as it is.
func TestDialectsLeaveStatementsOfTheEngines(t *testing.T) {
	for _, s := range []string{
		`SELECT 1 FROM gateways INDEXED BY gateways_list WHERE account_id = ? AND (? = '' OR state = ?1) ORDER BY +id LIMIT ?+0`,
		`SELECT asked.key FROM json_each(?) asked CROSS JOIN daily_counts d ON d.day = ? AND d.limit_id = asked.value ->> 0`,
		`BEGIN IMMEDIATE`, `PRAGMA wal_checkpoint(TRUNCATE)`,
	} {
		if got := ForSQLite(s); got != s {
			t.Errorf("SQLite: got  %s\nwant %s", got, s)
		}
	}
	for _, s := range []string{
		`SELECT n FROM unnest($1::integer[]) AS s (state) CROSS JOIN LATERAL (SELECT 1) AS page WHERE n = ANY($2::bigint[]) FOR UPDATE OF d SKIP LOCKED`,
		`FROM head CROSS JOIN unnest($2::text[], $3::text[]) WITH ORDINALITY AS d (id, webhook_id, place)`,
	} {
		if got := ForPostgreSQL(s); got != s {
			t.Errorf("PostgreSQL: got  %s\nwant %s", got, s)
		}
	}
}
