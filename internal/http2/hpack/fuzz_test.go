package hpack

import (
	"bytes"
	"errors"
	"slices"
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

// Guarantee: this decoder and that of x/net accept and reject the same header blocks,
// read the same fields in them and have the same dynamic table after them; and a decoder
// whose limits are passed, or whose caller stops early, has that table too. Only where
// x/net is laxer than RFC 7541, or stricter, they differ.
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
	f.Fuzz(func(t *testing.T, input []byte) {
		ours, reference := NewDecoder(noLimits, nil), newTheirs()
		limited, idle := NewDecoder(Limits{Size: 100, Fields: 2}, nil), NewDecoder(noLimits, nil)
		for _, block := range splitBlocks(input) {
			fields, err := decodeBlock(ours, block)
			want, wantErr := reference.decode(block)
			if err != nil && wantErr == nil && (errors.Is(err, ErrInteger) || errors.Is(err, ErrSizeUpdate)) {
				return // x/net accepts integers of 9 bytes, and late size updates if the table is empty
			}
			if err == nil && wantErr != nil && sizeUpdates(block) > 1 {
				return // x/net rejects the second of the two that RFC 7541, 4.2 asks for
			}
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("block %x: got %q, error %v; want %q, error %v as from x/net", block, fields, err, want, wantErr)
			}
			if err != nil {
				return
			}
			if !slices.Equal(fields, want) {
				t.Fatalf("block %x: got %q, want %q as from x/net", block, fields, want)
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
	})
}

// Guarantee: this Huffman decoder and that of x/net accept the same and read the same.
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
