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

// whole server, as it is delivered, with one gateway.
type served struct {
	*keygatetest.Server
	addr string // of the data plane
	key  string
	cert string // file with the data plane's certificate; "" without TLS
}

// startServer starts a server in front of the upstream at url, with one gateway:
// below /public without a key. args are further flags.
func startServer(t *testing.T, url string, overTLS bool, args ...string) *served {
	t.Helper()
	out := &served{}
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
	id := out.make(t, "/v1/gateways", "gateway_id", `{"name": "wire", "upstream_url": "`+url+`"}`)
	methods := `"methods": ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]`
	out.make(t, "/v1/gateways/"+id+"/routes", "route_id", `{"path": "/*", `+methods+`}`)
	out.make(t, "/v1/gateways/"+id+"/routes", "route_id", `{"path": "/public/*", "auth": "none", `+methods+`}`)
	out.key = out.make(t, "/v1/keys", "key", `{"name": "wire", "scope": "admin"}`)
	return out
}

// make creates a record and returns a member of it.
func (s *served) make(t *testing.T, path, member, body string) string {
	t.Helper()
	a := s.Call("POST", path, s.AdminKey, body)
	if a.Status != http.StatusCreated {
		t.Fatalf("POST %s: %d %s", path, a.Status, a.Body)
	}
	var record map[string]any
	if err := json.Unmarshal([]byte(a.Body), &record); err != nil {
		t.Fatal(err)
	}
	text, ok := record[member].(string)
	if !ok {
		t.Fatalf("no %s in %s", member, a.Body)
	}
	return text
}
