package h1

// inputSize is the room for a request's head, and for a small body, before more is taken.
const inputSize = 8 << 10

// input holds what was received from the client and is not served yet: in[start:stop].
// The request begins at start; after is where what follows it begins.
type input struct {
	in          []byte
	start, stop int
	after       int
	unseen      bool // something was added that nobody has parsed
	own         [inputSize]byte
}

// reset forgets what was received, and the room that it took beyond own.
func (i *input) reset() {
	i.in = i.own[:]
	i.after = 0
	i.rewind()
}

func (i *input) empty() bool { return i.start == i.stop }

// rewind makes use of the whole room again. There must be nothing left.
func (i *input) rewind() { i.start, i.stop, i.unseen = 0, 0, false }

// space returns where to receive into; it is never empty.
func (i *input) space() []byte { return i.in[i.stop:] }

// add appends what was received elsewhere.
func (i *input) add(b []byte) {
	for len(i.in)-i.stop <= len(b) {
		i.grow()
	}
	i.stop += copy(i.in[i.stop:], b)
	i.unseen = true
}

// makeSpace makes sure that there is room to receive into.
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
