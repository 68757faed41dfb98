package accesslog

import "unsafe"

const (
	// MaxPath is how many bytes of a path an entry keeps.
	MaxPath = 16 << 10
	// MaxMethod is how many bytes of a method's text an entry keeps.
	MaxMethod = 64

	// A chunk has room for this many entries, and for texts of usual length. A
	// longer path has memory of its own: a caller that sends such paths must not
	// use up the room for the records of others.
	chunkEntries = 128
	chunkText    = 24 << 10
	longPath     = 1 << 10
)

// chunk is a batch that is filled, taken, and filled again.
type chunk struct {
	n, used int   // of entries and of text
	long    int64 // bytes of long paths
	entries [chunkEntries]Entry
	text    [chunkText]byte
}

// addFull reports false if there is no room. A long path is kept as it is, others
// are copied.
func (c *chunk) add(r *Record, method, path string) bool {
	long := len(path) > longPath
	need := len(method) + len(path)
	if long {
		need = len(method)
	}
	if c.n == len(c.entries) || len(c.text)-c.used < need {
		return false
	}
	e := &c.entries[c.n]
	e.Record = *r
	e.MethodText = c.copyText(method)
	if long {
		e.Path = path
		c.long += int64(len(path))
	} else {
		e.Path = c.copyText(path)
	}
	c.n++
	return true
}

// copyText returns a copy of s that lasts until the chunk is filled again.
func (c *chunk) copyText(s string) string {
	if s == "" {
		return ""
	}
	kept := c.text[c.used : c.used+len(s)]
	c.used += copy(kept, s)
	return unsafe.String(unsafe.SliceData(kept), len(kept)) //nolint:gosec // a copy of each path would be an allocation
}

func (c *chunk) batch() []Entry { return c.entries[:c.n] }

// reset empties the chunk, and returns how many bytes of long paths it had.
func (c *chunk) reset() (long int64) {
	if c.long > 0 {
		for i := range c.batch() {
			c.entries[i].Path = ""
		}
	}
	long, c.n, c.used, c.long = c.long, 0, 0, 0
	return long
}
