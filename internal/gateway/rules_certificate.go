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

// Limits of what proves to an upstream who calls.
const (
	maxClientCertificate = 64 << 10
	maxClientKey         = 16 << 10
	minRSABits           = 1024 // with fewer a TLS library signs nothing
)

// CheckUpstreamCA checks the certificates that replace the system's roots: PEM,
// at least one certificate, and nothing else. The error is a validation error
// of the field "upstream_ca".
func CheckUpstreamCA(text string) error { return checkCertificates("upstream_ca", text) }

// CheckUpstreamClientCertificate checks the certificate that is shown to an
// upstream, with those of its issuers behind it: PEM and certificates alone, all
// the more since it is shown to whoever may read the gateway. The error is a
// validation error of the field "upstream_client_certificate".
func CheckUpstreamClientCertificate(text string) error {
	const field = "upstream_client_certificate"
	switch {
	case len(text) > maxClientCertificate:
		return fault.Invalid(field, "must have at most %d characters", maxClientCertificate)
	case strings.Contains(strings.ToUpper(text), "PRIVATE KEY"): // also where the PEM around it is damaged
		return fault.Invalid(field, "holds a private key: give certificates alone, and the key as upstream_client_key")
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
			return fault.Invalid(field, "holds a PEM block that is no certificate: give certificates alone, and never a private key")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fault.Invalid(field, "certificate %d cannot be read", count+1)
		}
		count++
	}
	if count == 0 || len(bytes.TrimSpace(rest)) > 0 {
		return fault.Invalid(field, "must be one or more certificates in PEM")
	}
	return nil
}

// CheckUpstreamClientKey checks the private key of such a certificate: one key in
// PEM, without a passphrase, of a kind that TLS can use. The error is a validation
// error of the field "upstream_client_key" and tells nothing of the key.
func CheckUpstreamClientKey(text string) error {
	const field = "upstream_client_key"
	switch {
	case text == Masked:
		return fault.Invalid(field, "*** is what stands in place of a value that is not shown: give the key itself")
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
			return fault.Invalid(field, "has a passphrase: give the key without one, as openssl pkey writes it")
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
		return fault.Invalid(field, "cannot be used: it must be an RSA key of at least %d bits, an ECDSA key on P-256, P-384 or P-521, or an Ed25519 key, in PKCS #8, PKCS #1 or SEC 1", minRSABits)
	}
	return nil
}

// canSign reports whether the key can be read and TLS has a signature for it.
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
		return key.N.BitLen() >= minRSABits
	case *ecdsa.PrivateKey:
		return key.Curve == elliptic.P256() || key.Curve == elliptic.P384() || key.Curve == elliptic.P521()
	case ed25519.PrivateKey:
		return true
	default:
		return false
	}
}

// CheckUpstreamClientPair checks that the key, which CheckUpstreamClientKey let
// pass, is that of the first certificate. The error is a validation error of the
// field "upstream_client_key".
func CheckUpstreamClientPair(certificate, key string) error {
	if _, err := tls.X509KeyPair([]byte(certificate), []byte(key)); err != nil {
		return fault.Invalid("upstream_client_key", "does not belong to the first certificate of upstream_client_certificate: give the two that were made together, and the certificate before those of its issuers")
	}
	return nil
}
