package h2

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// seen is what a client sees of a stream.
type seen struct {
	interim  []string
	status   string
	fields   []string
	trailers []string
	length   int
	sum      uint32
	window   int // what the server may still send
	ended    bool
	reset    string // the code of RST_STREAM
}

// over reports whether nothing more is awaited. For the body of a refusal there may be no window.
func (s *seen) over() bool { return s.ended || s.reset != "" || s.status == "400" }

// player plays a script to a server.
type player struct {
	s      *script
	conn   net.Conn
	framer *http2.Framer

	mu      sync.Mutex
	changed sync.Cond
	streams map[uint32]*seen
	window  int            // what the server may still send on the connection
	send    map[uint32]int // what may be sent, by stream
	initial int
	goAway  string // its code
	closed  bool
	wrong   []string // what no server may do
	awaited string   // what the script waits for
	writing sync.Mutex
}

// timeout is how long a script may take. A script takes milliseconds.
const timeout = time.Minute

// play plays a script to a server and returns what was seen of it.
func play(t testing.TB, to *target, s *script) *player {
	t.Helper()
	to.read.Store(int64(s.readSize))
	conn, err := net.Dial("tcp", to.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	p := &player{s: s, conn: conn, streams: map[uint32]*seen{}, window: 65535, send: map[uint32]int{0: 65535}, initial: 65535}
	p.changed.L = &p.mu
	p.framer = http2.NewFramer(nil, conn)
	p.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.framer.ReadMetaHeaders.SetAllowedMaxDynamicTableSize(8192) // the most that a script allows
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.read()
	}()
	for i := range s.ops {
		p.do(&s.ops[i])
	}
	p.settle()
	if s.last == "request" {
		_ = conn.Close()
	}
	<-read
	return p
}

// stream returns what was seen of a stream. p.mu is held.
func (p *player) stream(id uint32) *seen {
	v := p.streams[id]
	if v == nil {
		v = &seen{window: p.s.window}
		if p.s.window < 5000 {
			v.window += p.s.grant
		}
		p.streams[id] = v
	}
	return v
}

// do performs a step.
func (p *player) do(o *op) {
	switch {
	case o.settle:
		p.settle()
	case o.data >= 0:
		p.data(o)
	default:
		if o.stream != 0 {
			p.mu.Lock()
			p.stream(o.stream)
			p.mu.Unlock()
		}
		p.write(o.bytes)
	}
}

// write sends bytes, in the pieces of the script.
func (p *player) write(b []byte) {
	p.writing.Lock()
	defer p.writing.Unlock()
	for len(b) > 0 {
		n := len(b)
		if p.s.piece > 0 && len(b) < 3000 {
			n = min(n, p.s.piece)
		}
		if _, err := p.conn.Write(b[:n]); err != nil {
			return // the reader sees the end
		}
		b = b[n:]
	}
}

// data sends data as the windows allow. It ends early if the stream has ended.
func (p *player) data(o *op) {
	left, pad := o.data, o.pad
	for {
		p.mu.Lock()
		v := p.stream(o.stream)
		room := func() int {
			window, ok := p.send[o.stream]
			if !ok {
				window = p.initial
			}
			return min(window, p.send[0], 16384)
		}
		overhead := func() int {
			if pad > 0 {
				return pad + 1
			}
			return 0
		}
		for left > 0 && room() <= overhead() && !v.over() && !p.closed {
			p.awaited = fmt.Sprintf("a window for stream %d, %d, %d", o.stream, room(), p.send[0])
			p.changed.Wait()
		}
		p.awaited = ""
		if v.over() || p.closed {
			p.mu.Unlock()
			return
		}
		if overhead() > room() {
			pad = 0
		}
		n := min(left, room()-overhead())
		left -= n
		if _, ok := p.send[o.stream]; !ok {
			p.send[o.stream] = p.initial
		}
		p.send[o.stream] -= n + overhead()
		p.send[0] -= n + overhead()
		p.mu.Unlock()
		var out bytes.Buffer
		f := http2.NewFramer(&out, nil)
		if pad > 0 {
			_ = f.WriteDataPadded(o.stream, o.end && left == 0, bytes.Repeat([]byte("d"), n), make([]byte, pad))
		} else {
			_ = f.WriteData(o.stream, o.end && left == 0, bytes.Repeat([]byte("d"), n))
		}
		p.write(out.Bytes())
		if left == 0 {
			return
		}
	}
}

// settle waits until every stream has ended that must end.
func (p *player) settle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.s.requests {
		for v := p.streams[r.id]; v != nil && !v.over() && !r.reset && !p.closed; {
			p.awaited = fmt.Sprintf("the response of stream %d", r.id)
			p.changed.Wait()
		}
		p.awaited = ""
	}
}

// read reads what the server sends, until the end of the connection.
func (p *player) read() {
	for {
		frame, err := p.framer.ReadFrame()
		p.mu.Lock()
		if err != nil {
			if errors.As(err, new(http2.StreamError)) || errors.As(err, new(http2.ConnectionError)) {
				p.wrong = append(p.wrong, "the client cannot read: "+err.Error())
			}
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				p.wrong = append(p.wrong, "the server does not go on; awaited: "+p.awaited)
			}
			p.closed = true
			p.changed.Broadcast()
			p.mu.Unlock()
			return
		}
		reply := p.take(frame)
		if p.goAway != "" { // net/http closes the connection a second later
			p.closed = true
			p.changed.Broadcast()
			p.mu.Unlock()
			return
		}
		p.changed.Broadcast()
		p.mu.Unlock()
		if len(reply) > 0 {
			p.write(reply)
		}
	}
}

// take notes a frame and returns the reply. p.mu is held.
func (p *player) take(frame http2.Frame) []byte {
	var out bytes.Buffer
	reply := http2.NewFramer(&out, nil)
	id := frame.Header().StreamID
	switch f := frame.(type) {
	case *http2.MetaHeadersFrame:
		p.head(p.stream(id), f)
	case *http2.DataFrame:
		v := p.stream(id)
		if v.status == "" || v.ended || v.reset != "" {
			p.wrong = append(p.wrong, fmt.Sprintf("stream %d: DATA before the head, or after the end", id))
		}
		n := int(f.Length)
		if v.window -= n; v.window < 0 && p.s.steady {
			p.wrong = append(p.wrong, fmt.Sprintf("stream %d: data exceeds the window", id))
		}
		if p.window -= n; p.window < 0 {
			p.wrong = append(p.wrong, "data exceeds the window of the connection")
		}
		v.length += len(f.Data())
		v.sum = crc32.Update(v.sum, crc32.IEEETable, f.Data())
		v.ended = f.StreamEnded()
		if n > 0 {
			p.window += n
			_ = reply.WriteWindowUpdate(0, uint32(n))
			if !v.ended {
				v.window += n + 500
				_ = reply.WriteWindowUpdate(id, uint32(n+500))
			}
		}
	case *http2.RSTStreamFrame:
		v := p.stream(id)
		if !v.ended { // after the end it says that the body is not needed
			v.reset = f.ErrCode.String()
		} else if f.ErrCode != http2.ErrCodeNo && f.ErrCode != http2.ErrCodeStreamClosed && v.status != "400" {
			p.wrong = append(p.wrong, fmt.Sprintf("stream %d: RST_STREAM after the end with %v", id, f.ErrCode))
		}
	case *http2.SettingsFrame:
		if !f.IsAck() {
			if n, ok := f.Value(http2.SettingInitialWindowSize); ok {
				p.initial = int(n)
			}
			_ = reply.WriteSettingsAck()
			// The script has acknowledged the first settings already.
			out.Reset()
		}
	case *http2.WindowUpdateFrame:
		window, ok := p.send[id]
		if !ok {
			window = p.initial
		}
		p.send[id] = window + int(f.Increment)
	case *http2.PingFrame:
		if !f.IsAck() {
			_ = reply.WritePing(true, f.Data)
		}
	case *http2.GoAwayFrame:
		if f.ErrCode != http2.ErrCodeNo {
			p.goAway = f.ErrCode.String()
		}
	}
	return out.Bytes()
}

func (p *player) head(v *seen, f *http2.MetaHeadersFrame) {
	var lines []string
	for _, field := range f.RegularFields() {
		if !slices.Contains(ownFieldNames, field.Name) {
			lines = append(lines, field.Name+": "+field.Value)
		}
	}
	slices.Sort(lines)
	switch status := f.PseudoValue("status"); {
	case v.status != "":
		if status != "" || !f.StreamEnded() {
			p.wrong = append(p.wrong, fmt.Sprintf("stream %d: invalid trailers", f.StreamID))
		}
		v.trailers = lines
	case strings.HasPrefix(status, "1"):
		v.interim = append(v.interim, status+" "+strings.Join(lines, ", "))
	default:
		v.status, v.fields = status, lines
	}
	v.ended = f.StreamEnded()
}
