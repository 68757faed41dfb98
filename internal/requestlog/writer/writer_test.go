package writer_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/requestlog"
	requestwriter "github.com/keygate/keygate/internal/requestlog/writer"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
)

func now() time.Time { return time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC) }

func open(t *testing.T) *sqlite.DB {
	t.Helper()
	return sqlitetest.Open(t, sqlite.Config{})
}

func newWriter(t *testing.T, cfg requestwriter.Config) *requestwriter.Writer {
	t.Helper()
	if cfg.Now == nil {
		cfg.Now = now
	}
	r, err := requestwriter.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// refused is a refused request that began a while after now.
func refused(account [16]byte, after time.Duration) accesslog.Entry {
	at := now().Add(after)
	return accesslog.Entry{Record: accesslog.Record{Account: account, Request: id.NewFastAt(at.UnixMilli()), Start: at.UnixMicro(), Status: 401, Result: accesslog.KeyInvalid}, Path: "/orders"}
}

func list(t *testing.T, r *requestwriter.Writer, account [16]byte) []requestlog.Request {
	t.Helper()
	if err := r.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, err := r.Requests(t.Context(), id.Format(id.Account, account), requestlog.Filter{}, 10_000, "")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Guarantee: each refused request can be read after Sync, in the list and by its
// identifier, only by its account. Other requests are not in the log.
func TestRefusedRequestsAreListed(t *testing.T) {
	r := newWriter(t, requestwriter.Config{Store: open(t)})
	a, b := id.NewFast(), id.NewFast()
	one, other, passed := refused(a, 0), refused(b, 0), refused(a, time.Second)
	passed.Status = 200
	r.Take([]accesslog.Entry{one, other, passed})
	if got := list(t, r, a); len(got) != 1 || got[0].ID != id.Format(id.Request, one.Request) || got[0].Path != "/orders" {
		t.Fatalf("got %+v, want the one refused request of the account", got)
	}
	for requestID, code := range map[string]fault.Code{
		id.Format(id.Request, one.Request): "", id.Format(id.Request, other.Request): fault.NotFound, id.Format(id.Request, passed.Request): fault.NotFound, "req_x": fault.NotFound,
	} {
		if _, err := r.Request(t.Context(), id.Format(id.Account, a), requestID); fault.CodeOf(err) != code {
			t.Errorf("%s: got the error %v, want code %q", requestID, err, code)
		}
	}
}

// Guarantee: of the paths of an account and second that are longer than 256 bytes, 64 KiB are kept whole, and the others are cut
// to 256 bytes. Other accounts and seconds, and short paths, have their whole paths.
func TestLongPathsAreBounded(t *testing.T) {
	r := newWriter(t, requestwriter.Config{Store: open(t)})
	a, b := id.NewFast(), id.NewFast()
	take := func(account [16]byte, after time.Duration, length int) {
		e := refused(account, after)
		e.Path = "/" + strings.Repeat("a", length-1)
		r.Take([]accesslog.Entry{e})
	}
	const long, requests = 2 << 10, 1000
	for range requests {
		take(a, 0, long)
	}
	take(a, time.Second, long)
	take(b, 0, long)
	for range requests - 1 {
		take(b, 0, requestlog.ShortPath)
	}
	whole, cut := 0, 0
	for _, got := range list(t, r, a) {
		switch {
		case len(got.Path) == long:
			whole++
		case strings.HasSuffix(got.Path, "a…") && len(got.Path) == requestlog.ShortPath+len("…"):
			cut++
		}
	}
	if whole != 64<<10/long+1 || whole+cut != requests+1 {
		t.Errorf("%d whole paths and %d that were cut, want %d and the others", whole, cut, 64<<10/long+1)
	}
	for _, got := range list(t, r, b) {
		if strings.HasSuffix(got.Path, "…") {
			t.Fatalf("a path of another account has %d bytes", len(got.Path))
		}
	}
}

// Guarantee: requests beyond the maximum of a second of an account are left out, and their
// number is counted, in total and for each kept request of the second.
func TestRequestsAreSampled(t *testing.T) {
	r := newWriter(t, requestwriter.Config{Store: open(t), PerSecond: 3})
	a, b := id.NewFast(), id.NewFast()
	for i := range 10 {
		r.Take([]accesslog.Entry{refused(a, time.Duration(i)*time.Millisecond)})
		if i == 4 {
			list(t, r, a) // a write in the middle changes nothing
		}
	}
	r.Take([]accesslog.Entry{refused(a, time.Second), refused(b, 0)})
	got := list(t, r, a)
	if len(got) != 4 || got[0].LeftOut != 0 || got[1].LeftOut != 7 || got[3].LeftOut != 7 || r.LeftOut() != 7 || r.Lost() != 0 {
		t.Errorf("got %d requests with %d left out: %+v, want 4 requests and 7 left out in the first second", len(got), r.LeftOut(), got)
	}
	if got := list(t, r, b); len(got) != 1 || got[0].LeftOut != 0 {
		t.Errorf("another account: got %+v, want one request and none left out", got)
	}
}

// Guarantee: requests are listed for 24 hours and then removed.
func TestRetentionIsOneDay(t *testing.T) {
	db := open(t)
	r := newWriter(t, requestwriter.Config{Store: db})
	a := id.NewFast()
	old, young := refused(a, -24*time.Hour-time.Second), refused(a, -24*time.Hour+time.Second)
	r.Take([]accesslog.Entry{old, young})
	if got := list(t, r, a); len(got) != 1 || got[0].ID != id.Format(id.Request, young.Request) {
		t.Errorf("got %+v, want only the request younger than a day", got)
	}
	if _, err := r.Request(t.Context(), id.Format(id.Account, a), id.Format(id.Request, old.Request)); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("an old request: got error %v, want not found", err)
	}
	if err := r.Trim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, err := db.RequestRecords(t.Context(), id.Format(id.Account, a), requestlog.Filter{}, 10, ""); err != nil || len(left) != 1 {
		t.Errorf("%d records are left, error %v; want 1", len(left), err)
	}
}

// failing is a store that can be made to fail.
type failing struct {
	*sqlite.DB
	mu   sync.Mutex
	fail bool
}

var errStore = errors.New("the store is not available")

func (f *failing) AppendRequests(ctx context.Context, batch accesslog.BatchID, records []requestlog.Record, left []requestlog.LeftOut) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail {
		return errStore
	}
	return f.DB.AppendRequests(ctx, batch, records, left)
}

func (f *failing) set(fail bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

// Guarantee: requests that the store did not take are written later, once, and Sync returns
// the error.
func TestFailedWritesAreRetried(t *testing.T) {
	store := &failing{DB: open(t), fail: true}
	r := newWriter(t, requestwriter.Config{Store: store, PerSecond: 2})
	a := id.NewFast()
	for i := range 3 {
		r.Take([]accesslog.Entry{refused(a, time.Duration(i)*time.Millisecond)})
	}
	if err := r.Sync(t.Context()); !errors.Is(err, errStore) {
		t.Errorf("Sync returned %v, want the error of the store", err)
	}
	r.Take([]accesslog.Entry{refused(a, time.Second)})
	store.set(false)
	if got := list(t, r, a); len(got) != 3 || got[2].LeftOut != 1 {
		t.Errorf("got %+v, want 3 requests, the oldest with 1 left out", got)
	}
}

// Guarantee: while the store fails, the number of waiting requests is bounded, and further
// ones are counted as lost.
func TestMemoryIsBounded(t *testing.T) {
	r := newWriter(t, requestwriter.Config{Store: &failing{DB: open(t), fail: true}})
	a := id.NewFast()
	const all = 70_000
	for i := range all {
		r.Take([]accesslog.Entry{refused(a, time.Duration(i)*10*time.Millisecond)})
	}
	if lost := r.Lost(); lost != all-1<<16 {
		t.Errorf("%d requests are lost, want %d", lost, all-1<<16)
	}
}

// Guarantee: requests are written within a second without Sync, and Stop writes the rest.
func TestWritesWithoutSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countingStore{}
		r := newWriter(t, requestwriter.Config{Store: store, Now: time.Now})
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.Take([]accesslog.Entry{refused([16]byte{1}, 0)})
		<-time.After(time.Second)
		if store.count() != 1 {
			t.Errorf("%d requests are written after a second, want 1", store.count())
		}
		r.Take([]accesslog.Entry{refused([16]byte{1}, 0)})
		if err := r.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if store.count() != 2 {
			t.Errorf("%d requests are written after Stop, want 2", store.count())
		}
	})
}

// countingStore is a store that counts the requests that it gets. The real one does not run on
// virtual time.
type countingStore struct {
	requestlog.Store
	mu sync.Mutex
	n  int
}

func (s *countingStore) AppendRequests(_ context.Context, _ accesslog.BatchID, records []requestlog.Record, _ []requestlog.LeftOut) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n += len(records)
	return nil
}

func (s *countingStore) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

// Guarantee: of requests that are in the log only for their cost, a number of their own is kept of each second of an
// account. They leave no refused request out, and are not counted as left out.
func TestChargedRequestsAreSampledForThemselves(t *testing.T) {
	r := newWriter(t, requestwriter.Config{Store: open(t), PerSecond: 3, ChargedPerSecond: 2})
	a := id.NewFast()
	cost := string(accesslog.AppendCost(nil, &accesslog.Cost{Meter: "tokens", Units: 1204, Reserved: 2000, Read: "total 1,204 × 1"}))
	var last accesslog.Entry
	for i := range 5 {
		last = refused(a, time.Duration(i)*time.Millisecond)
		last.Status, last.Result, last.Cost = 200, accesslog.Forwarded, cost
		r.Take([]accesslog.Entry{last, refused(a, time.Duration(i)*time.Millisecond)})
		if i == 0 { // the text is a copy
			kept := id.Format(id.Request, last.Request)
			if err := r.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			got, err := r.Request(t.Context(), id.Format(id.Account, a), kept)
			if err != nil || len(got.Costs) != 1 || got.Costs[0].Read != "total 1,204 × 1" {
				t.Errorf("got %+v, %v; want the request with its cost", got, err)
			}
		}
	}
	if got := list(t, r, a); len(got) != 3 || got[0].LeftOut != 2 || r.LeftOut() != 2 || r.Lost() != 0 {
		t.Errorf("got %d refused requests with %d left out: %+v, want 3 and 2 left out", len(got), r.LeftOut(), got)
	}
	charged, err := r.Requests(t.Context(), id.Format(id.Account, a), requestlog.Filter{Result: requestlog.ResultCharged}, 100, "")
	if err != nil || len(charged) != 2 {
		t.Errorf("got %d requests with a cost, %v; want 2", len(charged), err)
	}
	if _, err := r.Request(t.Context(), id.Format(id.Account, a), id.Format(id.Request, last.Request)); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("the last request: got the error %v, want not found", err)
	}
}

// Guarantee: requests that had several attempts are kept as failed ones are, as many of a second, and leave none of these out.
func TestRetriedRequestsAreSampledForThemselves(t *testing.T) {
	r := newWriter(t, requestwriter.Config{Store: open(t), PerSecond: 3, ChargedPerSecond: 1})
	a := id.NewFast()
	text := accesslog.AppendAttempt(nil, &accesslog.Attempt{Target: "10.0.0.1:8443", Result: "connect"})
	text = accesslog.AppendAttempt(text, &accesslog.Attempt{Target: "10.0.0.2:8443", Result: "ok", Status: 200})
	for range 5 {
		e := refused(a, 0)
		e.Status, e.Result, e.AttemptList = 200, accesslog.Forwarded, string(text)
		r.Take([]accesslog.Entry{e, refused(a, 0)})
	}
	if got := list(t, r, a); len(got) != 3 || got[0].LeftOut != 2 || r.LeftOut() != 2 || r.Lost() != 0 {
		t.Errorf("got %d refused requests with %d left out, want 3 and 2", len(got), r.LeftOut())
	}
	retried, err := r.Requests(t.Context(), id.Format(id.Account, a), requestlog.Filter{Result: requestlog.ResultRetried}, 100, "")
	if err != nil || len(retried) != 3 || len(retried[0].Attempts) != 2 || retried[0].Attempts[1].Target != "10.0.0.2:8443" {
		t.Errorf("got %+v, %v; want 3 requests with 2 attempts", retried, err)
	}
}

// Guarantee: docs/limits.md. Requests that are kept only for their cost leave room for those of all accounts that were refused.
func TestChargedRequestsOfANodeAreBounded(t *testing.T) {
	r := newWriter(t, requestwriter.Config{Store: open(t), ChargedPerSecond: 2})
	cost := string(accesslog.AppendCost(nil, &accesslog.Cost{Meter: "tokens", Units: 1}))
	for range 30 {
		a := id.NewFast()
		for range 3 {
			e := refused(a, 0)
			e.Status, e.Result, e.Cost = 200, accesslog.Forwarded, cost
			r.Take([]accesslog.Entry{e})
		}
		r.Take([]accesslog.Entry{refused(a, 0)})
	}
	if got := r.Unwritten(); got != 30+20 || r.LeftOut()+r.Lost() != 0 {
		t.Errorf("%d requests were kept, want all 30 that were refused and 20 others", got)
	}
}
