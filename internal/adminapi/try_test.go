package adminapi_test

import (
	"context"
	"io"
	"net"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/adminapi"
)

// dataPlane is a data plane that takes requests, and responds to each when it may.
type dataPlane struct {
	respond chan string // a response; it is sent to one of the requests
}

func (d *dataPlane) dial(context.Context, netip.Addr) (net.Conn, error) {
	near, far := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	go func() {
		if response, ok := <-d.respond; ok {
			_, _ = io.WriteString(far, response)
		}
	}()
	return near, nil
}

// tries starts a server with a data plane. The second result tries a request to a new gateway of the account of a key.
func tries(t *testing.T) (*dataPlane, func(key, gatewayID string) <-chan *httptest.ResponseRecorder, *server) {
	t.Helper()
	s := start(t)
	d := &dataPlane{respond: make(chan string)}
	s.api.Dial = d.dial
	handler := must(adminapi.New(s.api))(t)
	return d, func(key, gatewayID string) <-chan *httptest.ResponseRecorder {
		done := make(chan *httptest.ResponseRecorder, 1)
		go func() {
			w := httptest.NewRecorder()
			r := httptest.NewRequest("POST", "/v1/gateways/"+gatewayID+"/try", strings.NewReader(`{"method": "GET", "path": "/"}`))
			r.Header.Set("Authorization", "Bearer "+key)
			r.Header.Set("Content-Type", "application/json")
			handler.ServeHTTP(w, r)
			done <- w
		}()
		return done
	}, s
}

// gatewayOf creates a gateway of the account of a key.
func gatewayOf(s *server, key string) string {
	return s.do(request{method: "POST", path: "/v1/gateways", key: key, body: map[string]any{"name": "g", "upstream_url": "http://192.0.2.1"}}).want(201).text("gateway_id")
}

// Guarantee: four requests of all accounts are tried at once. The fifth is a 429, and none waits.
func TestTriesOfAllAreBounded(t *testing.T) {
	d, try, s := tries(t)
	keys := []string{s.admin, s.newAccount("b"), s.newAccount("c"), s.newAccount("d"), s.newAccount("e")}
	gateways := make([]string, len(keys))
	for i, key := range keys {
		gateways[i] = gatewayOf(s, key)
	}
	synctest.Test(t, func(t *testing.T) {
		d.respond = make(chan string)
		running := make([]<-chan *httptest.ResponseRecorder, 4)
		for i := range running {
			running[i] = try(keys[i], gateways[i])
		}
		synctest.Wait()
		checkRefusal(t, <-try(keys[4], gateways[4]), 1)
		for range running {
			d.respond <- "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
		}
		for _, done := range running {
			if w := <-done; w.Code != 200 || !strings.Contains(w.Body.String(), `"body":"ok"`) {
				t.Errorf("got %d %s, want the response", w.Code, w.Body)
			}
		}
	})
}

// Guarantee: a request that is tried ends after 30 seconds: without a response the call is a 503, and with a part of one
// it has that part.
func TestTryHasATimeout(t *testing.T) {
	d, try, s := tries(t)
	gatewayID := gatewayOf(s, s.admin)
	for _, c := range []struct {
		response string
		status   int
		want     string
	}{
		{"", 503, "no response within 30s"},
		{"HTTP/1.1 200 OK\r\n\r\na part", 200, `"body":"a part","body_base64":false,"truncated":true`},
	} {
		synctest.Test(t, func(t *testing.T) {
			d.respond = make(chan string, 1)
			defer close(d.respond)
			if c.response != "" {
				d.respond <- c.response
			}
			begin := time.Now()
			w := <-try(s.admin, gatewayID)
			if took := time.Since(begin); w.Code != c.status || !strings.Contains(w.Body.String(), c.want) || took < 30*time.Second || took > 40*time.Second {
				t.Errorf("got %d %s after %s, want %d and %q after 30s", w.Code, w.Body, took, c.status, c.want)
			}
		})
	}
}
