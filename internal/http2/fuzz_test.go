package http2

import (
	"math/rand/v2"
	"testing"
)

// fuzz compares the events for an input that comes whole and in pieces, and checks the bounds on
// memory. setup prepares each Conn.
func fuzz(t *testing.T, cfg Config, setup func(*owner), input []byte) {
	whole := play(cfg, setup, [][]byte{input})
	checkBounds(t, whole, len(input))
	r := rand.New(rand.NewPCG(uint64(len(input)), 13))
	for i, pieces := range splits(r, input) {
		d := play(cfg, setup, pieces)
		if d.trace() != whole.trace() {
			t.Fatalf("split %d of %q\ngot:\n%s\nwant, as in one piece:\n%s", i, input, d.trace(), whole.trace())
		}
		checkBounds(t, d, len(input))
	}
}

// checkBounds fails if a Conn holds more than the limits allow, or has more output than an
// input of n bytes is worth.
func checkBounds(t *testing.T, d *owner, n int) {
	c := d.Conn
	if held := cap(c.block.buf); held > 2*max(c.limits.block, keepBlock) {
		t.Fatalf("got %d bytes held of a header block", held)
	}
	if len(c.streams.slots) > MaxStreams || c.streams.n > MaxStreams || len(c.recent.ids) > recentStreams {
		t.Fatalf("got room for %d streams, %d streams, %d remembered", len(c.streams.slots), c.streams.n, len(c.recent.ids))
	}
	if c.recv < 0 || c.recv > int64(c.cfg.ConnWindow) || c.credit < 0 {
		t.Fatalf("got a window of %d bytes and %d of credit", c.recv, c.credit)
	}
	for _, f := range parseFrames(d.out) {
		if f.Length != len(f.payload) || f.Type == FrameData || f.Type == FramePushPromise || f.Type == FrameContinuation {
			t.Fatalf("got frame %+v of %d bytes", f.FrameHeader, len(f.payload))
		}
	}
	// A frame of 9 bytes causes at most one frame of 17 bytes, or two of 13 bytes, the second for its window.
	if len(d.out) > 200+3*n {
		t.Fatalf("got %d bytes of output for %d bytes of input", len(d.out), n)
	}
}

// Guarantee: no bytes of a client make a server panic, hold more than its bounds or send out of
// proportion, and the effect does not depend on how they are split.
func FuzzServer(f *testing.F) {
	for _, c := range serverCases {
		if c.script.Len() < 2000 {
			f.Add(c.script.Bytes()[len(newClient().Bytes()):])
		}
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		fuzz(t, Config{}, nil, append(newClient().Bytes(), input...))
		fuzz(t, Config{ExtendedConnect: true, MaxStreams: 2}, nil, input)
	})
}

// Guarantee: the same as FuzzServer for a client and the bytes of a server.
func FuzzClient(f *testing.F) {
	for _, c := range clientCases {
		f.Add(c.script.Bytes()[len(newServer().Bytes()):])
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		setup := func(d *owner) {
			open(4)(d)
			d.Take(nil) // the requests are no reply
		}
		fuzz(t, Config{Role: Client}, setup, append(newServer().Bytes(), input...))
	})
}
