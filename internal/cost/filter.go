package cost

import (
	"bytes"
	"slices"
	"strings"
)

// filter finds the events that may have a field, without parsing: only those have the last name of a path, in quotes. A
// name may also be written with escapes, so an event with one is a candidate, too. The filter looks for one rare byte of
// each name.
type filter struct {
	anchors []anchor
	slash   bool // any escape is suspect, and not only \u
	longest int  // bytes of the longest needle
}

// anchor is a byte that needles have, with the bytes around it if they all have these.
type anchor struct {
	byte             byte
	before, after    byte
	isBefore, isNext bool // all needles have before, or after
	needles          []needle
}

// needle is a name in quotes.
type needle struct {
	text   string
	offset int   // of the anchor's byte
	slot   int32 // of the text, if the name only belongs to one path of by; else noSlot
}

// The most that a filter looks for. Beyond, every event is parsed.
const (
	maxAnchors = 3
	maxNeedles = 32
)

// newFilter returns the filter of a program, or nil if none pays.
func newFilter(p *Program) *filter {
	f := &filter{}
	var open []needle // without an anchor yet
	for i := theRoot + 1; i < len(p.nodes); i++ {
		n := &p.nodes[i]
		if n.number == noSlot && n.text == noSlot {
			continue
		}
		f.slash = f.slash || strings.ContainsAny(n.name, `/"\`)
		f.longest = max(f.longest, len(n.name)+len(`""`))
		nd := needle{text: `"` + n.name + `"`, slot: noSlot}
		if n.number == noSlot && p.isAlone(n.text) {
			nd.slot = n.text
		}
		if at := slices.IndexFunc(open, func(o needle) bool { return o.text == nd.text }); at >= 0 {
			open[at].slot = noSlot
			continue
		}
		open = append(open, nd)
	}
	if len(open) > maxNeedles {
		return nil
	}
	for len(open) > 0 {
		if len(f.anchors) == maxAnchors {
			return nil
		}
		a := anchor{byte: bestAnchor(open)}
		open = slices.DeleteFunc(open, func(n needle) bool {
			n.offset = strings.IndexByte(n.text, a.byte)
			if n.offset >= 0 {
				a.needles = append(a.needles, n)
			}
			return n.offset >= 0
		})
		f.anchors = append(f.anchors, a.withNeighbours())
	}
	return f
}

// withNeighbours returns a with the bytes around it that its needles share.
func (a anchor) withNeighbours() anchor {
	shared := func(by int) (byte, bool) {
		var b byte
		for i, n := range a.needles {
			at := n.offset + by
			if at < 0 || at >= len(n.text) || i > 0 && n.text[at] != b {
				return 0, false
			}
			b = n.text[at]
		}
		return b, true
	}
	a.before, a.isBefore = shared(-1)
	a.after, a.isNext = shared(1)
	return a
}

// isAlone reports whether no rule has another path for the text of a slot. Then it makes no difference in which of several
// events the same text is read.
func (p *Program) isAlone(text int32) bool {
	return !slices.ContainsFunc(p.figures, func(f figure) bool { return len(f.by) > 1 && slices.Contains(f.by, text) })
}

// bestAnchor returns the byte of the needles that is in most of them for how often it is in responses.
func bestAnchor(needles []needle) byte {
	// Letters as rare as they are in English and in JSON, from the most frequent on.
	const frequent = `" etaoinsr:,_0123456789cdlpumhg.-fwybv`
	var best byte
	score := -1.0
	for b := range 256 {
		in := 0
		for _, n := range needles {
			if strings.IndexByte(n.text, byte(b)) >= 0 {
				in++
			}
		}
		rank := strings.IndexByte(frequent, byte(b))
		if rank < 0 {
			rank = len(frequent)
		}
		if s := float64(in) * float64(rank); in > 0 && s > score {
			best, score = byte(b), s
		}
	}
	return best
}

// candidate is where a filter found something in a piece, or searches on.
type candidate struct {
	anchors [maxAnchors]int // positions before which there is no candidate of an anchor
	escape  int             // the same for escapes
	hits    int             // how many more bytes may be looked at, before parsing costs less
}

// candidateIn returns where the search in b begins.
func candidateIn(b []byte) candidate { return candidate{hits: 16 + len(b)/16} }

// next returns the first position of b that may belong to a field, or len(b). It is called with positions that rise.
func (f *filter) next(b []byte, from int, c *candidate, texts []textSlot) int {
	first := f.nextEscape(b, from, c)
	for i := range f.anchors {
		c.anchors[i] = max(c.anchors[i], from)
		first = f.anchors[i].next(b, first, &c.anchors[i], c, texts)
	}
	return first
}

// nextEscape returns the first position from which on b has a suspect escape, or len(b).
func (f *filter) nextEscape(b []byte, from int, c *candidate) int {
	if c.escape > from {
		return c.escape
	}
	for at := from; ; at += 2 {
		i := bytes.IndexByte(b[min(at, len(b)):], '\\')
		if i < 0 {
			c.escape = len(b)
			return len(b)
		}
		at += i
		if c.hits--; c.hits < 0 || f.slash || at+1 >= len(b) || b[at+1] == 'u' {
			c.escape = at
			return at
		}
	}
}

// next returns the first position from *at on and below end at which b has a needle, or end. It sets *at to it.
func (a *anchor) next(b []byte, end int, at *int, c *candidate, texts []textSlot) int {
	i := *at
	for i < end {
		j := bytes.IndexByte(b[i:end], a.byte)
		if j < 0 {
			*at = end
			return end
		}
		i += j
		if c.hits--; c.hits < 0 {
			*at = i
			return i
		}
		if (!a.isBefore || i > 0 && b[i-1] == a.before) && (!a.isNext || i+1 < len(b) && b[i+1] == a.after) && a.matches(b, i, texts) {
			*at = i
			return i
		}
		i++
	}
	*at = max(*at, i)
	return end
}

// matches reports whether the byte i of b is the anchor of a needle.
func (a *anchor) matches(b []byte, i int, texts []textSlot) bool {
	for j := range a.needles {
		n := &a.needles[j]
		start := i - n.offset
		if start < 0 || len(b)-start < len(n.text) || string(b[start:start+len(n.text)]) != n.text {
			continue
		}
		if n.slot == noSlot || !texts[n.slot].isFollowing(b[start+len(n.text):]) {
			return true
		}
	}
	return false
}
