package accesslog

import "unsafe"

const (
	// MaxPath is the number of bytes of a path that an entry keeps.
	MaxPath = 16 << 10
	// MaxMethod is the number of bytes of a method's text that an entry keeps.
	MaxMethod = 64
	// MaxDetail is the number of bytes of a detail that an entry keeps.
	MaxDetail = 256

	// A chunk has room for this many entries, and for texts of usual length. A longer path has its
	// own memory, so that a client with long paths does not use up the room for other records.
	chunkEntries = 128
	chunkText    = 8_100
	longPath     = 1 << 10
)

// chunk is a batch that is filled, drained and reused.
type chunk struct {
	n, used int   // used part of entries and of text
	long    int64 // bytes of long paths
	entries [chunkEntries]Entry
	text    [chunkText]byte
}

// add appends an entry. It reports false if there is no room. It copies the texts, except
// for a long path, the owner, the plan, the upstream, the reason of its side, the target and the token.
func (c *chunk) add(r *Record, t *Texts) bool {
	long := len(t.Path) > longPath
	need := len(t.Method) + len(t.Path) + len(t.Detail) + len(t.Cost) + len(t.AttemptList)
	if long {
		need -= len(t.Path)
	}
	if c.n == len(c.entries) || len(c.text)-c.used < need {
		return false
	}
	e := &c.entries[c.n]
	e.Record, e.Owner, e.Plan, e.UpstreamName, e.Target = *r, t.Owner, t.Plan, t.UpstreamName, t.Target
	e.SideReason, e.Token = t.SideReason, t.Token
	e.MethodText = c.copyText(t.Method)
	e.Detail = c.copyText(t.Detail)
	e.Cost = c.copyText(t.Cost)
	e.AttemptList = c.copyText(t.AttemptList)
	if long {
		e.Path = t.Path
		c.long += int64(len(t.Path))
	} else {
		e.Path = c.copyText(t.Path)
	}
	c.n++
	return true
}

// copyText copies s into the chunk. The result is valid until the chunk is reused.
func (c *chunk) copyText(s string) string {
	if s == "" {
		return ""
	}
	kept := c.text[c.used : c.used+len(s)]
	c.used += copy(kept, s)
	return unsafe.String(unsafe.SliceData(kept), len(kept)) //nolint:gosec // a copy of each path would be an allocation
}

func (c *chunk) batch() []Entry { return c.entries[:c.n] }

// reset empties the chunk and returns how many bytes of long paths it had.
func (c *chunk) reset() (long int64) {
	if c.long > 0 {
		for i := range c.batch() {
			c.entries[i].Path = ""
		}
	}
	long, c.n, c.used, c.long = c.long, 0, 0, 0
	return long
}
