package server_test

import (
	"net/http"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// admitted returns how many of n requests with a key pass, sent to the nodes in turn.
func (c *cluster) admitted(key string, n int) (passed int) {
	c.Helper()
	for i := range n {
		switch got := c.nodes[i%len(c.nodes)].Through("", "GET", "/orders", key, ""); got.Status {
		case http.StatusOK:
			passed++
		case http.StatusTooManyRequests:
		default:
			c.Fatalf("a request got %d %s", got.Status, got.Body)
		}
	}
	return passed
}

// limited creates a key that allows ten requests, and one more every six minutes.
func (c *cluster) limited() (secret string) {
	c.Helper()
	k, err := c.nodes[0].Admin.CreateKey(c.Context(), client.CreateKeyRequest{Name: "k", Scope: "read:orders", RateLimit: &client.KeyRateLimit{Rate: "10/hour"}})
	if err != nil {
		c.Fatal(err)
	}
	return k.Secret
}

// Guarantee: without a limit store, several nodes together admit what a limit says: no more pass when a
// node joins or leaves, and in the end the whole limit can be used.
func TestNodesDivideLimits(t *testing.T) {
	c := startCluster(t, 2)
	c.gateway()
	if got := c.admitted(c.limited(), 30); got != 10 {
		t.Errorf("two nodes admitted %d requests, want 10", got)
	}
	used := c.limited()
	before := c.admitted(used, 6)
	third := c.start("node-3", c.url)
	if got := before + c.admitted(used, 60); got > 10 {
		t.Errorf("while a node joined, %d requests were admitted, want at most 10", got)
	}
	if got := c.admitted(c.limited(), 60); got != 10 {
		t.Errorf("three nodes admitted %d requests, want 10", got)
	}
	third.Stop()
	c.nodes = c.nodes[:2]
	awaittest.True(t, "the two nodes have noticed that the third has left", func() bool {
		got := c.admitted(c.limited(), 30)
		if got > 10 {
			t.Fatalf("after a node has left, %d requests were admitted, want at most 10", got)
		}
		return got == 10
	})
}
