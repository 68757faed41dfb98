package stats_test

import (
	"testing"

	"github.com/keygate/keygate/bench/stats"
)

// Guarantee: a quantile is one of the values, by nearest rank, in any order of the
// values.
func TestQuantileIsTheNearestRank(t *testing.T) {
	for _, c := range []struct {
		q      float64
		values []int
		want   int
	}{
		{0.5, nil, 0}, {0, []int{7}, 7}, {1, []int{7}, 7},
		{0.5, []int{3, 1}, 1}, {0.5, []int{9, 1, 5}, 5},
		{0.99, []int{4, 3, 2, 1}, 4}, {0.25, []int{4, 3, 2, 1}, 1}, {0.26, []int{4, 3, 2, 1}, 2},
	} {
		if got := stats.Quantile(c.q, c.values...); got != c.want {
			t.Errorf("quantile %g of %v is %d, want %d", c.q, c.values, got, c.want)
		}
	}
}

// Guarantee: the median of an even number of values is the mean of the middle two.
func TestMedianOfAnEvenNumber(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 5}, 5}, {[]float64{8, 1, 2, 4}, 3}} {
		if got := stats.Median(c.values...); got != c.want {
			t.Errorf("median of %v is %g, want %g", c.values, got, c.want)
		}
	}
}
