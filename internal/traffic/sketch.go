package traffic

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"time"
)

// A Sketch counts durations in units of 64 ns, in 64 bins for each power of two. The bins
// of one power of two are a page.
const (
	unitShift   = 6
	pageShift   = 6
	pageBins    = 1 << pageShift
	pages       = 36
	bins        = pages * pageBins
	longestUnit = 1<<(pages+pageShift-1) - 1
)

// Sketch is a log-linear histogram (like HdrHistogram). It estimates quantiles of durations
// with a relative error of at most 1/128 for durations from 4 µs, and an error of at most 32 ns for
// shorter ones. Durations above 39 hours count as 39 hours. Merging adds no error. The zero value
// is empty.
type Sketch struct {
	count uint64
	pages [pages]*[pageBins]uint64
}

// binOf returns the bin of a duration in nanoseconds.
func binOf(ns int64) int {
	u := uint64(max(ns, 0)) >> unitShift
	if u < pageBins {
		return int(u)
	}
	u = min(u, longestUnit)
	e := bits.Len64(u) - 1 - pageShift
	return e<<pageShift + int(u>>e)
}

// middle returns the middle of a bin in milliseconds.
func middle(bin int) float64 {
	low, width := uint64(bin), uint64(1)
	if bin >= pageBins {
		e := bin>>pageShift - 1
		low, width = uint64(bin&(pageBins-1)+pageBins)<<e, 1<<e
	}
	return (float64(low) + float64(width)/2) * (1 << unitShift) / float64(time.Millisecond)
}

// Add adds a duration in nanoseconds. It allocates only for the first duration of a page.
func (s *Sketch) Add(ns int64) { s.add(binOf(ns), 1) }

func (s *Sketch) add(bin int, n uint64) {
	p := s.pages[bin>>pageShift]
	if p == nil {
		p = new([pageBins]uint64)
		s.pages[bin>>pageShift] = p
	}
	p[bin&(pageBins-1)] += n
	s.count += n
}

// Count returns the number of durations.
func (s *Sketch) Count() uint64 { return s.count }

// Reset removes all counts and keeps the memory.
func (s *Sketch) Reset() {
	if s.count == 0 {
		return
	}
	s.count = 0
	for _, p := range s.pages {
		if p != nil {
			clear(p[:])
		}
	}
}

// Merge adds the counts of o.
func (s *Sketch) Merge(o *Sketch) {
	for i, p := range o.pages {
		if p == nil {
			continue
		}
		for j, n := range p {
			if n != 0 {
				s.add(i<<pageShift+j, n)
			}
		}
	}
}

// Append appends the encoded counts to dst: for each used bin, the distance from the
// previous one and the count.
func (s *Sketch) Append(dst []byte) []byte {
	last := 0
	for i, p := range s.pages {
		if p == nil {
			continue
		}
		for j, n := range p {
			if n != 0 {
				bin := i<<pageShift + j
				dst = binary.AppendUvarint(dst, uint64(bin-last))
				dst = binary.AppendUvarint(dst, n)
				last = bin
			}
		}
	}
	return dst
}

var errSketch = errors.New("latency sketch is damaged")

// MergeBytes adds counts encoded by Append. If it returns an error, it may have added some
// of them.
func (s *Sketch) MergeBytes(b []byte) error {
	bin := uint64(0)
	for len(b) > 0 {
		step, n := binary.Uvarint(b)
		if n <= 0 || step >= bins {
			return errSketch
		}
		count, m := binary.Uvarint(b[n:])
		if bin += step; m <= 0 || count == 0 || bin >= bins {
			return errSketch
		}
		b = b[n+m:]
		s.add(int(bin), count)
	}
	return nil
}

// Quantiles returns the quantiles, or nil if s is nil or empty.
func (s *Sketch) Quantiles() *Quantiles {
	if s == nil || s.count == 0 {
		return nil
	}
	return &Quantiles{P50: s.quantile(50), P90: s.quantile(90), P95: s.quantile(95), P99: s.quantile(99)}
}

// quantile returns the least duration that percent of all durations do not exceed, in
// milliseconds.
func (s *Sketch) quantile(percent uint64) float64 {
	hi, lo := bits.Mul64(s.count, percent)
	lo, carry := bits.Add64(lo, 99, 0)
	rank, _ := bits.Div64(hi+carry, lo, 100)
	for i, p := range s.pages {
		if p == nil {
			continue
		}
		for j, n := range p {
			if rank <= n {
				return middle(i<<pageShift + j)
			}
			rank -= n
		}
	}
	return 0
}
