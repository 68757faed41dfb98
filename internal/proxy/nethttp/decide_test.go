package nethttp_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// waiting is a Decider whose daily cap must be asked first.
type waiting struct {
	asked atomic.Int32
	err   error
	crash bool
}

func (w *waiting) Decide(_ *admit.Request, v *admit.Verdict) {
	*v = admit.Verdict{Action: admit.Wait}
	if w.asked.Load() > 0 {
		*v = admit.Verdict{Action: admit.Refuse, Code: fault.RouteNotFound}
	}
	if w.crash {
		panic("a defect")
	}
}

func (w *waiting) Wait(context.Context, *admit.Verdict) error {
	w.asked.Add(1)
	return w.err
}

// A decision that must wait for a daily cap is made again once it can be; a
// store that cannot be asked is 503.
func TestWait(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, "404"},
		{fault.New(fault.Unavailable, "the store cannot be reached"), "503"},
	} {
		d := &waiting{err: c.err}
		client := serve(t, d, setup{}).dial()
		client.Send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
		if h, _ := client.refusal(); h.status() != c.want || d.asked.Load() != 1 {
			t.Errorf("asked %d times, answer\n%s", d.asked.Load(), h.text)
		}
	}
}

// A defect is a 500 that tells nothing, and the log has it.
func TestDefect(t *testing.T) {
	e := serve(t, &waiting{crash: true}, setup{})
	resp, body := e.do(h2cClient(t), "GET", "/a", nil)
	if resp.StatusCode != http.StatusInternalServerError || !strings.Contains(body, `"internal"`) || strings.Contains(body, "defect") {
		t.Errorf("answer %s %s", resp.Status, body)
	}
	if log := e.log.String(); !strings.Contains(log, "a defect") || !strings.Contains(log, resp.Header.Get("X-Request-Id")) {
		t.Errorf("log: %s", log)
	}
}

// A limit that is used up is 429 with the figures of contract 4.3, and nothing
// is forwarded.
func TestLimit(t *testing.T) {
	addr, heads := recorder(t, empty)
	e := start(t, setup{upstream: "http://" + addr, limit: "1/day"})
	c := e.dial()
	c.request(e, "GET /a HTTP/1.1")
	if h := c.head(); h.status() != "200" || h.get("x-ratelimit-limit") != "1" || h.get("x-ratelimit-remaining") != "0" || h.get("ratelimit") == "" {
		t.Fatalf("first\n%s", h.text)
	}
	within(t, "the request", heads)
	c.request(e, "POST /a HTTP/1.1", "Content-Length: 2")
	c.Send("ok")
	h, body := c.refusal()
	if h.status() != "429" || body.Error != "rate_limit_exceeded" || h.get("retry-after") == "" || h.get("x-ratelimit-remaining") != "0" {
		t.Errorf("second\n%s %+v", h.text, body)
	}
	c.request(e, "GET /b HTTP/1.1")
	if h, _ := c.refusal(); h.status() != "429" {
		t.Errorf("third\n%s", h.text)
	}
	if len(heads) != 0 {
		t.Error("a refused request reached the upstream")
	}
}

// A preflight is answered by the gateway, without key or charge; other answers
// to the origin carry its permission instead of the upstream's (contract, 3.3).
func TestCORS(t *testing.T) {
	addr, heads := recorder(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nAccess-Control-Allow-Origin: https://theirs\r\nVary: Accept\r\n\r\n")
	e := start(t, setup{upstream: "http://" + addr, cors: &gateway.CORS{
		Origins: []string{"https://app.test"}, Methods: []string{"GET"}, Headers: []string{"Authorization"}, MaxAge: 60,
	}})
	c := e.dial()
	c.Send("OPTIONS /a HTTP/1.1\r\nHost: a\r\nOrigin: https://app.test\r\nAccess-Control-Request-Method: GET\r\n\r\n")
	h := c.head()
	if h.status() != "204" || h.get("access-control-allow-origin") != "https://app.test" || h.get("access-control-max-age") != "60" ||
		h.get("x-request-id") == "" || h.get("x-ratelimit-limit") == "" || len(heads) != 0 {
		t.Errorf("preflight\n%s", h.text)
	}
	c.request(e, "GET /a HTTP/1.1", "Origin: https://app.test")
	if h := c.head(); h.get("access-control-allow-origin") != "https://app.test" || !strings.Contains(h.get("vary"), "Accept") || !strings.Contains(h.get("vary"), "Origin") {
		t.Errorf("answer\n%s", h.text)
	}
	resp, _ := e.do(http.DefaultTransport, "OPTIONS", "/a", nil)
	if resp.StatusCode != http.StatusOK {
		t.Errorf("an OPTIONS that is no preflight: %d", resp.StatusCode)
	}
}
