package postgres

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/requestlog"
	"github.com/keygate/keygate/internal/store/rows"
)

const day = 24 * time.Hour

// partitions returns the days (YYYYMMDD) of the partitions of both tables, which must be the same.
func partitions(t *testing.T, db *DB) (days []string) {
	t.Helper()
	both := map[string][]string{}
	err := db.view(t.Context(), db.readers, func(r *readTx) error {
		return r.Query(t.Context(), "list partitions", `SELECT p.relname, right(c.relname, 8) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
			JOIN pg_class p ON p.oid = i.inhparent WHERE p.relname IN ('requests', 'requests_left_out') ORDER BY 1, 2`, nil, func(row *rows.Row) error {
			var parent, suffix string
			err := row.Scan(&parent, &suffix)
			both[parent] = append(both[parent], suffix)
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(both["requests"], both["requests_left_out"]) {
		t.Errorf("the tables have different partitions: %v", both)
	}
	return both["requests"]
}

// appendAt appends a request of a time, and counts another as left out.
func appendAt(t *testing.T, db *DB, at time.Time) requestlog.Record {
	t.Helper()
	at = at.UTC().Truncate(time.Microsecond)
	r := requestlog.Record{AccountID: "acct_a", ID: id.NewAt(id.Request, at), Time: at, Method: "GET", Path: "/", Status: 401}
	left := []requestlog.LeftOut{{AccountID: "acct_a", Second: at.Unix(), Count: 1}}
	if err := db.AppendRequests(t.Context(), accesslog.BatchID{}, []requestlog.Record{r}, left); err != nil {
		t.Fatal(err)
	}
	return r
}

// find reports whether a request is stored with its count.
func find(t *testing.T, db *DB, r requestlog.Record) bool {
	t.Helper()
	got, err := db.RequestRecord(t.Context(), r.AccountID, r.ID)
	return err == nil && got.LeftOut == 1
}

// Guarantee: the log of requests has partitions for a week ahead. Partitions of other days are made before a write,
// also if the clock is ahead or another node has just dropped them, and retention drops whole days.
func TestRequestDays(t *testing.T) {
	t.Parallel()
	now := time.Now()
	db := fresh(t)
	other := openWith(t, Config{URL: db.writer.Config().ConnString()})
	name := func(days int) string { return now.UTC().Add(time.Duration(days) * day).Format("20060102") }
	if got := partitions(t, db); len(got) < 8 || got[0] != name(0) && got[0] != name(-1) {
		t.Errorf("a new database has partitions for %v, want today and a week", got)
	}
	records := []requestlog.Record{appendAt(t, db, now), appendAt(t, db, now.Add(40*day)), appendAt(t, db, now.Add(-3*day))}
	for _, r := range records {
		if !find(t, db, r) {
			t.Errorf("the request of %s is not stored", r.Time)
		}
	}
	if _, err := other.TrimRequests(t.Context(), now.Add(-day), 1000); err != nil {
		t.Fatal(err)
	}
	if find(t, db, records[2]) || !find(t, db, records[0]) || !find(t, db, records[1]) {
		t.Error("retention did not remove the old request alone")
	}
	if slices.Contains(partitions(t, db), name(-3)) {
		t.Error("the partition of an old day is still there")
	}
	if late := appendAt(t, db, now.Add(-3*day)); !find(t, db, late) {
		t.Error("a request of a day that another node has dropped is not stored")
	}
}

// Guarantee: a call does not wait for a partition that is being read; a later call drops it.
func TestDropWaitsForNobody(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	old := time.Now().Add(-9 * day)
	appendAt(t, db, old)
	isThere := func() bool { return slices.Contains(partitions(t, db), old.UTC().Format("20060102")) }
	err := db.view(t.Context(), db.readers, func(r *readTx) error {
		if _, err := r.Texts(t.Context(), "read requests", `SELECT id FROM requests`); err != nil {
			return err
		}
		more, err := db.TrimRequests(t.Context(), time.Now().Add(-2*day), 10)
		if err != nil || more {
			t.Errorf("got %v, %v while the table is read, want false and no error", more, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !isThere() {
		t.Error("the partition was dropped while the table was read")
	}
	if _, err := db.TrimRequests(t.Context(), time.Now().Add(-2*day), 10); err != nil {
		t.Fatal(err)
	}
	if isThere() {
		t.Error("the partition is still there")
	}
}

// Guarantee: several nodes that make the same day at once all store their requests.
func TestNodesMakeTheSameDay(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	const nodes = 4
	done := make(chan error, nodes)
	at := time.Now().Add(100 * day).UTC().Truncate(time.Microsecond)
	for range nodes {
		node := openWith(t, Config{URL: db.writer.Config().ConnString()})
		go func() {
			r := requestlog.Record{AccountID: "acct_a", ID: id.NewAt(id.Request, at), Time: at, Method: "GET", Path: "/", Status: 401}
			done <- node.AppendRequests(context.WithoutCancel(t.Context()), accesslog.BatchID{}, []requestlog.Record{r}, nil)
		}()
	}
	for range nodes {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	list, err := db.RequestRecords(t.Context(), "acct_a", requestlog.Filter{}, 10, "")
	if err != nil || len(list) != nodes {
		t.Errorf("got %d requests, %v, want %d", len(list), err, nodes)
	}
}
