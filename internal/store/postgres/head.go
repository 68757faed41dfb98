package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store/rows"
)

// A mutation reads without a lock and queues what it writes. Then one round trip takes the head of the change log,
// checks that every read would have the same result now, writes, and commits. So mutations are serial: each has the
// same effect as if all of it had happened while it held the head, and no mutation holds the head while it waits for
// its node. A mutation whose reads have other results now is made again; from the third time on it takes the head
// first.

// aheadAttempts is how often a mutation is tried with the head taken last, before it takes the head first.
const aheadAttempts = 3

// maxRecorded bounds the reads that are checked, and maxRecordedRows the rows of their results. A mutation that reads
// more takes the head before it goes on.
const (
	maxRecorded     = 200
	maxRecordedRows = 5000
)

// errChanged is in the error of a mutation whose reads have other results now.
var errChanged = errors.New("what the transaction has read was changed meanwhile")

// errAssumed is in the error of a mutation that has made a wrong assumption, because it would have had to take the head
// to check it. The next attempt takes the head.
var errAssumed = errors.New("what the transaction has assumed is not true")

// errOldFormat is in the error of a mutation that took the head last and whose change a node with a lease cannot
// read. The error of the next attempt names the node.
var errOldFormat = errors.New("a node reads only older formats of changes")

// recorded is a read of a mutation that does not hold the head yet.
type recorded struct {
	query  string
	args   []any
	hashes []string // of the rows of the result
}

// The parameters that hashed and check add to a query, which has n itself.
func seedOf(n int) string   { return "$" + strconv.Itoa(n+1) + "::bigint" }
func hashesOf(n int) string { return "$" + strconv.Itoa(n+2) + "::text[]" }

// hashed returns the query with the hash of each row as one more column.
func hashed(query string, n int) string {
	return `SELECT q.*, hash_record_extended(` + rowOf(query) + `, ` + seedOf(n) + `)::text FROM (` + query + `) AS q`
}

// rowOf returns the part of a row q of the query that is compared: everything except the last use of a key. The
// last use changes while the key is used, as the calling key is, and no mutation depends on it.
func rowOf(query string) string {
	if strings.HasPrefix(query, rows.KeyColumns) || strings.HasPrefix(query, rows.StoredKeyColumns) {
		return comparedKey()
	}
	return "q"
}

// comparedKey returns the row of a key without its last use. Both queries of keys have columns of these names.
func comparedKey() string {
	columns, _, _ := strings.Cut(strings.TrimPrefix(rows.StoredKeyColumns, "SELECT "), " FROM ")
	var compared []string
	for column := range strings.SplitSeq(columns, ",") {
		if column = strings.TrimSpace(column); column != "last_used_at" {
			compared = append(compared, "q."+column)
		}
	}
	return "ROW(" + strings.Join(compared, ", ") + ")"
}

// check returns a statement that fails unless the query has the same rows as when it was recorded.
func (r *recorded) check(query string, seed int64) statement {
	n := len(r.args)
	return statement{what: "check a read", fails: errChanged, args: append(slices.Clone(r.args), seed, r.hashes), query: `SELECT 1 / (ARRAY(
		SELECT hash_record_extended(` + rowOf(query) + `, ` + seedOf(n) + `)::text COLLATE "C" FROM (` + query + `) AS q ORDER BY 1) = ` + hashesOf(n) + `)::int`}
}

// locking matches the end of a query that locks the rows that it reads.
var locking = regexp.MustCompile(`\s+FOR (NO KEY )?UPDATE( OF \w+)?\s*$`)

// written matches the table that a statement writes to.
var written = regexp.MustCompile(`\b(?:INSERT INTO|UPDATE|DELETE FROM)\s+(\w+)`)

// triggered are the tables that triggers change when a table is changed.
func triggered(table string) []string {
	switch table {
	case "keys":
		return []string{"account_counts", "answers", "keys_unindexed", "key_terms", "owners"}
	case "answers", "gateways", "owners", "plans", "quotas":
		return []string{"account_counts"}
	case "webhooks":
		return []string{"account_counts", "former_subscriptions"}
	case "revisions", "revision_counts":
		return []string{"account_counts", "revision_counts", "revisions_gone"}
	case "nodes":
		return []string{"slot_processes"}
	case "requests":
		return []string{"request_bytes"}
	}
	return nil
}

// mayRead reports whether the query has the same result before the queued statements and after them.
func (t *readTx) mayRead(query string) bool {
	for table := range t.touched {
		if mentions(query, table) {
			return false
		}
	}
	return true
}

// touch notes which tables a queued statement changes.
func (t *readTx) touch(query string) {
	if !t.ahead {
		return
	}
	for _, m := range written.FindAllStringSubmatch(query, -1) {
		if t.touched == nil {
			t.touched = map[string]bool{}
		}
		for _, table := range append(triggered(m[1]), m[1]) {
			t.touched[table] = true
		}
	}
}

// mentions reports whether the query has the word, and not as the name of a column behind a point.
func mentions(query, word string) bool {
	for rest := query; ; {
		i := strings.Index(rest, word)
		if i < 0 {
			return false
		}
		end := i + len(word)
		if (i == 0 || !isWord(rest[i-1]) && rest[i-1] != '.') && (end == len(rest) || !isWord(rest[end])) {
			return true
		}
		rest = rest[end:]
	}
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// record runs a query that writes nothing, without the head, and notes its result.
func (t *readTx) record(ctx context.Context, query string, args []any, scan func(*rows.Row) error) error {
	r := recorded{query: query, args: slices.Clone(args), hashes: []string{}}
	read := hashed(locking.ReplaceAllString(query, ""), len(args))
	var out rows.Row
	_, err := t.sendOnly(ctx, nil, read, append(slices.Clone(args), t.seed), func(row *rows.Row) error {
		if out.Result == nil {
			out.Result = hashedRow{resultOf(row)}
		}
		raw := resultOf(row).RawValues()
		r.hashes = append(r.hashes, string(raw[len(raw)-1]))
		return scan(&out)
	})
	if err != nil {
		return err
	}
	slices.Sort(r.hashes)
	t.reads, t.readRows = append(t.reads, r), t.readRows+len(r.hashes)
	return nil
}

// value reads something that differs each time, such as the next value of a sequence. It is not read again
// under the head.
func (t *readTx) value(ctx context.Context, what, query string, scan func(*rows.Row) error) error {
	if !t.ahead {
		return t.Query(ctx, what, query, nil, scan)
	}
	if err := t.Ready(ctx); err != nil {
		return err
	}
	during, cancel := t.during()
	defer cancel()
	if _, err := t.sendOnly(during, nil, query, nil, scan); err != nil {
		return t.fail(what, err)
	}
	return nil
}

// hashedRow is a row without its last column, which has its hash.
type hashedRow struct{ pgx.Rows }

// Scan implements pgx.Rows.
func (r hashedRow) Scan(to ...any) error { return r.Rows.Scan(append(slices.Clip(to), nil)...) }

// records reports whether the query is to run without the head, as record does.
func (t *readTx) records(query string) bool {
	return t.ahead && len(t.reads) < maxRecorded && t.readRows < maxRecordedRows && !written.MatchString(locking.ReplaceAllString(query, "")) && t.mayRead(query)
}

// The statements around the head. How long it is held is counted from when the server has locked it.
const (
	lockHead = `SELECT number, mark FROM change_head FOR NO KEY UPDATE`
	holdHead = `SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $1, true),
		set_config('idle_in_transaction_session_timeout', $1, true), set_config('keygate.held', clock_timestamp()::text, true)`
	// It fails if nothing is left of the time.
	goOnHolding = `SELECT set_config('statement_timeout', rest, true), set_config('lock_timeout', rest, true), set_config('idle_in_transaction_session_timeout', rest, true)
		FROM (SELECT (rest / (rest > 0)::int)::text AS rest FROM (
			SELECT $1::bigint - (extract(epoch FROM clock_timestamp() - current_setting('keygate.held')::timestamptz) * 1000)::bigint AS rest OFFSET 0) AS r OFFSET 0) AS r`
	oldestReader = `SELECT format, name, version FROM nodes WHERE state = 'live' ORDER BY format LIMIT 1`
	checkFormat  = `SELECT 1 / (NOT EXISTS (SELECT FROM nodes WHERE state = 'live' AND format < $1))::int`
)

// errHeldTooLong is in the error of a mutation that would hold the head for longer than it may.
var errHeldTooLong = &fault.Error{Code: fault.Unavailable, Message: slowMessage, Err: errors.New("the change would have held up those of other nodes")}

// takeHead returns the statements that take the head, and check what was read before. The transaction holds the head
// from then on.
func (t *readTx) takeHead() []statement {
	hold := strconv.FormatInt(t.headTime.Milliseconds(), 10)
	list := []statement{
		{what: "take the head of the change log", query: lockHead, scan: func(r *rows.Row) error { return r.Scan(&t.number, &t.mark) }},
		{what: "hold the head", query: holdHead, args: []any{hold}},
		{what: "read the formats of the nodes", query: oldestReader, scan: func(r *rows.Row) error {
			t.reader = &reader{}
			return r.Scan(&t.reader.format, &t.reader.name, &t.reader.version)
		}},
	}
	if t.format > 0 {
		list = append(list, statement{what: "check the formats of the nodes", query: checkFormat, args: []any{t.format}, fails: errOldFormat})
	}
	for i := range t.reads {
		list = append(list, t.reads[i].check(t.reads[i].query, t.seed))
	}
	t.ahead, t.held, t.reads = false, true, nil
	return list
}

// before returns the statements that must precede a statement that is to be carried out under the head.
func (t *readTx) before() []statement {
	switch {
	case t.ahead:
		return t.takeHead()
	case t.held:
		return []statement{t.goOn()}
	}
	return nil
}

// tripWithHead counts a round trip in which the transaction holds the head.
func (t *readTx) tripWithHead() {
	if t.held {
		t.headTrips++
	}
}

// goOn returns the statement that bounds the next statements by the rest of the time for which the head may be held.
func (t *readTx) goOn() statement {
	return statement{what: "go on holding the head", query: goOnHolding, args: []any{t.headTime.Milliseconds()}, fails: errHeldTooLong}
}

// verify checks that all reads of a mutation that has not taken the head have their results in one state of the
// database, so that the error that its function returned is true in that state. Otherwise it returns errChanged.
// It ends the transaction.
func (t *readTx) verify() error {
	if len(t.reads) < 2 {
		return nil
	}
	list := []statement{{query: `ROLLBACK`}, {query: `BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY`}}
	for i := range t.reads {
		list = append(list, t.reads[i].check(locking.ReplaceAllString(t.reads[i].query, ""), t.seed))
	}
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	_, err := t.sendOnly(ctx, list, `COMMIT`, nil, func(*rows.Row) error { return nil })
	return err
}

// position returns the position of the newest change that the transaction has made or seen. It holds the
// head, or has held it.
func (t *readTx) position() (p snapshot.Position, err error) {
	p.Number = t.number + t.appended
	mark := t.mark
	if t.appended > 0 {
		mark = t.newest
	}
	return p, fixed(p.Mark[:]).ScanBytes(mark)
}

// OnCommit implements control.CommitReporter.
func (t *readTx) OnCommit(accountID string, f func(p snapshot.Position, ofAccount int64)) {
	t.accountID, t.onCommit = accountID, f
}

// newSeed returns the seed of the hashes of a mutation: nobody who can choose a value can know it.
func newSeed() int64 { return rand.Int64() }

// setLimits are the limits of a transaction that writes, in milliseconds. The server ends it by itself if its process
// is stopped or cannot be reached, even if only a part of a round trip has arrived, which the timeouts of statements
// do not cover.
func setLimits(statement, lock, idle time.Duration) string {
	return fmt.Sprintf(`SET LOCAL statement_timeout = %d; SET LOCAL lock_timeout = %d; SET LOCAL idle_in_transaction_session_timeout = %d; `+
		`SET LOCAL tcp_keepalives_idle = 1; SET LOCAL tcp_keepalives_interval = 1; SET LOCAL tcp_keepalives_count = 2; SET LOCAL tcp_user_timeout = 2000; `,
		statement.Milliseconds(), lock.Milliseconds(), idle.Milliseconds())
}
