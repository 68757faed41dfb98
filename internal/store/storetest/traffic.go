package storetest

import (
	"context"
	"errors"
	"slices"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/traffic"
)

func uuidOf(n byte) (u [16]byte) {
	u[0], u[15] = n, 1
	return u
}

func newChunk(accountID string, p traffic.Part, t traffic.Tier, start int64, first, last byte) traffic.Chunk {
	return traffic.Chunk{AccountID: accountID, Part: p, Tier: t, Start: start, First: uuidOf(first), Last: uuidOf(last), Body: []byte{first, 0, last}}
}

func (h *harness) appendTraffic(chunks ...traffic.Chunk) {
	h.Helper()
	if err := h.AppendTraffic(h.Context(), accesslog.BatchID{}, chunks); err != nil {
		h.Fatal(err)
	}
}

func (h *harness) readTraffic(q traffic.ChunkQuery) (list []traffic.Chunk) {
	h.Helper()
	err := h.ReadTraffic(h.Context(), q, func(c *traffic.Chunk) error {
		kept := *c
		kept.Body = slices.Clone(c.Body)
		list = append(list, kept)
		return nil
	})
	if err != nil {
		h.Fatal(err)
	}
	return list
}

func (h *harness) replaceTraffic(gone, moved []int64, to traffic.State, added ...traffic.Chunk) {
	h.Helper()
	if err := h.ReplaceTraffic(h.Context(), gone, moved, to, added); err != nil {
		h.Fatal(err)
	}
}

// Guarantee: a chunk is returned unchanged, and only to queries for its account, part, time and
// range of identifiers.
func testTraffic(h *harness) {
	const a, b = "acct_a", "acct_b"
	h.appendTraffic()
	h.appendTraffic(
		newChunk(a, traffic.Keys, traffic.Minutes, 120, 5, 9),
		newChunk(a, traffic.Keys, traffic.Minutes, 60, 1, 4),
		newChunk(a, traffic.Keys, traffic.Minutes, 60, 5, 9),
		newChunk(a, traffic.Routes, traffic.Minutes, 60, 1, 9),
		newChunk(b, traffic.Keys, traffic.Minutes, 60, 1, 9),
		newChunk(a, traffic.Keys, traffic.Hours, 0, 1, 9),
		newChunk(a, traffic.Targets, traffic.TargetMinutes, 60, 1, 4),
		newChunk(a, traffic.Targets, traffic.TargetMinutes, 60, 5, 9),
		newChunk(a, traffic.Targets, traffic.TargetHours, 0, 1, 9),
	)
	all := traffic.ChunkQuery{AccountID: a, Part: traffic.Keys, From: 0, Before: 3600}
	got := h.readTraffic(all)
	want := []traffic.Chunk{
		newChunk(a, traffic.Keys, traffic.Minutes, 60, 1, 4),
		newChunk(a, traffic.Keys, traffic.Minutes, 60, 5, 9),
		newChunk(a, traffic.Keys, traffic.Minutes, 120, 5, 9),
	}
	for i := range got {
		if got[i].Seq == 0 {
			h.Error("a chunk has no sequence number")
		}
		got[i].Seq = 0
	}
	same(h, "chunks, the earliest first", got, want)

	count := func(what string, want int, change func(q *traffic.ChunkQuery)) {
		h.Helper()
		q := all
		change(&q)
		if got := h.readTraffic(q); len(got) != want {
			h.Errorf("%s: got %d chunks, want %d", what, len(got), want)
		}
	}
	count("from the second minute on", 1, func(q *traffic.ChunkQuery) { q.From = 120 })
	count("before the second minute", 2, func(q *traffic.ChunkQuery) { q.Before = 120 })
	count("another account", 1, func(q *traffic.ChunkQuery) { q.AccountID = b })
	count("another part", 1, func(q *traffic.ChunkQuery) { q.Part = traffic.Routes })
	for n, chunks := range map[byte]int{0: 0, 1: 1, 4: 1, 5: 2, 9: 2, 10: 0} {
		only := uuidOf(n)
		count("one identifier", chunks, func(q *traffic.ChunkQuery) { q.Only = &only })
	}
	// A query for a longer tier includes chunks that were not rolled up yet.
	count("hours", 4, func(q *traffic.ChunkQuery) { q.Tier = traffic.Hours })
	count("days", 4, func(q *traffic.ChunkQuery) { q.Tier = traffic.Days })

	for tier, chunks := range map[traffic.Tier]int{traffic.Minutes: 0, traffic.Days: 0, traffic.TargetMinutes: 2, traffic.TargetHours: 3, traffic.TargetDays: 3} {
		count("the tiers of targets", chunks, func(q *traffic.ChunkQuery) { q.Part, q.Tier = traffic.Targets, tier })
	}

	stop := errors.New("stop")
	if err := h.ReadTraffic(h.Context(), all, func(*traffic.Chunk) error { return stop }); !errors.Is(err, stop) {
		h.Errorf("ReadTraffic returned %v, want the callback's error", err)
	}
}

// Guarantee: chunks are replaced by their sum atomically, or not at all.
func testTrafficReplace(h *harness) {
	const a = "acct_a"
	q := traffic.ChunkQuery{AccountID: a, Part: traffic.Keys, Before: 7200}
	h.appendTraffic(newChunk(a, traffic.Keys, traffic.Minutes, 0, 1, 1), newChunk(a, traffic.Keys, traffic.Minutes, 0, 2, 2), newChunk(a, traffic.Keys, traffic.Minutes, 60, 3, 3))
	fresh := h.readTraffic(q)
	backlog := func(t traffic.Tier, s traffic.State, before int64) [][]int64 {
		h.Helper()
		list, err := h.TrafficBacklog(h.Context(), t, s, before, 100)
		if err != nil {
			h.Fatal(err)
		}
		seqs := [][]int64{}
		for _, b := range list {
			if b.AccountID != a || b.Part != traffic.Keys || b.Tier != t || b.State != s {
				h.Errorf("got the backlog %+v of another query", b)
			}
			seqs = append(seqs, b.Seqs)
		}
		return seqs
	}
	same(h, "fresh chunks by interval", backlog(traffic.Minutes, traffic.Fresh, 61), [][]int64{{fresh[0].Seq, fresh[1].Seq}, {fresh[2].Seq}})
	same(h, "fresh chunks of the first minute", backlog(traffic.Minutes, traffic.Fresh, 60), [][]int64{{fresh[0].Seq, fresh[1].Seq}})

	merged := newChunk(a, traffic.Keys, traffic.Minutes, 0, 1, 2)
	merged.State = traffic.Merged
	h.replaceTraffic([]int64{fresh[0].Seq, fresh[1].Seq}, []int64{fresh[2].Seq}, traffic.Merged, merged)
	two := h.readTraffic(q)
	if len(two) != 2 || two[0].State != traffic.Merged || two[1].State != traffic.Merged || two[0].First != merged.First || two[0].Last != merged.Last {
		h.Fatalf("after the merge: got %+v, want two merged chunks", two)
	}
	same(h, "nothing is fresh", backlog(traffic.Minutes, traffic.Fresh, 61), [][]int64{})

	// Chunks that were removed or moved were merged by another node.
	for _, try := range []struct{ gone, moved []int64 }{{gone: []int64{fresh[0].Seq}}, {moved: []int64{fresh[0].Seq}}, {moved: []int64{two[0].Seq}}} {
		err := h.ReplaceTraffic(h.Context(), append(try.gone, two[1].Seq), try.moved, traffic.Merged, []traffic.Chunk{merged})
		if fault.CodeOf(err) != fault.Conflict {
			h.Errorf("%+v: %v, want a conflict", try, err)
		}
		same(h, "after a conflict", h.readTraffic(q), two)
	}

	hour := newChunk(a, traffic.Keys, traffic.Hours, 0, 1, 3)
	hour.State = traffic.Merged
	h.replaceTraffic(nil, []int64{two[0].Seq, two[1].Seq}, traffic.Rolled, hour)
	if got := h.readTraffic(q); len(got) != 2 {
		h.Errorf("got %d chunks of minutes, want 2", len(got))
	}
	hours := q
	hours.Tier = traffic.Hours
	if got := h.readTraffic(hours); len(got) != 1 || got[0].Tier != traffic.Hours {
		h.Errorf("got %+v for the hour, want only the rolled-up chunk", got)
	}
	// The counts of a rolled-up chunk are in the hour, so no other node may add them to
	// another chunk or mark them as not rolled up.
	minutes := h.readTraffic(q)
	for _, try := range []struct {
		gone, moved []int64
		to          traffic.State
	}{{nil, []int64{two[0].Seq}, traffic.Merged}, {[]int64{two[0].Seq}, nil, traffic.Rolled}} {
		if err := h.ReplaceTraffic(h.Context(), try.gone, try.moved, try.to, []traffic.Chunk{merged}); fault.CodeOf(err) != fault.Conflict {
			h.Errorf("%+v of a rolled-up chunk: got the error %v, want a conflict", try, err)
		}
		same(h, "after a conflict over a rolled-up chunk", h.readTraffic(q), minutes)
	}
	var read []int64
	h.must(h.TrafficChunks(h.Context(), []int64{two[1].Seq, fresh[0].Seq, two[0].Seq}, func(c *traffic.Chunk) error {
		read = append(read, c.Seq)
		return nil
	}))
	same(h, "existing chunks by sequence number, in the given order", read, []int64{two[1].Seq, two[0].Seq})
}

// Guarantee: only rolled-up chunks are trimmed, the oldest first and in batches.
func testTrafficTrim(h *harness) {
	const a = "acct_a"
	var chunks []traffic.Chunk
	for start := range int64(5) {
		c := newChunk(a, traffic.Keys, traffic.Minutes, 60*start, 1, 1)
		if c.State = traffic.Rolled; start == 1 {
			c.State = traffic.Merged
		}
		chunks = append(chunks, c)
	}
	h.appendTraffic(chunks...)
	starts := func() (list []int64) {
		for _, c := range h.readTraffic(traffic.ChunkQuery{AccountID: a, Part: traffic.Keys, Before: 3600}) {
			list = append(list, c.Start)
		}
		return list
	}
	trim := func(p traffic.Part, t traffic.Tier, before int64, limit int) bool {
		h.Helper()
		more, err := h.TrimTraffic(h.Context(), p, t, before, limit)
		h.must(err)
		return more
	}
	trim(traffic.Routes, traffic.Minutes, 3600, 10)
	trim(traffic.Keys, traffic.Hours, 3600, 10)
	trim(traffic.Keys, traffic.Minutes, 3600, 0)
	same(h, "other parts and tiers", starts(), []int64{0, 60, 120, 180, 240})
	if !trim(traffic.Keys, traffic.Minutes, 240, 2) {
		h.Error("after a full batch, more is false, want true")
	}
	same(h, "after a batch", starts(), []int64{60, 180, 240})
	if trim(traffic.Keys, traffic.Minutes, 240, 2) {
		h.Error("after a batch that is not full, more is true, want false")
	}
	same(h, "after the last batch", starts(), []int64{60, 240})
}

// Guarantee: a read sees one state: a concurrent merge makes it count nothing twice and miss
// nothing.
func testTrafficReadIsOneState(h *harness) {
	const a = "acct_a"
	h.appendTraffic(newChunk(a, traffic.Keys, traffic.Minutes, 0, 1, 1), newChunk(a, traffic.Keys, traffic.Minutes, 60, 1, 1))
	q := traffic.ChunkQuery{AccountID: a, Part: traffic.Keys, Tier: traffic.Hours, Before: 3600}
	var seqs []int64
	for _, c := range h.readTraffic(q) {
		seqs = append(seqs, c.Seq)
	}
	read := 0
	h.must(h.ReadTraffic(h.Context(), q, func(*traffic.Chunk) error {
		if read++; read == 1 {
			h.replaceTraffic(nil, seqs, traffic.Rolled, newChunk(a, traffic.Keys, traffic.Hours, 0, 1, 1))
		}
		return nil
	}))
	if read != 2 {
		h.Errorf("got %d chunks during the merge, want the 2 from before it", read)
	}
	if got := h.readTraffic(q); len(got) != 1 {
		h.Errorf("got %d chunks after the merge, want 1", len(got))
	}
}

// Guarantee: any bytes are stored unchanged, and a cancelled append stores nothing.
func testTrafficBytes(h *harness) {
	rapid.Check(h.T, func(t *rapid.T) {
		a := id.New(id.Account)
		c := traffic.Chunk{AccountID: a, Part: traffic.Seconds, Tier: traffic.Minutes, State: traffic.Rolled, Start: rapid.Int64Range(0, 1<<40).Draw(t, "start"),
			Body: rapid.SliceOf(rapid.Byte()).Draw(t, "body")}
		copy(c.First[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "first"))
		copy(c.Last[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "last"))
		if len(c.Body) == 0 {
			c.Body = []byte{0}
		}
		cancelled, cancel := context.WithCancel(h.Context())
		cancel()
		if err := h.AppendTraffic(cancelled, accesslog.BatchID{}, []traffic.Chunk{c}); !errors.Is(err, context.Canceled) {
			t.Fatalf("a cancelled append returned %v, want context.Canceled", err)
		}
		h.appendTraffic(c)
		got := h.readTraffic(traffic.ChunkQuery{AccountID: a, Part: traffic.Seconds, Before: 1 << 41})
		if len(got) != 1 {
			t.Fatalf("got %d chunks, want 1", len(got))
		}
		got[0].Seq = 0
		same(t, "chunk", got[0], c)
	})
}
