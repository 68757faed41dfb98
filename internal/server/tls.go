package server

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/keygate/keygate/internal/certificate"
)

// certificates are the certificates of the two planes; nil means no TLS.
type certificates struct {
	gateway, admin *certificate.Pair
}

// openCertificates reads the certificates and starts to follow changes of their files.
func (s *Server) openCertificates(ctx context.Context) error {
	c := s.cfg.Settings
	for _, one := range []struct {
		to                                 **certificate.Pair
		cert, key, certSetting, keySetting string
	}{
		{&s.certificates.gateway, c.TLSCert, c.TLSKey, "tls-cert", "tls-key"},
		{&s.certificates.admin, c.AdminTLSCert, c.AdminTLSKey, "admin-tls-cert", "admin-tls-key"},
	} {
		if one.cert == "" {
			continue
		}
		pair, err := certificate.Open(certificate.Config{
			CertFile: one.cert, KeyFile: one.key, CertSetting: one.certSetting, KeySetting: one.keySetting, Log: s.log,
		})
		if err != nil {
			return err
		}
		*one.to = pair
		if err := s.running.Start(ctx, pair); err != nil {
			return err
		}
	}
	return nil
}

// tlsOf returns the TLS configuration of a listener with the certificate p, or nil if p
// is nil. It offers HTTP/2 and HTTP/1.1 by ALPN, and http/1.0, which clients configured
// for HTTP/1.0 ask for.
func tlsOf(p *certificate.Pair) *tls.Config {
	if p == nil {
		return nil
	}
	return p.TLS("h2", "http/1.1", "http/1.0")
}

// warnExposed logs a warning if the management API listens beyond loopback without TLS.
func (s *Server) warnExposed() {
	addr, ok := s.listeners.admin.Addr().(*net.TCPAddr)
	if s.certificates.admin == nil && (!ok || !addr.IP.IsLoopback()) {
		s.log.Warn("the management API listens beyond loopback without TLS, so that keys cross the network unencrypted: "+
			"set --admin-tls-cert and --admin-tls-key, or a loopback address in --admin-addr", "admin", s.AdminAddr())
	}
}

// secured returns l, wrapped in TLS if the management API has a certificate.
func (s *Server) secured(l net.Listener) net.Listener {
	if cfg := tlsOf(s.certificates.admin); cfg != nil {
		return tls.NewListener(l, cfg)
	}
	return l
}
