package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"time"
	"unique"

	"github.com/keygate/keygate/internal/certificate/servercert"
)

const handshakeTimeout = 10 * time.Second

// errHandshakeTimeout is the cause of a TLS handshake that took too long.
var errHandshakeTimeout = fmt.Errorf("TLS handshake: %w", errConnectTimeout)

// handshake does the TLS handshake with the server at address, which must have a certificate for cfg.ServerName or else for
// the host in address. over is the new connection, which is below or reads from
// it. If ctx ends, the error is its cause.
func handshake(ctx context.Context, over net.Conn, below *servercert.Conn, address string, cfg *tls.Config) (*tls.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	c, err := servercert.Handshake(ctx, over, below, cfg, cmp.Or(cfg.ServerName, host))
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, cause
	}
	return c, err
}

func newTLSConfig(o Origin) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName}
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
		// Every server that asks for a client certificate gets this certificate. By default,
		// crypto/tls silently sends none if the server's list of accepted issuers does not match
		// the chain.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	}
	return c, nil
}
