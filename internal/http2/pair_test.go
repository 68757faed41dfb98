package http2

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// end is one end of a connection, which sends bodies as far as the windows allow.
type end struct {
	*Conn
	t       *testing.T
	r       *rand.Rand
	body    map[uint32][]byte // what is still to be sent
	got     map[uint32][]byte // what has arrived
	ended   map[uint32]bool   // all has arrived
	opened  int               // requests
	pending map[uint32]int    // what has arrived and was not consumed
}

func newEnd(t *testing.T, r *rand.Rand, role Role) *end {
	return &end{Conn: NewConn(Config{Role: role}), t: t, r: r, body: map[uint32][]byte{}, got: map[uint32][]byte{}, ended: map[uint32]bool{}, pending: map[uint32]int{}}
}

// bodyOf returns the body of the request, or response, on a stream.
func bodyOf(id uint32, role Role) []byte {
	r := rand.New(rand.NewPCG(uint64(id), uint64(role)))
	b := make([]byte, r.IntN(300_000)>>r.IntN(18))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// open opens a request, if that is possible.
func (e *end) open() {
	id, ok := e.Open(false)
	if !ok {
		return
	}
	e.opened++
	for _, f := range post {
		name, value, _ := strings.Cut(f[1:], ": ")
		e.FieldString(":"+name, value, false)
	}
	e.head(id)
}

// head completes a head, with a field that shows its stream, and begins the body.
func (e *end) head(id uint32) {
	e.FieldString("x-stream", fmt.Sprint(id), e.r.IntN(2) == 0)
	e.body[id] = bodyOf(id, e.cfg.Role)
	e.EndHead(false)
}

// send sends a part of each body.
func (e *end) send() {
	for id, b := range e.body {
		part := b[:e.r.IntN(len(b)+1)]
		n, ok := e.Data(id, part, len(part) == len(b))
		if !ok {
			e.t.Fatalf("stream %d cannot be written", id)
		}
		if e.body[id] = b[n:]; n == len(b) {
			delete(e.body, id)
		}
	}
}

// receive feeds what the other end has sent, in pieces.
func (e *end) receive(b []byte) {
	for len(b) > 0 {
		n := 1 + e.r.IntN(len(b))
		e.Feed(0, b[:n])
		b = b[n:]
		var ev Event
		for e.Next(&ev) {
			e.event(&ev)
		}
		if e.Err() != nil {
			e.t.Fatal(e.Err())
		}
	}
}

func (e *end) event(ev *Event) {
	switch ev.Kind {
	case Head:
		var line string
		if e.cfg.Role == Server {
			var r Request
			if err := e.ReadRequest(&r); err != nil {
				e.t.Fatal(err)
			}
			line = fieldLines(r.Text, r.Fields())
			e.BeginHead(ev.Stream)
			e.FieldString(":status", "200", false)
			e.head(ev.Stream)
		} else {
			var r Response
			if err := e.ReadResponse(&r); err != nil {
				e.t.Fatal(err)
			}
			line = fieldLines(r.Text, r.Fields())
		}
		if want := fmt.Sprintf("x-stream: %d", ev.Stream); !strings.HasSuffix(line, want) {
			e.t.Fatalf("stream %d: got fields %q, want %q at the end", ev.Stream, line, want)
		}
	case Data:
		e.got[ev.Stream] = append(e.got[ev.Stream], ev.Data...)
		e.pending[ev.Stream] += len(ev.Data)
		e.ended[ev.Stream] = ev.End
	case Reset, GoAway:
		e.t.Fatalf("got %+v", ev)
	}
}

// consume gives back a part of what has arrived, and ends exchanges that are complete.
func (e *end) consume(other *end) {
	for id, n := range e.pending {
		part := e.r.IntN(n + 1)
		e.Consumed(id, part)
		e.pending[id] -= part
		if _, sending := e.body[id]; sending || !e.ended[id] {
			continue
		}
		if !bytes.Equal(e.got[id], bodyOf(id, other.cfg.Role)) {
			e.t.Fatalf("stream %d: got a body of %d bytes, want %d", id, len(e.got[id]), len(bodyOf(id, other.cfg.Role)))
		}
		delete(e.got, id)
		delete(e.pending, id)
		e.Done(id)
	}
}

// Guarantee: a client and a server bring all requests and responses across whole, with many
// streams at the same time, bodies larger than the windows, and owners that consume slowly;
// and neither ever waits for the other forever.
func TestPair(t *testing.T) {
	const requests = 150
	r := rand.New(rand.NewPCG(7, 8))
	client, server := newEnd(t, r, Client), newEnd(t, r, Server)
	for round := 0; client.opened < requests || client.Streams() > 0; round++ {
		if round > 20_000 {
			t.Fatalf("%d of %d requests opened, %d not done", client.opened, requests, client.Streams())
		}
		for client.opened < requests && r.IntN(3) > 0 && client.CanOpen() {
			client.open()
		}
		client.send()
		server.receive(client.Take(nil))
		server.send()
		client.receive(server.Take(nil))
		client.consume(server)
		server.consume(client)
	}
	if n := server.Streams(); n != 0 {
		t.Errorf("got %d streams left on the server, want none", n)
	}
}

// Guarantee: a client opens no more streams than the server and its own setting allow, and
// none after GOAWAY.
func TestStreamsOfAClient(t *testing.T) {
	d := newOwner(Config{Role: Client})
	if n := d.Capacity(); n != assumedStreams {
		t.Errorf("before the settings: got %d, want %d", n, assumedStreams)
	}
	s := newServer()
	d.feed(s.frame(FrameSettings, 0, 0, setting(SettingMaxConcurrentStreams, 3)).Bytes())
	for i := range 5 {
		id, ok := d.Open(false)
		if ok {
			d.EndHead(true)
		}
		if want := i < 3; ok != want || ok && id != uint32(2*i+1) {
			t.Errorf("stream %d: got %d, %v; want %v", i, id, ok, want)
		}
	}
	d.Done(1)
	if !d.CanOpen() {
		t.Error("after Done: got CanOpen false, want true")
	}
	s.Reset()
	d.feed(s.frame(FrameSettings, 0, 0, setting(SettingMaxConcurrentStreams, 1<<31)).Bytes())
	if n := d.Capacity(); n != MaxStreams {
		t.Errorf("with a high setting: got %d, want %d", n, MaxStreams)
	}
	s.Reset()
	d.feed(s.frame(FrameGoAway, 0, 0, u32(MaxStreamID, 0)).Bytes())
	if d.CanOpen() || d.Capacity() != 0 {
		t.Error("after GOAWAY: got CanOpen true, want false")
	}
}

// Guarantee: x/net decodes the heads, whatever sizes of the dynamic table the peer sets, even
// several in one SETTINGS frame.
func TestTableSizeFollowsTheSettings(t *testing.T) {
	c := NewConn(Config{})
	s := newClient()
	for i := range uint32(20) {
		s.get(2*i + 1)
	}
	d := &owner{Conn: c}
	d.feed(s.Bytes())
	d.out = d.out[:0]
	theirs := hpack.NewDecoder(4096, nil)
	r := rand.New(rand.NewPCG(9, 10))
	for i := range uint32(20) {
		s.Reset()
		payload, last := "", uint32(0)
		for range r.IntN(4) {
			last = []uint32{0, 100, 4096, 1 << 20}[r.IntN(4)]
			payload += setting(SettingHeaderTableSize, last)
		}
		d.feed(s.frame(FrameSettings, 0, 0, payload).Bytes())
		if payload != "" {
			theirs.SetAllowedMaxDynamicTableSize(last)
		}
		d.out = d.out[:0]
		d.BeginHead(2*i + 1)
		want := []string{":status: 200", fmt.Sprintf("x-%d: %d", r.IntN(3), r.IntN(3)), "x-same: value"}
		for _, f := range want {
			name, value, _ := strings.Cut(f[1:], ": ")
			d.FieldString(f[:1]+name, value, false)
		}
		d.EndHead(true)
		d.feed(nil)
		fields, err := theirs.DecodeFull(parseFrames(d.out)[0].payload)
		if err != nil {
			t.Fatalf("head %d: %v", i, err)
		}
		for k, f := range fields {
			if got := f.Name + ": " + f.Value; got != want[k] {
				t.Errorf("head %d: got %q, want %q", i, got, want[k])
			}
		}
	}
}

// Guarantee: nothing can be sent on a stream after its end, its reset, or the end of the
// connection.
func TestNothingAfterTheEnd(t *testing.T) {
	cannot := func(d *owner, id uint32) {
		t.Helper()
		before := d.Pending()
		if d.BeginHead(id) {
			t.Errorf("stream %d: got BeginHead true, want false", id)
		}
		if n, ok := d.Data(id, []byte("x"), true); n != 0 || ok {
			t.Errorf("stream %d: got Data %d, %v; want 0, false", id, n, ok)
		}
		if d.Window(id) != 0 || d.Pending() != before {
			t.Errorf("stream %d: got window %d and %d bytes more", id, d.Window(id), d.Pending()-before)
		}
	}
	d := newOwner(Config{})
	s := newClient().post(1).post(3).post(5).post(7)
	d.feed(s.reset(3, Cancel).Bytes())
	d.BeginHead(1)
	d.EndHead(true)
	d.Reset(5, InternalError)
	for _, id := range []uint32{1, 3, 5, 9} {
		cannot(d, id)
	}
	d.Reset(3, Cancel) // both sides at once: one is enough
	d.feed(nil)
	if got := d.sent(FrameReset); len(got) != 1 {
		t.Errorf("got %d streams reset, want 1", len(got))
	}
	s.Reset()
	d.feed(s.frame(FramePushPromise, 0, 1, "").Bytes())
	cannot(d, 7)
	d.Reset(7, Cancel)
	d.Done(7)
	d.Drain()
	d.GoAway(NoError)
	d.Ping([8]byte{})
	if d.Pending() != 0 {
		t.Errorf("after the end of the connection: got %d bytes of output", d.Pending())
	}
}

// Guarantee: a server that ends an exchange early, after its response, resets the stream with
// NO_ERROR. A server without a response, and a client that gives up, reset it with CANCEL.
func TestDone(t *testing.T) {
	respond := func(d *owner) {
		d.BeginHead(1)
		d.EndHead(true)
	}
	for _, c := range []struct {
		name string
		d    func() *owner
		act  func(*owner)
		want []string
	}{
		{"response before the request's end", func() *owner { return play(Config{}, nil, [][]byte{newClient().post(1).Bytes()}) }, respond, []string{"1:" + u32(uint32(NoError))}},
		{"response and request complete", func() *owner { return play(Config{}, nil, [][]byte{newClient().get(1).Bytes()}) }, respond, nil},
		{"no response", func() *owner { return play(Config{}, nil, [][]byte{newClient().get(1).Bytes()}) }, func(*owner) {}, []string{"1:" + u32(uint32(Cancel))}},
		{"client gives up", func() *owner { return play(Config{Role: Client}, open(1), [][]byte{newServer().Bytes()}) }, func(*owner) {}, []string{"1:" + u32(uint32(Cancel))}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := c.d()
			c.act(d)
			d.Done(1)
			d.Done(1)
			d.feed(nil)
			if got := d.sent(FrameReset); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) {
				t.Errorf("got RST_STREAM %q, want %q", got, c.want)
			}
		})
	}
}

// Guarantee: the reply to a Ping, and the owner of a stream, come with the events.
func TestPingAndOwner(t *testing.T) {
	d := newOwner(Config{})
	var owner any
	d.onEvent = func(ev *Event) {
		if ev.Kind == Head {
			d.SetOwner(ev.Stream, "mine")
		}
		if ev.Kind == Data {
			owner = ev.Owner
		}
	}
	s := newClient().post(1)
	d.feed(s.Bytes())
	d.Ping([8]byte([]byte("12345678")))
	s.Reset()
	d.feed(s.frame(FrameData, 0, 1, "x").frame(FramePing, FlagAck, 0, "12345678").Bytes())
	d.want(t, settled, "head 1", `data 1 "x"`, `ping "12345678"`)
	if owner != "mine" {
		t.Errorf("got owner %v, want the one that was set", owner)
	}
}
