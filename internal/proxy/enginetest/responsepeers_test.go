package enginetest_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// reply is a response of an upstream, for either version of HTTP.
type reply struct {
	interim  [][]string // the fields of the 103s before it
	status   int        // 0 means 200
	fields   []string   // lines
	framing  framingOf
	body     string
	trailers []string // lines
	breaks   bool     // the upstream resets the connection or stream after the body

	// The bytes that an upstream sends instead of all that, unless it is "" or nil.
	http1 string
	http2 func(s *scripted, id uint32)
	stays bool // the upstream keeps the connection open after http1
}

// framingOf is how an upstream over HTTP/1.1 frames the body.
type framingOf uint8

const (
	byLength framingOf = iota
	byChunks
	byClose
	noFraming // there is no body
)

// text returns the response over HTTP/1.1.
func (r *reply) text() string {
	if r.http1 != "" {
		return r.http1
	}
	var b strings.Builder
	for _, fields := range r.interim {
		b.WriteString("HTTP/1.1 103 Early Hints\r\n" + lines(fields) + "\r\n")
	}
	fmt.Fprintf(&b, "HTTP/1.1 %d Some Reason\r\n%s", max(r.status, 200), lines(r.fields))
	switch r.framing {
	case byLength:
		length := len(r.body)
		if r.breaks {
			length++
		}
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", length, r.body)
	case byChunks:
		b.WriteString("Transfer-Encoding: chunked\r\n\r\n")
		if r.body != "" {
			b.WriteString(chunk(r.body))
		}
		if !r.breaks {
			b.WriteString("0\r\n" + lines(r.trailers) + "\r\n")
		}
	default:
		b.WriteString("\r\n" + r.body)
	}
	return b.String()
}

// send sends the response over HTTP/2.
func (r *reply) send(s *scripted, id uint32) {
	if r.http2 != nil {
		r.http2(s, id)
		return
	}
	for _, fields := range r.interim {
		s.head(id, false, pseudo("103", fields)...)
	}
	fields := r.fields
	if r.framing == byLength {
		length := len(r.body)
		if r.breaks {
			length++
		}
		fields = append(fields[:len(fields):len(fields)], "Content-Length: "+strconv.Itoa(length))
	}
	whole := r.body == "" && r.trailers == nil && !r.breaks
	s.head(id, whole, pseudo(strconv.Itoa(max(r.status, 200)), fields)...)
	for rest := r.body; rest != ""; {
		piece := rest[:min(len(rest), 16<<10)]
		rest = rest[len(piece):]
		_ = s.WriteData(id, rest == "" && r.trailers == nil && !r.breaks, []byte(piece))
	}
	switch {
	case r.breaks:
		_ = s.WriteRSTStream(id, http2.ErrCodeInternal)
	case r.trailers != nil:
		s.head(id, true, pairs(r.trailers)...)
	}
}

// pseudo returns the names and values of a head of a response.
func pseudo(status string, lines []string) []string {
	return append([]string{":status", status}, pairs(lines)...)
}

// pairs returns names and values of field lines.
func pairs(lines []string) (all []string) {
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		all = append(all, strings.ToLower(name), value)
	}
	return all
}

// secrets is a certificate for servers, and how to trust it.
type secrets struct {
	ca           string // PEM
	pool         *x509.CertPool
	certificates []tls.Certificate
}

func newSecrets() *secrets {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return &secrets{string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})), pool, s.TLS.Certificates}
}

// server returns the configuration of a server that speaks protocols.
func (s *secrets) server(protocols ...string) *tls.Config {
	return &tls.Config{Certificates: s.certificates, NextProtos: protocols}
}

// replying is an upstream that responds to a request for "/N" with replies[N], and to any other with the
// body "next".
type replying struct {
	replies []reply
	isHTTP2 bool
	secure  *tls.Config // nil in clear
}

// start starts the upstream, and returns its URL.
func (u *replying) start(t testing.TB) (url string) {
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		tcp := c.Conn.(*net.TCPConn)
		if u.secure != nil {
			over := tls.Server(tcp, u.secure)
			defer over.Close()
			c = &upstreamtest.Conn{Conn: over, Reader: bufio.NewReader(over)}
		}
		if u.isHTTP2 {
			u.serveHTTP2(c)
		} else {
			u.serveHTTP1(c, tcp)
		}
	})
	return schemeOf(u.isHTTP2, u.secure) + "://" + addr
}

// reply returns the response to a request.
func (u *replying) reply(target string) *reply {
	if n, err := strconv.Atoi(strings.TrimPrefix(target, "/")); err == nil {
		return &u.replies[n]
	}
	return &reply{body: "next"}
}

func (u *replying) serveHTTP1(c *upstreamtest.Conn, tcp *net.TCPConn) {
	for {
		text, err := c.ReadHead()
		if err != nil {
			return
		}
		r := u.reply(strings.Fields(text)[1])
		c.Send(r.text())
		switch {
		case r.stays:
		case r.breaks && r.framing == byClose:
			_ = tcp.SetLinger(0)
			_ = tcp.Close() // not the connection above it, which would announce its end
			return
		case r.breaks, r.framing == byClose, r.http1 != "":
			return
		}
	}
}

func (u *replying) serveHTTP2(c *upstreamtest.Conn) {
	s, ok := accept(c)
	if !ok {
		return
	}
	for {
		frame, err := s.ReadFrame()
		if err != nil {
			return
		}
		s.acknowledge(frame)
		if f, ok := frame.(*http2.MetaHeadersFrame); ok {
			u.reply(f.PseudoValue("path")).send(s, f.StreamID)
		}
	}
}

// received is a response as a client gets it.
type received struct {
	interim  []head
	head     head
	body     string
	trailers map[string][]string
	broken   bool // it has no end, or the client cannot tell
}

// caller is a connection of a client of either version of HTTP.
type caller struct {
	t     *testing.T
	key   string
	http1 *upstreamtest.Conn // or
	http2 *framer
	last  uint32 // stream
}

// caller connects to the gateway.
func (g *harness) caller(t *testing.T, isHTTP2 bool, pool *x509.CertPool) *caller {
	t.Helper()
	conn, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	protocol := "http/1.1"
	if isHTTP2 {
		protocol = "h2"
	}
	if g.server.secure != nil {
		conn = tls.Client(conn, &tls.Config{RootCAs: pool, ServerName: "example.com", NextProtos: []string{protocol}})
	}
	if isHTTP2 {
		return &caller{t: t, key: g.key, http2: newFramer(conn)}
	}
	return &caller{t: t, key: g.key, http1: &upstreamtest.Conn{Conn: conn, Reader: bufio.NewReader(conn)}}
}

// exchange makes a request without a body. fields are lines.
func (c *caller) exchange(method, target string, fields ...string) received {
	c.t.Helper()
	fields = c.withKey(fields)
	if c.http1 != nil {
		c.http1.Send(method + " " + target + " HTTP/1.1\r\nHost: api.test\r\n" + lines(fields) + "\r\n")
		return c.receiveHTTP1(method)
	}
	c.last += 2
	id := c.last - 1
	c.http2.request(id, true, c.fieldsOf(method, target, fields))
	return c.receiveHTTP2(id)
}

func (c *caller) receiveHTTP1(method string) (r received) {
	c.t.Helper()
	for {
		text, err := c.http1.ReadHead()
		if err != nil {
			r.broken = true
			return r
		}
		if r.head = parse(text); r.head.status() >= "200" {
			break
		}
		r.interim = append(r.interim, r.head)
	}
	var err error
	switch status := r.head.status(); {
	case method == "HEAD" || status == "204" || status == "304":
	case r.head.get("transfer-encoding") != "":
		var piece string
		for piece, err = readChunk(c.http1); err == nil && piece != ""; piece, err = readChunk(c.http1) {
			r.body += strings.TrimSuffix(piece, "\r\n")
		}
		if err == nil {
			var section string
			section, err = c.http1.ReadHead()
			r.trailers = parse("\r\n" + section).fields
			delete(r.trailers, "")
		}
	default:
		n, _ := strconv.Atoi(r.head.get("content-length"))
		b := make([]byte, n)
		n, err = io.ReadFull(c.http1, b)
		r.body = string(b[:n])
	}
	r.broken = err != nil
	return r
}

func (c *caller) receiveHTTP2(id uint32) (r received) {
	c.t.Helper()
	for {
		frame, err := c.http2.ReadFrame()
		if err != nil {
			r.broken = true
			return r
		}
		if f, ok := frame.(*http2.SettingsFrame); ok && !f.IsAck() {
			_ = c.http2.WriteSettingsAck()
		}
		if frame.Header().StreamID != id {
			continue
		}
		ended := false
		switch f := frame.(type) {
		case *http2.RSTStreamFrame:
			r.broken = true
			return r
		case *http2.DataFrame:
			r.body += string(f.Data())
			if n := uint32(len(f.Data())); n > 0 {
				_ = c.http2.WriteWindowUpdate(0, n)
				_ = c.http2.WriteWindowUpdate(id, n)
			}
			ended = f.StreamEnded()
		case *http2.MetaHeadersFrame:
			h := headOfFrame(f)
			switch {
			case r.head.text != "":
				r.trailers = h.fields
			case h.status() < "200":
				r.interim = append(r.interim, h)
			default:
				r.head = h
			}
			ended = f.StreamEnded()
		}
		if ended {
			return r
		}
	}
}

// headOfFrame returns a HEADERS frame as a head of HTTP/1.1 would be.
func headOfFrame(f *http2.MetaHeadersFrame) head {
	h := head{line: "HTTP/2 " + f.PseudoValue("status"), fields: map[string][]string{}}
	h.text = h.line
	for _, field := range f.RegularFields() {
		h.fields[field.Name] = append(h.fields[field.Name], field.Value)
		h.text += "\r\n" + field.Name + ": " + field.Value
	}
	return h
}

// overAll runs test for each version of HTTP on both sides, with and without TLS. dial connects a client.
func overAll(t *testing.T, replies []reply, test func(t *testing.T, up *replying, dial func() *caller)) {
	t.Helper()
	s := newSecrets()
	overKinds(t, s, func(t *testing.T, k kinds) {
		up := &replying{replies, k.upstreamIsHTTP2, k.upstreamSecure}
		g := start(t, setup{upstream: up.start(t), ca: s.ca, secure: k.secure, limit: "1000000000/s"})
		test(t, up, func() *caller { return g.caller(t, k.isHTTP2, s.pool) })
	})
}

// withKey adds the key to the lines of a request, unless it is "".
func (c *caller) withKey(fields []string) []string {
	if c.key == "" {
		return fields
	}
	return append(fields[:len(fields):len(fields)], "Authorization: Bearer "+c.key)
}
