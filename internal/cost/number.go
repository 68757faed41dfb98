package cost

import (
	"math/bits"
	"strings"
)

// decimal is a scanned decimal number: 0.digits × 10^point. digits has no leading zeros, and is empty for 0; whole is
// the part of it before the dot of the text, and fraction what follows.
type decimal[T ~string | ~[]byte] struct {
	whole, fraction T
	point           int // how many digits are before the decimal point; negative for zeros after it
	negative        bool
}

// maxExponent bounds the exponents that are told apart. With any larger one a number of maxNumberLength bytes is too
// large, or below every decimal that counts.
const maxExponent = 10_000

// scanDecimal scans a decimal number: a JSON number, which may also have zeros before it.
func scanDecimal[T ~string | ~[]byte](text T) (d decimal[T], ok bool) {
	i := 0
	if i < len(text) && text[i] == '-' {
		d.negative = true
		i++
	}
	start := i
	for i < len(text) && isDigit(text[i]) {
		i++
	}
	d.whole = text[start:i]
	if len(d.whole) == 0 {
		return d, false
	}
	if i < len(text) && text[i] == '.' {
		start = i + 1
		for i++; i < len(text) && isDigit(text[i]); i++ {
		}
		d.fraction = text[start:i]
		if len(d.fraction) == 0 {
			return d, false
		}
	}
	exponent := 0
	if i < len(text) && text[i]|0x20 == 'e' {
		i++
		below := false
		if i < len(text) && (text[i] == '-' || text[i] == '+') {
			below = text[i] == '-'
			i++
		}
		if i == len(text) {
			return d, false
		}
		for ; i < len(text) && isDigit(text[i]); i++ {
			exponent = min(exponent*10+int(text[i]-'0'), maxExponent)
		}
		if below {
			exponent = -exponent
		}
	}
	if i < len(text) {
		return d, false
	}
	for len(d.whole) > 0 && d.whole[0] == '0' {
		d.whole = d.whole[1:]
	}
	d.point = len(d.whole) + exponent
	if len(d.whole) == 0 {
		for len(d.fraction) > 0 && d.fraction[0] == '0' {
			d.fraction = d.fraction[1:]
			d.point--
		}
	}
	if len(d.whole)+len(d.fraction) == 0 {
		d.negative = false // -0 is 0
	}
	return d, true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// digit returns the digit i of d, counted from its first one that is not 0, or 0 if it has none.
func (d *decimal[T]) digit(i int) uint64 {
	switch {
	case i < 0:
		return 0
	case i < len(d.whole):
		return uint64(d.whole[i] - '0')
	case i < len(d.whole)+len(d.fraction):
		return uint64(d.fraction[i-len(d.whole)] - '0')
	}
	return 0
}

func (d *decimal[T]) length() int { return len(d.whole) + len(d.fraction) }

// hasRest reports whether d has a digit other than 0 from i on.
func (d *decimal[T]) hasRest(i int) bool {
	for i = max(i, 0); i < d.length(); i++ {
		if d.digit(i) != 0 {
			return true
		}
	}
	return false
}

// scale returns the magnitude of d times 10^decimals, without its own decimals. rest is set if there are any. ok is
// false if it is above most, which must be below 2^63.
func (d *decimal[T]) scale(decimals int, most uint64) (n uint64, rest, ok bool) {
	if d.length() == 0 {
		return 0, false, true
	}
	end := d.point + decimals
	for i := range max(end, 0) { // ends early: the first digit is not 0
		if n = n*10 + d.digit(i); n > most {
			return 0, false, false
		}
	}
	return n, d.hasRest(end), true
}

// number is what a field or a header says: a number from 0 to MaxUnits.
type number struct {
	units uint64
	nanos uint32 // the first 9 decimals
	more  bool   // it has decimals beyond
}

const nanoDecimals = 9

// nanosPerUnit is 10^nanoDecimals.
const nanosPerUnit = 1_000_000_000

// parseNumber parses a decimal number of a response. The reason is None, NotANumber, Negative or TooLarge. It does not
// allocate.
func parseNumber[T ~string | ~[]byte](text T) (n number, reason Reason) {
	d, ok := scanDecimal(text)
	switch {
	case !ok:
		return n, NotANumber
	case d.negative:
		return n, Negative
	case d.length() == 0:
		return n, None
	}
	units, rest, ok := d.scale(0, MaxUnits)
	if !ok || rest && units == MaxUnits {
		return n, TooLarge
	}
	n.units = units
	if rest {
		for i := d.point; i < d.point+nanoDecimals; i++ {
			n.nanos = n.nanos*10 + uint32(d.digit(i))
		}
		n.more = d.hasRest(d.point + nanoDecimals)
	}
	return n, None
}

// roundUp returns the smallest whole number that is not below n.
func (n number) roundUp() int64 {
	if n.nanos > 0 || n.more {
		return int64(n.units) + 1
	}
	return int64(n.units)
}

// sum is a sum of products of numbers and weights, in 10^-15 units. It is exact for maxTerms terms: each is at most
// 2^53 × 10^9 × 10^12 < 2^123.
type sum struct{ plus, minus uint128 }

type uint128 struct{ high, low uint64 }

func (a uint128) plus(b uint128) uint128 {
	low, carry := bits.Add64(a.low, b.low, 0)
	high, _ := bits.Add64(a.high, b.high, carry)
	return uint128{high, low}
}

// times returns a × n, which must fit.
func (a uint128) times(n uint64) uint128 {
	high, low := bits.Mul64(a.low, n)
	return uint128{high + a.high*n, low}
}

func (s *sum) add(n number, w Weight) {
	to, by := &s.plus, uint64(w)
	nanos := uint64(n.nanos)
	switch {
	case w < 0:
		to, by = &s.minus, uint64(-w)
	case n.more:
		nanos++
	}
	*to = to.plus(uint128{low: n.units}.times(by).times(nanosPerUnit)).plus(uint128{low: nanos}.times(by))
}

// roundUp returns the sum as the smallest whole number that is not below it, and 0 for a negative one. ok is false if
// that is above MaxUnits.
func (s *sum) roundUp() (units int64, ok bool) {
	const one = nanosPerUnit * weightUnit
	low, borrow := bits.Sub64(s.plus.low, s.minus.low, 0)
	high, borrow := bits.Sub64(s.plus.high, s.minus.high, borrow)
	switch {
	case borrow != 0:
		return 0, true
	case high >= one:
		return MaxUnits, false
	}
	whole, rest := bits.Div64(high, low, one)
	if whole > MaxUnits || whole == MaxUnits && rest > 0 {
		return MaxUnits, false
	}
	if rest > 0 {
		whole++
	}
	return int64(whole), true
}

// trimSpace returns s without spaces and tabs around it.
func trimSpace(s string) string { return strings.Trim(s, " \t") }
