package gateway

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"strings"

	"github.com/keygate/keygate/internal/fault"
)

// Limits of certificates and the key of the client certificate, in bytes.
const (
	maxCA                = 64 << 10
	maxClientCertificate = 64 << 10
	maxClientKey         = 16 << 10
	minRSABits           = 1024 // crypto/tls signs with no shorter key
	maxRSABits           = 4096 // each connection is signed for: 8 ms of CPU, and with 16,384 bits a second
)

// CheckUpstreamCA checks the certificates that replace the system's roots: one or more
// certificates in PEM, and nothing else. The error is a validation error of the field
// "upstream_ca".
func CheckUpstreamCA(text string) error { return CheckCA("upstream_ca", text) }

// CheckCA checks certificates that replace the system's roots, as CheckUpstreamCA does. The error is a validation error
// of the field.
func CheckCA(field, text string) error {
	if len(text) > maxCA {
		return fault.Invalid(field, "must have at most %d bytes: leave out certificates that are not needed", maxCA)
	}
	return checkCertificates(field, text)
}

// CheckUpstreamClientCertificate checks a client certificate, followed by the certificates of its
// issuers: one or more certificates in PEM. Anything else, above all a private key, is rejected,
// because the API returns this field. The error is a validation error of the field
// "upstream_client_certificate".
func CheckUpstreamClientCertificate(text string) error {
	const field = "upstream_client_certificate"
	switch {
	case len(text) > maxClientCertificate:
		return fault.Invalid(field, "must have at most %d characters", maxClientCertificate)
	case strings.Contains(strings.ToUpper(text), "PRIVATE KEY"): // even if its PEM is malformed
		return fault.Invalid(field, "contains a private key: give only certificates here, and the key in upstream_client_key")
	}
	return checkCertificates(field, text)
}

func checkCertificates(field, text string) error {
	rest := []byte(text)
	count := 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return fault.Invalid(field, "contains a PEM block that is not a certificate: give only certificates, never a private key")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fault.Invalid(field, "certificate %d is malformed", count+1)
		}
		count++
	}
	if count == 0 || len(bytes.TrimSpace(rest)) > 0 {
		return fault.Invalid(field, "must be one or more certificates in PEM")
	}
	return nil
}

// CheckUpstreamClientKey checks the private key of a client certificate: one key in PEM,
// without a passphrase, of a type that TLS can sign with. The error is a validation error
// of the field "upstream_client_key" and reveals nothing of the key.
func CheckUpstreamClientKey(text string) error {
	const field = "upstream_client_key"
	switch {
	case text == Masked:
		return fault.Invalid(field, "*** only stands in for the hidden key: give the key itself")
	case len(text) > maxClientKey:
		return fault.Invalid(field, "must have at most %d characters", maxClientKey)
	}
	rest := []byte(text)
	var found *pem.Block
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		switch {
		case block.Type == "EC PARAMETERS": // openssl writes them before the key
		case block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "":
			return fault.Invalid(field, "is encrypted with a passphrase: give the key without one (openssl pkey removes it)")
		case found != nil || !strings.HasSuffix(block.Type, "PRIVATE KEY"):
			return fault.Invalid(field, "must be one private key in PEM and nothing else: certificates belong in upstream_client_certificate")
		default:
			found = block
		}
	}
	if found == nil || len(bytes.TrimSpace(rest)) > 0 {
		return fault.Invalid(field, "must be one private key in PEM and nothing else")
	}
	if !canSign(found) {
		return fault.Invalid(field, "is not supported: it must be an RSA key of %d to %d bits, an ECDSA key on P-256, P-384 or P-521, or an Ed25519 key, in PKCS #8, PKCS #1 or SEC 1", minRSABits, maxRSABits)
	}
	return nil
}

// canSign reports whether the key is well formed and TLS can sign with it.
func canSign(block *pem.Block) bool {
	var key crypto.PrivateKey
	var err error
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	}
	if err != nil {
		return false
	}
	switch key := key.(type) {
	case *rsa.PrivateKey:
		return minRSABits <= key.N.BitLen() && key.N.BitLen() <= maxRSABits
	case *ecdsa.PrivateKey:
		return key.Curve == elliptic.P256() || key.Curve == elliptic.P384() || key.Curve == elliptic.P521()
	case ed25519.PrivateKey:
		return true
	default:
		return false
	}
}

// CheckUpstreamClientPair checks that a key, already accepted by CheckUpstreamClientKey,
// matches the first certificate. The error is a validation error of the field
// "upstream_client_key".
func CheckUpstreamClientPair(certificate, key string) error {
	if _, err := tls.X509KeyPair([]byte(certificate), []byte(key)); err != nil {
		return fault.Invalid("upstream_client_key", "does not match the first certificate of upstream_client_certificate: give the certificate of this key first, then those of its issuers")
	}
	return nil
}
