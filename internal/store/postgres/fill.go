package postgres

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/snapshot"
)

// Rows is what a database is filled with: another store, as the rows of its tables (sqlite.Dump).
type Rows interface {
	// Tables returns the names of all tables.
	Tables(ctx context.Context) ([]string, error)
	// Number returns the result of a query for one integer.
	Number(ctx context.Context, query string) (int64, error)
	// Rows returns the values of expressions for each row of a table: nil, int64, string or []byte.
	Rows(ctx context.Context, table string, expressions []string) iter.Seq2[[]any, error]
}

// FillConfig configures Fill. All fields are required.
type FillConfig struct {
	URL          string
	Version      string // of this binary
	Installation Installation
	From         Rows
	// Progress is called when a table has begun, and again and again until it is complete.
	Progress func(table string, done, of int64)
	// BeforeCommit is called when everything is written and compared, right before COMMIT. If it returns
	// an error, nothing is stored.
	BeforeCommit func() error
	Log          *slog.Logger
}

// Filled is the result of Fill.
type Filled struct {
	Tables, Rows int64
	// Chains is how many chains of audit blocks were compared.
	Chains int64
	// Before is set if the database was filled by an earlier call for the same installation, whose response
	// was lost. Then nothing was written.
	Before bool
}

// ErrNotEmpty is returned by Fill if the database holds another installation.
var ErrNotEmpty = errors.New("the database is not empty: it holds an installation of Keygate")

// Fill migrates an empty database, and no other, and fills it with everything from another store, in one transaction: it is
// either empty or complete, and until the end a node that starts on it fails or waits. Rows are streamed by COPY,
// so memory holds a few of them. Before COMMIT the numbers of rows of each table and the heads of the audit chains
// are compared. The change log begins with the number of the other store's newest change, the search
// index of keys is built by maintenance, and leases of deliveries are released.
func Fill(ctx context.Context, cfg FillConfig) (done Filled, err error) {
	if done.Before, err = prepareTarget(ctx, cfg.URL, cfg.Installation.ID); err != nil || done.Before {
		return done, err
	}
	if err := Migrate(ctx, cfg.URL, cfg.Version, cfg.Log); err != nil {
		return done, err
	}
	settings, err := parseURL(cfg.URL)
	if err != nil {
		return done, err
	}
	configure(settings.ConnConfig)
	c, err := pgx.ConnectConfig(ctx, settings.ConnConfig)
	if err != nil {
		return done, translate("connect", err)
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }() // all that matters is committed
	err = pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		f := filler{FillConfig: cfg, tx: tx}
		err := f.run(ctx)
		done = f.done
		return err
	})
	return done, translate("copy", err)
}

// prepareTarget returns an error if a database must not be filled. It is called before the schema is migrated,
// because nodes of an older version may use the database. before says that it holds the installation already.
func prepareTarget(ctx context.Context, url, installation string) (before bool, err error) {
	err = withSchema(ctx, url, func(db *sql.DB) error {
		v, err := ownVersions(ctx, db)
		if err != nil || v.Current == 0 {
			return err
		}
		var id string
		var accounts int64
		err = db.QueryRowContext(ctx, `SELECT coalesce((SELECT id FROM installation), ''), (SELECT count(*) FROM accounts)`).Scan(&id, &accounts)
		switch {
		case err != nil:
			return err
		case id == installation:
			before = true
			return nil
		case id != "" || accounts > 0:
			return fault.New(fault.Conflict, "%s", ErrNotEmpty.Error())
		case v.Current > v.Newest:
			return fault.New(fault.Conflict, "the database has schema %d, and this version can fill one with schema %d only", v.Current, v.Newest)
		default:
			return nil
		}
	})
	return before, err
}

// filler is one transaction of Fill.
type filler struct {
	FillConfig
	tx   pgx.Tx
	done Filled
}

// run fills the database. The row of the installation and the head are locked first, so that a node that starts
// meanwhile finds neither an empty nor a half-filled database.
func (f *filler) run(ctx context.Context) error {
	if err := f.exec(ctx, `SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL lock_timeout = 4000`, durable); err != nil {
		return err
	}
	if err := f.claim(ctx); err != nil || f.done.Before {
		return err
	}
	for _, step := range []func(context.Context) error{f.check, f.copyAll, f.continueNumbers, f.compareChains} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return f.BeforeCommit()
}

func (f *filler) exec(ctx context.Context, statements ...string) error {
	for _, s := range statements {
		if _, err := f.tx.Exec(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// claim stores the installation, or finds out that there is one.
func (f *filler) claim(ctx context.Context) error {
	if err := f.exec(ctx, `SELECT number FROM change_head FOR UPDATE`); err != nil {
		return err
	}
	tag, err := f.tx.Exec(ctx, `INSERT INTO installation (id, canary) VALUES ($1, $2) ON CONFLICT DO NOTHING`, f.Installation.ID, f.Installation.Canary)
	if err != nil {
		return err
	}
	var id string
	var accounts int64
	if err := f.tx.QueryRow(ctx, `SELECT id, (SELECT count(*) FROM accounts) FROM installation`).Scan(&id, &accounts); err != nil {
		return err
	}
	if f.done.Before = tag.RowsAffected() == 0 && id == f.Installation.ID; f.done.Before {
		return nil
	}
	if tag.RowsAffected() == 0 || accounts > 0 {
		return fault.New(fault.Conflict, "%s", ErrNotEmpty.Error())
	}
	return nil
}

// filledTable is a table that is copied. The values of from are the expressions for columns that the other
// store does not have, or has in another form.
type filledTable struct {
	name string
	from map[string]string
}

// filledTables returns the tables that are copied, with tables that others refer to first.
func filledTables() []filledTable {
	return []filledTable{
		{name: "accounts"}, {name: "issuers"}, {name: "denials"}, {name: "plans"}, {name: "owners"}, {name: "gateways"}, {name: "route_tables"}, {name: "route_pages"},
		{name: "revisions"}, {name: "revision_parts"}, {name: "revisions_gone"}, {name: "revision_counts"},
		{name: "account_counts"}, {name: "repositories"}, {name: "canaries"}, {name: "canary_head"}, {name: "canary_counts"}, {name: "canary_steps"}, {name: "canary_left_out"}, {name: "certificates"}, {name: "certificate_names"}, {name: "certificate_accounts"}, {name: "validation_reports"}, {name: "ended_gateways"}, {name: "key_imports"}, {name: "key_import_pieces"}, {name: "keys"}, {name: "sessions"}, {name: "users"}, {name: "invitations"}, {name: "user_sessions"}, {name: "user_tokens"}, {name: "logins"}, {name: "answers"},
		{name: "daily_counts"}, {name: "daily_claims"}, {name: "quotas"}, {name: "quota_windows"}, {name: "quota_processes"}, {name: "quota_shares"}, {name: "quota_grants"},
		{name: "usage_blocks"}, {name: "usage_numbers"}, {name: "usage_marks"}, {name: "usage_closed"},
		{name: "webhooks"}, {name: "fan_outs"}, {"former_subscriptions", map[string]string{"ended": "NULL"}}, {"events", map[string]string{"n": "rowid"}},
		{"deliveries", map[string]string{"token": "NULL", "due_at": "next_at"}}, // no process holds a lease
		{"attempts", map[string]string{"n": "n >> 3", "number": "n & 7"}},
		{name: "audit"}, {"audit_chunks", map[string]string{"position": "id"}}, {name: "audit_chains"}, {name: "audit_blocks"},
		{name: "audit_summaries"}, {name: "audit_groups"}, {name: "audit_segments"},
		{name: "traffic"}, {name: "requests"}, {name: "requests_left_out"}, {name: "request_bytes"}, {name: "record_batches"},
		{"retention", map[string]string{"one": "1"}},
	}
}

// otherTables returns the tables of both stores that are not copied: the change log, which begins anew; the
// tables from which the search index is built; tables that only one engine has; and tables that Litestream adds
// to a SQLite database.
func otherTables() []string {
	return []string{
		"canary_lead", "change_head", "changes", "changes_trimmed", "delivery_head", "event_head", "goose_db_version", "installation", "key_terms", "keys_unindexed", "nodes", "schema_support", "settled_servers", "slot_processes", "slots", "target_nodes", "target_reports",
		"key_terms_config", "key_terms_data", "key_terms_docsize", "key_terms_idx", "sqlite_sequence",
		"_litestream_lock", "_litestream_seq",
	}
}

// check returns an error if one of the stores has a table that this code does not know.
func (f *filler) check(ctx context.Context) error {
	other, err := f.From.Tables(ctx)
	if err != nil {
		return err
	}
	rows, err := f.tx.Query(ctx, `SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition AND relnamespace = current_schema()::regnamespace`)
	if err != nil {
		return err
	}
	own, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	known := otherTables()
	for _, t := range filledTables() {
		known = append(known, t.name)
		if !slices.Contains(other, t.name) || !slices.Contains(own, t.name) {
			return fmt.Errorf("the table %s is in one of the stores only", t.name)
		}
	}
	for _, name := range slices.Concat(other, own) {
		if !slices.Contains(known, name) {
			return fmt.Errorf("the table %s is not one that can be copied: if another program made it, drop it", name)
		}
	}
	return nil
}

// counted are the tables whose triggers must not count, because the counts are copied.
const counted = `plans owners gateways webhooks keys answers revisions quotas requests`

func (f *filler) copyAll(ctx context.Context) error {
	for _, name := range strings.Fields(counted) {
		if err := f.exec(ctx, `ALTER TABLE `+name+` DISABLE TRIGGER USER`); err != nil {
			return err
		}
	}
	for _, t := range filledTables() {
		if err := f.addDays(ctx, t.name); err != nil {
			return fmt.Errorf("add days to the table %s: %w", t.name, err)
		}
		if err := f.copyTable(ctx, t.name, t.from); err != nil {
			return fmt.Errorf("copy the table %s: %w", t.name, err)
		}
	}
	for _, name := range strings.Fields(counted) {
		if err := f.exec(ctx, `ALTER TABLE `+name+` ENABLE TRIGGER USER`); err != nil {
			return err
		}
	}
	return f.exec(ctx, `INSERT INTO keys_unindexed (n, account_id) SELECT n, account_id FROM keys`)
}

// addDays makes the partitions that the rows of a table need.
func (f *filler) addDays(ctx context.Context, table string) error {
	var column string
	var unit int64 // in a second
	switch table {
	case "requests":
		column, unit = "time", 1e6
	case "requests_left_out":
		column, unit = "second", 1
	default:
		return nil
	}
	for next := int64(0); ; {
		at, err := f.From.Number(ctx, fmt.Sprintf(`SELECT coalesce(min(%s), -1) FROM %s WHERE %s >= %d`, column, table, column, next))
		if err != nil || at < 0 {
			return err
		}
		day := dayOf(at / unit)
		if err := f.exec(ctx, fmt.Sprintf(`SELECT add_request_days(%d, %d)`, day, day)); err != nil {
			return err
		}
		next = (day + 1) * secondsOfDay * unit
	}
}

// column is a column of a table of the database.
type column struct{ name, kind string }

// copyTable copies one table, and compares the numbers of rows.
func (f *filler) copyTable(ctx context.Context, table string, from map[string]string) error {
	of, err := f.From.Number(ctx, `SELECT count(*) FROM "`+table+`"`)
	if err != nil {
		return err
	}
	f.Progress(table, 0, of)
	rows, err := f.tx.Query(ctx, `SELECT attname::text, atttypid::regtype::text FROM pg_attribute
		WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum`, table)
	if err != nil {
		return err
	}
	columns, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (c column, err error) {
		err = r.Scan(&c.name, &c.kind)
		return c, err
	})
	if err != nil {
		return err
	}
	names, expressions := make([]string, len(columns)), make([]string, len(columns))
	for i, c := range columns {
		names[i], expressions[i] = c.name, "["+c.name+"]" // in quotes, SQLite would take a missing column for a text
		if other := from[c.name]; other != "" {
			expressions[i] = other
		}
	}
	n, err := f.stream(ctx, table, columns, names, of, f.From.Rows(ctx, table, expressions))
	if err != nil {
		return err
	}
	var stored int64
	if err := f.tx.QueryRow(ctx, `SELECT count(*) FROM `+table).Scan(&stored); err != nil {
		return err
	}
	if n != of || stored != of {
		return fmt.Errorf("%d rows were read and %d stored, and there are %d", n, stored, of)
	}
	f.done.Tables++
	f.done.Rows += of
	f.Progress(table, of, of)
	return nil
}

// progressEvery is the number of rows between two calls of Progress.
const progressEvery = 100_000

// stream writes rows to a table and returns their number.
func (f *filler) stream(ctx context.Context, table string, columns []column, names []string, of int64, from iter.Seq2[[]any, error]) (n int64, err error) {
	next, stop := iter.Pull2(from)
	defer stop()
	out := make([]any, len(columns))
	return f.tx.CopyFrom(ctx, pgx.Identifier{table}, names, pgx.CopyFromFunc(func() ([]any, error) {
		values, err, ok := next()
		if !ok || err != nil {
			return nil, err
		}
		for i, v := range values {
			out[i] = converted(v, columns[i].kind)
		}
		if n++; n%progressEvery == 0 {
			f.Progress(table, n, of)
		}
		return out, nil
	}))
}

// converted returns a value in the form of a column.
func converted(v any, kind string) any {
	switch v := v.(type) {
	case int64:
		if kind == "boolean" {
			return v != 0
		}
	case string:
		if kind == "bytea" {
			return []byte(v)
		}
	case []byte:
		if kind == "text" {
			return string(v)
		}
	}
	return v
}

// continueNumbers makes the store continue its numbers behind the copied ones, and behind the numbers of
// rows that the other store has removed.
func (f *filler) continueNumbers(ctx context.Context) error {
	head, err := f.From.Number(ctx, `SELECT max(seq) FROM (SELECT seq FROM sqlite_sequence WHERE name = 'changes' UNION ALL SELECT seq FROM changes_trimmed)`)
	if err != nil {
		return err
	}
	mark := make([]byte, 8)
	if _, err := rand.Read(mark); err != nil {
		return err
	}
	for _, s := range []struct {
		statement string
		args      []any
	}{
		// What was copied may need any format that this version writes.
		{`UPDATE change_head SET number = $1, mark = $2, format = greatest(format, $3)`, []any{head, mark, snapshot.ChangeFormat}},
		// The newest change stays in the log, so that nodes can tell their position in it.
		{`UPDATE changes_trimmed SET seq = greatest($1::bigint - 1, 0)`, []any{head}},
		{`INSERT INTO changes (seq, mark, at, kind, record_id) SELECT $1::bigint, $2, $3, $4, '' WHERE $1 > 0`, []any{head, mark, time.Now().UnixMicro(), string(snapshot.AccountChange)}},
		{`UPDATE delivery_head SET n = (SELECT coalesce(max(n), 0) FROM deliveries)`, nil},
		{`UPDATE event_head SET n = (SELECT coalesce(max(n), 0) FROM events)`, nil},
	} {
		if _, err := f.tx.Exec(ctx, s.statement, s.args...); err != nil {
			return err
		}
	}
	for _, s := range []struct{ table, column, sequence string }{
		{"keys", "n", ""}, {"fan_outs", "n", ""}, {"former_subscriptions", "n", ""}, {"route_pages", "n", ""}, {"route_tables", "id", ""}, {"traffic", "seq", ""},
		{"quotas", "n", ""}, {"quota_processes", "n", ""}, {"audit_chunks", "id", "audit_chunks_id"},
	} {
		last, err := f.From.Number(ctx, `SELECT max(n) FROM (SELECT max(`+s.column+`) AS n FROM `+s.table+` UNION ALL SELECT seq FROM sqlite_sequence WHERE name = '`+s.table+`')`)
		if err != nil {
			return err
		}
		if last == 0 {
			continue
		}
		sequence := `pg_get_serial_sequence('` + s.table + `', '` + s.column + `')`
		if s.sequence != "" {
			sequence = `'` + s.sequence + `'`
		}
		if _, err := f.tx.Exec(ctx, `SELECT setval(`+sequence+`, $1)`, last); err != nil {
			return err
		}
	}
	return nil
}

// compareChains compares the last block of each audit chain, in both stores.
func (f *filler) compareChains(ctx context.Context) error {
	type head struct {
		number int64
		digest string
	}
	heads := map[string]head{}
	rows, err := f.tx.Query(ctx, `SELECT c.account_id, c.number, c.digest, b.digest FROM audit_chains c LEFT JOIN audit_blocks b ON b.account_id = c.account_id AND b.number = c.number`)
	if err != nil {
		return err
	}
	var id string
	var number int64
	var digest, ofBlock []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &number, &digest, &ofBlock}, func() error {
		if ofBlock != nil && !bytes.Equal(ofBlock, digest) {
			return fmt.Errorf("the audit chain of %s does not end with its last block", id)
		}
		heads[id] = head{number, string(digest)}
		return nil
	})
	if err != nil {
		return err
	}
	for values, err := range f.From.Rows(ctx, "audit_chains", []string{"account_id", "number", "digest"}) {
		if err != nil {
			return err
		}
		id, number, digest := values[0].(string), values[1].(int64), values[2].([]byte)
		if heads[id] != (head{number, string(digest)}) {
			return fmt.Errorf("the audit chain of %s has another head in the copy", id)
		}
		f.done.Chains++
	}
	if f.done.Chains != int64(len(heads)) {
		return fmt.Errorf("the copy has %d audit chains, and there are %d", len(heads), f.done.Chains)
	}
	return nil
}
