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

// recorded is a request as net/http reads what reached the upstream.
type recorded struct {
	method, target, body string
	head                 string // the bytes
	raw                  []byte // head and body
	header               http.Header
	trailer              http.Header
}

func (r recorded) String() string { return fmt.Sprintf("%s %s %q", r.method, r.target, r.body) }

// recorder is an upstream that notes what reaches it, byte for byte, and answers
// 200 to every whole request.
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
				r.bad(fmt.Sprintf("%v: %q", err, whole))
			}
			return
		}
		head, _, _ := bytes.Cut(seen.Bytes()[before:], []byte("\r\n\r\n"))
		text := string(head) + "\r\n"
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return // cut off; what counts is that it has no end
		}
		raw := bytes.Clone(seen.Bytes()[before : seen.Len()-in.Buffered()])
		r.note(recorded{req.Method, req.RequestURI, string(body), text, raw, req.Header, req.Trailer})
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); err != nil {
			return
		}
	}
}

func (r *recorder) note(one recorded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, one)
	if why := unclean(one.head); why != "" {
		r.malformed = append(r.malformed, why+": "+fmt.Sprintf("%q", one.head))
	}
}

func (r *recorder) bad(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.malformed = append(r.malformed, what)
}

// take returns what was recorded and forgets it.
func (r *recorder) take() (requests []recorded, malformed []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	requests, malformed = r.requests, r.malformed
	r.requests, r.malformed = nil, nil
	return requests, malformed
}

// unclean tells what in the head of a forwarded request another parser could read
// differently, or what must not be there.
func unclean(head string) string {
	rest := strings.ReplaceAll(head, "\r\n", "")
	if strings.ContainsAny(rest, "\r\n\x00") {
		return "a bare CR, LF or NUL"
	}
	lines := strings.Split(strings.TrimSuffix(head, "\r\n"), "\r\n")
	if strings.Count(lines[0], " ") != 2 || !strings.HasSuffix(lines[0], " HTTP/1.1") {
		return "an odd request line"
	}
	count := map[string]int{}
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return "an odd field"
		}
		name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
		count[name]++
		if name == "transfer-encoding" && strings.TrimSpace(value) != "chunked" {
			return "an odd coding"
		}
	}
	if count["host"] != 1 || count["content-length"]+count["transfer-encoding"] > 1 && !strings.Contains(strings.ToLower(head), "_") {
		return "not one host, or more than one framing"
	}
	for _, name := range []string{"keep-alive", "proxy-connection", "http2-settings"} {
		if count[name] > 0 {
			return "a field of the other connection"
		}
	}
	for _, name := range []string{"x-request-id", "x-keygate-gateway-id", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"} {
		if count[name] != 1 {
			return "not exactly one " + name
		}
	}
	return ""
}

// reading is all that came of a stream of bytes.
type reading struct {
	statuses []int
	requests []string
	broken   bool // the answers are no whole messages
}

func (r reading) equal(other reading) bool {
	return slices.Equal(r.statuses, other.statuses) && slices.Equal(r.requests, other.requests) && r.broken == other.broken
}

// refused reports whether the last answer is a refusal for form.
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

// ask sends pieces on a connection of its own, ends the sending half, and reads
// to the end.
func ask(t testing.TB, addr string, pieces [][]byte) (out reading) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := newSide(t, "client", conn)
	for _, piece := range pieces {
		s.send(piece, whole)
	}
	// An end that comes with the last bytes may be noticed a second later, so it
	// waits a little for an answer; the verdict is the same.
	s.in = s.peek()
	s.end()
	for s.more() {
	}
	if s.timedOut() {
		t.Fatalf("no end came after %q; received\n%s", pieces, show(s.in))
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
