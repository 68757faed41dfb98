package canary

import (
	"cmp"
	"iter"
	"math"
	"math/bits"
	"slices"
	"time"
)

// Sketch is a histogram of latencies, in 16 bins for each power of two of 64 µs: a bin is at most 1/16 wider than its lower
// edge. Latencies above an hour count as one hour. The zero value is empty.
type Sketch struct {
	count uint64
	bins  [sketchBins]uint32
}

const (
	sketchUnit = 64 * time.Microsecond
	octave     = 16
	sketchBins = 27 * octave
)

// binOf returns the bin of a latency.
func binOf(d time.Duration) int {
	u := uint64(max(0, d) / (sketchUnit / octave))
	if u < octave {
		return int(u)
	}
	e := bits.Len64(u) - bits.Len64(octave)
	return min(sketchBins-1, e*octave+int(u>>e))
}

// edge returns the lower edge of a bin: the least latency in it.
func edge(bin int) time.Duration {
	if bin < octave {
		return time.Duration(bin) * (sketchUnit / octave)
	}
	e := bin/octave - 1
	return time.Duration((bin%octave+octave)<<e) * (sketchUnit / octave)
}

// Add adds a latency.
func (s *Sketch) Add(d time.Duration) { s.AddBin(binOf(d), 1) }

// AddBin adds n latencies of a bin.
func (s *Sketch) AddBin(bin int, n uint32) {
	if x := &s.bins[bin]; *x <= math.MaxUint32-n {
		*x += n
		s.count += uint64(n)
	}
}

// Merge adds the latencies of o.
func (s *Sketch) Merge(o *Sketch) {
	if o.count == 0 {
		return
	}
	for bin, n := range o.all() {
		s.AddBin(bin, n)
	}
}

// all returns the bins that are not empty, in their order.
func (s *Sketch) all() iter.Seq2[int, uint32] {
	return func(yield func(int, uint32) bool) {
		for bin, n := range &s.bins {
			if n > 0 && !yield(bin, n) {
				return
			}
		}
	}
}

// upperP95 returns an upper bound of the 95th percentile, by 3 standard deviations of its rank. It is false if there are too
// few latencies for one.
func (s *Sketch) upperP95() (time.Duration, bool) {
	n := float64(s.count)
	return s.ranked(0.95*n + 3*math.Sqrt(n*0.95*0.05))
}

// P95 returns the 95th percentile, and false if there are no latencies.
func (s *Sketch) P95() (time.Duration, bool) { return s.ranked(0.95 * float64(s.count)) }

// ranked returns the upper edge of the bin of a rank.
func (s *Sketch) ranked(rank float64) (time.Duration, bool) {
	if rank > float64(s.count) || s.count == 0 {
		return 0, false
	}
	seen := uint64(0)
	for bin, n := range &s.bins {
		if seen += uint64(n); n > 0 && float64(seen) >= rank {
			return edge(bin + 1), true
		}
	}
	return 0, false
}

// slower returns how many latencies are certainly above d.
func (s *Sketch) slower(d time.Duration) (n uint64) {
	for bin := binOf(d) + 1; bin < sketchBins; bin++ {
		n += uint64(s.bins[bin])
	}
	return n
}

// sparse is a Sketch with few bins that are not empty, in their order.
type sparse []sparseBin

type sparseBin struct {
	bin uint16
	n   uint32
}

// add adds n latencies of a bin.
func (s sparse) add(bin uint16, n uint32) sparse {
	i, is := slices.BinarySearchFunc(s, bin, func(b sparseBin, bin uint16) int { return cmp.Compare(b.bin, bin) })
	if !is {
		return slices.Insert(s, i, sparseBin{bin, n})
	}
	if s[i].n <= math.MaxUint32-n {
		s[i].n += n
	}
	return s
}

// all is that of Sketch.
func (s sparse) all() iter.Seq2[int, uint32] {
	return func(yield func(int, uint32) bool) {
		for _, b := range s {
			if !yield(int(b.bin), b.n) {
				return
			}
		}
	}
}

func (s sparse) count() (n uint64) {
	for _, b := range s {
		n += uint64(b.n)
	}
	return n
}

// slower is that of Sketch.
func (s sparse) slower(d time.Duration) (n uint64) {
	limit := binOf(d)
	for _, b := range s {
		if int(b.bin) > limit {
			n += uint64(b.n)
		}
	}
	return n
}
