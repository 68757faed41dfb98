package provider_test

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/provider"
)

// jwksOf returns a JWK Set with the key of RFC 8037 under each kid.
func jwksOf(kids ...string) string {
	keys := make([]string, len(kids))
	for n, kid := range kids {
		keys[n] = fmt.Sprintf(`{"kty":"OKP","crv":"Ed25519","kid":%q,"alg":"EdDSA","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIuaPcHURo"}`, kid)
	}
	return `{"keys":[` + strings.Join(keys, ",") + `]}`
}

// server is a provider on loopback.
type server struct {
	*httptest.Server
	mux *http.ServeMux
	ca  string
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{mux: http.NewServeMux()}
	s.Server = httptest.NewUnstartedServer(s.mux)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	pair := certificatetest.New(t, "provider")
	s.ca = string(pair.Cert)
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// serve serves a document.
func (s *server) serve(path, document string, header ...string) {
	s.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for n := 0; n < len(header); n += 2 {
			w.Header().Set(header[n], header[n+1])
		}
		_, _ = fmt.Fprint(w, document)
	})
}

// source returns the source of keys at a path.
func (s *server) source(path string) issuer.Source { return issuer.Source{URL: s.URL + path, CA: s.ca} }

// newClient returns a client that may connect to loopback.
func newClient() *provider.Client {
	return provider.NewClient(provider.ClientConfig{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
}

// failed returns why a fetch of a tenant's issuer fails.
func failed(t *testing.T, s issuer.Source) string {
	t.Helper()
	keys, err := newClient().Keys(t.Context(), s, true)
	var known *provider.Error
	if !errors.As(err, &known) {
		t.Fatalf("got %v, %v; want an error of the provider", keys, err)
	}
	if strings.ContainsAny(known.Message, "\n\r\x1b") || len(known.Message) > 1500 {
		t.Errorf("got the message %q", known.Message)
	}
	return known.Message
}

// Guarantee: keys are fetched from a URL or by discovery, which must be that of the issuer, and for as long as the provider
// says.
func TestKeysAreFetched(t *testing.T) {
	s := newServer(t)
	s.serve("/keys", jwksOf("a", "b"), "Cache-Control", "public, Max-Age=600", "Age", "60")
	s.serve("/soon", jwksOf("a"), "Cache-Control", "no-cache, max-age=600")
	s.serve("/plain", jwksOf("a"), "Content-Type", "text/plain; charset=utf-8")
	s.serve("/tenant/.well-known/openid-configuration", `{"issuer":"`+s.URL+`/tenant/","jwks_uri":"`+s.URL+`/keys","other":[1]}`)
	for name, want := range map[string]struct {
		source issuer.Source
		keys   int
		life   time.Duration
	}{
		"a URL":     {s.source("/keys"), 2, 9 * time.Minute},
		"no cache":  {s.source("/soon"), 1, 0},
		"no header": {s.source("/plain"), 1, -1},
		"discovery": {issuer.Source{Issuer: s.URL + "/tenant/", CA: s.ca}, 2, 9 * time.Minute},
	} {
		got, err := newClient().Keys(t.Context(), want.source, true)
		if err != nil || len(got.Set.Keys()) != want.keys || got.Life != want.life {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

// Guarantee: what is stored of a set is its keys that verify tokens, with nothing else of the document.
func TestStoredDocument(t *testing.T) {
	s := newServer(t)
	s.serve("/keys", strings.TrimSuffix(jwksOf("a"), "]}")+`,{"kty":"oct","k":"AA","kid":"secret"},{"kty":"OKP","crv":"X25519","use":"enc","x":"11qY"}],"more":"`+strings.Repeat("x", 1000)+`"}`)
	got, err := newClient().Keys(t.Context(), s.source("/keys"), true)
	if err != nil {
		t.Fatal(err)
	}
	document, err := got.Set.Document()
	const want = `{"keys":[{"use":"sig","kty":"OKP","kid":"a","crv":"Ed25519","alg":"EdDSA","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIuaPcHURo"}]}`
	if err != nil || string(document) != want {
		t.Errorf("got %s, %v; want %s", document, err, want)
	}
}

// Guarantee: a hostile provider is refused for what it does: redirects, wrong statuses, types and documents, an endless
// body and one that is endless when it is unpacked, 10,000 keys, another issuer, a plain jwks_uri.
func TestHostileProviders(t *testing.T) {
	s := newServer(t)
	var reached atomic.Bool
	s.mux.HandleFunc("/private", func(http.ResponseWriter, *http.Request) { reached.Store(true) })
	s.mux.Handle("/redirect", http.RedirectHandler(s.URL+"/private", http.StatusFound))
	s.mux.Handle("/metadata", http.RedirectHandler("http://169.254.169.254/latest", http.StatusMovedPermanently))
	s.mux.Handle("/redirecting/.well-known/openid-configuration", http.RedirectHandler("/private", http.StatusTemporaryRedirect))
	endless := func(w http.ResponseWriter, out interface{ Write([]byte) (int, error) }) {
		w.Header().Set("Content-Type", "application/json")
		_, err := fmt.Fprint(out, `{"keys":[`)
		for err == nil {
			_, err = fmt.Fprint(out, strings.Repeat(" ", 1<<16))
		}
	}
	s.mux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) { endless(w, w) })
	s.mux.HandleFunc("/bomb", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		endless(w, gzip.NewWriter(w))
	})
	s.mux.HandleFunc("/not-gzip", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = fmt.Fprint(w, jwksOf("a"))
	})
	s.mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "1000")
		_, _ = fmt.Fprint(w, `{"keys":`)
		panic(http.ErrAbortHandler)
	})
	s.mux.HandleFunc("/head", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) })
	s.serve("/html", jwksOf("a"), "Content-Type", "text/html")
	s.serve("/many", jwksOf(make([]string, 10_000)...))
	s.serve("/list", `[]`)
	s.serve("/twice", `{"keys":[],"keys":[]}`)
	s.serve("/other/.well-known/openid-configuration", `{"issuer":"`+s.URL+`/evil","jwks_uri":"`+s.URL+`/keys"}`)
	s.serve("/plain/.well-known/openid-configuration", `{"issuer":"`+s.URL+`/plain","jwks_uri":"http://127.0.0.1/keys"}`)
	s.serve("/user/.well-known/openid-configuration", `{"issuer":"`+s.URL+`/user","jwks_uri":"https://u:p@127.0.0.1/keys"}`)
	s.serve("/none/.well-known/openid-configuration", `{"issuer":"`+s.URL+`/none"}`)
	s.serve("/text/.well-known/openid-configuration", `"hello"`)
	for path, want := range map[string]string{
		"/redirect": "redirects are not followed", "/metadata": "redirects are not followed", "/endless": "more than 1 MiB", "/bomb": "more than 1 MiB",
		"/not-gzip": "not the gzip", "/cut": "ended before", "/head": "ended before", "/html": `the type "text/html", and not with JSON`, "/many": "at most 100 keys, and not 10000",
		"/list": "must be a JSON object", "/twice": "different names", "/absent": "the status 404",
	} {
		if got := failed(t, s.source(path)); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	for path, want := range map[string]string{
		"/redirecting": "redirects are not followed", "/other": "is one of the issuer", "/plain": "not a URL with https", "/user": "not a URL with https", "/none": "has no jwks_uri", "/text": "not a JSON object",
		"/absent": "check the URL of the document of discovery",
	} {
		if got := failed(t, issuer.Source{Issuer: s.URL + path, CA: s.ca}); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	if reached.Load() {
		t.Error("a redirect was followed")
	}
}

// Guarantee: a tenant's provider must have a public address, also if a name or discovery leads elsewhere, and the message
// does not say where it leads. The operator's may be in networks that are allowed.
func TestAddressesAreGuarded(t *testing.T) {
	s := newServer(t)
	s.serve("/keys", jwksOf("a"))
	guarded := provider.NewClient(provider.ClientConfig{})
	_, err := guarded.Keys(t.Context(), s.source("/keys"), true)
	var refused *netguard.RefusedError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "must have public addresses") || strings.Contains(err.Error(), "loopback") {
		t.Errorf("a tenant: got %v", err)
	}
	if _, err := guarded.Keys(t.Context(), issuer.Source{URL: "https://169.254.169.254/keys"}, false); !strings.Contains(fmt.Sprint(err), "link-local") {
		t.Errorf("the operator, at a metadata service: got %v", err)
	}
	if got, err := guarded.Keys(t.Context(), s.source("/keys"), false); err != nil || len(got.Set.Keys()) != 1 {
		t.Errorf("the operator: got %v, %v", got, err)
	}
}

// Guarantee: no spelling of an address that is not public lets a tenant reach it, at jwks_url, at the issuer, or where discovery
// leads.
func TestSpellingsOfPrivateAddresses(t *testing.T) {
	guarded := provider.NewClient(provider.ClientConfig{})
	for _, host := range []string{
		"127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254", "192.0.0.8", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
		"[::]", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:169.254.169.254]", "[0:0:0:0:0:ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::7f00:1]",
		"[2002:7f00:1::]", "[2001:0:7f00:1::]", "[fe80::1]", "[fec0::1]", "[fc00::1]", "[fd00:ec2::254]", "[ff02::1]", "[2001:db8::1]", "localhost",
	} {
		for _, port := range []string{"", ":443", ":8443"} {
			for _, source := range []issuer.Source{{URL: "https://" + host + port + "/keys"}, {Issuer: "https://" + host + port + "/"}} {
				_, err := guarded.Keys(t.Context(), source, true)
				var refused *netguard.RefusedError
				if !errors.As(err, &refused) {
					t.Errorf("%+v: got %v", source, err)
				}
			}
		}
	}
}

// Guarantee: the provider must have a certificate of the authority that ca names, or of the system's roots.
func TestCertificatesAreVerified(t *testing.T) {
	s := newServer(t)
	s.serve("/keys", jwksOf("a"))
	if got := failed(t, issuer.Source{URL: s.URL + "/keys"}); !strings.Contains(got, "set ca to") {
		t.Errorf("got %q", got)
	}
	other := s.source("/keys")
	other.CA = string(certificatetest.New(t, "other").Cert)
	if got := failed(t, other); !strings.Contains(got, "unknown authority") {
		t.Errorf("got %q", got)
	}
	plain := httptest.NewServer(s.mux)
	defer plain.Close()
	if got := failed(t, issuer.Source{URL: strings.Replace(plain.URL, "http:", "https:", 1) + "/keys"}); !strings.Contains(got, "does not use TLS") {
		t.Errorf("got %q", got)
	}
	if got := failed(t, issuer.Source{URL: plain.URL + "/keys"}); !strings.Contains(got, "must start with https") {
		t.Errorf("got %q", got)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	if got := failed(t, issuer.Source{URL: "https://" + listener.Addr().String()}); !strings.Contains(got, "refused the connection") {
		t.Errorf("got %q", got)
	}
}

// Guarantee: a caller that gives up gets its own error, and the provider is not blamed.
func TestCallerGivesUp(t *testing.T) {
	s := newServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.mux.HandleFunc("/keys", func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() })
	if _, err := newClient().Keys(ctx, s.source("/keys"), true); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
