package cost

import (
	"bytes"
	"strconv"

	"github.com/keygate/keygate/internal/fault"
)

// Weight is a number of units for one of something, in millionths: a decimal number with up to 6 decimals, from
// -MaxWeight to MaxWeight.
type Weight int64

// The bounds of weights (plans.md, section 5).
const (
	MaxWeight       = 1_000_000 * Weight(weightUnit)
	weightUnit      = 1_000_000
	weightDecimals  = 6
	badWeight       = "must be a number from -1000000 to 1000000 with at most 6 decimals, such as 0.25"
	maxNumberLength = 1024 // bytes of a number, in configurations and in responses
)

// ParseWeight parses a weight in decimal text, exactly. The error is a validation error without a field.
func ParseWeight(text string) (Weight, error) {
	d, ok := scanDecimal(text)
	if !ok || len(text) > maxNumberLength {
		return 0, fault.Invalid("", badWeight)
	}
	micros, rest, ok := d.scale(weightDecimals, uint64(MaxWeight))
	if !ok || rest {
		return 0, fault.Invalid("", badWeight)
	}
	if d.negative {
		return -Weight(micros), nil
	}
	return Weight(micros), nil
}

// String returns the shortest decimal text of w.
func (w Weight) String() string { return string(w.append(nil)) }

func (w Weight) append(b []byte) []byte {
	if w < 0 {
		b, w = append(b, '-'), -w
	}
	return appendDecimals(strconv.AppendInt(b, int64(w/weightUnit), 10), uint64(w%weightUnit), weightUnit)
}

// appendDecimals appends the dot and the decimals of n parts of one, or nothing for 0. one is a power of 10.
func appendDecimals(b []byte, n, one uint64) []byte {
	if n == 0 {
		return b
	}
	at := len(b)
	b = strconv.AppendUint(b, one+n, 10)
	b[at] = '.' // for the 1 of one
	return bytes.TrimRight(b, "0")
}

// times returns how many units n are at w each, rounded up. w is not negative. The result is at most MaxUnits.
func (w Weight) times(n int64) int64 {
	var s sum
	s.add(number{units: uint64(max(0, n))}, w)
	units, ok := s.roundUp()
	if !ok {
		return MaxUnits
	}
	return units
}
