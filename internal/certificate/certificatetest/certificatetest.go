// Package certificatetest creates certificates for tests.
package certificatetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Test is the part of testing.TB that this package needs.
type Test interface {
	Helper()
	Fatal(args ...any)
}

// Pair is a self-signed certificate and its key, in PEM. It is valid for 30 days, for its
// name, localhost and the loopback addresses.
type Pair struct {
	Cert, Key []byte
}

// New creates a Pair for the DNS name name.
func New(t Test, name string) Pair {
	t.Helper()
	return NewFor(t, name, "localhost")
}

// NewFor creates a Pair for exactly these DNS names and the loopback addresses. There may be
// none.
func NewFor(t Test, names ...string) Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: strings.Join(names[:min(1, len(names))], "")}, DNSNames: names, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(30 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	}
}

// Write writes the pair to dir and returns the paths of its files.
func (p Pair) Write(t Test, dir string) (certFile, keyFile string) {
	t.Helper()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, content := range map[string][]byte{certFile: p.Cert, keyFile: p.Key} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// Pool returns a certificate pool that trusts the pair.
func (p Pair) Pool(t Test) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(p.Cert) {
		t.Fatal("the pair has no PEM certificate")
	}
	return pool
}

// RSA returns a private RSA key of so many bits in PEM, at once: its factors are no primes, so it is only good for
// being parsed.
func RSA(t Test, bits int) string {
	t.Helper()
	one, e := big.NewInt(1), big.NewInt(65537)
	factor := func() *big.Int {
		f, err := rand.Int(rand.Reader, new(big.Int).Lsh(one, uint(bits/2)))
		if err != nil {
			t.Fatal(err)
		}
		f.SetBit(f, bits/2-1, 1).SetBit(f, bits/2-2, 1)
		return f.SetBit(f, 0, 1)
	}
	for {
		p, q := factor(), factor()
		p1, q1 := new(big.Int).Sub(p, one), new(big.Int).Sub(q, one)
		d, inverse := new(big.Int).ModInverse(e, new(big.Int).Mul(p1, q1)), new(big.Int).ModInverse(q, p)
		if d == nil || inverse == nil {
			continue
		}
		der, err := asn1.Marshal(struct {
			Version                        int
			N                              *big.Int
			E                              int
			D, P, Q, DOfP, DOfQ, InverseOf *big.Int
		}{0, new(big.Int).Mul(p, q), 65537, d, p, q, new(big.Int).Mod(d, p1), new(big.Int).Mod(d, q1), inverse})
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: der}))
	}
}
