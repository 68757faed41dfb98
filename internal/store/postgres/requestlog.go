package postgres

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/requestlog"
	"github.com/keygate/keygate/internal/store/rows"
)

var _ requestlog.Store = (*DB)(nil)

// AppendRequests implements requestlog.Store. It first makes the partitions that are missing. A day has none
// if the clock is ahead, or if retention has dropped it while its records waited.
func (db *DB) AppendRequests(ctx context.Context, batch accesslog.BatchID, records []requestlog.Record, left []requestlog.LeftOut) error {
	days := daysOf(records, left)
	err := db.appendRequests(ctx, batch, days, records, left)
	if stateOf(err) == noPartition { // another node has dropped it
		db.days.forget()
		err = db.appendRequests(ctx, batch, days, records, left)
	}
	return err
}

func (db *DB) appendRequests(ctx context.Context, batch accesslog.BatchID, days map[int64]struct{}, records []requestlog.Record, left []requestlog.LeftOut) error {
	err := db.record(ctx, func(t *tx) error {
		if isNew, err := t.takeBatch(ctx, batch); err != nil || !isNew {
			return err
		}
		if err := t.addDays(ctx, db.days.unknown(days)); err != nil {
			return err
		}
		if err := t.insertRequests(ctx, records); err != nil {
			return err
		}
		return t.countLeftOut(ctx, left)
	})
	if err == nil {
		db.days.add(days)
	}
	return err
}

const insertRequests = `INSERT INTO requests (account_id, id, time, gateway_id, route_id, key_id, key_prefix, method, path, client_ip,
	status, duration, decision, limit_scope, limit_count, remaining, passes_at, upstream_status, reason, detail)
	SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::bytea[], $9::bytea[], $10::text[],
	$11::bigint[], $12::bigint[], $13::integer[], $14::integer[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], $19::integer[], $20::bytea[])
	ON CONFLICT DO NOTHING`

// insertRequests inserts records in one statement: a round trip for each would take too long.
func (t *tx) insertRequests(ctx context.Context, records []requestlog.Record) error {
	if len(records) == 0 {
		return nil
	}
	var (
		texts   [6][]string // accounts, identifiers, gateways, routes, keys, addresses
		bytes   [4][][]byte // prefixes, methods, paths, details
		numbers [10][]int64
	)
	for i := range records {
		r := &records[i]
		for n, v := range [...]string{r.AccountID, r.ID, r.GatewayID, r.RouteID, r.KeyID, r.ClientIP} {
			texts[n] = append(texts[n], v)
		}
		for n, v := range [...]string{r.KeyPrefix, r.Method, r.Path, r.Detail} {
			bytes[n] = append(bytes[n], []byte(v))
		}
		for n, v := range [...]int64{rows.Micros(r.Time), int64(r.Status), int64(r.Duration), int64(r.Decision), int64(r.LimitScope), r.Limit, r.Remaining, r.PassesAt,
			int64(r.UpstreamStatus), int64(r.Reason)} {
			numbers[n] = append(numbers[n], v)
		}
	}
	_, err := t.Exec(ctx, "insert requests", insertRequests, texts[0], texts[1], numbers[0], texts[2], texts[3], texts[4], bytes[0], bytes[1], bytes[2], texts[5],
		numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6], numbers[7], numbers[8], numbers[9], bytes[3])
	return err
}

// countLeftOut adds counts, in the order of their rows, so that no two nodes wait for each other.
func (t *tx) countLeftOut(ctx context.Context, left []requestlog.LeftOut) error {
	if len(left) == 0 {
		return nil
	}
	accounts, seconds, counts := make([]string, len(left)), make([]int64, len(left)), make([]int64, len(left))
	for i, l := range left {
		accounts[i], seconds[i], counts[i] = l.AccountID, l.Second, l.Count
	}
	_, err := t.Exec(ctx, "count omitted requests", `INSERT INTO requests_left_out AS l (account_id, second, count)
		SELECT account_id, second, sum(count)::bigint FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS g (account_id, second, count)
		GROUP BY account_id, second ORDER BY account_id, second
		ON CONFLICT (account_id, second) DO UPDATE SET count = l.count + excluded.count`, accounts, seconds, counts)
	return err
}

// RequestRecords implements requestlog.Store.
func (db *DB) RequestRecords(ctx context.Context, accountID string, f requestlog.Filter, limit int, after string) (list []requestlog.Record, err error) {
	err = db.search(ctx, func(t *readTx) error {
		list, err = t.RequestRecords(ctx, accountID, f, limit, after)
		return err
	})
	return list, err
}

// RequestRecord implements requestlog.Store.
func (db *DB) RequestRecord(ctx context.Context, accountID, requestID string) (found *requestlog.Record, err error) {
	err = db.view(ctx, db.readers, func(t *readTx) error {
		found, err = t.RequestRecord(ctx, accountID, requestID)
		return err
	})
	return found, err
}

// TrimRequests implements requestlog.Store. It removes whole days.
func (db *DB) TrimRequests(ctx context.Context, before time.Time, limit int) (more bool, err error) {
	limit = rows.Limit(limit)
	err = db.record(ctx, func(t *tx) error {
		n, err := t.trimBatches(ctx, before, limit)
		more = limit > 0 && n == int64(limit)
		return err
	})
	if err != nil {
		return false, err
	}
	if err := db.addDaysAhead(ctx); err != nil {
		return false, err
	}
	moreDays, err := db.dropDays(ctx, before, limit)
	return more || moreDays, err
}
