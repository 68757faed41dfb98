package sender

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"github.com/keygate/keygate/internal/netguard"
)

// How connections to receivers are kept.
const (
	idleTimeout = 60 * time.Second
	maxIdle     = 1024
)

// newDialer returns a dialer to where the guard allows receivers.
func newDialer(cfg *Config) *net.Dialer {
	g := &gate{guard: cfg.Guard, allowHTTP: cfg.AllowHTTP, policy: netguard.Policy{PublicOnly: true, Allow: cfg.Allow, AllowRisky: true}}
	return &net.Dialer{Timeout: Timeout, KeepAlive: 15 * time.Second, Resolver: cfg.Resolver, ControlContext: g.control}
}

// newClient returns a client that sends to receivers: over HTTP/1.1, straight
// and not through a proxy, without asking for compression and without following
// redirects.
func newClient(cfg *Config, dialer *net.Dialer) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				return dialer.DialContext(context.WithValue(ctx, plainKey{}, true), network, addr)
			},
			DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				return dialTLS(ctx, dialer, cfg, network, addr)
			},
			Protocols:              &protocols,
			DisableCompression:     true,
			MaxIdleConns:           maxIdle,
			MaxIdleConnsPerHost:    maxWindow,
			IdleConnTimeout:        idleTimeout,
			MaxResponseHeaderBytes: maxAnswerHead,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func dialTLS(ctx context.Context, dialer *net.Dialer, cfg *Config, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	// The transport goes on to connect when the attempt that asked has ended.
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	raw, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, &tls.Config{ServerName: host, RootCAs: cfg.Roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return conn, nil
}

// plainKey marks the context of a connection without TLS.
type plainKey struct{}

// gate decides which addresses may be connected to.
type gate struct {
	guard     *netguard.Guard
	policy    netguard.Policy
	allowHTTP bool
}

// control is asked for each address, after the look-up of its name and before
// anything is sent to it.
func (g *gate) control(ctx context.Context, network, address string, c syscall.RawConn) error {
	if err := g.guard.Control(g.policy)(ctx, network, address, c); err != nil {
		return err
	}
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	plain, _ := ctx.Value(plainKey{}).(bool)
	if plain && !g.allowHTTP && !g.policy.Lists(addr.Addr()) {
		return errPlain
	}
	return nil
}
