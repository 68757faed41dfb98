package wire

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/keygatetest"
)

// testServer is a whole server with one gateway.
type testServer struct {
	*keygatetest.Server
	addr string // of the data plane
	key  string
	cert string // file with the certificate of the data plane; "" without TLS
}

// startServer starts a server with one gateway in front of the upstream at url. Below
// /public the gateway needs no key. args are further flags.
func startServer(t *testing.T, url string, overTLS bool, args ...string) *testServer {
	t.Helper()
	out := &testServer{}
	if overTLS {
		pair := certificatetest.New(t, hostname)
		dir := t.TempDir()
		out.cert = filepath.Join(dir, "cert.pem")
		key := filepath.Join(dir, "key.pem")
		for path, data := range map[string][]byte{out.cert: pair.Cert, key: pair.Key} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		args = append(args, "--tls-cert", out.cert, "--tls-key", key)
	}
	out.Server = keygatetest.Start(t, args...)
	out.addr = out.Running().GatewayAddr()
	id := out.create(t, "/v1/gateways", "gateway_id", `{"name": "wire", "upstream_url": "`+url+`"}`)
	methods := `"methods": ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]`
	out.create(t, "/v1/gateways/"+id+"/routes", "route_id", `{"path": "/*", `+methods+`}`)
	out.create(t, "/v1/gateways/"+id+"/routes", "route_id", `{"path": "/public/*", "auth": "none", `+methods+`}`)
	out.key = out.create(t, "/v1/keys", "key", `{"name": "wire", "scope": "admin"}`)
	return out
}

// create creates an object through the management API and returns one of its fields.
func (s *testServer) create(t *testing.T, path, field, body string) string {
	t.Helper()
	a := s.Call("POST", path, s.AdminKey, body)
	if a.Status != http.StatusCreated {
		t.Fatalf("POST %s: got %d %s, want 201", path, a.Status, a.Body)
	}
	var record map[string]any
	if err := json.Unmarshal([]byte(a.Body), &record); err != nil {
		t.Fatal(err)
	}
	text, ok := record[field].(string)
	if !ok {
		t.Fatalf("got %s, want a field %s", a.Body, field)
	}
	return text
}
