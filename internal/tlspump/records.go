package tlspump

// headerLen is the length of a record's header, in bytes.
const headerLen = 5

// records counts the TLS records that a stream completes, however it is split.
type records struct {
	whole  int    // completed records, until the owner resets it
	left   uint16 // bytes of the current record that are still to come
	length uint16 // of the next record, as far as its header has arrived
	header uint8  // bytes of that header that have arrived
}

// add takes the next bytes of the stream.
func (r *records) add(b []byte) {
	for len(b) > 0 {
		if r.left > 0 {
			n := min(int(r.left), len(b))
			b = b[n:]
			if r.left -= uint16(n); r.left == 0 {
				r.whole++
			}
			continue
		}
		if r.header >= 3 {
			r.length = r.length<<8 | uint16(b[0])
		}
		b = b[1:]
		if r.header++; r.header < headerLen {
			continue
		}
		if r.left = r.length; r.left == 0 {
			r.whole++
		}
		r.length, r.header = 0, 0
	}
}

// between reports whether the stream has come to the end of a record.
func (r *records) between() bool { return r.left == 0 && r.header == 0 }
