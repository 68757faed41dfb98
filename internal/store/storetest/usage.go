package storetest

import (
	"slices"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/traffic"
	"github.com/keygate/keygate/internal/usage"
)

func (h *harness) usageBlocks(q usage.BlockQuery) (numbers []int64, bodies []string) {
	h.Helper()
	if q.Limit == 0 {
		q.Limit = 100
	}
	if q.Before == 0 {
		q.Before = 1 << 32
	}
	err := h.UsageBlocks(h.Context(), q, func(b *usage.Block) error {
		numbers, bodies = append(numbers, b.Number), append(bodies, string(b.Body))
		return nil
	})
	if err != nil {
		h.Fatal(err)
	}
	return numbers, bodies
}

// openChunk adds a chunk of usage and returns its sequence number.
func (h *harness) openChunk(accountID string, hour int64) int64 {
	h.Helper()
	h.appendTraffic(newChunk(accountID, traffic.Usage, traffic.Open, hour, 0, 0))
	list, err := h.TrafficBacklog(h.Context(), traffic.Open, traffic.Fresh, hour+1, 100)
	if err != nil {
		h.Fatal(err)
	}
	var seqs []int64
	for _, b := range list {
		if b.AccountID == accountID && b.Start == hour {
			seqs = append(seqs, b.Seqs...)
		}
	}
	return slices.Max(seqs)
}

func (h *harness) mustClose(c *usage.Closing, now time.Time) *usage.Closed {
	h.Helper()
	made, err := h.CloseUsage(h.Context(), c, now)
	if err != nil {
		h.Fatal(err)
	}
	return made
}

// wantKept checks the chunks that a closing has kept.
func (h *harness) wantKept(accountID string, hour int64, made *usage.Closed, want ...string) {
	h.Helper()
	list, err := h.TrafficBacklog(h.Context(), traffic.Open, traffic.Merged, hour+1, 10)
	if err != nil || len(list) != 1 || list[0].AccountID != accountID || list[0].Part != traffic.Usage || list[0].Start != hour || !slices.Equal(list[0].Seqs, made.Kept) {
		h.Errorf("got the chunks %+v and the error %v, want %v", list, err, made.Kept)
	}
	var bodies []string
	err = h.TrafficChunks(h.Context(), made.Kept, func(c *traffic.Chunk) error {
		bodies = append(bodies, string(c.Body))
		return nil
	})
	if err != nil || !slices.Equal(bodies, want) {
		h.Errorf("got the chunks %q and the error %v, want %q", bodies, err, want)
	}
}

// Guarantee: a closing puts blocks and chunks in the place of chunks, all or nothing and once; blocks are numbered without
// gaps; a closing that tells of records raises one event.
func testUsageClosing(h *harness) {
	const hour = 3600 * 400_000
	now := time.Unix(hour+3605, 0).UTC()
	a := h.insertAccount("usage").ID
	if end, err := h.UsageEnd(h.Context(), a, usage.Hours); err != nil || end != 0 {
		h.Errorf("got the end %d and the error %v, want 0", end, err)
	}
	first, second := h.openChunk(a, hour), h.openChunk(a, hour)
	made := h.mustClose(&usage.Closing{AccountID: a, Start: hour, Chunks: []int64{first, second}, Tell: 5,
		Made: []usage.Body{{Bytes: []byte("one"), Records: 2}, {Bytes: []byte("two"), Records: 3}}, Kept: []usage.Body{{Bytes: []byte("kept")}, {Bytes: []byte("too")}}}, now)
	h.wantKept(a, hour, made, "kept", "too")
	again := &usage.Closing{AccountID: a, Start: hour, Chunks: []int64{second, h.openChunk(a, hour)}, Made: []usage.Body{{Bytes: []byte("never")}}}
	if _, err := h.CloseUsage(h.Context(), again, now); fault.CodeOf(err) != fault.Conflict {
		h.Errorf("a chunk that was closed before: got %v, want a conflict", err)
	}
	again.Chunks, again.Made = again.Chunks[1:], []usage.Body{{Bytes: []byte("three"), Records: 1}}
	h.mustClose(again, now)
	h.mustClose(&usage.Closing{AccountID: a, Start: hour, Chunks: made.Kept, Tell: 7}, now)
	if numbers, bodies := h.usageBlocks(usage.BlockQuery{AccountID: a}); made.Last != 2 || !slices.Equal(numbers, []int64{1, 2, 3}) || !slices.Equal(bodies, []string{"one", "two", "three"}) {
		h.Errorf("got the blocks %v with %q, the last of the first two is said to be %d", numbers, bodies, made.Last)
	}
	for _, q := range []usage.BlockQuery{{AccountID: "acct_other"}, {AccountID: a, Tier: usage.Days}, {AccountID: a, From: hour + 1}, {AccountID: a, Before: hour}, {AccountID: a, First: 4}} {
		if numbers, _ := h.usageBlocks(q); len(numbers) != 0 {
			h.Errorf("%+v selects the blocks %v, want none", q, numbers)
		}
	}
	if numbers, _ := h.usageBlocks(usage.BlockQuery{AccountID: a, First: 2, Limit: 1, From: hour, Before: hour + 1}); !slices.Equal(numbers, []int64{2}) {
		h.Errorf("got the blocks %v, want number 2", numbers)
	}
	if end, err := h.UsageEnd(h.Context(), a, usage.Hours); err != nil || end != 3 {
		h.Errorf("got the end %d and the error %v, want 3", end, err)
	}
	var events []event.Event
	err := h.View(h.Context(), func(tx control.ReadTx) (err error) {
		events, err = tx.Events(h.Context(), a, control.EventFilter{Type: event.UsageFinalized}, control.Page{Limit: 10})
		return err
	})
	if err != nil || len(events) != 2 {
		h.Errorf("got %d events and the error %v, want 2", len(events), err)
	}

	// Days take the place of hours.
	old, err := h.OldUsage(h.Context(), hour+1, 10)
	if err != nil || len(old) != 1 || old[0].AccountID != a || old[0].Start != hour || !slices.Equal(old[0].Numbers, []int64{1, 2, 3}) {
		h.Fatalf("got the old blocks %+v and the error %v", old, err)
	}
	day := &usage.Closing{AccountID: a, Tier: usage.Days, Start: hour - hour%86400, Blocks: []int64{1, 3}, Made: []usage.Body{{Bytes: []byte("day")}}}
	h.mustClose(day, now)
	if _, err := h.CloseUsage(h.Context(), day, now); fault.CodeOf(err) != fault.Conflict {
		h.Errorf("blocks that are gone: got %v, want a conflict", err)
	}
	if numbers, _ := h.usageBlocks(usage.BlockQuery{AccountID: a}); !slices.Equal(numbers, []int64{2}) {
		h.Errorf("the hours have the blocks %v, want number 2", numbers)
	}
	h.mustClose(&usage.Closing{AccountID: a, Start: hour, Made: []usage.Body{{Bytes: []byte("four")}}}, now)
	if numbers, _ := h.usageBlocks(usage.BlockQuery{AccountID: a}); !slices.Equal(numbers, []int64{2, 4}) {
		h.Errorf("the hours have the blocks %v, want 2 and 4: a number is never used again", numbers)
	}
	for _, want := range []bool{true, false} {
		if more, err := h.TrimUsage(h.Context(), day.Start+1, 1); err != nil || more != want {
			h.Errorf("trimming: got more %v and the error %v, want %v", more, err, want)
		}
	}
	if numbers, _ := h.usageBlocks(usage.BlockQuery{AccountID: a, Tier: usage.Days}); len(numbers) != 0 {
		h.Errorf("the days have the blocks %v after they were trimmed", numbers)
	}
}

// Guarantee: of the hours that are closed, and of what a process has stored, what was noted last holds, also if it is of an earlier
// time: a clock that was ahead does not hold up what comes after it.
func testUsageState(h *harness) {
	state := func(until time.Time) (time.Time, bool) {
		h.Helper()
		closed, complete, err := h.UsageState(h.Context(), until)
		if err != nil {
			h.Fatal(err)
		}
		return closed, complete
	}
	hour := time.Unix(3600*400_000, 0)
	if closed, _ := state(hour); closed.Unix() != 0 {
		h.Errorf("hours are closed until %v, want the beginning of 1970", closed)
	}
	for _, until := range []time.Time{hour, hour.Add(-time.Hour)} {
		if err := h.EndUsage(h.Context(), until, until); err != nil {
			h.Fatal(err)
		}
		if closed, complete := state(hour); !closed.Equal(until) || !complete {
			h.Errorf("hours are closed until %v, and complete is %v; want %v, and that no node is missing", closed, complete, until)
		}
	}
	if err := h.MarkUsage(h.Context(), "process", hour); err != nil {
		h.Fatal(err)
	}
}
