// Package stats summarizes the runs of benchmarks: quantiles, and tables in
// Markdown.
package stats

import (
	"cmp"
	"math"
	"slices"
)

// Quantile returns the q-quantile of the values by the nearest-rank method: the
// smallest value such that at least the fraction q of all values is not above it.
// Without values it returns zero.
func Quantile[T cmp.Ordered](q float64, values ...T) T {
	if len(values) == 0 {
		return *new(T)
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted), max(1, int(math.Ceil(q*float64(len(sorted))))))-1]
}

// Median returns the middle value, or the mean of the two middle values. Without
// values it returns zero.
func Median[T ~int64 | ~float64](values ...T) T {
	lower := Quantile(0.5, values...)
	if n := len(values); n > 0 && n%2 == 0 {
		return (lower + slices.Sorted(slices.Values(values))[n/2]) / 2
	}
	return lower
}
