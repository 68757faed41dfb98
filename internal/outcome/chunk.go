package outcome

import "unsafe"

const (
	// MaxPath is how many bytes of a path an entry keeps.
	MaxPath = 16 << 10
	// MaxMethod is how many bytes of a method's text an entry keeps.
	MaxMethod = 64

	// A chunk has room for this many entries, and for the longest texts behind
	// others of usual length.
	chunkEntries = 128
	chunkText    = MaxPath + MaxMethod + 8<<10
)

// chunk is a batch that is filled, taken, and filled again.
type chunk struct {
	n, used int // of entries and of text
	entries [chunkEntries]Entry
	text    [chunkText]byte
}

// add reports false if there is no room.
func (c *chunk) add(r *Record, method, path string) bool {
	if c.n == len(c.entries) || len(c.text)-c.used < len(method)+len(path) {
		return false
	}
	e := &c.entries[c.n]
	e.Record = *r
	e.MethodText, e.Path = c.keep(method), c.keep(path)
	c.n++
	return true
}

// keep returns a copy of s that lasts until the chunk is filled again.
func (c *chunk) keep(s string) string {
	if s == "" {
		return ""
	}
	kept := c.text[c.used : c.used+len(s)]
	c.used += copy(kept, s)
	return unsafe.String(unsafe.SliceData(kept), len(kept)) //nolint:gosec // a copy of each path would be an allocation
}

func (c *chunk) batch() []Entry { return c.entries[:c.n] }

func (c *chunk) reset() { c.n, c.used = 0, 0 }
