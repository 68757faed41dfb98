package traffic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// bodySize is the size, in bytes, at which a body is complete. It bounds how much of an interval a
// report about one key reads.
const bodySize = 32 << 10

// version is the first byte of a body. Then follow the identifiers, each once, and the
// entries, which refer to identifiers by their indexes.
//
// A body with amounts has withAmounts instead. Between its identifiers and its entries are the meters, each once, and the
// amounts of the entries that have some: how many entries lie between, and the amounts, with meters by their indexes.
//
// A body of part Targets or Subjects has withDestinations. It is like one with amounts, even if there are none. Then follow the
// destinations, each once, as three texts, to which the entries refer by their indexes.
const (
	version          = 1
	withAmounts      = 2
	withDestinations = 3
)

// Writer encodes entries as chunks. Entries must be added in the order of the part. The
// chunks differ only in First, Last and Body.
type Writer struct {
	like Chunk
	made []Chunk

	ids     []byte
	indexes map[[16]byte]uint64 // of gateways and routes
	lastKey uint64              // the index of the last key, plus one
	entries []byte
	scratch []byte

	meters  []string // at most MaxMeters and OtherMeter of each chunk or Merger that is written
	amounts []byte
	without int64 // entries since the last one with amounts

	to      []byte
	toIndex map[[16]byte]uint64 // of destinations
}

// NewWriter returns a Writer whose chunks are copies of c with their own First, Last and
// Body.
func NewWriter(c Chunk) *Writer { return &Writer{like: c, indexes: map[[16]byte]uint64{}} }

// Entry adds e. Entries must be ordered by gateway in parts Gateways, Targets and Subjects, by route
// in part Routes, and by key in part Keys.
func (w *Writer) Entry(e *Entry) {
	p := w.like.Part
	w.begin(e.bound(p))
	w.id(e.Gateway)
	switch p {
	case Routes:
		w.id(e.Route)
	case Keys:
		w.id(e.Route)
		w.key(e.Key)
	case Targets, Subjects:
		w.destination(e)
	}
	w.number(int64(e.Status))
	w.number(e.Requests)
	w.number(e.UpstreamErrors)
	w.number(e.BytesIn)
	w.number(e.BytesOut)
	if p.hasLatencies() {
		w.sketch(e.Latency)
		w.sketch(e.Upstream)
	}
	w.addAmounts(e.Amounts)
}

// addAmounts adds the amounts of the entry that was added last.
func (w *Writer) addAmounts(amounts Amounts) {
	if len(amounts) == 0 {
		w.without++
		return
	}
	w.amounts = binary.AppendUvarint(binary.AppendUvarint(w.amounts, uint64(w.without)), uint64(len(amounts)))
	w.without = 0
	for _, a := range amounts {
		index := slices.Index(w.meters, a.Meter)
		if index < 0 {
			index = len(w.meters)
			w.meters = append(w.meters, a.Meter)
		}
		w.amounts = binary.AppendUvarint(binary.AppendUvarint(w.amounts, uint64(index)), uint64(a.Units))
	}
}

// SecondCount is the number of requests in one second, from 0 to 59, of a minute.
type SecondCount struct {
	Second uint8
	Count  uint32
}

// Arrivals adds the requests of a flow, ordered by second. Flows must be ordered by
// gateway. A flow may be added more than once.
func (w *Writer) Arrivals(c *Flow, seconds []SecondCount) {
	w.begin(c.Gateway)
	w.id(c.Gateway)
	w.id(c.Route)
	if w.like.Part == Methods { // there are few
		w.id(c.Key)
	} else {
		w.key(c.Key)
	}
	w.number(int64(len(seconds)))
	last := uint8(0)
	for _, s := range seconds {
		w.number(int64(s.Second - last))
		w.number(int64(s.Count))
		last = s.Second
	}
}

// Chunks returns the chunks of everything that was added.
func (w *Writer) Chunks() []Chunk {
	if len(w.entries) > 0 {
		w.end()
	}
	return w.made
}

// begin starts an entry whose identifier for First and Last is bound.
func (w *Writer) begin(bound [16]byte) {
	if len(w.ids)+len(w.entries)+len(w.amounts)+len(w.to) >= bodySize {
		w.end()
	}
	if len(w.entries) == 0 {
		w.like.First = bound
	}
	w.like.Last = bound
}

// end completes a body.
func (w *Writer) end() {
	b := make([]byte, 0, 16+len(w.ids)+len(w.entries)+len(w.amounts)+len(w.to))
	form := byte(version)
	switch {
	case w.like.Part.hasDestinations():
		form = withDestinations
	case len(w.meters) > 0:
		form = withAmounts
	}
	b = append(b, form)
	b = binary.AppendUvarint(b, uint64(len(w.ids)/16))
	b = append(b, w.ids...)
	if form != version {
		b = binary.AppendUvarint(b, uint64(len(w.meters)))
		for _, meter := range w.meters {
			b = append(binary.AppendUvarint(b, uint64(len(meter))), meter...)
		}
		b = append(binary.AppendUvarint(b, uint64(len(w.amounts))), w.amounts...)
	}
	if form == withDestinations {
		b = append(binary.AppendUvarint(b, uint64(len(w.toIndex))), w.to...)
	}
	b = append(b, w.entries...)
	w.like.Body = b
	w.made = append(w.made, w.like)
	w.ids, w.entries, w.lastKey = w.ids[:0], w.entries[:0], 0
	w.meters, w.amounts, w.without, w.to = w.meters[:0], w.amounts[:0], 0, w.to[:0]
	clear(w.indexes)
	clear(w.toIndex)
}

func (w *Writer) number(n int64) { w.entries = binary.AppendUvarint(w.entries, uint64(n)) }

func (w *Writer) id(id [16]byte) {
	index, known := w.indexes[id]
	if !known {
		index = uint64(len(w.ids) / 16)
		w.indexes[id] = index
		w.ids = append(w.ids, id[:]...)
	}
	w.entries = binary.AppendUvarint(w.entries, index)
}

// key does the same as id for identifiers that are nearly in order: it compares only with the last
// identifier.
func (w *Writer) key(id [16]byte) {
	if w.lastKey == 0 || [16]byte(w.ids[16*w.lastKey-16:]) != id {
		w.ids = append(w.ids, id[:]...)
		w.lastKey = uint64(len(w.ids) / 16)
	}
	w.entries = binary.AppendUvarint(w.entries, w.lastKey-1)
}

func (w *Writer) destination(e *Entry) {
	index, known := w.toIndex[e.Destination]
	if !known {
		if w.toIndex == nil {
			w.toIndex = map[[16]byte]uint64{}
		}
		index = uint64(len(w.toIndex))
		w.toIndex[e.Destination] = index
		for _, s := range [...]string{e.To.Upstream, e.To.Target, e.To.Side} {
			w.to = append(binary.AppendUvarint(w.to, uint64(len(s))), s...)
		}
	}
	w.entries = binary.AppendUvarint(w.entries, index)
}

func (w *Writer) sketch(s *Sketch) {
	w.scratch = w.scratch[:0]
	if s != nil {
		w.scratch = s.Append(w.scratch)
	}
	w.number(int64(len(w.scratch)))
	w.entries = append(w.entries, w.scratch...)
}

// reader decodes a body. After its first error it returns zero values.
type reader struct {
	ids     []byte
	meters  []string
	amounts *reader // nil if no later entry has amounts
	until   int64   // entries before the next one with amounts
	to      []destination
	b       []byte
	err     error
}

// destination is a Destination with its identifier.
type destination struct {
	Destination
	id [16]byte
}

var errBody = errors.New("traffic chunk is damaged")

func newReader(body []byte) *reader {
	r := &reader{}
	if len(body) == 0 || body[0] < version || body[0] > withDestinations {
		r.err = fmt.Errorf("%w: unknown version", errBody)
		return r
	}
	r.b = body[1:]
	if n := r.number(); n > int64(len(r.b)/16) {
		r.err = errBody
	} else {
		r.ids, r.b = r.b[:16*n], r.b[16*n:]
	}
	if body[0] >= withAmounts {
		r.beginAmounts()
	}
	if body[0] == withDestinations {
		for n := r.number(); n > 0 && r.err == nil; n-- {
			d := Destination{Upstream: string(r.bytes()), Target: string(r.bytes()), Side: string(r.bytes())}
			r.to = append(r.to, destination{d, d.ID()})
		}
	}
	return r
}

// beginAmounts reads the meters, and how many entries have no amounts before the first that has some.
func (r *reader) beginAmounts() {
	n := r.number()
	for ; n > 0 && r.err == nil; n-- {
		r.meters = append(r.meters, string(r.bytes()))
	}
	r.amounts = &reader{b: r.bytes()}
	r.skipAmounts()
}

// skipAmounts reads how many entries have no amounts before the next one that has some.
func (r *reader) skipAmounts() {
	if !r.amounts.more() {
		r.amounts = nil
		return
	}
	r.until = r.amounts.number()
}

// rowAmounts appends the amounts of the next entry to a.
func (r *reader) rowAmounts(a Amounts) Amounts {
	if r.amounts == nil {
		return a
	}
	if r.until > 0 {
		r.until--
		return a
	}
	for n := r.amounts.number(); n > 0 && r.amounts.err == nil; n-- {
		meter, units := r.amounts.number(), r.amounts.number()
		if meter >= int64(len(r.meters)) {
			r.amounts.fail()
			break
		}
		a = append(a, Amount{r.meters[meter], units})
	}
	if r.amounts.err != nil {
		r.fail()
		return a
	}
	r.skipAmounts()
	return a
}

func (r *reader) more() bool { return r.err == nil && len(r.b) > 0 }

func (r *reader) number() int64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > 1<<63-1 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return int64(v)
}

func (r *reader) fail() {
	if r.err == nil {
		r.err = errBody
	}
	r.b = nil
}

func (r *reader) id() (id [16]byte) {
	index := r.number()
	if index >= int64(len(r.ids)/16) {
		r.fail()
		return id
	}
	copy(id[:], r.ids[16*index:])
	return id
}

func (r *reader) bytes() []byte {
	n := r.number()
	if n > int64(len(r.b)) {
		r.fail()
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

// row is an entry whose latencies are not decoded yet.
type row struct {
	Identity
	Counts
	to                *Destination // in parts Targets and Subjects alone
	Amounts           Amounts
	latency, upstream []byte // encoded by Sketch.Append; slices of the body
}

// row decodes the next entry.
func (r *reader) row(p Part, e *row) {
	*e = row{Amounts: e.Amounts[:0]}
	e.Gateway = r.id()
	switch p {
	case Routes:
		e.Route = r.id()
	case Keys:
		e.Route, e.Key = r.id(), r.id()
	case Targets, Subjects:
		r.destination(e)
	}
	status := r.number()
	if e.Status = uint16(status); status > 1<<16-1 {
		r.fail()
	}
	e.Requests, e.UpstreamErrors, e.BytesIn, e.BytesOut = r.number(), r.number(), r.number(), r.number()
	if p.hasLatencies() {
		e.latency, e.upstream = r.bytes(), r.bytes()
	}
	e.Amounts = r.rowAmounts(e.Amounts)
}

// destination decodes the destination of an entry.
func (r *reader) destination(e *row) {
	index := r.number()
	if index >= int64(len(r.to)) {
		r.fail()
		return
	}
	e.to, e.Destination = &r.to[index].Destination, r.to[index].id
}

// rows calls f for each entry of a body. f must not keep it.
func rows(p Part, body []byte, f func(e *row) error) error {
	r := newReader(body)
	var e row
	for r.more() {
		r.row(p, &e)
		if r.err != nil {
			break
		}
		if err := f(&e); err != nil {
			return err
		}
	}
	if r.err == nil && r.amounts != nil {
		return fmt.Errorf("%w: amounts of no entry", errBody)
	}
	return r.err
}
