package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest"
)

// Guarantee: contract 7, requests. A 404 or 405 of a gateway is in the log of refused requests, and so is one for a host
// without a gateway, for the operator; a 404 of the service is not. The decision says which gateway the host chose,
// whether as the default gateway, and why the nearest routes do not match. The list can be filtered by the result. A
// request that passed is a 404 that says why it is not in the log.
func TestRequestsWithoutARouteAreExplained(t *testing.T) {
	s := keygatetest.Start(t)
	up := keygatetest.NewUpstream(t)
	g, err := s.Admin.CreateGateway(t.Context(), client.CreateGatewayRequest{Name: "orders", UpstreamURL: up.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admin.CreateRoute(t.Context(), g.GatewayID, client.CreateRouteRequest{Path: "/orders/{id}", Methods: []string{"GET"}}); err != nil {
		t.Fatal(err)
	}
	k, err := s.Admin.CreateKey(t.Context(), client.CreateKeyRequest{Name: "k", Scope: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	call := func(method, host, path string, want int) (requestID string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, s.GatewayURL()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		req.Header.Set("Authorization", "Bearer "+k.Secret)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Fatalf("%s %s%s: got %s, want %d", method, host, path, resp.Status, want)
		}
		return resp.Header.Get("X-Request-Id")
	}
	passed := call("GET", g.Hostname, "/orders/17", 200)
	noRoute := call("GET", g.Hostname, "/orders/17/", 404)
	byDefault := call("DELETE", "other.example:8080", "/orders/17", 405)
	if _, err := s.Admin.UpdateGateway(t.Context(), g.GatewayID, client.GatewayPatch{Hostname: client.Set("orders.example")}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		id, code  string
		byDefault bool
		message   []string
	}{
		{noRoute, "route_not_found", true, []string{"GET /orders/{id}", "ends with a slash"}}, // by the hostname of now
		{byDefault, "method_not_allowed", true, []string{"other.example", "no gateway has that name", "lists GET, and not DELETE"}},
	} {
		r, err := s.Admin.RequestByID(t.Context(), c.id)
		if err != nil {
			t.Fatal(err)
		}
		d := r.Decision
		if d.Check != "route" || d.Code != c.code || d.ByDefault == nil || *d.ByDefault != c.byDefault || len(d.NearestRoutes) != 1 || r.Host == nil {
			t.Errorf("got %+v, want a decision with the route that comes near", d)
		}
		for _, part := range c.message {
			if !strings.Contains(d.Message, part) {
				t.Errorf("got message %q, want it to have %q", d.Message, part)
			}
		}
	}
	for result, want := range map[string]string{"no_route": noRoute, "no_method": byDefault, "limited": ""} {
		got := ""
		for r, err := range s.Admin.Requests(t.Context(), client.RequestFilter{Result: result}) {
			if err != nil {
				t.Fatal(err)
			}
			got += r.RequestID
		}
		if got != want {
			t.Errorf("result %s: got requests %q, want %q", result, got, want)
		}
	}
	if _, err := s.Admin.RequestByID(t.Context(), passed); !client.IsNotFound(err) || !strings.Contains(err.Error(), "would have begun at") {
		t.Errorf("a request that passed: got %v, want a 404 that says why it is not in the log", err)
	}

	if _, err := s.Admin.DeleteGateway(t.Context(), g.GatewayID); err != nil {
		t.Fatal(err)
	}
	noGateway := call("GET", "gone.example", "/secret", 404)
	r, err := s.Admin.RequestByID(t.Context(), noGateway)
	if err != nil {
		t.Fatal(err)
	}
	if r.Decision.Check != "host" || r.Decision.Code != "gateway_not_found" || r.GatewayID != nil || !strings.Contains(r.Decision.Message, "gone.example") {
		t.Errorf("got %+v, want the host for which there is no gateway", r.Decision)
	}
}
