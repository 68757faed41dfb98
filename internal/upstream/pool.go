package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/netguard"
)

const (
	idleConns        = 1024 // connections kept for reuse, of one origin
	handshakeTimeout = 10 * time.Second
	maxAnswerHead    = 1 << 20
	// A connection of HTTP/2 that is silent for pingAfter while it is used must
	// answer a ping within pingTimeout.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
)

// Pool holds the connections of one origin. It is safe for concurrent use.
type Pool struct {
	origin Origin
	used   atomic.Int64 // last use, in seconds since 1970

	requests *http.Transport
	// upgrades speaks HTTP/1.1 alone, which is where upgrades exist. Nil if
	// the origin speaks HTTP/2 alone; the same as requests for scheme http.
	upgrades *http.Transport
}

func newPool(cfg *Config, o Origin) (*Pool, error) {
	var tlsConfig *tls.Config
	if o.Scheme == "https" {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(0)}
		if o.CA != "" {
			tlsConfig.RootCAs = x509.NewCertPool()
			if !tlsConfig.RootCAs.AppendCertsFromPEM([]byte(o.CA)) {
				return nil, fmt.Errorf("connect to %s: upstream_ca holds no certificate", o.Host)
			}
		}
	}
	var protocols http.Protocols
	p := &Pool{origin: o}
	switch o.Scheme {
	case "http":
		protocols.SetHTTP1(true)
		p.requests = newTransport(cfg, o, tlsConfig, protocols)
		p.upgrades = p.requests
	case "https":
		protocols.SetHTTP1(true)
		p.upgrades = newTransport(cfg, o, tlsConfig.Clone(), protocols)
		protocols.SetHTTP2(true)
		p.requests = newTransport(cfg, o, tlsConfig, protocols)
	case "h2c":
		protocols.SetUnencryptedHTTP2(true)
		p.requests = newTransport(cfg, o, nil, protocols)
	default:
		return nil, fmt.Errorf("connect to %s: the scheme %q is not known", o.Host, o.Scheme)
	}
	return p, nil
}

func newTransport(cfg *Config, o Origin, tlsConfig *tls.Config, protocols http.Protocols) *http.Transport {
	dial := dialer(&net.Dialer{
		Timeout:        or(o.ConnectTimeout, cfg.ConnectTimeout),
		ControlContext: cfg.Guard.Control(netguard.Policy{PublicOnly: o.PublicOnly, Allow: cfg.Allow}),
	})
	return &http.Transport{
		DialContext:            dial,
		TLSClientConfig:        tlsConfig,
		TLSHandshakeTimeout:    handshakeTimeout,
		DisableCompression:     true, // bodies pass as they are
		MaxIdleConnsPerHost:    idleConns,
		IdleConnTimeout:        or(o.IdleTimeout, cfg.IdleTimeout),
		MaxConnsPerHost:        or(o.MaxConns, cfg.MaxConns),
		ExpectContinueTimeout:  cfg.ContinueTimeout,
		MaxResponseHeaderBytes: maxAnswerHead,
		ForceAttemptHTTP2:      protocols.HTTP2(),
		Protocols:              &protocols,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
}

// CanUpgrade reports whether requests for an upgrade can be sent: not over
// HTTP/2 in clear.
func (p *Pool) CanUpgrade() bool { return p.upgrades != nil }

func (p *Pool) closeIdle() {
	p.requests.CloseIdleConnections()
	if p.upgrades != nil {
		p.upgrades.CloseIdleConnections()
	}
}
