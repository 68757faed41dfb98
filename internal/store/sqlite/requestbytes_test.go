package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/requestlog"
)

// Guarantee: the bytes of the request log are the same after a restart. Requests that were not counted when they were written, by
// an older version, do not count when they are removed either.
func TestRequestBytesSurviveARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keygate.db")
	reopened := func() *DB {
		db, err := Open(t.Context(), Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	db := reopened()
	at := time.Now().UTC().Truncate(time.Microsecond)
	records := make([]requestlog.Record, 10)
	for i := range records {
		at := at.Add(time.Duration(i) * time.Second)
		records[i] = requestlog.Record{AccountID: "acct_a", ID: id.NewAt(id.Request, at), Time: at, Method: "GET", Path: "/", Status: 401}
	}
	if err := db.AppendRequests(t.Context(), accesslog.BatchID{}, records, nil); err != nil {
		t.Fatal(err)
	}
	err := db.record(t.Context(), func(write *tx) error { // as an older version writes them
		_, err := write.Exec(t.Context(), "insert an old request", `INSERT INTO requests SELECT account_id, 'req_0', time, gateway_id, route_id, key_id, key_prefix, method, path,
			client_ip, status, duration, decision, limit_scope, limit_count, remaining, passes_at, upstream_status, reason, detail, host, 0 FROM requests LIMIT 1`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = reopened()
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	size := records[0].Size()
	want := func(n int64) {
		t.Helper()
		got, err := db.RequestBytes(t.Context())
		if err != nil || len(got) != 1 || got[0] != (requestlog.AccountBytes{AccountID: "acct_a", Bytes: n * size}) {
			t.Errorf("got %v, %v; want %d records of %d bytes", got, err, n, size)
		}
	}
	want(10)
	cut, err := db.CutRequests(t.Context(), requestlog.AccountBytes{AccountID: "acct_a", Bytes: 8 * size}, 100)
	if err != nil || cut.Records != 3 || cut.More {
		t.Errorf("got %+v, %v; want the old request and 2 others removed", cut, err)
	}
	want(8)
}
