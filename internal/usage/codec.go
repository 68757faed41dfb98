package usage

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
)

// BodySize is the size, in bytes, at which a body is complete.
const BodySize = 32 << 10

// version is the first byte of a body. Then follow the uses. Identifiers and texts that came before are named by their
// number: 0 means a new one, which follows.
const version = 1

// Body is encoded uses.
type Body struct {
	Bytes       []byte
	First, Last Identity // the least and the greatest
	Records     int      // one for each meter of each use
	Requests    int64    // of the meter of each use that counts most
}

// Encode encodes uses, in their order, as bodies.
func Encode(uses []*Use) (made []Body) {
	var w writer
	for _, u := range uses {
		if len(w.b) >= BodySize {
			made = append(made, w.body())
		}
		w.use(u)
	}
	if w.Records > 0 {
		made = append(made, w.body())
	}
	return made
}

type writer struct {
	Body
	b     []byte
	ids   map[[16]byte]uint64
	texts map[string]uint64
}

func (w *writer) body() Body {
	w.Bytes = w.b
	b := w.Body
	*w = writer{}
	return b
}

func (w *writer) use(u *Use) {
	if w.b == nil {
		w.b, w.ids, w.texts = append(w.b, version), map[[16]byte]uint64{}, map[string]uint64{}
		w.First = u.Identity
	}
	w.Last = u.Identity
	w.id(u.Owner)
	w.id(u.Key)
	w.id(u.Gateway)
	w.id(u.Route)
	w.number(int64(u.From))
	w.number(int64(u.Until - u.From))
	w.text(u.ExternalID)
	w.text(u.Plan)
	w.text(u.Prefix)
	w.number(int64(len(u.Amounts)))
	for _, a := range u.Amounts {
		w.text(a.Meter)
		w.number(a.Units)
		w.number(a.Requests)
		w.number(a.Sequence)
	}
	w.Records += len(u.Amounts)
	w.Requests += u.total()
}

func (w *writer) number(n int64) { w.b = binary.AppendUvarint(w.b, uint64(n)) }

func (w *writer) id(u [16]byte) {
	if n, known := w.ids[u]; known {
		w.number(int64(n))
		return
	}
	w.ids[u] = uint64(len(w.ids) + 1)
	w.b = append(append(w.b, 0), u[:]...)
}

func (w *writer) text(s string) {
	if n, known := w.texts[s]; known {
		w.number(int64(n))
		return
	}
	w.texts[s] = uint64(len(w.texts) + 1)
	w.b = append(w.b, 0)
	w.number(int64(len(s)))
	w.b = append(w.b, s...)
}

var errBody = errors.New("usage: the body is damaged")

// Each calls yield for each use of a body, in its order, until yield returns an error, which it returns. yield must not keep
// the use. If the body is damaged, Each returns an error.
func Each(body []byte, yield func(*Use) error) error {
	if len(body) == 0 || body[0] != version {
		return fmt.Errorf("%w: unknown version", errBody)
	}
	r := reader{b: body[1:]}
	var u Use
	for len(r.b) > 0 && !r.damaged {
		r.use(&u)
		if r.damaged {
			break
		}
		if err := yield(&u); err != nil {
			return err
		}
	}
	if r.damaged {
		return errBody
	}
	return nil
}

// First returns the identity of the first use of a body, which is its least.
func First(body []byte) (first Identity, err error) {
	err = Each(body, func(u *Use) error {
		first = u.Identity
		return errEnough
	})
	if errors.Is(err, errEnough) {
		return first, nil
	}
	return first, cmp.Or(err, errBody)
}

// Total returns the number of requests that a body counts; 0 if it is damaged.
func Total(body []byte) (n uint64) {
	if err := Each(body, func(u *Use) error {
		n += uint64(u.total())
		return nil
	}); err != nil {
		return 0
	}
	return n
}

// reader decodes a body. After its first error it returns zero values.
type reader struct {
	b       []byte
	ids     [][16]byte
	texts   []string
	damaged bool
}

func (r *reader) use(u *Use) {
	u.Identity = Identity{Owner: r.id(), Key: r.id(), Gateway: r.id(), Route: r.id()}
	from, length := r.number(), r.number()
	if from > 1<<32-1 || length > 1<<32-1-from {
		r.fail()
	}
	u.From, u.Until = uint32(from), uint32(from+length)
	u.Texts = Texts{ExternalID: r.text(), Plan: r.text(), Prefix: r.text()}
	n := r.number()
	if n > int64(len(r.b)) {
		r.fail()
		n = 0
	}
	u.Amounts = u.Amounts[:0]
	for range n {
		u.Amounts = append(u.Amounts, Amount{r.text(), r.number(), r.number(), r.number()})
	}
}

func (r *reader) number() int64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > 1<<63-1 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return int64(v)
}

func (r *reader) fail() { r.damaged, r.b = true, nil }

func (r *reader) bytes(n int64) []byte {
	if n > int64(len(r.b)) {
		r.fail()
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) id() (u [16]byte) {
	switch n := r.number(); {
	case n == 0:
		copy(u[:], r.bytes(16))
		r.ids = append(r.ids, u)
	case n <= int64(len(r.ids)):
		u = r.ids[n-1]
	default:
		r.fail()
	}
	return u
}

func (r *reader) text() string {
	switch n := r.number(); {
	case n == 0:
		s := string(r.bytes(r.number()))
		r.texts = append(r.texts, s)
		return s
	case n <= int64(len(r.texts)):
		return r.texts[n-1]
	default:
		r.fail()
		return ""
	}
}
