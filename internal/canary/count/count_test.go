package count

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/id"
)

// memory is a Store.
type memory struct {
	lists   map[string][]byte
	batches []accesslog.BatchID
	rows    []canary.CountRow
	err     error
}

func (m *memory) AppendCanaryCounts(_ context.Context, batch accesslog.BatchID, list []canary.CountRow) error {
	if m.err != nil {
		return m.err
	}
	m.batches = append(m.batches, batch)
	m.rows = append(m.rows, list...)
	return nil
}

func (m *memory) CanaryCallersLeftOut(_ context.Context, canaryIDs []string) (map[string][]byte, error) {
	lists := map[string][]byte{}
	for _, canaryID := range canaryIDs {
		if list, is := m.lists[canaryID]; is {
			lists[canaryID] = list
		}
	}
	return lists, nil
}

// harness is a Counter with virtual time.
type harness struct {
	*testing.T
	*Counter
	store *memory
	now   time.Time
	nodes int
}

func newHarness(t *testing.T) *harness {
	h := &harness{T: t, store: &memory{lists: map[string][]byte{}}, now: time.Unix(1e9, 0).UTC(), nodes: 1}
	c, err := New(Config{Store: h.store, Now: func() time.Time { return h.now }, Nodes: func() int { return h.nodes }})
	if err != nil {
		t.Fatal(err)
	}
	h.Counter = c
	return h
}

// canary returns a canary that leaves out callers.
func (h *harness) canary(leftOut ...uint64) (canaryID [16]byte) {
	h.Helper()
	return h.canaryOf([16]byte{}, leftOut...)
}

// canaryOf returns a canary of an account that leaves out callers.
func (h *harness) canaryOf(account [16]byte, leftOut ...uint64) (canaryID [16]byte) {
	h.Helper()
	text := id.New(id.Canary)
	canaryID, _ = id.Parse(id.Canary, text)
	h.store.lists[text] = canary.EncodeCallers(leftOut)
	h.Take([]accesslog.Entry{{Record: accesslog.Record{Canary: canaryID, Account: account}}})
	if err := h.Learn(h.Context()); err != nil {
		h.Fatal(err)
	}
	return canaryID
}

// take takes a record of the new upstream.
func (h *harness) take(canaryID [16]byte, caller uint64, change func(*accesslog.Record)) {
	r := accesslog.Record{Canary: canaryID, CanaryStep: 1, CanaryCaller: caller, CanaryNext: true, UpstreamStatus: 200, Upstream: int64(time.Millisecond), Duration: int64(time.Second)}
	if change != nil {
		change(&r)
	}
	h.Take([]accesslog.Entry{{Record: r}})
}

// tally returns the only row that the store has, and empties it.
func (h *harness) tally() (canary.CountRow, *canary.Tally) {
	h.Helper()
	if err := h.Sync(h.Context()); err != nil {
		h.Fatal(err)
	}
	if len(h.store.rows) != 1 {
		h.Fatalf("got %d rows, want 1", len(h.store.rows))
	}
	row, t := h.store.rows[0], &canary.Tally{}
	h.store.rows = nil
	if err := t.UnmarshalBinary(row.Data); err != nil {
		h.Fatal(err)
	}
	return row, t
}

// Guarantee (section 8): an upstream's 5xx, and 502 and 504 of the gateway, are bad; requests that were refused before they were
// sent, and those whose client has hung up, do not count; nor do callers who are left out. Of a request with a response, the time
// to its head is the latency.
func TestWhatCounts(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*accesslog.Record)
		want    canary.Counts
		latency time.Duration
	}{
		{"good", nil, canary.Counts{Requests: 1}, time.Millisecond},
		{"404", func(r *accesslog.Record) { r.UpstreamStatus = 404 }, canary.Counts{Requests: 1}, time.Millisecond},
		{"500", func(r *accesslog.Record) { r.UpstreamStatus = 500 }, canary.Counts{Requests: 1, Bad: 1}, time.Millisecond},
		{"502", func(r *accesslog.Record) { r.Result, r.UpstreamStatus, r.Upstream = accesslog.Unreachable, 0, -1 }, canary.Counts{Requests: 1, Bad: 1}, time.Second},
		{"504", func(r *accesslog.Record) { r.Result, r.UpstreamStatus, r.Upstream = accesslog.TimedOut, 0, -1 }, canary.Counts{Requests: 1, Bad: 1}, time.Second},
		{"client left", func(r *accesslog.Record) { r.Result, r.UpstreamStatus = accesslog.Abandoned, 0 }, canary.Counts{}, 0},
		{"limited", func(r *accesslog.Record) { r.Result = accesslog.Limited }, canary.Counts{}, 0},
		{"500 of the gateway", func(r *accesslog.Record) { r.Result = accesslog.Failed }, canary.Counts{}, 0},
		{"started", func(r *accesslog.Record) { r.Part = accesslog.Started }, canary.Counts{}, 0},
		{"ended", func(r *accesslog.Record) { r.Part = accesslog.Ended }, canary.Counts{Requests: 1}, time.Millisecond},
		{"left out", func(r *accesslog.Record) { r.CanaryCaller = 5 }, canary.Counts{}, 0},
		{"of no canary", func(r *accesslog.Record) { r.Canary = [16]byte{} }, canary.Counts{}, 0},
	} {
		h := newHarness(t)
		of := h.canary(5, 6)
		h.take(of, 1, c.change)
		h.take(of, 2, func(r *accesslog.Record) { r.CanaryNext = false })
		_, tally := h.tally()
		if got := tally.Counts(canary.Next); got != c.want || tally.Counts(canary.Other) != (canary.Counts{Requests: 1}) {
			t.Errorf("%s: got %+v and %+v, want %+v and one request", c.name, got, tally.Counts(canary.Other), c.want)
		}
		s := canary.NewStep()
		s.AddTally(0, tally)
		if p95, is := s.P95(canary.Next); is != (c.latency > 0) || is && (p95 < c.latency || p95 > c.latency*9/8) {
			t.Errorf("%s: got the latency %v, %t; want %v", c.name, p95, is, c.latency)
		}
	}
}

// Guarantee: nothing counts before it is decided whom a canary leaves out, and what no canary asked for is not read; steps are
// counted apart.
func TestCountsBeginWithTheList(t *testing.T) {
	h := newHarness(t)
	text := id.New(id.Canary)
	of, _ := id.Parse(id.Canary, text)
	learn := func() {
		t.Helper()
		if err := h.Learn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	h.take(of, 1, nil)
	learn() // it is not decided
	h.take(of, 1, nil)
	if err := h.Sync(t.Context()); err != nil || len(h.store.rows) > 0 {
		t.Fatalf("got %d rows and the error %v, want none", len(h.store.rows), err)
	}
	h.store.lists[text] = canary.EncodeCallers(nil)
	learn()
	h.take(of, 1, nil)
	h.take(of, 1, nil)
	h.now = h.now.Add(Interval)
	row, tally := h.tally()
	if row.CanaryID != text || row.Number != 1 || !row.At.Equal(h.now) || tally.Counts(canary.Next).Requests != 2 {
		t.Errorf("got %+v and %+v, want two requests of step 1", row, tally.Counts(canary.Next))
	}
	h.take(of, 1, nil)
	h.take(of, 1, func(r *accesslog.Record) { r.CanaryStep = 2 })
	if err := h.Sync(t.Context()); err != nil || len(h.store.rows) != 2 {
		t.Errorf("got %d rows and the error %v, want one for each step", len(h.store.rows), err)
	}
	h.now = h.now.Add(forgetAfter)
	if err := h.Sync(t.Context()); err != nil || len(h.lists) != 0 {
		t.Errorf("got %d lists and the error %v, want none after 10 minutes", len(h.lists), err)
	}
	h.store.lists[text] = []byte("damaged")
	h.take(of, 1, nil)
	if err := h.Learn(t.Context()); err == nil {
		t.Error("a damaged list is no error")
	}
	h.store.rows = nil
	h.take(of, 1, nil)
	if _, tally := h.tally(); tally.Counts(canary.Next).Requests != 1 {
		t.Error("with a damaged list nothing counts")
	}
}

// Guarantee: what was counted while the store is away is stored later; a batch whose result is unknown is stored again as it was.
func TestStoreIsAway(t *testing.T) {
	h := newHarness(t)
	of := h.canary()
	h.take(of, 1, nil)
	h.store.err = errors.New("away")
	for range 3 {
		if err := h.Sync(t.Context()); !errors.Is(err, h.store.err) {
			t.Fatalf("got %v, want that the store is away", err)
		}
		h.take(of, 2, nil)
	}
	if len(h.pending) != 1 || len(h.tallies) != 1 {
		t.Errorf("%d rows wait with %d tallies, want one of each", len(h.pending), len(h.tallies))
	}
	h.store.err = nil
	if err := h.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(h.store.rows) != 2 || len(h.store.batches) != 2 || h.store.batches[0].Number != 1 || h.store.batches[1].Number != 2 {
		t.Errorf("got %d rows in the batches %v, want one in each of two", len(h.store.rows), h.store.batches)
	}
}

// Guarantee: what a node tells apart between two writes is bounded, for a canary, for an account and in all, by the number of nodes;
// the rest counts together. A transaction has at most 2,000 rows; requests of more steps are lost, and counted as such.
func TestCountsAreBounded(t *testing.T) {
	h := newHarness(t)
	of := h.canary()
	for caller := range uint64(MaxCallers + 10) {
		h.take(of, caller, nil)
	}
	if _, tally := h.tally(); tally.Callers() != MaxCallers || tally.Counts(canary.Next).Requests != MaxCallers+10 {
		t.Errorf("got %d callers with %+v, want %d", tally.Callers(), tally.Counts(canary.Next), MaxCallers)
	}

	h = newHarness(t)
	h.nodes = 100 // 2,000 callers in all
	large, small := [16]byte{1}, [16]byte{2}
	for range 3 {
		of := h.canary()
		for caller := range uint64(2_000) {
			h.take(of, caller, func(r *accesslog.Record) { r.Account = large })
		}
	}
	of = h.canary()
	for caller := range uint64(2_000) {
		h.take(of, caller, func(r *accesslog.Record) { r.Account = small })
	}
	if h.callers.Of(large) != 1_500 || h.callers.Of(small) < 350 || h.callers.Taken() > 2_000 {
		t.Errorf("got %d callers of the large account, %d of the small one, and %d in all; want 1,500, 350 at least, and 2,000 at most", h.callers.Of(large), h.callers.Of(small), h.callers.Taken())
	}

	rows := make([]canary.CountRow, 3*maxRows)
	if n := batchLen(rows); n != maxRows {
		t.Errorf("a batch has %d rows, want %d", n, maxRows)
	}
	rows[0].Data, rows[1].Data = make([]byte, 2*maxBytes), make([]byte, 1)
	if n := batchLen(rows); n != 1 {
		t.Errorf("a batch with a large row has %d rows, want 1", n)
	}
}

// Guarantee: a node counts a bounded number of steps, and keeps a bounded number of lists, and of callers in them. However many canaries
// an account starts, those of other accounts are counted. A list for which there is no room leaves out nobody. Lists without requests
// are forgotten.
func TestListsAreBounded(t *testing.T) {
	large, small := [16]byte{1}, [16]byte{2}
	h := newHarness(t)
	take := func(account [16]byte, of [16]byte) {
		h.take(of, 1, func(r *accesslog.Record) { r.Account = account })
	}
	for range MaxTallies + 5 {
		take(large, h.canaryOf(large))
	}
	lost := h.Lost()
	take(small, h.canaryOf(small))
	if err := h.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := MaxTallies*3/4 + 1; len(h.store.rows) != want || lost == 0 || h.Lost() != lost || len(h.lists) != want {
		t.Errorf("got %d rows and %d lists, and %d and %d lost; want %d, and none of the small account", len(h.store.rows), len(h.lists), lost, h.Lost(), want)
	}
	h.now = h.now.Add(forgetAfter)
	if err := h.Sync(t.Context()); err != nil || len(h.lists)+h.kept.Taken()+h.counted.Taken() != 0 {
		t.Errorf("%d lists are kept without requests, or %d; %v", len(h.lists), h.kept.Taken(), err)
	}

	callers := make([]uint64, canary.MaxLeftOut)
	for i := range callers {
		callers[i] = uint64(i+1) * 0x9e3779b97f4a7c15
	}
	var last [16]byte
	for range 400 {
		last = h.canaryOf(large, callers...)
	}
	slots := 0
	for _, l := range h.lists {
		slots += len(l.slots)
	}
	if slots != MaxSlots*3/4 || h.slots.Taken() != slots || h.lists[last].has(callers[0]) || !h.lists[last].known {
		t.Errorf("the lists have %d slots, want %d, and none in the last one", slots, MaxSlots*3/4)
	}
	if of := h.lists[h.canaryOf(small, callers...)]; !of.has(callers[0]) {
		t.Error("the list of the small account has no callers")
	}
	h.now = h.now.Add(forgetAfter)
	if err := h.Sync(t.Context()); err != nil || h.slots.Taken() != 0 {
		t.Errorf("%d slots are taken without lists; %v", h.slots.Taken(), err)
	}
}

// Guarantee: counting a request of a caller that is known does not allocate.
func TestTakeDoesNotAllocate(t *testing.T) {
	h := newHarness(t)
	batch := entries(h.canary(), 100)
	h.Take(batch)
	if n := testing.AllocsPerRun(100, func() { h.Take(batch) }); n > 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}

// entries returns a batch of records of a number of callers.
func entries(of [16]byte, callers int) []accesslog.Entry {
	batch := make([]accesslog.Entry, 128)
	random := rand.New(rand.NewPCG(1, 2))
	principals := make([]uint64, callers)
	for i := range principals {
		principals[i] = random.Uint64()
	}
	for i := range batch {
		batch[i].Record = accesslog.Record{Canary: of, CanaryStep: 1, CanaryCaller: principals[random.IntN(callers)], CanaryNext: i%2 == 0, UpstreamStatus: 200, Upstream: random.Int64N(1e9)}
	}
	return batch
}

// BenchmarkTake counts a request in each iteration.
func BenchmarkTake(b *testing.B) {
	for _, callers := range []int{10, 10_000} {
		b.Run(fmt.Sprint(callers, " callers"), func(b *testing.B) {
			h := newHarness(&testing.T{})
			text := id.New(id.Canary)
			of, _ := id.Parse(id.Canary, text)
			leftOut := make([]uint64, canary.MaxLeftOut)
			for i := range leftOut {
				leftOut[i] = rand.Uint64()
			}
			h.lists[of] = &list{}
			h.lists[of].put(leftOut)
			batch := entries(of, callers)
			h.Take(batch)
			b.ReportAllocs()
			for n := 0; n < b.N; n += len(batch) {
				h.Take(batch)
			}
		})
	}
	b.Run("no canary", func(b *testing.B) {
		h := newHarness(&testing.T{})
		batch := entries([16]byte{}, 10)
		for n := 0; n < b.N; n += len(batch) {
			h.Take(batch)
		}
	})
}

// Guarantee: a list has exactly its callers.
func TestList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.OneOf(rapid.Uint64Range(0, 20), rapid.Uint64())
		callers := rapid.SliceOfDistinct(some, rapid.ID[uint64]).Draw(t, "callers")
		var l list
		l.put(callers)
		for _, caller := range append(rapid.SliceOf(some).Draw(t, "others"), callers...) {
			if got, want := l.has(caller), slices.Contains(callers, caller); got != want {
				t.Fatalf("%d: got %t, want %t", caller, got, want)
			}
		}
	})
}
