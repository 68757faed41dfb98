package upstream

import (
	"context"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// resting returns a connection that rests until the test ends its rest, and the upstream's end of it.
func resting(t *testing.T, cfg Config) (pool *H1Pool, c *H1Conn, send func(text string)) {
	t.Helper()
	p := newPeer(t)
	cfg.RestTime = 24 * time.Hour
	_, pool = newPlain(t, cfg, p.addr)
	c, err := pool.Acquire(t.Context(), time.Time{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	up := p.next()
	c.Rest()
	t.Cleanup(func() { c.resting.Stop() })
	return pool, c, func(text string) {
		if _, err := up.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		awaittest.True(t, "the text has arrived", c.Stale)
	}
}

// Guarantee: nobody gets a resting connection, not even the client that used it last: another connection
// is opened. After the rest it serves requests again.
func TestRest(t *testing.T) {
	pool, c, _ := resting(t, Config{})
	if got := pool.Take(c); got != nil {
		t.Fatal("a connection that rests was taken")
	}
	other, err := pool.Acquire(t.Context(), time.Time{}, c)
	if err != nil || other == c {
		t.Fatalf("got the connection that rests, or error %v; want another one", err)
	}
	other.Discard()
	c.rested()
	if pool.Take(c) != c {
		t.Error("after its rest the connection was not taken")
	}
	c.Discard()
}

// Guarantee: at upstream_max_connections, a request waits for the end of the rest.
func TestWaitForRest(t *testing.T) {
	pool, c, _ := resting(t, Config{MaxConns: 1})
	got := make(chan *H1Conn, 1)
	go func() {
		next, _ := pool.Acquire(context.Background(), time.Time{}, nil)
		got <- next
	}()
	awaittest.True(t, "the other caller waits", pool.queue.waiting)
	c.rested()
	if next := <-got; next != c {
		t.Error("the waiter did not get the connection that has rested")
	}
	c.Discard()
}

// Guarantee: a connection on which bytes arrive during its rest is closed, and its slot is free.
func TestBytesDuringRest(t *testing.T) {
	pool, c, send := resting(t, Config{MaxConns: 1})
	send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	c.rested()
	next, err := pool.Acquire(t.Context(), time.Time{}, c)
	if err != nil || next == c {
		t.Fatalf("got the connection with unasked bytes, or error %v; want another one", err)
	}
	next.Discard()
}
