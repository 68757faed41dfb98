package enginetest_test

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// framingPeers are a gateway before an upstream of each version of HTTP, which check what reaches them.
type framingPeers struct {
	gateways [2]*harness // before the upstreams over HTTP/1.1 and HTTP/2

	mu       sync.Mutex
	last     int // number of the last request
	requests map[int]sent
	faults   []string
	h1       *client    // of the test, or nil
	h2       [2]*framer // one for each gateway
	stream   [2]uint32
	h1To     int // the gateway of h1
}

func newFramingPeers(f *testing.F) *framingPeers {
	p := &framingPeers{requests: map[int]sent{}}
	plain := upstreamtest.Serve(f, p.serveHTTP1)
	h2c := upstreamtest.Serve(f, p.serveHTTP2)
	p.gateways[0] = start(f, setup{upstream: "http://" + plain, maxBody: framingBodyLimit, limit: "1000000000/s"})
	p.gateways[1] = start(f, setup{upstream: "h2c://" + h2c, maxBody: framingBodyLimit, limit: "1000000000/s"})
	return p
}

// next returns the number of the next request.
func (p *framingPeers) next() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	return p.last
}

// wrong notes that an upstream got something that it must not get.
func (p *framingPeers) wrong(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, fmt.Sprintf(format, args...))
}

var framingLine = regexp.MustCompile(`^(GET|HEAD|POST|PUT|PATCH) /public/(\d+) HTTP/1\.1$`)

// requestOf returns the request with a number in decimal.
func (p *framingPeers) requestOf(number string) (r sent, ok bool) {
	n, _ := strconv.Atoi(number)
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok = p.requests[n]
	return r, ok
}

// serveHTTP1 is the upstream over HTTP/1.1. Between two requests it reads a head, or the end.
func (p *framingPeers) serveHTTP1(c *upstreamtest.Conn) {
	for {
		text, err := c.ReadHead()
		if err != nil {
			if text != "" {
				p.wrong("a connection ended in a head: %q", text)
			}
			return
		}
		h := parse(text)
		match := framingLine.FindStringSubmatch(h.line)
		var r sent
		known := match != nil
		if known {
			r, known = p.requestOf(match[2])
		}
		if !known {
			p.wrong("got %q in the place of a request", h.line)
			return
		}
		length, coding := h.fields["content-length"], h.get("transfer-encoding")
		switch {
		case len(length) > 1, len(length) == 1 && coding != "", coding != "" && coding != "chunked":
			p.wrong("request %d declares length %q and coding %q", r.number, length, coding)
		case h.get("upgrade") != "" && (len(length) > 0 || coding != ""):
			p.wrong("upgrade %d declares length %q and coding %q", r.number, length, coding)
		case len(length) == 1 && length[0] != strconv.Itoa(max(r.declared, 0)):
			p.wrong("request %d declares length %s, want %d", r.number, length[0], r.declared)
		}
		if !p.respondHTTP1(c, r, h, length, coding) {
			return
		}
	}
}

// respondHTTP1 reads the declared body of a request and responds. It reports whether the connection goes on.
func (p *framingPeers) respondHTTP1(c *upstreamtest.Conn, r sent, h head, length []string, coding string) bool {
	if h.get("upgrade") != "" {
		if r.accepts {
			c.Send(switched101 + "Sec-WebSocket-Accept: " + acceptOf(h.get("sec-websocket-key")) + "\r\n\r\n")
			_, _ = io.Copy(c.Conn, c)
			return false
		}
		c.Send(r.response())
		if b, err := c.ReadByte(); err == nil {
			p.wrong("got %q over the connection of upgrade %d, which was declined", b, r.number)
		}
		return false
	}
	if r.early {
		c.Send(r.response())
	} else if h.get("expect") != "" {
		c.Send("HTTP/1.1 100 Continue\r\n\r\n")
	}
	want := bodyOf(r.number, r.size)
	var got strings.Builder
	if coding != "" {
		for {
			piece, err := readChunk(c)
			if err != nil {
				return false // cut short
			}
			if piece == "" {
				break
			}
			got.WriteString(strings.TrimSuffix(piece, "\r\n"))
		}
		if _, err := c.ReadHead(); err != nil { // the trailers
			return false
		}
	} else if len(length) == 1 {
		n, _ := strconv.Atoi(length[0])
		b := make([]byte, n)
		k, err := io.ReadFull(c, b)
		if got.Write(b[:k]); !strings.HasPrefix(want, got.String()) {
			p.wrong("request %d has body %.80q, want %.80q", r.number, got.String(), want)
		}
		if err != nil {
			return false
		}
	}
	p.wantWhole(r, got.String())
	if !r.early {
		c.Send(r.response())
	}
	return !r.closes
}

// wantWhole checks a body that came to its end. If a body is longer than declared, the upstream has
// the declared part before the rest arrives.
func (p *framingPeers) wantWhole(r sent, got string) {
	want := bodyOf(r.number, r.size)
	if r.declared >= 0 {
		want = want[:min(r.size, r.declared)]
	}
	switch {
	case got != want:
		p.wrong("the body of request %d ended after %d bytes with %.80q, want %d and %.80q", r.number, len(got), got, len(want), want)
	case r.breaksOff():
		p.wrong("the body of request %d ended although its client broke it off", r.number)
	}
}

// response is the upstream's over HTTP/1.1.
func (r *sent) response() string {
	text := fmt.Sprintf("HTTP/1.1 %d X\r\nX-For: %d\r\n", r.status, r.number)
	if r.closes {
		text += "Connection: close\r\n"
	}
	switch {
	case r.status == 204 || r.status == 304:
		return text + "\r\n"
	case r.method == "HEAD":
		return text + "Content-Length: 55\r\n\r\n"
	case r.number%2 == 0:
		return text + "Content-Length: 2\r\n\r\nok"
	}
	return text + "Transfer-Encoding: chunked\r\n\r\n" + chunk("ok") + "0\r\n\r\n"
}

// serveHTTP2 is the upstream over HTTP/2.
func (p *framingPeers) serveHTTP2(c *upstreamtest.Conn) {
	s, ok := accept(c, http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1})
	if !ok {
		return
	}
	streams := map[uint32]*framingStream{}
	for {
		frame, err := s.ReadFrame()
		if err != nil {
			return
		}
		id := frame.Header().StreamID
		s.acknowledge(frame)
		switch f := frame.(type) {
		case *http2.RSTStreamFrame:
			delete(streams, id)
		case *http2.MetaHeadersFrame:
			if streams[id] == nil {
				streams[id] = p.beginStream(s, f)
			}
			streams[id].take(p, s, id, nil, f.StreamEnded())
		case *http2.DataFrame:
			if n := uint32(len(f.Data())); n > 0 {
				_ = s.WriteWindowUpdate(0, n)
			}
			if st := streams[id]; st != nil {
				st.take(p, s, id, f.Data(), f.StreamEnded())
			}
		}
	}
}

// framingStream is a request at the upstream over HTTP/2.
type framingStream struct {
	sent
	length string // content-length
	got    strings.Builder
	tunnel bool
}

// beginStream takes the head of a request over HTTP/2.
func (p *framingPeers) beginStream(s *scripted, f *http2.MetaHeadersFrame) *framingStream {
	st := &framingStream{}
	r, ok := p.requestOf(strings.TrimPrefix(f.PseudoValue("path"), "/public/"))
	if !ok {
		p.wrong("got a request for %q over HTTP/2", f.PseudoValue("path"))
	}
	st.sent, st.tunnel = r, f.PseudoValue("method") == "CONNECT"
	for _, field := range f.RegularFields() {
		switch field.Name {
		case "content-length":
			st.length = field.Value
		case "expect":
			if !r.early {
				s.head(f.StreamID, false, ":status", "100")
			}
		}
	}
	switch {
	case st.tunnel && st.length != "":
		p.wrong("CONNECT %d declares length %s", r.number, st.length)
	case st.length != "" && st.length != strconv.Itoa(r.declared):
		p.wrong("request %d declares length %s, want %d", r.number, st.length, r.declared)
	case st.tunnel && r.accepts:
		s.head(f.StreamID, false, ":status", "200", "x-for", strconv.Itoa(r.number))
	case st.tunnel || r.early:
		st.respond(s, f.StreamID)
	}
	return st
}

// take takes a part of the body.
func (st *framingStream) take(p *framingPeers, s *scripted, id uint32, data []byte, end bool) {
	if st.tunnel {
		if st.accepts && (len(data) > 0 || end) {
			_ = s.WriteData(id, end, data)
		}
		return
	}
	st.got.Write(data)
	if !strings.HasPrefix(bodyOf(st.number, st.size), st.got.String()) {
		p.wrong("request %d has body %.80q", st.number, st.got.String())
	}
	if !end {
		return
	}
	if p.wantWhole(st.sent, st.got.String()); st.length != "" && st.length != strconv.Itoa(st.got.Len()) {
		p.wrong("request %d has %d bytes, declared %s", st.number, st.got.Len(), st.length)
	}
	if !st.early {
		st.respond(s, id)
	}
}

// respond sends the response over HTTP/2.
func (st *framingStream) respond(s *scripted, id uint32) {
	bare := st.status == 204 || st.status == 304 || st.method == "HEAD"
	s.head(id, bare, ":status", strconv.Itoa(st.status), "x-for", strconv.Itoa(st.number))
	if !bare {
		_ = s.WriteData(id, true, []byte("ok"))
	}
}
