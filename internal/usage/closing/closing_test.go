package closing_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/keygatetest/leaktest"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
	"github.com/keygate/keygate/internal/traffic/meter"
	"github.com/keygate/keygate/internal/usage"
	"github.com/keygate/keygate/internal/usage/closing"
)

func TestMain(m *testing.M) { leaktest.Main(withPostgres{m}) }

// withPostgres runs tests that may need PostgreSQL.
type withPostgres struct{ m *testing.M }

func (w withPostgres) Run() int { return postgrestest.Main(w.m) }

// identity is what the model counts by.
type identity struct {
	owner, key, gateway, route byte
	start, end                 int64
	meter                      string
}

// sums is units and requests.
type sums struct{ units, requests int64 }

// world is a store with meters and closers of several processes, and a model of it.
type world struct {
	*rapid.T
	db      *sqlite.DB
	now     time.Time
	uuid    [16]byte // of the account
	account string
	meters  []*meter.Meter
	closers []*closing.Closer

	counted map[identity]sums       // everything
	read    map[identity]sums       // what a reader that keeps its position has read
	seen    map[string]usage.Record // by usage_id
	next    map[identity]int64      // the sequence of the next record
	at      usage.Position          // of the reader
}

func uuid(n byte) (u [16]byte) {
	u[0], u[15] = 1, n
	return u
}

// count counts a request, sometimes of an earlier hour, as a long stream has.
func (w *world) count() {
	m := rapid.SampledFrom(w.meters).Draw(w.T, "meter")
	at := w.now.Add(-time.Duration(rapid.IntRange(0, 5000).Draw(w.T, "seconds ago")) * time.Second)
	e := accesslog.Entry{Record: accesslog.Record{
		Start: at.UnixMicro(), Account: w.uuid, OwnerID: uuid(rapid.ByteRange(0, 1).Draw(w.T, "owner")), Key: uuid(rapid.ByteRange(1, 2).Draw(w.T, "key")),
		Gateway: uuid(3), Route: uuid(rapid.ByteRange(4, 5).Draw(w.T, "route")), BytesIn: rapid.Int64Range(0, 3).Draw(w.T, "bytes in"), BytesOut: 7, Status: 200,
	}}
	charged := rapid.IntRange(0, 9).Draw(w.T, "charged") > 0
	from, until := int64(0), int64(math.MaxInt64)
	if half := at.Truncate(30 * time.Minute); rapid.Bool().Draw(w.T, "window of half an hour") {
		from, until = half.UnixNano(), half.Add(30*time.Minute).UnixNano()
	}
	if charged {
		e.SetPeriod(from, until)
	}
	meters := map[string]int64{usage.Requests: 1, usage.BytesIn: e.BytesIn, usage.BytesOut: e.BytesOut}
	var costs []byte
	for _, name := range rapid.Permutation([]string{"tokens", usage.Requests, "cents"}).Draw(w.T, "meters")[:rapid.IntRange(0, 3).Draw(w.T, "costs")] {
		c := accesslog.Cost{Meter: name, Units: rapid.SampledFrom([]int64{0, 1, 5, 1<<53 - 1}).Draw(w.T, name), Unknown: rapid.SampledFrom([]string{"", "missing"}).Draw(w.T, "unknown")}
		costs = accesslog.AppendCost(costs, &c)
		meters[name] = c.Units
	}
	e.Cost = string(costs)
	m.Take([]accesslog.Entry{e})
	clear(costs)
	if !charged {
		return
	}
	hour := at.Truncate(time.Hour)
	start, end := max(hour.UnixNano(), from)/1e9, min(hour.Add(time.Hour).UnixNano(), until)/1e9
	for name, units := range meters {
		if units > 0 {
			i := identity{e.OwnerID[15], e.Key[15], e.Gateway[15], e.Route[15], start, end, name}
			s := w.counted[i]
			w.counted[i] = sums{s.units + units, s.requests + 1}
		}
	}
}

// identityOf returns the identity of a record.
func identityOf(t *rapid.T, r *usage.Record) identity {
	last := func(kind id.Kind, text string) byte {
		if text == "" {
			return 0
		}
		u, ok := id.Parse(kind, text)
		if !ok {
			t.Fatalf("the identifier %s is not valid", text)
		}
		return u[15]
	}
	return identity{last(id.Owner, r.OwnerID), last(id.Key, r.KeyID), last(id.Gateway, r.GatewayID), last(id.Route, r.RouteID), r.PeriodStart.Unix(), r.PeriodEnd.Unix(), r.Meter}
}

// follow reads the final records behind the reader's position.
func (w *world) follow() {
	end, err := usage.Ends(w.Context(), w.db, w.account, usage.Hours)
	if err != nil {
		w.Fatal(err)
	}
	most := rapid.IntRange(1, 20).Draw(w.T, "records at once")
	n := 0
	_, err = usage.Final(w.Context(), w.db, w.account, usage.Filter{}, w.at, end, func(r *usage.Record) bool {
		i := identityOf(w.T, r)
		if _, again := w.seen[r.ID]; again {
			w.Fatalf("the record %+v was read twice", *r)
		}
		w.seen[r.ID] = *r
		if w.next[i]++; r.Sequence != w.next[i] {
			w.Fatalf("the record %+v has sequence %d, want %d", *r, r.Sequence, w.next[i])
		}
		s := w.read[i]
		w.read[i] = sums{s.units + r.Units, s.requests + r.Requests}
		w.at = r.Position.Next()
		n++
		return n < most
	})
	if err != nil {
		w.Fatal(err)
	}
}

// check compares what was read, what is final and not read yet, and what is open with what was counted.
func (w *world) check() {
	for _, m := range w.meters {
		if err := m.Sync(w.Context()); err != nil {
			w.Fatal(err)
		}
	}
	got := map[identity]sums{}
	for i, s := range w.read {
		got[i] = s
	}
	end, err := usage.Ends(w.Context(), w.db, w.account, usage.Hours)
	if err != nil {
		w.Fatal(err)
	}
	add := func(r *usage.Record) bool {
		i := identityOf(w.T, r)
		s := got[i]
		got[i] = sums{s.units + r.Units, s.requests + r.Requests}
		if r.Units <= 0 || r.Requests <= 0 || len(r.ID) != 64 {
			w.Fatalf("the record %+v has no units, or no identifier", *r)
		}
		return true
	}
	if _, err := usage.Final(w.Context(), w.db, w.account, usage.Filter{}, w.at, end, add); err != nil {
		w.Fatal(err)
	}
	open, err := usage.Open(w.Context(), w.db, w.account, usage.Filter{})
	if err != nil {
		w.Fatal(err)
	}
	after := ""
	err = open.After("", func(r *usage.Record) bool {
		if _, final := w.seen[r.ID]; final {
			w.Fatalf("the open record %+v has the identifier of a final one", *r)
		}
		if r.Cursor() <= after {
			w.Fatalf("the open record %+v is out of order", *r)
		}
		first := ""
		if err := open.After(after, func(next *usage.Record) bool { first = next.ID; return false }); err != nil || first != r.ID {
			w.Fatalf("behind the cursor %q is %s, with the error %v; want %s", after, first, err, r.ID)
		}
		after = r.Cursor()
		return add(r)
	})
	if err != nil {
		w.Fatal(err)
	}
	if len(got) != len(w.counted) {
		w.Fatalf("got %d identities, want %d", len(got), len(w.counted))
	}
	for i, want := range w.counted {
		if got[i] != want {
			w.Fatalf("%+v: got %+v, want %+v", i, got[i], want)
		}
	}
}

// Guarantee: final and open records together have every unit that was counted, those of costs too, once, whatever late requests come, on
// several processes, and however often one that was killed starts again. A reader that keeps its position reads each record
// once, and the sequences of an identity without gaps.
func TestRecordsHaveEveryUnitOnce(t *testing.T) {
	db := sqlitetest.Open(t, sqlite.Config{})
	start := time.Date(2026, 3, 29, 0, 30, 0, 0, time.UTC)
	rapid.Check(t, func(rt *rapid.T) {
		account := id.NewFast()
		start = start.Add(31 * 24 * time.Hour) // what the runs before have closed stays closed
		w := &world{
			T: rt, db: db, now: start, uuid: account, account: id.Format(id.Account, account),
			counted: map[identity]sums{}, read: map[identity]sums{}, seen: map[string]usage.Record{}, next: map[identity]int64{},
		}
		for range 2 {
			w.meters, w.closers = append(w.meters, nil), append(w.closers, nil)
			w.start(len(w.meters) - 1)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"count": func(*rapid.T) { w.count() },
			"count more": func(*rapid.T) {
				for range 5 {
					w.count()
				}
			},
			"time passes": func(*rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 2400).Draw(rt, "seconds")) * time.Second)
			},
			"close": func(*rapid.T) {
				if err := rapid.SampledFrom(w.closers).Draw(rt, "closer").Step(rt.Context()); err != nil {
					rt.Fatal(err)
				}
			},
			"maintain": func(*rapid.T) {
				if err := w.meters[0].Maintain(rt.Context()); err != nil {
					rt.Fatal(err)
				}
			},
			"restart": func(*rapid.T) { w.start(rapid.IntRange(0, 1).Draw(rt, "process")) },
			"follow":  func(*rapid.T) { w.follow() },
			"":        func(*rapid.T) { w.check() },
		})
	})
}

// start starts a process, in the place of one that has stored what it counted.
func (w *world) start(n int) {
	if w.meters[n] != nil {
		if err := w.meters[n].Sync(w.Context()); err != nil {
			w.Fatal(err)
		}
	}
	now := func() time.Time { return w.now }
	m, err := meter.New(meter.Config{Store: w.db, Now: now})
	if err != nil {
		w.Fatal(err)
	}
	w.meters[n] = m
	w.closers[n], err = closing.New(closing.Config{Store: w.db, Now: now, Alone: true, Flush: m.Sync})
	if err != nil {
		w.Fatal(err)
	}
	w.closers[n].SetBounds(rapid.IntRange(2, 5).Draw(w.T, "parts at once"), rapid.IntRange(1, 2000).Draw(w.T, "bytes at once"))
}

// fixture is a store with one meter and one closer.
type fixture struct {
	*testing.T
	db       *sqlite.DB
	now      time.Time
	complete bool // all nodes have marked the hour
	m        *meter.Meter
	closer   *closing.Closer
}

// nodes is a store in which other nodes may be missing.
type nodes struct {
	*sqlite.DB
	of *fixture
}

func (n nodes) UsageState(ctx context.Context, until time.Time) (time.Time, bool, error) {
	closed, _, err := n.DB.UsageState(ctx, until)
	return closed, n.of.complete, err
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t, db: sqlitetest.Open(t, sqlite.Config{}), now: time.Date(2026, 3, 1, 10, 30, 0, 0, time.UTC)}
	var err error
	if f.m, err = meter.New(meter.Config{Store: f.db}); err != nil {
		t.Fatal(err)
	}
	f.start()
	return f
}

// start starts the process that closes, in the place of one that has stopped.
func (f *fixture) start() {
	f.Helper()
	var err error
	f.closer, err = closing.New(closing.Config{Store: nodes{f.db, f}, Process: "one", Now: func() time.Time { return f.now }, Flush: f.m.Sync})
	if err != nil {
		f.Fatal(err)
	}
}

// use counts a request, and at moves the clock and closes what is due.
func (f *fixture) use() {
	e := accesslog.Entry{Record: accesslog.Record{Start: f.now.UnixMicro(), Account: uuid(1), Key: uuid(2), Gateway: uuid(3), Status: 200}}
	e.SetPeriod(0, math.MaxInt64)
	f.m.Take([]accesslog.Entry{e})
}

func (f *fixture) at(hour, minute, second int) {
	f.Helper()
	f.now = time.Date(f.now.Year(), f.now.Month(), f.now.Day(), hour, minute, second, 0, time.UTC)
	if err := f.closer.Step(f.Context()); err != nil {
		f.Fatal(err)
	}
}

// final returns the number of final records of a tier, and the sum of their units.
func (f *fixture) final(t usage.Tier) (records int, units int64) {
	f.Helper()
	f.each(t, func(r *usage.Record) {
		records++
		units += r.Units
	})
	return records, units
}

// each calls yield for each final record.
func (f *fixture) each(t usage.Tier, yield func(*usage.Record)) {
	f.Helper()
	account := id.Format(id.Account, uuid(1))
	end, err := usage.Ends(f.Context(), f.db, account, t)
	if err != nil {
		f.Fatal(err)
	}
	_, err = usage.Final(f.Context(), f.db, account, usage.Filter{Tier: t}, usage.Position{}, end, func(r *usage.Record) bool {
		yield(r)
		return true
	})
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) wantFinal(when string, records int) {
	f.Helper()
	if got, _ := f.final(usage.Hours); got != records {
		f.Errorf("%s: %d records are final, want %d", when, got, records)
	}
}

// Guarantee: an hour is closed as soon as all nodes have stored what they counted in it, and after two hours at the latest.
func TestClosingWaitsForNodes(t *testing.T) {
	f := newFixture(t)
	f.complete = true
	f.use()
	f.at(10, 59, 59)
	f.at(11, 0, 2)
	f.wantFinal("two seconds after the hour", 0)
	f.at(11, 0, 3)
	f.wantFinal("three seconds after the hour", 1)
	f.complete = false
	f.use()
	f.at(12, 0, 3)
	f.at(13, 59, 59)
	f.wantFinal("while a node is missing", 1)
	if lag := f.closer.Lag(); lag <= 0 {
		t.Errorf("the lag is %v while a node is missing", lag)
	}
	f.at(14, 0, 0)
	f.wantFinal("two hours after the hour", 2)
	f.complete = true
	f.at(14, 0, 3)
	if lag := f.closer.Lag(); lag != 0 {
		t.Errorf("the lag is %v when all hours are closed, want 0", lag)
	}
}

// Guarantee: after a clock that was ahead has been set right, each hour is closed when it ends, whether the process has started again
// meanwhile or not, and while nodes are missing after two hours.
func TestClosingAfterAClockThatWasAhead(t *testing.T) {
	for name, restarts := range map[string]bool{"goes on": false, "starts again": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.complete = true
			f.use()
			right := f.now
			f.now = f.now.Add(48 * time.Hour)
			f.at(12, 0, 0)
			f.wantFinal("with a clock that is ahead", 1)
			if f.now = right; restarts {
				f.start()
			}
			f.use()
			f.at(10, 59, 59)
			f.at(11, 0, 3)
			f.wantFinal("three seconds after the hour", 2)
			if lag := f.closer.Lag(); lag != 0 {
				t.Errorf("the lag is %v when all hours are closed, want 0", lag)
			}
			f.use()
			f.now = f.now.Add(24 * time.Hour)
			f.at(12, 0, 0)
			f.now, f.complete = right, false
			f.use()
			f.at(12, 59, 59)
			f.wantFinal("while a node is missing", 3)
			f.at(13, 0, 0)
			f.wantFinal("two hours after the hour", 4)
			f.complete = true
			f.use()
			f.at(14, 0, 3)
			f.wantFinal("when no node is missing", 5)
		})
	}
}

// Guarantee: hours are kept for 35 days and days for 400, and no unit is lost between them.
func TestHoursBecomeDays(t *testing.T) {
	f := newFixture(t)
	f.complete = true
	for hour := range 3 {
		f.at(10+hour, 0, 3)
		f.use()
	}
	for _, step := range []struct {
		days            int
		hours, daysLeft int
	}{{34, 3, 0}, {37, 0, 1}, {390, 0, 1}, {402, 0, 0}} {
		f.now = time.Date(2026, 3, 1+step.days, 13, 0, 3, 0, time.UTC)
		if err := f.closer.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		hours, _ := f.final(usage.Hours)
		days, units := f.final(usage.Days)
		if hours != step.hours || days != step.daysLeft || days == 1 && units != 3 {
			t.Errorf("after %d days: %d hours and %d days with %d units, want %d and %d with 3", step.days, hours, days, units, step.hours, step.daysLeft)
		}
	}
}

// Guarantee: a closing that fails is repeated, and nothing is lost.
func TestClosingIsRepeated(t *testing.T) {
	f := newFixture(t)
	f.complete = true
	f.use()
	broken := errors.New("the store is away")
	fails := true
	closer, err := closing.New(closing.Config{Store: nodes{f.db, f}, Now: func() time.Time { return f.now }, Flush: func(ctx context.Context) error {
		if fails {
			return broken
		}
		return f.m.Sync(ctx)
	}})
	if err != nil {
		t.Fatal(err)
	}
	f.now = f.now.Add(time.Hour)
	if err := closer.Step(t.Context()); !errors.Is(err, broken) {
		t.Errorf("got %v, want the error of the store", err)
	}
	fails = false
	if err := closer.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.wantFinal("after the store is back", 1)
}
