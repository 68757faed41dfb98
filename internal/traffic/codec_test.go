package traffic

import (
	"testing"

	"pgregory.net/rapid"
)

func identifier(n int) (u [16]byte) {
	if n > 0 {
		u[0], u[1], u[15] = byte(n>>8), byte(n), 7
	}
	return u
}

func entries() *rapid.Generator[[]*Entry] {
	one := rapid.Custom(func(t *rapid.T) *Entry {
		small := rapid.IntRange(0, 40)
		e := &Entry{
			Identity: Identity{Gateway: identifier(small.Draw(t, "gateway")), Route: identifier(small.Draw(t, "route")), Key: identifier(small.Draw(t, "key")),
				Status: rapid.SampledFrom([]uint16{0, 101, 200, 204, 404, 429, 499, 502, 599, 65535}).Draw(t, "status")},
			Counts:  Counts{rapid.Int64Range(0, 1<<40).Draw(t, "requests"), 1, rapid.Int64Range(0, 1<<50).Draw(t, "in"), 2},
			Latency: new(Sketch), Upstream: new(Sketch),
		}
		for _, ns := range rapid.SliceOfN(rapid.Int64Range(0, 1<<40), 0, 5).Draw(t, "latencies") {
			e.Latency.Add(ns)
		}
		return e
	})
	return rapid.SliceOfN(one, 1, 100)
}

// Guarantee: chunks count what was added to them, however often
// they are merged and in whatever order; that their bounds hold; and that they are sorted.
func TestChunksKeepAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.SampledFrom([]Part{Gateways, Routes, Keys}).Draw(t, "part")
		all := entries().Draw(t, "entries")
		whole, total := NewMerger(part), Counts{}
		var bodies [][]byte
		for len(all) > 0 {
			n := rapid.IntRange(1, len(all)).Draw(t, "entries of a chunk")
			some := NewMerger(part)
			for _, e := range all[:n] {
				some.Add(e)
				total.Add(&e.Counts)
				whole.Add(e)
			}
			for _, c := range some.Chunks(Chunk{}) {
				bodies = append(bodies, c.Body)
			}
			all = all[n:]
		}
		again := NewMerger(part)
		for _, body := range bodies {
			if err := again.AddBody(body); err != nil {
				t.Fatal(err)
			}
		}
		if len(again.entries) != len(whole.entries) {
			t.Fatalf("%d entries, want %d", len(again.entries), len(whole.entries))
		}
		for i, want := range whole.entries {
			got := again.entries[i]
			if got == nil || got.Counts != want.Counts || part != Keys && (!same(got.Latency, want.Latency) || !same(got.Upstream, want.Upstream)) {
				t.Fatalf("%+v became %+v", want, got)
			}
		}
		requests := int64(0)
		for _, c := range again.Chunks(Chunk{}) {
			requests += c.Requests()
			var last *Identity
			err := rows(part, c.Body, func(e *row) error {
				i := e.Identity
				if b := i.bound(part); last != nil && last.compare(part, &i) >= 0 || string(b[:]) < string(c.First[:]) || string(b[:]) > string(c.Last[:]) {
					t.Fatalf("an entry is out of order or bounds")
				}
				last = &i
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if requests != total.Requests {
			t.Fatalf("%d requests, want %d", requests, total.Requests)
		}
	})
}

// TestLargeIntervalsAreSplit holds the guarantee that a report about one key reads little: bodies
// are bounded, and their bounds do not overlap.
func TestLargeIntervalsAreSplit(t *testing.T) {
	m := NewMerger(Keys)
	for n := range 5000 {
		m.Add(&Entry{Identity: Identity{Key: identifier(n + 1), Status: 200}, Counts: Counts{Requests: 1}})
	}
	made := m.Chunks(Chunk{})
	if len(made) < 3 {
		t.Fatalf("%d chunks", len(made))
	}
	for i := range made {
		if len(made[i].Body) > bodySize+200 {
			t.Errorf("a body of %d bytes", len(made[i].Body))
		}
		if i > 0 && string(made[i].First[:]) <= string(made[i-1].Last[:]) {
			t.Error("two chunks may have the same key")
		}
	}
}

// Guarantee: the seconds of callers are kept through chunks.
func TestArrivalsKeepAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want, got := NewArrivals(), NewArrivals()
		for range rapid.IntRange(1, 3).Draw(t, "flushes") {
			some := NewArrivals()
			for range rapid.IntRange(1, 50).Draw(t, "arrivals") {
				small := rapid.IntRange(0, 5)
				c := Caller{Gateway: identifier(small.Draw(t, "gateway")), Route: identifier(small.Draw(t, "route")), Key: identifier(small.Draw(t, "key"))}
				second, n := rapid.IntRange(0, 59).Draw(t, "second"), rapid.Uint32Range(1, 1<<20).Draw(t, "n")
				some.Add(c, second, n)
				want.Add(c, second, n)
			}
			for _, c := range some.Chunks(Chunk{}) {
				if err := got.AddBody(c.Body); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got.Len() != want.Len() {
			t.Fatalf("%d callers, want %d", got.Len(), want.Len())
		}
		for c, seconds := range want.counts {
			if *got.counts[c] != *seconds {
				t.Fatalf("the seconds of a caller became %v, want %v", *got.counts[c], *seconds)
			}
		}
	})
}

// FuzzBody holds that a damaged body is an error or some counts, and nothing worse.
func FuzzBody(f *testing.F) {
	m := NewMerger(Routes)
	m.Add(&Entry{Identity: Identity{Gateway: identifier(1), Route: identifier(2), Status: 200}, Counts: Counts{1, 2, 3, 4}, Latency: new(Sketch), Upstream: new(Sketch)})
	f.Add(byte(Routes), m.Chunks(Chunk{})[0].Body)
	a := NewArrivals()
	a.Add(Caller{Gateway: identifier(1)}, 59, 7)
	f.Add(byte(Seconds), a.Chunks(Chunk{})[0].Body)
	f.Add(byte(Keys), []byte{1, 0x80})
	f.Fuzz(func(t *testing.T, part byte, body []byte) {
		if p := Part(part % 4); p == Seconds {
			if a := NewArrivals(); a.AddBody(body) == nil {
				a.Chunks(Chunk{})
			}
		} else if m := NewMerger(p); m.AddBody(body) == nil {
			m.Chunks(Chunk{Part: p})
		}
	})
}
