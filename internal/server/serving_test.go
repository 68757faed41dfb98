package server_test

import (
	"bytes"
	"net/http"
	"sync"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest"
)

// lockedBuffer is a buffer for a log.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serving is a server with a gateway and a key.
type serving struct {
	*keygatetest.Server
	log        lockedBuffer
	key, keyID string
	gateway    string // identifier
}

func startServing(t *testing.T, args ...string) *serving {
	t.Helper()
	f := &serving{}
	f.Server = keygatetest.StartWith(t, keygatetest.Options{Log: &f.log, Args: args})
	g, err := f.Admin.CreateGateway(t.Context(), client.CreateGatewayRequest{Name: "orders", UpstreamURL: keygatetest.NewUpstream(t).URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Admin.CreateRoute(t.Context(), g.GatewayID, client.CreateRouteRequest{Path: "/orders", Methods: []string{"GET"}}); err != nil {
		t.Fatal(err)
	}
	k, err := f.Admin.CreateKey(t.Context(), client.CreateKeyRequest{Name: "k", Scope: "read:orders"})
	if err != nil {
		t.Fatal(err)
	}
	f.key, f.keyID, f.gateway = k.Secret, k.KeyID, g.GatewayID
	return f
}

func (f *serving) request(t *testing.T) {
	t.Helper()
	if got := f.Through("", "GET", "/orders", f.key, ""); got.Status != http.StatusOK {
		t.Fatalf("a request got %d %s, want 200", got.Status, got.Body)
	}
}

// counted returns how many requests the traffic report has, of the current hour, and of the
// previous one if it has just ended; -1 if the store is away.
func (f *serving) counted(t *testing.T) (n int64) {
	t.Helper()
	report, err := f.Admin.Traffic(t.Context(), client.TrafficQuery{})
	if err != nil {
		return -1
	}
	for i := range report {
		n += report[i].Requests
	}
	return n
}

// ops returns the body of a page of the operators' address, which must be 200.
func (f *serving) ops(t *testing.T, page string) string {
	t.Helper()
	status, body := fetch(t, f.OpsURL()+page)
	if status != http.StatusOK {
		t.Fatalf("%s: got status %d, want 200", page, status)
	}
	return body
}
