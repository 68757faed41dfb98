package enginetest_test

import (
	"sync/atomic"
	"testing"
	"time"
)

// Guarantee: contract 4.4. Expect is forwarded. The upstream's 100 reaches the client, and other interim
// responses before it; if there is no 100 in time, whatever else came, the client gets one from the gateway. A
// final response instead of the 100 passes.
func TestExpectOverAll(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		interim []int // of the upstream
		want    []string
		timeout time.Duration
		final   bool // instead of the 100
	}{
		"100":         {interim: []int{100}, want: []string{"100"}},
		"103 and 100": {interim: []int{103, 100}, want: []string{"103", "100"}},
		"nothing":     {want: []string{"100"}, timeout: 50 * time.Millisecond},
		"103 alone":   {interim: []int{103}, want: []string{"103", "100"}, timeout: 500 * time.Millisecond},
		"417":         {final: true},
		"103 and 417": {interim: []int{103}, want: []string{"103"}, final: true},
		"100 and 103": {interim: []int{100, 103}, want: []string{"100", "103"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overServing(t, setup{continueTimeout: c.timeout, realClock: c.timeout > 0}, func(t *testing.T) func(r served) {
				return func(r served) {
					for _, status := range c.interim {
						r.interim(status)
					}
					if c.final {
						r.respond(417, "no")
						r.hangUp()
						return
					}
					if got, ok := r.body(4); got != "body" || !ok {
						t.Errorf("the upstream got the body %q", got)
					}
					r.respond(200, "yes")
				}
			}, func(t *testing.T, g combination) {
				c1 := g.dial()
				c1.open("POST", "/", "Expect: 100-continue")
				for _, want := range c.want {
					if h := c1.nextHead(); h.status() != want {
						t.Fatalf("got %s, want %s", h.status(), want)
					}
				}
				if c.final {
					if r := c1.receive("POST"); r.head.status() != "417" || r.body != "no" || r.broken {
						t.Errorf("got %+v, want the upstream's 417", r)
					}
					return
				}
				c1.send("body")
				c1.send("")
				if r := c1.receive("POST"); r.head.status() != "200" || r.body != "yes" || r.broken || len(r.interim) > 0 {
					t.Errorf("got %+v, want 200", r)
				}
			})
		})
	}
}

// Guarantee: contract 4.4. Each part of a response, its head too, passes before the next one is sent.
func TestPartsPassAtOnce(t *testing.T) {
	t.Parallel()
	overServing(t, setup{}, func(*testing.T) func(r served) {
		return func(r served) {
			// Each part is sent when the client has the one before.
			r.begin()
			for {
				got, ok := r.body(1)
				if !ok {
					r.end()
					return
				}
				r.data("data: " + got + "\n\n")
			}
		}
	}, func(t *testing.T, g combination) {
		c := g.dial()
		c.open("POST", "/")
		if h := c.nextHead(); h.status() != "200" {
			t.Fatalf("got %s, want 200", h.text)
		}
		for _, part := range []string{"1", "2", "3"} {
			c.send(part)
			if got := c.nextData(); got != "data: "+part+"\n\n" {
				t.Fatalf("got %q, want the event %s", got, part)
			}
		}
		c.send("")
		if got := c.nextData(); got != "" {
			t.Errorf("got %q, want the end", got)
		}
	})
}

// Guarantee: a response that arrives before the end of the request's body is relayed whole and at once. Over
// HTTP/1.1 the connection then ends, and over HTTP/2 the stream.
func TestEarlyResponsesOverAll(t *testing.T) {
	t.Parallel()
	overServing(t, setup{realClock: true}, func(*testing.T) func(r served) {
		return func(r served) {
			if r.method() == "GET" {
				r.respond(200, "next")
				return
			}
			_, _ = r.body(4)
			r.respond(403, "stop")
			_, _ = r.body(1 << 20)
		}
	}, func(t *testing.T, g combination) {
		c := g.dial()
		c.open("POST", "/")
		c.send("part")
		r := c.receive("POST")
		if r.head.status() != "403" || r.body != "stop" || r.broken {
			t.Fatalf("got %+v, want the whole response", r)
		}
		if c.http1 != nil {
			if got := r.head.get("connection"); got != "close" {
				t.Errorf("got Connection %q, want close", got)
			}
			c = g.dial()
		}
		if r := c.exchange("GET", "/next"); r.head.status() != "200" || r.body != "next" {
			t.Errorf("the next request got %+v, want its own response", r)
		}
	})
}

// Guarantee: contract 4.4. A request is sent a second time if its method is idempotent, it has no body, the
// connection was used before, and no byte of a response has arrived. Otherwise it is not.
func TestRetriesOverAll(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method  string
		fresh   bool // the connection was not used before
		body    string
		interim bool // precedes the failure
		again   bool // the request is sent a second time
	}{
		"GET":                           {method: "GET", again: true},
		"HEAD":                          {method: "HEAD", again: true},
		"OPTIONS":                       {method: "OPTIONS", again: true},
		"PUT":                           {method: "PUT", again: true},
		"DELETE":                        {method: "DELETE", again: true},
		"POST":                          {method: "POST"},
		"PATCH":                         {method: "PATCH"},
		"PUT with a body":               {method: "PUT", body: "body"},
		"GET with a body":               {method: "GET", body: "body"},
		"GET over a new connection":     {method: "GET", fresh: true},
		"GET after an interim response": {method: "GET", interim: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overServing(t, setup{}, func(*testing.T) func(r served) {
				var requests atomic.Int64
				first := int64(2)
				if c.fresh {
					first = 1
				}
				return func(r served) {
					n := requests.Add(1)
					if c.body != "" && n > 1 {
						_, _ = r.body(len(c.body))
					}
					if n != first {
						r.respond(200, "")
						return
					}
					if c.interim {
						r.interim(103)
					}
					r.hangUp()
				}
			}, func(t *testing.T, g combination) {
				conn := g.dial()
				if !c.fresh {
					if r := conn.exchange("GET", "/first"); r.head.status() != "200" {
						t.Fatalf("got %+v, want 200", r)
					}
				}
				var r received
				if c.body == "" {
					r = conn.exchange(c.method, "/second")
				} else {
					conn.open(c.method, "/second")
					conn.send(c.body)
					conn.send("")
					r = conn.receive(c.method)
				}
				want, conns := "502", int64(1)
				if c.again {
					want, conns = "200", 2
				}
				if got := g.up.conns.Load(); r.head.status() != want || got != conns {
					t.Errorf("got %s over %d connections, want %s over %d", r.head.status(), got, want, conns)
				}
				if c.interim && len(r.interim) != 1 {
					t.Errorf("got %d interim responses, want 1", len(r.interim))
				}
			})
		})
	}
}

// Guarantee: contract 4.2, 8. Without the head of a response within the timeout, the client gets a 504, also
// after interim responses.
func TestTimeoutsOverAll(t *testing.T) {
	t.Parallel()
	for _, interim := range []bool{false, true} {
		overServing(t, setup{timeout: "1s", realClock: true}, func(*testing.T) func(r served) {
			return func(r served) {
				if interim {
					r.interim(103)
				}
				_, _ = r.body(1) // until the gateway gives up
			}
		}, func(t *testing.T, g combination) {
			r := g.dial().exchange("GET", "/")
			if r.head.status() != "504" || r.head.get("content-type") != "application/json" || r.broken {
				t.Errorf("got %+v, want a 504", r)
			}
			r.head.wantPresent(t, "x-request-id", "x-ratelimit-limit")
		})
	}
}
