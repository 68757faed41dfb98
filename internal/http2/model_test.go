package http2

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// model says what must happen, from the frames that both sides have sent. It knows a
// connection as its peer, a client, does.
type model struct {
	t    *testing.T
	r    *rand.Rand
	seed uint64
	d    *owner
	s    *script

	streams  map[uint32]*modelStream // all that were ever opened
	last     uint32
	window   int      // what the client may send on the connection
	send     int      // what the server may send on the connection
	initial  int      // SETTINGS_INITIAL_WINDOW_SIZE
	consumed int      // length of the output that was looked at
	resets   []string // the RST_STREAM frames that must come next, as "stream code"
	failed   bool
}

// modelStream is what both sides have done on a stream.
type modelStream struct {
	open                 bool // before Done
	ended, reset         bool // by the client
	weEnded, weReset     bool // by the server
	hasLength            bool
	length, window, send int
	got                  int // data that was passed to the owner and not given back
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 1)), d: newOwner(Config{MaxStreams: 4}), s: newClient(), streams: map[uint32]*modelStream{},
		window: ConnWindow, send: defaultWindow, initial: defaultWindow}
	m.play("settings")
	return m
}

// oneIn is true once in n times.
func (m *model) oneIn(n int) bool { return m.r.IntN(n) == 0 }

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// play feeds the new part of the script, in random pieces, and compares the events.
func (m *model) play(want ...string) {
	m.d.now += int64(time.Second) // no bucket is ever empty
	m.d.lines = nil
	b := m.s.Bytes()
	for len(b) > 0 {
		n := len(b)
		if m.oneIn(3) {
			n = 1 + m.r.IntN(len(b))
		}
		m.d.feed(b[:n])
		b = b[n:]
	}
	m.s.Reset()
	if got := m.d.trace(); got != strings.Join(want, "\n") {
		m.t.Fatalf("seed %d\ngot:\n%s\nwant:\n%s", m.seed, got, strings.Join(want, "\n"))
	}
	m.failed = m.d.Err() != nil
	m.read()
	if len(m.resets) > 0 {
		m.t.Fatalf("seed %d: got no RST_STREAM, want %q", m.seed, m.resets)
	}
}

// read looks at what the Conn has sent since it was last called.
func (m *model) read() {
	m.d.out = append(m.d.out, m.d.Take(nil)...)
	for _, f := range parseFrames(m.d.out[m.consumed:]) {
		if f.Type == FrameReset {
			m.readReset(fmt.Sprintf("%d %v", f.Stream, Code(binary.BigEndian.Uint32(f.payload))))
		}
		if f.Type != FrameWindowUpdate {
			continue
		}
		n := int(binary.BigEndian.Uint32(f.payload))
		if f.Stream == 0 {
			if m.consumed > 0 { // the first is part of the initial window
				m.window += n
			}
			continue
		}
		s := m.streams[f.Stream]
		if s == nil || s.ended || s.reset || s.weReset {
			m.t.Fatalf("got WINDOW_UPDATE on stream %d, on which the client cannot send", f.Stream)
		}
		s.window += n
	}
	m.consumed = len(m.d.out)
	if m.window > ConnWindow {
		m.t.Fatalf("got a window of %d bytes, want at most %d", m.window, ConnWindow)
	}
}

func (m *model) readReset(reset string) {
	if len(m.resets) == 0 || m.resets[0] != reset {
		m.t.Fatalf("seed %d: got RST_STREAM %s, want %q", m.seed, reset, m.resets)
	}
	m.resets = m.resets[1:]
}

// reset says that the Conn must reset a stream.
func (m *model) reset(id uint32, code Code) {
	m.streams[id].weReset = true
	m.resets = append(m.resets, fmt.Sprintf("%d %v", id, code))
}

// stream draws a stream: mostly an opened stream, seldom another. It is 0 if there is none.
func (m *model) stream() uint32 {
	ids := slices.Sorted(maps.Keys(m.streams))
	if m.oneIn(400) {
		return m.last + uint32(1+m.r.IntN(2))
	}
	if len(ids) == 0 {
		return 0
	}
	if id := m.opened(); id > 0 && !m.oneIn(10) {
		return id
	}
	return pick(m.r, ids[max(0, len(ids)-10):])
}

// opened draws a stream on which the owner may act, or 0.
func (m *model) opened() uint32 {
	var ids []uint32
	for id, s := range m.streams {
		if s.open {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return 0
	}
	slices.Sort(ids)
	return pick(m.r, ids)
}

func (m *model) idle(id uint32) bool { return id%2 == 0 || id > m.last }

// streamError returns the events that a stream error of the client causes for the owner.
func (m *model) streamError(id uint32, code Code) []string {
	s := m.streams[id]
	known := s.reset
	m.reset(id, code)
	if known || !s.open {
		return nil
	}
	return []string{fmt.Sprintf("reset %d %v local=true", id, code)}
}

// headers sends HEADERS: a request, or trailers on a stream that was opened before.
func (m *model) headers() {
	id, end := m.stream(), m.oneIn(2)
	if s := m.streams[id]; s == nil || !s.open || !m.oneIn(3) {
		if id == 0 || id <= m.last && !m.oneIn(20) {
			id = m.last + 2 - (m.last+1)%2
		}
	}
	self := m.oneIn(21)
	length := pick(m.r, []int{-1, -1, -1, 0, 10, 70000, 200000})
	fields, isNew := []string{"x-a: b"}, m.idle(id)
	if isNew {
		fields = slices.Clone(post)
		if length >= 0 {
			fields = append(fields, fmt.Sprintf("content-length: %d", length))
		}
	}
	flags, prefix := FlagEndHeaders, ""
	if end {
		flags |= FlagEndStream
	}
	if self {
		flags, prefix = flags|FlagPriority, u32(id)+"x"
	}
	m.s.frame(FrameHeaders, flags, id, prefix+m.s.encode(fields...))
	suffix := ""
	if end {
		suffix = " end"
	}
	if id%2 == 0 {
		m.play("failed PROTOCOL_ERROR")
		return
	}
	if isNew {
		m.last = id
		s := &modelStream{}
		m.streams[id] = s
		text := fmt.Sprintf("POST / length=%d chunked=%v protocol= host: a.test", length, length < 0 && !end)
		if length >= 0 {
			text += fmt.Sprintf(" | content-length: %d", length)
		}
		switch {
		case self:
			m.reset(id, ProtocolError)
			m.play()
		case m.countOpen() >= 4:
			m.reset(id, RefusedStream)
			m.play()
		case end && length > 0:
			m.reset(id, ProtocolError)
			m.play(fmt.Sprintf("head %d error: %v%s", id, errLength, suffix))
		default:
			*s = modelStream{open: true, ended: end, length: max(length, 0), hasLength: length >= 0 || end, window: StreamWindow, send: m.initial}
			m.play(fmt.Sprintf("head %d %s%s", id, text, suffix))
		}
		return
	}
	switch s := m.streams[id]; {
	case s.weReset:
		m.play()
	case !s.open:
		m.play("failed STREAM_CLOSED")
	case s.reset || s.ended:
		m.play(m.streamError(id, StreamClosed)...)
	case self || !end || s.hasLength && s.length > 0:
		m.play(m.streamError(id, ProtocolError)...)
	default:
		s.ended = true
		m.play(fmt.Sprintf("trailers %d x-a: b end", id))
	}
}

func (m *model) countOpen() (n int) {
	for _, s := range m.streams {
		if s.open {
			n++
		}
	}
	return n
}

// data sends DATA.
func (m *model) data() {
	id, end := m.stream(), m.oneIn(12)
	n := pick(m.r, []int{0, 1, 5, 10, 5000, MaxFrame, MaxFrame})
	if id == 0 {
		return
	}
	payload, flags := strings.Repeat("d", n), Flags(0)
	if end {
		flags |= FlagEndStream
	}
	if n < MaxFrame && m.oneIn(4) {
		pad := m.r.IntN(min(256, MaxFrame-n))
		flags |= FlagPadded
		payload = string(rune(0)) + payload + strings.Repeat("\x00", pad)
		payload = string([]byte{byte(pad)}) + payload[1:]
	}
	m.s.frame(FrameData, flags, id, payload)
	s := m.streams[id]
	switch {
	case m.idle(id):
		m.play("failed PROTOCOL_ERROR")
		return
	case len(payload) > m.window:
		m.play("failed FLOW_CONTROL_ERROR")
		return
	}
	m.window -= len(payload)
	switch {
	case s.weReset:
		m.play()
	case !s.open:
		m.reset(id, StreamClosed)
		m.play()
	case s.reset || s.ended:
		m.play(m.streamError(id, StreamClosed)...)
	case len(payload) > s.window:
		m.play(m.streamError(id, FlowControlError)...)
	case s.hasLength && (n > s.length || end && n < s.length):
		m.play(m.streamError(id, ProtocolError)...)
	default:
		s.window -= len(payload)
		s.length -= n
		s.got += n
		s.ended = s.ended || end
		var want []string
		switch {
		case end:
			want = []string{fmt.Sprintf("data %d %q end", id, strings.Repeat("d", n))}
		case n > 0:
			want = []string{fmt.Sprintf("data %d %q", id, strings.Repeat("d", n))}
		}
		m.play(want...)
	}
}

// resetStream sends RST_STREAM.
func (m *model) resetStream() {
	id := m.stream()
	if id == 0 {
		return
	}
	m.s.reset(id, Cancel)
	s := m.streams[id]
	switch {
	case m.idle(id):
		m.play("failed PROTOCOL_ERROR")
	case !s.open || s.reset || s.weReset:
		m.play()
	case s.ended && s.weEnded:
		s.reset = true
		m.play()
	default:
		s.reset = true
		m.play(fmt.Sprintf("reset %d CANCEL local=false", id))
	}
}

// increment draws the increment of a WINDOW_UPDATE, which is seldom an error.
func (m *model) increment() int {
	if m.oneIn(40) {
		return pick(m.r, []int{0, 1 << 30, MaxWindow})
	}
	return pick(m.r, []int{1, 100, 20000, 70000})
}

// windowUpdate sends WINDOW_UPDATE.
func (m *model) windowUpdate() {
	id := m.stream()
	if m.oneIn(4) {
		id = 0
	}
	n := m.increment()
	m.s.frame(FrameWindowUpdate, 0, id, u32(uint32(n)))
	s := m.streams[id]
	switch {
	case id == 0 && n == 0:
		m.play("failed PROTOCOL_ERROR")
	case id == 0 && m.send+n > MaxWindow:
		m.play("failed FLOW_CONTROL_ERROR")
	case id == 0:
		m.send += n
		m.playWindow(0, m.send-n, m.send)
	case m.idle(id):
		m.play("failed PROTOCOL_ERROR")
	case !s.open || s.reset || s.weReset:
		m.play()
	case n == 0:
		m.play(m.streamError(id, ProtocolError)...)
	case s.send+n > MaxWindow:
		m.play(m.streamError(id, FlowControlError)...)
	default:
		s.send += n
		m.playWindow(id, s.send-n, s.send)
	}
}

// playWindow expects a Window event if the window was used up and is open again.
func (m *model) playWindow(id uint32, before, after int) {
	if before <= 0 && after > 0 {
		m.play(fmt.Sprintf("window %d", id))
		return
	}
	m.play()
}

// settings sends SETTINGS with another initial window.
func (m *model) settings() {
	n := pick(m.r, []int{0, 1, 1000, 100000, 1 << 20})
	m.s.frame(FrameSettings, 0, 0, setting(SettingInitialWindowSize, 7)+setting(SettingInitialWindowSize, uint32(n)))
	change := n - m.initial
	m.initial = n
	for _, s := range m.streams {
		if s.open && s.send+change > MaxWindow {
			m.play("failed FLOW_CONTROL_ERROR")
			return
		}
		s.send += change
	}
	m.play("settings")
}

// others sends frames without an effect on streams.
func (m *model) others() {
	switch m.r.IntN(4) {
	case 0:
		m.s.frame(FramePing, 0, 0, "12345678")
	case 1:
		m.s.frame(FramePriority, 0, m.last+4, u32(0)+"x")
	case 2:
		m.s.frame(0x20, 0xff, 0, "unknown")
	default:
		m.s.frame(FramePing, FlagAck, 0, "12345678")
	}
	m.play()
}

// write sends data, after a head, or only the head.
func (m *model) write() {
	id := m.opened()
	if id == 0 {
		return
	}
	s := m.streams[id]
	can := !s.weEnded && !s.weReset && !s.reset
	if ok := m.d.BeginHead(id); ok != can {
		m.t.Fatalf("BeginHead(%d): got %v, want %v", id, ok, can)
	}
	if can {
		m.d.FieldString(":status", "200", false)
		m.d.EndHead(false)
	}
	size, end := pick(m.r, []int{0, 1, 1000, 20000, 70000}), m.oneIn(2)
	before := m.d.Pending()
	n, ok := m.d.Data(id, make([]byte, size), end)
	if ok != can {
		m.t.Fatalf("Data(%d): got %v, want %v", id, ok, can)
	}
	if !can {
		return
	}
	if want := max(0, min(size, s.send, m.send)); n != want {
		m.t.Fatalf("Data(%d) of %d bytes: got %d, want %d", id, size, n, want)
	}
	s.send, m.send = s.send-n, m.send-n
	got, ended := 0, false
	for _, f := range parseFrames(m.d.Conn.out[before:]) {
		got += f.Length
		ended = f.Flags&FlagEndStream != 0
	}
	s.weEnded = end && n == size
	if got != n || ended != s.weEnded {
		m.t.Fatalf("Data(%d): got %d bytes sent, end %v; want %d, %v", id, got, ended, n, s.weEnded)
	}
	m.read()
}

// consume gives back data.
func (m *model) consume() {
	id := m.opened()
	if id == 0 {
		return
	}
	s := m.streams[id]
	n := m.r.IntN(s.got + 1)
	s.got -= n
	m.d.Consumed(id, n)
	m.read()
}

// done ends an exchange, or resets it first.
func (m *model) done() {
	id := m.opened()
	if id == 0 {
		return
	}
	s := m.streams[id]
	if m.oneIn(2) {
		m.d.Reset(id, InternalError)
		if !s.weReset && !s.reset {
			m.reset(id, InternalError)
		}
	}
	m.d.Done(id)
	switch {
	case s.ended && s.weEnded || s.reset || s.weReset:
	case s.weEnded:
		m.reset(id, NoError)
	default:
		m.reset(id, Cancel)
	}
	s.open = false
	m.read()
	if n := m.d.Streams(); n != m.countOpen() {
		m.t.Fatalf("Streams: got %d, want %d", n, m.countOpen())
	}
}

// check compares what the Conn knows with the model after each step.
func (m *model) check() {
	held := 0
	for id, s := range m.streams {
		want := 0
		if s.open && !s.weEnded && !s.weReset && !s.reset {
			want = max(0, min(s.send, m.send))
		}
		if got := m.d.Window(id); got != want {
			m.t.Fatalf("Window(%d): got %d, want %d", id, got, want)
		}
		if s.open {
			held += s.got
		}
	}
	// Nothing of the window of the connection is lost: the part that is not given back at once is
	// less than a step.
	if missing := ConnWindow - held - m.window; missing < 0 || missing >= creditStep {
		m.t.Fatalf("got %d bytes of the connection's window neither held nor given back, want less than %d", missing, creditStep)
	}
}

// Guarantee: whatever a client sends, in whatever pieces, and whatever the owner does in between, a
// Conn does the same as a model of RFC 9113, no window is ever exceeded and no credit is lost.
func TestServerBehavesAsTheModel(t *testing.T) {
	for seed := range uint64(150) {
		m := newModel(t, seed)
		steps := []func(){m.headers, m.headers, m.data, m.data, m.data, m.resetStream, m.windowUpdate, m.settings, m.others, m.write, m.write, m.consume, m.consume, m.done}
		for step := 0; step < 300 && !m.failed; step++ {
			pick(m.r, steps)()
			if t.Failed() {
				return
			}
			if !m.failed {
				m.check()
			}
		}
	}
}
