package http2

// stream is the state of a stream, from its first HEADERS frame until Done.
type stream struct {
	id    uint32
	flags streamFlags

	recv   int32 // what the peer may still send, in bytes
	held   int32 // bytes that the owner has got and not given back by Consumed
	credit int32 // bytes that the owner has given back and the peer does not know of yet
	send   int32 // bytes that may still be sent; negative after the peer has lowered its setting
	length int64 // rest of content-length, or -1 if it is unknown
	owner  any
}

// streamFlags say what has happened on a stream.
type streamFlags uint16

const (
	remoteEnd streamFlags = 1 << iota // END_STREAM was received
	localEnd                          // END_STREAM was sent
	wasReset                          // RST_STREAM was received, or the peer will not serve the stream
	weReset                           // RST_STREAM was sent
	hasHead                           // the head of the request, or the final one of the response, was received
	sentHead                          // a head was sent
	bodiless                          // the response has no body, whatever its fields say
	malformed                         // the head of the request is malformed
)

func (s *stream) is(f streamFlags) bool { return s.flags&f != 0 }

// table holds the streams of a connection: slots that do not move, and a hash table with
// open addressing that finds them by their identifiers. Its zero value is empty.
type table struct {
	slots []stream // those with the identifier 0 are free
	free  []uint16 // indices of free slots
	index []uint16 // index of a slot + 1, or 0; a power of two, at least twice the slots
	n     int
}

const (
	firstSlots = 4  // number of slots after the first stream
	keepSlots  = 32 // number of slots that are kept when no stream is left
)

// find returns a stream, or nil. The pointer is valid until the next add.
func (t *table) find(id uint32) *stream {
	if t.n == 0 {
		return nil
	}
	for at := t.home(id); ; at = (at + 1) & t.mask() {
		i := t.index[at]
		if i == 0 {
			return nil
		}
		if s := &t.slots[i-1]; s.id == id {
			return s
		}
	}
}

func (t *table) mask() int { return len(t.index) - 1 }

// home returns where the search for an identifier begins. One side's identifiers are all
// odd, or all even.
func (t *table) home(id uint32) int { return int(id>>1) & t.mask() }

// add adds a stream, which must not be in the table.
func (t *table) add(id uint32) *stream {
	if len(t.free) == 0 {
		t.grow()
	}
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	s := &t.slots[i]
	*s = stream{id: id}
	t.n++
	t.insert(id, i+1)
	return s
}

func (t *table) insert(id uint32, i uint16) {
	at := t.home(id)
	for t.index[at] != 0 {
		at = (at + 1) & t.mask()
	}
	t.index[at] = i
}

// grow doubles the number of slots.
func (t *table) grow() {
	old := len(t.slots)
	n := max(2*old, firstSlots)
	slots := make([]stream, n)
	copy(slots, t.slots)
	t.slots = slots
	t.free = make([]uint16, 0, n)
	for i := n - 1; i >= old; i-- {
		t.free = append(t.free, uint16(i))
	}
	t.index = make([]uint16, 2*n)
	for i := range old {
		t.insert(t.slots[i].id, uint16(i+1))
	}
}

// remove removes a stream, which must be in the table.
func (t *table) remove(s *stream) {
	at := t.home(s.id)
	for t.slots[t.index[at]-1].id != s.id {
		at = (at + 1) & t.mask()
	}
	t.free = append(t.free, t.index[at]-1)
	*s = stream{}
	t.n--
	// The entries that follow without a gap move up, unless this would put them before their home.
	hole := at
	for {
		at = (at + 1) & t.mask()
		i := t.index[at]
		if i == 0 {
			break
		}
		if home := t.home(t.slots[i-1].id); (at-home)&t.mask() >= (at-hole)&t.mask() {
			t.index[hole], hole = i, at
		}
	}
	t.index[hole] = 0
	if t.n == 0 && len(t.slots) > keepSlots {
		*t = table{}
	}
}

// recent remembers the last streams that this side has reset, to distinguish frames that the peer
// sent before it knew of the reset from errors. Its zero value is empty.
type recent struct {
	ids  []uint32 // a ring
	next int
}

// recentStreams is how many streams are remembered: as many as can be open at the same
// time, since a peer that keeps to the limit learns of the reset before it opens more.
const recentStreams = MaxStreams

func (r *recent) add(id uint32) {
	if len(r.ids) < recentStreams {
		r.ids = append(r.ids, id)
		return
	}
	r.ids[r.next] = id
	r.next = (r.next + 1) % recentStreams
}

func (r *recent) has(id uint32) bool {
	for _, x := range r.ids {
		if x == id {
			return true
		}
	}
	return false
}
