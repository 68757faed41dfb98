package traffic

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
)

// Caller is who came to which limits. Key is zero on a public route.
type Caller struct {
	Gateway, Route, Key [16]byte
}

func (c *Caller) compare(o *Caller) int {
	return cmp.Or(bytes.Compare(c.Gateway[:], o.Gateway[:]), bytes.Compare(c.Route[:], o.Route[:]), bytes.Compare(c.Key[:], o.Key[:]))
}

// Arrivals counts the requests of one minute that came to the limits of their
// route, by caller and second. The zero value is not ready: use NewArrivals.
type Arrivals struct {
	counts map[Caller]*[60]uint32
}

// NewArrivals returns an empty set.
func NewArrivals() *Arrivals { return &Arrivals{counts: map[Caller]*[60]uint32{}} }

// Len returns the number of callers.
func (a *Arrivals) Len() int { return len(a.counts) }

// Add counts n requests in a second, 0 to 59, of the minute.
func (a *Arrivals) Add(c Caller, second int, n uint32) {
	of := a.counts[c]
	if of == nil {
		of = new([60]uint32)
		a.counts[c] = of
	}
	of[second] += n
}

// AddBody adds the arrivals of a chunk of Seconds that keep accepts; nil accepts
// all.
func (a *Arrivals) AddBody(body []byte, keep func(*Caller) bool) error {
	r := newReader(body)
	for r.more() {
		c := Caller{Gateway: r.id(), Route: r.id(), Key: r.id()}
		kept := keep == nil || keep(&c)
		second := int64(0)
		for n := r.number(); n > 0 && r.err == nil; n-- {
			second += r.number()
			count := r.number()
			if second > 59 || count > 1<<32-1 {
				r.fail()
			}
			if kept && r.err == nil {
				a.Add(c, int(second), uint32(count))
			}
		}
	}
	return r.err
}

// Each calls f for each caller, in no certain order.
func (a *Arrivals) Each(f func(c *Caller, seconds *[60]uint32)) {
	for c, seconds := range a.counts {
		f(&c, seconds)
	}
}

// Chunks returns the arrivals as chunks of Seconds that are like c but for First, Last
// and Body.
func (a *Arrivals) Chunks(c Chunk) (made []Chunk) {
	c.Part = Seconds
	callers := slices.SortedFunc(maps.Keys(a.counts), func(x, y Caller) int { return x.compare(&y) })
	w := newWriter()
	for i := range callers {
		caller := &callers[i]
		if w.size() == 0 {
			c.First = caller.Gateway
		}
		w.arrivals(caller, a.counts[*caller])
		if i == len(callers)-1 || w.size() >= bodySize {
			c.Last, c.Body = caller.Gateway, w.body()
			made = append(made, c)
			w.reset()
		}
	}
	return made
}

func (w *writer) arrivals(c *Caller, seconds *[60]uint32) {
	w.id(c.Gateway)
	w.id(c.Route)
	w.id(c.Key)
	n := 0
	for _, count := range seconds {
		if count > 0 {
			n++
		}
	}
	w.number(int64(n))
	last := 0
	for second, count := range seconds {
		if count > 0 {
			w.number(int64(second - last))
			w.number(int64(count))
			last = second
		}
	}
}
