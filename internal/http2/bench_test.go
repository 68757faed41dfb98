package http2

import (
	"strings"
	"testing"
	"time"
)

// exchanger is a server that serves one request after the other with the same memory.
type exchanger struct {
	*Conn
	script *script
	in     []byte
	out    []byte
	req    Request
	next   uint32
	now    int64
}

// browser is the head of a typical request of a browser.
var browser = []string{
	":method: GET", ":scheme: https", ":authority: api.example.com", ":path: /api/v1/orders/1234?expand=items",
	"user-agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0)", "accept: application/json", "accept-language: en-US,en;q=0.5",
	"accept-encoding: gzip, deflate, br", "authorization: Bearer kg_0123456789abcdefghijklmnopqrst000000", "cookie: a=1", "cookie: b=2",
}

func newExchanger() *exchanger {
	x := &exchanger{Conn: NewConn(Config{}), script: newClient(), next: 1}
	x.serve(x.script.Bytes())
	return x
}

// serve feeds bytes, answers requests, and consumes bodies.
func (x *exchanger) serve(b []byte) {
	var ev Event
	x.Feed(x.now, b)
	for x.Next(&ev) {
		switch ev.Kind {
		case Head:
			if err := x.ReadRequest(&x.req); err != nil {
				panic(err)
			}
			if ev.End {
				x.respond(ev.Stream)
			}
		case Data:
			x.Consumed(ev.Stream, len(ev.Data))
			if ev.End {
				x.respond(ev.Stream)
			}
		}
	}
	x.out = x.Take(x.out)
}

var body = []byte(strings.Repeat("b", 381))

func (x *exchanger) respond(id uint32) {
	x.BeginHead(id)
	x.FieldString(":status", "200", false)
	x.FieldString("Content-Type", "application/json", false)
	x.FieldString("Content-Length", "381", false)
	x.FieldString("Date", "Mon, 23 Nov 2026 18:00:00 GMT", false)
	x.FieldString("X-RateLimit-Limit", "1000", false)
	x.EndHead(false)
	x.Data(id, body, true)
	x.Done(id)
}

// request makes the bytes of the next request in x.in. They are encoded once: only the
// identifier of the stream changes.
func (x *exchanger) request(template []byte) {
	x.in = append(x.in[:0], template...)
	for at := 0; at < len(x.in); {
		h := ParseFrameHeader(x.in[at:])
		h.Stream = x.next
		AppendFrameHeader(x.in[:at], h)
		at += FrameHeaderLen + h.Length
	}
	x.next += 2
	x.now += int64(time.Millisecond)
}

// templates returns a request as it comes first on a connection, and as it comes later.
func (x *exchanger) templates(end Flags) (first, later []byte) {
	x.script.Reset()
	first = append(first, x.script.head(1, end, browser...).Bytes()...)
	x.script.Reset()
	later = append(later, x.script.head(1, end, browser...).Bytes()...)
	x.script.Reset()
	return first, later
}

// Guarantee: a connection in its steady state allocates nothing for a request with its
// response, for an upload, and for a request that arrives in pieces.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Log("not measured: the race detector makes sync.Pool drop objects at random; make test-memory measures it")
		return
	}
	upload := AppendData(nil, 1, make([]byte, 10_000), false)
	upload = AppendData(upload, 1, make([]byte, 5000), true)
	for _, c := range []struct {
		name string
		end  Flags
		body []byte
		run  func(x *exchanger)
	}{
		{"request", FlagEndStream, nil, func(x *exchanger) { x.serve(x.in) }},
		{"upload", 0, upload, func(x *exchanger) { x.serve(x.in) }},
		{"pieces", FlagEndStream, nil, func(x *exchanger) {
			for i := range x.in {
				x.serve(x.in[i : i+1])
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newExchanger()
			first, later := x.templates(c.end)
			x.request(append(first, c.body...))
			c.run(x)
			later = append(later, c.body...)
			for range 100 {
				x.request(later)
				c.run(x)
			}
			allocs := testing.AllocsPerRun(500, func() {
				x.request(later)
				c.run(x)
			})
			if allocs != 0 || x.Err() != nil {
				t.Errorf("got %v allocations, error %v; want none", allocs, x.Err())
			}
		})
	}
}

// BenchmarkExchange serves a request of a browser whose fields are in the dynamic table, with
// a response of 381 bytes.
func BenchmarkExchange(b *testing.B) {
	x := newExchanger()
	first, later := x.templates(FlagEndStream)
	x.request(first)
	x.serve(x.in)
	b.ReportAllocs()
	for b.Loop() {
		x.request(later)
		x.serve(x.in)
	}
	if x.Err() != nil {
		b.Fatal(x.Err())
	}
}

// BenchmarkUpload receives a body in DATA frames of 16 KiB.
func BenchmarkUpload(b *testing.B) {
	x := newExchanger()
	x.script.Reset()
	x.serve(x.script.post(1).Bytes())
	frame := AppendData(nil, 1, make([]byte, MaxFrame), false)
	b.SetBytes(MaxFrame)
	b.ReportAllocs()
	for b.Loop() {
		x.serve(frame)
	}
	if x.Err() != nil {
		b.Fatal(x.Err())
	}
}

// BenchmarkIdle shows the memory of a connection that has served a request.
func BenchmarkIdle(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		x := &exchanger{Conn: NewConn(Config{}), script: newClient(), next: 1}
		x.serve(x.script.Bytes())
	}
}
