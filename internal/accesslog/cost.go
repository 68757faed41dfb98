package accesslog

import (
	"encoding/binary"
	"iter"
)

// MaxCost is the number of bytes of all costs of an entry as text: four of the longest.
const MaxCost = 4 * (3*binary.MaxVarintLen16 + 2*binary.MaxVarintLen64 + 32 + 16 + 256)

// Cost is what a request was charged of one meter, by a rule of its route (plans.md, section 5).
type Cost struct {
	Meter    string // at most 32 bytes
	Units    int64
	Reserved int64  // what was taken before it was forwarded
	Unknown  string // why the cost is not known: the text of a cost.Reason; "" if it is
	Read     string // how it came about, as in "completion_tokens 51 × 4"; at most 256 bytes; "" for none
}

// AppendCost appends the text of c, for Texts.Cost, which may have up to four of them.
func AppendCost(b []byte, c *Cost) []byte {
	b = binary.AppendUvarint(b, uint64(c.Units))
	b = binary.AppendUvarint(b, uint64(c.Reserved))
	for _, s := range [...]string{c.Meter, c.Unknown, c.Read} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	return b
}

// Costs returns the costs of a text that AppendCost wrote. Their texts share its memory. It ends at the first that is
// damaged.
func Costs(text string) iter.Seq[Cost] {
	return func(yield func(Cost) bool) {
		p := packed{rest: text}
		for p.rest != "" {
			c := Cost{Units: p.number(), Reserved: p.number(), Meter: p.text(), Unknown: p.text(), Read: p.text()}
			if p.damaged || !yield(c) {
				return
			}
		}
	}
}

// packed is what is left of a text of costs or attempts: numbers as varints, and texts, each after its length.
type packed struct {
	rest    string
	damaged bool
}

func (p *packed) number() int64 {
	n, size := binary.Uvarint([]byte(p.rest[:min(len(p.rest), binary.MaxVarintLen64)]))
	if size <= 0 {
		p.damaged = true
		return 0
	}
	p.rest = p.rest[size:]
	return int64(n)
}

func (p *packed) text() string {
	n := p.number()
	if n < 0 || n > int64(len(p.rest)) {
		p.damaged = true
		return ""
	}
	s := p.rest[:n]
	p.rest = p.rest[n:]
	return s
}
