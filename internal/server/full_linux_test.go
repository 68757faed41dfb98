package server_test

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/disktest"
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

// full is a server with a gateway and a key.
type full struct {
	*keygatetest.Server
	log lockedBuffer
	key string
}

func startFull(t *testing.T) *full {
	t.Helper()
	f := &full{}
	f.Server = keygatetest.StartWith(t, keygatetest.Options{Log: &f.log})
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
	f.key = k.Secret
	return f
}

func (f *full) request(t *testing.T) {
	t.Helper()
	if got := f.Through("", "GET", "/orders", f.key, ""); got.Status != http.StatusOK {
		t.Fatalf("a request got %d %s, want 200", got.Status, got.Body)
	}
}

// ops returns the body of a page of the operators' address, which must be 200.
func (f *full) ops(t *testing.T, page string) string {
	t.Helper()
	status, body := fetch(t, f.OpsURL()+page)
	if status != http.StatusOK {
		t.Fatalf("%s: got status %d, want 200", page, status)
	}
	return body
}

// Guarantee: on a full disk requests are served, reports can be read, /readyz is 200 and says
// degraded, and a metric says so; all of that ends when there is space again, and nothing is
// lost (contract, sections 1 and 7).
func TestFullDiskDegrades(t *testing.T) {
	if !disktest.Alone(t) {
		return
	}
	f := startFull(t)
	f.request(t)
	const report, degraded = "/v1/reports/traffic?interval=1h", "\ndegraded: "
	if got := f.ops(t, "/readyz"); got != "ready\n" {
		t.Errorf("/readyz: got %q before the disk is full, want ready alone", got)
	}
	release := disktest.LimitFileSize(t, 1)
	released := false
	defer func() {
		if !released {
			release()
		}
	}()
	f.request(t)
	waitFor(t, "/readyz says degraded", func() bool { return strings.Contains(f.ops(t, "/readyz"), degraded) })
	if got := f.ops(t, "/metrics"); !strings.Contains(got, `keygate_degraded{reason="`) || !strings.Contains(got, `"} 1`) {
		t.Error("/metrics does not say that the server is degraded")
	}
	for _, path := range []string{report, "/v1/requests", "/v1/audit-log"} {
		if got := f.Call("GET", path, f.AdminKey, ""); got.Status != http.StatusOK {
			t.Errorf("%s: got %d %s on a full disk, want 200", path, got.Status, got.Body)
		}
	}
	f.request(t)
	release()
	released = true
	waitFor(t, "/readyz is ready alone", func() bool { return f.ops(t, "/readyz") == "ready\n" })
	if got := f.Call("GET", report, f.AdminKey, ""); !strings.Contains(got.Body, `"requests":3,`) {
		t.Errorf("got the report %s, want it to have all 3 requests", got.Body)
	}
}

// Guarantee: a server that stops while the disk is full says how many records it has lost.
func TestStopSaysWhatIsLost(t *testing.T) {
	if !disktest.Alone(t) {
		return
	}
	f := startFull(t)
	release := disktest.LimitFileSize(t, 1)
	for range 7 {
		f.request(t)
	}
	_ = f.Running().Stop(t.Context()) // fails, since the disk is full
	release()
	line := ""
	for l := range strings.Lines(f.log.String()) {
		if strings.Contains(l, "records were lost since the start") {
			line = l
		}
	}
	if !strings.Contains(line, `"traffic":7,`) || !strings.Contains(line, `"audit_log":`) {
		t.Errorf("got the line %q, want it to say that 7 requests are lost", line)
	}
	f.Stop()
}
