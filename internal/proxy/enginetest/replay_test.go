package enginetest_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// refusingUpstream is a cleartext HTTP/2 upstream that refuses the first requests, as many as times says,
// once it has the head and n bytes of the body. It responds to every later request, once it has the whole
// request.
type refusingUpstream struct {
	n       int
	times   int64
	refuse  func(s *scripted, stream uint32)
	refused chan struct{} // receives a value for each refusal
	bodies  chan string   // of the others
	begun   atomic.Int64
}

func (u *refusingUpstream) start(t testing.TB) (url string) {
	u.refused, u.bodies = make(chan struct{}, 16), make(chan string, 16)
	return "h2c://" + upstreamtest.Serve(t, u.serve)
}

func (u *refusingUpstream) serve(c *upstreamtest.Conn) {
	s, ok := accept(c)
	if !ok {
		return
	}
	bodies, refuses := map[uint32]string{}, map[uint32]bool{}
	for {
		frame, err := s.ReadFrame()
		if err != nil {
			return
		}
		id := frame.Header().StreamID
		s.acknowledge(frame)
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			refuses[id] = u.begun.Add(1) <= u.times
		case *http2.DataFrame:
			if n := uint32(len(f.Data())); n > 0 {
				_ = s.WriteWindowUpdate(0, n)
				_ = s.WriteWindowUpdate(id, n)
			}
			bodies[id] += string(f.Data())
		default:
			continue
		}
		switch {
		case refuses[id] && len(bodies[id]) >= u.n:
			delete(refuses, id)
			bodies[id] = "refused"
			u.refuse(s, id)
			u.refused <- struct{}{}
		case frame.Header().Flags.Has(http2.FlagDataEndStream) && !strings.HasPrefix(bodies[id], "refused"):
			u.bodies <- bodies[id]
			s.head(id, true, ":status", "200")
		}
	}
}

func refusedStream(s *scripted, id uint32) { _ = s.WriteRSTStream(id, http2.ErrCodeRefusedStream) }

// gate is a reader that ends when a value can be received.
type gate <-chan struct{}

func (g gate) Read([]byte) (int, error) {
	<-g
	return 0, io.EOF
}

// Guarantee: a request that an upstream refuses with REFUSED_STREAM, or excludes by GOAWAY, while its body
// is still arriving is sent once more with its whole body, whatever its method, for clients of both
// versions of HTTP. It is not sent again if more than 64 KiB of the body were sent, after a second
// refusal, or if the upstream may have processed it.
func TestUnprocessedUploadsAreRepeated(t *testing.T) {
	excluded := func(s *scripted, _ uint32) { _ = s.WriteGoAway(0, http2.ErrCodeNo, nil) }
	canceled := func(s *scripted, id uint32) { _ = s.WriteRSTStream(id, http2.ErrCodeCancel) }
	for _, c := range []struct {
		name        string
		before, all int // bytes of the body before the refusal, and in all
		times       int64
		refuse      func(s *scripted, stream uint32)
		want        int
	}{
		{"before the body", 0, 100, 1, refusedStream, 200},
		{"within the body", 50, 100, 1, refusedStream, 200},
		{"a longer part", 30_000, 65_530, 1, refusedStream, 200},
		{"all but the end of 64 KiB", 65_530, 65_530, 1, refusedStream, 200},
		{"GOAWAY before the body", 0, 100, 1, excluded, 200},
		{"GOAWAY within the body", 50, 1000, 1, excluded, 200},
		{"more than is kept", 64<<10 + 1, 65_600, 1, refusedStream, 502},
		{"twice", 50, 100, 2, refusedStream, 502},
		{"CANCEL", 50, 100, 1, canceled, 502},
	} {
		t.Run(c.name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, client http.RoundTripper) {
				u := &refusingUpstream{n: c.before, times: c.times, refuse: c.refuse}
				g := start(t, setup{upstream: u.start(t), realClock: true})
				want := strings.Repeat("0123456789", c.all/10)
				body := io.MultiReader(strings.NewReader(want[:c.before]), gate(u.refused), strings.NewReader(want[c.before:]))
				status := g.upload(t, client, body)
				if attempts := u.begun.Load(); status != c.want || attempts != min(c.times+1, 2) && c.want == 200 || attempts > 2 {
					t.Errorf("got %d after %d attempts, want %d", status, attempts, c.want)
				}
				if c.want != http.StatusOK {
					return
				}
				if got := receive(t, "the body", u.bodies); got != want {
					t.Errorf("the upstream got a body of %d bytes, want the %d that were sent", len(got), len(want))
				}
				if r := final(t, g.records()); r.Result != accesslog.Forwarded || r.BytesIn != int64(len(want)) || int64(r.Attempts) != c.times+1 {
					t.Errorf("got result %v, %d bytes in, %d attempts; want Forwarded, %d and %d", r.Result, r.BytesIn, r.Attempts, len(want), c.times+1)
				}
			})
		})
	}
}

// upload sends a POST request with a body of unknown length and returns the status of the response.
func (g *harness) upload(t *testing.T, client http.RoundTripper, body io.Reader) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+g.addr+"/", io.NopCloser(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+g.key)
	resp, err := client.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// Guarantee: an HTTP/1.1 client whose request was sent again goes on with its next request exactly where
// the body has ended, however the body is framed, and trailers of the body are sent again too.
func TestRepeatedUploadKeepsBoundary(t *testing.T) {
	t.Parallel()
	for name, body := range map[string][2]string{
		"Content-Length: 10":         {"01234", "56789"},
		"Transfer-Encoding: chunked": {chunk("01234"), chunk("56789") + "0\r\nX-T: 1\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := &refusingUpstream{n: 5, times: 1, refuse: refusedStream}
			g := start(t, setup{upstream: u.start(t)})
			c := g.dial(t)
			c.request(g, "POST / HTTP/1.1", name)
			c.Send(body[0])
			<-u.refused
			c.Send(body[1] + "GET /next HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer " + g.key + "\r\n\r\n")
			for range 2 {
				if h := c.wantHead("200"); h.get("content-length") != strconv.Itoa(0) {
					t.Errorf("got response\n%s\nwant one without a body", h.text)
				}
			}
			for _, want := range []string{"0123456789", ""} {
				if got := receive(t, "a body", u.bodies); got != want {
					t.Errorf("the upstream got the body %q, want %q", got, want)
				}
			}
		})
	}
}
