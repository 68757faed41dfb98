package traffic

import (
	"math"
	"math/bits"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// durations generates durations of every magnitude, in nanoseconds.
func durations() *rapid.Generator[[]int64] {
	one := rapid.Custom(func(t *rapid.T) int64 {
		return rapid.Int64Range(0, 1<<rapid.IntRange(1, 56).Draw(t, "bits")).Draw(t, "ns")
	})
	return rapid.SliceOfN(one, 1, 200)
}

// near reports whether a quantile in milliseconds is within the error bound of a duration:
// 1/128, and at least 32 ns. Durations above 39 hours count as 39 hours.
func near(ms float64, ns int64) bool {
	longest := float64(39 * time.Hour)
	return math.Abs(ms*1e6-math.Min(float64(ns), longest)) <= math.Max(math.Min(float64(ns), longest)/128, 32.001) || float64(ns) > longest && ms*1e6 > longest*127/128
}

// Guarantee: the quantiles of merged sketches differ from the quantiles of all durations by at most
// 1/128, also if the sketches were encoded and decoded.
func TestQuantilesAreNear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []int64
		var merged, read Sketch
		for range rapid.IntRange(1, 5).Draw(t, "sketches") {
			var one Sketch
			for _, ns := range durations().Draw(t, "durations") {
				one.Add(ns)
				all = append(all, ns)
			}
			merged.Merge(&one)
			if err := read.MergeBytes(one.Append(nil)); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := read.Count(), uint64(len(all)); got != want {
			t.Fatalf("got %d durations in the decoded sketch, want %d", got, want)
		}
		if merged != read && !same(&merged, &read) {
			t.Fatal("the decoded sketch differs from the merged one, want the same")
		}
		slices.Sort(all)
		q := merged.Quantiles()
		for percent, got := range map[int]float64{50: q.P50, 90: q.P90, 95: q.P95, 99: q.P99} {
			if want := all[(len(all)*percent+99)/100-1]; !near(got, want) {
				t.Fatalf("p%d of %d durations is %v ms, want about %d ns", percent, len(all), got, want)
			}
		}
	})
}

// same reports whether two sketches have the same encoding.
func same(a, b *Sketch) bool { return slices.Equal(a.Append(nil), b.Append(nil)) }

// Guarantee: longer durations fall into later bins, and the middle of a bin is within the
// error bound of the durations in it.
func TestBinsAreInOrder(t *testing.T) {
	last := 0
	for ns := int64(0); ns < 1<<62; ns += max(1, ns>>8) {
		bin := binOf(ns)
		if bin < last || bin >= bins {
			t.Fatalf("%d ns falls into bin %d, want one from %d to %d", ns, bin, last, bins-1)
		}
		last = bin
		if !near(middle(bin), ns) {
			t.Fatalf("%d ns falls into a bin with the middle %v ms, want it within 1/128", ns, middle(bin))
		}
		if bits.Len64(uint64(ns)) == 63 {
			break
		}
	}
	if got := binOf(-5); got != 0 {
		t.Errorf("a negative duration falls into bin %d, want 0", got)
	}
}

// Guarantee: a sketch without durations has no quantiles, and an empty encoding.
func TestEmptySketch(t *testing.T) {
	var zero, reset Sketch
	reset.Add(5)
	reset.Reset()
	for name, s := range map[string]*Sketch{"zero": &zero, "nil": nil, "after Reset": &reset} {
		if got := s.Quantiles(); got != nil {
			t.Errorf("%s: got the quantiles %+v, want nil", name, got)
		}
	}
	if got := zero.Append(nil); len(got) != 0 {
		t.Errorf("got the encoding %x, want an empty one", got)
	}
	if got := reset.Count(); got != 0 {
		t.Errorf("got %d durations after Reset, want 0", got)
	}
}

// Guarantee: decoding does not panic for any bytes, and encoding a decoded sketch gives the
// same sketch.
func FuzzSketchBytes(f *testing.F) {
	var s Sketch
	for ns := int64(1); ns < 1<<50; ns *= 3 {
		s.Add(ns)
	}
	f.Add(s.Append(nil))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var s, again Sketch
		if err := s.MergeBytes(b); err != nil {
			return
		}
		if err := again.MergeBytes(s.Append(nil)); err != nil {
			t.Fatalf("decoding an encoded sketch: %v", err)
		}
		if again.Count() != s.Count() || !same(&s, &again) {
			t.Fatalf("got a sketch of %d durations, want the one of %d that was encoded", again.Count(), s.Count())
		}
	})
}

func BenchmarkSketchAdd(b *testing.B) {
	var s Sketch
	ns := int64(1)
	b.ReportAllocs()
	for b.Loop() {
		ns = (ns*31 + 1_000_003) & (1<<24 - 1)
		s.Add(ns)
	}
}
