package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// Guarantee: a request whose upstream closes the connection while the body still comes is 502 for the caller, and a failure of the
// upstream, not of the client, for the operator: it is in /v1/requests, and one gateway.upstream_error says so.
func TestBrokenOffUploadIsReported(t *testing.T) {
	s := keygatetest.Start(t)
	breaks := upstreamtest.Serve(t, func(c *upstreamtest.Conn) { _, _ = c.ReadHead() })
	g, err := s.Admin.CreateGateway(t.Context(), client.CreateGatewayRequest{Name: "files", UpstreamURL: "http://" + breaks})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admin.CreateRoute(t.Context(), g.GatewayID, client.CreateRouteRequest{Path: "/files", Methods: []string{"POST"}}); err != nil {
		t.Fatal(err)
	}
	k, err := s.Admin.CreateKey(t.Context(), client.CreateKeyRequest{Name: "k", Scope: "write:files"})
	if err != nil {
		t.Fatal(err)
	}

	c, err := net.Dial("tcp", s.Running().GatewayAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(awaittest.Timeout))
	if _, err := fmt.Fprintf(c, "POST /files HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Length: 10\r\n\r\nhello", g.Hostname, k.Secret); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("the caller got no response: %v", err)
	}
	_ = res.Body.Close()
	request := res.Header.Get("X-Request-Id")
	if res.StatusCode != http.StatusBadGateway || request == "" {
		t.Fatalf("the caller got %s with the identifier %q, want 502", res.Status, request)
	}

	awaittest.True(t, "the request is in /v1/requests as a failure of the upstream", func() bool {
		for r, err := range s.Admin.Requests(t.Context(), client.RequestFilter{GatewayID: g.GatewayID, Status: http.StatusBadGateway}) {
			if err != nil {
				t.Fatal(err)
			}
			return r.RequestID == request && r.Method == http.MethodPost && r.Path == "/files"
		}
		return false
	})
	var events []client.Event
	awaittest.True(t, "there is an event", func() bool {
		events = events[:0]
		for e, err := range s.Admin.Events(t.Context(), client.EventFilter{Type: "gateway.upstream_error"}) {
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, e)
		}
		return len(events) > 0
	})
	var data struct {
		Status      int
		RequestID   string `json:"request_id"`
		Occurrences int
	}
	if err := json.Unmarshal(events[0].Data, &data); err != nil || len(events) != 1 || data.Status != http.StatusBadGateway || data.RequestID != request || data.Occurrences != 1 {
		t.Errorf("got %d events, the first with %s; want one of the request %s", len(events), events[0].Data, request)
	}
}
