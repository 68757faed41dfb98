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

// NewTags returns Tags that are computed by of, which must not change or keep its
// arguments. What it returns may depend on nothing else.
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
	block   []byte
	scratch *Scratch

	size     int  // what is left of Limits.Size
	fields   int  // what is left of Limits.Fields
	begun    bool // a field has been read, so no size update may follow
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
	d.block, d.scratch = block, scratch
	d.size, d.fields = d.limits.Size, d.limits.Fields
	d.begun, d.tooLarge = false, false
}

// Next decodes the next field of the block into f and reports whether there was one.
// There is none at the end of the block, beyond the Limits and after an error; Finish
// says which.
func (d *Decoder) Next(f *Field) bool {
	for len(d.block) > 0 && !d.tooLarge && d.failure == nil {
		c := d.block[0]
		switch {
		case c >= 0x80:
			return d.indexed(f)
		case c>>5 == 1:
			d.sizeUpdate()
		default:
			return d.literal(f)
		}
	}
	return false
}

// Finish ends the block. What Next has not decoded is applied to the dynamic table, so a
// caller may stop calling Next at any field. The error is nil, ErrTooLarge or a
// CompressionError, which Finish returns for every further block too.
func (d *Decoder) Finish() error {
	for len(d.block) > 0 && d.failure == nil {
		c := d.block[0]
		switch {
		case c >= 0x80:
			d.begun = true
			var i int
			if i, d.block, d.failure = readInteger(d.block, 7); d.failure == nil && !d.known(i) {
				d.failure = ErrIndex
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

// known reports whether there is a field with an index of the two tables.
func (d *Decoder) known(index int) bool { return index > 0 && index <= staticLen+d.table.n }

// indexed decodes an indexed field (RFC 7541, 6.1).
func (d *Decoder) indexed(f *Field) bool {
	d.begun = true
	i := int(d.block[0] & 0x7f)
	if i < 0x7f {
		d.block = d.block[1:]
	} else if i, d.block, d.failure = readInteger(d.block, 7); d.failure != nil {
		return false
	}
	switch {
	case i <= 0 || i > staticLen+d.table.n:
		d.failure = ErrIndex
		return false
	case i <= staticLen:
		e := &static[i]
		f.Name, f.Value, f.Tag = e.name, e.value, d.tags.static[i]
	default:
		e := d.table.at(i - staticLen - 1)
		f.Name, f.Value, f.Tag = d.table.nameOf(e), d.table.valueOf(e), e.tag
	}
	f.NeverIndexed = false
	return d.count(len(f.Name) + len(f.Value))
}

// count counts a field whose name and value have n bytes, and reports whether it is
// within the limits.
func (d *Decoder) count(n int) bool {
	d.fields--
	d.size -= n + overhead
	d.tooLarge = d.fields < 0 || d.size < 0
	return !d.tooLarge
}

// sizeUpdate applies a change of the table's maximum size (RFC 7541, 6.3). It is allowed
// only before the first field of a block.
func (d *Decoder) sizeUpdate() {
	var n int
	switch n, d.block, d.failure = readInteger(d.block, 5); {
	case d.failure != nil:
	case d.begun:
		d.failure = ErrSizeUpdate
	case n > TableSize:
		d.failure = ErrTableSize
	default:
		d.table.setMax(n)
	}
}

// literal decodes a literal (RFC 7541, 6.2).
func (d *Decoder) literal(f *Field) bool {
	lit, ok := d.readLiteral()
	if !ok {
		return false
	}
	if d.fields == 0 {
		d.tooLarge = true
		d.learn(&lit)
		return false
	}
	switch d.decode(&lit, d.size-overhead, f) {
	case invalid:
		d.failure = ErrHuffman
		return false
	case overflow:
		d.tooLarge = true
		d.learn(&lit)
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
		d.failure = ErrHuffman
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
