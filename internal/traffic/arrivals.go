package traffic

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
)

// Flow is the requests of one key to one route. Key is zero on a public route.
type Flow struct {
	Gateway, Route, Key [16]byte
}

func (c *Flow) compare(o *Flow) int {
	return cmp.Or(bytes.Compare(c.Gateway[:], o.Gateway[:]), bytes.Compare(c.Route[:], o.Route[:]), bytes.Compare(c.Key[:], o.Key[:]))
}

// Arrivals counts the requests of one minute that reached the rate limits of their route,
// by flow and second. Use NewArrivals to create one.
type Arrivals struct {
	counts map[Flow]*[60]uint32
}

// NewArrivals returns Arrivals with no counts.
func NewArrivals() *Arrivals { return &Arrivals{counts: map[Flow]*[60]uint32{}} }

// Len returns the number of flows.
func (a *Arrivals) Len() int { return len(a.counts) }

// Add adds n requests in a second of the minute, from 0 to 59.
func (a *Arrivals) Add(c Flow, second int, n uint32) {
	of := a.counts[c]
	if of == nil {
		of = new([60]uint32)
		a.counts[c] = of
	}
	of[second] += n
}

// AddBody adds the arrivals of the body of a chunk with part Seconds or Methods.
func (a *Arrivals) AddBody(body []byte) error {
	return arrivals(body, func(c *Flow) func(int, uint32) {
		return func(second int, n uint32) { a.Add(*c, second, n) }
	})
}

// arrivals calls of for each flow of a body. It skips the flow if of returns nil, and otherwise calls the returned
// function for each second of the flow, in order.
func arrivals(body []byte, of func(c *Flow) func(second int, n uint32)) error {
	r := newReader(body)
	for r.more() {
		c := Flow{Gateway: r.id(), Route: r.id(), Key: r.id()}
		seconds := r.number()
		if r.err != nil {
			break
		}
		f, second := of(&c), int64(0)
		for ; seconds > 0 && r.err == nil; seconds-- {
			second += r.number()
			count := r.number()
			if second > 59 || count > 1<<32-1 {
				r.fail()
			}
			if f != nil && r.err == nil {
				f(int(second), uint32(count))
			}
		}
	}
	return r.err
}

// Chunks returns the arrivals as chunks with part Seconds, or with part Methods if c has that part. They are copies
// of c with their own First, Last and Body.
func (a *Arrivals) Chunks(c Chunk) []Chunk {
	if c.Part != Methods {
		c.Part = Seconds
	}
	flows := slices.SortedFunc(maps.Keys(a.counts), func(x, y Flow) int { return x.compare(&y) })
	w := NewWriter(c)
	var seconds []SecondCount
	for i := range flows {
		seconds = seconds[:0]
		for second, n := range a.counts[flows[i]] {
			if n > 0 {
				seconds = append(seconds, SecondCount{uint8(second), n})
			}
		}
		w.Arrivals(&flows[i], seconds)
	}
	return w.Chunks()
}
