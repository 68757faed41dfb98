package telemetry

import (
	"math"
	"math/bits"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	// Schema 3 of native histograms has 8 buckets for each power of two. A quantile
	// is at most 9 % off, and mostly less than 5 %.
	schema  = 3
	steps   = 1 << schema
	lowest  = -20 // the first octave ends at 2^-20 s, about 1 µs, and has everything shorter
	highest = 16  // the last octave ends at 2^16 s, about 18 hours, and has everything longer
	octaves = highest - lowest + 1
)

// bounds returns the upper bounds of the classic buckets, for a Prometheus server that
// does not read native histograms.
func bounds() [12]time.Duration {
	return [...]time.Duration{
		time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
		250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
	}
}

// scale has the bounds of the classic and the native buckets. It is immutable.
type scale struct {
	classic [12]int64     // nanoseconds, inclusive
	first   [65]uint8     // the first classic bucket that may hold a duration, by its bit length in nanoseconds
	within  [steps]uint64 // the fraction bits of the upper bounds of the buckets of an octave, inclusive
}

func newScale() *scale {
	s := &scale{}
	for i, b := range bounds() {
		s.classic[i] = int64(b)
	}
	for length := range s.first {
		for s.first[length] < uint8(len(s.classic)) && bits.Len64(uint64(s.classic[s.first[length]])) < length {
			s.first[length]++
		}
	}
	for i := range s.within {
		// Octave e has the durations above 2^(e-1) s and up to 2^e s.
		s.within[i] = fraction(math.Exp2(float64(i) / steps))
	}
	return s
}

// fraction returns the fraction bits of f. Between two powers of two they have the same
// order as f.
func fraction(f float64) uint64 { return math.Float64bits(f) & (1<<52 - 1) }

// native returns the index of the octave of d nanoseconds, and the index of the bucket in it.
func (s *scale) native(d int64) (octave, bucket int) {
	f := float64(d) * 1e-9
	exponent, part := int(math.Float64bits(f)>>52)-1023, fraction(f)
	// A power of two belongs to the octave that ends with it.
	if part == 0 {
		exponent, bucket = exponent-1, steps-1
	} else {
		for bucket < steps-1 && part > s.within[bucket+1] {
			bucket++
		}
	}
	switch octave = exponent + 1 - lowest; {
	case octave < 0:
		return 0, 0
	case octave >= octaves:
		return octaves - 1, steps - 1
	}
	return octave, bucket
}

// histogram counts durations. The zero value is empty. It allocates at the first duration
// of an octave.
type histogram struct {
	count   uint64
	sum     int64          // nanoseconds
	classic [12]uint64     // not cumulative
	pages   [octaves]*page // native buckets
}

type page [steps]uint64

// observe adds a duration of d nanoseconds.
func (h *histogram) observe(s *scale, d int64) {
	d = max(d, 1)
	h.count++
	h.sum += d
	i := int(s.first[bits.Len64(uint64(d))])
	for i < len(s.classic) && d > s.classic[i] {
		i++
	}
	if i < len(h.classic) {
		h.classic[i]++
	}
	octave, bucket := s.native(d)
	p := h.pages[octave]
	if p == nil {
		p = new(page)
		h.pages[octave] = p
	}
	p[bucket]++
}

// moveTo adds h to another histogram, and empties h. h keeps its pages.
func (h *histogram) moveTo(to *histogram) {
	to.count, to.sum = to.count+h.count, to.sum+h.sum
	h.count, h.sum = 0, 0
	move(h.classic[:], to.classic[:])
	for i, p := range h.pages {
		if p == nil {
			continue
		}
		if to.pages[i] == nil {
			to.pages[i] = new(page)
		}
		move(p[:], to.pages[i][:])
	}
}

// message returns h in the format of Prometheus, in seconds, with both native and classic
// buckets.
func (h *histogram) message(s *scale, since time.Time) *dto.Histogram {
	count, sum, scheme, threshold, zero := h.count, float64(h.sum)/1e9, int32(schema), 0.0, uint64(0)
	out := &dto.Histogram{
		SampleCount: &count, SampleSum: &sum, Schema: &scheme, ZeroThreshold: &threshold, ZeroCount: &zero,
		CreatedTimestamp: timestamppb.New(since),
	}
	var cumulative uint64
	for i, n := range h.classic {
		cumulative += n
		upTo, bound := cumulative, time.Duration(s.classic[i]).Seconds()
		out.Bucket = append(out.Bucket, &dto.Bucket{CumulativeCount: &upTo, UpperBound: &bound})
	}
	var before int64 // count of the previous bucket
	next := 0        // index after the previous bucket
	for octave, p := range h.pages {
		if p == nil {
			continue
		}
		for i, n := range p {
			if n == 0 {
				continue
			}
			// Bucket 0 ends at 1 s, index 8 at 2 s.
			index := (octave+lowest-1)*steps + i + 1
			if gap := int32(index - next); len(out.PositiveSpan) == 0 || gap > 0 {
				length := uint32(0)
				out.PositiveSpan = append(out.PositiveSpan, &dto.BucketSpan{Offset: &gap, Length: &length})
			}
			*out.PositiveSpan[len(out.PositiveSpan)-1].Length++
			out.PositiveDelta = append(out.PositiveDelta, int64(n)-before)
			before, next = int64(n), index+1
		}
	}
	return out
}
