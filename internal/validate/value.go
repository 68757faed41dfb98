package validate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// kinds is a set of the types of JSON.
type kinds uint8

const (
	kindNull kinds = 1 << iota
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject

	anyKind = kindNull | kindBool | kindNumber | kindString | kindArray | kindObject
)

// value is a JSON value.
type value struct {
	kind    kinds // one of them
	boolean bool
	text    string // of a string
	number  number
	names   []string // of the members of an object, as long as items
	items   []value
	index   map[string]int // of names; nil if there are few
}

// fewMembers is the number of members up to which a linear search is as good as an index.
const fewMembers = 8

// indexMembers makes member fast.
func (v *value) indexMembers() {
	if len(v.names) <= fewMembers {
		return
	}
	v.index = make(map[string]int, len(v.names))
	for i, name := range v.names {
		v.index[name] = i
	}
}

// member returns the index of a member of an object, or -1.
func (v *value) member(name string) int {
	if v.index == nil {
		return slices.Index(v.names, name)
	}
	if i, ok := v.index[name]; ok {
		return i
	}
	return -1
}

// number is a JSON number, exactly: whole if it is not nil, else small.
type number struct {
	small int64
	exact *big.Rat
}

// The numbers that are compared exactly. Beyond that a short text would take seconds.
const (
	maxDigits   = 400
	maxExponent = 400
)

// parseNumber reads a number as JSON writes it. ok is false if it has too many digits or too large an exponent.
func parseNumber(text string) (n number, ok bool) {
	if len(text) <= 18 && strings.Trim(text, "0123456789-") == "" {
		small, err := strconv.ParseInt(text, 10, 64)
		return number{small: small}, err == nil
	}
	if len(text) > maxDigits {
		return number{}, false
	}
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		exponent, err := strconv.Atoi(strings.TrimPrefix(text[at+1:], "+"))
		if err != nil || exponent < -maxExponent || exponent > maxExponent {
			return number{}, false
		}
	}
	exact, ok := new(big.Rat).SetString(text)
	if !ok {
		return number{}, false
	}
	n = exactly(exact)
	return n, !math.IsInf(n.float(), 0) // RFC 8259, 6: services read numbers as those of IEEE 754
}

func exactly(r *big.Rat) number {
	if r.IsInt() && r.Num().IsInt64() {
		return number{small: r.Num().Int64()}
	}
	return number{exact: r}
}

// float returns the number of IEEE 754 that a service reads.
func (n number) float() float64 {
	if n.exact == nil {
		return float64(n.small)
	}
	f, _ := n.exact.Float64()
	return f
}

// isAbove reports whether n is greater than other, exactly and as a service reads both. So a number so near to the bound that it is read
// as the bound is not.
func (n number) isAbove(other number) bool {
	if n.compare(other) <= 0 {
		return false
	}
	return n.isInteger() && other.isInteger() || n.float() > other.float()
}

func (n number) isInteger() bool { return n.exact == nil || n.exact.IsInt() }

// bits returns how long the number is, which says how much work it makes; 0 for one of a word.
func (n number) bits() int {
	if n.exact == nil {
		return 0
	}
	return n.exact.Num().BitLen() + n.exact.Denom().BitLen()
}

func (n number) rat() *big.Rat {
	if n.exact != nil {
		return n.exact
	}
	return new(big.Rat).SetInt64(n.small)
}

func (n number) compare(other number) int {
	if n.exact == nil && other.exact == nil {
		return cmp.Compare(n.small, other.small)
	}
	return n.rat().Cmp(other.rat())
}

// isMultiple reports whether n is a whole multiple of other, which is not 0.
func (n number) isMultiple(other number) bool {
	if n.exact == nil && other.exact == nil {
		return n.small%other.small == 0
	}
	return new(big.Rat).Quo(n.rat(), other.rat()).IsInt()
}

// String returns the number as a message shows it.
func (n number) String() string {
	if n.exact == nil {
		return strconv.FormatInt(n.small, 10)
	}
	if digits, exact := n.exact.FloatPrec(); exact {
		return n.exact.FloatString(digits)
	}
	return n.exact.String()
}

// appendCanonical appends a text that two values share only if they are equal (JSON Schema, 4.2.2).
func (v *value) appendCanonical(b []byte) []byte {
	switch v.kind {
	case kindNull:
		return append(b, 'n')
	case kindBool:
		return strconv.AppendBool(b, v.boolean)
	case kindNumber:
		if v.number.exact == nil {
			return append(strconv.AppendInt(append(b, '#'), v.number.small, 10), ';')
		}
		return append(append(append(b, '#'), v.number.exact.String()...), ';')
	case kindString:
		return appendText(b, v.text)
	case kindArray:
		b = append(b, '[')
		for i := range v.items {
			b = v.items[i].appendCanonical(b)
		}
		return append(b, ']')
	}
	order := make([]int, len(v.names))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(v.names[i], v.names[j]) })
	b = append(b, '{')
	for _, i := range order {
		b = v.items[i].appendCanonical(appendText(b, v.names[i]))
	}
	return append(b, '}')
}

// kindOfCanonical returns the type of the value that a text of appendCanonical stands for.
func kindOfCanonical(text string) kinds {
	switch text[0] {
	case 'n':
		return kindNull
	case 't', 'f':
		return kindBool
	case '#':
		return kindNumber
	case '"':
		return kindString
	case '[':
		return kindArray
	}
	return kindObject
}

func appendText(b []byte, s string) []byte {
	b = append(strconv.AppendInt(append(b, '"'), int64(len(s)), 10), ':')
	return append(b, s...)
}

// The reasons why a JSON text is not checked.
var (
	errSyntax    = errors.New("is not valid JSON")
	errDuplicate = errors.New("has an object with two members of one name")
	errTrailing  = errors.New("goes on after its JSON value")
	errDepth     = errors.New("is nested too deeply")
	errNumber    = errors.New("has a number that is too large or too precise")
)

// parseJSON parses one JSON text (RFC 8259), in UTF-8, whose names are unique. The error is one of those above.
func parseJSON(text []byte) (*value, error) {
	r := jsonReader{dec: jsontext.NewDecoder(bytes.NewBuffer(text))}
	v, err := r.read(0)
	if err != nil {
		return nil, err
	}
	if _, err := r.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errTrailing
	}
	return &v, nil
}

type jsonReader struct{ dec *jsontext.Decoder }

// failed returns the error for one of the decoder.
func failed(err error) error {
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return errDuplicate
	}
	return errSyntax
}

func (r *jsonReader) read(depth int) (value, error) {
	token, err := r.dec.ReadToken()
	if err != nil {
		return value{}, failed(err)
	}
	if depth > maxDepth {
		return value{}, errDepth
	}
	switch token.Kind() {
	case 'n':
		return value{kind: kindNull}, nil
	case 't', 'f':
		return value{kind: kindBool, boolean: token.Bool()}, nil
	case '"':
		return value{kind: kindString, text: token.String()}, nil
	case '0':
		n, ok := parseNumber(token.String())
		if !ok {
			return value{}, errNumber
		}
		return value{kind: kindNumber, number: n}, nil
	case '[':
		v := value{kind: kindArray}
		for r.dec.PeekKind() != ']' {
			item, err := r.read(depth + 1)
			if err != nil {
				return value{}, err
			}
			v.items = append(v.items, item)
		}
		_, err := r.dec.ReadToken()
		return v, err
	}
	v := value{kind: kindObject}
	for r.dec.PeekKind() != '}' {
		name, err := r.dec.ReadToken()
		if err != nil {
			return value{}, failed(err)
		}
		v.names = append(v.names, name.String())
		item, err := r.read(depth + 1)
		if err != nil {
			return value{}, err
		}
		v.items = append(v.items, item)
	}
	v.indexMembers()
	_, err = r.dec.ReadToken()
	return v, err
}

// fromAny returns the value that a package for JSON has decoded. ok is false for a number that is not exact.
func fromAny(decoded any) (v value, ok bool) {
	switch x := decoded.(type) {
	case nil:
		return value{kind: kindNull}, true
	case bool:
		return value{kind: kindBool, boolean: x}, true
	case string:
		return value{kind: kindString, text: x}, true
	case json.Number:
		n, ok := parseNumber(string(x))
		return value{kind: kindNumber, number: n}, ok
	case []any:
		v = value{kind: kindArray, items: make([]value, len(x))}
		for i := range x {
			if v.items[i], ok = fromAny(x[i]); !ok {
				return v, false
			}
		}
		return v, true
	case map[string]any:
		v = value{kind: kindObject}
		for name, item := range x {
			member, ok := fromAny(item)
			if !ok {
				return v, false
			}
			v.names, v.items = append(v.names, name), append(v.items, member)
		}
		v.indexMembers()
		return v, true
	}
	return v, false
}
