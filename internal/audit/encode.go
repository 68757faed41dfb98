package audit

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
)

// MaxRecords is the maximum number of records of a block.
const MaxRecords = 4096

// partExtras is the size of extras, in bytes, at which a part of a table ends, because diffs fill a block early.
const partExtras = 4 << 20

// version is the first byte of the content of a block.
const version = 1

// Encode returns the content of a block with the table's records, which must be sorted. It
// stores them column by column. If c is nil, it does not compress, which suits chunks
// that are soon sealed.
//
//	version, number of records, time of the first
//	times        differences, in byte planes, the lowest byte first
//	calls        dictionary, and an entry number for each record
//	callers      the same
//	clients      the same
//	paths        the same
//	milliseconds of the request identifiers, minus the milliseconds of the times, in byte planes
//	random       the 74 random bits of each identifier that is a UUIDv7, in 10 bytes
//	extras       the remaining fields of the records that have any. An authentication has no Seq: minus its Count is in
//	             its place, which versions from before pass on as it is
//
// A dictionary is two columns: the lengths of its entries, and their bytes. Entry numbers
// take no byte plane for a dictionary with one entry, else one or two.
func (t *Table) Encode(c *Codec) ([]byte, error) {
	n := len(t.rows)
	if n == 0 || n > MaxRecords {
		return nil, fmt.Errorf("a block must have between 1 and 4096 audit records, not %d", n)
	}
	if t.encoder == nil {
		t.encoder = &encoder{}
	}
	e := t.encoder
	e.codec, e.table, e.dst = c, t, e.dst[:0]
	e.dst = append(e.dst, version)
	e.dst = binary.AppendUvarint(e.dst, uint64(n))
	e.dst = binary.AppendVarint(e.dst, t.rows[0].time)
	e.values = e.values[:0]
	for i := 1; i < n; i++ {
		e.values = append(e.values, uint64(t.rows[i].time-t.rows[i-1].time))
	}
	e.numbers()
	for column, d := range [...]*dictionary{&t.calls, &t.callers, &t.clients, &t.paths} {
		e.dictionary(column, d)
	}
	e.requests()
	e.extras()
	e.table = nil
	if len(e.dst) > maxContent {
		return nil, fmt.Errorf("a block of %d audit records is too large: %d bytes", n, len(e.dst))
	}
	return slices.Clone(e.dst), nil
}

// encoder is the memory of Encode, which is reused.
type encoder struct {
	codec  *Codec
	table  *Table
	dst    []byte
	room   []byte
	values []uint64
	local  []uint32 // number in the block of each entry of a dictionary, from 1; 0 if unused
	order  []uint32 // the entries of a dictionary in the block, in their order
	of     []uint16 // number in the block of each record's entry
}

func (e *encoder) column(raw []byte) { e.dst = appendColumn(e.dst, e.codec, raw) }

// numbers writes e.values in byte planes, as many as the largest value needs. The low bytes are
// random; in planes of their own they do not impair the compression of the high bytes.
func (e *encoder) numbers() {
	all := uint64(0)
	for _, v := range e.values {
		all |= v
	}
	width := (bits.Len64(all) + 7) / 8
	e.dst = append(e.dst, byte(width))
	for plane := range width {
		e.room = e.room[:0]
		for _, v := range e.values {
			e.room = append(e.room, byte(v>>(8*plane)))
		}
		e.column(e.room)
	}
}

// dictionary writes the entries that the records use, and the entry number of each record.
func (e *encoder) dictionary(column int, d *dictionary) {
	e.local = slices.Grow(e.local[:0], len(d.entries))[:len(d.entries)]
	clear(e.local)
	e.order, e.of = e.order[:0], e.of[:0]
	for i := range e.table.rows {
		n := e.table.rows[i].entry[column]
		if e.local[n] == 0 {
			e.order = append(e.order, n)
			e.local[n] = uint32(len(e.order))
		}
		e.of = append(e.of, uint16(e.local[n]-1))
	}
	e.dst = binary.AppendUvarint(e.dst, uint64(len(e.order)))
	e.room = e.room[:0]
	for _, n := range e.order {
		e.room = binary.AppendUvarint(e.room, uint64(len(d.entries[n])))
	}
	e.column(e.room)
	e.room = e.room[:0]
	for _, n := range e.order {
		e.room = append(e.room, d.entries[n]...)
	}
	e.column(e.room)
	for plane := range planesOf(len(e.order)) {
		e.room = e.room[:0]
		for _, n := range e.of {
			e.room = append(e.room, byte(n>>(8*plane)))
		}
		e.column(e.room)
	}
}

// planesOf returns the number of bytes of an entry number in a dictionary of n entries.
func planesOf(n int) int { return (bits.Len(uint(n-1)) + 7) / 8 }

// requests writes the identifiers of requests. Their random bits are the larger part of a
// block, and cannot be compressed.
func (e *encoder) requests() {
	rows := e.table.rows
	e.values = e.values[:0]
	for i := range rows {
		if r := &rows[i]; r.request != [16]byte{} {
			e.values = append(e.values, zigzag(idMillis(&r.request)-millis(r.time)))
		}
	}
	e.numbers()
	e.room = e.room[:0]
	for i := range rows {
		r := &rows[i]
		if r.request == [16]byte{} {
			continue
		}
		hi, lo := binary.BigEndian.Uint64(r.request[:8]), binary.BigEndian.Uint64(r.request[8:])
		// 12 bits after the version, and 62 after the variant.
		e.room = binary.BigEndian.AppendUint16(e.room, uint16(hi&0xfff)<<4)
		e.room = binary.BigEndian.AppendUint64(e.room, lo&(1<<62-1))
	}
	e.dst = appendColumn(e.dst, nil, e.room)
}

func zigzag(v int64) uint64   { return uint64(v<<1) ^ uint64(v>>63) }
func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

// idMillis returns the milliseconds since 1970 in a UUIDv7.
func idMillis(u *[16]byte) int64 { return int64(binary.BigEndian.Uint64(u[:8]) >> 16) }

// millis converts microseconds to milliseconds, rounded down also before 1970.
func millis(us int64) int64 {
	ms := us / 1000
	if us%1000 < 0 {
		ms--
	}
	return ms
}

// extras writes the fields that few records have.
func (e *encoder) extras() {
	e.room = e.room[:0]
	last := -1
	for i := range e.table.rows {
		n := e.table.rows[i].extra
		if n == 0 {
			continue
		}
		x := &e.table.extras[n-1]
		e.room = binary.AppendUvarint(e.room, uint64(i-last))
		last = i
		e.room = binary.AppendVarint(e.room, x.seq)
		plain := byte(0)
		if e.table.rows[i].request != [16]byte{} {
			plain = 1
		}
		e.room = append(e.room, plain)
		for _, s := range [...]string{x.request, x.action, x.target, x.actor, x.diff} {
			e.room = binary.AppendUvarint(e.room, uint64(len(s)))
			e.room = append(e.room, s...)
		}
	}
	e.column(e.room)
}
