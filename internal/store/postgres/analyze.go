package postgres

import (
	"context"

	"github.com/keygate/keygate/internal/store/rows"
)

// grown selects the tables that have become more than twice as large as the server knows, of those whose rows an account makes by
// the thousand and that statements look up by lists.
const grown = `SELECT relname::text FROM pg_class WHERE oid IN (to_regclass('keys'), to_regclass('owners'))
	AND pg_relation_size(oid) > 2 * current_setting('block_size')::bigint * greatest(relpages, 16)`

// Analyze implements control.Store. The server looks at tables by itself, but once a minute at most. Until then, and as long as
// a connection keeps a plan that it has made before, it reads whole tables that were small: each piece of an import of 20,000
// keys into a new database took ten times as long.
func (db *DB) Analyze(ctx context.Context) error {
	var tables []string
	err := db.statement(ctx, db.readers, logTime, func(t *readTx) error {
		tables = tables[:0]
		return t.Query(ctx, "find tables that have grown", grown, nil, func(r *rows.Row) error {
			var name string
			err := r.Scan(&name)
			tables = append(tables, name)
			return err
		})
	})
	for _, name := range tables {
		if err != nil {
			return err
		}
		err = db.record(ctx, func(t *tx) error {
			_, err := t.Exec(ctx, "analyze a table", `ANALYZE `+name)
			return err
		})
	}
	return err
}
