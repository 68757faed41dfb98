package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/keygate/keygate/internal/gateway"
)

// Upstream is where and how a gateway forwards requests.
type Upstream struct {
	Target  *Target
	Timeout time.Duration
	Headers []Header // set on every forwarded request; opened, sorted by name
}

// Target is where requests go and how connections to it are made. It is immutable: any other setting
// makes another Target.
type Target struct {
	ID        string   // of the target; the gateway's ID, because it has one target
	AccountID string   // of the gateway
	URL       string   // as stored
	Base      *url.URL // URL parsed; must not be changed
	CA        string   // PEM certificates that replace the system's roots, or ""
	// Client is the client certificate with its chain, and its opened private key, both in
	// PEM. The zero Handle means none.
	Client unique.Handle[[2]string]
	// Connection settings; zero values mean the server's settings.
	ConnectTimeout time.Duration
	IdleTimeout    time.Duration
	MaxConnAge     time.Duration
	MaxConns       int
	// PublicOnly is set if the account may reach only public addresses (contract, 4.6).
	PublicOnly bool
}

// Header is one header that is set on forwarded requests.
type Header struct{ Name, Value string }

func (f *Follower) compileUpstream(g *gateway.Gateway) (Upstream, error) {
	var u Upstream
	var err error
	if u.Target, err = f.compileTarget(g); err != nil {
		return u, err
	}
	if u.Timeout, err = time.ParseDuration(cmp.Or(g.Timeout, gateway.DefaultTimeout)); err != nil {
		return u, fmt.Errorf("read timeout: %w", err)
	}
	for name, sealed := range g.Upstream.Headers {
		value, err := f.open(sealed)
		if err != nil {
			return u, fmt.Errorf("decrypt upstream header %s: %w", name, err)
		}
		u.Headers = append(u.Headers, Header{name, value})
	}
	slices.SortFunc(u.Headers, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	return u, nil
}

func (f *Follower) compileTarget(g *gateway.Gateway) (*Target, error) {
	t := &Target{ID: g.ID, AccountID: g.AccountID, URL: g.Upstream.URL, CA: g.Upstream.TLS.CA, MaxConns: int(g.Upstream.MaxConnections)}
	var err error
	if t.Base, err = url.Parse(t.URL); err != nil {
		return nil, fmt.Errorf("read upstream_url: %w", err)
	}
	if t.ConnectTimeout, err = optionalDuration(g.Upstream.Timeouts.Connect); err != nil {
		return nil, fmt.Errorf("read upstream_connect_timeout: %w", err)
	}
	if t.IdleTimeout, err = optionalDuration(g.Upstream.Timeouts.Idle); err != nil {
		return nil, fmt.Errorf("read upstream_idle_timeout: %w", err)
	}
	if t.MaxConnAge, err = optionalDuration(g.Upstream.MaxConnectionAge); err != nil {
		return nil, fmt.Errorf("read upstream_max_connection_age: %w", err)
	}
	if g.Upstream.TLS.ClientCertificate == "" {
		return t, nil
	}
	key, err := f.open(g.Upstream.TLS.ClientKey)
	if err != nil {
		return nil, fmt.Errorf("decrypt upstream_client_key: %w", err)
	}
	t.Client = unique.Make([2]string{g.Upstream.TLS.ClientCertificate, key})
	return t, nil
}

// open decrypts a sealed value from the store.
func (f *Follower) open(sealed []byte) (string, error) {
	if f.cfg.OpenSealed == nil {
		return "", errors.New("no secret key is configured")
	}
	plain, err := f.cfg.OpenSealed(sealed)
	return string(plain), err
}

// optionalDuration parses a duration; "" is 0.
func optionalDuration(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	return time.ParseDuration(s)
}
