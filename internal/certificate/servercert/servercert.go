// Package servercert verifies the certificates of TLS servers that tenants choose, within bounds. crypto/tls takes
// 256 KiB of certificates from a server, keeps 2.5 MB for them as long as the connection lives, and checks up to 100
// signatures of them, which takes 0.3 s with the largest keys.
package servercert

import (
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"
)

// Bounds of what a server may send.
const (
	MaxCertificates = 16
	MaxBytes        = 32 << 10 // of all certificates together, with what the server staples to them
	maxExponent     = 65537    // of an RSA key: the usual one; with a larger one, a check takes three times as long
)

// Require sets cfg for a connection to host, the name or address that the certificate must be for: after the handshake
// with a server that has no certificate of cfg.RootCAs for it, or sends more than the bounds allow, the connection fails
// with a *tls.CertificateVerificationError, also if its session is resumed. cfg.RootCAs must not change afterwards.
func Require(cfg *tls.Config, host string) {
	roots := cfg.RootCAs
	cfg.ServerName = host
	cfg.InsecureSkipVerify = true // VerifyConnection verifies, after it has looked at the bounds
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
