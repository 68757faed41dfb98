package cost

import (
	"strconv"
	"strings"

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
	b = strconv.AppendInt(b, int64(w/weightUnit), 10)
	if rest := w % weightUnit; rest != 0 {
		decimals := strconv.FormatInt(int64(weightUnit+rest), 10)[1:]
		b = append(append(b, '.'), strings.TrimRight(decimals, "0")...)
	}
	return b
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
