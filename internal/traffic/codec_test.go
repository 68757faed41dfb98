package traffic

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// identifier returns the identifier number n; for 0 it is zero.
func identifier(n int) (u [16]byte) {
	if n > 0 {
		u[0], u[1], u[15] = byte(n>>8), byte(n), 7
	}
	return u
}

// entries generates entries, some of which have the same identity.
func entries() *rapid.Generator[[]*Entry] {
	one := rapid.Custom(func(t *rapid.T) *Entry {
		small := rapid.IntRange(0, 40)
		e := &Entry{
			Identity: Identity{Gateway: identifier(small.Draw(t, "gateway")), Route: identifier(small.Draw(t, "route")), Key: identifier(small.Draw(t, "key")),
				Status: rapid.SampledFrom([]uint16{0, 101, 200, 204, 404, 429, 499, 502, 599, 65535}).Draw(t, "status")},
			To:      Destination{Upstream: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "upstream"), Target: rapid.SampledFrom([]string{"", "10.0.0.1:80", "10.0.0.2:80"}).Draw(t, "target")},
			Counts:  Counts{rapid.Int64Range(0, 1<<40).Draw(t, "requests"), 1, rapid.Int64Range(0, 1<<50).Draw(t, "in"), 2},
			Latency: new(Sketch), Upstream: new(Sketch),
		}
		for _, ns := range rapid.SliceOfN(rapid.Int64Range(0, 1<<40), 0, 5).Draw(t, "latencies") {
			e.Latency.Add(ns)
		}
		for _, meter := range rapid.SliceOfN(rapid.IntRange(0, 90), 0, 3).Draw(t, "meters") {
			e.Amounts.Add("m"+strconv.Itoa(meter), rapid.SampledFrom([]int64{0, 1, 1 << 40}).Draw(t, "units"))
		}
		return e
	})
	return rapid.SliceOfN(one, 1, 100)
}

// sumOf returns the units of all meters.
func sumOf(a Amounts) (n int64) {
	for _, one := range a {
		n += one.Units
	}
	return n
}

// Guarantee: merging chunks keeps all counts, units and latencies, however the entries were divided
// into chunks. The entries of a chunk are sorted and within its bounds.
func TestMergedChunksKeepAllCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.SampledFrom([]Part{Gateways, Routes, Keys, Targets, Subjects}).Draw(t, "part")
		all := entries().Draw(t, "entries")
		whole, total, units := NewMerger(part), Counts{}, int64(0)
		var bodies [][]byte
		for len(all) > 0 {
			n := rapid.IntRange(1, len(all)).Draw(t, "entries of a chunk")
			some := NewMerger(part)
			for _, e := range all[:n] {
				some.Add(e)
				total.Add(&e.Counts)
				units += sumOf(e.Amounts)
				whole.Add(e)
			}
			for _, c := range some.Chunks(Chunk{}) {
				bodies = append(bodies, c.Body)
			}
			all = all[n:]
		}
		merged := NewMerger(part)
		for _, body := range bodies {
			if err := merged.AddBody(body); err != nil {
				t.Fatal(err)
			}
		}
		if len(merged.entries) != len(whole.entries) {
			t.Fatalf("got %d entries, want %d", len(merged.entries), len(whole.entries))
		}
		for i, want := range whole.entries {
			got := merged.entries[i]
			if got == nil || got.Counts != want.Counts || got.To != want.To || sumOf(got.Amounts) != sumOf(want.Amounts) {
				t.Fatalf("got the entry %+v, want %+v", got, want)
			}
			if part.hasLatencies() && (!same(got.Latency, want.Latency) || !same(got.Upstream, want.Upstream)) {
				t.Fatalf("got other latencies in the entry %+v, want those of %+v", got, want)
			}
		}
		requests := int64(0)
		for _, c := range merged.Chunks(Chunk{}) {
			requests += c.Requests()
			var last *Identity
			err := rows(part, c.Body, func(e *row) error {
				i := e.Identity
				if last != nil && last.compare(part, &i) >= 0 {
					t.Fatalf("got the entry %+v after %+v, want them sorted", i, *last)
				}
				if b := i.bound(part); string(b[:]) < string(c.First[:]) || string(b[:]) > string(c.Last[:]) {
					t.Fatalf("got the bound %x of an entry, want it between %x and %x", b, c.First, c.Last)
				}
				last = &i
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if requests != total.Requests {
			t.Fatalf("got %d requests, want %d", requests, total.Requests)
		}
		meters := map[string]bool{}
		for _, e := range merged.entries {
			units -= sumOf(e.Amounts)
			for _, a := range e.Amounts {
				meters[a.Meter] = true
			}
		}
		if delete(meters, OtherMeter); units != 0 || len(meters) > MaxMeters {
			t.Fatalf("%d units are missing, and %d meters are told apart, want none and at most %d", units, len(meters), MaxMeters)
		}
	})
}

// Guarantee: the size of bodies is bounded, and the bounds of chunks do not overlap, so that a
// report about one key reads few chunks.
func TestLargeIntervalsAreSplit(t *testing.T) {
	m := NewMerger(Keys)
	for n := range 5000 {
		m.Add(&Entry{Identity: Identity{Key: identifier(n + 1), Status: 200}, Counts: Counts{Requests: 1}})
	}
	chunks := m.Chunks(Chunk{})
	if len(chunks) < 3 {
		t.Fatalf("got %d chunks, want at least 3", len(chunks))
	}
	for i := range chunks {
		if len(chunks[i].Body) > bodySize+200 {
			t.Errorf("got a body of %d bytes, want at most %d", len(chunks[i].Body), bodySize+200)
		}
		if i > 0 && string(chunks[i].First[:]) <= string(chunks[i-1].Last[:]) {
			t.Errorf("chunk %d begins at %x, want it after %x, the end of the previous one", i, chunks[i].First, chunks[i-1].Last)
		}
	}
}

// Guarantee: each entry has its own amounts, and a body without any has the form that earlier versions read.
func TestAmountsBelongToTheirEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := NewWriter(Chunk{Part: Keys})
		var want []Amounts
		for n := range rapid.IntRange(1, 2000).Draw(t, "entries") {
			var a Amounts
			if rapid.IntRange(0, 3).Draw(t, "has amounts") == 0 {
				for _, meter := range []string{"tokens", "cents", ""}[rapid.IntRange(0, 2).Draw(t, "from"):] {
					a = append(a, Amount{meter, rapid.Int64Min(1).Draw(t, meter)})
				}
			}
			want = append(want, a)
			w.Entry(&Entry{Identity: Identity{Key: identifier(n + 1)}, Counts: Counts{Requests: 1}, Amounts: a})
		}
		for _, c := range w.Chunks() {
			some := false
			if err := rows(Keys, c.Body, func(e *row) error {
				if !slices.Equal(e.Amounts, want[0]) {
					t.Fatalf("got the amounts %v of an entry, want %v", e.Amounts, want[0])
				}
				some, want = some || len(want[0]) > 0, want[1:]
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if c.Body[0] != version && !some || c.Body[0] != withAmounts && some {
				t.Fatalf("a body with amounts: %t, has the version %d", some, c.Body[0])
			}
		}
		if len(want) > 0 {
			t.Fatalf("%d entries are missing", len(want))
		}
	})
}

// Guarantee: the size of bodies is bounded with long addresses, too.
func TestBodiesOfTargetsAreBounded(t *testing.T) {
	m := NewMerger(Targets)
	for n := range 1000 {
		m.Add(&Entry{To: Destination{Upstream: "default", Target: strings.Repeat("x", 250) + strconv.Itoa(n)}, Counts: Counts{Requests: 1}})
	}
	requests := int64(0)
	for _, c := range m.Chunks(Chunk{}) {
		requests += c.Requests()
		if len(c.Body) > bodySize+400 {
			t.Errorf("got a body of %d bytes, want at most %d", len(c.Body), bodySize+400)
		}
	}
	if requests != 1000 {
		t.Errorf("got %d requests, want 1000", requests)
	}
}

// Guarantee: sums of the largest costs stay readable: they stop at the largest number.
func TestAmountsDoNotOverflow(t *testing.T) {
	var a Amounts
	for range 1025 {
		a.Add("tokens", 1<<53-1)
	}
	m := NewMerger(Routes)
	m.Add(&Entry{Amounts: a})
	for range 2 {
		if err := m.AddBody(m.Chunks(Chunk{})[0].Body); err != nil {
			t.Fatal(err)
		}
	}
	if got := m.at(Identity{}, nil).Amounts; !slices.Equal(got, Amounts{{"tokens", math.MaxInt64}}) {
		t.Errorf("got %v, want %d tokens", got, int64(math.MaxInt64))
	}
}

// Guarantee: merging the chunks of arrivals keeps the requests of each flow and second.
func TestMergedArrivalsKeepAllCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want, got := NewArrivals(), NewArrivals()
		for range rapid.IntRange(1, 3).Draw(t, "flushes") {
			some := NewArrivals()
			for range rapid.IntRange(1, 50).Draw(t, "arrivals") {
				small := rapid.IntRange(0, 5)
				c := Flow{Gateway: identifier(small.Draw(t, "gateway")), Route: identifier(small.Draw(t, "route")), Key: identifier(small.Draw(t, "key"))}
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
			t.Fatalf("got %d flows, want %d", got.Len(), want.Len())
		}
		for c, seconds := range want.counts {
			if *got.counts[c] != *seconds {
				t.Fatalf("got the seconds %v of a flow, want %v", *got.counts[c], *seconds)
			}
		}
	})
}

// Guarantee: a damaged body is an error or gives some counts, but does not panic.
func FuzzBody(f *testing.F) {
	m := NewMerger(Routes)
	m.Add(&Entry{Identity: Identity{Gateway: identifier(1), Route: identifier(2), Status: 200}, Counts: Counts{1, 2, 3, 4}, Latency: new(Sketch), Upstream: new(Sketch)})
	f.Add(byte(Routes), m.Chunks(Chunk{})[0].Body)
	m.Add(&Entry{Identity: Identity{Gateway: identifier(3)}, Amounts: Amounts{{"tokens", 7}, {"cents", 1}}})
	f.Add(byte(Routes), m.Chunks(Chunk{})[0].Body)
	m = NewMerger(Targets)
	m.Add(&Entry{Identity: Identity{Gateway: identifier(3)}, To: Destination{"next", "10.0.0.1:80", "next"}, Amounts: Amounts{{"tokens", 7}}})
	f.Add(byte(Targets), m.Chunks(Chunk{})[0].Body)
	m = NewMerger(Subjects)
	m.Add(&Entry{Identity: Identity{Gateway: identifier(3)}, To: Destination{Upstream: "iss_1", Target: "ada"}})
	f.Add(byte(Subjects), m.Chunks(Chunk{})[0].Body)
	a := NewArrivals()
	a.Add(Flow{Gateway: identifier(1)}, 59, 7)
	f.Add(byte(Seconds), a.Chunks(Chunk{})[0].Body)
	f.Add(byte(Keys), []byte{1, 0x80})
	f.Fuzz(func(t *testing.T, part byte, body []byte) {
		if p := Part(part % byte(Subjects+1)); p == Seconds {
			if a := NewArrivals(); a.AddBody(body) == nil {
				a.Chunks(Chunk{})
			}
		} else if m := NewMerger(p); m.AddBody(body) == nil {
			m.Chunks(Chunk{Part: p})
		}
	})
}
