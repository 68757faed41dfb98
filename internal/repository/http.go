package repository

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/certificate/servercert"
	"github.com/keygate/keygate/internal/netguard"
)

const (
	maxRedirects  = 5
	knownServers  = 10_000 // URLs whose server is known to have version 2
	serversToDrop = 1_000  // of them, if there are more

	uploadPack = "/git-upload-pack"
	discovery  = "/info/refs?service=git-upload-pack"
)

// httpClients makes the requests over https of all sources.
type httpClients struct {
	client *Client
	public *http.Client // connects to public addresses alone
	any    *http.Client

	mu    sync.Mutex
	known map[string]server // by Source.URL
}

// server is what is known of the server of a URL.
type server struct {
	base string // where its redirects lead to
	caps capabilities
}

func newHTTPClients(c *Client) *httpClients {
	newClient := func(public bool) *http.Client {
		dialer := c.dialer(public)
		return &http.Client{
			Transport: &http.Transport{
				DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
					return netguard.Dial(ctx, dialer, network, addr)
				},
				DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
					return c.dialTLS(ctx, dialer, network, addr)
				},
				ResponseHeaderTimeout:  prepareTime,
				DisableCompression:     true,
				MaxIdleConns:           64,
				MaxIdleConnsPerHost:    2,
				IdleConnTimeout:        90 * time.Second,
				MaxResponseHeaderBytes: 64 << 10,
				ForceAttemptHTTP2:      true,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return &httpClients{client: c, public: newClient(true), any: newClient(false), known: map[string]server{}}
}

func (h *httpClients) close() {
	h.public.CloseIdleConnections()
	h.any.CloseIdleConnections()
}

// dialTLS connects to the server of an https URL.
func (c *Client) dialTLS(ctx context.Context, dialer *net.Dialer, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	raw, err := netguard.Dial(ctx, dialer, network, addr)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{RootCAs: c.cfg.Roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	below := servercert.Below(raw)
	conn, err := servercert.Handshake(ctx, below, below, cfg, host)
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	return conn, nil
}

// dialer returns a dialer that connects only to addresses that the guard allows.
func (c *Client) dialer(public bool) *net.Dialer {
	policy := netguard.Policy{PublicOnly: public, Allow: c.cfg.Allow}
	return &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second, Resolver: c.cfg.Resolver, ControlContext: c.cfg.Guard.Control(policy)}
}

// httpConn is a conn over https.
type httpConn struct {
	clients *httpClients
	source  *Source
	own     *url.URL // of the source; only this server gets the credential
	base    string   // of the repository, after redirects
}

func (h *httpClients) open(_ context.Context, s *Source, at *location) (conn, error) {
	base := "https://" + strings.TrimSuffix(at.host, ":443") + at.path
	own, err := url.Parse(base)
	if err != nil {
		return nil, problem(Invalid, "the URL is not valid")
	}
	return &httpConn{clients: h, source: s, own: own, base: base}, nil
}

func (c *httpConn) hostKey() string { return "" }

func (c *httpConn) close() {}

func (c *httpConn) known() (capabilities, bool) {
	c.clients.mu.Lock()
	defer c.clients.mu.Unlock()
	s, ok := c.clients.known[c.source.URL]
	if ok {
		c.base = s.base
	}
	return s.caps, ok
}

func (c *httpConn) forget() {
	c.clients.mu.Lock()
	defer c.clients.mu.Unlock()
	delete(c.clients.known, c.source.URL)
	c.base = strings.TrimSuffix(c.own.String(), "/")
}

func (c *httpConn) isV2(caps capabilities) {
	c.clients.mu.Lock()
	defer c.clients.mu.Unlock()
	known := c.clients.known
	if len(known) >= knownServers { // any will do: they are asked again
		n := 0
		for u := range known {
			if delete(known, u); n == serversToDrop {
				break
			}
			n++
		}
	}
	known[c.source.URL] = server{base: c.base, caps: caps}
}

// advertised implements conn. It follows redirects, with which a Git server responds when a
// repository has moved.
func (c *httpConn) advertised(ctx context.Context) (io.ReadCloser, error) {
	at := c.base + discovery
	for range maxRedirects + 1 {
		r, err := c.do(ctx, http.MethodGet, at, nil, false)
		if err != nil {
			return nil, err
		}
		next := r.Header.Get("Location")
		if r.StatusCode < 300 || r.StatusCode > 399 || next == "" {
			if c.base, err = strings.TrimSuffix(at, discovery), c.check(r); err != nil {
				return nil, err
			}
			if !strings.HasSuffix(at, discovery) {
				_ = r.Body.Close()
				return nil, problem(Malformed, "the server's redirect does not lead to a Git repository: use the repository's own URL")
			}
			return r.Body, nil
		}
		_ = r.Body.Close()
		to, err := r.Request.URL.Parse(next)
		if err != nil || to.Scheme != "https" || to.Host == "" || to.User != nil {
			return nil, problem(Refused, "the server redirects to an address without https: use the repository's own URL")
		}
		at = to.String()
	}
	return nil, problem(Unreachable, "the server redirects more than %d times: use the repository's own URL", maxRedirects)
}

// send implements conn.
func (c *httpConn) send(ctx context.Context, request []byte, prepares bool) (response, error) {
	r, err := c.do(ctx, http.MethodPost, c.base+uploadPack, request, prepares)
	if err != nil {
		return nil, err
	}
	if err := c.check(r); err != nil {
		return nil, err
	}
	body, ok := r.Body.(response)
	if !ok {
		_ = r.Body.Close()
		return nil, problem(Malformed, "the server's response has no body")
	}
	return body, nil
}

// do makes a request. The body of the response is a response.
func (c *httpConn) do(ctx context.Context, method, at string, body []byte, prepares bool) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
	if err != nil {
		return nil, problem(Invalid, "the URL is not valid")
	}
	r.Header.Set("Git-Protocol", "version=2")
	r.Header.Set("User-Agent", "git/2 (keygate)")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-git-upload-pack-request")
		r.Header.Set("Accept", "application/x-git-upload-pack-result")
	}
	if k := &c.source.Credential; r.URL.Scheme == c.own.Scheme && r.URL.Host == c.own.Host {
		if secret := cmp.Or(k.Token, k.Password); secret != "" {
			r.SetBasicAuth(k.user(), secret)
		}
	}
	client := c.clients.any
	if c.source.Public {
		client = c.clients.public
	}
	p := newPaced(ctx, c.clients.client.stallTime)
	p.begin(prepares)
	res, err := client.Do(r.WithContext(p.ctx))
	if err != nil {
		p.pause()
		err = p.causeOf(err)
		p.cancel(nil)
		return nil, err
	}
	p.body, res.Body = res.Body, p
	return res, nil
}

// check returns an error for a response that does not come from Git, and closes it.
func (c *httpConn) check(r *http.Response) (err error) {
	defer func() {
		if err != nil {
			_ = r.Body.Close()
		}
	}()
	anonymous := c.source.Credential == Credential{}
	switch {
	case r.StatusCode == http.StatusOK:
		if kind := r.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/x-git-") {
			return problem(Malformed, "the URL is not that of a Git repository: the server responds with another kind of document")
		}
		return nil
	case r.StatusCode == http.StatusUnauthorized && anonymous:
		return problem(Unauthorized, "the server asks for a credential: give a token, or username and password; check the URL too, if the repository is public")
	case r.StatusCode == http.StatusUnauthorized, r.StatusCode == http.StatusForbidden:
		return problem(Unauthorized, "the server refuses the credential (status %d): it may have expired, or may not read this repository", r.StatusCode)
	case r.StatusCode == http.StatusNotFound, r.StatusCode == http.StatusGone:
		return problem(NoRepository, "the server has no such repository (status %d): check the URL, and that the credential may read it", r.StatusCode)
	case r.StatusCode == http.StatusTooManyRequests:
		return problem(Unreachable, "the server asks for fewer requests (status 429): use a longer interval")
	}
	return problem(Unreachable, "the server responds with status %d", r.StatusCode)
}
