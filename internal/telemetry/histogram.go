package telemetry

import (
	"math"
	"math/bits"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	// schema 3 has 8 buckets for each power of two: a quantile is at most 9 %
	// off, and mostly less than 5 %.
	schema  = 3
	steps   = 1 << schema
	lowest  = -20 // the first octave ends at 2^-20 s, about 1 µs; what is shorter counts there
	highest = 16  // the last ends at 2^16 s, about 18 hours; what is longer counts there
	octaves = highest - lowest + 1
)

// bounds are the classic buckets, for a Prometheus that does not read native
// ones.
func bounds() [12]time.Duration {
	return [...]time.Duration{
		time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
		250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
	}
}

// scale knows the bounds of both kinds of buckets. It is never written after
// newScale.
type scale struct {
	classic [12]int64     // nanoseconds, inclusive
	first   [65]uint8     // the first classic bucket worth a look, by the length of the nanoseconds in bits
	within  [steps]uint64 // the bits of the fraction at which the buckets of an octave end, inclusive
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
		// Octave e holds what is above 2^(e-1) and at most 2^e.
		s.within[i] = fraction(math.Exp2(float64(i) / steps))
	}
	return s
}

// fraction returns the bits of f behind the point, which order like f does
// between two powers of two.
func fraction(f float64) uint64 { return math.Float64bits(f) & (1<<52 - 1) }

// native returns the octave, from 0, and the bucket in it.
func (s *scale) native(d int64) (octave, bucket int) {
	f := float64(d) * 1e-9
	exponent, part := int(math.Float64bits(f)>>52)-1023, fraction(f)
	// A power of two is the last of the octave that ends with it.
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

// histogram counts durations. Its zero value is empty. It allocates when an
// octave is met for the first time.
type histogram struct {
	count   uint64
	sum     int64          // nanoseconds
	classic [12]uint64     // each for itself
	pages   [octaves]*page // native buckets
}

type page [steps]uint64

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

// copyTo makes to a copy.
func (h *histogram) copyTo(to *histogram) {
	*to = *h
	for i, p := range h.pages {
		if p != nil {
			c := *p
			to.pages[i] = &c
		}
	}
}

// message returns h as Prometheus exchanges it, in seconds, both as a native and
// as a classic histogram.
func (h *histogram) message(s *scale, since time.Time) *dto.Histogram {
	sum, scheme, threshold, zero := float64(h.sum)/1e9, int32(schema), 0.0, uint64(0)
	out := &dto.Histogram{
		SampleCount: &h.count, SampleSum: &sum, Schema: &scheme, ZeroThreshold: &threshold, ZeroCount: &zero,
		CreatedTimestamp: timestamppb.New(since),
	}
	var cumulative uint64
	for i, n := range h.classic {
		cumulative += n
		upTo, bound := cumulative, time.Duration(s.classic[i]).Seconds()
		out.Bucket = append(out.Bucket, &dto.Bucket{CumulativeCount: &upTo, UpperBound: &bound})
	}
	var before int64 // the last bucket's count
	next := 0        // the index behind the last bucket
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
