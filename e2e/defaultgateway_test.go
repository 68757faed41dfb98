package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
)

// Guarantee: contract 4.1, over HTTP/1.1 and HTTP/2: adding a gateway does not change where requests
// for unknown hosts go. Moving the default gateway does, before the call returns and after a restart.
// Without a default gateway, such requests get a 404 that says what to do.
func TestUnknownHostsReachTheDefaultGateway(t *testing.T) {
	s := startServer(t)
	gateway := func(name string, more map[string]any) string {
		up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }))
		t.Cleanup(up.Close)
		return s.newGateway(up.URL, more)
	}
	_, key := s.newKey(nil)
	clients := clientsByProtocol(t)
	want := func(step, gateway string) {
		t.Helper()
		for protocol, c := range clients {
			status, body, err := s.get(c, key, "/who")
			if err != nil || status != 200 || body != gateway {
				t.Errorf("%s, %s: got %d %s (%v), want the gateway %s", step, protocol, status, body, err, gateway)
			}
		}
	}
	move := func(id string) {
		s.call(200, "PATCH", "/v1/gateways/"+id, map[string]any{"default": true})
	}
	gateway("first", nil)
	want("with one gateway", "first")
	second := gateway("second", nil)
	want("with a second one", "first")
	move(second)
	want("after a move", "second")
	third := gateway("third", map[string]any{"default": true})
	want("after creating a default gateway", "third")
	s.restart(syscall.SIGTERM)
	want("after a restart", "third")
	s.call(200, "DELETE", "/v1/gateways/"+third, nil)
	for protocol, c := range clients {
		status, body, err := s.get(c, key, "/who")
		if err != nil || status != 404 || !strings.Contains(body, `"gateway_not_found"`) || !strings.Contains(body, "keygate gateways update GATEWAY_ID --default") {
			t.Errorf("without a default gateway, %s: got %d %s (%v), want a 404 that says how to set one", protocol, status, body, err)
		}
	}
	s.call(200, "DELETE", "/v1/gateways/"+second, nil)
	want("with one gateway left", "first")
}
