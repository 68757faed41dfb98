package canary

import "math"

// Of a confidence sequence, the chance that the true rate is ever outside of its bounds, for each step.
const (
	nextError  = 0.008
	otherError = 0.002
)

// The mixture is Beta(½, 5): rates are expected to be low.
const (
	mixtureA = 0.5
	mixtureB = 5
)

// Bounds returns the bounds of a rate of which x of n were seen: all q with
//
//	B(x+½, n−x+5) ÷ B(½, 5) < qˣ(1−q)ⁿ⁻ˣ ÷ a
//
// The chance that the rate is ever outside of them is at most a, however often one looks (Robbins' mixture method).
func Bounds(x, n uint64, a float64) (lower, upper float64) {
	return lowerBound(x, n, a), upperBound(x, n, a)
}

// evidence returns the logarithm of the likelihood that q needs to be within the bounds.
func evidence(x, n uint64, a float64) float64 {
	return logBeta(float64(x)+mixtureA, float64(n-x)+mixtureB) - logBeta(mixtureA, mixtureB) + math.Log(a)
}

func lowerBound(x, n uint64, a float64) float64 {
	if x == 0 {
		return 0
	}
	return bound(x, n, a, 0)
}

func upperBound(x, n uint64, a float64) float64 {
	if x == n {
		return 1
	}
	return bound(x, n, a, 1)
}

const bisections = 48

// bound returns the bound between the observed rate and a rate outside of the bounds, which it approaches from outside.
func bound(x, n uint64, a, outside float64) float64 {
	needed, inside := evidence(x, n, a), float64(x)/float64(n)
	for range bisections {
		if q := (outside + inside) / 2; logLikelihood(x, n, q) > needed {
			inside = q
		} else {
			outside = q
		}
	}
	return outside
}

// logLikelihood returns the logarithm of qˣ(1−q)ⁿ⁻ˣ for 0 < q < 1.
func logLikelihood(x, n uint64, q float64) float64 {
	return float64(x)*math.Log(q) + float64(n-x)*math.Log1p(-q)
}

func logBeta(a, b float64) float64 {
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	lab, _ := math.Lgamma(a + b)
	return la + lb - lab
}
