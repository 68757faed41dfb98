package issuer

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Value is a value of a claim: a string, a number or a boolean. Two values are equal (==) if they have the same type
// and the same value, however a number is written.
type Value struct {
	kind jsontext.Kind // of its first character in JSON: '"', '0', 't' or 'f'
	text string        // of a string its characters, of a number the digits without zeros at the ends
	// Of a number: its sign, and how many digits are in front of the decimal point. Below 0, zeros follow the point.
	negative bool
	point    int
}

// errValue is the error for a JSON value that is not a Value.
var errValue = errors.New("must be a string, a number or a boolean")

// ParseValue reads a value. ok is false for null, objects and lists.
func ParseValue(content jsontext.Value) (v Value, ok bool) {
	switch v.kind = content.Kind(); v.kind {
	case '"':
		ok = json.Unmarshal(content, &v.text) == nil
		return v, ok
	case '0':
		return parseNumber(strings.TrimSpace(string(content)))
	case 't', 'f':
		return v, true
	default:
		return Value{}, false
	}
}

// parseNumber reads a number of JSON.
func parseNumber(text string) (v Value, ok bool) {
	v.kind = '0'
	text, v.negative = strings.CutPrefix(text, "-")
	mantissa, exponent := text, ""
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mantissa, exponent = text[:i], text[i+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	v.text = strings.TrimRight(digits, "0")
	if v.text == "" {
		return Value{kind: '0'}, true // zero has no sign and no exponent
	}
	v.point = len(whole) - (len(whole+fraction) - len(digits))
	if exponent != "" {
		// An exponent that does not fit becomes the largest one that does.
		e, err := strconv.ParseInt(exponent, 10, 32)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return Value{}, false
		}
		v.point += int(e)
	}
	return v, true
}

// Text returns the characters of a string.
func (v Value) Text() (text string, ok bool) { return v.text, v.kind == '"' }

// Seconds returns a number of seconds as whole seconds, rounded down, and nanoseconds. A number beyond 2⁵³ becomes
// that. ok is false if v is not a number.
func (v Value) Seconds() (seconds, nanoseconds int64, ok bool) {
	const most = 1 << 53
	switch {
	case v.kind != '0':
		return 0, 0, false
	case v.point > 16:
		seconds = most
	case v.point > -9:
		digits := v.text + strings.Repeat("0", max(0, v.point+9-len(v.text)))
		whole, rest := "0", strings.Repeat("0", max(0, -v.point))+digits[max(0, v.point):]
		if v.point > 0 {
			whole = digits[:v.point]
		}
		seconds, _ = strconv.ParseInt(whole, 10, 64)
		nanoseconds, _ = strconv.ParseInt(rest[:9], 10, 64)
	}
	if seconds >= most {
		seconds, nanoseconds = most, 0
	}
	if v.negative {
		seconds, nanoseconds = -seconds, -nanoseconds
		if nanoseconds < 0 {
			seconds, nanoseconds = seconds-1, nanoseconds+1e9
		}
	}
	return seconds, nanoseconds, true
}

// MarshalJSON writes the value as JSON. A number may be written differently from how it was given.
func (v Value) MarshalJSON() ([]byte, error) {
	switch v.kind {
	case '"':
		return json.Marshal(v.text)
	case '0':
		return []byte(v.number()), nil
	case 't', 'f':
		return json.Marshal(v.kind == 't')
	default:
		return nil, errValue
	}
}

// number returns a number as JSON.
func (v Value) number() string {
	sign := ""
	if v.negative {
		sign = "-"
	}
	switch digits := len(v.text); {
	case digits == 0:
		return "0"
	case v.point >= digits && v.point <= 20:
		return sign + v.text + strings.Repeat("0", v.point-digits)
	case v.point > 0 && v.point < digits:
		return sign + v.text[:v.point] + "." + v.text[v.point:]
	case v.point <= 0 && v.point > -6:
		return sign + "0." + strings.Repeat("0", -v.point) + v.text
	default:
		return sign + "0." + v.text + "e" + strconv.Itoa(min(v.point, math.MaxInt32))
	}
}

// UnmarshalJSON reads a value.
func (v *Value) UnmarshalJSON(content []byte) error {
	read, ok := ParseValue(content)
	if !ok {
		return errValue
	}
	*v = read
	return nil
}

// Values are the values of a claim, one of which a token must have. In JSON, one value may stand for itself.
type Values []Value

// MarshalJSON writes the values: one as itself, others as a list.
func (v Values) MarshalJSON() ([]byte, error) {
	if len(v) == 1 {
		return json.Marshal(v[0])
	}
	return json.Marshal([]Value(v))
}

// UnmarshalJSON reads a value or a list of them.
func (v *Values) UnmarshalJSON(content []byte) error {
	if jsontext.Value(content).Kind() == '[' {
		return json.Unmarshal(content, (*[]Value)(v))
	}
	*v = make(Values, 1)
	return json.Unmarshal(content, &(*v)[0])
}

// Match reports whether the value of a claim is one of v or, if it is a list, has one of them as an element.
func (v Values) Match(claim jsontext.Value) bool {
	if claim.Kind() != '[' {
		one, ok := ParseValue(claim)
		return ok && slices.Contains(v, one)
	}
	var elements []jsontext.Value
	if err := json.Unmarshal(claim, &elements); err != nil {
		return false
	}
	return slices.ContainsFunc(elements, func(e jsontext.Value) bool {
		one, ok := ParseValue(e)
		return ok && slices.Contains(v, one)
	})
}
