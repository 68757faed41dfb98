package hpack

import (
	"errors"
)

// ErrTooLarge is the error for a header block that exceeds the Limits. The connection
// can go on: the response to such a request is 431.
var ErrTooLarge = errors.New("hpack: header list too large")

// CompressionError is the error for a header block that cannot be decoded. The tables of
// the two sides may differ from then on, so the connection must end with
// COMPRESSION_ERROR (RFC 9113, 4.3).
type CompressionError string

func (e CompressionError) Error() string { return "hpack: " + string(e) }

// The ways in which a header block can be wrong.
const (
	ErrTruncated  CompressionError = "header block ends within a field"
	ErrInteger    CompressionError = "integer too long"
	ErrIndex      CompressionError = "index out of range"
	ErrHuffman    CompressionError = "invalid Huffman code"
	ErrTableSize  CompressionError = "dynamic table size too large"
	ErrSizeUpdate CompressionError = "dynamic table size update after a field"
)

// Limits bounds the fields of one header block.
type Limits struct {
	// Size is the maximum of the sum of the lengths of all names and values, in bytes, and
	// of 32 for each field. It has the meaning of SETTINGS_MAX_HEADER_LIST_SIZE (RFC 9113,
	// 6.5.2).
	Size int
	// Fields is the maximum number of fields, pseudo-header fields included.
	Fields int
}

// Field is one field of a header block.
type Field struct {
	// Name and Value must not be changed. They are valid until the next call of a method
	// of the Decoder.
	Name, Value []byte
	// Tag is what the function of the decoder's Tags returned for this field.
	Tag uint16
	// NeverIndexed is true for a literal that must stay one on every hop (RFC 7541, 6.2.3).
	NeverIndexed bool
}

// Tags computes a tag for each field. A field in the dynamic or static table keeps its
// tag, so a field that a client repeats costs its checks once. Tags can be shared by
// decoders.
type Tags struct {
	of     func(name, value []byte) uint16
	static [staticLen + 1]uint16
}

// NewTags returns Tags that are computed by of, which must not change or keep its arguments. Its
// result must depend on them alone.
func NewTags(of func(name, value []byte) uint16) *Tags {
	t := &Tags{of: of}
	for i := 1; i <= staticLen; i++ {
		t.static[i] = of(static[i].name, static[i].value)
	}
	return t
}

// Scratch is memory for the strings of a header block that are Huffman-coded. Decoders
// can share one as long as they are not between Start and Finish at the same time. Its
// zero value is ready to use, and it grows up to twice the Limits of the decoders.
type Scratch struct{ buf []byte }

// room returns n bytes that begin at used. Bytes returned before stay as they are.
func (s *Scratch) room(used, n int) []byte {
	if used+n > len(s.buf) {
		s.buf = make([]byte, max(used+n, min(2*len(s.buf), used+2*n), 512))
	}
	return s.buf[used : used+n : used+n]
}

// Decoder decodes the header blocks of one direction of a connection (RFC 7541). A block
// is the concatenation of what HEADERS and its CONTINUATION frames carry:
//
//	d.Start(block, scratch)
//	for d.Next(&field) {
//		…
//	}
//	err := d.Finish()
//
// A Decoder must not be used by two goroutines at the same time.
type Decoder struct {
	limits Limits
	tags   *Tags
	table  table

	// The block, from Start to Finish.
	block    []byte
	pos      int // where the rest of it begins
	first    int // where its first field begins, as far as size updates have been read
	scratch  *Scratch
	size     int // what is left of Limits.Size
	fields   int // what is left of Limits.Fields
	tooLarge bool
	failure  error // a CompressionError, which stays
}

// NewDecoder returns a decoder with an empty dynamic table of TableSize. Tags may be nil;
// the tag of each field is then 0.
func NewDecoder(limits Limits, tags *Tags) *Decoder {
	if tags == nil {
		tags = new(Tags)
	}
	return &Decoder{limits: limits, tags: tags, table: table{max: TableSize}}
}

// Start begins a header block, which must not change before Finish.
func (d *Decoder) Start(block []byte, scratch *Scratch) {
	d.block, d.pos, d.first, d.scratch = block, 0, 0, scratch
	d.size, d.fields, d.tooLarge = d.limits.Size, d.limits.Fields, false
	if d.failure != nil {
		d.pos = len(block)
	}
}

// Next decodes the next field of the block into f and reports whether there was one.
// There is none at the end of the block, beyond the Limits and after an error; Finish
// says which.
func (d *Decoder) Next(f *Field) bool {
	for uint(d.pos) < uint(len(d.block)) && !d.tooLarge {
		switch c := d.block[d.pos]; {
		case c >= 0x80 && c < 0xff:
			d.pos++
			return d.indexed(int(c&0x7f), f)
		case c == 0xff:
			i, ok := d.integer(7)
			return ok && d.indexed(i, f)
		case c>>5 == 1:
			d.sizeUpdate()
		default:
			return d.literal(f)
		}
	}
	return false
}

// TooLarge reports whether Next has met a field that exceeds the Limits. If Next has not stored that field
// in its argument, Rest decodes it first.
func (d *Decoder) TooLarge() bool { return d.tooLarge }

// Rest decodes the next field whatever the Limits, or reports that there is none. If name and value of a
// field have more than limit bytes together, f has neither.
func (d *Decoder) Rest(f *Field, limit int) bool {
	for uint(d.pos) < uint(len(d.block)) {
		switch c := d.block[d.pos]; {
		case c >= 0x80:
			i, ok := d.integer(7)
			return ok && d.at(i, f) >= 0
		case c>>5 == 1:
			d.sizeUpdate()
		default:
			lit, ok := d.readLiteral()
			if !ok {
				return false
			}
			switch d.decode(&lit, limit, f) {
			case invalid:
				d.fail(ErrHuffman)
				return false
			case overflow:
				f.Name, f.Value = nil, nil
				d.learn(&lit)
			case decoded:
				if lit.indexing {
					d.add(&lit, f)
				}
			}
			return true
		}
	}
	return false
}

// Finish ends the block. The rest of the block is applied to the dynamic table, so a caller may
// stop calling Next at any field. The error is nil, ErrTooLarge or a CompressionError, which Finish
// returns for every further block too.
func (d *Decoder) Finish() error {
	for d.pos < len(d.block) {
		c := d.block[d.pos]
		switch {
		case c >= 0x80:
			if i, ok := d.integer(7); ok && (i == 0 || i > staticLen+d.table.n) {
				d.fail(ErrIndex)
			}
		case c>>5 == 1:
			d.sizeUpdate()
		default:
			if lit, ok := d.readLiteral(); ok {
				d.learn(&lit)
			}
		}
	}
	d.block, d.scratch = nil, nil
	if d.failure == nil && d.tooLarge {
		return ErrTooLarge
	}
	return d.failure
}

// fail ends the block, and every later one, with an error.
func (d *Decoder) fail(err error) {
	d.failure = err
	d.pos = len(d.block)
}

// integer reads the integer at the beginning of the rest of the block.
func (d *Decoder) integer(prefix uint) (value int, ok bool) {
	value, n, err := readInteger(d.block[d.pos:], prefix)
	if err != nil {
		d.fail(err)
		return 0, false
	}
	d.pos += n
	return value, true
}

// indexed decodes an indexed field (RFC 7541, 6.1).
func (d *Decoder) indexed(i int, f *Field) bool {
	n := d.at(i, f)
	return n >= 0 && d.count(n)
}

// at puts the field with an index into f. It returns how many bytes its name and value have, or fails and
// returns -1.
func (d *Decoder) at(i int, f *Field) (n int) {
	f.NeverIndexed = false
	if i > staticLen && i <= staticLen+d.table.n {
		e := d.table.at(i - staticLen - 1)
		f.Name, f.Value, f.Tag = d.table.nameOf(e), d.table.valueOf(e), e.tag
		return int(e.name) + int(e.value)
	}
	if i == 0 || i > staticLen {
		d.fail(ErrIndex)
		return -1
	}
	e := &static[i]
	f.Name, f.Value, f.Tag = e.name, e.value, d.tags.static[i]
	return len(e.name) + len(e.value)
}

// count counts a field whose name and value have n bytes, and reports whether it is
// within the limits.
func (d *Decoder) count(n int) bool {
	d.fields--
	d.size -= n + overhead
	if d.fields|d.size >= 0 {
		return true
	}
	d.tooLarge = true
	return false
}

// sizeUpdate applies a change of the table's maximum size (RFC 7541, 6.3). It is allowed
// only before the first field of a block.
func (d *Decoder) sizeUpdate() {
	late := d.pos != d.first
	switch n, ok := d.integer(5); {
	case !ok:
	case late:
		d.fail(ErrSizeUpdate)
	case n > TableSize:
		d.fail(ErrTableSize)
	default:
		d.table.setMax(n)
		d.first = d.pos
	}
}

// literal decodes a literal (RFC 7541, 6.2).
func (d *Decoder) literal(f *Field) bool {
	start := d.pos
	lit, ok := d.readLiteral()
	if !ok {
		return false
	}
	switch d.decode(&lit, d.size-overhead, f) {
	case invalid:
		d.fail(ErrHuffman)
		return false
	case overflow: // the field is left to Rest or Finish
		d.tooLarge, d.pos = true, start
		f.Name, f.Value = nil, nil
		return false
	}
	f.NeverIndexed = lit.never
	if lit.indexing {
		d.add(&lit, f)
	}
	return d.count(len(f.Name) + len(f.Value))
}

// learn applies a literal to the dynamic table alone. Strings are decoded only if the
// table gets them, and only as far as it can hold them.
func (d *Decoder) learn(lit *literal) {
	if !lit.indexing {
		return
	}
	var f Field
	switch d.decode(lit, d.table.max-overhead, &f) {
	case invalid:
		d.fail(ErrHuffman)
	case overflow:
		d.table.evict(0)
	case decoded:
		d.add(lit, &f)
	}
}

// add adds a field to the dynamic table. The bytes of its name may move with the table.
func (d *Decoder) add(lit *literal, f *Field) {
	if len(f.Name)+len(f.Value)+overhead > d.table.max {
		d.table.evict(0)
		return
	}
	d.table.reserve(len(f.Name) + len(f.Value))
	if lit.index > staticLen {
		f.Name = d.table.nameOf(d.table.at(lit.index - staticLen - 1))
	}
	d.table.add(f.Name, f.Value, f.Tag)
}
