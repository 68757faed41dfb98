package enginetest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
)

const byteLimit = 1_000_000_000

// bytesPlan returns a plan that limits the bytes of bodies, in buckets that regain a byte a day.
func bytesPlan(t testing.TB, planID, accountID string) plan.Plan {
	t.Helper()
	limits, err := plan.ParseLimits([]plan.LimitInput{
		{Name: "up", Sustained: "1/day", Burst: fmt.Sprintf("%d/day", byteLimit), Meter: ratelimit.BytesIn},
		{Name: "down", Sustained: "1/day", Burst: fmt.Sprintf("%d/day", byteLimit), Meter: ratelimit.BytesOut},
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan.Plan{ID: planID, AccountID: accountID, Name: "bytes", Limits: limits, TimeZone: plan.DefaultZone, AnchorDay: plan.DefaultAnchor}
}

// used returns the bytes in both directions that the limits have counted, as the response to a request without bodies says.
func (g *harness) used() (in, out int64) {
	g.t.Helper()
	c := g.dial(g.t)
	c.Send("HEAD /none HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + g.key + "\r\n\r\n")
	h := c.head()
	for item := range strings.SplitSeq(h.get("ratelimit"), ", ") {
		name, rest, _ := strings.Cut(item, ";r=")
		left, _, _ := strings.Cut(rest, ";")
		n, err := strconv.ParseInt(left, 10, 64)
		switch name {
		case `"bytes.up"`:
			in = byteLimit - n
		case `"bytes.down"`:
			out = byteLimit - n
		}
		if err != nil {
			g.t.Fatalf("the field RateLimit is %q", h.get("ratelimit"))
		}
	}
	return in, out
}

// brokenBody is a body that ends early.
type brokenBody struct{ io.Reader }

func (b brokenBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = errors.New("the client breaks off")
	}
	return n, err
}

// Guarantee: plans.md, section 5: limits of bytes count what the access record does, to the byte, however an exchange ends:
// whole, without an upstream, broken off by either side, or refused.
func TestLimitsOfBytesCountWhatTheRecordDoes(t *testing.T) {
	text := strings.Repeat("0123456789", 30_000)
	upstreams := map[string]func(t *testing.T) string{
		"HTTP/1.1": func(t *testing.T) string {
			s := httptest.NewServer(http.HandlerFunc(handleSizes))
			t.Cleanup(s.Close)
			return s.URL
		},
		"HTTP/2": func(t *testing.T) string { return h2cUpstream(t, handleSizes) },
		"none":   closedPort,
	}
	for name, upstream := range upstreams {
		t.Run(name, func(t *testing.T) {
			url := upstream(t)
			if !strings.Contains(url, "://") {
				url = "http://" + url
			}
			overBoth(t, func(t *testing.T, client http.RoundTripper) {
				g := start(t, setup{upstream: url, bytes: true})
				var in, out int64
				exchange := func(path string, body io.Reader, length int64) {
					ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
					defer cancel()
					req, err := http.NewRequestWithContext(ctx, "POST", "http://"+g.addr+path, body)
					if err != nil {
						t.Fatal(err)
					}
					req.ContentLength = length
					req.Header.Set("Authorization", "Bearer "+g.key)
					if resp, err := client.RoundTrip(req); err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					}
					r := receive(t, "the record", g.recordOf(path))
					if name != "none" { // otherwise everything is given back
						in, out = in+r.BytesIn, out+r.BytesOut
					}
					if gotIn, gotOut := g.used(); gotIn != in || gotOut != out {
						t.Errorf("%s: the limits have counted %d bytes in and %d out, want the %d and %d of the records", path, gotIn, gotOut, in, out)
					}
				}
				exchange("/whole", strings.NewReader(text), int64(len(text)))
				exchange("/chunked", io.MultiReader(strings.NewReader(text)), -1)
				exchange("/large", strings.NewReader("x"), 1)
				exchange("/early", strings.NewReader(text), int64(len(text)))
				exchange("/torn", strings.NewReader("x"), 1)
				exchange("/aborted", brokenBody{strings.NewReader(text)}, int64(2*len(text)))
			})
		})
	}
}

// recordOf returns the record of the exchange with a path, once there is one.
func (g *harness) recordOf(path string) <-chan recorded {
	found := make(chan recorded, 1)
	go func() {
		for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(time.Millisecond) { //nolint:forbidigo // until the exchange has ended
			for _, e := range g.records() {
				if e.Path == path && e.Part != accesslog.Started {
					found <- recorded{e.BytesIn, e.BytesOut}
					return
				}
			}
		}
	}()
	return found
}

type recorded struct{ BytesIn, BytesOut int64 }

// endless reads zeros.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

const largeBody = 300_000

// handleSizes responds as the paths of the test say.
func handleSizes(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/none":
		return
	case "/early":
	case "/torn":
		w.Header().Set("Content-Length", strconv.Itoa(2*largeBody))
		_, _ = w.Write(make([]byte, largeBody))
		panic(http.ErrAbortHandler)
	default:
		_, _ = io.Copy(io.Discard, r.Body)
	}
	if r.URL.Path == "/large" {
		_, _ = w.Write(make([]byte, largeBody))
	}
}

// Guarantee: plans.md, section 5: what passes of a long body is charged while it passes, not only at its end; a tunnel's too.
func TestLimitsOfBytesKnowOfLongExchanges(t *testing.T) {
	t.Parallel()
	var now atomic.Int64
	hours := func() int64 { return now.Add(int64(time.Hour)) } // an hour between any two looks
	g := start(t, setup{upstream: "http://" + switching(t, "hello"), bytes: true, mono: hours})
	c := g.dial(t)
	c.upgrade(g, "")
	c.wantText("hello")
	for range 3 {
		c.Send("0123456789")
		c.wantText("0123456789")
	}
	if in, out := g.used(); in < 10 || out < 15 { // the last bytes may not be charged yet
		t.Errorf("the limits have counted %d bytes in and %d out of a tunnel that goes on, want at least 10 and 15", in, out)
	}
	c.closeWrite()
	c.wantEnd("bye")
	receive(t, "the record", g.recordOf("/a"))
	if in, out := g.used(); in != 30 || out != 38 {
		t.Errorf("the limits have counted %d bytes in and %d out of a tunnel, want 30 and 38", in, out)
	}
}

// usedAtLast waits until the limits have counted as many bytes.
func (g *harness) usedAtLast(wantIn, wantOut int64) {
	g.t.Helper()
	var in, out int64
	if !awaittest.Holds(func() bool {
		in, out = g.used()
		return in == wantIn && out == wantOut
	}) {
		g.t.Fatalf("the limits have counted %d bytes in and %d out, want %d and %d", in, out, wantIn, wantOut)
	}
}

// Guarantee: plans.md, section 5: what has passed of an exchange is charged within a second also if nothing more passes: of a
// response, and of a tunnel.
func TestLimitsOfBytesKnowOfSilentExchanges(t *testing.T) {
	hours := func() func() int64 {
		var now atomic.Int64
		return func() int64 { return now.Add(int64(time.Hour)) } // an hour between any two looks
	}
	silent := make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/none" {
			return
		}
		_, _ = w.Write(make([]byte, 1000))
		_ = http.NewResponseController(w).Flush()
		select {
		case <-silent:
		case <-r.Context().Done():
		}
	})
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(silent) }) // before it
	overBoth(t, func(t *testing.T, client http.RoundTripper) {
		g := start(t, setup{upstream: s.URL, bytes: true, mono: hours(), realClock: true})
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "GET", "http://"+g.addr+"/silent", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+g.key)
		resp, err := client.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.ReadFull(resp.Body, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		g.usedAtLast(0, 1000)
	})
	t.Run("tunnel", func(t *testing.T) {
		g := start(t, setup{upstream: "http://" + switching(t, "hello"), bytes: true, mono: hours(), realClock: true})
		c := g.dial(t)
		c.upgrade(g, "")
		c.wantText("hello")
		c.Send("0123456789")
		c.wantText("0123456789")
		g.usedAtLast(10, 15)
		c.closeWrite()
		c.wantEnd("bye")
	})
}

// Guarantee: a request that needs more than a limit ever has is told so, and not to wait.
func TestRequestsLargerThanTheirLimit(t *testing.T) {
	overBoth(t, func(t *testing.T, client http.RoundTripper) {
		g := start(t, setup{upstream: "http://" + closedPort(t), bytes: true})
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "POST", "http://"+g.addr+"/a", io.LimitReader(endless{}, byteLimit+1))
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = byteLimit + 1
		req.Header.Set("Authorization", "Bearer "+g.key)
		resp, err := client.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		for _, want := range []string{
			"lets 1000000000 bytes_in pass at once, and the request needs 1000000001", `"reset_at":2147483647`, `"limit_name":"bytes.up","units_left":1000000000,"units_needed":1000000001`,
		} {
			if resp.StatusCode != 429 || err != nil || !strings.Contains(string(body), want) {
				t.Errorf("got %d %s (%v), want 429 with %s", resp.StatusCode, body, err, want)
			}
		}
	})
}
