package cluster

import (
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// Guarantee: plans.md, section 6: with a key that may have one request in flight, three nodes serve a caller that goes round
// them and refuse it never; a request in flight on one node is in the way on the others, until it ends, or until two seconds
// after the lease of the node that was killed.
func TestConcurrencyOverNodes(t *testing.T) {
	f, operator := newNodes(t, leaseTTL.String())
	nodes := f.nodes
	held, release := make(chan struct{}, 1), make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			held <- struct{}{}
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
	}))
	t.Cleanup(upstream.Close)
	api, ctx := nodes[0].api(operator), t.Context()
	g, err := api.CreateGateway(ctx, client.CreateGatewayRequest{Name: "orders", UpstreamURL: upstream.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.CreateRoute(ctx, g.GatewayID, client.CreateRouteRequest{Path: "/{what}", Methods: []string{"GET"}}); err != nil {
		t.Fatal(err)
	}
	k, err := api.CreateKey(ctx, client.CreateKeyRequest{Name: "client", Scope: "read", Concurrency: new(int64(1))})
	if err != nil {
		t.Fatal(err)
	}
	conns := make([]*conn, len(nodes))
	for i, n := range nodes {
		conns[i] = &conn{node: n}
		t.Cleanup(conns[i].close)
	}
	get := func(i int) int {
		t.Helper()
		status, err := conns[i].get("/quick", k.Secret)
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	for i := range 150 {
		if status := get(i % len(nodes)); status != http.StatusOK {
			t.Fatalf("request %d of a caller that goes round: got status %d", i, status)
		}
	}
	hold := func(i int) chan int {
		done := make(chan int, 1)
		go func() {
			c := &conn{node: nodes[i]}
			defer c.close()
			status, _ := c.get("/held", k.Secret)
			done <- status
		}()
		<-held
		return done
	}
	done := hold(0)
	for range 5 {
		for i := range nodes {
			if status := get(i); status != http.StatusTooManyRequests {
				t.Errorf("node %d, while a request is in flight on the first: got status %d", i, status)
			}
		}
	}
	release <- struct{}{}
	if status := <-done; status != http.StatusOK {
		t.Errorf("the request that was held: got status %d", status)
	}
	if !awaittest.Holds(func() bool { return get(1) == http.StatusOK }) {
		t.Error("the slot was not given back")
	}
	hold(0)
	nodes[0].disturbed.Add(1)
	nodes[0].end(syscall.SIGKILL)
	killed := time.Now()
	free := awaittest.Holds(func() bool { return get(1) == http.StatusOK || get(2) == http.StatusOK })
	t.Logf("free %v after the node was killed, with a lease of %v", time.Since(killed), leaseTTL)
	if !free {
		t.Error("the slot of a node that was killed stays taken")
	}
}
