package h1

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/message"
)

// relay joins both halves of a response without I/O: it passes what the reader parses to
// the writer, and collects the output in out.
type relay struct {
	message.ResponseReader
	writerState // what the response writer begins with
	w           responseWriter
	out         strings.Builder
}

func (r *relay) deliver(o relayed) error {
	r.out.Write(o.head)
	r.out.Write(o.body)
	r.out.Write(o.end)
	return nil
}

func (r *relay) TakeInterim(head []byte, resp *http1.Response) error {
	if r.w.oldClient {
		return nil
	}
	return r.deliver(relayed{head: r.w.interim(head, resp)})
}

func (r *relay) TakeHead(head []byte, resp *http1.Response, body http1.Framing) error {
	if resp.Status == 101 {
		return r.w.switched(head, resp)
	}
	r.w.final(head, resp, body, false)
	return nil
}

func (r *relay) TakeData(buf []byte, from, to int) error { return r.deliver(r.w.data(buf, from, to)) }

func (r *relay) TakeEnd(buf []byte, from, to int, section []byte, trailers []http1.Field) error {
	return r.deliver(r.w.end(buf, from, to, section, trailers))
}

func (r *relay) CanSplice() bool { return false }

func (r *relay) Splice(*io.LimitedReader) (int64, error) { panic("not reached") }

// relayedBy feeds an upstream's bytes to r piece by piece and returns what the client reads:
// the heads, the data of the body, the trailers, and how it ended.
func relayedBy(t *testing.T, r *relay, pieces []string) string {
	t.Helper()
	r.w.begin(r.writerState)
	buf := new(message.Buffers).Get().Data
	from, to := message.Front, message.Front
	finish := func(err error) string {
		if r.Phase == message.ReadDone && err == nil {
			err = r.Finish(r)
		}
		return fmt.Sprintf("%s\nstate %d reusable %v keep %v error %v", decoded(t, r.out.String(), r), r.Phase, r.Reusable(), r.w.keep, err)
	}
	for _, piece := range pieces {
		if r.Phase == message.ReadDone || r.Phase == message.ReadTunnel {
			r.Extra = true
			break
		}
		to += copy(buf[to:], piece)
		next, err := r.Step(buf, from, to, r)
		if err != nil {
			return finish(err)
		}
		if from = next; from == to {
			from, to = message.Front, message.Front
		}
	}
	if r.Phase == message.ReadHead || r.Phase == message.ReadBody {
		return finish(r.Closed(to > from, false))
	}
	return finish(nil)
}

// decoded returns s with its chunked body decoded, because the sizes of chunks may differ.
func decoded(t *testing.T, s string, r *relay) string {
	t.Helper()
	at := strings.LastIndex(s, "Transfer-Encoding: chunked\r\n")
	if at < 0 {
		return s
	}
	end := at + strings.Index(s[at:], "\r\n\r\n") + 4
	body := []byte(s[end:])
	var data strings.Builder
	var c http1.Chunked
	for len(body) > 0 && !c.InTrailer() {
		used, piece, err := c.Next(body)
		if err != nil {
			t.Fatalf("got %q, want a valid chunked body", s)
		}
		data.Write(piece)
		body = body[used:]
	}
	return fmt.Sprintf("%s<%s> whole %v trailers %q", s[:end], data.String(), c.InTrailer(), body)
}

// Guarantee: the client receives the same response however the upstream's bytes are split,
// without hop-by-hop fields and without the upstream's version of the gateway's fields.
func TestRelayInAllSplits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, response string
		set            func(r *relay)
		want, never    []string
	}{
		{"length", "HTTP/1.1 200 OK\r\nA: b\r\nconnection: X-Hop\r\nX-Hop: 1\r\nX-RateLimit-Limit: 9\r\nRateLimit: 9\r\nX-Request-ID: theirs\r\nContent-Length: 5\r\nKeep-Alive: 1\r\n\r\nhello", nil,
			[]string{"HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 5\r\nDate: now\r\nX-Request-Id: req_1\r\n\r\nhello\n", "reusable true keep true"}, []string{"theirs", "Hop", "Keep-Alive"}},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nDate: then\r\n\r\n3;x=y\r\nabc\r\n0a\r\n0123456789\r\n0\r\nX-T: 1\r\n\r\n", nil,
			[]string{"HTTP/1.1 200 OK\r\nDate: then\r\nTransfer-Encoding: chunked\r\nX-Request-Id: req_1\r\n\r\n<abc0123456789> whole true trailers \"\\r\\n\"", "reusable true"}, []string{"X-T", "Date: now"}},
		{"trailers", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T, Content-Length\r\n\r\n3\r\nabc\r\n0\r\nX-T: 1\r\nX-Keygate-Key-Id: evil\r\nContent-Type: evil\r\nX-U: 2\r\n\r\n", func(r *relay) { r.trailers = true },
			[]string{"Trailer: X-T\r\n", "<abc> whole true trailers \"X-T: 1\\r\\nX-U: 2\\r\\n\\r\\n\""}, []string{"evil"}},
		{"until close", "HTTP/1.0 200 OK\r\nA: b\r\n\r\nhello", nil,
			[]string{"HTTP/1.1 200 OK\r\nA: b\r\nTransfer-Encoding: chunked", "<hello> whole true", "state 2 reusable false keep true error <nil>"}, nil},
		{"until close, HTTP/1.0 client", "HTTP/1.1 200 OK\r\nA: b\r\n\r\nhello", func(r *relay) { r.oldClient = true },
			[]string{"Connection: close\r\n", "\r\n\r\nhello\n", "keep false error <nil>"}, []string{"chunked"}},
		{"chunks, HTTP/1.0 client", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", func(r *relay) { r.oldClient = true },
			[]string{"\r\n\r\nhello\n", "keep false"}, []string{"chunked"}},
		{"length, HTTP/1.0 client", okResponse, func(r *relay) { r.oldClient = true }, []string{"Connection: keep-alive\r\n", "keep true"}, nil},
		{"interim", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\nConnection: y\r\n\r\n" + okResponse, nil,
			[]string{"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n"}, []string{"Connection"}},
		{"interim, HTTP/1.0 client", "HTTP/1.1 100 Continue\r\n\r\n" + okResponse, func(r *relay) { r.oldClient = true }, []string{"HTTP/1.1 200 OK\r\n"}, []string{"100"}},
		{"head", "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", func(r *relay) { r.IsHead = true }, []string{"Content-Length: 99\r\n", "reusable true"}, nil},
		{"no reason", "HTTP/1.1 204\r\nContent-Length: 0\r\n\r\n", nil, []string{"HTTP/1.1 204 \r\nDate"}, []string{"Content-Length"}},
		{"upstream closes", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", nil, []string{"reusable false keep true"}, []string{"Connection"}},
		{"closing", okResponse, func(r *relay) { r.closing = func() bool { return true } }, []string{"Connection: close\r\n", "keep false"}, nil},
		{"extra", okResponse + "HTTP/1.1 200 OK\r\n\r\n", nil, []string{"reusable false keep true error <nil>"}, nil},
		{"upgrade", "HTTP/1.1 101 Go\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n", func(r *relay) { r.asked = []byte("other, Echo") },
			[]string{"HTTP/1.1 101 Go\r\nConnection: Upgrade\r\nUpgrade: echo\r\nX-Request-Id", "state 3"}, nil},
		{"upgrade not asked for", "HTTP/1.1 101 Go\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n", nil, []string{"not asked for"}, []string{"HTTP/1.1 101"}},
		{"cut length", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", nil, []string{"cut off"}, nil},
		{"cut chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", nil, []string{"<hello> whole false", "cut off"}, nil},
		{"cut head", "HTTP/1.1 200 OK\r\nConte", nil, []string{"cut off"}, nil},
		{"nothing", "", nil, []string{"without a response"}, nil},
		{"two framings", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", nil, []string{"malformed"}, []string{"HTTP/1.1"}},
	} {
		run := func(pieces ...string) string {
			r := &relay{writerState: writerState{verdict: &admit.Verdict{}, id: "req_1", date: []byte("now"), keep: true, closing: func() bool { return false }}}
			r.ResponseReader.Reset()
			if c.set != nil {
				c.set(r)
			}
			return relayedBy(t, r, pieces)
		}
		whole := run(c.response)
		for _, w := range c.want {
			if !strings.Contains(whole, w) {
				t.Errorf("%s: got\n%q\nwant it to contain %q", c.name, whole, w)
			}
		}
		for _, n := range c.never {
			if strings.Contains(whole, n) {
				t.Errorf("%s: got\n%q\nwant it not to contain %q", c.name, whole, n)
			}
		}
		for i := range c.response {
			if got := run(c.response[:i], c.response[i:]); got != whole {
				t.Fatalf("%s, split at %d: got\n%q\nwant\n%q", c.name, i, got, whole)
			}
		}
		if got := run(strings.Split(c.response, "")...); got != whole {
			t.Fatalf("%s, byte by byte: got\n%q\nwant\n%q", c.name, got, whole)
		}
	}
}

// chunkedBody returns the framing of a chunked body.
func chunkedBody(t *testing.T) *message.Framing {
	t.Helper()
	var r http1.Request
	if done, err := new(http1.RequestParser).Parse([]byte("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), &r); !done || err != nil {
		t.Fatalf("the head was not parsed: %v", err)
	}
	f := &message.Framing{}
	f.Begin(&r, false, proxy.Withheld{})
	return f
}

// Guarantee: a chunked request body is re-encoded with the same result however it is
// split, and its size limit holds to the byte.
func TestRecoderInAllSplits(t *testing.T) {
	t.Parallel()
	const body = "5;a=b\r\nhello\r\nD\r\n, wonderful W\r\n0\r\nX-A: 1\r\nHost: no\r\nAuthorization: no\r\n\r\nNEXT"
	run := func(bound int64, pieces ...string) string {
		var r message.Recoder
		r.Start(http1.ByChunks, 0, chunkedBody(t))
		if bound > 0 {
			r.Limit(bound)
		}
		var out, rest strings.Builder
		b := new(message.Buffers).Get().Data
		for _, s := range pieces {
			if r.Done() {
				rest.WriteString(s)
				continue
			}
			n := copy(b[message.Front:], s)
			p, err := r.Step(b, message.Front, message.Front+n)
			if err != nil {
				return err.Error()
			}
			out.Write(b[p.From:p.To])
			out.Write(p.End)
			if r.Done() {
				rest.Write(b[p.Used : message.Front+n])
			}
		}
		return decoded(t, "Transfer-Encoding: chunked\r\n\r\n"+out.String(), nil) + rest.String()
	}
	whole := run(0, body)
	if want := "<hello, wonderful W> whole true trailers \"X-A: 1\\r\\n\\r\\n\"NEXT"; !strings.HasSuffix(whole, want) {
		t.Fatalf("got %q, want it to end with %q", whole, want)
	}
	for i := range body {
		if got := run(0, body[:i], body[i:]); got != whole {
			t.Fatalf("split at %d: got %q, want %q", i, got, whole)
		}
		if got := run(17, body[:i], body[i:]); got != message.ErrBodyTooLarge.Error() {
			t.Fatalf("split at %d with a limit of 17: got %q, want %q", i, got, message.ErrBodyTooLarge)
		}
		if got := run(18, body[:i], body[i:]); got != whole {
			t.Fatalf("split at %d with a limit of 18: got %q, want %q", i, got, whole)
		}
	}
	if got := run(0, strings.Split(body, "")...); got != whole {
		t.Fatalf("byte by byte: got %q, want %q", got, whole)
	}
}
