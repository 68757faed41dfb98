package postgres

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/store/rows"
)

// maxQueued and maxQueuedBytes bound how many statements are queued, and the bytes of their texts and byte
// strings: before there are more, the statements are sent. A statement that alone exceeds a bound is
// queued alone.
const (
	maxQueued      = 1000
	maxQueuedBytes = 1 << 20
)

// statement is a statement that is queued.
type statement struct {
	what   string                // it does, for errors
	record string                // that it must change, or ""
	fails  error                 // error of the statement if it divides by zero, or nil
	scan   func(*rows.Row) error // of its rows, or nil
	tag    *pgconn.CommandTag    // scan of the statement that send was called for; nil for a queued statement
	query  string
	args   []any
}

// Queue implements rows.Statements. The statement is sent with the next one whose result is needed, or with COMMIT, in one
// round trip. If it fails, so does the transaction, with the statement's error. A later call returns that error, so a
// statement whose error the caller examines must not be queued.
func (t *tx) Queue(ctx context.Context, what, query string, args ...any) error {
	return t.enqueue(ctx, statement{what: what, query: t.c.dialect.of(query).alone, args: args})
}

// QueueEach implements rows.Statements. It sends the columns as arrays.
func (t *tx) QueueEach(ctx context.Context, what, query string, args ...any) error {
	if rows.CountRows(args) == 0 {
		return t.Ready(ctx)
	}
	for i, a := range args {
		if raw, is := a.(rows.RawTexts); is {
			args = slices.Clone(args)
			args[i] = raw.Bytes()
		}
	}
	return t.Queue(ctx, what, query, args...)
}

// QueryEach implements rows.Statements. It sends all in one round trip.
func (t *tx) QueryEach(ctx context.Context, what, query string, args []any, scan func(*rows.Row) error) error {
	query = t.c.dialect.of(query).alone
	err := rows.EachRow(args, func(args []any) error {
		return t.enqueue(ctx, statement{what: what, query: query, args: args, scan: scan})
	})
	if err != nil {
		return err
	}
	_, err = t.Exec(ctx, "send queries", `SELECT 1`)
	return err
}

// QueueOne implements rows.Statements. The server has to find out whether a row is changed, since it may get COMMIT in the
// same round trip.
func (t *tx) QueueOne(ctx context.Context, what, record, query string, args ...any) error {
	return t.enqueue(ctx, statement{what: what, record: record, query: t.c.dialect.of(query).one, args: args})
}

// QueueOrFail implements rows.Statements.
func (t *tx) QueueOrFail(ctx context.Context, what string, fails error, query string, args ...any) error {
	return t.enqueue(ctx, statement{what: what, fails: fails, query: t.c.dialect.of(query).one, args: args})
}

func (t *tx) enqueue(ctx context.Context, s statement) error {
	if err := t.Ready(ctx); err != nil {
		return err
	}
	size := sizeOf(s.args)
	if n := len(t.queued); n == maxQueued || n > 0 && t.queuedBytes+size > maxQueuedBytes {
		if _, err := t.Exec(ctx, "send statements", `SELECT 1`); err != nil {
			return err
		}
	}
	s.args = slices.Clone(s.args)
	t.queued, t.queuedBytes = append(t.queued, s), t.queuedBytes+size
	t.touch(s.query)
	return nil
}

// sizeOf returns the bytes of the texts and byte strings among args.
func sizeOf(args []any) (n int) {
	for _, a := range args {
		switch a := a.(type) {
		case string:
			n += len(a)
		case []byte:
			n += len(a)
		case [][]byte:
			for _, b := range a {
				n += len(b)
			}
		}
	}
	return n
}

// queuedError is the error of a queued statement.
type queuedError struct {
	of  *statement
	err error
}

func (e *queuedError) Error() string { return e.of.what + ": " + e.err.Error() }
func (e *queuedError) Unwrap() error { return e.err }

// fault returns e with a public message.
func (e *queuedError) fault() error {
	if stateOf(e.err) == divisionByZero { // see QueueOne
		switch {
		case e.of.fails != nil:
			return e.of.fails
		case e.of.record != "":
			return fault.Missing(e.of.record)
		}
	}
	return translate(e.of.what, e.err)
}

// send sends the queued statements and then one more, in one round trip, and calls scan for each row of that
// statement's result. A mutation that does not hold the head takes it before. An error of a queued statement is a
// queuedError; the statements after it are not carried out.
func (t *readTx) send(ctx context.Context, query string, args []any, scan func(*rows.Row) error) (tag pgconn.CommandTag, err error) {
	list := append(t.before(), t.queued...)
	t.tripWithHead()
	t.queued, t.queuedBytes, t.touched = nil, 0, nil
	if !t.held || query == endTransaction {
		return t.sendOnly(ctx, list, query, args, scan)
	}
	// The server holds the head until the next round trip, for the rest of the time at most.
	list = append(list, statement{query: query, args: args, scan: scan, tag: &tag})
	rest := t.goOn()
	_, err = t.sendOnly(ctx, list, rest.query, rest.args, func(*rows.Row) error { return nil })
	if stateOf(err) == divisionByZero && tag.String() != "" {
		err = &queuedError{&rest, err}
	}
	return tag, err
}

// endTransaction commits a transaction.
const endTransaction = `COMMIT`

// sendOnly sends a list of statements and then one more, as send does.
func (t *readTx) sendOnly(ctx context.Context, list []statement, query string, args []any, scan func(*rows.Row) error) (tag pgconn.CommandTag, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if len(list) == 0 {
		result, err := t.c.Query(ctx, query, args...)
		if err != nil {
			return tag, err
		}
		return scanAll(result, scan, cancel)
	}
	b := &pgx.Batch{}
	for i := range list {
		b.Queue(list[i].query, list[i].args...)
	}
	b.Queue(query, args...)
	results := t.c.SendBatch(ctx, b)
	defer func() { err = cmp.Or(err, results.Close()) }()
	for i := range list {
		if err := list[i].read(results, cancel); err != nil {
			if list[i].tag != nil {
				return tag, err
			}
			return tag, &queuedError{&list[i], err}
		}
	}
	result, err := results.Query()
	if err != nil {
		return tag, err
	}
	return scanAll(result, scan, cancel)
}

// read reads the result of the statement.
func (s *statement) read(results pgx.BatchResults, cancel func()) error {
	if s.scan == nil {
		_, err := results.Exec()
		return err
	}
	result, err := results.Query()
	if err != nil {
		return err
	}
	tag, err := scanAll(result, s.scan, cancel)
	if s.tag != nil {
		*s.tag = tag
	}
	return err
}

// scanAll calls scan for each row. If that fails, it calls cancel: there may be a million rows left.
func scanAll(result pgx.Rows, scan func(*rows.Row) error, cancel func()) (pgconn.CommandTag, error) {
	defer result.Close() // reads the rest
	for row := (&rows.Row{Result: result}); result.Next(); {
		if err := scan(row); err != nil {
			cancel()
			return pgconn.CommandTag{}, err
		}
	}
	return result.CommandTag(), result.Err()
}

// resultOf returns a row of a query as the driver has it.
func resultOf(r *rows.Row) pgx.Rows {
	result, _ := r.Result.(pgx.Rows)
	return result
}

// fail notes that a statement failed with err, and returns the error with a public message. what says what the
// statement does.
func (t *readTx) fail(what string, err error) error {
	var q *queuedError
	if errors.As(err, &q) {
		t.late = q.fault()
		t.failed = t.late
	} else {
		t.failed = t.fault(what, err)
	}
	return t.failed
}
