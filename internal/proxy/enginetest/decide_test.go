package enginetest_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// waitingDecider is a Decider whose first decision must wait, as it does when the node
// has to reserve from a daily cap. The second is a 404.
type waitingDecider struct {
	waits  atomic.Int32
	err    error // of Wait
	panics bool
}

func (d *waitingDecider) Decide(_ *admit.Request, v *admit.Verdict) {
	*v = admit.Verdict{Action: admit.Wait}
	if d.waits.Load() > 0 {
		*v = admit.Verdict{Action: admit.Refuse, Code: fault.RouteNotFound}
	}
	if d.panics {
		panic("panic in a test's decider")
	}
}

func (d *waitingDecider) Wait(context.Context, *admit.Verdict) error {
	d.waits.Add(1)
	return d.err
}

func (d *waitingDecider) Unchanged(*admit.Verdict) bool { return true }

func (d *waitingDecider) Review() admit.Review    { return admit.Review{} }
func (d *waitingDecider) GiveBack(*admit.Verdict) {}

func (d *waitingDecider) Extend(*ratelimit.Charge, *ratelimit.Used) {}
func (d *waitingDecider) Settle(*ratelimit.Charge, *ratelimit.Used) {}

// Guarantee: a decision that had to wait for a daily cap is made again afterwards; if
// the store cannot be reached, the response is a 503.
func TestDecisionIsRepeatedAfterWait(t *testing.T) {
	t.Parallel()
	for status, err := range map[string]error{"404": nil, "503": fault.New(fault.Unavailable, "the store cannot be reached")} {
		d := &waitingDecider{err: err}
		c := serve(t, d, setup{}).dial(t)
		c.Send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
		c.wantRefusal(status, "")
		if n := d.waits.Load(); n != 1 {
			t.Errorf("error %v: waited %d times, want once", err, n)
		}
	}
}

// Guarantee: a panic is a 500 that reveals nothing of it, and is logged with the
// request's identifier.
func TestPanicIs500(t *testing.T) {
	t.Parallel()
	g := serve(t, &waitingDecider{panics: true}, setup{})
	resp, body := g.do(h2cClient(t), "GET", "/a", nil)
	if resp.StatusCode != http.StatusInternalServerError || !strings.Contains(body, `"internal"`) || strings.Contains(body, "panic") {
		t.Errorf("got %s %s, want a 500 with code internal and without the panic's text", resp.Status, body)
	}
	for _, want := range []string{"panic in a test's decider", resp.Header.Get("X-Request-Id")} {
		if log := g.log.String(); !strings.Contains(log, want) {
			t.Errorf("got log %s, want it to contain %q", log, want)
		}
	}
}

// Guarantee: a request beyond the rate limit is a 429 with the fields of contract 4.3,
// and is not forwarded.
func TestRateLimitIs429(t *testing.T) {
	t.Parallel()
	addr, heads := recorder(t, empty)
	g := start(t, setup{upstream: "http://" + addr, limit: "1/day"})
	c := g.dial(t)
	c.request(g, "GET /a HTTP/1.1")
	h := c.wantHead("200")
	h.wantFields(t, map[string]string{"x-ratelimit-limit": "1", "x-ratelimit-remaining": "0"})
	h.wantPresent(t, "ratelimit")
	receive(t, "the first request", heads)

	c.request(g, "POST /a HTTP/1.1", "Content-Length: 2")
	c.Send("ok")
	h = c.wantRefusal("429", "rate_limit_exceeded")
	h.wantFields(t, map[string]string{"x-ratelimit-remaining": "0"})
	h.wantPresent(t, "retry-after")

	c.request(g, "GET /b HTTP/1.1")
	c.wantRefusal("429", "rate_limit_exceeded")
	wantNone(t, heads)
}

// Guarantee: contract 3.3. The gateway responds to a preflight itself, without a key or
// a charge, and replaces the upstream's CORS fields in other responses by its own. An
// OPTIONS request that is not a preflight is forwarded.
func TestCORS(t *testing.T) {
	t.Parallel()
	addr, heads := recorder(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nAccess-Control-Allow-Origin: https://theirs\r\nAccess-Control-Expose-Headers: X-Total\r\nVary: Accept\r\n\r\n")
	g := start(t, setup{upstream: "http://" + addr, cors: &gateway.CORS{
		Origins: []string{"https://app.test"}, Methods: []string{"GET"}, Headers: []string{"Authorization"}, MaxAge: 60,
	}})
	c := g.dial(t)
	c.Send("OPTIONS /a HTTP/1.1\r\nHost: a\r\nOrigin: https://app.test\r\nAccess-Control-Request-Method: GET\r\n\r\n")
	preflight := c.wantHead("204")
	preflight.wantFields(t, map[string]string{"access-control-allow-origin": "https://app.test", "access-control-max-age": "60"})
	preflight.wantPresent(t, "x-request-id", "x-ratelimit-limit")
	wantNone(t, heads)

	c.request(g, "GET /a HTTP/1.1", "Origin: https://app.test")
	h := c.head()
	h.wantFields(t, map[string]string{"access-control-allow-origin": "https://app.test"})
	if list := h.get("access-control-expose-headers"); !strings.Contains(list, "X-Total") || !strings.Contains(list, "Retry-After") || !strings.Contains(list, "X-Request-Id") {
		t.Errorf("got Access-Control-Expose-Headers %q, want the upstream's X-Total and the gateway's own headers", list)
	}
	if vary := h.get("vary"); !strings.Contains(vary, "Accept") || !strings.Contains(vary, "Origin") {
		t.Errorf("got Vary %q, want the upstream's Accept and the gateway's Origin", vary)
	}

	resp, _ := g.do(http.DefaultTransport, "OPTIONS", "/a", nil)
	if resp.StatusCode != http.StatusOK {
		t.Errorf("OPTIONS that is not a preflight: got status %d, want 200", resp.StatusCode)
	}
}
