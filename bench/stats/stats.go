// Package quantile sums up the runs of a benchmark.
package stats

import (
	"cmp"
	"math"
	"slices"
)

// Of returns the smallest of the values that is not below the part q of them,
// by nearest rank; of no values, zero.
func Quantile[T cmp.Ordered](q float64, values ...T) T {
	if len(values) == 0 {
		return *new(T)
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted), max(1, int(math.Ceil(q*float64(len(sorted))))))-1]
}

// Median returns the middle of the values, or what lies halfway between the
// two in the middle; of no values, zero.
func Median[T ~int64 | ~float64](values ...T) T {
	lower := Quantile(0.5, values...)
	if n := len(values); n > 0 && n%2 == 0 {
		return (lower + slices.Sorted(slices.Values(values))[n/2]) / 2
	}
	return lower
}
