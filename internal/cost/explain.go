package cost

import (
	"strconv"
	"strings"
)

const (
	maxExplained  = 256 // bytes that AppendRead appends
	shownOfPrice  = 64  // bytes of the value of by
	more          = ", …"
	missingFigure = " missing"
)

// AppendRead appends what was read for the rule i, which has FromJSON, as in "prompt_tokens 1,000 × 1, completion_tokens
// 51 × 4", in at most 256 bytes. If by selected a price, its value and a colon come first. It has names of fields and
// values of prices of the rule, and numbers, and nothing else of the body. It ends the reading as Figure does.
func (r *Reader) AppendRead(b []byte, i int) []byte {
	r.end()
	start := len(b)
	list, price := r.operands(i)
	if price >= 0 {
		value := r.program.rules[i].From.Prices[price].Value
		if len(value) > shownOfPrice {
			value = strings.ToValidUTF8(value[:shownOfPrice], "") + "…"
		}
		b = append(append(b, value...), ": "...)
	}
	for j := range list {
		before := len(b)
		if j > 0 {
			b = append(b, ", "...)
		}
		b = r.appendOperand(b, &list[j])
		room := start + maxExplained
		if j < len(list)-1 {
			room -= len(more)
		}
		if len(b) <= room {
			continue
		}
		if b = b[:before]; j == 0 {
			return append(b, more[len(", "):]...)
		}
		return append(b, more...)
	}
	return b
}

func (r *Reader) appendOperand(b []byte, o *operand) []byte {
	at := r.latest(o)
	if at < 0 {
		b = append(b, o.labels[0]...)
		if o.optional {
			return o.weight.append(append(b, " 0 × "...))
		}
		return append(b, missingFigure...)
	}
	b = append(append(b, o.labels[at]...), ' ')
	n := &r.scanner.numbers[o.slots[at]]
	if n.reason != None {
		return append(b, n.reason.String()...)
	}
	return o.weight.append(append(n.number.append(b), " × "...))
}

// append appends the decimal text of n, with commas between thousands. Decimals beyond the ninth are left out.
func (n number) append(b []byte) []byte {
	return appendDecimals(AppendUnits(b, int64(n.units)), uint64(n.nanos), nanosPerUnit)
}

// AppendUnits appends the decimal text of units, which are not negative, with commas between thousands.
func AppendUnits(b []byte, units int64) []byte {
	var room [20]byte
	digits := strconv.AppendInt(room[:0], units, 10)
	for i, c := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b = append(b, ',')
		}
		b = append(b, c)
	}
	return b
}
