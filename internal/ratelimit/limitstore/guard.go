package limitstore

import (
	"errors"
	"net"
	"strconv"
)

// The bounds of what a server may send. Answers of the script, and all that a client asks for to find servers, have far less.
const (
	maxText     = 1 << 20  // bytes of a string
	maxElements = 1 << 16  // of an array, set, push or map
	maxLine     = 64 << 10 // bytes of a line
	maxDepth    = 16       // arrays within arrays
	maxReply    = 8 << 20  // bytes of an answer
)

var errReply = errors.New("the limit store sends what no limit store sends: the connection is closed")

// guarded is a connection to a server that may be broken, or another service. The client takes memory for each length
// that a server names, and its goroutines panic at lengths that are no lengths, so they see only replies that are bounded.
type guarded struct {
	net.Conn
	check replies
}

func (g *guarded) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if !g.check.scan(b[:n]) {
		_ = g.Close()
		return 0, errReply
	}
	return n, err
}

// replies follows the replies in a stream of RESP, version 2 or 3. The zero value is at the begin of a reply.
type replies struct {
	line  [24]byte // the begin of the present line
	long  int      // bytes of it so far
	skip  int      // bytes of a string, with its end, that are still to come
	open  []int    // elements that the arrays around lack
	total int      // bytes of the present reply
}

// scan reports whether b may follow. After false, it must not be called again.
func (r *replies) scan(b []byte) bool {
	for len(b) > 0 {
		if r.skip > 0 {
			n := min(r.skip, len(b))
			r.skip -= n
			r.total += n
			if b = b[n:]; r.skip == 0 {
				r.end()
			}
			continue
		}
		c := b[0]
		b = b[1:]
		if r.long < len(r.line) {
			r.line[r.long] = c
		}
		r.long++
		if r.total++; r.long > maxLine || r.total > maxReply {
			return false
		}
		if c == '\n' && !r.header() {
			return false
		}
	}
	return true
}

// header reports whether the line that has ended may be one.
func (r *replies) header() bool {
	long := r.long
	r.long = 0
	if long < 3 {
		return false
	}
	times := 1
	switch kind := r.line[0]; kind {
	case '+', '-', ':', '_', '#', ',', '(':
		r.end()
		return true
	case '$', '=', '!':
		n, ok := r.number(long)
		switch {
		case !ok || n > maxText || r.total+n > maxReply:
			return false
		case n < 0:
			r.end()
		default:
			r.skip = n + 2
		}
		return true
	case '%':
		times = 2
		fallthrough
	case '*', '~', '>':
		n, ok := r.number(long)
		switch {
		case !ok || n > maxElements || n > 0 && len(r.open) == maxDepth:
			return false
		case n <= 0:
			r.end()
		default:
			r.open = append(r.open, times*n)
		}
		return true
	default:
		return false
	}
}

// number returns the number of a line; −1 stands for nothing.
func (r *replies) number(long int) (n int, ok bool) {
	if long > len(r.line) {
		return 0, false
	}
	n, err := strconv.Atoi(string(r.line[1 : long-2]))
	return n, err == nil && n >= -1 && r.line[long-2] == '\r'
}

// end ends an element, and the arrays of which it is the last one.
func (r *replies) end() {
	for len(r.open) > 0 {
		last := len(r.open) - 1
		if r.open[last]--; r.open[last] > 0 {
			return
		}
		r.open = r.open[:last]
	}
	r.total = 0
}
