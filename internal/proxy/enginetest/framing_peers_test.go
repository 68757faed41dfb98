package enginetest_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// begin forgets the connections of the input before.
func (p *framingPeers) begin(*testing.T) {
	p.h1, p.h2, p.stream = nil, [2]*framer{}, [2]uint32{}
}

// end closes the connections, and reports what the upstreams found.
func (p *framingPeers) end(t *testing.T) {
	p.hangUp()
	for _, f := range p.h2 {
		if f != nil {
			_ = f.conn.Close()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, fault := range p.faults {
		t.Error(fault)
	}
	p.faults = nil
}

func (p *framingPeers) hangUp() {
	if p.h1 != nil {
		_ = p.h1.Conn.Conn.Close()
		p.h1 = nil
	}
}

// exchange sends a request to the gateway in front of the HTTP/2 upstream if toH2 is set, else in front of
// the HTTP/1.1 upstream, and checks the response.
func (p *framingPeers) exchange(t *testing.T, r sent, toH2 bool) {
	t.Helper()
	p.mu.Lock()
	p.requests[r.number] = r
	delete(p.requests, r.number-1000) // a request that its client has broken off may reach an upstream late
	p.mu.Unlock()
	to := 0
	if toH2 {
		to = 1
	}
	if r.overH2 {
		p.exchangeHTTP2(t, r, to)
	} else {
		p.exchangeHTTP1(t, r, to)
	}
}

// exchangeHTTP1 does what exchange does, for a client over HTTP/1.1 whose connection goes on to the next
// request if possible.
func (p *framingPeers) exchangeHTTP1(t *testing.T, r sent, to int) {
	if p.h1 == nil || p.h1To != to {
		p.hangUp()
		conn, err := net.Dial("tcp", p.gateways[to].addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(testTimeout))
		p.h1, p.h1To = &client{t: t, Conn: &upstreamtest.Conn{Conn: conn, Reader: bufio.NewReader(conn)}}, to
	}
	c := p.h1
	path, fields := r.head()
	text := r.method + " " + path + " HTTP/1.1\r\nHost: api.test\r\n"
	for _, f := range fields {
		text += f[0] + ": " + f[1] + "\r\n"
	}
	if r.upgrade {
		text += "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
	}
	chunked := r.declared == -2
	if chunked {
		text += "Transfer-Encoding: chunked\r\n"
	}
	body, half := bodyOf(r.number, r.size), r.size/2
	send := func(part string) {
		if chunked && part != "" {
			part = chunk(part)
		}
		c.Send(part)
	}
	c.Send(text + "\r\n")
	if r.expects {
		if h := c.head(); h.status() != "100" {
			p.wantResponse(t, r, h)
			p.hangUp()
			return
		}
	}
	send(body[:half])
	switch {
	case r.aborts, r.declared > r.size:
		p.hangUp()
		return
	case r.waits:
		p.wantResponse(t, r, c.head())
		send(body[half:])
		p.hangUp()
		return
	}
	send(body[half:])
	if chunked {
		end := "0\r\n\r\n"
		if r.trailers {
			end = "0\r\nX-T: 1\r\n\r\n"
		}
		c.Send(end)
	}
	h := c.head()
	for h.status() == "100" {
		h = c.head()
	}
	if p.wantResponse(t, r, h); h.status() == "101" || h.get("connection") == "close" {
		p.hangUp()
		return
	}
	c.skipBody(h, r.method)
}

// skipBody reads the body of a response.
func (c *client) skipBody(h head, method string) {
	switch status := h.status(); {
	case method == "HEAD" || status == "204" || status == "304":
	case h.get("transfer-encoding") != "":
		for {
			piece, err := readChunk(c.Conn)
			if err != nil {
				c.t.Fatal(err)
			}
			if piece == "" {
				_, _ = c.ReadHead()
				return
			}
		}
	default:
		n, _ := strconv.Atoi(h.get("content-length"))
		c.text(n)
	}
}

// wantResponse checks the head of a response: it belongs to the request, or, unless the request is regular,
// it may come from the gateway.
func (p *framingPeers) wantResponse(t *testing.T, r sent, h head) {
	t.Helper()
	switch got := h.get("x-for"); {
	case h.status() == "101" && r.accepts:
	case got != "" && got != strconv.Itoa(r.number):
		t.Errorf("request %d got the response for %s", r.number, got)
	case got == "" && r.regular():
		t.Errorf("request %+v got response\n%s", r, h.text)
	}
}

// exchangeHTTP2 is exchange of a client over HTTP/2.
func (p *framingPeers) exchangeHTTP2(t *testing.T, r sent, to int) {
	f := p.h2[to]
	if f == nil || p.stream[to] > 5 {
		if f != nil {
			_ = f.conn.Close()
		}
		conn, err := net.Dial("tcp", p.gateways[to].addr)
		if err != nil {
			t.Fatal(err)
		}
		f = newFramer(conn)
		p.h2[to], p.stream[to] = f, 1
	}
	id := p.stream[to]
	p.stream[to] += 2
	path, fields := r.head()
	pseudo := [][2]string{{":method", r.method}}
	if r.upgrade {
		pseudo = [][2]string{{":method", "CONNECT"}, {":protocol", "websocket"}}
	}
	pseudo = append(pseudo, [2]string{":scheme", "http"}, [2]string{":authority", "api.test"}, [2]string{":path", path})
	body, half := []byte(bodyOf(r.number, r.size)), r.size/2
	empty := !r.upgrade && r.size == 0 && r.declared != -2
	f.request(id, empty, append(pseudo, fields...))
	s := framingReader{f: f, id: id, t: t}
	switch {
	case r.upgrade:
		p.wantResponse(t, r, s.next())
		_ = f.WriteRSTStream(id, http2.ErrCodeCancel)
		return
	case empty:
	default:
		if r.expects {
			if h := s.next(); h.status() != "100" {
				p.wantResponse(t, r, h)
				_ = f.WriteRSTStream(id, http2.ErrCodeCancel)
				return
			}
		}
		_ = f.WriteData(id, false, body[:half])
		if r.aborts {
			_ = f.WriteRSTStream(id, http2.ErrCodeCancel)
			return
		}
		if r.waits {
			p.wantResponse(t, r, s.next())
		}
		_ = f.WriteData(id, !r.trailers, body[half:])
		if r.trailers {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte("\x00\x03x-t\x011"), EndHeaders: true, EndStream: true})
		}
		if r.waits {
			s.finish()
			return
		}
	}
	h := s.next()
	for h.status() == "100" {
		h = s.next()
	}
	p.wantResponse(t, r, h)
	s.finish()
}

// framingReader reads the response of one stream.
type framingReader struct {
	t     *testing.T
	f     *framer
	id    uint32
	ended bool
}

// next reads the next head. It is empty if the stream has ended or was reset.
func (s *framingReader) next() head {
	for !s.ended {
		frame, err := s.f.ReadFrame()
		if err != nil {
			s.t.Fatalf("stream %d: %v", s.id, err)
		}
		if frame.Header().StreamID != s.id {
			continue
		}
		switch f := frame.(type) {
		case *http2.RSTStreamFrame:
			s.ended = true
		case *http2.DataFrame:
			s.ended = f.StreamEnded()
		case *http2.MetaHeadersFrame:
			s.ended = f.StreamEnded()
			var text bytes.Buffer
			fmt.Fprintf(&text, "HTTP/2 %s", f.PseudoValue("status"))
			for _, field := range f.RegularFields() {
				fmt.Fprintf(&text, "\r\n%s: %s", field.Name, field.Value)
			}
			return parse(text.String())
		}
	}
	return parse("HTTP/2 000")
}

// finish reads to the end of the stream.
func (s *framingReader) finish() {
	for !s.ended {
		s.next()
	}
}
