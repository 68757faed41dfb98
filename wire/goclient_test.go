package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"
)

// goClient is one connection of net/http's HTTP/2 client to a server.
type goClient struct {
	*http.ClientConn
	s *testServer
}

func newGoClient(t *testing.T, s *testServer) goClient {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{StrictMaxConcurrentRequests: true}}
	transport.Protocols.SetHTTP2(true)
	transport.Protocols.SetUnencryptedHTTP2(true)
	scheme := "http"
	if s.cert != "" {
		scheme, transport.TLSClientConfig = "https", s.clientTLS(t, "h2")
	}
	c, err := transport.NewClientConn(t.Context(), scheme, s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return goClient{c, s}
}

// request sends a request and returns the response when its head has arrived.
func (c goClient) request(ctx context.Context, key, method, path string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.s.url(path), body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Te", "trailers")
	return c.RoundTrip(r)
}

// upload sends a body and returns an error if it does not arrive, or the response is not whole.
func (c goClient) upload(ctx context.Context, up *service, body []byte) error {
	response, err := c.request(ctx, c.s.key, "POST", "/x", bytes.NewReader(body))
	if err != nil {
		return err
	}
	got, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if want := up.reported("POST", body, ""); string(got) != want {
		return fmt.Errorf("got %q, want %q", got, want)
	}
	if trailer := response.Trailer.Get("X-Length"); trailer != strconv.Itoa(len(body)) {
		return fmt.Errorf("got trailers %v, want x-length: %d", response.Trailer, len(body))
	}
	return nil
}

// Guarantee: requests and uploads of Go's client that share a connection all succeed, even if they
// are more at a time than the connection has streams.
func TestGoClientInParallel(t *testing.T) {
	t.Parallel()
	const clients = 200
	http2Ways(t, func(t *testing.T, s *testServer, up *service) {
		c := newGoClient(t, s)
		results := make(chan error)
		for i := range clients {
			go func() {
				results <- errors.Join(c.upload(t.Context(), up, nil), c.upload(t.Context(), up, longBody[i:i*500]))
			}()
		}
		for range clients {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
	})
}

// Guarantee: Go's client gets a response that the gateway or the service sends before the end of
// its upload, and goes on with its connection.
func TestGoClientEarlyResponses(t *testing.T) {
	t.Parallel()
	http2Ways(t, func(t *testing.T, s *testServer, up *service) {
		c := newGoClient(t, s)
		for _, want := range []struct {
			name, key, path string
			status          int
		}{
			{"refusal", "wrong", "/x", 401},
			{"response of the service", s.key, "/early", 403},
		} {
			for range 10 {
				body, unfinished := io.Pipe()
				go func() { _, _ = unfinished.Write(longBody) }()
				response, err := c.request(t.Context(), want.key, "POST", want.path, body)
				if err != nil {
					t.Fatalf("%s: %v", want.name, err)
				}
				if _, err := io.ReadAll(response.Body); err != nil || response.StatusCode != want.status {
					t.Errorf("%s: got status %d, error %v; want %d", want.name, response.StatusCode, err, want.status)
				}
				_ = response.Body.Close()
				_ = body.Close()
				if err := c.upload(t.Context(), up, longBody[:100_000]); err != nil {
					t.Errorf("after a %s: %v", want.name, err)
				}
			}
		}
	})
}

// Guarantee: a request that Go's client cancels within the response ends at the
// service too, and the connection serves further ones.
func TestGoClientCancels(t *testing.T) {
	t.Parallel()
	http2Ways(t, func(t *testing.T, s *testServer, up *service) {
		c := newGoClient(t, s)
		for range 10 {
			ctx, cancel := context.WithCancel(t.Context())
			response, err := c.request(ctx, s.key, "GET", "/endless", nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.CopyN(io.Discard, response.Body, 100_000); err != nil {
				t.Error(err)
			}
			cancel()
			<-up.ended
			_ = response.Body.Close()
			if err := c.upload(t.Context(), up, longBody[:100_000]); err != nil {
				t.Error(err)
			}
		}
	})
}

// Guarantee: when the server stops, Go's client receives GOAWAY and the rest of the
// responses under way.
func TestGoClientDrain(t *testing.T) {
	t.Parallel()
	http2Ways(t, func(t *testing.T, s *testServer, up *service) {
		c := newGoClient(t, s)
		var responses []*http.Response
		for range 10 {
			response, err := c.request(t.Context(), s.key, "GET", "/wait", nil)
			if err != nil {
				t.Fatal(err)
			}
			responses = append(responses, response)
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			s.Stop()
		}()
		waitUntil(t, "the client has GOAWAY", func() bool { return c.Available() == 0 })
		for range responses {
			up.release <- struct{}{}
		}
		for _, response := range responses {
			if got, err := io.ReadAll(response.Body); err != nil || string(got) != "released\n" {
				t.Errorf("got body %q, error %v; want it released", got, err)
			}
			_ = response.Body.Close()
		}
		<-stopped
	})
}
