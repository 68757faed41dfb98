package h1

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/tlspump/tlspumptest"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// secured runs f with each version of TLS, in parallel.
func secured(t *testing.T, f func(t *testing.T, s setup)) {
	for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, setup{limit: "1000000/s", tls: version})
		})
	}
}

// numbers is a body in which every part differs from every other.
func numbers(size int) string {
	b := make([]byte, 0, size+16)
	for i := 0; len(b) < size; i++ {
		b = fmt.Appendf(b, "%d,", i)
	}
	return string(b[:size])
}

// Guarantee: connections over TLS are pumped; bodies do not go from socket to socket, past TLS.
func TestTLSIsPumped(t *testing.T) {
	t.Parallel()
	secured(t, func(t *testing.T, s setup) {
		body := numbers(1 << 20)
		s.upstream, _ = upstreamOf(t, always("HTTP/1.1 200 OK\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body))
		g := start(t, s)
		c := g.dial(t)
		for range 3 {
			c.send("GET /a HTTP/1.1\r\nKEY\r\n\r\n")
			c.wantResponse("200", body)
		}
		g.awaitConn("a connection that is pumped", func(c *conn) bool { return c.pump && c.over != nil && !c.plain })
	})
}

// Guarantee: requests that arrive in one record, in several at once and byte by byte are all
// served, in order.
func TestRequestsInAnyRecords(t *testing.T) {
	t.Parallel()
	const request = "POST /a HTTP/1.1\r\nKEY\r\nContent-Length: 4\r\n\r\nbody"
	secured(t, func(t *testing.T, s setup) {
		s.upstream, _ = upstreamOf(t, func(h string, up *upstreamtest.Conn) string {
			_, _ = io.CopyN(io.Discard, up, 4)
			return okResponse
		})
		g := start(t, s)
		c := g.dial(t)
		c.send(strings.Repeat(request, 5))
		for range 5 {
			c.send(request)
		}
		for range 10 {
			c.wantResponse("200", "ok")
		}
		for _, b := range []byte(strings.ReplaceAll(request, "KEY", "Host: api.test\r\nAuthorization: Bearer "+c.key)) { // a record for each
			c.send(string(b))
		}
		c.wantResponse("200", "ok")
		// The bytes of the records one by one.
		slow := g.dialThrough(t)
		slow.send(request)
		slow.wantResponse("200", "ok")
	})
}

// bytewise writes each byte by itself.
type bytewise struct{ net.Conn }

func (b bytewise) Write(p []byte) (int, error) {
	for i := range p {
		if _, err := b.Conn.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

// dialThrough does the same as dial, over a connection whose bytes are sent one by one.
func (g *harness) dialThrough(t *testing.T) *client {
	t.Helper()
	over := tls.Client(bytewise{g.connect(t)}, g.tls)
	return &client{t: t, Conn: over, Reader: bufio.NewReader(over), key: g.key}
}

// records makes and reads the records of TLS 1.3 itself.
type records struct {
	net.Conn
	in, out *tlspumptest.Layer
	data    []byte // read and not returned
	replies int    // KeyUpdates that the server has sent
}

// dialRecords connects with TLS 1.3.
func (g *harness) dialRecords(t *testing.T) (*client, *records) {
	t.Helper()
	conn := g.connect(t)
	keys := &tlspumptest.Keys{}
	cfg := g.tls.Clone()
	cfg.KeyLogWriter = keys
	if err := tls.Client(conn, cfg).HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := &records{Conn: conn, in: keys.Layer(t, tlspumptest.FromServer), out: keys.Layer(t, tlspumptest.FromClient)}
	return &client{t: t, Conn: r, Reader: bufio.NewReader(r), key: g.key}, r
}

func (r *records) Write(b []byte) (int, error) {
	if _, err := r.Conn.Write(r.out.Seal(tlspumptest.Data, string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// update sends a KeyUpdate that asks for another.
func (r *records) update() {
	_, _ = r.Conn.Write(r.out.Seal(tlspumptest.Handshake, tlspumptest.KeyUpdate))
	r.out.Update()
}

func (r *records) Read(b []byte) (int, error) {
	for len(r.data) == 0 {
		kind, data, err := r.in.TryOpen(r.Conn)
		if err != nil {
			return 0, err
		}
		switch {
		case kind == tlspumptest.Data:
			r.data = data
		case string(data) == tlspumptest.KeyReply:
			r.replies++
			r.in.Update()
		}
	}
	n := copy(b, r.data)
	r.data = r.data[n:]
	return n, nil
}

// Guarantee: a client that sends KeyUpdates, between requests and while it reads nothing of a
// long response, gets its replies and whole responses.
func TestKeyUpdates(t *testing.T) {
	t.Parallel()
	body := numbers(12 << 20) // more than sockets hold
	s := setup{limit: "1000000/s", tls: tls.VersionTLS13}
	s.upstream, _ = upstreamOf(t, func(h string, up *upstreamtest.Conn) string {
		if strings.HasPrefix(h, "GET /long") {
			up.Send("HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n")
			return body
		}
		return okResponse
	})
	g := start(t, s)
	c, r := g.dialRecords(t)
	for range 3 {
		r.update()
		c.send("GET /a HTTP/1.1\r\nKEY\r\n\r\n")
		c.wantResponse("200", "ok")
	}
	c.send("GET /long HTTP/1.1\r\nKEY\r\n\r\n")
	g.awaitConn("a client that takes nothing", func(c *conn) bool { return phaseOf(c.writing.word.Load()) == phaseWriting })
	r.update()
	c.send("GET /a HTTP/1.1\r\nKEY\r\n\r\n")
	r.update()
	c.send("GET /a HTTP/1.1\r\nKEY\r\n\r\n")
	if got := c.body(c.wantStatus("200")); !bytes.Equal([]byte(got), []byte(body)) {
		t.Errorf("got %d bytes, want the %d of the response", len(got), len(body))
	}
	c.wantResponse("200", "ok")
	c.wantResponse("200", "ok")
	if r.replies != 5 {
		t.Errorf("got %d KeyUpdates, want 5", r.replies)
	}
}

// Guarantee: the end of a client, with the alert of TLS or without, ends its idle connection.
func TestTLSClientEnds(t *testing.T) {
	t.Parallel()
	secured(t, func(t *testing.T, s setup) {
		s.upstream, _ = upstreamOf(t, always(okResponse))
		g := start(t, s)
		for name, end := range map[string]func(c *tls.Conn) error{
			"alert":            func(c *tls.Conn) error { return c.CloseWrite() },
			"without an alert": func(c *tls.Conn) error { return c.NetConn().Close() },
			"within a record": func(c *tls.Conn) error {
				_, _ = c.NetConn().Write([]byte{23, 3, 3, 0})
				return c.NetConn().Close()
			},
			"all": func(c *tls.Conn) error { return c.Close() },
		} {
			c := g.dial(t)
			c.send("GET /a HTTP/1.1\r\nKEY\r\n\r\n")
			c.wantResponse("200", "ok")
			if err := end(c.Conn.(*tls.Conn)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			awaittest.True(t, name+": the connection has ended", func() bool { return g.engine.Connections() == 0 })
		}
	})
}

// Guarantee: the truncated response of an HTTP/1.0 client over TLS, whose end is the end of the
// connection, ends without the alert that would say that it is whole.
func TestTruncatedResponseHasNoAlert(t *testing.T) {
	t.Parallel()
	secured(t, func(t *testing.T, s setup) {
		s.upstream, _ = upstreamOf(t, func(_ string, up *upstreamtest.Conn) string {
			up.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n")
			return ""
		})
		g := start(t, s)
		c := g.dial(t)
		c.send("GET /a HTTP/1.0\r\nKEY\r\n\r\n")
		c.wantStatus("200")
		if got, err := c.rest(); err == nil {
			t.Errorf("got %q and a proper end, want an error", got)
		}
	})
}
