package hpack

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// appendString appends a string as it is, or Huffman-coded.
func appendString(dst []byte, s string, huffman bool) []byte {
	if !huffman {
		return append(appendInteger(dst, 0, 7, len(s)), s...)
	}
	return appendHuffman(appendInteger(dst, 0x80, 7, huffmanLen([]byte(s))), []byte(s))
}

// appendField appends a literal with a literal name; kind is the beginning of its
// first byte.
func appendField(dst []byte, kind byte, name, value string, huffman bool) []byte {
	return appendString(appendString(append(dst, kind), name, huffman), value, huffman)
}

// Guarantee: the limits of a header block hold exactly: a block at the limit is read
// whole; a field or byte more is ErrTooLarge, whatever the field's representation, and
// nothing beyond the limit is returned.
func TestBlockLimits(t *testing.T) {
	limits := Limits{Size: 1000, Fields: 10}
	fields := func(n int) []byte { return bytes.Repeat([]byte{0x82}, n) } // :method GET, 42 bytes
	for _, huffman := range []bool{false, true} {
		for _, kind := range []byte{0x40, 0x00, 0x10} {
			sized := func(n int) []byte {
				return appendField(fields(1), kind, "name", strings.Repeat("0", n-42-4-overhead), huffman)
			}
			for _, c := range []struct {
				name  string
				block []byte
				n     int
				want  error
			}{
				{"10 fields", fields(10), 10, nil},
				{"11 fields", fields(11), 10, ErrTooLarge},
				{"a literal as the 11th field", appendField(fields(10), kind, "a", "b", huffman), 10, ErrTooLarge},
				{"1000 bytes", sized(1000), 2, nil},
				{"1001 bytes", sized(1001), 1, ErrTooLarge},
				{"a name of 2000 bytes", appendField(fields(1), kind, strings.Repeat("n", 2000), "", huffman), 1, ErrTooLarge},
				{"indexed fields beyond the size", slices.Concat(sized(1000), fields(1)), 2, ErrTooLarge},
			} {
				got, err := decodeBlock(NewDecoder(limits, nil), c.block)
				if !errors.Is(err, c.want) || len(got) != c.n {
					t.Errorf("%s, kind %#x, Huffman %v: got %d fields, error %v; want %d, %v", c.name, kind, huffman, len(got), err, c.n, c.want)
				}
			}
		}
	}
}

// Guarantee: after a block that exceeds the limits, the connection goes on with the right
// table, whichever field exceeded them.
func TestTableAfterTooLargeBlock(t *testing.T) {
	var block []byte
	for i := range 40 {
		block = appendField(block, 0x40, fmt.Sprintf("name-%d", i), strings.Repeat("v", 10*i), i%2 == 0)
		block = appendField(block, 0x10, fmt.Sprintf("secret-%d", i), "x", i%3 == 0)
	}
	block = appendField(block, 0x40, "large", strings.Repeat("v", 8000), true) // empties the table
	block = appendField(block, 0x40, "last", "field", true)
	block = append(block, 0xbe)
	whole := NewDecoder(noLimits, nil)
	if fields, err := decodeBlock(whole, block); err != nil || len(fields) != 83 {
		t.Fatalf("got %d fields, error %v; want 83", len(fields), err)
	}
	for n := range 83 {
		d := NewDecoder(Limits{Size: 1 << 20, Fields: n}, nil)
		if _, err := decodeBlock(d, block); !errors.Is(err, ErrTooLarge) {
			t.Fatalf("limit of %d fields: got error %v, want ErrTooLarge", n, err)
		}
		if got, want := d.table.contents(), whole.table.contents(); !slices.Equal(got, want) {
			t.Fatalf("table beyond the limit of %d fields: got %q, want %q", n, got, want)
		}
		if fields, err := decodeBlock(d, []byte{0x82}); n > 0 && (err != nil || len(fields) != 1) {
			t.Fatalf("the block after that: got %q, error %v", fields, err)
		}
	}
}

// Guarantee: a small block that expands to very much (an HPACK bomb) costs no more memory than the
// limits, and none once the decoder's memory has grown. It may expand by references to a large
// entry, and by long Huffman-coded strings, in names, values and the table.
func TestBombs(t *testing.T) {
	limits := Limits{Size: 64 << 10, Fields: 100}
	long := strings.Repeat("0", 100<<10) // 62.5 KiB of code
	for name, block := range map[string][]byte{
		"references":      append(appendField(nil, 0x40, "a", strings.Repeat("b", 4000), true), bytes.Repeat([]byte{0xbe}, 60<<10)...),
		"many fields":     bytes.Repeat([]byte{0x82}, 64<<10),
		"long value":      appendField(nil, 0x00, "a", long, true),
		"long name":       appendField(nil, 0x00, long, "a", true),
		"long entry":      appendField(nil, 0x40, "a", long, true),
		"after the limit": appendField(bytes.Repeat([]byte{0x82}, 101), 0x40, "a", long, true),
		"empty literals":  bytes.Repeat([]byte{0x40, 0, 0}, 20<<10),
	} {
		d := NewDecoder(limits, nil)
		var scratch Scratch
		var f Field
		total, fields := 0, 0
		decode := func() {
			d.Start(block, &scratch)
			total, fields = 0, 0
			for d.Next(&f) {
				total += len(f.Name) + len(f.Value) + overhead
				fields++
			}
			if err := d.Finish(); !errors.Is(err, ErrTooLarge) {
				t.Fatalf("%s: got error %v, want ErrTooLarge", name, err)
			}
		}
		if allocs := testing.AllocsPerRun(3, decode); allocs != 0 {
			t.Errorf("%s: got %v allocations, want none", name, allocs)
		}
		if total > limits.Size || fields > limits.Fields {
			t.Errorf("%s: got %d fields of %d bytes, want at most the limits", name, fields, total)
		}
		if len(scratch.buf) > limits.Size || len(d.table.buf) > 2*TableSize || len(d.table.ring) > TableSize/overhead {
			t.Errorf("%s: got a scratch of %d bytes, a table of %d bytes and %d entries", name, len(scratch.buf), len(d.table.buf), len(d.table.ring))
		}
	}
}

// Guarantee: a block that cannot be decoded is a CompressionError of the right kind, read
// field by field or not at all, and so is every later block.
func TestCompressionErrors(t *testing.T) {
	for _, c := range []struct {
		name, block string
		want        error
	}{
		{"index 0", "80", ErrIndex},
		{"index of no entry", "be", ErrIndex},
		{"large index", "ff ff ff ff 7f", ErrIndex},
		{"name of no entry", "7e 00", ErrIndex},
		{"integer too long", "ff 80 80 80 80 00", ErrInteger},
		{"index cut off", "ff", ErrTruncated},
		{"literal without a name", "40", ErrTruncated},
		{"literal without a value", "40 01 61", ErrTruncated},
		{"value cut off", "41 03 61 62", ErrTruncated},
		{"length beyond the block", "00 7f ff ff ff 7f", ErrTruncated},
		{"EOS in a name", "40 84 ff ff ff ff 00", ErrHuffman},
		{"padding of 8 ones in a value", "41 82 1f ff", ErrHuffman},
		{"table too large", "3f e2 1f", ErrTableSize},
		{"size update after a field", "82 20", ErrSizeUpdate},
	} {
		for _, read := range []bool{true, false} {
			d := NewDecoder(noLimits, nil)
			block := fromHex(t, c.block)
			if read {
				_, err := decodeBlock(d, block)
				if !errors.Is(err, c.want) {
					t.Errorf("%s: got error %v, want %v", c.name, err, c.want)
				}
			} else {
				d.Start(block, new(Scratch))
				if err := d.Finish(); !errors.Is(err, c.want) {
					t.Errorf("%s, not read: got error %v, want %v", c.name, err, c.want)
				}
			}
			fields, err := decodeBlock(d, []byte{0x82})
			if compression := CompressionError(""); !errors.As(err, &compression) || !errors.Is(err, c.want) || len(fields) > 0 {
				t.Errorf("the block after %s: got %q, error %v; want %v", c.name, fields, err, c.want)
			}
		}
	}
}

// Guarantee: size updates at the beginning of a block are applied in their order, so that
// a table that was made smaller and larger again is empty.
func TestSizeUpdates(t *testing.T) {
	d := NewDecoder(noLimits, nil)
	if _, err := decodeBlock(d, appendField(nil, 0x40, "a", "b", false)); err != nil || d.table.n != 1 {
		t.Fatalf("got %d entries, error %v; want 1", d.table.n, err)
	}
	if _, err := decodeBlock(d, fromHex(t, "20 3f e1 1f")); err != nil || d.table.n != 0 || d.table.max != TableSize {
		t.Fatalf("got %d entries, maximum size %d, error %v; want 0 and %d", d.table.n, d.table.max, err, TableSize)
	}
}
