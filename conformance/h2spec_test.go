package conformance

import (
	"encoding/xml"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// specCases is the number of cases of h2spec v2.2.1, without and with its strict mode.
const (
	specCases  = 145
	specStrict = 146
)

// Guarantee: every case of h2spec passes, with and without TLS, also in strict mode. The only
// exception is an invalid preface without TLS: it could be an HTTP/1.1 request, so it gets the
// response to a malformed request before the connection closes.
func TestH2spec(t *testing.T) {
	t.Parallel()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "conformance")
	}))
	t.Cleanup(up.Close)
	tool := filepath.Join(t.TempDir(), "h2spec")
	build := exec.Command("go", "build", "-o", tool, "github.com/summerwind/h2spec/cmd/h2spec")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as all other programs, with which it shares the standard library
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build h2spec: %v\n%s", err, out)
	}
	for _, c := range []struct {
		name    string
		tls     bool
		flags   []string
		allowed string
	}{
		{name: "over TLS", tls: true, flags: []string{"-t", "-k"}},
		{name: "without TLS", allowed: "Sends invalid connection preface"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t, c.tls, map[string]any{"upstream_url": up.URL})
			checkServes(t, g)
			host, port, err := net.SplitHostPort(g.addr)
			if err != nil {
				t.Fatal(err)
			}
			for mode, cases := range map[string]int{"--strict=false": specCases, "--strict": specStrict} {
				report := filepath.Join(t.TempDir(), "report.xml")
				args := append([]string{"-h", host, "-p", port, "-P", "/public/x", "-o", "10", "-j", report, mode}, c.flags...)
				out, _ := exec.CommandContext(t.Context(), tool, args...).CombinedOutput() // the report says which cases failed
				seen, failed := failures(t, report, out)
				if seen != cases {
					t.Errorf("h2spec %s: got %d cases, want %d", mode, seen, cases)
				}
				for name, why := range failed {
					if name != c.allowed {
						t.Errorf("h2spec %s: %q failed: %s", mode, name, why)
					}
				}
			}
		})
	}
}

// checkServes fails the test unless the public route responds.
func checkServes(t *testing.T, g *gateway) {
	t.Helper()
	tr := &http.Transport{ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	if g.cert != "" {
		tr.TLSClientConfig = g.clientTLS(t)
	}
	resp, err := (&http.Client{Transport: tr}).Get(g.url(t, "/public/x"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("got status %d, want 200", resp.StatusCode)
	}
}

// failures reads a report of h2spec: how many cases ran, which of them failed, and why.
func failures(t *testing.T, report string, output []byte) (seen int, failed map[string]string) {
	t.Helper()
	data, err := os.ReadFile(report)
	if err != nil {
		t.Fatalf("h2spec wrote no report: %v\n%s", err, output)
	}
	var suites struct {
		Suites []struct {
			Cases []struct {
				Name    string    `xml:"classname,attr"`
				Failure *string   `xml:"failure"`
				Error   *string   `xml:"error"`
				Skipped *struct{} `xml:"skipped"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(data, &suites); err != nil {
		t.Fatalf("parse the report of h2spec: %v\n%s", err, data)
	}
	failed = map[string]string{}
	for _, suite := range suites.Suites {
		for _, c := range suite.Cases {
			seen++
			for _, why := range []*string{c.Failure, c.Error} {
				if why != nil {
					failed[c.Name] = *why
				}
			}
			if c.Skipped != nil {
				failed[c.Name] = "it was skipped"
			}
		}
	}
	return seen, failed
}
