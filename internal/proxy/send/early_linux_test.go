package send

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/proxy/message"
	"github.com/keygate/keygate/internal/upstream"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

const okResponse = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// connectTo returns a connection to an upstream that handle serves.
func connectTo(t *testing.T, handle func(c *upstreamtest.Conn)) *upstream.H1Conn {
	t.Helper()
	pools, err := upstream.NewPools(upstream.Config{Guard: netguard.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pools.Close)
	pool, err := pools.Plain(upstream.Origin{Scheme: "http", Host: upstreamtest.Serve(t, handle)})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pool.Acquire(t.Context(), time.Time{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Discard)
	return conn
}

// arrived returns once something has arrived on a connection.
func arrived(t *testing.T, c *upstream.H1Conn) {
	t.Helper()
	awaittest.True(t, "something has arrived on the connection", c.Stale)
}

// Guarantee: a response that was on the connection before the upstream had any of the request is never
// passed on, whether the request is sent alone or ahead of a body.
func TestResponseBeforeTheRequest(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func(trip *H1Try) error{
		"whole":           func(trip *H1Try) error { return trip.run() },
		"ahead of a body": func(trip *H1Try) error { return errors.Join(trip.Send(), trip.run()) },
	} {
		t.Run(name, func(t *testing.T) {
			over := make(chan bool)
			conn := connectTo(t, func(c *upstreamtest.Conn) {
				c.Send(okResponse)
				<-over
			})
			t.Cleanup(func() { close(over) }) // ahead of the upstream's, which waits for its connections
			// The upstream reads nothing, so that its system acknowledges no more than its buffer holds.
			if err := conn.Plain().SetWriteBuffer(1 << 20); err != nil {
				t.Fatal(err)
			}
			fill := make([]byte, 8<<10)
			for end := time.Now().Add(time.Minute); unacknowledged(t, conn.Plain()) < 32<<10; {
				if _, err := conn.Write(fill); err != nil || time.Now().After(end) {
					t.Fatalf("the upstream acknowledges everything: %v", err)
				}
			}
			arrived(t, conn)
			var trip H1Try
			trip.init(&message.Buffers{})
			trip.out = trip.buffer().Data[:0]
			trip.out = append(trip.out, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"...)
			trip.begin(conn, nil, false) // nil: a part of a response would panic
			if err := send(&trip); !errors.Is(err, errUnasked) || trip.got || trip.reusable() {
				t.Errorf("got error %v, responding %v, reusable %v; want %v", err, trip.got, trip.reusable(), errUnasked)
			}
		})
	}
}

// Guarantee: a response that has arrived before the check of the connection, but after the upstream had
// the request, does not count as such.
func TestFastResponseIsAsked(t *testing.T) {
	t.Parallel()
	const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	conn := connectTo(t, func(c *upstreamtest.Conn) {
		for {
			if _, err := c.ReadHead(); err != nil {
				return
			}
			c.Send(okResponse)
		}
	})
	for range 1000 {
		if _, err := conn.Write([]byte(request)); err != nil {
			t.Fatal(err)
		}
		arrived(t, conn)
		if conn.Unasked(len(request)) {
			t.Fatal("a response to the request counts as unasked")
		}
		if _, err := io.ReadFull(conn.NetConn(), make([]byte, len(okResponse))); err != nil {
			t.Fatal(err)
		}
	}
}

// unacknowledged returns how many bytes written to a connection its peer has not acknowledged.
func unacknowledged(t *testing.T, c *net.TCPConn) (n int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}
