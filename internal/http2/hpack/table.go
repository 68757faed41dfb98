package hpack

// table is a dynamic table (RFC 7541, 2.3.2). Its zero value is empty and has a maximum
// size of 0.
//
// Names and values stand one after the other in buf, in the order in which they were added, so the
// entries that are left are always one run of bytes. When that run reaches the end of buf it is
// moved to the beginning. Adding an entry thus allocates only until buf and ring have reached their
// full lengths: twice the TableSize, and one entry for each 32 bytes of it.
type table struct {
	buf        []byte
	start, end int     // the run: buf[start:end]
	ring       []entry // a power of two of them
	added      uint32  // number of entries added so far, modulo 2^32
	n          int     // number of entries
	size       int     // as RFC 7541, 4.1 counts it
	max        int     // the maximum of size
}

// entry is an entry of a dynamic table.
type entry struct {
	offset      uint16 // of its name, which its value follows
	name, value uint16 // lengths
	tag         uint16
}

const (
	firstBuffer = 256 // length of buf after the first entry
	firstRing   = 8   // length of ring after the first entry
)

// at returns the entry with an index that is counted from 0, the newest. The index must
// be below t.n.
func (t *table) at(i int) entry {
	return t.ring[(t.added-1-uint32(i))&uint32(len(t.ring)-1)]
}

// nameOf and valueOf return the bytes of an entry, which change when the next entry is added.
func (t *table) nameOf(e entry) []byte {
	from, to := uint(e.offset), uint(e.offset)+uint(e.name)
	return t.buf[from:to:to]
}

func (t *table) valueOf(e entry) []byte {
	from := uint(e.offset) + uint(e.name)
	to := from + uint(e.value)
	return t.buf[from:to:to]
}

// setMax changes the maximum size, and evicts the oldest entries that exceed it.
func (t *table) setMax(n int) {
	t.max = n
	t.evict(n)
}

// evict removes the oldest entries until the size is at most n. It leaves their bytes as
// they are.
func (t *table) evict(n int) {
	for t.size > n {
		e := t.at(t.n - 1)
		length := int(e.name) + int(e.value)
		t.start += length
		t.size -= length + overhead
		t.n--
	}
}

// reserve makes room for n bytes, at most TableSize, behind the run. It may move the run.
func (t *table) reserve(n int) {
	if t.n == 0 {
		t.start, t.end = 0, 0
	}
	if t.end+n <= len(t.buf) {
		return
	}
	// Once entries are evicted, the run moves to the beginning each time that it reaches the end of
	// buf. So that this is rare, the rest of buf must be as long as the run.
	need := t.end - t.start + n
	if t.start > 0 {
		need *= 2
	}
	buf, length := t.buf, len(t.buf)
	for length < 2*TableSize && length < need {
		length = max(2*length, firstBuffer)
	}
	if length > len(buf) {
		buf = make([]byte, length)
	}
	copy(buf, t.buf[t.start:t.end])
	for i := range t.n {
		t.ring[(t.added-1-uint32(i))&uint32(len(t.ring)-1)].offset -= uint16(t.start)
	}
	t.buf, t.start, t.end = buf, 0, t.end-t.start
}

// add adds an entry, which alone must not exceed the maximum size, after evicting the entries that
// exceed it together with the new one (RFC 7541, 4.4). reserve must have made room for its bytes.
func (t *table) add(name, value []byte, tag uint16) {
	size := len(name) + len(value) + overhead
	t.evict(t.max - size)
	if t.n == len(t.ring) {
		t.growRing()
	}
	e := entry{offset: uint16(t.end), name: uint16(len(name)), value: uint16(len(value)), tag: tag}
	t.end += copy(t.buf[t.end:], name)
	t.end += copy(t.buf[t.end:], value)
	t.ring[t.added&uint32(len(t.ring)-1)] = e
	t.added++
	t.n++
	t.size += size
}

// growRing doubles the ring. The index of an entry in the ring depends on its length.
func (t *table) growRing() {
	old := t.ring
	t.ring = make([]entry, max(2*len(old), firstRing))
	for i := range uint32(t.n) {
		k := t.added - 1 - i
		t.ring[k&uint32(len(t.ring)-1)] = old[k&uint32(len(old)-1)]
	}
}
