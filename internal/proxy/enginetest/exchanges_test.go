package enginetest_test

import (
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// Guarantee: contract 4.4. Expect is forwarded. The upstream's 100 reaches the client, and so do other interim
// responses before it; if there is no 100 in time, whatever else came, the client gets one from the gateway. A
// final response instead of the 100 passes.
func TestExpectOverAll(t *testing.T) {
	t.Parallel()
	type expectation struct {
		interim []int // of the upstream
		want    []string
		final   bool // instead of the 100
	}
	for timeout, cases := range map[time.Duration][]expectation{
		0: {
			{interim: []int{100}, want: []string{"100"}},
			{interim: []int{103, 100}, want: []string{"103", "100"}},
			{interim: []int{100, 103}, want: []string{"100", "103"}},
			{interim: []int{103}, want: []string{"103"}, final: true},
			{final: true},
		},
		500 * time.Millisecond: {
			{want: []string{"100"}},
			{interim: []int{103}, want: []string{"103", "100"}},
		},
	} {
		overServing(t, setup{continueTimeout: timeout, realClock: timeout > 0}, func(t *testing.T) func(r served) {
			return func(r served) {
				c := cases[r.target()[1]-'0']
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
			for n, want := range cases {
				c := g.dial()
				c.open("POST", "/"+strconv.Itoa(n), "Expect: 100-continue")
				var got []string
				for range want.want {
					got = append(got, c.nextHead().status())
				}
				if timeout > 0 { // on a slow machine it expires first
					slices.Sort(got)
					slices.Reverse(got)
				}
				if !slices.Equal(got, want.want) {
					t.Fatalf("%+v: got %v", want, got)
				}
				if want.final {
					if r := c.receive("POST"); r.head.status() != "417" || r.body != "no" || r.broken {
						t.Errorf("%+v: got %+v, want the upstream's 417", want, r)
					}
					continue
				}
				c.send("body")
				c.send("")
				if r := c.receive("POST"); r.head.status() != "200" || r.body != "yes" || r.broken || len(r.interim) > 0 {
					t.Errorf("%+v: got %+v, want 200", want, r)
				}
			}
		})
	}
}

// Guarantee: contract 4.4. Each part of a response, its head too, passes before the next part is sent.
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
	cases := []struct {
		name   string
		method string
		body   string
		fail   func(r served)
		again  bool // the request is sent a second time
	}{
		{"a new connection", "GET", "", served.hangUp, false}, // the first case
		{"GET", "GET", "", served.hangUp, true},
		{"HEAD", "HEAD", "", served.hangUp, true},
		{"OPTIONS", "OPTIONS", "", served.hangUp, true},
		{"PUT", "PUT", "", served.hangUp, true},
		{"DELETE", "DELETE", "", served.hangUp, true},
		{"POST", "POST", "", served.hangUp, false},
		{"PATCH", "PATCH", "", served.hangUp, false},
		{"PUT with a body", "PUT", "body", served.hangUp, false},
		{"GET with a body", "GET", "body", served.hangUp, false},
		{"an interim response", "GET", "", func(r served) {
			r.interim(103)
			r.hangUp()
		}, false},
		{"a malformed response", "GET", "", func(r served) {
			r.malformed()
			r.hangUp()
		}, false},
	}
	overServing(t, setup{}, func(*testing.T) func(r served) {
		attempts := make([]atomic.Int64, len(cases))
		return func(r served) {
			n, err := strconv.Atoi(r.target()[1:])
			if err == nil && attempts[n].Add(1) == 1 {
				cases[n].fail(r)
				return
			}
			r.respond(200, "")
		}
	}, func(t *testing.T, g combination) {
		for n, want := range cases {
			c := g.dial()
			if n > 0 {
				if r := c.exchange("GET", "/first"); r.head.status() != "200" {
					t.Fatalf("%s: got %+v, want 200", want.name, r)
				}
			}
			var r received
			if target := "/" + strconv.Itoa(n); want.body == "" {
				r = c.exchange(want.method, target)
			} else {
				c.open(want.method, target)
				c.send(want.body)
				c.send("")
				r = c.receive(want.method)
			}
			status := "502"
			if want.again {
				status = "200"
			}
			if r.head.status() != status {
				t.Errorf("%s: got %s, want %s", want.name, r.head.status(), status)
			}
		}
	})
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
