package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/cabletest"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/keygatetest/providertest"
	"github.com/keygate/keygate/internal/keygatetest/redistest"
)

// Limits of the routes of a fleet.
const (
	sharedRate = 100  // requests a second on /limited, and its capacity
	dailyCap   = 2000 // requests a day on /capped
)

// leaseTTL is --lease-ttl of the nodes.
const leaseTTL = 2 * time.Second

// fleet is three nodes with their stores, and a gateway with a route for each path prefix that the load
// uses.
type fleet struct {
	*testing.T
	postgres *postgrestest.Server
	redis    *redistest.Server
	url      string // of the database, past the cables
	nodes    []*node
	keys     []string // of the management API; each has a rate limit of its own
	gateway  string
	issuer   *tokenIssuer
	provider *providertest.Provider // of users

	admitted struct{ replayed, limited, capped atomic.Int64 } // requests that reached the upstream
	received *receiver
}

// stores are the stores as a node reaches them, and the cables to them, if there are any.
type stores struct {
	databaseURL, redisURL string
	database, limits      *cabletest.Cable
}

// newFleet starts the stores, and then the nodes with the given flags.
func newFleet(t *testing.T, args ...string) *fleet {
	t.Helper()
	f := &fleet{T: t}
	f.postgres = postgrestest.Start(t, postgrestest.Config{})
	f.url = f.postgres.Database(t, "")
	f.redis = redistest.Start(t, "--save", "3600 1")
	f.startNodes(func() (s stores) {
		s.database, s.databaseURL = cabletest.ForURL(t, f.url)
		s.limits = cabletest.New(t, f.redis.Addr)
		s.redisURL = "redis://" + s.limits.Addr
		return s
	}, args...)
	return f
}

// startNodes starts three nodes, each with the stores that connect returns for it, and creates the records
// that the load needs.
func (f *fleet) startNodes(connect func() stores, args ...string) {
	f.Helper()
	f.received = newReceiver(f.T)
	args = append(f.newProvider(), args...)
	secret := filepath.Join(f.TempDir(), "secret.key")
	bytes := make([]byte, 32)
	_, _ = rand.Read(bytes)
	if err := os.WriteFile(secret, bytes, 0o600); err != nil {
		f.Fatal(err)
	}
	operator, err := apikey.Generate(apikey.AccountLevel, rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	for i := range 3 {
		s := connect()
		n := newNode(f.T, "node-"+strconv.Itoa(i), operator, append([]string{
			"--lease-ttl", leaseTTL.String(), "--database-url", s.databaseURL, "--redis-url", s.redisURL, "--secret-key-file", secret,
			"--webhook-allow-network", "127.0.0.0/8", "--webhook-backoff", "100ms,500ms,1s,5s",
		}, args...)...)
		n.database, n.limits = s.database, s.limits
		f.provider.Register(n.adminURL() + callbackPath)
		f.nodes = append(f.nodes, n)
		n.run()
	}
	f.Cleanup(f.mend) // before the nodes are ended
	for _, n := range f.nodes {
		n.awaitReady()
	}
	f.configure(operator)
}

// mend mends all cables.
func (f *fleet) mend() {
	for _, n := range f.nodes {
		for _, c := range []*cabletest.Cable{n.database, n.limits} {
			if c != nil {
				c.Mend()
			}
		}
	}
}

// configure creates the issuer, the gateway, its routes, a webhook endpoint, and the keys of the management API.
func (f *fleet) configure(operator string) {
	f.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(f.serveUpstream))
	f.Cleanup(upstream.Close)
	api := f.nodes[0].api(operator)
	ctx := f.Context()
	f.newTokenIssuer(api)
	f.gateway = must(f, func() (*client.Gateway, error) {
		return api.CreateGateway(ctx, client.CreateGatewayRequest{Name: "orders", UpstreamURL: upstream.URL, Issuers: &[]string{"login"}})
	}).GatewayID
	auth := client.CreateRouteRequestAuthAny
	sustained, daily := fmt.Sprintf("%d/s", sharedRate), fmt.Sprintf("%d/day", dailyCap)
	for path, limit := range map[string]*client.RateLimitInput{
		"/open": nil, "/replayed/{n}": nil, "/limited": {Sustained: &sustained}, "/capped": {Daily: &daily},
	} {
		must(f, func() (*client.Route, error) {
			return api.CreateRoute(ctx, f.gateway, client.CreateRouteRequest{Path: path, Methods: []string{"GET"}, RateLimit: limit, Auth: &auth})
		})
	}
	must(f, func() (*client.NewWebhook, error) {
		return api.CreateWebhook(ctx, client.CreateWebhookRequest{URL: f.received.URL, Events: []string{"key.revoked", "key.rotated"}})
	})
	level := client.CreateKeyRequestLevelAccount
	for i := range 8 {
		k := must(f, func() (*client.NewKey, error) {
			return api.CreateKey(ctx, client.CreateKeyRequest{Name: fmt.Sprintf("manager %d", i), Scope: "admin", Level: &level})
		})
		f.keys = append(f.keys, k.Secret)
	}
}

// serveUpstream counts what the nodes admit.
func (f *fleet) serveUpstream(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.URL.Path, "/replayed/"):
		f.admitted.replayed.Add(1)
		f.Errorf("a request with a revoked key or a denied token, number %s, was admitted", strings.TrimPrefix(r.URL.Path, "/replayed/"))
	case r.URL.Path == "/limited":
		f.admitted.limited.Add(1)
	case r.URL.Path == "/capped":
		f.admitted.capped.Add(1)
	}
	w.Header().Set("Content-Length", "2")
	_, _ = w.Write([]byte("ok"))
}

// must repeats a call that got a 503, and fails the test after any other error.
func must[T any](f *fleet, call func() (T, error)) T {
	f.Helper()
	for {
		v, err := call()
		if err == nil {
			return v
		}
		if !refused(err, http.StatusServiceUnavailable) || f.Context().Err() != nil {
			f.Fatal(err)
		}
	}
}

// refused reports whether err is a response with one of the statuses.
func refused(err error, statuses ...int) bool {
	var e *client.Error
	if !errors.As(err, &e) {
		return false
	}
	for _, status := range statuses {
		if e.Status == status {
			return true
		}
	}
	return false
}

// verifyAudit checks the audit log of the account default, which holds the management calls of the
// test, in the database.
func (f *fleet) verifyAudit() {
	f.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), awaittest.Timeout)
	defer cancel()
	if out, err := command(ctx, []string{"KEYGATE_DATABASE_URL=" + f.url}, "audit-log", "verify"); err != nil {
		f.Errorf("audit-log verify: %v\n%s", err, out)
	}
}
