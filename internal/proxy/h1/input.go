package h1

// inputSize is the size of the first buffer, for a request's head and a small body.
const inputSize = 8 << 10

// input holds the bytes received from the client that are not served yet: in[start:stop].
// The request begins at start, and the bytes after it at after.
type input struct {
	in          []byte
	start, stop int
	after       int
	unseen      bool // bytes were added that have not been parsed
	own         [inputSize]byte
}

// reset drops what was received, and memory beyond own.
func (i *input) reset() {
	i.in = i.own[:]
	i.after = 0
	i.rewind()
}

func (i *input) empty() bool { return i.start == i.stop }

// rewind makes the whole buffer available again. It must be empty.
func (i *input) rewind() { i.start, i.stop, i.unseen = 0, 0, false }

// space returns the free part of the buffer to receive into. It is never empty.
func (i *input) space() []byte { return i.in[i.stop:] }

// add appends bytes that were received elsewhere.
func (i *input) add(b []byte) {
	for len(i.in)-i.stop <= len(b) {
		i.grow()
	}
	i.stop += copy(i.in[i.stop:], b)
	i.unseen = true
}

// makeSpace ensures that the buffer has free space.
func (i *input) makeSpace() {
	if i.start > 0 {
		i.stop = copy(i.in, i.in[i.start:i.stop])
		i.start = 0
	}
	if i.stop == len(i.in) {
		i.grow()
	}
}

func (i *input) grow() {
	in := make([]byte, 2*len(i.in))
	copy(in, i.in[:i.stop])
	i.in = in
}
