// Package servercert does the handshakes with TLS servers that tenants choose, within bounds. crypto/tls takes 256 KiB of
// certificates from a server, keeps 2.5 MB for them as long as the connection lives, and checks up to 100 signatures of
// them, which takes 0.3 s with the largest keys. A server may also fill them with extensions that nobody reads.
package servercert

import (
	"context"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"time"
)

// Bounds of what a server may send.
const (
	MaxCertificates = 16
	MaxBytes        = 32 << 10 // of all certificates together, with what the server staples to them
	MaxHandshake    = 64 << 10 // of all that the server sends in its handshake
	maxExponent     = 65537    // of an RSA key: the usual one; with a larger one, a check takes three times as long
)

// Conn is a connection to a server, below a *tls.Conn. Reads fail when the server has sent more than MaxHandshake bytes
// before Handshake has ended.
type Conn struct {
	net.Conn
	read  int  // bytes of the handshake
	ended bool // Handshake has
}

// Below returns a Conn that reads from and writes to c.
func Below(c net.Conn) *Conn { return &Conn{Conn: c} }

// Read implements net.Conn. Reads must not overlap.
func (c *Conn) Read(b []byte) (int, error) {
	if c.ended {
		return c.Conn.Read(b)
	}
	if c.read == MaxHandshake {
		return 0, BoundsError(fmt.Sprintf("more than %d bytes in its TLS handshake", MaxHandshake))
	}
	n, err := c.Conn.Read(b[:min(len(b), MaxHandshake-c.read)])
	c.read += n
	return n, err
}

// NetConn returns the connection that c reads from.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// Handshake does the handshake with the server host, the name or address that the certificate must be for. over is below,
// or reads from it. The error is ctx.Err(), or a *tls.CertificateVerificationError if the server has no certificate of
// cfg.RootCAs for host or sends more than the bounds allow, also if its session is resumed, or a BoundsError if its
// handshake is too long. Handshake does not change cfg, whose RootCAs must not change afterwards.
func Handshake(ctx context.Context, over net.Conn, below *Conn, cfg *tls.Config, host string) (*tls.Conn, error) {
	cfg = cfg.Clone()
	require(cfg, host)
	c := tls.Client(over, cfg)
	err := c.HandshakeContext(ctx)
	below.ended = true
	if err != nil {
		return nil, err
	}
	return c, nil
}

// require makes cfg verify the certificate of host after it has looked at the bounds.
func require(cfg *tls.Config, host string) {
	roots := cfg.RootCAs
	cfg.ServerName = host
	cfg.InsecureSkipVerify = true // VerifyConnection verifies
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		err := checkBounds(&state)
		if err == nil {
			err = verify(state.PeerCertificates, roots, host)
		}
		if err != nil {
			return &tls.CertificateVerificationError{Err: err} // without the certificates, which may be large
		}
		return nil
	}
}

// BoundsError is the error for a server that sends more than the bounds allow. It says what, in words that complete
// "the server sent".
type BoundsError string

// Error implements error.
func (e BoundsError) Error() string { return "the server sent " + string(e) }

// checkBounds returns a BoundsError if a server has sent too much. A connection keeps all of it as long as it lives, and so does
// a session, also what is stapled to the certificates.
func checkBounds(state *tls.ConnectionState) error {
	chain := state.PeerCertificates
	if n := len(chain); n == 0 || n > MaxCertificates {
		return BoundsError(fmt.Sprintf("%d certificates: it must send 1 to %d", n, MaxCertificates))
	}
	size := len(state.OCSPResponse)
	for _, timestamp := range state.SignedCertificateTimestamps {
		size += len(timestamp)
	}
	for _, c := range chain {
		if size += len(c.Raw); size > MaxBytes {
			return BoundsError(fmt.Sprintf("more than %d bytes of certificates, and what belongs to them", MaxBytes))
		}
		if key, ok := c.PublicKey.(*rsa.PublicKey); ok && key.E > maxExponent {
			return BoundsError(fmt.Sprintf("a certificate with an RSA key whose exponent is larger than %d", maxExponent))
		}
	}
	return nil
}

// verify verifies the certificates of host, as crypto/tls does.
func verify(chain []*x509.Certificate, roots *x509.CertPool, host string) error {
	intermediates := x509.NewCertPool()
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	if host == "" { // for which Verify would accept any name
		return x509.HostnameError{Certificate: chain[0], Host: host}
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, CurrentTime: time.Now(), DNSName: host, Intermediates: intermediates})
	return err
}
