package rows

import (
	"context"
	"database/sql"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/traffic"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
)

// Queries are the reads of a transaction. After the first error of a statement, every later call returns that error.
type Queries interface {
	// Ready returns an error if no statement may run.
	Ready(ctx context.Context) error
	// Query calls scan for each row of the result. scan must not use the transaction. what says what the query does, for
	// errors.
	Query(ctx context.Context, what, query string, args []any, scan func(*Row) error) error
}

// Statements are the reads and the writes of a transaction. They do not keep the slice of the arguments.
type Statements interface {
	Queries
	// Queue runs a statement whose result nobody needs. The engine may send it later, together with others, in the
	// order of the calls. The values that args point to must not change until then. The error may come from a
	// later call.
	Queue(ctx context.Context, what, statement string, args ...any) error
	// QueueEach is Queue for each row of the columns among args (CountRows), which the statement unnests. Columns have equal
	// lengths.
	QueueEach(ctx context.Context, what, statement string, args ...any) error
	// QueryEach runs a query for each row of the columns among args. The engine may send all of them at once.
	QueryEach(ctx context.Context, what, query string, args []any, scan func(*Row) error) error
	// QueueOne is Queue for a statement that changes one row. If it changes none, the transaction fails with
	// fault.NotFound for record.
	QueueOne(ctx context.Context, what, record, statement string, args ...any) error
	// QueueOrFail does the same as QueueOne, but the transaction fails with the given error.
	QueueOrFail(ctx context.Context, what string, fails error, statement string, args ...any) error
	// Exec runs a statement and returns how many rows it changed.
	Exec(ctx context.Context, what, statement string, args ...any) (int64, error)
	// MayDelete reports whether a DELETE would delete anything. It may return true without a look.
	MayDelete(ctx context.Context, what, statement string, args ...any) (bool, error)
	// Delete runs a DELETE and returns how many rows it deleted. The engine may first check whether there are any.
	Delete(ctx context.Context, what, statement string, args ...any) (int64, error)
	// Fail makes the transaction fail with err, unless it has failed already, and returns the error with which it
	// fails.
	Fail(err error) error
}

// Tx is what an engine gives a Writer: the statements of a transaction, and the operations that the engine
// does in its own way.
type Tx interface {
	Statements
	// Now returns the time in microseconds since 1970.
	Now() int64
	// InsertTable adds a route table and returns its number.
	InsertTable(ctx context.Context, gatewayID, revisionID string, state int) (n int64, err error)
	// Held reports whether the transaction holds a lock for which others wait, so that it should end soon.
	Held() bool
	AppendChange(ctx context.Context, k snapshot.ChangeKind, recordID string) (seq int64, err error)
	InsertEvent(ctx context.Context, e *event.Event, listed bool) error
	// InsertDeliveries adds deliveries of one event, all of the same state, trigger and times.
	InsertDeliveries(ctx context.Context, list []webhook.Delivery) error
	// EndLeases and FailWaiting are those of sender.FinishTx.
	EndLeases(ctx context.Context, results []sender.Result) (endpoints []string, err error)
	FailWaiting(ctx context.Context, webhookID, reason string, now time.Time, limit int) (int, error)
	RemoveAttempts(ctx context.Context, deliveries []int64) error
	// ForgetSubscriptions removes up to limit former subscriptions of an account that no fan-out needs, and returns how
	// many.
	ForgetSubscriptions(ctx context.Context, accountID string, limit int) (int64, error)
	// DeleteAuditChunks deletes the chunks with the given identifiers. If one of them does not exist, the error is
	// fault.Conflict.
	DeleteAuditChunks(ctx context.Context, accountID string, gone []int64) (last int64, err error)
	// InsertAuditChunks adds chunks to the unsealed ends of their accounts' logs. It ignores Chunk.ID.
	InsertAuditChunks(ctx context.Context, chunks []audit.Chunk) error
	// AppendAudit implements control.AuditStore.
	AppendAudit(ctx context.Context, r *audit.Record) error
	// TrimEvents removes up to limit events that were created before the given time. Events that a delivery needs are
	// only removed from the list. It returns the number of events.
	TrimEvents(ctx context.Context, before int64, limit int) (int64, error)
}

// ReadTx is what an engine gives a Reader: the queries of a transaction, and the reads that the engine does
// in its own way.
type ReadTx interface {
	Queries
	// Attempts calls f for each attempt of deliveries, which are given by the numbers of their rows, in the order of the
	// attempts.
	Attempts(ctx context.Context, deliveries []int64, f func(delivery int64, a *webhook.Attempt)) error
	// AuditChunks returns the chunks of the unsealed end of an account's audit log, in their order.
	AuditChunks(ctx context.Context, accountID string) ([]audit.Chunk, error)
	// NextFanOut returns the first account behind another one that has events to fan out, or former subscriptions that may
	// not be needed any more. It is not valid if there is none.
	NextFanOut(ctx context.Context, after string) (accountID sql.NullString, err error)
	// TrafficChunks calls f for each of the chunks that still exists, in their order.
	TrafficChunks(ctx context.Context, seqs []int64, f func(*traffic.Chunk) error) error
	// ChangeBounds returns the sequence numbers of the last trimmed and of the newest entry of the change log.
	ChangeBounds(ctx context.Context) (trimmed, last int64, err error)
}

// Reader reads the rows of a transaction. It implements parts of control.ReadTx.
type Reader struct {
	ReadTx
	Pages *PageCodec
	Codec *audit.Codec

	ending      string // the gateway that EndGateway was called for
	endingTable int64  // its route table
}

// QueryRow calls scan for the only row of the result. If there is none, the error is fault.NotFound for record.
func (t *Reader) QueryRow(ctx context.Context, record, query string, args []any, scan func(*Row) error) error {
	found := false
	err := t.Query(ctx, "read "+record, query, args, func(r *Row) error {
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
	err = t.Query(ctx, what, query, args, func(*Row) error {
		found = true
		return nil
	})
	return found, err
}

// Texts returns the only column of the result.
func (t *Reader) Texts(ctx context.Context, what, query string, args ...any) (list []string, err error) {
	err = t.Query(ctx, what, query, args, func(r *Row) error {
		var s string
		err := r.Scan(&s)
		list = append(list, s)
		return err
	})
	return list, err
}

// text returns the only column of the only row of the result; "" if there is none.
func (t *Reader) text(ctx context.Context, what, query string, args ...any) (text string, err error) {
	err = t.Query(ctx, what, query, args, func(r *Row) error { return r.Scan(&text) })
	return text, err
}

// readOne returns the record of the only row of the result. If there is none, the error is fault.NotFound for record.
func readOne[T any](ctx context.Context, t *Reader, record, query string, args []any, scan func(*Row) (T, error)) (*T, error) {
	var found *T
	err := t.Query(ctx, "read "+record, query, args, func(r *Row) error {
		v, err := scan(r)
		found = &v
		return Decoded(err)
	})
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return nil, fault.Missing(record)
	}
	return found, nil
}

// readAll returns the records of the rows of the result.
func readAll[T any](ctx context.Context, t *Reader, what, query string, args []any, scan func(*Row) (T, error)) ([]T, error) {
	var list []T
	err := t.Query(ctx, what, query, args, func(r *Row) error {
		v, err := scan(r)
		list = append(list, v)
		return Decoded(err)
	})
	return list, err
}

// Writer writes the rows of a transaction. It implements parts of control.Tx.
type Writer struct {
	Tx
	read *Reader

	args   []any     // of the present statement, so that it does not allocate for each
	direct int       // deliveries of events that the transaction has written itself
	heard  listening // by the last event of the transaction
}

// NewWriter returns a Writer in the transaction that read reads.
func NewWriter(read *Reader, t Tx) Writer { return Writer{Tx: t, read: read} }

// of returns the arguments of a statement, which engines do not keep.
func (t *Writer) of(args []any) []any {
	t.args = append(t.args[:0], args...)
	return t.args
}

// Queue implements Statements.
func (t *Writer) Queue(ctx context.Context, what, statement string, args ...any) error {
	return t.Tx.Queue(ctx, what, statement, t.of(args)...)
}

// QueueOne implements Statements.
func (t *Writer) QueueOne(ctx context.Context, what, record, statement string, args ...any) error {
	return t.Tx.QueueOne(ctx, what, record, statement, t.of(args)...)
}

// Delete implements Statements.
func (t *Writer) Delete(ctx context.Context, what, statement string, args ...any) (int64, error) {
	return t.Tx.Delete(ctx, what, statement, t.of(args)...)
}
