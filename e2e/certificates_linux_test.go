package e2e

import (
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/acmetest"
	"github.com/keygate/keygate/internal/keygatetest/proctest"
)

// Guarantee: a hostname gets its certificate by the commands of docs/certificates.md alone, typed as they stand there, and a renewal gets
// another one. Only the authority is another one than that of the default, which no test can reach.
func TestGuideOfCertificates(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a guide")
	}
	const hostname, addr = "api.example.com", "127.0.0.1"
	if !proctest.AloneOnNetwork(t, map[string]string{hostname: addr}) {
		return
	}
	ca := acmetest.Start(t, acmetest.Options{HTTPPort: 80, TLSPort: 443})
	ca.Zone.SetHost(hostname, addr)
	trusted := ca.TrustFile(t)
	guideRun{page: "docs/certificates.md", env: []string{
		"KEYGATE_ACME_DIRECTORY=" + ca.Directory, "SSL_CERT_FILE=" + trusted, "CURL_CA_BUNDLE=" + trusted,
	}}.run(t)
	if n := ca.Orders(); n < 2 {
		t.Errorf("the authority got %d orders, want one and one renewal", n)
	}
}
