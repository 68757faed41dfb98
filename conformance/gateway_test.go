package conformance

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/keygatetest"
)

// gateway is a whole server with one gateway. It needs a key, except below /public.
type gateway struct {
	*keygatetest.Server
	addr string // of the data plane
	key  string
	cert string // file with the certificate of the data plane; "" without TLS
}

// startGateway starts a server with one gateway, which has these settings in addition to its
// name.
func startGateway(t *testing.T, overTLS bool, settings map[string]any) *gateway {
	t.Helper()
	g := &gateway{}
	var args []string
	if overTLS {
		pair := certificatetest.New(t, "localhost")
		g.cert = filepath.Join(t.TempDir(), "cert.pem")
		key := filepath.Join(t.TempDir(), "key.pem")
		for path, data := range map[string][]byte{g.cert: pair.Cert, key: pair.Key} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		args = []string{"--tls-cert", g.cert, "--tls-key", key}
	}
	g.Server = keygatetest.Start(t, args...)
	g.addr = g.Running().GatewayAddr()
	record := map[string]any{"name": "conformance"}
	for name, value := range settings {
		record[name] = value
	}
	id := g.create(t, "/v1/gateways", "gateway_id", record)
	methods := []string{"GET", "HEAD", "POST", "PUT", "OPTIONS"}
	g.create(t, "/v1/gateways/"+id+"/routes", "route_id", map[string]any{"path": "/*", "methods": methods})
	g.create(t, "/v1/gateways/"+id+"/routes", "route_id", map[string]any{"path": "/public/*", "methods": methods, "auth": "none"})
	g.key = g.create(t, "/v1/keys", "key", map[string]any{"name": "conformance", "scope": "admin"})
	return g
}

// create creates an object through the management API and returns one of its fields.
func (g *gateway) create(t *testing.T, path, field string, record map[string]any) string {
	t.Helper()
	body, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	a := g.Call("POST", path, g.AdminKey, string(body))
	if a.Status != http.StatusCreated {
		t.Fatalf("POST %s: got %d %s, want 201", path, a.Status, a.Body)
	}
	var created map[string]any
	if err := json.Unmarshal([]byte(a.Body), &created); err != nil {
		t.Fatal(err)
	}
	text, ok := created[field].(string)
	if !ok {
		t.Fatalf("got %s, want a field %s", a.Body, field)
	}
	return text
}

// url returns the URL of a path of the data plane, whose certificate is for localhost.
func (g *gateway) url(t *testing.T, path string) string {
	t.Helper()
	if g.cert == "" {
		return "http://" + g.addr + path
	}
	_, port, err := net.SplitHostPort(g.addr)
	if err != nil {
		t.Fatal(err)
	}
	return "https://localhost:" + port + path
}

// clientTLS returns the settings for a client over TLS that speaks HTTP/2.
func (g *gateway) clientTLS(t *testing.T) *tls.Config {
	t.Helper()
	pem, err := os.ReadFile(g.cert)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return &tls.Config{RootCAs: roots, ServerName: "localhost", NextProtos: []string{"h2"}}
}
