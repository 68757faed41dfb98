package wire

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// recorded is a request that reached the upstream, as net/http reads it.
type recorded struct {
	method, target, body string
	head                 string // the bytes
	raw                  []byte // head and body
	header               http.Header
	trailer              http.Header
}

func (r recorded) String() string { return fmt.Sprintf("%s %s %q", r.method, r.target, r.body) }

// recorder is an upstream that records what it receives, byte for byte, and responds with
// 200 to every complete request.
type recorder struct {
	addr string

	mu        sync.Mutex
	requests  []recorded
	malformed []string
}

func newRecorder(t testing.TB) *recorder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{addr: l.Addr().String()}
	var running sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[conn] = true
			mu.Unlock()
			running.Go(func() {
				r.serve(conn)
				_ = conn.Close()
				mu.Lock()
				delete(open, conn)
				mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return r
}

func (r *recorder) serve(conn net.Conn) {
	var seen bytes.Buffer
	in := bufio.NewReader(io.TeeReader(conn, &seen))
	for {
		if _, err := in.Peek(1); err != nil {
			return
		}
		before := seen.Len() - in.Buffered()
		req, err := http.ReadRequest(in)
		if err != nil {
			if whole := seen.Bytes()[before:]; bytes.Contains(whole, []byte("\r\n\r\n")) {
				r.addMalformed(fmt.Sprintf("%v: %q", err, whole))
			}
			return
		}
		head, _, _ := bytes.Cut(seen.Bytes()[before:], []byte("\r\n\r\n"))
		text := string(head) + "\r\n"
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return // the request was cut off, so it does not count
		}
		raw := bytes.Clone(seen.Bytes()[before : seen.Len()-in.Buffered()])
		r.add(recorded{req.Method, req.RequestURI, string(body), text, raw, req.Header, req.Trailer})
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); err != nil {
			return
		}
	}
}

func (r *recorder) add(one recorded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, one)
	if why := ambiguity(one.head); why != "" {
		r.malformed = append(r.malformed, why+": "+fmt.Sprintf("%q", one.head))
	}
}

func (r *recorder) addMalformed(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.malformed = append(r.malformed, what)
}

// take returns what was recorded since the last call.
func (r *recorder) take() (requests []recorded, malformed []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	requests, malformed = r.requests, r.malformed
	r.requests, r.malformed = nil, nil
	return requests, malformed
}

// ambiguity returns what is wrong with the head of a forwarded request: another parser could read
// it differently, or a part of it must not be forwarded. It returns "" if nothing is wrong.
func ambiguity(head string) string {
	rest := strings.ReplaceAll(head, "\r\n", "")
	if strings.ContainsAny(rest, "\r\n\x00") {
		return "a bare CR, LF or NUL"
	}
	lines := strings.Split(strings.TrimSuffix(head, "\r\n"), "\r\n")
	if strings.Count(lines[0], " ") != 2 || !strings.HasSuffix(lines[0], " HTTP/1.1") {
		return "a malformed request line"
	}
	count := map[string]int{}
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return "a malformed field"
		}
		name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
		count[name]++
		if name == "transfer-encoding" && strings.TrimSpace(value) != "chunked" {
			return "a transfer coding other than chunked"
		}
	}
	if count["host"] != 1 || count["content-length"]+count["transfer-encoding"] > 1 && !strings.Contains(strings.ToLower(head), "_") {
		return "not exactly one Host, or more than one framing"
	}
	for _, name := range []string{"keep-alive", "proxy-connection", "http2-settings"} {
		if count[name] > 0 {
			return "a hop-by-hop field of the client's connection"
		}
	}
	for _, name := range []string{"x-request-id", "x-keygate-gateway-id", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"} {
		if count[name] != 1 {
			return "not exactly one " + name
		}
	}
	return ""
}

// reading is the result of sending a stream of bytes to the gateway.
type reading struct {
	statuses []int    // of the responses to the client
	requests []string // forwarded to the upstream
	broken   bool     // the responses are not complete messages
}

func (r reading) equal(other reading) bool {
	return slices.Equal(r.statuses, other.statuses) && slices.Equal(r.requests, other.requests) && r.broken == other.broken
}

// refused reports whether the last response rejects a malformed request.
func (r reading) refused() bool {
	if len(r.statuses) == 0 {
		return false
	}
	switch r.statuses[len(r.statuses)-1] {
	case 400, 405, 414, 431, 505:
		return true
	}
	return false
}

// sendStream sends pieces over a connection of their own, closes the sending half, and reads
// all responses.
func sendStream(t testing.TB, addr string, pieces [][]byte) (out reading) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := newSide(t, "client", conn)
	for _, piece := range pieces {
		s.sendPieces(piece, atOnce)
	}
	// If the end of the client's half of the connection comes with the last bytes, the gateway may
	// notice it a second late. Waiting a little for a response first only saves that time.
	s.in = s.peek()
	s.closeWrite()
	for s.more() {
	}
	if s.timedOut() {
		t.Fatalf("the connection stayed open after %q, want it closed; received\n%s", pieces, show(s.in))
	}
	s.close()
	r := bufio.NewReader(bytes.NewReader(s.in))
	for {
		if _, err := r.Peek(1); err != nil {
			return out
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			out.broken = true
			return out
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			out.broken = true
			return out
		}
		out.statuses = append(out.statuses, resp.StatusCode)
	}
}
