package sqlite

import (
	"context"
	"database/sql"
	"iter"
	"strings"

	"github.com/keygate/keygate/internal/store/rows"
)

// Dump is one state of the store, as the rows of its tables, for a copy to another engine. It must not be
// used after the function that got it has returned.
type Dump struct{ t *readTx }

// Dump calls f with the present state of the store. Until f returns, nothing can write to the file, other
// processes included: they wait, and fail once their busy timeout has passed.
func (db *DB) Dump(ctx context.Context, f func(*Dump) error) error {
	return db.write(ctx, func(*tx) error {
		return db.search(ctx, func(t *readTx) error { return f(&Dump{t}) })
	})
}

// Tables returns the names of all tables, including the tables of SQLite itself and of the search index.
func (d *Dump) Tables(ctx context.Context) (names []string, err error) {
	err = d.t.Query(ctx, "list the tables", `SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name`, nil, func(r *rows.Row) error {
		var name string
		err := r.Scan(&name)
		names = append(names, name)
		return err
	})
	return names, err
}

// Number returns the result of a query for one integer, 0 if it is NULL.
func (d *Dump) Number(ctx context.Context, query string) (n int64, err error) {
	err = d.t.Query(ctx, "read a number", query, nil, func(r *rows.Row) error {
		var v sql.NullInt64
		err := r.Scan(&v)
		n = v.Int64
		return err
	})
	return n, err
}

// Rows returns the values of the expressions for each row of a table, one row at a time. The values are nil,
// int64, string or []byte, and valid until the next row.
func (d *Dump) Rows(ctx context.Context, table string, expressions []string) iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		values, to := make([]any, len(expressions)), make([]any, len(expressions))
		for i := range values {
			to[i] = &values[i]
		}
		stopped := false
		err := d.t.Query(ctx, "read the table "+table, `SELECT `+strings.Join(expressions, ", ")+` FROM "`+table+`"`, nil, func(r *rows.Row) error {
			if err := r.Scan(to...); err != nil {
				return err
			}
			if stopped = !yield(values, nil); stopped {
				return errEnded
			}
			return nil
		})
		if err != nil && !stopped {
			yield(nil, err)
		}
	}
}
