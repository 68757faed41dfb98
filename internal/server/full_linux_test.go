package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/proctest"
)

// Guarantee: on a full disk requests are served, reports can be read, /readyz is 200 and says
// degraded, and a metric says so; all of that ends when there is space again, and nothing is
// lost (contract, sections 1 and 7).
func TestFullDiskDegrades(t *testing.T) {
	if !proctest.Alone(t) {
		return
	}
	f := startServing(t)
	f.request(t)
	const degraded = "\ndegraded: "
	if got := f.ops(t, "/readyz"); got != "ready\n" {
		t.Errorf("/readyz: got %q before the disk is full, want ready alone", got)
	}
	release := proctest.LimitFileSize(t, 1)
	released := false
	defer func() {
		if !released {
			release()
		}
	}()
	f.request(t)
	awaittest.True(t, "/readyz says degraded", func() bool { return strings.Contains(f.ops(t, "/readyz"), degraded) })
	if got := f.ops(t, "/metrics"); !strings.Contains(got, `keygate_degraded{reason="`) || !strings.Contains(got, `"} 1`) {
		t.Error("/metrics does not say that the server is degraded")
	}
	gateway := "/v1/gateways/" + f.gateway
	for _, c := range []struct {
		method, path, body string
		missing            bool
	}{
		{"GET", "/v1/reports/traffic", "", true},
		{"GET", "/v1/reports/top", "", true},
		{"GET", "/v1/audit-log", "", true},
		{"GET", "/v1/requests", "", false},
		{"POST", gateway + "/limits/simulate", `{"rate_limit":{"sustained":"1/h"}}`, true},
		{"PUT", gateway + "/config?dry_run=true&effect=true", `{"routes":[]}`, true},
	} {
		got := f.Call(c.method, c.path, f.AdminKey, c.body)
		said := strings.Contains(got.Body, `"incomplete":true,"incomplete_reason":"`) && strings.Contains(got.Body, "the disk of the database")
		if got.Status != http.StatusOK || said != c.missing {
			t.Errorf("%s %s: got %d %s on a full disk, want 200, and that it is incomplete because of the disk: %v", c.method, c.path, got.Status, got.Body, c.missing)
		}
	}
	if got := f.Call("GET", "/v1/audit-log?format=jsonl", f.AdminKey, ""); !strings.Contains(got.Header.Get("X-Keygate-Incomplete"), "the disk of the database") {
		t.Errorf("the export has the header %q, want that it is incomplete because of the disk", got.Header.Get("X-Keygate-Incomplete"))
	}
	f.request(t)
	release()
	released = true
	awaittest.True(t, "/readyz is ready alone", func() bool { return f.ops(t, "/readyz") == "ready\n" })
	if got := f.Call("GET", "/v1/reports/traffic", f.AdminKey, ""); strings.Contains(got.Body, "incomplete") {
		t.Errorf("got %s when there is space again, want a complete report", got.Body)
	}
	if got := f.counted(t); got != 3 {
		t.Errorf("the report has %d requests, want all 3", got)
	}
}

// Guarantee: a server that stops while the disk is full says how many records it has lost.
func TestStopSaysWhatIsLost(t *testing.T) {
	if !proctest.Alone(t) {
		return
	}
	f := startServing(t)
	release := proctest.LimitFileSize(t, 1)
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
