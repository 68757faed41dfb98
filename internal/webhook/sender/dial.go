package sender

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"github.com/keygate/keygate/internal/certificate/servercert"
	"github.com/keygate/keygate/internal/netguard"
)

// Limits of the idle connections to receivers.
const (
	idleTimeout = 60 * time.Second
	maxIdle     = 1024
)

// newDialer returns a dialer that connects only to addresses that the guard allows.
func newDialer(cfg *Config) *net.Dialer {
	rule := &addressRule{guard: cfg.Guard, allowHTTP: cfg.AllowHTTP, policy: netguard.Policy{PublicOnly: true, Allow: cfg.Allow, AllowRisky: true}}
	return &net.Dialer{Timeout: Timeout, KeepAlive: 15 * time.Second, Resolver: cfg.Resolver, ControlContext: rule.control}
}

// newClient returns a client that uses HTTP/1.1, connects directly and never through a
// proxy, does not request compression, and does not follow redirects.
func newClient(cfg *Config, dialer *net.Dialer) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				ctx, stop := untilAttemptEnds(ctx)
				defer stop()
				return netguard.Dial(context.WithValue(ctx, plainKey{}, true), dialer, network, addr)
			},
			DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				return dialTLS(ctx, dialer, cfg, network, addr)
			},
			Protocols:              &protocols,
			DisableCompression:     true,
			MaxIdleConns:           min(maxIdle, cfg.MaxInFlight/2),
			MaxIdleConnsPerHost:    maxWindow,
			IdleConnTimeout:        idleTimeout,
			MaxResponseHeaderBytes: maxResponseHead,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// attemptKey is the key of an attempt's own context in the context of its request.
type attemptKey struct{}

// untilAttemptEnds returns a context for connecting that ends with the attempt. The transport's own
// context for connecting does not end with the attempt: it would go on connecting while the attempt
// uses another connection, and long after the attempt has ended, so that the number of attempts
// would not bound the number of connections.
func untilAttemptEnds(ctx context.Context) (until context.Context, stop func()) {
	until, cancel := context.WithTimeout(ctx, Timeout)
	attempt, ok := ctx.Value(attemptKey{}).(context.Context)
	if !ok {
		return until, cancel
	}
	unregister := context.AfterFunc(attempt, cancel)
	return until, func() { unregister(); cancel() }
}

func dialTLS(ctx context.Context, dialer *net.Dialer, cfg *Config, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	ctx, stop := untilAttemptEnds(ctx)
	defer stop()
	raw, err := netguard.Dial(ctx, dialer, network, addr)
	if err != nil {
		return nil, err
	}
	secure := &tls.Config{RootCAs: cfg.Roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	below := servercert.Below(raw)
	conn, err := servercert.Handshake(ctx, below, below, secure, host)
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	return conn, nil
}

// plainKey marks the context of a connection without TLS.
type plainKey struct{}

// addressRule decides which addresses may be connected to.
type addressRule struct {
	guard     *netguard.Guard
	policy    netguard.Policy
	allowHTTP bool
}

// control checks an address after the DNS lookup and before anything is sent to it.
func (r *addressRule) control(ctx context.Context, network, address string, c syscall.RawConn) error {
	if err := r.guard.Control(r.policy)(ctx, network, address, c); err != nil {
		return err
	}
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	plain, _ := ctx.Value(plainKey{}).(bool)
	if plain && !r.allowHTTP && !r.policy.Lists(addr.Addr()) {
		return errPlain
	}
	return nil
}
