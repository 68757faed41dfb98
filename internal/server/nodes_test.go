package server_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/cabletest"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
)

// cluster is several servers on one database, and a cable between the last server and the database.
type cluster struct {
	*testing.T
	url      string
	operator string // a key of the account default
	nodes    []*keygatetest.Server
	logs     []*lockedBuffer
	cable    *cabletest.Cable
}

// startCluster starts nodes with the given flags. The last node reaches the database over a cable.
func startCluster(t *testing.T, nodes int, args ...string) *cluster {
	t.Helper()
	c := &cluster{T: t, url: postgrestest.Empty(t), operator: must(apikey.Generate(apikey.AccountLevel, rand.Reader))}
	var end string
	c.cable, end = cabletest.ForURL(t, c.url)
	for i := range nodes {
		url := c.url
		if i == nodes-1 {
			url = end
		}
		c.start(fmt.Sprintf("node-%d", i), url, args...)
	}
	t.Cleanup(c.cable.Mend) // before the nodes stop
	return c
}

// again repeats a call that got a 503, as its message says. A machine with little time for the database may
// be the cause.
func again[T any](c *cluster, call func() (T, error)) (v T) {
	c.Helper()
	awaittest.True(c, "the call is not refused with 503", func() bool {
		var err error
		v, err = call()
		var refused *client.Error
		if errors.As(err, &refused) && refused.Status == http.StatusServiceUnavailable {
			return false
		}
		if err != nil {
			c.Fatal(err)
		}
		return true
	})
	return v
}

// revoke revokes a key through a node.
func (c *cluster) revoke(node *keygatetest.Server, keyID string) (got keygatetest.Response) {
	c.Helper()
	awaittest.True(c, "the revocation is not refused with 503", func() bool {
		got = node.Call("DELETE", "/v1/keys/"+keyID, c.operator, "")
		return got.Status != http.StatusServiceUnavailable
	})
	return got
}

// start starts a node. Its lease lasts a minute, so that no slow machine ends it, unless args say otherwise
// because the test is about the end of a lease.
func (c *cluster) start(name, url string, args ...string) *keygatetest.Server {
	c.Helper()
	log := &lockedBuffer{}
	s := keygatetest.StartWith(c, keygatetest.Options{
		Log: log, Args: append([]string{"--node-name", name, "--lease-ttl", "1m", "--database-url", url, "--secret-key-file", secretKey(c.T, 1)}, args...),
		Settings: map[string]string{config.AdminKeyVariable: c.operator},
	})
	c.nodes, c.logs = append(c.nodes, s), append(c.logs, log)
	return s
}

// gateway creates a gateway with a public upstream, and returns a function that creates keys for it.
func (c *cluster) gateway() (newKey func() (secret, keyID string)) {
	c.Helper()
	admin := c.nodes[0].Admin
	g := again(c, func() (*client.Gateway, error) {
		return admin.CreateGateway(c.Context(), client.CreateGatewayRequest{Name: "orders", UpstreamURL: keygatetest.NewUpstream(c).URL})
	})
	again(c, func() (*client.Route, error) {
		return admin.CreateRoute(c.Context(), g.GatewayID, client.CreateRouteRequest{Path: "/orders", Methods: []string{"GET"}})
	})
	return func() (secret, keyID string) {
		c.Helper()
		k := again(c, func() (*client.NewKey, error) {
			return admin.CreateKey(c.Context(), client.CreateKeyRequest{Name: "k", Scope: "read:orders"})
		})
		return k.Secret, k.KeyID
	}
}

func (c *cluster) statuses(key string) (all []int) {
	c.Helper()
	for _, n := range c.nodes {
		all = append(all, n.Through("", "GET", "/orders", key, "").Status)
	}
	return all
}

// Guarantee: when a call that creates or revokes a key returns, every node accepts or refuses the key, even
// if the call was a repetition; and the response has the number of the change.
func TestChangesAreInForceOnEveryNode(t *testing.T) {
	c := startCluster(t, 3)
	newKey := c.gateway()
	for i := range 30 {
		key, keyID := newKey()
		if got := c.statuses(key); fmt.Sprint(got) != "[200 200 200]" {
			t.Fatalf("with a new key the nodes responded %v, want 200 from each", got)
		}
		got := c.revoke(c.nodes[i%3], keyID)
		if got.Status != http.StatusOK || got.Header.Get("X-Keygate-Change") == "" {
			t.Fatalf("revoking got %d %v %s", got.Status, got.Header, got.Body)
		}
		if got := c.statuses(key); fmt.Sprint(got) != "[401 401 401]" {
			t.Fatalf("with a revoked key the nodes responded %v, want 401 from each", got)
		}
		second := c.revoke(c.nodes[(i+1)%3], keyID)
		if second.Status != http.StatusOK || second.Header.Get("X-Keygate-Change") != got.Header.Get("X-Keygate-Change") {
			t.Fatalf("revoking again got %d %v %s", second.Status, second.Header, second.Body)
		}
	}
	_, keyID := newKey()
	got := c.nodes[0].Call("DELETE", "/v1/keys/"+keyID+"?wait=false", c.operator, "")
	if got.Status != http.StatusOK || !strings.HasSuffix(got.Header.Get("X-Keygate-Acknowledged"), "/3") {
		t.Errorf("without waiting: got %d %v, want the number of nodes that have the change", got.Status, got.Header)
	}
}

// Guarantee: a change waits for a node that cannot reach the database until its lease has ended; from then
// on the node responds with 503, and with the right status when it can reach the database again.
func TestChangesWaitForTheLeaseOfANodeThatIsCutOff(t *testing.T) {
	c := startCluster(t, 3, "--lease-ttl", "5s")
	newKey := c.gateway()
	key, keyID := newKey()
	other, _ := newKey()
	last := c.nodes[2]
	c.cable.Sever()
	revoked := make(chan keygatetest.Response)
	go func() { revoked <- c.revoke(c.nodes[0], keyID) }()
	var before []int
	for wait := true; wait; {
		select {
		case got := <-revoked:
			if got.Status != http.StatusOK {
				t.Fatalf("revoking got %d %s", got.Status, got.Body)
			}
			wait = false
		default:
			before = append(before, last.Through("", "GET", "/orders", key, "").Status)
		}
	}
	for range 20 {
		if got := last.Through("", "GET", "/orders", key, "").Status; got != http.StatusServiceUnavailable {
			t.Fatalf("after the response the node that is cut off responded %d, want 503", got)
		}
	}
	if before[0] != http.StatusOK {
		t.Errorf("before its lease ended the node responded %d, want 200", before[0])
	}
	if got := last.Through("", "GET", "/orders", key, ""); got.Status != http.StatusServiceUnavailable || !strings.Contains(got.Body, "this node cannot reach its database") {
		t.Errorf("the node that is cut off responded %d %s, want 503 that says so", got.Status, got.Body)
	}
	for name, got := range map[string]keygatetest.Response{
		"a call": last.Call("GET", "/v1/keys", c.operator, ""), "signing in": last.Call("POST", "/v1/session", "", `{"key": "`+c.operator+`"}`, "Origin", last.AdminURL()),
	} {
		if got.Status != http.StatusServiceUnavailable || !strings.Contains(got.Body, "the database cannot be reached") {
			t.Errorf("%s of its management API responded %d %s, want 503 that says so", name, got.Status, got.Body)
		}
	}
	if status, body := fetch(t, last.OpsURL()+"/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "no lease") {
		t.Errorf("its /readyz is %d %q, want 503", status, body)
	}
	if status, _ := fetch(t, last.OpsURL()+"/livez"); status != http.StatusOK {
		t.Errorf("its /livez is %d, want 200", status)
	}
	c.cable.Mend()
	c.cable.HangUp()
	awaittest.True(t, "the node serves again", func() bool { return last.Through("", "GET", "/orders", other, "").Status == http.StatusOK })
	if got := last.Through("", "GET", "/orders", key, "").Status; got != http.StatusUnauthorized {
		t.Errorf("with the database again the node responded %d to the revoked key, want 401", got)
	}
}

// Guarantee: the operator can list the nodes, and delete nodes that are gone; nobody else can. A node
// that stops gives its lease back, so that no change waits for it.
func TestNodesAreShownToTheOperator(t *testing.T) {
	c := startCluster(t, 2)
	c.start("gateways", c.url, "--role", "gateway")
	c.start("managers", c.url, "--role", "control")
	if c.nodes[2].Running().AdminAddr() != "" || c.nodes[3].Running().GatewayAddr() != "" {
		t.Error("a node serves what its role leaves out")
	}
	newKey := c.gateway()
	key, _ := newKey()
	if got := c.nodes[2].Through("", "GET", "/orders", key, "").Status; got != http.StatusOK {
		t.Errorf("the node with the role gateway responded %d, want 200", got)
	}
	c.nodes[1].Stop()
	want := map[string]string{"node-0": "all live", "node-1": "all stopped", "gateways": "gateway live", "managers": "control live"}
	var gone string
	for n, err := range c.nodes[3].Admin.Nodes(t.Context(), client.ListOptions{PageSize: 3}) {
		if err != nil {
			t.Fatal(err)
		}
		if got := string(n.Role) + " " + string(n.State); got != want[n.Name] {
			t.Errorf("%s is %s, want %s", n.Name, got, want[n.Name])
		}
		delete(want, n.Name)
		if n.State == client.NodeStateStopped {
			gone = n.NodeID
		}
	}
	if len(want) > 0 {
		t.Errorf("the list lacks %v", want)
	}
	if n, err := c.nodes[0].Admin.DeleteNode(t.Context(), gone); err != nil || n.Name != "node-1" {
		t.Errorf("deleting the stopped node returned %v, %v", n, err)
	}
	if got := c.nodes[0].Call("GET", "/v1/nodes/"+gone, c.operator, "").Status; got != http.StatusNotFound {
		t.Errorf("the deleted node: got %d, want 404", got)
	}
	made := again(c, func() (*client.NewAccount, error) {
		return c.nodes[0].Admin.CreateAccount(t.Context(), client.CreateAccountRequest{Name: "acme", Plan: "starter"})
	})
	if got := c.nodes[0].Call("GET", "/v1/nodes", made.Secret, "").Status; got != http.StatusForbidden {
		t.Errorf("another account: got %d, want 403", got)
	}
}

// Guarantee: with --on-database-loss=serve a node goes on without its lease, and says so.
func TestNodeServesWithoutItsLeaseIfConfigured(t *testing.T) {
	c := startCluster(t, 2, "--on-database-loss", "serve", "--lease-ttl", "2s")
	newKey := c.gateway()
	key, keyID := newKey()
	c.cable.Sever()
	if got := c.revoke(c.nodes[0], keyID); got.Status != http.StatusOK {
		t.Fatalf("revoking got %d %s", got.Status, got.Body)
	}
	if got := c.nodes[1].Through("", "GET", "/orders", key, "").Status; got != http.StatusOK {
		t.Errorf("the node that is cut off responded %d, want 200 as configured", got)
	}
	if status, body := fetch(t, c.nodes[1].OpsURL()+"/readyz"); status != http.StatusOK || !strings.Contains(body, "degraded: ") {
		t.Errorf("its /readyz is %d %q, want degraded", status, body)
	}
	if _, body := fetch(t, c.nodes[1].OpsURL()+"/metrics"); !strings.Contains(body, "\nkeygate_lease_serving_without 1\n") {
		t.Error("its metrics do not say that it has no lease")
	}
	c.cable.Mend()
	c.cable.HangUp()
}

// Guarantee: revocations under load, with a node that is cut off again and again, are in force on every
// node when they are answered.
func TestRevocationsUnderLoadDuringPartitions(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some lease times")
	}
	c := startCluster(t, 3, "--lease-ttl", "2s")
	newKey := c.gateway()
	stop := make(chan struct{})
	var cutting sync.WaitGroup
	cutting.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				c.cable.Sever()
				_ = c.nodes[2].Through("", "GET", "/orders", "", "")
				for range 200 {
					c.nodes[0].Through("", "GET", "/orders", "", "")
				}
				c.cable.Mend()
				for range 200 {
					c.nodes[0].Through("", "GET", "/orders", "", "")
				}
			}
		}
	})
	for range 60 {
		key, keyID := newKey()
		if got := c.revoke(c.nodes[0], keyID); got.Status != http.StatusOK {
			t.Errorf("revoking got %d %s", got.Status, got.Body)
			break
		}
		for i, got := range c.statuses(key) {
			if got != http.StatusUnauthorized && got != http.StatusServiceUnavailable {
				t.Errorf("node %d responded %d to a revoked key", i, got)
			}
		}
	}
	close(stop)
	cutting.Wait()
}
