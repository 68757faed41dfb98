package audit

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
)

// MaxRecords is how many records a block holds at most.
const MaxRecords = 4096

// version begins the content of a block.
const version = 1

// Encode returns the content of a block: the table's records, which were sorted,
// column by column. c nil packs nothing, for what is soon written again.
//
//	version, number of records, time of the first
//	times        differences, in planes of bytes, the lowest first
//	calls        dictionary, then a number for each record
//	callers      the same
//	clients      the same
//	paths        the same
//	milliseconds of the request's identifier less those of the time, in planes
//	random       the 74 random bits of the identifiers that are UUIDv7, 10 bytes each
//	extras       of the records that have any
//
// A dictionary is two columns, the lengths of its entries and their bytes;
// numbers are none for a dictionary of one, one plane of bytes, or two.
func (t *Table) Encode(c *Codec) ([]byte, error) {
	n := len(t.rows)
	if n == 0 || n > MaxRecords {
		return nil, fmt.Errorf("a block cannot hold %d audit records", n)
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
		return nil, fmt.Errorf("a block of %d audit records has %d bytes", n, len(e.dst))
	}
	return slices.Clone(e.dst), nil
}

// encoder is the memory that Encode needs, for the next time.
type encoder struct {
	codec  *Codec
	table  *Table
	dst    []byte
	room   []byte
	values []uint64
	local  []uint32 // of the entries of a dictionary: their number in the block, from 1
	order  []uint32 // and the other way round
	of     []uint16 // the number in the block of each record's entry
}

func (e *encoder) column(raw []byte) { e.dst = appendColumn(e.dst, e.codec, raw) }

// numbers writes e.values in as many planes as the largest needs: the low bytes
// are random and would spoil the packing of the high ones.
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

// dictionary writes the entries that records use, and which uses which.
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

// planesOf returns how many bytes the number of one of n entries has.
func planesOf(n int) int { return (bits.Len(uint(n-1)) + 7) / 8 }

// requests writes the identifiers of requests. What is random in them is the
// larger part of a block, and nothing packs it.
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
		// 12 bits beside the version, 62 below the variant.
		e.room = binary.BigEndian.AppendUint16(e.room, uint16(hi&0xfff)<<4)
		e.room = binary.BigEndian.AppendUint64(e.room, lo&(1<<62-1))
	}
	e.dst = appendColumn(e.dst, nil, e.room)
}

func zigzag(v int64) uint64   { return uint64(v<<1) ^ uint64(v>>63) }
func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

// idMillis returns the milliseconds since 1970 in a UUIDv7.
func idMillis(u *[16]byte) int64 { return int64(binary.BigEndian.Uint64(u[:8]) >> 16) }

// millis rounds down, also before 1970.
func millis(us int64) int64 {
	ms := us / 1000
	if us%1000 < 0 {
		ms--
	}
	return ms
}

// extras writes what few records have.
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
