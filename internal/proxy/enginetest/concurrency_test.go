package enginetest_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// handleKinds responds in the way that the path names.
func handleKinds(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	switch r.URL.Path {
	case "/nothing":
		w.WriteHeader(http.StatusNoContent)
	case "/chunked", "/events":
		for range 5 {
			_, _ = io.WriteString(w, "data: x\n\n")
			w.(http.Flusher).Flush()
		}
	case "/trailers":
		w.Header().Set("Trailer", "X-End")
		_, _ = io.WriteString(w, "x")
		w.(http.Flusher).Flush()
		w.Header().Set("X-End", "1")
	case "/large":
		_, _ = io.WriteString(w, strings.Repeat("0123456789", 30_000))
	case "/torn":
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "x")
		panic(http.ErrAbortHandler)
	default:
		_, _ = io.WriteString(w, "whole")
	}
}

// send sends a request with the key, and returns the response.
func (g *harness) send(ctx context.Context, t *testing.T, client http.RoundTripper, method, path, body string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+g.addr+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+g.key)
	return client.RoundTrip(req)
}

// Guarantee: plans.md, section 6: the slot of a request is given back before the last byte of its response is passed on, so
// that a caller who sends one request after the other is never refused under a limit of one.
func TestSlotsServeASerialCaller(t *testing.T) {
	for name, upstream := range map[string]func(t *testing.T) string{
		"HTTP/1.1": func(t *testing.T) string {
			s := httptest.NewServer(http.HandlerFunc(handleKinds))
			t.Cleanup(s.Close)
			return s.URL
		},
		"HTTP/2": func(t *testing.T) string { return h2cUpstream(t, handleKinds) },
	} {
		t.Run(name, func(t *testing.T) {
			url := upstream(t)
			if !strings.Contains(url, "://") {
				url = "http://" + url
			}
			overBoth(t, func(t *testing.T, client http.RoundTripper) {
				g := start(t, setup{upstream: url, concurrency: 1})
				for range 3 {
					for _, path := range []string{"/whole", "/nothing", "/chunked", "/events", "/trailers", "/large"} {
						for _, method := range []string{"GET", "HEAD", "POST"} {
							body := ""
							if method == "POST" {
								body = strings.Repeat("x", 100_000)
							}
							resp, err := g.send(t.Context(), t, client, method, path, body)
							if err != nil {
								t.Fatal(err)
							}
							if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode >= 300 {
								t.Fatalf("%s %s after another request: status %d, error %v", method, path, resp.StatusCode, err)
							}
							_ = resp.Body.Close()
						}
					}
				}
			})
		})
	}
}

// Guarantee: plans.md, section 6: streams count until they end, however they end, and what comes meanwhile is 429 with the
// scope concurrency, the limit's name, a reset a second ahead and Retry-After: 1, and charges no other limit.
func TestSlotsAreHeldUntilTheEnd(t *testing.T) {
	overBoth(t, func(t *testing.T, client http.RoundTripper) {
		release := make(chan struct{})
		upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/stream" {
				handleKinds(w, r)
				return
			}
			_, _ = io.WriteString(w, "begun")
			w.(http.Flusher).Flush()
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}))
		t.Cleanup(upstream.Close)
		g := start(t, setup{upstream: upstream.URL, concurrency: 1, limit: "100/day", realClock: true}) // so that the hanging up is noticed
		free := func(what string) {
			awaittest.True(t, "the slot is free after "+what, func() bool {
				resp, err := g.send(t.Context(), t, client, "GET", "/whole", "")
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				return resp.StatusCode == http.StatusOK
			})
		}
		begin := func(ctx context.Context) *http.Response {
			resp, err := g.send(ctx, t, client, "GET", "/stream", "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("status %d, error %v", resp.StatusCode, err)
			}
			return resp
		}

		running := begin(t.Context())
		policy := running.Header.Get("RateLimit-Policy") + " " + running.Header.Get("RateLimit")
		if want := `"key";q=100;w=86400, "key-concurrency";q=1;qu="concurrent-requests" "key";r=99;t=864, "key-concurrency";r=0`; policy != want {
			t.Errorf("RateLimit-Policy and RateLimit are %s, want %s", policy, want)
		}
		if left := running.Header.Get("X-RateLimit-Remaining"); left != "99" {
			t.Errorf("X-RateLimit-Remaining is %q, want that of the limit of requests in a time", left)
		}
		for range 3 {
			resp, err := g.send(t.Context(), t, client, "GET", "/whole", "")
			if err != nil {
				t.Fatal(err)
			}
			var body struct {
				LimitScope string `json:"limit_scope"`
				LimitName  string `json:"limit_name"`
				Limit      int64
				Remaining  int64
			}
			if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "1" || resp.Header.Get("X-RateLimit-Remaining") != "0" ||
				body.LimitScope != "concurrency" || body.LimitName != "key" || body.Limit != 1 || body.Remaining != 0 {
				t.Errorf("while a stream runs: status %d, %v, %+v", resp.StatusCode, resp.Header, body)
			}
		}
		close(release)
		if _, err := io.Copy(io.Discard, running.Body); err != nil {
			t.Fatal(err)
		}
		_ = running.Body.Close()
		resp, err := g.send(t.Context(), t, client, "GET", "/whole", "")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if left := resp.Header.Get("X-RateLimit-Remaining"); resp.StatusCode != http.StatusOK || left != "98" {
			t.Errorf("after the stream: status %d with %s left, want 200 with 98", resp.StatusCode, left)
		}

		release = make(chan struct{})
		ctx, hangUp := context.WithCancel(t.Context())
		abandoned := begin(ctx)
		hangUp()
		_ = abandoned.Body.Close()
		free("the client has hung up")
		for range 3 {
			if torn, err := g.send(t.Context(), t, client, "GET", "/torn", ""); err == nil {
				_, _ = io.Copy(io.Discard, torn.Body)
				_ = torn.Body.Close()
			}
			free("a response that breaks off")
		}
		upstream.Close()
		for range 3 {
			if refused, err := g.send(t.Context(), t, client, "GET", "/whole", ""); err != nil {
				t.Fatal(err)
			} else {
				_ = refused.Body.Close()
				if refused.StatusCode != http.StatusBadGateway {
					t.Errorf("without an upstream: status %d, want 502 each time", refused.StatusCode)
				}
			}
		}
	})
}

// Guarantee: plans.md, section 6: a tunnel counts until both of its directions have ended.
func TestTunnelHoldsItsSlot(t *testing.T) {
	t.Parallel()
	g := start(t, setup{upstream: "http://" + switching(t, "hello"), concurrency: 1})
	c := g.dial(t)
	c.upgrade(g, "")
	c.wantText("hello")
	other := g.dial(t)
	other.request(g, "GET /a HTTP/1.1")
	other.wantHead("429")
	c.closeWrite()
	c.wantEnd("bye")
	awaittest.True(t, "the slot of the tunnel is free", func() bool {
		next := g.dial(t)
		next.request(g, "GET /a HTTP/1.1")
		h := next.head()
		_ = next.Close()
		return strings.Contains(h.line, " 426 ")
	})
}
