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

	"github.com/keygate/keygate/internal/http1/vectortest"
)

// vector is an upstream that answers the first request of a script with its
// bytes, and every other with a short answer that is known by its body.
type vector struct {
	addr string

	mu     sync.Mutex
	pieces [][]byte      // of the answer to the first request; nil when it was given
	closes bool          // the connection ends behind it
	said   chan struct{} // closed when all of it was written
}

const afterwards = "the answer to the second request"

func newVector(t testing.TB) *vector {
	t.Helper()
	back := newBackstage(t)
	v := &vector{addr: back.addr}
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

// script sets what the next request gets, and returns what tells that it was said.
func (v *vector) script(pieces [][]byte, closes bool) (said <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pieces, v.closes, v.said = pieces, closes, make(chan struct{})
	return v.said
}

func (v *vector) take() (pieces [][]byte, closes bool, said chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	pieces, closes = v.pieces, v.closes
	v.pieces = nil
	return pieces, closes, v.said
}

func (v *vector) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		pieces, closes, said := v.take()
		if pieces == nil {
			if _, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(afterwards), afterwards); err != nil {
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
			arrived(conn)
		}
		close(said)
		if broken || closes {
			return
		}
	}
}

// Guarantee: whatever an upstream answers, in whatever pieces, the client gets
// interim answers and then one message that every reader reads alike, an error of
// the gateway's, or a message that it can see is not whole; what Node's parser
// refuses in a head is an error; and what an upstream sends beyond its answer is
// nobody's: the next request gets its own.
func TestAnswerVectors(t *testing.T) {
	t.Parallel()
	vectors := vectortest.NodeVectors(t, "response*.md")
	if len(vectors) < 50 {
		t.Errorf("only %d vectors were found", len(vectors))
	}
	var lanes sync.WaitGroup
	var passed atomic.Int32
	const count = 4
	for k := range count {
		up := newVector(t)
		p := start(t, setup{open: true}, up.addr, nil)
		lanes.Go(func() {
			for i := k; i < len(vectors); i += count {
				v := vectors[i]
				r := rand.New(rand.NewPCG(uint64(i), 7))
				for j, pieces := range splits(r, []byte(v.Input), 2) {
					for _, method := range []string{"GET", "HEAD"} {
						got := exchangeOnce(t, p.addr, method, up.script(pieces, true))
						if why := got.wrong(); why != "" {
							t.Errorf("%s: split %d, %s: %s\n%q\ngave the client\n%q", v.Name, j, method, why, v.Input, got.raw)
						}
						if got.status != http.StatusBadGateway {
							passed.Add(1)
						}
						if v.Refused() && !strings.Contains(v.Log, "headers complete") && got.status != http.StatusBadGateway {
							t.Errorf("%s: split %d, %s: Node refuses the head; the client gets\n%q\nof\n%q", v.Name, j, method, got.raw, v.Input)
						}
					}
				}
				// The upstream keeps the connection open where its answer has an end.
				if !hasEnd(v.Input) {
					continue
				}
				said := up.script([][]byte{[]byte(v.Input)}, false)
				if got := exchangeOnce(t, p.addr, "GET", said); got.wrong() != "" {
					t.Errorf("%s, connection kept: %s\n%q\ngave the client\n%q", v.Name, got.wrong(), v.Input, got.raw)
				}
			}
		})
	}
	lanes.Wait()
	if n := int(passed.Load()); n < 2*len(vectors) {
		t.Errorf("only %d answers passed, so little was looked at", n)
	}
}

// hasEnd reports whether answer, behind its interim ones, is whole and says so
// itself: the end of the connection is not needed.
func hasEnd(answer string) bool {
	in := bufio.NewReader(strings.NewReader(answer))
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

// exchanged is what a client received for a request and a second one behind it.
type exchanged struct {
	raw    []byte
	status int    // of the first final answer; 0 if none
	broken bool   // it has no end
	last   bool   // it says that the connection ends
	second string // the body of the second answer, "" if there is none
	rest   []byte // what nobody asked for
	odd    string // what in a head could be read otherwise
}

// exchangeOnce makes two requests, the second when the first is answered and the
// upstream has said all that it says then: what comes later could be taken for
// the second answer by anybody.
func exchangeOnce(t *testing.T, addr, method string, said <-chan struct{}) (out exchanged) {
	t.Helper()
	s := newSide(t, "client", dial(t, addr))
	defer s.close()
	s.say(method + " /first HTTP/1.1\r\nHost: " + hostname + "\r\n\r\n")
	asked := false
	for {
		out.read(s.in, method, s.err != nil)
		if out.status != 0 && !out.broken && !asked {
			asked = true
			select {
			case <-said:
			case <-time.After(patience):
				t.Errorf("answered with %q before the upstream has said anything", s.in)
			}
			s.say("GET /second HTTP/1.1\r\nHost: " + hostname + "\r\nConnection: close\r\n\r\n")
		}
		if !s.more() {
			break
		}
	}
	if s.timedOut() {
		t.Errorf("no end came; the client has %q", s.in)
	}
	out.read(s.in, method, true)
	return out
}

// read reads what a client has; ended tells that no more will come.
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
				e.odd = oddHead(raw[at:])
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

// wrong tells what a client must not get, or "".
func (e *exchanged) wrong() string {
	switch {
	case e.odd != "":
		return e.odd
	case e.status == 0:
		return "no answer"
	case len(e.rest) > 0:
		return "more than two answers"
	case !e.broken && !e.last && e.second != afterwards:
		return "the second request did not get its answer"
	}
	return ""
}

// oddHead tells what in the head that raw begins with could be read in two ways.
func oddHead(raw []byte) string {
	head, _, _ := bytes.Cut(raw, []byte("\r\n\r\n"))
	lines := strings.Split(string(head), "\r\n")
	if strings.ContainsAny(strings.Join(lines, ""), "\r\n\x00") {
		return "a bare CR, LF or NUL"
	}
	if len(lines[0]) < len("HTTP/1.1 200") || !strings.HasPrefix(lines[0], "HTTP/1.1 ") || strings.Trim(lines[0][9:12], "0123456789") != "" {
		return "an odd status line"
	}
	framings := 0
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return "an odd field"
		}
		switch strings.ToLower(name) {
		case "content-length":
			framings++
			if value = strings.TrimSpace(value); value == "" || strings.Trim(value, "0123456789") != "" {
				return "an odd length"
			}
		case "transfer-encoding":
			framings++
			if strings.TrimSpace(value) != "chunked" {
				return "an odd coding"
			}
		}
	}
	if framings > 1 {
		return "two framings"
	}
	return ""
}
