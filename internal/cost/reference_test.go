package cost_test

import (
	"bytes"
	"encoding/json"
	"io"
	"math/big"
	"strings"
	"unicode/utf8"

	"github.com/keygate/keygate/internal/cost"
)

// reference reads a whole body with encoding/json: what a Reader must find, written without any of its tricks. Fields that
// a value has that is not JSON are unspecified, so the figure of an invalid body only says that.
type reference struct {
	units   []map[string]any // what counts, in order
	invalid bool
	cut     bool // the last event is not JSON and has no end: a Reader may call it invalid or ignore it
}

func refer(contentType string, body []byte) *reference {
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	ref := &reference{}
	if contentType == "text/event-stream" {
		ref.readEvents(string(body))
	} else {
		ref.readValues(body)
	}
	return ref
}

func (ref *reference) readValues(body []byte) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	for {
		var v any
		switch err := d.Decode(&v); {
		case err == io.EOF:
			return
		case err != nil:
			ref.invalid = true
			return
		}
		if list, ok := v.([]any); ok {
			for _, v := range list {
				ref.add(v)
			}
		} else {
			ref.add(v)
		}
	}
}

func (ref *reference) add(v any) {
	if object, ok := v.(map[string]any); ok {
		ref.units = append(ref.units, object)
	}
}

func (ref *reference) readEvents(body string) {
	body = strings.ReplaceAll(strings.ReplaceAll(body, "\r\n", "\n"), "\r", "\n")
	for body != "" {
		event, rest, ended := strings.Cut("\n"+body, "\n\n")
		if body = rest; event == "" {
			continue
		}
		var data []string
		for line := range strings.SplitSeq(event, "\n") {
			if name, value, _ := strings.Cut(line, ":"); name == "data" {
				data = append(data, strings.TrimPrefix(value, " "))
			}
		}
		text := []byte(strings.Join(data, "\n"))
		var v any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if json.Valid(text) && d.Decode(&v) == nil {
			ref.add(v)
		} else if !ended {
			ref.cut = true
		}
	}
}

// lookUp returns the value of a path in an object, and whether it is there.
func lookUp(object map[string]any, path string) (any, bool) {
	segments := strings.Split(path, ".")
	for i, s := range segments {
		v, ok := object[s]
		if !ok || v == nil {
			return nil, false
		}
		if i == len(segments)-1 {
			return v, true
		}
		if object, ok = v.(map[string]any); !ok {
			return nil, false
		}
	}
	return nil, false
}

// last returns the value of a field in the last unit that has it.
func (ref *reference) last(field string) (v any, found bool) {
	for _, u := range ref.units {
		for path := range strings.SplitSeq(strings.TrimSuffix(field, "?"), "|") {
			if got, ok := lookUp(u, path); ok {
				v, found = got, true
				break
			}
		}
	}
	return v, found
}

func (ref *reference) figure(r *cost.Rule) (f cost.Figure) {
	fields := r.From.JSON
	if v, ok := ref.last(r.From.By); ok && r.From.By != "" {
		text := ""
		switch v := v.(type) {
		case string:
			text = v
		case json.Number:
			text = v.String()
		case bool:
			text = map[bool]string{true: "true", false: "false"}[v]
		}
		for _, p := range r.From.Prices {
			if p.Value == text {
				fields = p.Fields
			}
		}
	}
	reasons := map[cost.Reason]bool{}
	if ref.invalid {
		reasons[cost.Invalid] = true
	}
	sum := new(big.Rat)
	for _, field := range fields {
		v, ok := ref.last(field.Name)
		if !ok {
			if !strings.HasSuffix(field.Name, "?") {
				reasons[cost.Missing] = true
			}
			continue
		}
		f.Read = true
		n, reason := referNumber(v, field.Weight)
		if reason == cost.TooLarge && field.Weight > 0 {
			f.Units = cost.MaxUnits
		}
		if reason != cost.None {
			reasons[reason] = true
			continue
		}
		sum.Add(sum, n.Mul(n, big.NewRat(int64(field.Weight), 1_000_000)))
	}
	units := ceil(sum)
	if units.Cmp(big.NewInt(cost.MaxUnits)) > 0 {
		reasons[cost.TooLarge] = true
		f.Units = cost.MaxUnits
	}
	if f.Units == 0 && sum.Sign() > 0 {
		f.Units = units.Int64()
	}
	for _, reason := range cost.Reasons() {
		if reasons[reason] {
			f.Reason = reason
			return f
		}
	}
	f.Known = true
	return f
}

func ceil(r *big.Rat) *big.Int {
	up := new(big.Int).Add(r.Num(), new(big.Int).Sub(r.Denom(), big.NewInt(1)))
	return up.Div(up, r.Denom())
}

// referNumber returns a value with 9 decimals, rounded so that the cost is not lower.
func referNumber(v any, w cost.Weight) (*big.Rat, cost.Reason) {
	var text string
	switch v := v.(type) {
	case string:
		text = v
	case json.Number:
		text = v.String()
	default:
		return nil, cost.NotANumber
	}
	if len(text) > 1024 {
		return nil, cost.TooLong
	}
	// A large exponent would make a large number.
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	trimmed := strings.TrimLeft(strings.TrimLeft(exponent, "+-"), "0")
	digits := strings.Trim(mantissa, "-.0") != ""
	if h := cost.HeaderFigure(text); h.Reason == cost.NotANumber || strings.TrimSpace(text) != text {
		return nil, cost.NotANumber
	}
	switch {
	case !digits:
		return new(big.Rat), cost.None
	case text[0] == '-':
		return nil, cost.Negative
	case len(trimmed) > 4 && exponent[0] != '-':
		return nil, cost.TooLarge
	case len(trimmed) > 4:
		text = "1e-2000"
	}
	n, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, cost.NotANumber
	}
	if n.Cmp(big.NewRat(cost.MaxUnits, 1)) > 0 {
		return nil, cost.TooLarge
	}
	scale := big.NewRat(1_000_000_000, 1)
	n.Mul(n, scale)
	if w < 0 {
		n.SetInt(new(big.Int).Quo(n.Num(), n.Denom()))
	} else {
		n.SetInt(ceil(n))
	}
	return n.Quo(n, scale), cost.None
}

// nesting returns how deeply the brackets of a text nest, at most: more than values do, since it counts those in strings.
func nesting(body []byte) (most int) {
	depth := 0
	for _, c := range body {
		switch c {
		case '[', '{':
			depth++
			most = max(most, depth)
		case ']', '}':
			depth = max(0, depth-1)
		}
	}
	return most
}

// isComparable reports whether the reference reads the body as the package says.
func isComparable(body []byte) bool {
	return utf8.Valid(body) && nesting(body) <= 64 && len(body) < cost.MaxRead
}
