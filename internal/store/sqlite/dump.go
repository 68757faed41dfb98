package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"strings"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/store/stored"
)

// Dump is one state of the store, as the rows of its tables, for a copy to another engine. It must not be
// used after the function has returned that it was given to.
type Dump struct{ t *readTx }

// Dump calls f with the present state of the store. Until f returns, nothing can write to the file, other
// processes included: they wait, and fail once their busy timeout has passed.
func (db *DB) Dump(ctx context.Context, f func(*Dump) error) error {
	return db.write(ctx, func(*tx) error {
		return db.search(ctx, func(t *readTx) error { return f(&Dump{t}) })
	})
}

// Tables returns the names of all tables, those of SQLite itself and of the search index included.
func (d *Dump) Tables(ctx context.Context) (names []string, err error) {
	err = d.t.rows(ctx, "list the tables", `SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name`, nil, func(r *sql.Rows) error {
		var name string
		err := r.Scan(&name)
		names = append(names, name)
		return err
	})
	return names, err
}

// Number returns the result of a query for one integer, 0 if it is NULL.
func (d *Dump) Number(ctx context.Context, query string) (n int64, err error) {
	err = d.t.rows(ctx, "read a number", query, nil, func(r *sql.Rows) error {
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
		err := d.t.rows(ctx, "read the table "+table, `SELECT `+strings.Join(expressions, ", ")+` FROM "`+table+`"`, nil, func(r *sql.Rows) error {
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

// WholeRevisions returns the revisions that an earlier version stored in one row, as their parts.
func (d *Dump) WholeRevisions(ctx context.Context) iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		var ids []string
		err := d.t.rows(ctx, "find revisions", `SELECT id FROM revisions WHERE length(content) > 0 ORDER BY id`, nil, func(r *sql.Rows) error {
			var id string
			err := r.Scan(&id)
			ids = append(ids, id)
			return err
		})
		for _, id := range ids {
			var rev gateway.Revision
			var content, routes []byte
			if err == nil {
				err = d.t.row(ctx, "revision", revisionColumns+`, content, routes FROM revisions WHERE id = ?`, []any{id}, func(r *sql.Rows) (err error) {
					rev, err = scanRevision(r, &content, &routes)
					return err
				})
			}
			var p *stored.Prepared
			if err == nil {
				p, err = d.prepare(&rev, content, routes)
			}
			if err != nil {
				yield(nil, fmt.Errorf("read revision %s: %w", id, err))
				return
			}
			for _, part := range p.Parts {
				if !yield([]any{id, int64(part.Kind), int64(part.N), part.Content}, nil) {
					return
				}
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// prepare returns a revision in parts.
func (d *Dump) prepare(r *gateway.Revision, content, routes []byte) (_ *stored.Prepared, err error) {
	if r.Content, err = stored.Unpack(content); err != nil {
		return nil, err
	}
	if r.Routes, err = decodeRoutes(routes); err != nil {
		return nil, err
	}
	return d.t.c.pages.Prepare(r)
}
