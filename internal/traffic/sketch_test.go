package traffic

import (
	"math"
	"math/bits"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// durations draws nanoseconds of every magnitude.
func durations() *rapid.Generator[[]int64] {
	one := rapid.Custom(func(t *rapid.T) int64 {
		return rapid.Int64Range(0, 1<<rapid.IntRange(1, 56).Draw(t, "bits")).Draw(t, "ns")
	})
	return rapid.SliceOfN(one, 1, 200)
}

// near reports whether a quantile in milliseconds is within the promised error of
// a duration.
func near(ms float64, ns int64) bool {
	longest := float64(39 * time.Hour)
	return math.Abs(ms*1e6-math.Min(float64(ns), longest)) <= math.Max(math.Min(float64(ns), longest)/128, 32.001) || float64(ns) > longest && ms*1e6 > longest*127/128
}

// TestQuantilesAreNear holds the bound of the error: of many sketches that are merged, as
// they are or written and read again, each quantile is the one of all durations within 1/128.
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
		if read.Count() != uint64(len(all)) || merged != read && !same(&merged, &read) {
			t.Fatalf("what was written and read again is not what was merged")
		}
		slices.Sort(all)
		q := merged.Quantiles()
		for percent, got := range map[int]float64{50: q.P50, 90: q.P90, 95: q.P95, 99: q.P99} {
			if want := all[(len(all)*percent+99)/100-1]; !near(got, want) {
				t.Fatalf("p%d of %d durations is %v ms, want %d ns", percent, len(all), got, want)
			}
		}
	})
}

func same(a, b *Sketch) bool { return slices.Equal(a.Append(nil), b.Append(nil)) }

// TestBinsAreInOrder holds what quantiles need of the bins: longer durations have later
// ones, and each bin's middle is within the promised error of what falls into it.
func TestBinsAreInOrder(t *testing.T) {
	last := 0
	for ns := int64(0); ns < 1<<62; ns += max(1, ns>>8) {
		bin := binOf(ns)
		if bin < last || bin >= bins {
			t.Fatalf("%d ns falls into the bin %d after %d", ns, bin, last)
		}
		last = bin
		if !near(middle(bin), ns) {
			t.Fatalf("%d ns falls into a bin with the middle %v ms", ns, middle(bin))
		}
		if bits.Len64(uint64(ns)) == 63 {
			break
		}
	}
	if binOf(-5) != 0 {
		t.Error("a negative duration has no bin")
	}
}

// Guarantee: nothing measured is told as nothing.
func TestSketchOfNothing(t *testing.T) {
	var s Sketch
	if s.Quantiles() != nil || (*Sketch)(nil).Quantiles() != nil || len(s.Append(nil)) != 0 {
		t.Error("an empty sketch tells something")
	}
	s.Add(5)
	s.Reset()
	if s.Count() != 0 || s.Quantiles() != nil {
		t.Error("a sketch that was reset tells something")
	}
}

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
		if err := again.MergeBytes(s.Append(nil)); err != nil || again.Count() != s.Count() || !same(&s, &again) {
			t.Fatalf("what was read is not what was written: %v", err)
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
