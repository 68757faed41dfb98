package traffic

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// bodySize is the size from which a body is complete: a report about one key
// reads no more of an interval than one body.
const bodySize = 32 << 10

// A body begins with its version and the identifiers that it names, each once.
// Entries name them by their places.
const version = 1

// writer makes the bodies of chunks.
type writer struct {
	ids     []byte
	places  map[[16]byte]uint64
	entries []byte
	scratch []byte
}

func newWriter() *writer { return &writer{places: map[[16]byte]uint64{}} }

func (w *writer) reset() {
	w.ids, w.entries = w.ids[:0], w.entries[:0]
	clear(w.places)
}

func (w *writer) size() int { return len(w.ids) + len(w.entries) }

func (w *writer) number(n int64) { w.entries = binary.AppendUvarint(w.entries, uint64(n)) }

func (w *writer) id(id [16]byte) {
	place, known := w.places[id]
	if !known {
		place = uint64(len(w.places))
		w.places[id] = place
		w.ids = append(w.ids, id[:]...)
	}
	w.entries = binary.AppendUvarint(w.entries, place)
}

func (w *writer) sketch(s *Sketch) {
	w.scratch = w.scratch[:0]
	if s != nil {
		w.scratch = s.Append(w.scratch)
	}
	w.number(int64(len(w.scratch)))
	w.entries = append(w.entries, w.scratch...)
}

func (w *writer) entry(p Part, e *Entry) {
	w.id(e.Gateway)
	if p != Gateways {
		w.id(e.Route)
	}
	if p == Keys {
		w.id(e.Key)
	}
	w.number(int64(e.Status))
	w.number(e.Requests)
	w.number(e.UpstreamErrors)
	w.number(e.BytesIn)
	w.number(e.BytesOut)
	if p != Keys {
		w.sketch(e.Latency)
		w.sketch(e.Upstream)
	}
}

func (w *writer) body() []byte {
	b := make([]byte, 0, 8+w.size())
	b = append(b, version)
	b = binary.AppendUvarint(b, uint64(len(w.places)))
	b = append(b, w.ids...)
	return append(b, w.entries...)
}

// reader reads a body. After its first error it gives zeros.
type reader struct {
	ids []byte
	b   []byte
	err error
}

var errBody = errors.New("the body of a chunk is damaged")

func newReader(body []byte) *reader {
	r := &reader{}
	if len(body) == 0 || body[0] != version {
		r.err = fmt.Errorf("%w: another version", errBody)
		return r
	}
	r.b = body[1:]
	if n := r.number(); n > int64(len(r.b)/16) {
		r.err = errBody
	} else {
		r.ids, r.b = r.b[:16*n], r.b[16*n:]
	}
	return r
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
	place := r.number()
	if place >= int64(len(r.ids)/16) {
		r.fail()
		return id
	}
	copy(id[:], r.ids[16*place:])
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

// row is an entry as a body has it: its latencies are not read yet.
type row struct {
	Identity
	Counts
	latency, upstream []byte // as Sketch.Append wrote them; parts of the body
}

// row reads the next entry of a part.
func (r *reader) row(p Part, e *row) {
	*e = row{}
	e.Gateway = r.id()
	if p != Gateways {
		e.Route = r.id()
	}
	if p == Keys {
		e.Key = r.id()
	}
	status := r.number()
	if e.Status = uint16(status); status > 1<<16-1 {
		r.fail()
	}
	e.Requests, e.UpstreamErrors, e.BytesIn, e.BytesOut = r.number(), r.number(), r.number(), r.number()
	if p != Keys {
		e.latency, e.upstream = r.bytes(), r.bytes()
	}
}

// rows calls f for each entry of a body; f does not keep it.
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
	return r.err
}
