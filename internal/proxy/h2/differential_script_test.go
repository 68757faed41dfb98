package h2

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// draw makes the choices of a script.
type draw struct{ r *rand.Rand }

// n returns a number below limit.
func (d *draw) n(limit int) int { return d.r.IntN(limit) }

func (d *draw) oneIn(n int) bool { return d.n(n) == n-1 }

// op is a step of a script.
type op struct {
	text   string
	bytes  []byte // to send as they are
	stream uint32 // of data to send, as its windows allow
	data   int    // bytes; -1 for no DATA frame
	pad    int
	end    bool
	settle bool // wait for the end of all streams whose request has ended
}

// request is what a script knows of a stream.
type request struct {
	id       uint32
	do       string
	invalid  string // why the head is invalid
	left     int    // bytes of the body still to send
	known    bool   // content-length is sent
	te       bool
	trailers bool
	sent     int  // bytes of the body
	ended    bool // the client has nothing more to send
	reset    bool // the client has reset it
}

// script is what a client does on one connection. It is the same for all servers.
type script struct {
	*draw
	reference bool // what net/http accepts is left out
	window    int  // SETTINGS_INITIAL_WINDOW_SIZE
	grant     int  // how much the client adds to the window of a stream at first
	piece     int  // the client sends pieces of at most this size; 0 means whole frames
	readSize  int  // how much the server reads at once; 0 means any amount
	last      string
	steady    bool // the initial window never changes
	ops       []op
	enc       *hpack.Encoder
	block     bytes.Buffer
	out       bytes.Buffer
	framer    *http2.Framer
	next      uint32
	requests  []*request
}

func (s *script) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "window %d, grant %d, pieces of %d bytes, reads of %d bytes\n", s.window, s.grant, s.piece, s.readSize)
	for _, o := range s.ops {
		fmt.Fprintf(&b, "  %s\n", o.text)
	}
	return b.String()
}

// pick returns one of several values.
func pick[T any](d *draw, values ...T) T { return values[d.n(len(values))] }

// newScript makes a script: for net/http if reference is set, else for the engine.
func newScript(d *draw, reference bool) *script {
	s := &script{draw: d, reference: reference, next: 1, steady: true}
	s.enc = hpack.NewEncoder(&s.block)
	s.framer = http2.NewFramer(&s.out, nil)
	s.framer.AllowIllegalWrites = true
	s.window = pick(d, 65535, 65535, 0, 1, 1000, 1<<20)
	s.grant = pick(d, 1, 5000, 70000)
	s.piece, s.readSize = pick(d, 0, 0, 0, 1, 7, 100), pick(d, 0, 0, 0, 1, 5, 60)
	s.out.WriteString(http2.ClientPreface)
	settings := []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: uint32(s.window)}}
	if d.oneIn(3) {
		settings = append(settings, http2.Setting{ID: http2.SettingEnablePush}, http2.Setting{ID: 0x99, Val: 7})
	}
	if d.oneIn(3) {
		settings = append(settings, http2.Setting{ID: http2.SettingHeaderTableSize, Val: uint32(pick(d, 0, 100, 8192))})
	}
	_ = s.framer.WriteSettings(settings...)
	_ = s.framer.WriteSettingsAck()
	s.raw("preface, settings %v", settings)
	for n := 5 + d.n(25); n > 0; n-- {
		s.step()
	}
	for r := s.open(); r != nil; r = s.open() {
		s.advance(r)
	}
	s.ops = append(s.ops, op{text: "wait for all responses", settle: true, data: -1})
	if d.oneIn(2) {
		s.breakConn()
	} else {
		s.last = "request"
		s.request(request{do: pick(d, "report", "copy", "long")})
		for r := s.open(); r != nil; r = s.open() {
			s.advance(r)
		}
	}
	return s
}

// raw makes an op of the frames that were written to out.
func (s *script) raw(format string, args ...any) {
	s.ops = append(s.ops, op{text: fmt.Sprintf(format, args...), bytes: bytes.Clone(s.out.Bytes()), data: -1})
	s.out.Reset()
}

// open returns a request that has not ended, at random, or nil.
func (s *script) open() *request {
	var all []*request
	for _, r := range s.requests {
		if !r.ended && !r.reset {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[s.n(len(all))]
}

func (s *script) step() {
	r := s.open()
	switch n := s.n(20); {
	case n < 6 || r == nil:
		s.request(request{do: pick(s.draw, "report", "report", "report", "early", "copy", "copy", "none", "unchanged", "long", "fields", "hints", "broken")})
	case n < 8:
		kind := pick(s.draw, invalidHeads...)
		s.request(request{do: "report", invalid: kind.name, ended: true})
	case n < 9:
		s.fault()
	case n < 10:
		s.cancel(r)
	case n < 12:
		s.control()
	default:
		s.advance(r)
	}
}

// fields is a list of fields, in order.
type fields [][2]string

// set replaces a field.
func (f fields) set(name, value string) fields {
	f = slices.Clone(f)
	for i := range f {
		if f[i][0] == name {
			f[i][1] = value
		}
	}
	return f
}

func (f fields) without(name string) fields {
	return slices.DeleteFunc(slices.Clone(f), func(p [2]string) bool { return p[0] == name })
}

func (f fields) with(name, value string) fields {
	return append(slices.Clone(f), [2]string{name, value})
}

func (f fields) before(name, value string) fields {
	return append(fields{{name, value}}, f...)
}

// invalidHead is a way in which the head of a request is wrong.
type invalidHead struct {
	name string
	edit func(fields) fields
}

// adds makes an invalidHead of a valid head followed by a field.
func adds(name, value string) invalidHead {
	return invalidHead{fmt.Sprintf("%q: %q", name, value), func(f fields) fields { return f.with(name, value) }}
}

// sets makes an invalidHead of a pseudo-header field with another value.
func sets(name, value string) invalidHead {
	return invalidHead{fmt.Sprintf("%s %q", name, value), func(f fields) fields { return f.set(name, value) }}
}

func lacks(name string) invalidHead {
	return invalidHead{"no " + name, func(f fields) fields { return f.without(name) }}
}

var invalidHeads = []invalidHead{
	lacks(":method"), lacks(":path"), lacks(":scheme"), lacks(":authority"),
	sets(":path", ""), sets(":path", "a"), sets(":path", "*"), sets(":path", "/a b"), sets(":path", "/\x00"),
	sets(":method", ""), sets(":method", "GE T"), sets(":method", "G\x00T"), sets(":scheme", ""),
	sets(":authority", ""), sets(":authority", "a b"), sets(":authority", "a\x00"), sets(":authority", "u@a.test"),
	{"two :path", func(f fields) fields { return f.before(":path", "/b") }},
	{"two :method", func(f fields) fields { return f.before(":method", "PUT") }},
	{"pseudo-header field at the end", func(f fields) fields { return f.without(":path").with(":path", "/") }},
	{"unknown pseudo-header field", func(f fields) fields { return f.before(":other", "a") }},
	{":status", func(f fields) fields { return f.before(":status", "200") }},
	adds("X-Test-A", "b"), adds("x-test a", "b"), adds("", "b"), adds("x-test-\x80", "b"), adds("x-test:a", "b"), adds("x-test-a\r", "b"),
	adds("x-test-a", "b\r\nc: d"), adds("x-test-a", "b\x00"), adds("x-test-a", "b\n"), adds("x-test-a", " b"), adds("x-test-a", "b\t"), adds("x-test-a", "b\x7f"),
	adds("x-test-a", "b\x01"),
	adds("connection", "close"), adds("keep-alive", "1"), adds("proxy-connection", "a"), adds("transfer-encoding", "chunked"), adds("upgrade", "websocket"),
	adds("te", "gzip"), adds("te", "trailers, gzip"), adds("host", "b.test"), adds("content-length", "abc"), adds("content-length", "-1"),
	adds("content-length", "5, 5"), adds("content-length", "99999999999999999999"),
	{"two content-length", func(f fields) fields { return f.with("content-length", "5").with("content-length", "6") }},
	{"the same content-length twice", func(f fields) fields { return f.with("content-length", "0").with("content-length", "0") }},
	{"two host", func(f fields) fields { return f.with("host", "a.test").with("host", "a.test") }},
}

// request opens a stream, as r says.
func (s *script) request(r request) *request {
	r.id = s.next
	s.next += 2 + 2*uint32(s.n(2)*s.n(3))
	s.requests = append(s.requests, &r)
	method := pick(s.draw, "GET", "POST", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH")
	switch r.do {
	case "hold":
		method = "POST"
	case "broken": // otherwise a response to HEAD would be whole, and its connection reused before it is closed
		method = "GET"
	}
	switch {
	case r.invalid != "" || r.do == "hold":
	case r.do == "broken": // what arrives after the reset depends on time
		r.ended = true
	case method != "GET" && method != "HEAD" && s.oneIn(2) || method != "HEAD" && r.do == "copy":
		r.left = pick(s.draw, 0, 1, 100, 5000, 16384, 40000, 90000)
		r.known = s.oneIn(2)
		// net/http closes the connection for trailers on a stream that has its response; and over
		// HTTP/1.1 a body with a length has no trailers.
		r.trailers = s.oneIn(4) && !r.known && r.do != "early" && r.do != "unchanged" && r.do != "fields"
	default:
		r.ended = true
	}
	f := fields{{":method", method}, {":scheme", pick(s.draw, "http", "https")}, {":authority", "a.test"}, {":path", pick(s.draw, "/", "/a/b?c=d")}, {"x-do", r.do}}
	if r.trailers { // net/http drops others
		f = f.with("trailer", "x-sum, x-other")
	}
	if r.te = s.oneIn(2); r.te {
		f = f.with("te", "trailers")
	}
	if r.known && !r.ended {
		f = f.with("content-length", fmt.Sprint(r.left))
	}
	if s.oneIn(3) {
		f = f.with("content-type", "text/x-test").with("x-test-one", pick(s.draw, "", "a", "a b", "\xff\xfe", "\"quoted\", list"))
	}
	if s.oneIn(4) {
		f = f.with("cookie", "a=b").with("cookie", "c=d").with("x-test-two", "1").with("x-test-two", "2")
	}
	if s.oneIn(4) && r.invalid == "" {
		f = f.with("x-test-long", strings.Repeat("l", 1+s.n(20000)))
	}
	for _, h := range invalidHeads {
		if h.name == r.invalid && !s.leavesOut(h.name) {
			f = h.edit(f)
		}
	}
	text := fmt.Sprintf("stream %d: %s %s", r.id, method, r.do)
	if r.invalid != "" {
		text += ", invalid: " + r.invalid
	}
	s.head(r.id, text, f, r.ended, r.invalid != "")                     // net/http ends the connection if an invalid head is split
	if s.window < 5000 && (r.invalid == "" || s.leavesOut(r.invalid)) { // to net/http a stream with an invalid head is idle
		_ = s.framer.WriteWindowUpdate(r.id, uint32(s.grant))
		s.raw("stream %d: WINDOW_UPDATE %d", r.id, s.grant)
	}
	return &r
}

// head writes a header block in HEADERS and CONTINUATION frames.
func (s *script) head(id uint32, text string, f fields, end, whole bool) {
	if s.oneIn(8) {
		s.enc.SetMaxDynamicTableSize(uint32(pick(s.draw, 0, 200, 4096)))
	}
	s.block.Reset()
	sensitive := s.n(1 << 16)
	for i, p := range f {
		_ = s.enc.WriteField(hpack.HeaderField{Name: p[0], Value: p[1], Sensitive: sensitive>>(2*(i%8))&3 == 3})
	}
	block := s.block.Bytes()
	param := http2.HeadersFrameParam{StreamID: id, EndStream: end, EndHeaders: true}
	if s.oneIn(4) {
		param.PadLength = uint8(s.n(200))
	}
	if s.oneIn(4) {
		param.Priority = http2.PriorityParam{StreamDep: 0, Weight: 7, Exclusive: s.oneIn(2)}
	}
	parts := 1
	if s.oneIn(3) && !whole {
		parts = 2 + s.n(3)
	}
	parts = max(parts, 1+len(block)/16000)
	for i := range parts {
		n := len(block)
		if i < parts-1 {
			n = min(len(block), 16000)
			if len(block) < 16000 {
				n = s.n(len(block) + 1)
			}
		}
		n = min(n, 16000)
		param.BlockFragment, param.EndHeaders = block[:n], i == parts-1
		if i == 0 {
			_ = s.framer.WriteHeaders(param)
		} else {
			_ = s.framer.WriteContinuation(id, param.EndHeaders, block[:n])
		}
		block = block[n:]
	}
	s.raw("%s, end %v, %d frames, padding %d, fields %.200q", text, end, parts, param.PadLength, f[min(4, len(f)):])
	s.ops[len(s.ops)-1].stream = id
}

// advance sends the next part of a request.
func (s *script) advance(r *request) {
	n := min(r.left, pick(s.draw, 0, 1, 1000, 16000, 40000, 90000))
	if s.oneIn(2) {
		n = r.left
	}
	r.left -= n
	r.sent += n
	o := op{stream: r.id, data: n}
	if s.oneIn(3) {
		o.pad = 1 + s.n(255)
	}
	if r.left == 0 && !r.trailers && s.oneIn(2) {
		o.end, r.ended = true, true
	}
	o.text = fmt.Sprintf("stream %d: %d bytes of data, padding %d, end %v", r.id, n, o.pad, o.end)
	s.ops = append(s.ops, o)
	if r.left == 0 && r.trailers {
		r.ended = true
		s.head(r.id, fmt.Sprintf("stream %d: trailers", r.id), fields{{"x-sum", "0"}, {"x-other", "t"}}, true, true)
	}
}

// cancel resets a request.
func (s *script) cancel(r *request) {
	r.reset = true
	_ = s.framer.WriteRSTStream(r.id, http2.ErrCodeCancel)
	s.raw("stream %d: RST_STREAM", r.id)
}

// control sends frames that no response depends on.
func (s *script) control() {
	switch s.n(6) {
	case 0:
		_ = s.framer.WritePing(false, [8]byte{1})
		s.raw("PING")
	case 1:
		_ = s.framer.WritePriority(s.next+100, http2.PriorityParam{StreamDep: 1, Weight: 3})
		s.raw("PRIORITY")
	case 2:
		_ = s.framer.WriteRawFrame(0x42, 0xff, 0, []byte("unknown"))
		s.raw("a frame of an unknown type")
	case 3:
		_ = s.framer.WriteWindowUpdate(0, 1000)
		s.raw("WINDOW_UPDATE")
	case 4:
		_ = s.framer.WritePing(true, [8]byte{9})
		s.raw("an acknowledgement of no PING")
	default:
		s.steady = false
		n := uint32(pick(s.draw, 1, 1000, 65535, 100000))
		_ = s.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: n}, http2.Setting{ID: http2.SettingMaxFrameSize, Val: 16384 + uint32(s.n(100))})
		s.raw("SETTINGS window %d", n)
	}
}

// leavesOut reports whether the script is without something that net/http accepts.
func (s *script) leavesOut(name string) bool { return s.reference && stricter[name] != "" }

// fault opens a stream whose response is never sent, and sends something on it that ends a stream.
func (s *script) fault() {
	kind := s.n(11)
	r := request{do: "hold", ended: kind < 5}
	if 5 <= kind && kind < 8 {
		r.left, r.known = 10, true
	}
	held := s.request(r)
	id := held.id
	var name string
	switch kind {
	case 0:
		name = "DATA after the end"
		_ = s.framer.WriteData(id, true, []byte("late"))
	case 1:
		name = "WINDOW_UPDATE of 0"
		_ = s.framer.WriteWindowUpdate(id, 0)
	case 2:
		name = "a window that is too large"
		_ = s.framer.WriteWindowUpdate(id, 1<<31-1)
		_ = s.framer.WriteWindowUpdate(id, 1<<31-1)
	case 3:
		name = "dependence on itself"
		_ = s.framer.WritePriority(id, http2.PriorityParam{StreamDep: id})
	case 4:
		name = "HEADERS after the end"
		s.head(id, fmt.Sprintf("stream %d: %s", id, name), fields{{"x-late", "a"}}, true, true)
	case 5:
		name = "more data than content-length"
		_ = s.framer.WriteData(id, false, make([]byte, 11))
	case 6:
		name = "less data than content-length"
		_ = s.framer.WriteData(id, true, make([]byte, 9))
	case 7:
		name = "trailers before the data is complete"
		s.head(id, fmt.Sprintf("stream %d: %s", id, name), fields{{"x-sum", "a"}}, true, true)
	case 8:
		name = "trailers that do not end the stream"
		s.head(id, fmt.Sprintf("stream %d: %s", id, name), fields{{"x-sum", "a"}}, false, true)
	case 9:
		name = "a pseudo-header field in trailers"
		s.head(id, fmt.Sprintf("stream %d: %s", id, name), fields{{":path", "/"}}, true, true)
	default:
		name = "an invalid field in trailers"
		s.head(id, fmt.Sprintf("stream %d: %s", id, name), fields{{"X-Sum", "a"}}, true, true)
	}
	held.ended, held.left, held.invalid = true, 0, name
	if s.leavesOut(name) {
		s.out.Reset()
		_ = s.framer.WriteRSTStream(id, http2.ErrCodeCancel)
		held.reset = true
	}
	s.raw("stream %d: fault: %s", id, name)
}

// frame writes any frame.
func (s *script) frame(kind http2.FrameType, flags http2.Flags, stream uint32, payload string) {
	_ = s.framer.WriteRawFrame(kind, flags, stream, []byte(payload))
}

// breakConn sends what ends a connection.
func (s *script) breakConn() {
	four := func(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }
	id := s.next
	type fault struct {
		name string
		send func()
	}
	f := pick(s.draw,
		fault{"DATA on stream 0", func() { s.frame(http2.FrameData, 0, 0, "a") }},
		fault{"DATA on an idle stream", func() { s.frame(http2.FrameData, 0, id, "a") }},
		fault{"HEADERS on stream 0", func() { s.frame(http2.FrameHeaders, 4, 0, "\x82") }},
		fault{"HEADERS on an even stream", func() { s.frame(http2.FrameHeaders, 4, id+1, "\x82\x84\x86") }},
		fault{"HEADERS on a closed stream", func() {
			s.frame(http2.FrameHeaders, 5, id, "\x82\x84\x86\x41\x01a")
			s.frame(http2.FrameRSTStream, 0, id, four(8))
			s.frame(http2.FrameHeaders, 5, id-2, "\x82\x84\x86\x41\x01a")
		}},
		fault{"CONTINUATION without HEADERS", func() { s.frame(http2.FrameContinuation, 4, id, "\x82") }},
		fault{"an interrupted header block", func() { s.frame(http2.FrameHeaders, 0, id, "\x82"); s.frame(http2.FramePing, 0, 0, "12345678") }},
		fault{"CONTINUATION of another stream", func() { s.frame(http2.FrameHeaders, 0, id, "\x82"); s.frame(http2.FrameContinuation, 4, id+2, "\x84") }},
		fault{"index 0", func() { s.frame(http2.FrameHeaders, 5, id, "\x82\x80") }},
		fault{"an index beyond the table", func() { s.frame(http2.FrameHeaders, 5, id, "\x82\xff\xff\xff\x00") }},
		fault{"a block that is cut off", func() { s.frame(http2.FrameHeaders, 5, id, "\x82\x40\x05ab") }},
		fault{"invalid Huffman", func() { s.frame(http2.FrameHeaders, 5, id, "\x82\x40\x82\xff\xff\x01a") }},
		fault{"a table that is too large", func() { s.frame(http2.FrameHeaders, 5, id, "\x3f\xff\xff\x03\x82") }},
		fault{"SETTINGS of 5 bytes", func() { s.frame(http2.FrameSettings, 0, 0, "12345") }},
		fault{"SETTINGS on a stream", func() { s.frame(http2.FrameSettings, 0, id, "") }},
		fault{"an acknowledgement with settings", func() { s.frame(http2.FrameSettings, 1, 0, "\x00\x02\x00\x00\x00\x00") }},
		fault{"ENABLE_PUSH 2", func() { s.frame(http2.FrameSettings, 0, 0, "\x00\x02\x00\x00\x00\x02") }},
		fault{"an initial window that is too large", func() { s.frame(http2.FrameSettings, 0, 0, "\x00\x04\x80\x00\x00\x00") }},
		fault{"MAX_FRAME_SIZE 16383", func() { s.frame(http2.FrameSettings, 0, 0, "\x00\x05\x00\x00\x3f\xff") }},
		fault{"WINDOW_UPDATE of 0", func() { s.frame(http2.FrameWindowUpdate, 0, 0, four(0)) }},
		fault{"a window that is too large", func() { s.frame(http2.FrameWindowUpdate, 0, 0, four(1<<31-1)) }},
		fault{"WINDOW_UPDATE of 3 bytes", func() { s.frame(http2.FrameWindowUpdate, 0, 0, "123") }},
		fault{"WINDOW_UPDATE on an idle stream", func() { s.frame(http2.FrameWindowUpdate, 0, id, four(1)) }},
		fault{"PING of 7 bytes", func() { s.frame(http2.FramePing, 0, 0, "1234567") }},
		fault{"PING on a stream", func() { s.frame(http2.FramePing, 0, id, "12345678") }},
		fault{"RST_STREAM on an idle stream", func() { s.frame(http2.FrameRSTStream, 0, id, four(8)) }},
		fault{"RST_STREAM of 3 bytes", func() { s.frame(http2.FrameRSTStream, 0, id, "123") }},
		fault{"RST_STREAM on stream 0", func() { s.frame(http2.FrameRSTStream, 0, 0, four(8)) }},
		fault{"PRIORITY on stream 0", func() { s.frame(http2.FramePriority, 0, 0, "12345") }},
		fault{"PUSH_PROMISE", func() { s.frame(http2.FramePushPromise, 4, id, four(2)+"\x82") }},
		fault{"a frame that is too long", func() { s.frame(http2.FrameData, 0, id, strings.Repeat("a", 16385)) }},
		fault{"GOAWAY of 7 bytes", func() { s.frame(http2.FrameGoAway, 0, 0, "1234567") }},
		fault{"GOAWAY on a stream", func() { s.frame(http2.FrameGoAway, 0, id, "12345678") }},
		fault{"a head without end of CONTINUATION", func() {
			s.frame(http2.FrameHeaders, 1, id, "\x82\x84\x86\x41\x01a")
			for range 20 {
				s.frame(http2.FrameContinuation, 0, id, "")
			}
			s.frame(http2.FrameContinuation, 0, id, "\x00\x01a\x7f\xe1\x1f"+strings.Repeat("l", 4000))
			for range 200 {
				s.frame(http2.FrameContinuation, 0, id, strings.Repeat("l", 16000))
			}
		}},
	)
	f.send()
	s.last = f.name
	s.raw("connection: %s", f.name)
}
