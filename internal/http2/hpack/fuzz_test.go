package hpack

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// theirs decodes header blocks with x/net.
type theirs struct {
	d      *hpack.Decoder
	fields []string
}

func newTheirs() *theirs {
	x := new(theirs)
	x.d = hpack.NewDecoder(TableSize, func(f hpack.HeaderField) {
		s := f.Name + ": " + f.Value
		if f.Sensitive {
			s += "*"
		}
		x.fields = append(x.fields, s)
	})
	return x
}

func (x *theirs) decode(block []byte) (fields []string, err error) {
	x.fields = nil
	_, err = x.d.Write(block)
	return x.fields, errors.Join(err, x.d.Close())
}

// contents returns the entries of the dynamic table, the newest first, and at most n + 1.
func (x *theirs) contents(n int) (entries []string) {
	for i := range n + 1 {
		fields, err := x.decode(appendInteger(nil, 0x80, 7, staticLen+1+i))
		if err != nil {
			break
		}
		entries = append(entries, fields...)
	}
	return entries
}

// splitBlocks splits an input into header blocks, each behind a byte with its length.
func splitBlocks(input []byte) (blocks [][]byte) {
	for len(input) > 0 {
		n := min(int(input[0]), len(input)-1)
		blocks = append(blocks, input[1:1+n])
		input = input[1+n:]
	}
	return blocks
}

// sizeUpdates returns the number of size updates with which a block begins.
func sizeUpdates(block []byte) (n int) {
	for len(block) > 0 && block[0]>>5 == 1 {
		_, length, err := readInteger(block, 5)
		if err != nil {
			break
		}
		block = block[length:]
		n++
	}
	return n
}

// Guarantee: this decoder and x/net's accept and reject the same header blocks, read the same
// fields in them and have the same dynamic table after them. So does a decoder whose limits are
// exceeded, or whose caller stops early. They differ only where x/net is laxer than RFC 7541, or
// stricter.
func FuzzDecoder(f *testing.F) {
	for _, s := range series {
		var input []byte
		for _, v := range s.vectors {
			block := fromHex(f, v.block)
			input = append(append(input, byte(len(block))), block...)
		}
		f.Add(input)
	}
	f.Add([]byte("\x04\x20\x3f\xe1\x1f\x01\x82"))                                  // two size updates
	f.Add([]byte("\x03\x82\x20\x82\x06\x7f\x80\x80\x80\x80\x00"))                  // a late size update; a long integer
	f.Add([]byte("\x06\x40\x81\x1f\x81\x1f\xbe\x09\x40\x01a\x83\xff\xff\xff\xff")) // Huffman code, EOS
	f.Fuzz(func(t *testing.T, input []byte) { compareDecoders(t, splitBlocks(input)) })
}

// Guarantee: the same as of FuzzDecoder, for long series of valid blocks, in which entries of all
// sizes come and go and the size of the table changes.
func TestDecodersAgree(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		shadow := NewDecoder(noLimits, nil) // knows which indices are valid
		var blocks [][]byte
		for range 60 {
			var block []byte
			appendPart := func(part []byte) {
				if _, err := decodeBlock(shadow, part); err != nil {
					t.Fatalf("part %x: %v", part, err)
				}
				block = append(block, part...)
			}
			if r.IntN(8) == 0 {
				appendPart(appendInteger(nil, 0x20, 5, r.IntN(TableSize+1)))
			}
			for range r.IntN(12) {
				appendPart(randomField(r, staticLen+shadow.table.n))
			}
			blocks = append(blocks, block)
		}
		if n := compareDecoders(t, blocks); n != len(blocks) {
			t.Fatalf("seed %d: got %d blocks that are valid, want %d", seed, n, len(blocks))
		}
	}
}

// randomField returns a representation of a field, which refers to the given number of
// entries.
func randomField(r *rand.Rand, entries int) []byte {
	kind, prefix := [...]byte{0x80, 0x40, 0x40, 0x00, 0x10}[r.IntN(5)], uint(4)
	length := r.IntN(40)
	switch r.IntN(30) {
	case 0:
		length = r.IntN(5000)
	case 1, 2, 3:
		length = r.IntN(600)
	}
	value, huffman := strings.Repeat("x", length), r.IntN(2) == 0
	switch {
	case kind == 0x80:
		return appendInteger(nil, kind, 7, 1+r.IntN(entries))
	case r.IntN(2) == 0:
		return appendField(nil, kind, fmt.Sprint("name-", r.IntN(100)), value, huffman)
	case kind == 0x40:
		prefix = 6
	}
	return appendString(appendInteger(nil, kind, prefix, 1+r.IntN(entries)), value, huffman)
}

// compareDecoders decodes blocks in all ways, up to the first invalid block, and returns how many
// it decoded.
func compareDecoders(t *testing.T, blocks [][]byte) int {
	t.Helper()
	ours, reference := NewDecoder(noLimits, nil), newTheirs()
	limited, idle := NewDecoder(Limits{Size: 100, Fields: 2}, nil), NewDecoder(noLimits, nil)
	for i, block := range blocks {
		fields, err := decodeBlock(ours, block)
		want, wantErr := reference.decode(block)
		if err != nil && wantErr == nil && (errors.Is(err, ErrInteger) || errors.Is(err, ErrSizeUpdate)) {
			return i // x/net accepts integers of 9 bytes, and late size updates if the table is empty
		}
		if err == nil && wantErr != nil && sizeUpdates(block) > 1 {
			return i // x/net rejects the second of the two size updates that RFC 7541, 4.2 asks for
		}
		if (err == nil) != (wantErr == nil) || err == nil && !slices.Equal(fields, want) {
			t.Fatalf("block %x: got %q, error %v; want %q, error %v as from x/net", block, fields, err, want, wantErr)
		}
		if err != nil {
			return i
		}
		table := ours.table.contents()
		if theirs := reference.contents(len(table)); !slices.Equal(table, theirs) {
			t.Fatalf("table after block %x: got %q, want %q as in x/net", block, table, theirs)
		}
		if _, err := decodeBlock(limited, block); err != nil && !errors.Is(err, ErrTooLarge) {
			t.Fatalf("block %x beyond the limits: got error %v", block, err)
		}
		idle.Start(block, new(Scratch))
		if err := idle.Finish(); err != nil {
			t.Fatalf("block %x that is not read: got error %v", block, err)
		}
		for _, d := range []*Decoder{limited, idle} {
			if got := d.table.contents(); !slices.Equal(got, table) || d.table.size != ours.table.size || d.table.max != ours.table.max {
				t.Fatalf("table after block %x that is not read whole: got %q, want %q", block, got, table)
			}
		}
	}
	return len(blocks)
}

// Guarantee: this Huffman decoder and x/net's accept the same and read the same.
func FuzzHuffman(f *testing.F) {
	f.Add([]byte("\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, code []byte) {
		dst := make([]byte, maxDecoded(len(code)))
		n, result := decodeHuffman(dst, code)
		want, err := hpack.HuffmanDecodeToString(code)
		if (result == decoded) != (err == nil) || err == nil && string(dst[:n]) != want {
			t.Fatalf("%x: got %q, result %d; want %q, error %v as from x/net", code, dst[:n], result, want, err)
		}
		if err == nil && !bytes.Equal(appendHuffman(nil, dst[:n]), code) {
			t.Fatalf("%x: got %x when coded again", code, appendHuffman(nil, dst[:n]))
		}
	})
}

// Guarantee: whatever is encoded, and however the table size changes, x/net and the
// decoder of this package read the fields that were given, and the tables of both sides
// are equal after each block.
func FuzzEncoder(f *testing.F) {
	f.Add([]byte("\x10\x11\x12\x00\x10\x11\x12\x00\x10\x11\x12\x00"))
	f.Add([]byte("\x10\x21\x32\x01\x00\x40\x43\x00\x01\x00\x01\x10\x54\x00"))
	f.Add([]byte("\x02\x04name\x05value\x00\x02\x04name\x05value\x00\x03\x05NAME\x00\x05value\x00"))
	f.Fuzz(func(t *testing.T, input []byte) { newEncoding(t).run(input) })
}

// Guarantee: as FuzzEncoder, for long series of operations.
func TestEncoderAgrees(t *testing.T) {
	for seed := range uint64(25) {
		r := rand.New(rand.NewPCG(seed, 4))
		input := make([]byte, 1500)
		for i := range input {
			if input[i] = byte(r.UintN(256)); r.IntN(8) == 0 {
				input[i] %= 4 // ends of blocks, table sizes, and names and values from the input
			}
		}
		newEncoding(t).run(input)
	}
}

// encoding is an encoder with two decoders of what it encodes.
type encoding struct {
	t         *testing.T
	encoder   *Encoder
	ours      *Decoder
	reference *theirs

	block   []byte
	want    []string
	inBlock bool
}

func newEncoding(t *testing.T) *encoding {
	return &encoding{t: t, encoder: NewEncoder([]string{"x-api-key"}), ours: NewDecoder(noLimits, nil), reference: newTheirs()}
}

// run carries out the operations of an input, a byte for each: 0 ends the block, 1 sets a
// table size, 2 and 3 encode a field from the input, and the others encode a field with a usual
// name.
func (x *encoding) run(input []byte) {
	names := []string{":status", ":path", "cookie", "authorization", "content-type", "x-one", "X-Two", "x-three", "x-api-key", "Date", "vary", "a"}
	take := func(n int) (b []byte) {
		n = min(n, len(input))
		b, input = input[:n], input[n:]
		return b
	}
	text := func() []byte {
		if len(input) == 0 {
			return nil
		}
		return take(int(take(1)[0]))
	}
	for len(input) > 0 {
		switch op := take(1)[0]; op {
		case 0:
			x.start()
			x.end()
		case 1:
			if size := take(2); len(size) == 2 && !x.inBlock {
				n := 4 * (uint32(size[0]) + uint32(size[1])<<8&0x7ff) // up to twice ours
				x.encoder.SetTableSize(n)
				x.reference.d.SetAllowedMaxDynamicTableSize(n)
			}
		case 2, 3:
			x.field(text(), text(), op == 3)
		default:
			n := int(op&15) * int(op&15) * int(op>>4)
			x.field([]byte(names[int(op>>4)%len(names)]), bytes.Repeat([]byte{'0' + op&3}, n), false)
		}
	}
}

func (x *encoding) start() {
	if !x.inBlock {
		x.block, x.want, x.inBlock = x.encoder.Start(nil), nil, true
	}
}

// field encodes a field.
func (x *encoding) field(name, value []byte, never bool) {
	x.start()
	x.block = x.encoder.Append(x.block, name, value, never)
	lower := ""
	for _, c := range name {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		lower += string([]byte{c})
	}
	line := lower + ": " + string(value)
	if never || slices.Contains([]string{"authorization", "proxy-authorization", "set-cookie", "x-api-key"}, lower) || lower == "cookie" && len(value) < 20 {
		line += "*"
	}
	x.want = append(x.want, line)
}

// end ends the block and decodes it.
func (x *encoding) end() {
	x.inBlock = false
	fields, err := decodeBlock(x.ours, x.block)
	if err != nil || !slices.Equal(fields, x.want) {
		x.t.Fatalf("block %x: got %q, error %v; want %q", x.block, fields, err, x.want)
	}
	if fields, err := x.reference.decode(x.block); err != nil || !slices.Equal(fields, x.want) {
		x.t.Fatalf("block %x: x/net got %q, error %v; want %q", x.block, fields, err, x.want)
	}
	ours, encoder := &x.ours.table, &x.encoder.table
	if got, want := ours.contents(), encoder.contents(); !slices.Equal(got, want) || ours.size != encoder.size || ours.max != encoder.max {
		x.t.Fatalf("table after block %x: got %q, want %q as in the encoder", x.block, got, want)
	}
}
