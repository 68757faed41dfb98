package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/netguard"
)

const (
	idleConns        = 1024 // idle connections kept for each origin
	handshakeTimeout = 10 * time.Second
	// maxResponseHead bounds what net/http reads of a response's head. Over HTTP/2 it counts
	// 32 bytes more for each field; the driver checks the exact limits.
	maxResponseHead = http1.MaxResponseHead + 64*http1.MaxResponseFields
	// An HTTP/2 connection that is in use but silent for pingAfter is pinged, and closed if
	// the response takes longer than pingTimeout.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
)

// Pool holds the connections of one origin and sends requests over them with net/http. It
// is safe for concurrent use.
type Pool struct {
	owner    *Pools
	origin   Origin
	tls      *tls.Config   // nil unless the scheme is https
	maxAge   time.Duration // of a connection that is used for a new request
	limiter  *limiter      // nil if the connections are not limited
	dialer   *net.Dialer
	turns    chan struct{} // holds a value for each dial in progress, unless there is a limiter
	spends   spender
	used     atomic.Int64 // last use, in seconds since 1970
	draining atomic.Bool  // connections close instead of becoming idle

	current atomic.Pointer[transports]
	turning sync.Mutex    // held to change current, and for what follows
	next    *transports   // takes turns with current; nil unless that is about to end
	old     []*transports // ended, but possibly in use
}

func newPool(owner *Pools, o Origin) (*Pool, error) {
	p := &Pool{owner: owner, origin: o, maxAge: cmp.Or(o.MaxConnAge, owner.cfg.MaxConnAge)}
	p.dialer, p.turns, p.spends.account = owner.cfg.dialer(&o), make(chan struct{}, maxDials), o.Account
	switch o.Scheme {
	case "http", "h2c":
	case "https":
		var err error
		if p.tls, err = newTLSConfig(o); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("connect to %s: %q is not a supported scheme", o.Host, o.Scheme)
	}
	p.limiter = newLimiter(owner, p)
	p.current.Store(p.newTransports(owner.tick.Load()))
	return p, nil
}

func newTLSConfig(o Origin) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(0)}
	if o.CA != "" {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM([]byte(o.CA)) {
			return nil, fmt.Errorf("connect to %s: upstream_ca has no PEM certificate", o.Host)
		}
	}
	if o.Client != (unique.Handle[[2]string]{}) {
		pair := o.Client.Value()
		cert, err := tls.X509KeyPair([]byte(pair[0]), []byte(pair[1]))
		if err != nil { // err is dropped: it may quote the private key
			return nil, fmt.Errorf("connect to %s: upstream_client_certificate and upstream_client_key do not match", o.Host)
		}
		// Every server that asks for a client certificate gets this one. By default,
		// crypto/tls silently sends none to a server whose list of accepted issuers does
		// not match the chain.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	}
	return c, nil
}

func (p *Pool) newTransport(protocols http.Protocols) *http.Transport {
	o, cfg := &p.origin, &p.owner.cfg
	var dialTLS func(context.Context, string, string) (net.Conn, error)
	if p.tls != nil {
		offered := []string{"http/1.1"}
		if protocols.HTTP2() {
			offered = []string{"h2", "http/1.1"}
		}
		dialTLS = p.dialTLS(offered...)
	}
	return &http.Transport{
		DialContext:            p.dial,
		DialTLSContext:         dialTLS,
		DisableCompression:     true, // forward bodies unchanged
		MaxIdleConnsPerHost:    idleConns,
		IdleConnTimeout:        cmp.Or(o.IdleTimeout, cfg.IdleTimeout),
		MaxConnsPerHost:        cmp.Or(o.MaxConns, cfg.MaxConns),
		ExpectContinueTimeout:  cfg.ContinueTimeout,
		MaxResponseHeaderBytes: maxResponseHead,
		ForceAttemptHTTP2:      protocols.HTTP2(),
		Protocols:              &protocols,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
}

// dialer returns the dialer of connections to o.
func (c *Config) dialer(o *Origin) *net.Dialer {
	return &net.Dialer{
		Timeout:        cmp.Or(o.ConnectTimeout, c.ConnectTimeout),
		Resolver:       c.Resolver,
		ControlContext: c.Guard.Control(netguard.Policy{PublicOnly: o.PublicOnly, Allow: c.Allow}),
	}
}

// CanUpgrade reports whether the pool can send upgrade requests. It can unless the scheme
// is h2c.
func (p *Pool) CanUpgrade() bool { return p.current.Load().upgrades != nil }

// drain closes idle connections now, and others at the end of their exchange.
func (p *Pool) drain() {
	p.draining.Store(true)
	p.closeIdle()
}
