package provider

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/keygate/keygate/internal/certificate/servercert"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/jwk"
	"github.com/keygate/keygate/internal/netguard"
)

const (
	discoveryPath = "/.well-known/openid-configuration"
	maxHead       = 64 << 10 // bytes of the header of a response
)

// ClientConfig configures a Client. All fields may be zero.
type ClientConfig struct {
	Guard    *netguard.Guard // nil means one that knows no listeners
	Allow    []netip.Prefix  // networks that are not public and nevertheless allowed
	Resolver *net.Resolver   // nil means the system's
	Roots    *x509.CertPool  // of sources without a CA; nil means the system's
}

// Client fetches keys. It is safe for concurrent use, and keeps no connection.
type Client struct{ cfg ClientConfig }

// NewClient returns a Client.
func NewClient(cfg ClientConfig) *Client {
	cfg.Guard = cmp.Or(cfg.Guard, netguard.New())
	return &Client{cfg: cfg}
}

// Keys is the result of a fetch.
type Keys struct {
	Set  *jwk.Set
	Life time.Duration // how long the provider says that the response is fresh; negative if it does not say
}

// Error says why a fetch failed, in words for the operator of the issuer.
type Error struct {
	Message string
	Err     error // the cause; it may have details that are not for tenants
	Refused bool  // the provider has refused a code
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// problem returns an Error.
func problem(format string, args ...any) *Error { return &Error{Message: fmt.Sprintf(format, args...)} }

// Keys fetches the keys of a source within issuer.FetchTime. public allows only addresses that are public, or of the
// configured networks. The error is an *Error, or that of ctx if the caller gave up.
func (c *Client) Keys(ctx context.Context, s issuer.Source, public bool) (*Keys, error) {
	return with(ctx, c, s.CA, public, func(f *fetch) (*Keys, error) { return f.keys(&s) })
}

// with runs a fetch within issuer.FetchTime. ca has the roots in PEM, or is "". The error is an *Error, or that of ctx.
func with[T any](ctx context.Context, c *Client, ca string, public bool, do func(f *fetch) (*T, error)) (*T, error) {
	within, cancel := context.WithTimeout(ctx, issuer.FetchTime)
	defer cancel()
	f := &fetch{ctx: within}
	roots := c.cfg.Roots
	if ca != "" {
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM([]byte(ca)) {
			return nil, problem("ca has no certificate: give certificates in PEM, or set it to null")
		}
	}
	f.client = c.newClient(roots, public)
	defer f.client.CloseIdleConnections()
	result, err := do(f)
	if err == nil {
		return result, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, explain(within, err)
}

// newClient returns an HTTP client that connects directly and does not follow redirects.
func (c *Client) newClient(roots *x509.CertPool, public bool) *http.Client {
	policy := netguard.Policy{PublicOnly: public, Allow: c.cfg.Allow}
	dialer := &net.Dialer{Timeout: issuer.FetchTime, Resolver: c.cfg.Resolver, ControlContext: c.cfg.Guard.Control(policy)}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				return nil, problem("the URL must start with https://")
			},
			DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				return dialTLS(ctx, dialer, roots, network, addr)
			},
			MaxConnsPerHost:        1,
			MaxResponseHeaderBytes: maxHead,
			ForceAttemptHTTP2:      true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func dialTLS(ctx context.Context, dialer *net.Dialer, roots *x509.CertPool, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	// The transport goes on connecting after a request has ended.
	ctx, cancel := context.WithTimeout(ctx, issuer.FetchTime)
	defer cancel()
	raw, err := netguard.Dial(ctx, dialer, network, addr)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	below := servercert.Below(raw)
	conn, err := servercert.Handshake(ctx, below, below, cfg, host)
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	return conn, nil
}

// fetch is one fetch.
type fetch struct {
	ctx    context.Context //nolint:containedctx // it lives for one fetch
	client *http.Client
}

// keys makes the requests of a fetch.
func (f *fetch) keys(s *issuer.Source) (*Keys, error) {
	at := s.URL
	if at == "" {
		var err error
		if at, err = f.discover(s.Issuer); err != nil {
			return nil, err
		}
	}
	body, header, err := f.get(at, "the keys")
	if err != nil {
		return nil, err
	}
	set, err := jwk.ParseSet(body)
	if err != nil {
		return nil, problem("the keys at %s are not a JWK Set: it %v", shown(at), err)
	}
	return &Keys{Set: set, Life: lifeOf(header)}, nil
}

// discovery is what Keygate reads of the document of OpenID Connect Discovery.
type discovery struct {
	Issuer        string   `json:"issuer"`
	KeysURL       string   `json:"jwks_uri"`
	Authorization string   `json:"authorization_endpoint"`
	Token         string   `json:"token_endpoint"`
	EndSession    string   `json:"end_session_endpoint"`
	TokenMethods  []string `json:"token_endpoint_auth_methods_supported"`
	SendsIssuer   bool     `json:"authorization_response_iss_parameter_supported"`
}

// document returns the document of discovery, which must be one of this issuer: the server of another one must not decide
// about its keys.
func (f *fetch) document(iss string) (*discovery, error) {
	at := strings.TrimSuffix(iss, "/") + discoveryPath
	body, _, err := f.get(at, "the document of discovery")
	if err != nil {
		return nil, err
	}
	var d discovery
	if err := json.Unmarshal(body, &d); err != nil {
		return nil, problem("the document of discovery at %s is not a JSON object with the texts issuer and jwks_uri: set jwks_url, if the provider has no discovery", shown(at))
	}
	if d.Issuer != iss {
		return nil, problem("the document of discovery at %s is one of the issuer %s, and not of %s: set issuer to exactly what tokens have in the claim iss", shown(at), shown(d.Issuer), shown(iss))
	}
	return &d, nil
}

// discover returns the URL of the keys, as OpenID Connect Discovery has it.
func (f *fetch) discover(iss string) (string, error) {
	d, err := f.document(iss)
	if err != nil {
		return "", err
	}
	at := strings.TrimSuffix(iss, "/") + discoveryPath
	switch {
	case d.KeysURL == "":
		return "", problem("the document of discovery at %s has no jwks_uri: set jwks_url", shown(at))
	case !isSecure(d.KeysURL):
		return "", problem("the document of discovery at %s has the jwks_uri %s, which is not a URL with https: set jwks_url", shown(at), shown(d.KeysURL))
	}
	return d.KeysURL, nil
}

// isSecure reports whether s is a URL with https.
func isSecure(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Scheme == "https" && u.Host != "" && u.User == nil
}

// get returns the body of a response with the status 200. what names the document.
func (f *fetch) get(at, what string) ([]byte, http.Header, error) {
	r, err := http.NewRequestWithContext(f.ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, nil, problem("%s is not a valid URL", shown(at))
	}
	r.Header.Set("Accept", "application/jwk-set+json, application/json")
	r.Header.Set("User-Agent", "keygate")
	res, err := f.client.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case res.StatusCode >= 300 && res.StatusCode < 400:
		return nil, nil, problem("the provider redirects from %s, and redirects are not followed: give the URL to which it leads", shown(at))
	case res.StatusCode != http.StatusOK:
		return nil, nil, problem("the provider responds to %s with the status %d: check the URL of %s", shown(at), res.StatusCode, what)
	case !isJSON(kind):
		return nil, nil, problem("the provider responds to %s with the type %s, and not with JSON: check the URL of %s", shown(at), shown(kind), what)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, jwk.MaxBytes+1))
	if err != nil {
		return nil, nil, err
	}
	if len(body) > jwk.MaxBytes {
		return nil, nil, problem("the response of %s has more than 1 MiB", shown(at))
	}
	return body, res.Header, nil
}

// isJSON reports whether a media type is one of JSON. Static file servers know no type of keys, so text and bytes pass too:
// what counts is that the body is JSON.
func isJSON(kind string) bool {
	switch kind {
	case "", "application/json", "text/plain", "application/octet-stream":
		return true
	}
	return strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")
}

// lifeOf returns how long a response is fresh (RFC 9111); negative if it does not say.
func lifeOf(h http.Header) time.Duration {
	life := time.Duration(-1)
	for _, line := range h.Values("Cache-Control") {
		for directive := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(directive)), "=")
			switch name {
			case "no-cache", "no-store":
				return 0
			case "max-age":
				n, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 31)
				if err == nil {
					life = time.Duration(n) * time.Second
				}
			}
		}
	}
	if age, err := strconv.ParseUint(h.Get("Age"), 10, 31); err == nil && life >= 0 {
		life = max(0, life-time.Duration(age)*time.Second)
	}
	return life
}

// shown returns a text of a stranger as a message shows it: on one line, in ASCII, and not longer than 200 characters.
func shown(text string) string { return fmt.Sprintf("%+.200q", text) }

// errorOf returns err as an *Error.
func errorOf(err error) (known *Error, ok bool) {
	ok = errors.As(err, &known)
	return known, ok
}
