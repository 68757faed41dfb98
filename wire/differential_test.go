package wire

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"testing"
)

// readers are the gateway and Node's parser, which are compared with net/http.
type readers struct {
	mu     sync.Mutex
	worker *worker
	node   *node
}

func newReaders(t testing.TB) *readers {
	return &readers{worker: newWorker(t), node: startNode(t)}
}

// seeds returns valid requests, from which mutate makes others.
func seeds() []string {
	return []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /a/b?c=d HTTP/1.1\r\nHost: a.example:80\r\nAccept: */*\r\nX-Empty:\r\nX: \t y \t\r\n\r\n",
		"POST /x?y HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /z HTTP/1.1\r\nHost: b\r\n\r\n",
		"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nX: y\r\n\r\nGET /n HTTP/1.1\r\nHost: a\r\n\r\n",
		"PUT /a HTTP/1.0\r\nHost: a\r\nConnection: keep-alive, X\r\nX: 1\r\nContent-Length: 1\r\n\r\nx",
		"GET /u HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nTE: trailers, gzip;q=0.5\r\nTrailer: X\r\n\r\n",
		"OPTIONS http://b/x HTTP/1.1\r\nHost: a\r\nVia: 1.1 x\r\n\r\n",
		"\r\nDELETE /%7Ea;b=c HTTP/1.1\r\nHost: a\r\nCookie: a=b\r\nX-Forwarded-For: 1.2.3.4\r\nX-Keygate-Key-Id: x\r\n\r\n",
	}
}

// Guarantee: net/http and Node's parser read a request that the gateway forwards in the same
// way, both as the client sent it and as it was forwarded; a request that net/http rejects
// is not forwarded.
func FuzzDifferential(f *testing.F) {
	r := newReaders(f)
	for _, seed := range seeds() {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, input []byte) { r.compare(t, input) })
}

// Guarantee: the same as of FuzzDifferential, for requests with mistakes on which parsers are known
// to differ.
func TestDifferential(t *testing.T) {
	t.Parallel()
	r := newReaders(t)
	random := rand.New(rand.NewPCG(4, 4))
	forwarded := 0
	for range 600 {
		forwarded += r.compare(t, mutate(random))
	}
	if forwarded < 100 {
		t.Errorf("got %d requests forwarded, want at least 100 to compare", forwarded)
	}
}

// mutate makes one to three mistakes in a seed.
func mutate(r *rand.Rand) []byte {
	pick := func(from []string) string { return from[r.IntN(len(from))] }
	out := pick(seeds())
	for range 1 + r.IntN(3) {
		switch at := r.IntN(len(out)); r.IntN(6) {
		case 0: // a piece of syntax anywhere
			out = out[:at] + pick([]string{"\r", "\n", "\r\n", " ", "\t", "\x00", "\x0b", ":", ",", ";", "\xff", "\x7f", "0", "/", "%", "#", "_", "\r\n "}) + out[at:]
		case 1: // a line lost or duplicated
			lines := strings.SplitAfter(out, "\r\n")
			i := r.IntN(len(lines))
			out = strings.Join(append(slices.Clone(lines[:i]), lines[min(len(lines), i+r.IntN(2)*2):]...), "")
			if r.IntN(2) == 0 {
				out = strings.Join(slices.Insert(lines, i, lines[i]), "")
			}
		case 2: // a field after the request line
			line, rest, _ := strings.Cut(out, "\r\n")
			out = line + "\r\n" + pick([]string{
				"Content-Length: 3", "Content-Length: 0", "Content-Length:+1", "Content-Length: 1,1", "Content_Length: 3", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked",
				"Transfer-Encoding:\tchunked", "Transfer-Encoding : chunked", "Transfer-Encoding: chunked,", "transfer-encoding: CHUNKED", "Transfer-Encoding: identity", "Host: b", "Host:",
				"Connection: close", "Connection: Host, Content-Length, Transfer-Encoding", "Connection: keep-alive, Via", "Expect: 100-continue", "Expect: 200", "X : y", " X: y", "X", ": y", "Upgrade: h2c", "X-Forwarded-For: x",
			}) + "\r\n" + rest
		case 3: // a byte lost
			out = out[:at] + out[at+1:]
		case 4: // a byte changed
			out = out[:at] + string([]byte{byte(r.IntN(256))}) + out[at+1:]
		default: // a version, or an end of line
			out = strings.Replace(out, pick([]string{"HTTP/1.1", "\r\n", ": ", "5;a=b", "0\r\n"}), pick([]string{"HTTP/1.0", "HTTP/1.2", "\n", "\r", ":", " :", "5", "05", "5 ", "00\r\n", "0;x\r\n"}), 1)
		}
		if out == "" {
			return []byte("x")
		}
	}
	return []byte(out)
}

// compare makes all parsers read input, and returns how many requests were forwarded.
func (r *readers) compare(t *testing.T, input []byte) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	got := sendStream(t, r.worker.plane.addr, [][]byte{input})
	requests, malformed := r.worker.back.take()
	if len(malformed) > 0 {
		t.Errorf("the upstream received malformed bytes: %s\n%q", malformed, input)
	}
	r.compareForwarded(t, input, requests)
	r.compareReceived(t, input, got.statuses, requests)
	return len(requests)
}

// compareForwarded checks that net/http and Node read the forwarded requests in the same way.
func (r *readers) compareForwarded(t *testing.T, input []byte, requests []recorded) {
	var stream []byte
	for i := range requests {
		stream = append(stream, requests[i].raw...)
	}
	if len(requests) == 0 {
		return
	}
	theirs := r.node.read(t, stream)
	if len(theirs.Messages) != len(requests) {
		if i := len(theirs.Messages); i < len(requests) && unsupportedByNode(requests[i].method, requests[i].target) {
			return
		}
		t.Fatalf("forwarded requests: net/http reads %v, Node %+v, want both the same\n%q\nfrom %q", requests, theirs, stream, input)
	}
	for i, m := range theirs.Messages {
		one := &requests[i]
		if m.Method != one.method || m.Target != one.target || string(m.Body) != one.body ||
			fields(m.Head, "Host", "Transfer-Encoding", "Trailer") != fieldsOf(one.header) || fields(m.Trailers) != fieldsOf(one.trailer) {
			t.Fatalf("forwarded request: net/http reads %v\n%s\n%s\nNode %+v, want both the same\n%q\nfrom %q", one, fieldsOf(one.header), fieldsOf(one.trailer), m, stream, input)
		}
	}
}

// unsupportedByNode reports whether Node rejects a valid request, for an unknown method or
// bytes beyond ASCII in the target.
func unsupportedByNode(method, target string) bool {
	known := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
	return !slices.Contains(known, method) || strings.ContainsFunc(target, func(c rune) bool { return c >= 0x80 })
}

// compareReceived checks that the forwarded requests are the same as net/http and Node read in the
// client's bytes.
func (r *readers) compareReceived(t *testing.T, input []byte, statuses []int, requests []recorded) {
	theirs := r.node.read(t, input)
	in := bufio.NewReader(bytes.NewReader(input))
	for i, status := range statuses {
		skipEmptyLines(in)
		req, err := http.ReadRequest(in)
		var body []byte
		if err == nil {
			body, err = io.ReadAll(req.Body)
		}
		switch {
		case status != http.StatusOK: // refused by the gateway
			if err != nil {
				return
			}
			continue
		case len(requests) == 0:
			t.Fatalf("response %d: got a 200 although nothing was forwarded\n%q", i, input)
		case err != nil:
			t.Fatalf("request %d: forwarded as %v, want it refused as by net/http: %v\n%q", i, requests[0], err, input)
		}
		one := requests[0]
		requests = requests[1:]
		if req.Method != one.method || sameTarget(req.RequestURI) && req.RequestURI != one.target || string(body) != one.body {
			t.Fatalf("request %d: forwarded as %v, want %s %s %q as net/http reads it\n%q", i, one, req.Method, req.RequestURI, body, input)
		}
		if i >= len(theirs.Messages) {
			continue // Node is stricter in places
		}
		if m := theirs.Messages[i]; m.Method != one.method || sameTarget(m.Target) && m.Target != one.target || string(m.Body) != one.body {
			t.Fatalf("request %d: forwarded as %v, want %+v as Node reads it\n%q", i, one, m, input)
		}
	}
	if len(requests) > 0 {
		t.Fatalf("forwarded without a response to the client: %v\n%q", requests, input)
	}
}

// skipEmptyLines skips up to two empty lines before a request, which RFC 9112, 2.2 asks
// servers to ignore and net/http does not.
func skipEmptyLines(in *bufio.Reader) {
	for range 2 {
		if b, err := in.Peek(2); err == nil && string(b) == "\r\n" {
			_, _ = in.Discard(2)
		}
	}
}

// sameTarget reports whether the gateway forwards a target unchanged: it is not in absolute
// form and has no key.
func sameTarget(target string) bool {
	return strings.HasPrefix(target, "/") && !strings.Contains(target, "api") && !strings.Contains(target, "%")
}

// fields formats alternate names and values as fieldsOf does, leaving out the fields less.
func fields(list []string, less ...string) string {
	h := http.Header{}
	for i := 0; i+1 < len(list); i += 2 {
		if !slices.ContainsFunc(less, func(name string) bool { return strings.EqualFold(name, list[i]) }) {
			latin1 := make([]byte, 0, len(list[i+1])) // Node returns each byte as a character
			for _, c := range list[i+1] {
				latin1 = append(latin1, byte(c))
			}
			h.Add(textproto.CanonicalMIMEHeaderKey(list[i]), strings.Trim(string(latin1), " \t"))
		}
	}
	return fieldsOf(h)
}

// fieldsOf formats fields in a canonical way, for comparison.
func fieldsOf(h http.Header) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			fmt.Fprintf(&b, "%s: ", name)
			for i := range len(value) {
				b.WriteByte(min(value[i], 0x7f))
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}
