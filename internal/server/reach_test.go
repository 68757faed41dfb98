package server_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// Guarantee: creating a gateway, or changing its upstream_url, warns if the upstream cannot be reached, and why, and
// happens all the same; no address is named, and an account reaches no other addresses than by its requests. A change of
// anything else connects to nothing.
func TestUnreachableUpstreamsAreWarnedOf(t *testing.T) {
	s := keygatetest.Start(t)
	account, err := s.Admin.CreateAccount(t.Context(), client.CreateAccountRequest{Name: "tenant", Plan: "starter"})
	if err != nil {
		t.Fatal(err)
	}
	tenant := s.Client(account.Secret)
	served := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(served.Close)
	secured := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secured.Close)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and sends nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	closed := porttest.Reserve(t)
	for name, c := range map[string]struct {
		api       *client.Client
		url, want string
	}{
		"reached":             {s.Admin, served.URL, ""},
		"refused":             {s.Admin, "http://" + closed, "nothing listens at the host and port"},
		"not trusted":         {s.Admin, secured.URL, "upstream's certificate"},
		"no TLS":              {s.Admin, "https" + strings.TrimPrefix(served.URL, "http"), "TLS handshake with the upstream failed"},
		"silent":              {s.Admin, "https://" + silent.Addr().String(), "within 2 s"},
		"Keygate itself":      {s.Admin, s.AdminURL(), "address of the upstream is not allowed"},
		"not for the account": {tenant, served.URL, "address of the upstream is not allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			g, err := c.api.CreateGateway(t.Context(), client.CreateGatewayRequest{Name: name, UpstreamURL: c.url})
			if err != nil {
				t.Fatal(err)
			}
			checkReach(t, g, c.want)
			if g, err = c.api.UpdateGateway(t.Context(), g.GatewayID, client.GatewayPatch{UpstreamURL: client.Set(c.url + "/v1")}); err != nil {
				t.Fatal(err)
			}
			checkReach(t, g, c.want)
			if g, err = c.api.UpdateGateway(t.Context(), g.GatewayID, client.GatewayPatch{Name: client.Set(name + " renamed")}); err != nil {
				t.Fatal(err)
			}
			checkReach(t, g, "")
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("took %s, want little more than 2 s for each try", took)
			}
		})
	}
}

func checkReach(t *testing.T, g *client.Gateway, want string) {
	t.Helper()
	var got []string
	if g.Warnings != nil {
		got = *g.Warnings
	}
	switch {
	case want == "" && got != nil:
		t.Errorf("%s: got the warnings %q, want none", g.UpstreamURL, got)
	case want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], "upstream_url cannot be reached now: ") || !strings.Contains(got[0], want)):
		t.Errorf("%s: got the warnings %q, want one with %q", g.UpstreamURL, got, want)
	case strings.Contains(strings.Join(got, ""), "127.0.0.1"):
		t.Errorf("%s: got %q, want no address", g.UpstreamURL, got)
	}
}
