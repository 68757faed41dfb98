package hpack

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// index finds the entries of a dynamic table by their name, and by name and value. It is
// a hash table whose chains lead from newer to older entries. The oldest entries are
// evicted first, so an eviction leaves the chains as they are: a chain ends at the first
// entry that is no longer in the table.
//
// It has as many chains of either kind as the ring of the table has entries, so a chain is
// short, and whatever the names and values are it has no more entries than the table.
//
// Entries are numbered from 1 in the order in which they were added.
type index []links

// links has, for each pair of hashes, the newest entries of two chains, and for each entry of the
// ring the next older entries of its two chains.
type links struct{ name, pair, olderName, olderPair uint32 }

// find returns the newest entry of t that has the given hash, name and, with pair, value,
// counted from 0 as table.at does, or -1.
func (x index) find(t *table, hash uint64, name, value []byte, pair bool) int {
	if t.n == 0 {
		return -1
	}
	mask := uint32(len(x) - 1)
	number := x[uint32(hash)&mask].name
	if pair {
		number = x[uint32(hash)&mask].pair
	}
	for t.added-number < uint32(t.n) {
		e := t.at(int(t.added - number))
		if int(e.name) == len(name) && (!pair || int(e.value) == len(value)) &&
			bytes.Equal(t.nameOf(e), name) && (!pair || bytes.Equal(t.valueOf(e), value)) {
			return int(t.added - number)
		}
		next := &x[(number-1)&mask]
		number = next.olderName
		if pair {
			number = next.olderPair
		}
	}
	return -1
}

// add adds the newest entry of t to the chains of the two hashes.
func (x *index) add(t *table, name, pair uint64) {
	if len(*x) == len(t.ring) {
		x.link(t.added, name, pair)
		return
	}
	*x = make(index, len(t.ring))
	for i := t.n - 1; i >= 0; i-- {
		e := t.at(i)
		name = hashOf(0, t.nameOf(e))
		x.link(t.added-uint32(i), name, hashOf(name, t.valueOf(e)))
	}
}

// link adds the entry with a number to the chains of the two hashes.
func (x index) link(number uint32, name, pair uint64) {
	mask := uint32(len(x) - 1)
	own, names, pairs := &x[(number-1)&mask], &x[uint32(name)&mask], &x[uint32(pair)&mask]
	own.olderName, own.olderPair = names.name, pairs.pair
	names.name, pairs.pair = number, number
}

// hashOf returns a hash of b that continues the hash h. It has no secret: a peer that chooses the
// texts can make a chain as long as a table, which is short.
func hashOf(h uint64, b []byte) uint64 {
	const factor = 0x9e3779b97f4a7c15
	h ^= uint64(len(b))
	for len(b) > 8 {
		high, low := bits.Mul64(h^binary.LittleEndian.Uint64(b), factor)
		h = high ^ low
		b = b[8:]
	}
	var last uint64
	switch n := len(b); {
	case n >= 4:
		last = uint64(binary.LittleEndian.Uint32(b)) | uint64(binary.LittleEndian.Uint32(b[n-4:]))<<32
	case n > 0:
		last = uint64(b[0]) | uint64(b[n/2])<<8 | uint64(b[n-1])<<16
	}
	high, low := bits.Mul64(h^last, factor)
	return high ^ low
}

// staticNames finds the first entry of the static table with a name. Entries with one
// name follow each other.
var staticNames = makeStaticNames() //nolint:gochecknoglobals // a table that is never written

// staticIndex is a hash table with open addressing.
type staticIndex [256]uint8

func makeStaticNames() (x staticIndex) {
	for i := staticLen; i > 0; i-- { // the first of several comes last, and stays
		name := static[i].name
		at := hashOf(0, name) % uint64(len(x))
		for x[at] != 0 && !bytes.Equal(static[x[at]].name, name) {
			at = (at + 1) % uint64(len(x))
		}
		x[at] = uint8(i)
	}
	return x
}

// find returns the first entry with a name that has the given hash, or 0.
func (x *staticIndex) find(hash uint64, name []byte) int {
	for at := hash % uint64(len(x)); x[at] != 0; at = (at + 1) % uint64(len(x)) {
		if i := int(x[at]); bytes.Equal(static[i].name, name) {
			return i
		}
	}
	return 0
}
