package closing_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/usage"
	"github.com/keygate/keygate/internal/usage/closing"
)

// watched is a store that notes what closings write, and refuses those of one account.
type watched struct {
	*sqlite.DB
	refuses     string
	calls       int
	rows, bytes int // of the largest closing
	told        []int
	most        int // closings of chunks, then the error; 0 bounds nothing
	then        error
	meanwhile   func() // happens before the second closing; nil for nothing
}

var errRefused = errors.New("refused")

func (w *watched) CloseUsage(ctx context.Context, c *usage.Closing, now time.Time) (*usage.Closed, error) {
	if c.AccountID == w.refuses && c.Tier == usage.Hours {
		return nil, errRefused
	}
	if f := w.meanwhile; f != nil && w.calls == 1 {
		w.meanwhile = nil
		f()
	}
	if w.calls++; w.most > 0 && w.calls > w.most && len(c.Chunks) > 0 {
		return nil, w.then
	}
	size := 0
	for _, b := range slices.Concat(c.Made, c.Kept) {
		size += len(b.Bytes)
	}
	w.rows, w.bytes = max(w.rows, len(c.Made)+len(c.Kept)+len(c.Chunks)+len(c.Blocks)), max(w.bytes, size)
	made, err := w.DB.CloseUsage(ctx, c, now)
	if err == nil && c.Tell > 0 {
		w.told = append(w.told, c.Tell)
	}
	return made, err
}

// Guarantee: no closing reads or writes more than 64 chunks and some 2 MiB, however many keys with however long names of
// owners were used and however often. All of them together make one record of each identity, with all that was counted, and
// raise one event.
func TestClosingIsBounded(t *testing.T) {
	const owners, flushes = 10_000, 7
	f := newFixture(t)
	f.complete = true
	batch := make([]accesslog.Entry, owners)
	for n := range batch {
		e := &batch[n]
		e.Start, e.Account, e.Gateway, e.Status, e.Owner = f.now.UnixMicro(), uuid(1), uuid(3), 200, fmt.Sprintf("%0255d", n)
		binary.BigEndian.PutUint32(e.OwnerID[12:], uint32(n+1))
		binary.BigEndian.PutUint32(e.Key[12:], uint32(n+1))
		e.SetPeriod(0, math.MaxInt64)
	}
	for i := range flushes {
		f.m.Take(batch[i : owners-i]) // the chunks do not begin with the same identities
		if err := f.m.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	db := &watched{DB: f.db}
	f.closer = mustClose(t, closing.Config{Store: db, Alone: true, Now: func() time.Time { return f.now }, Flush: f.m.Sync})
	f.at(11, 0, 4)
	if db.rows > 200 || db.bytes > 2<<20 || db.calls < 2 {
		t.Errorf("the largest of %d closings has %d rows and %d bytes; want at least 2, with at most 200 rows and 2 MiB", db.calls, db.rows, db.bytes)
	}
	records, units := f.final(usage.Hours)
	if records != owners || units != owners*flushes-flushes*(flushes-1) {
		t.Errorf("got %d records with %d units, want %d with %d", records, units, owners, owners*flushes-flushes*(flushes-1))
	}
	if want := []int{records}; !slices.Equal(db.told, want) {
		t.Errorf("the events name %v records, want %v", db.told, want)
	}
}

// Guarantee: if another node makes the rest of an hour's records final, or the store fails, an event still names those that
// this one made.
func TestRecordsAreTold(t *testing.T) {
	for _, test := range []struct {
		name string
		most int
		err  error
	}{{"another node is faster", 2, fault.New(fault.Conflict, "gone")}, {"the store fails", 2, errRefused}} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			f.complete = true
			for n := range byte(6) { // a chunk each
				e := accesslog.Entry{Record: accesslog.Record{Start: f.now.UnixMicro(), Account: uuid(1), Key: uuid(n + 1), Gateway: uuid(3), Status: 200}}
				e.SetPeriod(0, math.MaxInt64)
				f.m.Take([]accesslog.Entry{e})
				if err := f.m.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			db := &watched{DB: f.db, most: test.most, then: test.err}
			closer := mustClose(t, closing.Config{Store: db, Alone: true, Now: func() time.Time { return f.now }, Flush: f.m.Sync})
			closer.SetBounds(2, 1)
			f.now = f.now.Add(time.Hour)
			if err := closer.Step(t.Context()); errors.Is(err, errRefused) != errors.Is(test.err, errRefused) {
				t.Errorf("got the error %v", err)
			}
			if records, _ := f.final(usage.Hours); records == 0 || records == 6 || !slices.Equal(db.told, []int{records}) {
				t.Errorf("the events name %v records; want the %d that are final, and some", db.told, records)
			}
		})
	}
}

// Guarantee: an hour is noted as closed once all that was counted in it is final, also if another node closes the same hour at
// the same time and takes what this one was about to close. Each record is made once.
func TestClosersAtTheSameTime(t *testing.T) {
	f := newFixture(t)
	f.complete = true
	const identities = 12
	for n := range byte(identities) { // a chunk each
		e := accesslog.Entry{Record: accesslog.Record{Start: f.now.UnixMicro(), Account: uuid(1), Key: uuid(n + 1), Gateway: uuid(3), Status: 200}}
		e.SetPeriod(0, math.MaxInt64)
		f.m.Take([]accesslog.Entry{e})
		if err := f.m.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	db, other := &watched{DB: f.db}, &watched{DB: f.db, most: 2, then: errRefused}
	cfg := closing.Config{Store: db, Alone: true, Now: func() time.Time { return f.now }, Flush: f.m.Sync}
	closer := mustClose(t, cfg)
	cfg.Store = other
	second := mustClose(t, cfg)
	closer.SetBounds(2, 1)
	second.SetBounds(3, 1)
	db.meanwhile = func() { // it takes some of the rest, and fails
		if err := second.Step(t.Context()); !errors.Is(err, errRefused) {
			t.Errorf("the other node: got %v, want that it fails after two closings", err)
		}
	}
	f.now = f.now.Add(time.Hour)
	if err := closer.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	if records, units := f.final(usage.Hours); records != identities || units != identities {
		t.Errorf("got %d records with %d units, want %d of each", records, units, identities)
	}
}

func mustClose(t *testing.T, cfg closing.Config) *closing.Closer {
	t.Helper()
	c, err := closing.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Guarantee: an account whose usage cannot be closed keeps neither the records of others from becoming final, nor old
// records of others from becoming those of days.
func TestClosingThatFailsStopsNoOther(t *testing.T) {
	f := newFixture(t)
	f.complete = true
	f.use()
	f.at(11, 0, 4)
	f.now = f.now.Add(36 * 24 * time.Hour)
	other := accesslog.Entry{Record: accesslog.Record{Start: f.now.UnixMicro(), Account: uuid(9), Key: uuid(2), Gateway: uuid(3), Status: 200}}
	other.SetPeriod(0, math.MaxInt64)
	f.m.Take([]accesslog.Entry{other})
	f.use()
	db := &watched{DB: f.db, refuses: id.Format(id.Account, uuid(9))}
	closer := mustClose(t, closing.Config{Store: db, Alone: true, Now: func() time.Time { return f.now }, Flush: f.m.Sync})
	f.now = f.now.Add(time.Hour)
	if err := closer.Step(t.Context()); !errors.Is(err, errRefused) {
		t.Errorf("got %v, want the error of the store", err)
	}
	if records, _ := f.final(usage.Hours); records != 1 {
		t.Errorf("the account has %d records of hours, want the new one", records)
	}
	if records, _ := f.final(usage.Days); records != 1 {
		t.Errorf("the account has %d records of days, want that of the old hour", records)
	}
}

// Guarantee: plans.md, section 8: the plan of a record is that of its first request, also if a later one with another plan
// was written together with uses that come first by their identity.
func TestPlanOfTheFirstRequest(t *testing.T) {
	f := newFixture(t)
	f.complete = true
	for _, flush := range []struct {
		keys []byte
		plan string
	}{{[]byte{5}, "free"}, {[]byte{2, 5}, "pro"}, {[]byte{1, 5}, "team"}} {
		var batch []accesslog.Entry
		for _, key := range flush.keys {
			e := accesslog.Entry{Record: accesslog.Record{Start: f.now.UnixMicro(), Account: uuid(1), Key: uuid(key), Gateway: uuid(3), Status: 200}}
			e.Plan = flush.plan
			e.SetPeriod(0, math.MaxInt64)
			batch = append(batch, e)
		}
		f.m.Take(batch)
		if err := f.m.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.at(11, 0, 3)
	got := map[string]string{}
	f.each(usage.Hours, func(r *usage.Record) { got[r.KeyID] = r.Plan })
	want := map[string]string{id.Format(id.Key, uuid(5)): "free", id.Format(id.Key, uuid(2)): "pro", id.Format(id.Key, uuid(1)): "team"}
	if !maps.Equal(got, want) {
		t.Errorf("got the plans %v, want %v", got, want)
	}
}
