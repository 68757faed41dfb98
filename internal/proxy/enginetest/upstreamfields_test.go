package enginetest_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"testing"
)

// Guarantee: contract 3.4, 4.3 and 4.4. Whatever the versions of HTTP, an upstream sets no cookie of the
// dashboard, in interim responses and trailers either, and announces no other service; its other cookies
// pass, and so do fields that only begin like the fields of the rate limit.
func TestFieldsOfUpstreams(t *testing.T) {
	hostile := func(h http.Header) {
		for _, value := range []string{"a=1; Path=/", "keygate_session=x; Domain=example.com", "=keygate_session=x", "b=keygate_session"} {
			h.Add("Set-Cookie", value)
		}
		h.Set("Alt-Svc", `h3=":443"`)
	}
	overUpstreams(t, func(*testing.T) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Add("Set-Cookie", "__Host-keygate_session=x; Secure; Path=/")
			hostile(h)
			h.Set("Trailer", "X-T")
			w.WriteHeader(http.StatusEarlyHints)
			for name, value := range map[string]string{"X-RateLimit-Limit": "theirs", "X-RateLimit-Remaining-Tokens": "5", "x-ratelimit-used": "1"} {
				h.Set(name, value)
			}
			_, _ = w.Write([]byte("ok"))
			_ = http.NewResponseController(w).Flush()
			h.Set("X-T", "1")
			for _, value := range []string{"a=1", "keygate_session=x"} {
				h.Add(http.TrailerPrefix+"Set-Cookie", value)
			}
			h.Set(http.TrailerPrefix+"Alt-Svc", `h3=":443"`)
		}
	}, func(t *testing.T, s setup, client http.RoundTripper) {
		g := start(t, s)
		check := func(what string, h http.Header, cookies ...string) {
			if got := h.Values("Set-Cookie"); !slices.Equal(got, cookies) || h.Get("Alt-Svc") != "" {
				t.Errorf("%s: got cookies %q, Alt-Svc %q; want %q and none", what, got, h.Get("Alt-Svc"), cookies)
			}
		}
		hints := 0
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
			hints++
			check("interim response", http.Header(h), "a=1; Path=/", "b=keygate_session")
			return nil
		}})
		resp := g.getTrailing(ctx, t, client)
		check("response", resp.Header, "a=1; Path=/", "b=keygate_session")
		check("trailers", resp.Trailer)
		if hints != 1 || resp.Trailer.Get("X-T") != "1" {
			t.Errorf("got %d interim responses, trailers %v; want 1 and X-T", hints, resp.Trailer)
		}
		if h := resp.Header; h.Get("X-RateLimit-Limit") == "theirs" || len(h["X-Ratelimit-Limit"]) != 1 || h.Get("X-RateLimit-Remaining-Tokens") != "5" || h.Get("X-RateLimit-Used") != "1" {
			t.Errorf("got fields %v; want the gateway's X-RateLimit-Limit, and the upstream's others", h)
		}
	})
}

// getTrailing makes a GET request that accepts trailers, and reads the response to its end.
func (g *harness) getTrailing(ctx context.Context, t *testing.T, client http.RoundTripper) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+g.addr+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+g.key)
	req.Header.Set("TE", "trailers")
	resp, err := client.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp
}
