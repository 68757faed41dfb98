package server_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/redistest"
)

// addressed makes a gateway whose public route /free has the anonymous limit, and whose route /closed needs a key.
func addressed(t *testing.T, api *client.Client, anonymous string) (gatewayID string) {
	t.Helper()
	g, err := api.CreateGateway(t.Context(), client.CreateGatewayRequest{
		Name: "g", UpstreamURL: keygatetest.NewUpstream(t).URL, AnonymousLimit: &client.GlobalLimitInput{Sustained: anonymous},
	})
	if err != nil {
		t.Fatal(err)
	}
	auth := client.CreateRouteRequestAuthNone
	for path, auth := range map[string]*client.CreateRouteRequestAuth{"/free": &auth, "/closed": nil} {
		if _, err := api.CreateRoute(t.Context(), g.GatewayID, client.CreateRouteRequest{Path: path, Methods: []string{"GET"}, Auth: auth}); err != nil {
			t.Fatal(err)
		}
	}
	return g.GatewayID
}

// from sends a request of a client behind a trusted proxy.
func from(t *testing.T, s *keygatetest.Server, path, address string) (status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.GatewayURL()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Forwarded-For", address)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// Guarantee: plans.md, 7: behind a trusted proxy, each client address has the anonymous limit for itself, and an IPv6
// network has it once; the list of limits names the addresses.
func TestEachClientBehindAProxyHasItsOwnLimit(t *testing.T) {
	s := keygatetest.Start(t, "--trusted-proxies", "127.0.0.0/8")
	gatewayID := addressed(t, s.Admin, "2/day")
	for i := range 50 {
		for n, want := range []int{200, 200, 429} {
			if got := from(t, s, "/free", fmt.Sprintf("203.0.113.%d", i)); got != want {
				t.Fatalf("request %d of address %d: %d, want %d", n, i, got, want)
			}
			if got := from(t, s, "/free", fmt.Sprintf("2001:db8:%x::%x", i, n)); got != want {
				t.Fatalf("request %d of network %d: %d, want %d", n, i, got, want)
			}
		}
	}
	addresses := map[string]bool{}
	for l, err := range s.Admin.Limits(t.Context(), gatewayID, client.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if l.Address != nil && l.LimitScope == client.LimitLevelLimitScopeAnonymous && l.Remaining == 0 && l.KeyID == nil {
			addresses[*l.Address] = true
		}
	}
	if len(addresses) != 100 || !addresses["203.0.113.7"] || !addresses["2001:db8:7::/64"] {
		t.Errorf("%d addresses are listed: %v", len(addresses), addresses)
	}
}

// Guarantee: the 401s of one address are one record beyond 60 a minute, and those of others stay; the sum of the counts is
// the number of requests, after a restart too.
func TestRefusedAuthenticationsAreCounted(t *testing.T) {
	s := keygatetest.Start(t, "--trusted-proxies", "127.0.0.0/8")
	addressed(t, s.Admin, "2/day")
	const flood, others = 200, 5
	send := func() {
		for i := range flood {
			if got := from(t, s, "/closed", "203.0.113.7"); got != 401 {
				t.Fatalf("got %d, want 401", got)
			}
			if i < others {
				from(t, s, "/closed", fmt.Sprintf("203.0.113.%d", 100+i))
			}
		}
	}
	sum := func() (records int, events int64) {
		for e, err := range s.Admin.AuditLog(t.Context(), client.AuditFilter{Outcome: "key_invalid"}) {
			if err != nil {
				t.Fatal(err)
			}
			records, events = records+1, events+e.Count
		}
		return records, events
	}
	send()
	// The requests may be spread over two minutes, each with records of its own.
	if records, events := sum(); events != flood+others || records > 2*61+others {
		t.Errorf("%d records stand for %d requests, want %d", records, events, flood+others)
	}
	s.Restart()
	send()
	if records, events := sum(); events != 2*(flood+others) || records > 4*61+2*others {
		t.Errorf("after a restart, %d records stand for %d requests, want %d", records, events, 2*(flood+others))
	}
}

// Guarantee: servers with one limit store share the buckets of addresses.
func TestServersShareLimitsOfAddresses(t *testing.T) {
	redis := redistest.Start(t)
	first := keygatetest.Start(t)
	addressed(t, first.Admin, "5/day")
	first.Stop()
	var pair [2]*keygatetest.Server
	for i := range pair {
		pair[i] = keygatetest.StartWith(t, keygatetest.Options{From: first.DataDir, Args: []string{
			"--redis-url", "redis://" + redis.Addr, "--shared-limits", "exact", "--trusted-proxies", "127.0.0.0/8",
		}})
	}
	for _, address := range []string{"203.0.113.1", "2001:db8::1"} {
		admitted := 0
		for i := range 20 {
			if from(t, pair[i%2], "/free", address) == http.StatusOK {
				admitted++
			}
		}
		// If the machine is so busy that the store is late, at most one more capacity passes.
		if admitted < 5 || admitted > 10 || admitted > 5 && !wasLate(t, pair) {
			t.Errorf("%d requests of %s passed over both servers, want 5", admitted, address)
		}
	}
}
