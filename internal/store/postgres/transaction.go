package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store/rows"
)

// errEnded is returned by a transaction that is used after its function has returned.
var errEnded = errors.New("the transaction has ended")

const (
	// writeTime bounds a writing transaction, from the lock of the head to COMMIT.
	writeTime = 5 * time.Second
	// lockTime bounds the wait for a lock. It is less than a statement may take, so that the error tells the two apart.
	lockTime = 4 * time.Second
	// readTime bounds each statement of a reading transaction.
	readTime = time.Minute
	// streamTime is readTime for statements that read a large part of the database.
	streamTime = 10 * time.Minute
	// attempts is how often a transaction is tried if the server ends it to resolve a conflict, or
	// if it is lost before it has begun.
	attempts = 5
)

// The statements that begin a transaction. Each is sent at once, in one round trip.
const (
	// Whatever the server's default is, a commit waits at least for the server's disk.
	durable     = `SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') IN ('off', 'local'); `
	beginCommit = `BEGIN ISOLATION LEVEL READ COMMITTED; `
	beginView   = `BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL statement_timeout = 60000; SET LOCAL idle_in_transaction_session_timeout = 60000`
	beginStream = `BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL statement_timeout = 600000; SET LOCAL idle_in_transaction_session_timeout = 600000`
)

// kind is a kind of transaction that writes.
type kind int

const (
	headLast   kind = iota // a mutation that takes the head of the change log last
	headFirst              // a mutation that takes the head first
	noHead                 // a transaction that does not take the head
	noHeadSoon             // the same, with locks for which requests on all nodes wait
	noReplica              // a transaction for whose COMMIT the server waits for no replica
)

// begin returns the statements that begin a transaction of the kind.
func (db *DB) begin(k kind) string {
	limits := beginCommit + setLimits(writeTime, lockTime, writeTime)
	switch k {
	case headLast: // it holds no lock before its last round trip, for which it may wait its turn
		return beginCommit + setLimits(writeTime, lockTime, 2*writeTime) + durable + `SELECT pg_current_xact_id()::text`
	case headFirst:
		hold := setLimits(db.headTime, db.headTime, db.headTime)
		// The last statement sees every node that joined before the head was locked.
		return limits + durable + `SELECT pg_current_xact_id()::text; ` + lockHead + `; ` + hold +
			`SELECT set_config('keygate.held', clock_timestamp()::text, true); ` + oldestReader
	case noHead:
		return limits + durable
	case noHeadSoon:
		return beginCommit + setLimits(reserveTime, reserveTime-reserveTime/10, reserveTime/2) + durable
	default:
		return limits + `SET LOCAL synchronous_commit = local`
	}
}

// mutate runs f in a mutation (head.go). f must not call mutate. If a statement failed, the transaction is rolled back
// even if f returns nil. If ctx ends before COMMIT starts, the transaction is rolled back; after that ctx has no
// effect. f is called again if what it has read was changed meanwhile, or if the server ended the transaction to
// resolve a conflict.
func (db *DB) mutate(ctx context.Context, f func(t *tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	leave, err := db.gate.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return db.update(ctx, headLast, f)
}

// write runs f in a transaction that does not take the head: f must lock what it reads before
// it changes it.
func (db *DB) write(ctx context.Context, f func(t *tx) error) error {
	return db.update(ctx, noHead, f)
}

// record does what write does, for records of traffic, which are written many times a second:
// COMMIT waits for the server's disk, and for no replica.
func (db *DB) record(ctx context.Context, f func(t *tx) error) error {
	return db.update(ctx, noReplica, f)
}

// update runs f in a transaction of the kind k, and again after a conflict.
func (db *DB) update(ctx context.Context, k kind, f func(*tx) error) (err error) {
	sure := false // the transaction assumes nothing
	for attempt := 1; ; attempt++ {
		var again bool
		if again, err = db.try(ctx, k, sure, f); err == nil {
			db.Wrote()
			return nil
		}
		if attempt >= attempts && !errors.Is(err, rows.ErrRemoved) || !again || ctx.Err() != nil { // what was removed is added again, until ctx ends
			return err
		}
		if k == headLast && (attempt == aheadAttempts || errors.Is(err, errOldFormat)) {
			k = headFirst
		}
		sure = sure || errors.Is(err, errAssumed)
	}
}

// try runs one transaction. again says that it changed nothing and may succeed the next time.
func (db *DB) try(ctx context.Context, k kind, sure bool, f func(*tx) error) (again bool, err error) {
	c, err := db.writer.take(ctx)
	if err != nil {
		return false, db.failUnlessOver(ctx, err)
	}
	defer db.writer.give(c)
	t := &tx{readTx: readTx{c: c, limit: writeTime, mutation: mutation{headTime: db.headTime, seed: newSeed(), sure: sure}}, now: db.now, random: db.random}
	t.Reader = rows.Reader{ReadTx: &t.readTx, Pages: c.pages, Codec: c.codec}
	t.Writer = rows.NewWriter(&t.Reader, t)
	if err := t.begin(ctx, db.begin(k), k); err != nil {
		c.abandon()
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		return lost(err), db.fail(translate("begin", err))
	}
	committed := false
	defer func() { // even if f panics
		if !committed {
			t.failed = errEnded
			c.abandon()
		}
	}()
	db.count(t)
	if err := f(t); err != nil {
		if t.ahead && t.failed == nil && ctx.Err() == nil {
			if untrue := t.verify(); untrue != nil {
				return db.afterFailure(t, t.fail("verify the reads", untrue))
			}
		}
		return db.afterFailure(t, cmp.Or(t.late, err))
	}
	if t.failed != nil {
		return db.afterFailure(t, t.failed)
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	t.failed, committed = errEnded, true
	if err := t.commit(); err != nil {
		open := c.inTransaction()
		c.abandon()
		if open { // the server has not carried out COMMIT: a statement before it failed
			return db.afterFailure(t, t.fail("commit", err))
		}
		return db.afterCommit(t, err)
	}
	db.report(t)
	if t.onCommit == nil {
		return false, nil
	}
	p, err := t.position()
	if err != nil {
		return false, db.fail(inDoubt(err))
	}
	t.onCommit(p, t.ofAccount)
	return false, nil
}

// failUnlessOver notes an error of taking a connection, but not the end of ctx.
func (db *DB) failUnlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return db.fail(err)
}

// afterFailure returns what try returns for err, the error of the function of a transaction, or
// of one of its statements.
func (db *DB) afterFailure(t *tx, err error) (again bool, _ error) {
	if errors.Is(err, rows.ErrRemoved) || errors.Is(t.failed, errChanged) || errors.Is(t.failed, errOldFormat) || errors.Is(t.failed, errAssumed) {
		return true, cmp.Or(t.failed, err)
	}
	if code := fault.CodeOf(t.failed); t.failed != nil && (code == fault.Unavailable || code == fault.Internal) {
		state := stateOf(t.failed)
		switch {
		case state == serialization || state == deadlock:
			return true, err
		case errors.Is(t.failed, errOlderNode): // nothing is wrong with the database
			return false, err
		}
		_ = db.fail(t.failed)
	}
	return false, err
}

// afterCommit returns what try returns for err, the error of COMMIT. If the connection was
// lost, it asks the server what became of the transaction.
func (db *DB) afterCommit(t *tx, err error) (again bool, _ error) {
	var unconfirmed *unconfirmedError
	switch state := stateOf(err); {
	case errors.As(err, &unconfirmed):
		return false, db.fail(unconfirmed.fault())
	case state == serialization || state == deadlock:
		return true, translate("commit", err)
	case state != "" && !lost(err):
		return false, db.fail(translate("commit", err))
	case t.xid == "":
		return false, db.fail(inDoubt(err))
	}
	committed, askErr := db.outcome(t.xid, t.newest)
	switch {
	case askErr != nil:
		return false, db.fail(inDoubt(errors.Join(err, askErr)))
	case committed:
		return false, db.afterLostCommit(t)
	default:
		return false, db.fail(translate("commit", err))
	}
}

// afterLostCommit reports the position of a transaction that was committed. The transaction's own position is
// not known, so it reports the newest.
func (db *DB) afterLostCommit(t *tx) error {
	if t.onCommit == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	p, ofAccount, err := db.Settle(ctx, t.accountID)
	if err != nil {
		return db.fail(inDoubt(err))
	}
	t.onCommit(p, ofAccount)
	return nil
}

// inDoubt returns the error of a transaction whose COMMIT got no response. err is the error of the connection.
func inDoubt(err error) error {
	return &fault.Error{Code: fault.Unavailable, Message: unknownMessage, Err: fmt.Errorf("commit: %w: %w", control.ErrInDoubt, err)}
}

// outcome reports whether a transaction whose COMMIT got no response was committed. mark is that of its newest change. Only that
// proves it: a server that has crashed may not have the number xid in its log, and a promoted replica does not have all of them, so
// that they give it to another transaction. Then, and without a mark, outcome returns an error.
func (db *DB) outcome(xid string, mark []byte) (committed bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	for {
		var status *string
		// Perhaps only the connection is broken; the next connection is then a new one.
		err := db.writer.QueryRow(ctx, `SELECT pg_xact_status($1::text::xid8)`, xid).Scan(&status)
		if err == nil && status == nil {
			return false, errors.New("the server does not know the transaction any more")
		}
		if err == nil && *status == "committed" {
			err = db.checkMark(ctx, mark)
			return err == nil, err
		}
		if err == nil && *status != "in progress" {
			return false, nil
		}
		if err != nil && db.wires.isCut() {
			return false, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return false, errors.Join(err, ctx.Err())
		}
	}
}

// checkMark returns an error unless the change log has a change with the mark.
func (db *DB) checkMark(ctx context.Context, mark []byte) error {
	var has bool
	if err := db.writer.QueryRow(ctx, `SELECT EXISTS (SELECT FROM changes WHERE mark = $1)`, mark).Scan(&has); err != nil {
		return err
	}
	if !has {
		return errors.New("the server has committed a transaction with this number, and its change is not in the change log")
	}
	return nil
}

// search reads for a report of this package, as Store.Search does.
func (db *DB) search(ctx context.Context, f func(*readTx) error) error {
	return db.view(ctx, db.searchers, func(t *readTx) error {
		t.interrupt = ctx
		return f(t)
	})
}

// view runs f in a reading transaction on a connection of p.
func (db *DB) view(ctx context.Context, p *pool, f func(*readTx) error) error {
	return db.viewFor(ctx, p, beginView, readTime, f)
}

// stream is view for statements that read a large part of the database.
func (db *DB) stream(ctx context.Context, p *pool, f func(*readTx) error) error {
	return db.viewFor(ctx, p, beginStream, streamTime, f)
}

func (db *DB) viewFor(ctx context.Context, p *pool, begin string, limit time.Duration, f func(*readTx) error) error {
	for attempt := 1; ; attempt++ {
		c, err := p.take(ctx)
		if err != nil {
			if ctx.Err() == nil {
				_ = db.note(err)
			}
			return err
		}
		t := newReadTx(c, limit)
		if _, err = t.begin(ctx, begin); err == nil {
			return db.run(t, p, f)
		}
		c.abandon()
		p.give(c)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !lost(err) || attempt == attempts {
			return db.note(translate("begin", err))
		}
	}
}

// statement runs f, which reads by one statement, without a transaction, on a connection of p. f is called again if
// the connection was lost.
func (db *DB) statement(ctx context.Context, p *pool, limit time.Duration, f func(*readTx) error) error {
	for attempt := 1; ; attempt++ {
		c, err := p.take(ctx)
		if err != nil {
			if ctx.Err() == nil {
				_ = db.note(err)
			}
			return err
		}
		t := newReadTx(c, limit)
		err = f(t)
		failed := t.failed
		t.failed = errEnded
		p.give(c)
		switch {
		case failed == nil:
			return err
		case !lost(failed) || attempt == attempts || ctx.Err() != nil:
			_ = db.note(failed)
			return err
		}
	}
}

// run runs f in a reading transaction that has begun, and ends it.
func (db *DB) run(t *readTx, p *pool, f func(*readTx) error) error {
	defer func() {
		failed := t.failed
		t.failed = errEnded
		if failed != nil {
			if stateOf(failed) != queryCanceled { // a slow search says nothing of the store
				_ = db.note(failed)
			}
			t.c.abandon()
		} else if t.c.commit(writeTime) != nil {
			t.c.abandon()
		}
		p.give(t.c)
	}()
	return f(t)
}

// readTx reads within a transaction.
type readTx struct {
	rows.Reader
	c *conn
	// failed is the error of the first statement that failed. Every later call returns it,
	// as the server would.
	failed error
	// late is failed if a queued statement failed. f may mistake it for the error of the statement that was
	// sent with the queued statement, so late takes precedence over the error that f returns.
	late        error
	queued      []statement // in a writing transaction
	queuedBytes int
	touched     map[string]bool // in a mutation that does not hold the head: the tables that the queued statements change
	// limit bounds a statement; in a writing transaction, all statements until end.
	limit time.Duration
	end   time.Time // zero in a reading transaction
	// interrupt interrupts a running statement when it ends; nil lets statements run to
	// their ends.
	interrupt context.Context //nolint:containedctx // of the transaction, which does not outlive the call
	mutation
}

func newReadTx(c *conn, limit time.Duration) *readTx {
	t := &readTx{c: c, limit: limit}
	t.Reader = rows.Reader{ReadTx: t, Pages: c.pages, Codec: c.codec}
	return t
}

// mutation is the state of a mutation.
type mutation struct {
	ahead     bool // it does not hold the head yet
	held      bool // it holds the head
	sure      bool // it takes the head instead of assuming something
	headTime  time.Duration
	number    int64   // of the newest change when it got the head
	mark      []byte  // of that change
	appended  int64   // how many changes it has made since
	newest    []byte  // the mark of the last of these
	format    int     // the newest format of these changes, among the changes made before it got the head
	xid       string  // of the transaction
	reader    *reader // with the head; nil without nodes
	onCommit  func(p snapshot.Position, ofAccount int64)
	accountID string // that onCommit asks for
	ofAccount int64  // the number of its newest change
	headTrips int    // state.Counted
	seed      int64  // of hashes
	reads     []recorded
	readRows  int // of all reads
}

// tx also writes.
type tx struct {
	readTx
	rows.Writer
	now    func() int64 // microseconds since 1970
	random io.Reader    // for marks

	commitBy time.Time // zero for the usual time of COMMIT

	counting *counting // nil without Config.Counted
}

// begin begins the transaction, and reads the head if the kind takes it first.
func (t *tx) begin(ctx context.Context, statements string, k kind) error {
	results, err := t.readTx.begin(ctx, statements)
	if err != nil {
		return err
	}
	t.end = time.Now().Add(writeTime)
	t.ahead, t.held = k == headLast, k == headFirst
	n := len(results)
	switch k {
	case headLast:
		t.xid = string(results[n-1].Rows[0][0])
	case headFirst:
		// The transaction's number, the head, three limits and four of TCP, the time, the nodes.
		t.xid = string(results[n-firstTail].Rows[0][0])
		head := results[n-firstTail+1].Rows
		if len(head) != 1 {
			return errNoHead
		}
		t.tripWithHead()
		return errors.Join(t.scanHead(head[0]), t.scanReader(results[n-1].Rows))
	}
	return nil
}

// firstTail is how many statements begin has for a mutation that takes the head first, counted from the statement
// that reads the number of the transaction.
const firstTail = 11

// errNoHead is the error of a database without a head of the change log.
var errNoHead = errors.New("the table change_head does not have one row")

// begin begins the transaction.
func (t *readTx) begin(ctx context.Context, statements string) ([]*pgconn.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*writeTime)
	defer cancel()
	return t.c.Conn.Conn().PgConn().Exec(ctx, statements).ReadAll()
}

// scanHead takes the values of the head, which are texts.
func (t *readTx) scanHead(row [][]byte) error {
	if _, err := fmt.Sscanf(string(row[0]), "%d", &t.number); err != nil {
		return fmt.Errorf("read the head of the change log: %w", err)
	}
	if _, err := fmt.Sscanf(string(row[1]), `\x%x`, &t.mark); err != nil {
		return fmt.Errorf("read the head of the change log: %w", err)
	}
	return nil
}

// scanReader takes the node that reads the oldest format, if there is one.
func (t *readTx) scanReader(rows [][][]byte) error {
	if len(rows) == 0 {
		return nil
	}
	format, err := strconv.Atoi(string(rows[0][0]))
	if err != nil {
		return fmt.Errorf("read the formats of the nodes: %w", err)
	}
	t.reader = &reader{format: format, name: string(rows[0][1]), version: string(rows[0][2])}
	return nil
}

// reader is the node with a lease that reads the oldest format of changes.
type reader struct {
	format        int
	name, version string
}

// Ready implements rows.Queries.
func (t *readTx) Ready(ctx context.Context) error {
	if t.failed != nil {
		return t.failed
	}
	return ctx.Err()
}

// during returns the context of a statement.
func (t *readTx) during() (context.Context, context.CancelFunc) {
	base := t.interrupt
	if base == nil {
		base = context.Background()
	}
	if !t.end.IsZero() {
		return context.WithDeadline(base, t.end)
	}
	return context.WithTimeout(base, t.limit)
}

// fault returns the error of a statement that failed with err.
func (t *readTx) fault(what string, err error) error {
	if t.interrupt != nil && t.interrupt.Err() != nil {
		return t.interrupt.Err()
	}
	return translate(what, err)
}

// Query implements rows.Queries. The statement runs to its end even if ctx ends, except in a Search.
func (t *readTx) Query(ctx context.Context, what, query string, args []any, scan func(*rows.Row) error) error {
	if err := t.Ready(ctx); err != nil {
		return err
	}
	during, cancel := t.during()
	defer cancel()
	query = t.c.dialect.of(query).alone
	var err error
	if t.records(query) {
		err = t.record(during, query, args, scan)
	} else {
		_, err = t.send(during, query, args, scan)
	}
	if err != nil {
		return t.fail(what, err)
	}
	return nil
}

// Exec implements rows.Statements.
func (t *tx) Exec(ctx context.Context, what, query string, args ...any) (int64, error) {
	if err := t.Ready(ctx); err != nil {
		return 0, err
	}
	during, cancel := t.during()
	defer cancel()
	tag, err := t.send(during, t.c.dialect.of(query).alone, args, func(*rows.Row) error { return nil })
	if err != nil {
		return 0, t.fail(what, err)
	}
	return tag.RowsAffected(), nil
}

// Held implements rows.Tx.
func (t *tx) Held() bool { return t.held }

// Now implements rows.Tx.
func (t *tx) Now() int64 { return t.now() }

// Fail implements rows.Statements.
func (t *tx) Fail(err error) error {
	t.failed = cmp.Or(t.failed, err)
	return t.failed
}

// commit commits the transaction. It sends what is queued with COMMIT.
func (t *tx) commit() error {
	t.countAll()
	if t.accountID != "" {
		t.queued = append(t.queued, statement{what: "number the change", query: accountChanges, args: []any{t.accountID},
			scan: func(r *rows.Row) error { return r.Scan(&t.ofAccount) }})
	}
	if len(t.queued) == 0 && !t.ahead {
		t.tripWithHead()
		return t.c.commit(t.commitTime())
	}
	if t.ahead && len(t.queued) > 0 {
		t.queued = append(t.queued, t.goOn())
	}
	within := t.commitTime()
	if t.ahead {
		within += lockTime
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	server := t.c.Conn.Conn().PgConn()
	forgetWarnings(server)
	tag, err := t.send(ctx, endTransaction, nil, func(*rows.Row) error { return nil })
	return cmp.Or(err, committed(tag), confirmedBy(server))
}

// commitTime is how long COMMIT may take. The server itself does not bound it, and holds the head until it has
// ended: it may wait for a replica. When the time is over, the driver cancels COMMIT.
func (t *tx) commitTime() time.Duration {
	if t.ahead || t.held {
		return t.headTime
	}
	if !t.commitBy.IsZero() {
		return time.Until(t.commitBy)
	}
	return writeTime
}

// commit commits a transaction that has nothing queued.
func (c *conn) commit(within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	server := c.Conn.Conn().PgConn()
	forgetWarnings(server)
	results, err := server.Exec(ctx, `COMMIT`).ReadAll()
	if err != nil {
		return err
	}
	return cmp.Or(committed(results[len(results)-1].CommandTag), confirmedBy(server))
}

// committed returns an error if tag, the command tag of COMMIT, says that the server has rolled the transaction back.
func committed(tag pgconn.CommandTag) error {
	if tag.String() != "COMMIT" {
		return &pgconn.PgError{Code: serialization, Message: "the server has rolled back"}
	}
	return nil
}

// inTransaction reports whether the connection works and the server has a transaction open on it.
func (c *conn) inTransaction() bool {
	p := c.Conn.Conn().PgConn()
	return !p.IsClosed() && p.TxStatus() != 'I'
}

// abandon rolls the transaction back, if there is one. If that fails, it closes the connection,
// which rolls back too.
func (c *conn) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), cancelGrace)
	defer cancel()
	p := c.Conn.Conn().PgConn()
	if p.IsClosed() || p.TxStatus() == 'I' {
		return
	}
	if _, err := p.Exec(ctx, `ROLLBACK`).ReadAll(); err != nil {
		_ = c.Conn.Conn().Close(ctx)
	}
}
