package server

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/keygate/keygate/internal/certificate"
	"github.com/keygate/keygate/internal/config"
)

// certificates are the certificates of the two planes; nil means no TLS.
type certificates struct {
	gateway, admin *certificate.Set
}

// openCertificates reads the certificates and starts to follow changes of their files.
func (s *Server) openCertificates(ctx context.Context) error {
	c := s.cfg.Settings
	for _, one := range []struct {
		to                      **certificate.Set
		files                   []config.TLSFiles
		certSetting, keySetting string
	}{
		{&s.certificates.gateway, c.TLS, "tls-cert", "tls-key"},
		{&s.certificates.admin, c.AdminTLS, "admin-tls-cert", "admin-tls-key"},
	} {
		var issued certificate.Issued
		if one.to == &s.certificates.gateway && c.ACME.On() {
			issued = &s.issued
		}
		if len(one.files) == 0 && issued == nil {
			continue
		}
		files := make([]certificate.Files, len(one.files))
		for i, f := range one.files {
			files[i] = certificate.Files(f)
		}
		set, err := certificate.Open(certificate.Config{Files: files, Issued: issued, CertSetting: one.certSetting, KeySetting: one.keySetting, Log: s.log})
		if err != nil {
			return err
		}
		*one.to = set
		if err := s.running.Start(ctx, set); err != nil {
			return err
		}
	}
	return nil
}

// tlsOf returns the TLS configuration of a listener with the certificates c, or nil if c
// is nil. It offers HTTP/2 and HTTP/1.1 by ALPN, and http/1.0, which clients that are configured
// for HTTP/1.0 ask for.
func tlsOf(c *certificate.Set) *tls.Config {
	if c == nil {
		return nil
	}
	cfg := c.TLS("h2", "http/1.1", "http/1.0")
	// Small records at the start of each connection would split responses that are sent together.
	cfg.DynamicRecordSizingDisabled = true
	return cfg
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
