package upstream_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/proctest"
	"github.com/keygate/keygate/internal/upstream"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// awaitSockets waits until this process has the given number of sockets.
func awaitSockets(t *testing.T, want int) {
	t.Helper()
	awaittest.True(t, fmt.Sprint("the process has ", want, " sockets"), func() bool { return proctest.CountDescriptors(t, "self").Sockets == want })
}

// Guarantee: requests that wait for connections to an upstream that accepts none, or does not
// complete the TLS handshake, hold at most 128 descriptors for each pool, however many requests
// there are, and none once their clients have hung up.
func TestAbandonedDialsHoldNothing(t *testing.T) {
	if !proctest.Alone(t) {
		return
	}
	silent := upstreamtest.Serve(t, func(c *upstreamtest.Conn) { _, _ = c.Discard(1 << 30) })
	for _, tc := range []struct {
		scheme, host string
		ends         int // of each connection in this process
	}{
		{"http", fullListener(t), 1},
		{"h2c", fullListener(t), 1},
		{"https", silent, 2},
	} {
		t.Run(tc.scheme, func(t *testing.T) {
			pools := newPools(t, upstream.Config{})
			o := upstream.Origin{Scheme: tc.scheme, Host: tc.host}
			before := proctest.CountDescriptors(t, "self").Sockets
			const requests = 600
			dials := 128
			if tc.scheme == "h2c" {
				dials = 1 // for all requests
			}
			ctx, leave := context.WithCancel(t.Context())
			var running, begun sync.WaitGroup
			begun.Add(requests)
			for range requests {
				running.Go(func() {
					begun.Done()
					req := request(http.MethodGet, tc.scheme+"://"+tc.host, "/")
					if tc.scheme == "https" { // over HTTP/1.1: over HTTP/2 there is one dial for all
						req.Header.Set("Upgrade", "test")
					}
					if _, err := upstream.Start(ctx, pools, o, req, time.Hour); err == nil {
						t.Error("got a response, want none")
					}
				})
			}
			begun.Wait()
			awaitSockets(t, before+tc.ends*dials)
			leave()
			running.Wait()
			awaitSockets(t, before)
		})
	}
}

// Guarantee: contract 1 and 4.2. Connections to upstreams hold at most
// Config.MaxDescriptors; idle ones give way to requests of others; and a request for which no
// descriptor is left gets a 503 with the reason no_descriptors.
func TestDescriptorsAreBounded(t *testing.T) {
	t.Parallel()
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		for {
			if _, err := c.ReadHead(); err != nil {
				return
			}
			c.Send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	pools := newPools(t, upstream.Config{MaxDescriptors: 36})
	origin := func(account string) upstream.Origin {
		return upstream.Origin{Scheme: "http", Host: addr, Account: account}
	}
	first, err := pools.Plain(origin("a"))
	if err != nil {
		t.Fatal(err)
	}
	var held []*upstream.H1Conn
	for {
		c, err := first.Connect(t.Context(), time.Time{})
		if err != nil {
			if fault.CodeOf(err) != fault.Unavailable || upstream.ReasonOf(err) != accesslog.NoDescriptors {
				t.Errorf("got error %v, want fault.Unavailable with the reason no_descriptors", err)
			}
			break
		}
		held = append(held, c)
	}
	if n := len(held); n < 28 || n >= 36 {
		t.Errorf("one account got %d connections of 36, want all but a reserve", n)
	}
	for range 20 { // the reserve is small, but idle connections of the account itself give way
		if _, body, err := send(t, pools, origin("b"), request(http.MethodGet, "http://"+addr, "/")); err != nil || body != "ok" {
			t.Fatalf("another account got %q, error %v, want ok", body, err)
		}
	}
	for _, c := range held {
		c.Release()
	}
	second, err := pools.Plain(origin("c"))
	if err != nil {
		t.Fatal(err)
	}
	var others []*upstream.H1Conn
	// More descriptors than are free beside the idle connections of the first account. After a
	// search that found none, idle connections are searched again a moment later.
	for end := time.Now().Add(time.Minute); len(others) < 20; {
		c, err := second.Connect(t.Context(), time.Time{})
		if err == nil {
			others = append(others, c)
		} else if time.Now().After(end) {
			t.Fatalf("after %d connections: got error %v, want idle ones of others to give way", len(others), err)
		}
	}
	for _, c := range others {
		c.Discard()
	}
}
