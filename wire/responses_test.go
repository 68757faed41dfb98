package wire

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/vectortest"
)

// vectorUpstream is an upstream that responds once with the bytes set by respondOnce, and
// with a short response, recognizable by its body, to all other requests.
type vectorUpstream struct {
	t    testing.TB
	addr string

	mu     sync.Mutex
	pieces [][]byte      // of the next response; nil if it has been sent
	closes bool          // the connection is closed after it
	sent   chan struct{} // closed when all of it was written
}

// secondBody is the body of the short response.
const secondBody = "the response to the second request"

func newVectorUpstream(t testing.TB) *vectorUpstream {
	t.Helper()
	back := newRawUpstream(t)
	v := &vectorUpstream{t: t, addr: back.addr}
	var running sync.WaitGroup
	done := make(chan struct{})
	var open []net.Conn
	running.Go(func() {
		for {
			select {
			case conn := <-back.conns:
				open = append(open, conn)
				running.Go(func() { v.serve(conn) })
			case <-done:
				for _, conn := range open {
					_ = conn.Close()
				}
				return
			}
		}
	})
	t.Cleanup(func() {
		close(done)
		running.Wait()
	})
	return v
}

// respondOnce sets the response to the next request. The channel is closed when all of it
// has been sent.
func (v *vectorUpstream) respondOnce(pieces [][]byte, closes bool) (sent <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pieces, v.closes, v.sent = pieces, closes, make(chan struct{})
	return v.sent
}

func (v *vectorUpstream) take() (pieces [][]byte, closes bool, sent chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	pieces, closes = v.pieces, v.closes
	v.pieces = nil
	return pieces, closes, v.sent
}

func (v *vectorUpstream) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		pieces, closes, sent := v.take()
		if pieces == nil {
			if _, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(secondBody), secondBody); err != nil {
				return
			}
			continue
		}
		broken := false
		for _, piece := range pieces {
			if _, err := conn.Write(piece); err != nil {
				broken = true
				break
			}
		}
		if !broken {
			awaittest.Received(v.t, conn)
		}
		close(sent)
		if broken || closes {
			return
		}
	}
}

// Guarantee: whatever an upstream responds, however it is split, the client receives interim
// responses and then either one unambiguous message, an error of the gateway's, or a message
// that is visibly incomplete. A head that Node's parser rejects is a 502. Bytes that an
// upstream sends after its response reach no client: the next request gets its own response.
func TestResponseVectors(t *testing.T) {
	t.Parallel()
	vectors := vectortest.NodeVectors(t, "response*.md")
	if len(vectors) < 50 {
		t.Errorf("got %d vectors, want at least 50", len(vectors))
	}
	var workers sync.WaitGroup
	var passed atomic.Int32
	const count = 4
	for k := range count {
		up := newVectorUpstream(t)
		p := start(t, setup{open: true}, up.addr, nil)
		workers.Go(func() {
			for i := k; i < len(vectors); i += count {
				v := vectors[i]
				r := rand.New(rand.NewPCG(uint64(i), 7))
				for j, pieces := range splits(r, []byte(v.Input), 2) {
					for _, method := range []string{"GET", "HEAD"} {
						got := exchangeOnce(t, p.addr, method, up.respondOnce(pieces, true))
						if why := got.problem(); why != "" {
							t.Errorf("%s: split %d, %s: %s\nthe upstream sent\n%q\nthe client received\n%q", v.Name, j, method, why, v.Input, got.raw)
						}
						if got.status != http.StatusBadGateway {
							passed.Add(1)
						}
						if v.Refused() && !strings.Contains(v.Log, "headers complete") && got.status != http.StatusBadGateway {
							t.Errorf("%s: split %d, %s: want a 502 because Node rejects the head\nthe upstream sent\n%q\nthe client received\n%q", v.Name, j, method, v.Input, got.raw)
						}
					}
				}
				// If the response delimits itself, the upstream keeps the connection open.
				if !hasEnd(v.Input) {
					continue
				}
				sent := up.respondOnce([][]byte{[]byte(v.Input)}, false)
				if got := exchangeOnce(t, p.addr, "GET", sent); got.problem() != "" {
					t.Errorf("%s, connection kept: %s\nthe upstream sent\n%q\nthe client received\n%q", v.Name, got.problem(), v.Input, got.raw)
				}
			}
		})
	}
	workers.Wait()
	if n := int(passed.Load()); n < 2*len(vectors) {
		t.Errorf("got %d responses that passed, want at least %d", n, 2*len(vectors))
	}
}

// hasEnd reports whether response, after interim responses, is complete and delimits itself,
// without the end of the connection.
func hasEnd(response string) bool {
	in := bufio.NewReader(strings.NewReader(response))
	for {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return false
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if resp.StatusCode >= 200 {
			return err == nil && (resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0)
		}
	}
}

// exchanged is what a client received for two requests.
type exchanged struct {
	raw    []byte
	status int    // of the first final response; 0 if there is none
	broken bool   // the first response is incomplete
	last   bool   // the first response says that the connection ends
	second string // the body of the second response, "" if there is none
	rest   []byte // bytes after the second response
	odd    string // an ambiguity in a head
}

// exchangeOnce makes two requests. It sends the second when it has the first response and
// the upstream has sent everything: bytes that come later could rightly be read as the second
// response.
func exchangeOnce(t *testing.T, addr, method string, sent <-chan struct{}) (out exchanged) {
	t.Helper()
	s := newSide(t, "client", dial(t, addr))
	defer s.close()
	s.send(method + " /first HTTP/1.1\r\nHost: " + hostname + "\r\n\r\n")
	sentSecond := false
	for {
		out.read(s.in, method, s.err != nil)
		if out.status != 0 && !out.broken && !sentSecond {
			sentSecond = true
			select {
			case <-sent:
			case <-time.After(awaittest.Timeout):
				t.Errorf("got response %q before the upstream had sent its own", s.in)
			}
			s.send("GET /second HTTP/1.1\r\nHost: " + hostname + "\r\nConnection: close\r\n\r\n")
		}
		if !s.more() {
			break
		}
	}
	if s.timedOut() {
		t.Errorf("the connection stayed open, want it closed; received %q", s.in)
	}
	out.read(s.in, method, true)
	return out
}

// read parses the bytes that a client has received. ended says that no more will come.
func (e *exchanged) read(raw []byte, method string, ended bool) {
	*e = exchanged{raw: raw}
	in := bytes.NewReader(raw)
	r := bufio.NewReader(in)
	for _, want := range []string{method, "GET"} {
		for {
			at := len(raw) - in.Len() - r.Buffered()
			if at == len(raw) || !ended && !bytes.Contains(raw[at:], []byte("\r\n\r\n")) {
				return
			}
			if e.odd == "" {
				e.odd = responseAmbiguity(raw[at:])
			}
			resp, err := http.ReadResponse(r, &http.Request{Method: want})
			if err != nil {
				e.broken = true
				return
			}
			body, err := io.ReadAll(resp.Body)
			if resp.StatusCode < 200 {
				continue
			}
			if e.status == 0 {
				e.status = resp.StatusCode
				e.broken, e.last = err != nil, resp.Close
			} else {
				e.second = string(body)
			}
			if err != nil {
				return
			}
			break
		}
	}
	e.rest = raw[len(raw)-in.Len()-r.Buffered():]
}

// problem returns what is wrong with the received bytes, or "" if nothing is.
func (e *exchanged) problem() string {
	switch {
	case e.odd != "":
		return e.odd
	case e.status == 0:
		return "no response"
	case len(e.rest) > 0:
		return "bytes after the second response"
	case !e.broken && !e.last && e.second != secondBody:
		return "the second request did not get its own response"
	}
	return ""
}

// responseAmbiguity returns the part of the head at the start of raw that parsers could read in two
// ways, or "" if there is none.
func responseAmbiguity(raw []byte) string {
	head, _, _ := bytes.Cut(raw, []byte("\r\n\r\n"))
	lines := strings.Split(string(head), "\r\n")
	if strings.ContainsAny(strings.Join(lines, ""), "\r\n\x00") {
		return "a bare CR, LF or NUL"
	}
	if len(lines[0]) < len("HTTP/1.1 200") || !strings.HasPrefix(lines[0], "HTTP/1.1 ") || strings.Trim(lines[0][9:12], "0123456789") != "" {
		return "a malformed status line"
	}
	framings := 0
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return "a malformed field"
		}
		switch strings.ToLower(name) {
		case "content-length":
			framings++
			if value = strings.TrimSpace(value); value == "" || strings.Trim(value, "0123456789") != "" {
				return "a malformed Content-Length"
			}
		case "transfer-encoding":
			framings++
			if strings.TrimSpace(value) != "chunked" {
				return "a transfer coding other than chunked"
			}
		}
	}
	if framings > 1 {
		return "two framings"
	}
	return ""
}
