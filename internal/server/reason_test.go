package server_test

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
	"github.com/keygate/keygate/internal/server"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// failing is an upstream that fails in one way.
type failing struct {
	name     string
	url      string
	settings string // of the gateway, as JSON members
	status   int
	reason   string
	detail   string // a part of it
}

// failingUpstreams starts an upstream for each way to fail.
func failingUpstreams(t *testing.T) []failing {
	t.Helper()
	sends := func(response string) string {
		return upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
			if _, err := c.ReadHead(); err == nil {
				c.Send(response)
			}
		})
	}
	atFirstByte := func(response string) string {
		return upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
			if _, err := c.ReadByte(); err == nil {
				c.Send(response)
			}
		})
	}
	silent := upstreamtest.Serve(t, func(c *upstreamtest.Conn) { _, _ = io.Copy(io.Discard, c) })
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	resetting := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	resetting.Config.Protocols = &http.Protocols{}
	resetting.Config.Protocols.SetUnencryptedHTTP2(true)
	resetting.Start()
	t.Cleanup(resetting.Close)
	refusing := porttest.Reserve(t)
	garbage, closing, large := sends("garbage, and a secret\r\n\r\n"), sends(""), sends("HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 300<<10)+"\r\n\r\n")
	return []failing{
		{"refused", "http://" + refusing, "", 502, "connection_refused", refusing},
		{"refused-tls", "https://" + refusing, "", 502, "connection_refused", refusing},
		{"name", "http://" + strings.Repeat("x", 60) + ".invalid", "", 502, "name_", ".invalid"},
		{"name-tls", "https://" + strings.Repeat("x", 60) + ".invalid", "", 502, "name_", ".invalid"},
		{"certificate", untrusted.URL, "", 502, "certificate_rejected", "x509"},
		{"no-tls", "https://" + atFirstByte(""), "", 502, "closed_early", ""},
		{"other-protocol", "https://" + atFirstByte("HTTP/1.1 400 Bad Request\r\n\r\n"), "", 502, "tls_failed", "TLS"},
		{"handshake", "https://" + silent, `,"upstream_connect_timeout":"100ms"`, 502, "connect_timeout", "TLS handshake"},
		{"garbage", "http://" + garbage, "", 502, "malformed_response", garbage},
		{"not-http2", "h2c://" + garbage, "", 502, "malformed_response", ""},
		{"large", "http://" + large, "", 502, "response_too_large", large},
		{"closing", "http://" + closing, "", 502, "closed_early", closing},
		{"reset", strings.Replace(resetting.URL, "http:", "h2c:", 1), "", 502, "closed_early", ""},
		{"silent", "http://" + silent, `,"timeout":"1s"`, 504, "timeout", silent},
		{"silent-h2c", "h2c://" + silent, `,"timeout":"1s"`, 504, "timeout", silent},
		{"guard", "http://169.254.1.1:80", "", 502, "address_not_allowed", "169.254.1.1"},
	}
}

// decided is the decision of a request in the request log.
type decided struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Reason  *string `json:"reason"`
	Detail  *string `json:"detail"`
}

// newGateway creates a gateway with a public route for everything and returns its hostname.
func newGateway(t *testing.T, s *keygatetest.Server, key, host, url, settings string) string {
	t.Helper()
	r := s.Call("POST", "/v1/gateways", key, fmt.Sprintf(`{"name":%[1]q,"hostname":%[1]q,"upstream_url":%[2]q%[3]s}`, host, url, settings))
	var g struct {
		ID string `json:"gateway_id"`
	}
	if err := json.Unmarshal([]byte(r.Body), &g); err != nil || r.Status != http.StatusCreated {
		t.Fatalf("create a gateway: got %d %s", r.Status, r.Body)
	}
	if r := s.Call("POST", "/v1/gateways/"+g.ID+"/routes", key, `{"path":"/*","methods":["GET"],"auth":"none"}`); r.Status != http.StatusCreated {
		t.Fatalf("create a route: got %d %s", r.Status, r.Body)
	}
	return host
}

// decisionOf sends a request with a client of the given protocols, which must fail with a
// status, and returns its decision as the key's account sees it.
func decisionOf(t *testing.T, s *keygatetest.Server, key, host string, http2 bool, status int) decided {
	t.Helper()
	var protocols http.Protocols
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	transport := &http.Transport{Protocols: &protocols}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.GatewayURL()+"/x", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	res, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	if res.StatusCode != status {
		t.Fatalf("got status %d, want %d: %s", res.StatusCode, status, body)
	}
	r := s.Call("GET", "/v1/requests/"+res.Header.Get("X-Request-Id"), key, "")
	var logged struct {
		Decision decided `json:"decision"`
	}
	if err := json.Unmarshal([]byte(r.Body), &logged); err != nil || r.Status != http.StatusOK {
		t.Fatalf("explain: got %d %s", r.Status, r.Body)
	}
	return logged.Decision
}

// newTenant creates an account other than default and returns its key.
func newTenant(t *testing.T, s *keygatetest.Server) string {
	t.Helper()
	created, err := server.CreateAccount(t.Context(), settings(t, s.DataDir), nil, "tenant", "platform", []string{"*.tenant.example"})
	if err != nil {
		t.Fatal(err)
	}
	awaittest.True(t, "the account's key is in force", func() bool { return s.Call("GET", "/v1/account", created.Key, "").Status == http.StatusOK })
	return created.Key
}

// Guarantee: the request log says why an upstream could not be reached or did not respond,
// whichever engine served the request. The operator also sees the address and the error,
// and nobody sees what the upstream has sent.
func TestReasonOfEachFailure(t *testing.T) {
	s := keygatetest.Start(t)
	for _, f := range failingUpstreams(t) {
		host := newGateway(t, s, s.AdminKey, f.name+".example", f.url, f.settings)
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s over HTTP/2 %v", f.name, http2), func(t *testing.T) {
				t.Parallel()
				d := decisionOf(t, s, s.AdminKey, host, http2, f.status)
				if d.Reason == nil || !strings.HasPrefix(*d.Reason, f.reason) || d.Detail == nil || !strings.Contains(*d.Detail, f.detail) {
					t.Errorf("got reason %v, detail %v; want %s, and %q in the detail", d.Reason, d.Detail, f.reason, f.detail)
				}
				if d.Detail != nil && strings.Contains(*d.Detail, "secret") {
					t.Errorf("got detail %q, want nothing that the upstream sent", *d.Detail)
				}
			})
		}
	}
}

// Guarantee: another account than default learns the reason, but neither an address nor the
// text of an error.
func TestReasonsHideAddressesFromTenants(t *testing.T) {
	s := keygatetest.Start(t, "--upstream-allow-network", "127.0.0.0/8")
	key := newTenant(t, s)
	list := append(failingUpstreams(t), failing{"guard-tenant", "http://10.1.2.3:80", "", 502, "address_not_allowed", ""})
	for _, f := range list {
		host := newGateway(t, s, key, f.name+".tenant.example", f.url, f.settings)
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			d := decisionOf(t, s, key, host, false, f.status)
			if d.Reason == nil || !strings.HasPrefix(*d.Reason, f.reason) || d.Detail != nil {
				t.Errorf("got reason %v, detail %v; want %s and no detail", d.Reason, d.Detail, f.reason)
			}
			_, address, _ := strings.Cut(f.url, "://")
			if address, _, err := net.SplitHostPort(address); err == nil && strings.Contains(d.Message, address) {
				t.Errorf("got message %q, want no address", d.Message)
			}
		})
	}
}

// Guarantee: a request that waits for one of the gateway's connections until its timeout
// has a reason of its own.
func TestReasonOfWaitingForConnection(t *testing.T) {
	s := keygatetest.Start(t)
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}))
			up.TLS = &tls.Config{NextProtos: []string{"http/1.1"}}
			settings := `,"timeout":"1s","upstream_max_connections":1`
			if scheme == "http" {
				up.Start()
			} else {
				up.StartTLS()
				root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: up.Certificate().Raw})
				settings += fmt.Sprintf(`,"upstream_ca":%q`, root)
			}
			t.Cleanup(up.Close)
			host := newGateway(t, s, s.AdminKey, scheme+".example", up.URL, settings)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.GatewayURL()+"/stream", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			stream, err := (&http.Transport{}).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Body.Close()
			d := decisionOf(t, s, s.AdminKey, host, false, 504)
			if d.Reason == nil || *d.Reason != "no_free_connection" {
				t.Errorf("got reason %v, want no_free_connection", d.Reason)
			}
		})
	}
}
