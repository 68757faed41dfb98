package send

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/proxy/message"
	"github.com/keygate/keygate/internal/upstream"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// body is a message.Receiver that keeps the body of a response.
type body struct {
	got   bytes.Buffer
	ended bool
}

func (b *body) TakeInterim([]byte, *http1.Response) error             { return nil }
func (b *body) TakeHead([]byte, *http1.Response, http1.Framing) error { return nil }
func (b *body) CanSplice() bool                                       { return false }
func (b *body) Splice(*io.LimitedReader) (int64, error)               { return 0, nil }

func (b *body) TakeData(buf []byte, from, to int) error {
	b.got.Write(buf[from:to])
	return nil
}

func (b *body) TakeEnd(buf []byte, from, to int, _ []byte, _ []http1.Field) error {
	b.ended = true
	return b.TakeData(buf, from, to)
}

// Guarantee: a connection rests after a response that has no body because of its method or status, so that a body which the
// upstream sends anyway is not taken for the next response. After any other it can be used at once.
func TestBodylessResponsesRest(t *testing.T) {
	for name, c := range map[string]struct {
		method, response string
		rests            bool
	}{
		"HEAD, 200":       {"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", true},
		"GET, 204":        {"GET", "HTTP/1.1 204 No Content\r\n\r\n", true},
		"GET, 304":        {"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n", true},
		"GET, 200":        {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false},
		"GET, 200, empty": {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			pools, err := upstream.NewPools(upstream.Config{Guard: netguard.New(), RestTime: 24 * time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pools.Close)
			pool, err := pools.Plain(upstream.Origin{Scheme: "http", Host: upstreamtest.ServeConstant(t, c.response)})
			if err != nil {
				t.Fatal(err)
			}
			conn, err := pool.Acquire(t.Context(), time.Time{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(conn.Discard) // ahead of the upstream's, which waits for its connections
			var trip H1Try
			trip.init(&message.Buffers{})
			trip.out = trip.buffer().Data[:0]
			trip.out = append(trip.out, c.method+" / HTTP/1.1\r\nHost: a\r\n\r\n"...)
			trip.begin(conn, &body{}, c.method == http.MethodHead)
			if err := trip.run(); err != nil || !trip.reusable() {
				t.Fatalf("got error %v, reusable %v; want a connection that can be used again", err, trip.reusable())
			}
			trip.release()
			if rests := pool.Take(conn) == nil; rests != c.rests {
				t.Errorf("the connection rests: %v, want %v", rests, c.rests)
			}
		})
	}
}

// Guarantee: docs/limits.md. A response of which nothing arrives for a second holds no memory for its body, and goes on afterwards as
// if nothing had happened.
func TestQuietResponsesHoldLittle(t *testing.T) {
	large := strings.Repeat("event\n", 10_000)
	parts := make(chan string)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for part := range parts {
			_, _ = io.WriteString(w, part)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	pools, err := upstream.NewPools(upstream.Config{Guard: netguard.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pools.Close)
	pool, err := pools.Multiplexed(upstream.Origin{Scheme: "h2c", Host: server.Listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}

	c, to := &H2Try{}, &body{}
	for name, value := range map[string]string{":method": "GET", ":scheme": "http", ":authority": "a.test", ":path": "/"} {
		c.head.add(name, value, false)
	}
	if _, err := c.Open(t.Context(), time.Time{}, pool, nil, true); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	done := make(chan error, 1)
	go func() { done <- c.Run(to) }()
	a, sent := c.in, 0
	send := func(part string) {
		t.Helper()
		parts <- part
		sent += len(part)
		awaittest.True(t, "the response waits for more", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return c.waits && c.moved == int64(sent) && len(a.data) == message.Front
		})
	}
	held := func() int {
		a.mu.Lock()
		defer a.mu.Unlock()
		return cap(a.data) + cap(c.data)
	}
	const few = 2 * (message.Front + message.KeepRoom)
	send(large)
	for range restTicks + 1 {
		c.Rest()
	}
	if got := held(); got <= few {
		t.Errorf("%d bytes are held before a second has passed, want the memory for what may follow", got)
	}
	c.Rest()
	if got := held(); got > few {
		t.Errorf("%d bytes are held after a second, want few", got)
	}
	send(large)
	for range restTicks {
		c.Rest()
	}
	send("small")
	c.Rest()
	if got := held(); got <= few {
		t.Errorf("%d bytes are held of a response of which something arrives, want the memory for what may follow", got)
	}
	send(large)
	close(parts)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := c.Finish(to); err != nil || !to.ended || to.got.String() != large+large+"small"+large {
		t.Errorf("got %d bytes, %v and %v; want the whole body", to.got.Len(), to.ended, err)
	}
}
