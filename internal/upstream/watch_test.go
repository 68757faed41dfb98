package upstream

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// Guarantee: the end of a TLS record is found however its bytes arrive.
func TestRecordBoundaries(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var stream []byte
		whole := map[int]bool{0: true} // offsets between records
		for range rapid.IntRange(1, 5).Draw(rt, "records") {
			n := rapid.SampledFrom([]int{0, 1, 255, 256, 257, 16<<10 + 256}).Draw(rt, "length")
			stream = append(stream, 23, 3, 3, byte(n>>8), byte(n))
			stream = append(stream, make([]byte, n)...)
			whole[len(stream)] = true
		}
		c, at := &watchedConn{}, 0
		for at < len(stream) {
			n := min(rapid.SampledFrom([]int{1, 2, 3, 4, 5, 6, 100, 20_000}).Draw(rt, "piece"), len(stream)-at)
			c.follow(stream[at : at+n])
			at += n
			if got := c.headHas == 0 && c.bodyLeft == 0; got != whole[at] {
				rt.Fatalf("after %d bytes: at the end of a record %v, want %v", at, got, whole[at])
			}
		}
	})
}

// Guarantee: nothing of a request is sent over a kept connection that may not be used, nor is
// its body read for one. After a few of them the request is sent over a new one, whatever its
// method.
func TestRefusedConnections(t *testing.T) {
	const kept = 3 * keptAttempts
	var (
		arrived sync.WaitGroup
		mu      sync.Mutex
		on      = map[int]int{} // requests by connection
	)
	arrived.Add(kept)
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		for {
			head, err := c.ReadHead()
			if err != nil {
				return
			}
			mu.Lock()
			on[c.Number]++
			mu.Unlock()
			if strings.HasPrefix(head, "GET /first") {
				arrived.Done()
				arrived.Wait() // so that each has a connection of its own
				c.Send("HTTP/1.1 204 No Content\r\n\r\n")
				continue
			}
			body := make([]byte, len("payload"))
			_, _ = io.ReadFull(c, body)
			c.Send("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n" + string(body))
		}
	})
	pools, err := NewPools(Config{Guard: netguard.New()})
	if err != nil {
		t.Fatal(err)
	}
	defer pools.Close()
	pool, err := pools.Get(Origin{Scheme: "http", Host: addr})
	if err != nil {
		t.Fatal(err)
	}
	// Connections that the Pool has not made are never known to be usable again.
	pool.current.Load().requests.DialContext = (&net.Dialer{}).DialContext
	exchange := func(method, path, body string) string {
		u := Origin{Scheme: "http", Host: addr}
		req, _ := http.NewRequestWithContext(t.Context(), method, u.Scheme+"://"+u.Host+path, nil)
		if body != "" {
			req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		}
		resp, err := pool.Send(t.Context(), &Exchange{Request: req, HeadTimeout: time.Minute})
		if err != nil {
			t.Errorf("%s %s: %v", method, path, err)
			return ""
		}
		defer resp.Close()
		got, _ := io.ReadAll(resp.Body)
		return string(got)
	}
	var first sync.WaitGroup
	for range kept {
		first.Go(func() { exchange("GET", "/first", "") })
	}
	first.Wait()
	for range 2 {
		if got := exchange("POST", "/second", "payload"); got != "payload" {
			t.Errorf("got body %q, want that of the request", got)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(on) != kept+2 {
		t.Errorf("the requests used %d connections, want %d", len(on), kept+2)
	}
	for number, requests := range on {
		if requests != 1 {
			t.Errorf("connection %d got %d requests, want 1", number, requests)
		}
	}
}
