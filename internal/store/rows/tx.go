package rows

import (
	"context"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/store/stored"
)

// Row is one row of a result.
type Row interface {
	// Scan copies the columns to what the pointers point to, as that of database/sql does.
	Scan(to ...any) error
}

// Queries are the reads of a transaction. After the first error of a statement, every later call returns that error.
type Queries interface {
	// Ready returns an error if no statement may run.
	Ready(ctx context.Context) error
	// Query calls scan for each row of the result. scan must not use the transaction. what says what the query does, for
	// errors.
	Query(ctx context.Context, what, query string, args []any, scan func(Row) error) error
}

// Statements are the reads and the writes of a transaction.
type Statements interface {
	Queries
	// Queue runs a statement of which nobody needs the result. The engine may send it later, together with others, in
	// the order of the calls. args must not change until then. The error may come from a later call.
	Queue(ctx context.Context, what, statement string, args ...any) error
	// QueueOne is Queue for a statement that changes one row. If it changes none, the transaction fails with
	// fault.NotFound for record.
	QueueOne(ctx context.Context, what, record, statement string, args ...any) error
	// Exec runs a statement and returns how many rows it changed.
	Exec(ctx context.Context, what, statement string, args ...any) (int64, error)
	// Delete runs a DELETE and returns how many rows it deleted. The engine may look first whether there are any.
	Delete(ctx context.Context, what, statement string, args ...any) (int64, error)
	// Fail makes the transaction fail with err unless it has failed, and returns the error that it fails with.
	Fail(err error) error
}

// Reader reads the rows of a transaction. It implements parts of control.ReadTx.
type Reader struct {
	Queries
	Pages *stored.PageCodec
}

// QueryRow calls scan for the only row of the result. If there is none, the error is fault.NotFound for record.
func (t *Reader) QueryRow(ctx context.Context, record, query string, args []any, scan func(Row) error) error {
	found := false
	err := t.Query(ctx, "read "+record, query, args, func(r Row) error {
		found = true
		return scan(r)
	})
	if err == nil && !found {
		return fault.Missing(record)
	}
	return err
}

// Exists reports whether the query has a row.
func (t *Reader) Exists(ctx context.Context, what, query string, args ...any) (found bool, err error) {
	err = t.Query(ctx, what, query, args, func(Row) error {
		found = true
		return nil
	})
	return found, err
}

// Texts returns the only column of the result.
func (t *Reader) Texts(ctx context.Context, what, query string, args ...any) (list []string, err error) {
	err = t.Query(ctx, what, query, args, func(r Row) error {
		var s string
		err := r.Scan(&s)
		list = append(list, s)
		return err
	})
	return list, err
}

// readOne returns the record of the only row of the result. If there is none, the error is fault.NotFound for record.
func readOne[T any](ctx context.Context, t *Reader, record, query string, args []any, scan func(Row) (T, error)) (*T, error) {
	var found *T
	err := t.QueryRow(ctx, record, query, args, func(r Row) error {
		v, err := scan(r)
		found = &v
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// readAll returns the records of the rows of the result.
func readAll[T any](ctx context.Context, t *Reader, what, query string, args []any, scan func(Row) (T, error)) ([]T, error) {
	var list []T
	err := t.Query(ctx, what, query, args, func(r Row) error {
		v, err := scan(r)
		list = append(list, v)
		return err
	})
	return list, err
}
