package telemetry

import (
	"maps"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

// Guarantee: a histogram counts each duration in the same native and classic buckets as
// Prometheus' own histogram, also at the bounds of buckets.
func TestHistogramAgreesWithPrometheus(t *testing.T) {
	var classic []float64
	for _, b := range bounds() {
		classic = append(classic, b.Seconds())
	}
	reference := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "x", Help: "x", Buckets: classic, NativeHistogramBucketFactor: 1.1})
	scale, ours := newScale(), &histogram{}
	r := rand.New(rand.NewPCG(1, 2))
	observe := func(d time.Duration) {
		ours.observe(scale, int64(d))
		reference.Observe(float64(d) * 1e-9)
	}
	for range 20_000 {
		// From a microsecond to hours, evenly over the octaves.
		observe(time.Duration(math.Exp2(10 + 34*r.Float64())))
	}
	for _, b := range bounds() {
		for _, near := range []time.Duration{-1, 0, 1} {
			observe(b + near)
		}
	}
	for seconds := range 12 { // ends of octaves
		observe(time.Second << seconds)
	}
	var m dto.Metric
	if err := reference.Write(&m); err != nil {
		t.Fatal(err)
	}
	want, got := m.GetHistogram(), ours.message(scale, time.Time{})
	if got.GetSampleCount() != want.GetSampleCount() || got.GetSchema() != want.GetSchema() || math.Abs(got.GetSampleSum()/want.GetSampleSum()-1) > 1e-9 {
		t.Errorf("got count %d, schema %d, sum %g; want %d, %d, %g", got.GetSampleCount(), got.GetSchema(), got.GetSampleSum(),
			want.GetSampleCount(), want.GetSchema(), want.GetSampleSum())
	}
	if !maps.Equal(populations(got), populations(want)) {
		t.Errorf("got the native buckets\n%v\nwant\n%v", populations(got), populations(want))
	}
	if len(got.GetBucket()) != len(want.GetBucket()) {
		t.Fatalf("got %d classic buckets, want %d", len(got.GetBucket()), len(want.GetBucket()))
	}
	for i, b := range got.GetBucket() {
		if !proto.Equal(b, want.GetBucket()[i]) {
			t.Errorf("got the classic bucket %v, want %v", b, want.GetBucket()[i])
		}
	}
}

// populations returns the counts of the native buckets by index.
func populations(h *dto.Histogram) map[int]int64 {
	out := map[int]int64{}
	index, at, count := 0, 0, int64(0)
	for _, span := range h.GetPositiveSpan() {
		index += int(span.GetOffset())
		for range span.GetLength() {
			count += h.GetPositiveDelta()[at]
			if count != 0 {
				out[index] = count
			}
			index, at = index+1, at+1
		}
	}
	return out
}

// Guarantee: durations of zero, below zero and beyond all bounds are counted.
func TestHistogramTakesAnything(t *testing.T) {
	scale, h := newScale(), &histogram{}
	for _, d := range []int64{math.MinInt64, -1, 0, 1, 999, math.MaxInt64} {
		h.observe(scale, d)
	}
	total := int64(0)
	for _, n := range populations(h.message(scale, time.Time{})) {
		total += n
	}
	if h.count != 6 {
		t.Errorf("got the count %d, want 6", h.count)
	}
	if total != 6 {
		t.Errorf("got %d durations in buckets, want 6", total)
	}
}
