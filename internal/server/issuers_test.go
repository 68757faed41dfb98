package server_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/provider"
	"github.com/keygate/keygate/internal/token/tokentest"
)

// identityProvider is a provider on loopback, with discovery. Its keys are all the key of RFC 8037.
type identityProvider struct {
	*httptest.Server
	ca string

	mu   sync.Mutex
	kids []string
	jwks string // in place of kids
	down bool
}

func newIdentityProvider(t *testing.T) *identityProvider {
	t.Helper()
	pair := certificatetest.New(t, "provider")
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	p := &identityProvider{ca: string(pair.Cert)}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	p.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	p.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.StartTLS()
	t.Cleanup(p.Close)
	return p
}

func (p *identityProvider) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case p.down:
		w.WriteHeader(http.StatusBadGateway)
	case r.URL.Path == "/keys" && p.jwks != "":
		_, _ = io.WriteString(w, p.jwks)
	case r.URL.Path == "/keys":
		keys := make([]string, len(p.kids))
		for n, kid := range p.kids {
			keys[n] = fmt.Sprintf(`{"kty":"OKP","crv":"Ed25519","kid":%q,"alg":"EdDSA","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIuaPcHURo"}`, kid)
		}
		_, _ = fmt.Fprintf(w, `{"keys":[%s]}`, strings.Join(keys, ","))
	default:
		_, _ = fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, p.URL, p.URL+"/keys")
	}
}

// set changes what the provider does.
func (p *identityProvider) set(down bool, kids ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down, p.kids = down, kids
}

// kids returns the keys of an issuer.
func kids(i *client.Issuer) string {
	var all []string
	for _, k := range i.Keys {
		all = append(all, *k.Kid)
	}
	return strings.Join(all, " ")
}

// Guarantee: identity.md, section 2. The keys of an issuer are fetched as soon as it is created, and on request. While the
// provider is down those that were fetched stay, over a restart too; the record says why, one event is raised, and /readyz says
// that the server is degraded.
func TestKeysOfIssuersAreFetched(t *testing.T) {
	s := keygatetest.Start(t)
	p := newIdentityProvider(t)
	p.set(false, "a")
	created, err := s.Admin.CreateIssuer(t.Context(), client.CreateIssuerRequest{Name: "login", Issuer: p.URL, CA: p.ca, Audiences: []string{"api"}})
	if err != nil {
		t.Fatal(err)
	}
	read := func() *client.Issuer {
		i, err := s.Admin.Issuer(t.Context(), created.IssuerID)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	awaittest.True(t, "the keys to be fetched", func() bool { return kids(read()) == "a" })
	p.set(false, "b", "a")
	refresh := func() *client.Issuer {
		i, err := s.Admin.RefreshIssuer(t.Context(), created.IssuerID)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	if i := refresh(); kids(i) != "b a" || i.State != "ok" || i.LastError != nil {
		t.Errorf("got %+v", i)
	}
	p.set(true)
	for range 2 {
		if i := refresh(); kids(i) != "b a" || i.State != "unreachable" || !strings.Contains(*i.LastError, "the status 502") {
			t.Errorf("got %+v", i)
		}
	}
	s.Restart()
	if i := read(); kids(i) != "b a" {
		t.Errorf("after a restart: got %+v", i)
	}
	ops := func(path string) string {
		_, body := fetch(t, s.OpsURL()+path)
		return body
	}
	degraded := func() bool { return strings.Contains(ops("/readyz"), "degraded: issuers_unreachable") }
	awaittest.True(t, "/readyz to say that an issuer is unreachable", degraded)
	if !strings.Contains(ops("/metrics"), "\nkeygate_issuers_unreachable 1\n") {
		t.Error("the metrics do not say that an issuer is unreachable")
	}
	events := calling(t, s, "GET", "/v1/events?type=issuer.unreachable", "")["data"].([]any)
	if len(events) != 1 || events[0].(map[string]any)["data"].(map[string]any)["issuer_id"] != created.IssuerID {
		t.Errorf("got the events %v, want one", events)
	}
	p.set(false, "c")
	if i := refresh(); kids(i) != "c" || i.State != "ok" || degraded() {
		t.Errorf("got %+v", i)
	}
}

// Guarantee: the keys of a tenant's issuer come from public addresses alone, and nothing is said of others.
func TestKeysOfTenantsComeFromPublicAddresses(t *testing.T) {
	s := keygatetest.Start(t)
	p := newIdentityProvider(t)
	p.set(false, "a")
	account, err := s.Admin.CreateAccount(t.Context(), client.CreateAccountRequest{Name: "tenant", Plan: "starter"})
	if err != nil {
		t.Fatal(err)
	}
	tenant := s.Client(account.Secret)
	i, err := tenant.CreateIssuer(t.Context(), client.CreateIssuerRequest{Name: "login", Issuer: p.URL, CA: p.ca, Audiences: []string{"api"}})
	if err != nil {
		t.Fatal(err)
	}
	if i, err = tenant.RefreshIssuer(t.Context(), i.IssuerID); err != nil || i.State != "unreachable" || !strings.HasSuffix(*i.LastError, "must have public addresses") || len(i.Keys) != 0 {
		t.Errorf("got %+v, %v", i, err)
	}
}

// Guarantee: identity.md, section 4. A provider that replaces its key, even under the same kid and without an overlap, is asked by
// the first tokens of the new key, which pass then, and by no more than one fetch in 30 s. Tokens of the former key are refused
// from then on. That requests wait for the fetch, and for how long, is what packages provider and token test in virtual time.
func TestProviderReplacesItsKey(t *testing.T) {
	s := keygatetest.Start(t)
	p := newIdentityProvider(t)
	before, after := tokentest.New([32]byte{1}), tokentest.New([32]byte{2})
	p.jwks = before.JWKS()
	i, err := s.Admin.CreateIssuer(t.Context(), client.CreateIssuerRequest{Name: "login", Issuer: p.URL, CA: p.ca, Audiences: []string{"api"}})
	if err != nil {
		t.Fatal(err)
	}
	if i, err = s.Admin.RefreshIssuer(t.Context(), i.IssuerID); err != nil || len(i.Keys) != 1 {
		t.Fatalf("got %+v, %v", i, err)
	}
	gatewayID := calling(t, s, "POST", "/v1/gateways", `{"name":"g","upstream_url":"`+namedUpstream(t, "u")+`","issuers":["login"]}`)["gateway_id"].(string)
	calling(t, s, "POST", "/v1/gateways/"+gatewayID+"/routes", `{"path":"/a","methods":["GET"],"auth":"token"}`)
	begun := time.Now()
	status := func(signer *tokentest.Signer, subject string) int {
		token := signer.Token(p.URL, time.Now(), map[string]any{"sub": subject})
		return s.Through("", http.MethodGet, "/a", "", "", "Authorization", "Bearer "+token).Status
	}
	awaittest.True(t, "a token of the first key to pass", func() bool { return status(before, "ada") == http.StatusOK })
	p.mu.Lock()
	p.jwks = after.JWKS()
	p.mu.Unlock()
	var group sync.WaitGroup
	for n := range 12 { // fewer than the failures after which an address is refused unchecked
		group.Go(func() {
			// The first time, unless the machine takes 2 s for the fetch.
			if !awaittest.Holds(func() bool { return status(after, fmt.Sprint("user", n)) == http.StatusOK }) {
				t.Errorf("a token of the new key of user%d does not pass", n)
			}
		})
	}
	group.Wait()
	awaittest.True(t, "a token of the former key to be refused", func() bool { // with 429 first, if the fetch took long
		got := status(before, "ada")
		if got == http.StatusOK {
			t.Fatal("a token of the former key passes")
		}
		return got == http.StatusUnauthorized
	})
	_, metrics := fetch(t, s.OpsURL()+"/metrics")
	most := 1 + int(time.Since(begun)/provider.RenewEvery)
	_, rest, _ := strings.Cut(metrics, "\nkeygate_issuer_fetches_by_token_total ")
	text, _, _ := strings.Cut(rest, "\n")
	if n, err := strconv.Atoi(text); err != nil || n < 1 || n > most {
		t.Errorf("the tokens caused %q fetches, want 1 to %d", text, most)
	}
}

// Guarantee: when a refresh of an issuer returns, every node has the keys that it has fetched: none takes a token of a key that the
// provider has withdrawn, though it has taken that token before.
func TestRefreshIsInForceOnEveryNode(t *testing.T) {
	c := startCluster(t, 2)
	one, other := c.nodes[0], c.nodes[1]
	p := newIdentityProvider(t)
	signers := make([]*tokentest.Signer, 6)
	for n := range signers {
		signers[n] = tokentest.New([32]byte{byte(n)})
	}
	p.jwks = signers[0].JWKS()
	created := again(c, func() (*client.Issuer, error) {
		return one.Admin.CreateIssuer(t.Context(), client.CreateIssuerRequest{Name: "login", Issuer: p.URL, CA: p.ca, Audiences: []string{"api"}})
	})
	refresh := func() {
		again(c, func() (*client.Issuer, error) { return one.Admin.RefreshIssuer(t.Context(), created.IssuerID) })
	}
	refresh()
	calm(t, func() keygatetest.Response {
		return one.Call("POST", "/v1/gateways", c.operator, `{"name":"g","hostname":"g.test","upstream_url":"`+namedUpstream(t, "u")+`","issuers":["login"],"config":"routes: [{path: /a, methods: [GET], auth: token}]"}`)
	}, http.StatusCreated)
	for n, signer := range signers[:len(signers)-1] {
		token := signer.Token(p.URL, time.Now(), nil)
		if got := other.Through("g.test", "GET", "/a", token, ""); got.Status != http.StatusOK {
			t.Fatalf("key %d: got %d %s", n, got.Status, got.Body)
		}
		p.mu.Lock()
		p.jwks = signers[n+1].JWKS()
		p.mu.Unlock()
		refresh()
		if got := other.Through("g.test", "GET", "/a", token, ""); got.Status != http.StatusUnauthorized {
			t.Errorf("key %d, which was withdrawn: got %d %s", n, got.Status, got.Body)
		}
	}
}
