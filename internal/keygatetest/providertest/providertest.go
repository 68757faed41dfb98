// Package providertest is an OpenID Connect provider for tests: discovery, keys, the authorization code flow with PKCE (RFC 6749,
// RFC 7636, RFC 9207) and nothing else. It checks what a provider has to check, so that a client that gets something wrong gets no
// token. It asks for no password: a test says who is signed in there.
package providertest

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/token/tokentest"
)

// ClientID is the client that the provider knows.
const ClientID = "keygate"

// codeLifetime is how long a code is good for.
const codeLifetime = time.Minute

// Test is the part of testing.TB that this package needs.
type Test interface {
	certificatetest.Test
	Cleanup(f func())
}

// Provider is a provider on loopback. It is safe for concurrent use.
type Provider struct {
	URL          string // the issuer
	CA           []byte // its certificate, in PEM
	ClientSecret string

	server *httptest.Server

	mu        sync.Mutex
	redirects []string             // the redirect URIs that are registered
	signer    *tokentest.Signer    // signs tokens
	claims    map[string]any       // of who is signed in at the provider
	since     time.Time            // when they authenticated
	codes     map[string]grant     // by code
	change    func(map[string]any) // changes the claims of ID tokens
	tokens    int                  // ID tokens that were given
	asked     int                  // requests of the token endpoint
}

// grant is what a code is good for.
type grant struct {
	query  url.Values // of the request of the authorization
	claims map[string]any
	since  time.Time
	until  time.Time
}

// Start starts a provider, which stops when the test ends.
func Start(t Test) *Provider {
	t.Helper()
	pair := certificatetest.New(t, "provider")
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	p := &Provider{CA: pair.Cert, ClientSecret: rand.Text(), codes: map[string]grant{}, since: time.Now()}
	p.Rotate()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.discovery)
	mux.HandleFunc("GET /keys", p.keys)
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	p.server = httptest.NewUnstartedServer(mux)
	p.server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0) // of browsers that do not trust the certificate at first
	p.server.StartTLS()
	t.Cleanup(p.server.Close)
	p.URL = p.server.URL
	return p
}

// Register registers a redirect URI.
func (p *Provider) Register(redirectURI string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.redirects = append(p.redirects, redirectURI)
}

// SignsIn makes the user with these claims sign in at the provider now. The claims have sub at least.
func (p *Provider) SignsIn(claims map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims, p.since = maps.Clone(claims), time.Now()
}

// Change lets f change the claims of ID tokens from now on; nil ends that. A value of nil removes a claim.
func (p *Provider) Change(f func(claims map[string]any)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change = f
}

// Rotate replaces the key that signs tokens, without an overlap.
func (p *Provider) Rotate() {
	var seed [ed25519.SeedSize]byte
	_, _ = rand.Read(seed[:]) // it never fails
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signer = tokentest.New(seed)
}

// Browser returns a client that keeps cookies, trusts the provider, and goes where it is sent.
func (p *Provider) Browser(t Test) *http.Client {
	t.Helper()
	roots := x509.NewCertPool()
	jar, err := cookiejar.New(nil)
	if !roots.AppendCertsFromPEM(p.CA) || err != nil {
		t.Fatal("make a browser: ", err)
	}
	return &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
}

// Asked returns how many requests the token endpoint has had, and how many ID tokens it has given.
func (p *Provider) Asked() (requests, tokens int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked, p.tokens
}

func (p *Provider) discovery(w http.ResponseWriter, _ *http.Request) {
	respond(w, http.StatusOK, map[string]any{
		"issuer": p.URL, "jwks_uri": p.URL + "/keys", "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token",
		"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"EdDSA"},
		"code_challenge_methods_supported": []string{"S256"}, "token_endpoint_auth_methods_supported": []string{"client_secret_basic"},
		"authorization_response_iss_parameter_supported": true,
	})
}

func (p *Provider) keys(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, p.signer.JWKS())
}

// authorize sends the browser back with a code, or with an error. A redirect URI that is not registered is not gone to.
func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := r.URL.Query()
	to, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("client_id") != ClientID || !slices.Contains(p.redirects, q.Get("redirect_uri")) {
		http.Error(w, "the client or its redirect URI is not registered", http.StatusBadRequest)
		return
	}
	back := url.Values{"state": {q.Get("state")}, "iss": {p.URL}}
	switch {
	case q.Get("response_type") != "code" || !slices.Contains(strings.Fields(q.Get("scope")), "openid") || q.Get("code_challenge_method") != "S256" || q.Get("code_challenge") == "":
		back.Set("error", "invalid_request")
	case p.claims == nil:
		back.Set("error", "access_denied")
	default:
		now := time.Now()
		if q.Get("max_age") == "0" {
			p.since = now
		}
		code := rand.Text()
		p.codes[code] = grant{query: q, claims: p.claims, since: p.since, until: now.Add(codeLifetime)}
		back.Set("code", code)
	}
	to.RawQuery = back.Encode()
	http.Redirect(w, r, to.String(), http.StatusFound)
}

// token gives an ID token for a code, once.
func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	clientID, secret, _ := r.BasicAuth()
	id, _ := url.QueryUnescape(clientID)
	password, _ := url.QueryUnescape(secret)
	if id != ClientID || subtle.ConstantTimeCompare([]byte(password), []byte(p.ClientSecret)) != 1 {
		respond(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
		return
	}
	g, known := p.codes[r.PostFormValue("code")]
	delete(p.codes, r.PostFormValue("code"))
	challenge := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	now := time.Now()
	switch {
	case r.PostFormValue("grant_type") != "authorization_code":
		respond(w, http.StatusBadRequest, map[string]any{"error": "unsupported_grant_type"})
		return
	case !known || now.After(g.until) || r.PostFormValue("redirect_uri") != g.query.Get("redirect_uri") ||
		base64.RawURLEncoding.EncodeToString(challenge[:]) != g.query.Get("code_challenge"):
		respond(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant"})
		return
	}
	claims := map[string]any{"aud": ClientID, "nonce": g.query.Get("nonce"), "iat": now.Unix(), "auth_time": g.since.Unix()}
	maps.Copy(claims, g.claims)
	signer := p.signer
	if p.change != nil {
		p.change(claims)
	}
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	p.tokens++
	respond(w, http.StatusOK, map[string]any{"access_token": rand.Text(), "token_type": "Bearer", "expires_in": 60, "id_token": signer.Token(p.URL, now, claims)})
}

func respond(w http.ResponseWriter, status int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
