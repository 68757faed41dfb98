package postgres

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/requestlog"
	"github.com/keygate/keygate/internal/store/rows"
)

// daysAhead is how many days before its beginning the partition of a day is made.
const daysAhead = 7

// noPartition is the SQLSTATE of a row that no partition takes. Other constraints have the same SQLSTATE,
// but requests have none.
const noPartition = "23514"

// requestDays are the days of the request log that are known to have partitions. It is safe for concurrent
// use.
type requestDays struct {
	mu    sync.Mutex
	known map[int64]struct{} // days since 1970
}

// maxKnownDays bounds the memory for days.
const maxKnownDays = 64

// unknown returns the days that are not known.
func (d *requestDays) unknown(days map[int64]struct{}) map[int64]struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	missing := maps.Clone(days)
	for day := range d.known {
		delete(missing, day)
	}
	return missing
}

func (d *requestDays) add(days map[int64]struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil || len(d.known) > maxKnownDays {
		d.known = map[int64]struct{}{}
	}
	maps.Copy(d.known, days)
}

func (d *requestDays) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known = nil
}

const secondsOfDay = 24 * 60 * 60

// dayOf returns the day of a Unix second. It rounds down, as the partitions do.
func dayOf(second int64) int64 {
	day := second / secondsOfDay
	if second%secondsOfDay < 0 {
		day--
	}
	return day
}

// daysOf returns the days of records and counts.
func daysOf(records []requestlog.Record, left []requestlog.LeftOut) map[int64]struct{} {
	days := map[int64]struct{}{}
	for i := range records {
		days[dayOf(records[i].Time.Unix())] = struct{}{}
	}
	for i := range left {
		days[dayOf(left[i].Second)] = struct{}{}
	}
	return days
}

// addDays makes the partitions of days that do not exist.
func (t *tx) addDays(ctx context.Context, days map[int64]struct{}) error {
	for day := range days {
		if _, err := t.Exec(ctx, "add a day to the request log", `SELECT add_request_days($1, $1)`, day); err != nil {
			return err
		}
	}
	return nil
}

// addDaysAhead makes the partitions of the next days.
func (db *DB) addDaysAhead(ctx context.Context) error {
	today := dayOf(time.UnixMicro(db.now()).Unix())
	return db.record(ctx, func(t *tx) error {
		_, err := t.Exec(ctx, "add days to the request log", `SELECT add_request_days($1, $2)`, today, today+daysAhead)
		return err
	})
}

// dropDays drops up to limit days of the request log that end before the given time. more says that there may
// be others.
func (db *DB) dropDays(ctx context.Context, before time.Time, limit int) (more bool, err error) {
	if limit <= 0 {
		return false, nil
	}
	err = db.record(ctx, func(t *tx) error {
		return t.Query(ctx, "drop days of the request log", `SELECT drop_request_days($1, $2)`, []any{dayOf(before.Unix()), limit}, func(r *rows.Row) error {
			var n int64
			err := r.Scan(&n)
			more = n == int64(limit)
			return err
		})
	})
	db.days.forget()
	return more, err
}

// dropDayBytes removes up to limit counts of bytes of days that end before the given time and have no partition any more.
func (db *DB) dropDayBytes(ctx context.Context, before time.Time, limit int) (more bool, err error) {
	err = db.record(ctx, func(t *tx) error {
		n, err := t.Exec(ctx, "remove the bytes of dropped days", `DELETE FROM request_bytes WHERE (account_id, day) IN (
			SELECT account_id, day FROM request_bytes WHERE day < $1 AND to_regclass(quote_ident(request_day_name('requests', day))) IS NULL LIMIT $2)
			AND to_regclass(quote_ident(request_day_name('requests', day))) IS NULL`, dayOf(before.Unix()), limit)
		more = limit > 0 && n == int64(limit)
		return err
	})
	return more, err
}
