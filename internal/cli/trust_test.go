package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/cli"
	"github.com/keygate/keygate/internal/keygatetest"
)

// Guarantee: a command that is pointed at a TLS port in plain text, at a plain port with TLS, at a certificate of an unknown
// authority or at the data plane says which it is. A file of authorities is taken from the flag, the environment and the
// context.
func TestWrongAddressesAreExplained(t *testing.T) {
	dir := t.TempDir()
	cert, key := certificatetest.New(t, "one.test").Write(t, dir)
	secure := keygatetest.Start(t, "--admin-tls-cert", cert, "--admin-tls-key", key, "--tls-cert", cert, "--tls-key", key)
	plain := keygatetest.Start(t)
	admin, gateway := secure.Running().AdminAddr(), plain.Running().GatewayAddr()
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	keyed := func(s *keygatetest.Server) map[string]string { return map[string]string{"KEYGATE_API_KEY": s.AdminKey} }
	for _, c := range []struct {
		name   string
		env    map[string]string
		args   []string
		status int
		says   string
	}{
		{"TLS in plain text", keyed(secure), []string{"--url", "http://" + admin}, 0, "speaks TLS at this port"},
		{"the data plane's TLS in plain text", keyed(secure), []string{"--url", "http://" + secure.Running().GatewayAddr()}, 0, "this port speaks TLS: write https in the URL"},
		{"plain text with TLS", keyed(plain), []string{"--url", "https://" + plain.Running().AdminAddr()}, 7, "speaks plain HTTP at this port: give --url http://"},
		{"an unknown authority", keyed(secure), []string{"--url", "https://" + admin}, 7, "give its certificate with --ca-file FILE or KEYGATE_CA_FILE"},
		{"a file without certificates", keyed(secure), []string{"--url", "https://" + admin, "--ca-file", empty}, 1, "empty.pem has no certificate"},
		{"the data plane", keyed(plain), []string{"--url", "http://" + gateway}, 5, "this is the address of a gateway, and not of the management API"},
	} {
		status, _, says := runWith(t, c.env, append([]string{"gateways", "list"}, c.args...)...)
		if folded := strings.Join(strings.Fields(says), " "); status == 0 || c.status != 0 && status != c.status || !strings.Contains(folded, c.says) {
			t.Errorf("%s: exit status %d, %s\nwant %d and %q", c.name, status, says, c.status, c.says)
		}
	}
	// With a gateway there is no 404: its 401 is told apart from the management API's.
	if r := plain.Call("POST", "/v1/gateways", plain.AdminKey, `{"name": "g", "upstream_url": "http://127.0.0.1:9"}`); r.Status != 201 {
		t.Fatalf("create a gateway: got %d %s", r.Status, r.Body)
	}
	status, _, says := runWith(t, keyed(plain), "gateways", "list", "--url", "http://"+gateway)
	if status != 4 || !strings.Contains(strings.Join(strings.Fields(says), " "), "this is the address of a gateway") {
		t.Errorf("a 401 of the data plane: exit status %d, %s", status, says)
	}
	env := keyed(secure)
	if status, _, says := runWith(t, env, "gateways", "list", "--url", "https://"+admin, "--ca-file", cert); status != 0 {
		t.Errorf("--ca-file: exit status %d, %s", status, says)
	}
	env["KEYGATE_CA_FILE"] = cert
	if status, _, says := runWith(t, env, "gateways", "list", "--url", "https://"+admin); status != 0 {
		t.Errorf("KEYGATE_CA_FILE: exit status %d, %s", status, says)
	}
	config := t.TempDir()
	in := func(stdin string, args ...string) (int, string) {
		var out strings.Builder
		return cli.Run(t.Context(), &cli.System{
			In: strings.NewReader(stdin), Out: &out, Err: &out, Version: "test", ConfigDir: config,
			Env: func(string) (string, bool) { return "", false },
		}, args), out.String()
	}
	if status, says := in(secure.AdminKey, "login", "--url", "https://"+admin, "--ca-file", cert); status != 0 {
		t.Fatalf("login: exit status %d, %s", status, says)
	}
	if status, says := in("", "gateways", "list"); status != 0 {
		t.Errorf("a context with authorities: exit status %d, %s", status, says)
	}
}
