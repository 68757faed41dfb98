package gateway_test

import (
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// certificateOf returns a certificate of the key, in PEM.
func certificateOf(key crypto.Signer) string {
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(-time.Hour)} // expired is no matter
	return block("CERTIFICATE", must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)))
}

func block(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// Guarantee: upstream_ca and the client certificate, which the API shows, have at least one
// certificate and no private key.
func TestCheckCertificates(t *testing.T) {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	cert := certificateOf(key)
	private := block("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(key)))
	broken := block("CERTIFICATE", []byte("\x30\x80 no certificate"))
	for text, ok := range map[string]bool{
		cert: true, cert + "\n" + cert: true, "# root\n" + cert: true,
		"": false, "x": false, private: false, cert + private: false, broken: false, cert + "rest": false,
	} {
		ca, client := "upstream_ca", "upstream_client_certificate"
		if ok {
			ca, client = "", ""
		}
		wantField(t, text, gateway.CheckUpstreamCA(text), ca)
		wantField(t, text, gateway.CheckUpstreamClientCertificate(text), client)
	}
	for _, text := range []string{
		strings.Replace(private, "-----END", "----END", 1) + cert, // not valid PEM, but still a key
		cert + strings.Repeat("\n", 64<<10),
	} {
		wantField(t, text[:20], gateway.CheckUpstreamClientCertificate(text), "upstream_client_certificate")
	}
}

// Guarantee: a client key is one private key without a passphrase that TLS supports, and matches
// the first certificate. An error does not show the key.
func TestCheckUpstreamClientKey(t *testing.T) {
	ec := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	other := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	curve224 := must(ecdsa.GenerateKey(elliptic.P224(), rand.Reader))
	wide := must(rsa.GenerateKey(rand.Reader, 2048))
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GODEBUG", "rsa1024min=0") // so that there is one to refuse
	narrow := must(rsa.GenerateKey(rand.Reader, 768))
	pkcs8 := func(key any) string { return block("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(key))) }
	sec1 := block("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(ec)))
	pkcs1 := block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(wide))
	parameters := block("EC PARAMETERS", []byte("\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07"))
	legacy := string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"}, Bytes: []byte("x")}))
	const field = "upstream_client_key"
	for name, tc := range map[string]struct {
		text string
		key  crypto.Signer // nil: refused
	}{
		"PKCS 8":            {pkcs8(ec), ec},
		"PKCS 8, RSA":       {pkcs8(wide), wide},
		"Ed25519":           {pkcs8(ed), ed},
		"SEC 1":             {sec1, ec},
		"SEC 1, parameters": {parameters + sec1, ec},
		"PKCS 1":            {pkcs1, wide},
		"Bag Attributes":    {"Bag Attributes\n    friendlyName: x\n" + pkcs8(ec), ec},
		"nothing":           {},
		"no PEM":            {text: "x"},
		"masked":            {text: "***"},
		"a passphrase":      {text: block("ENCRYPTED PRIVATE KEY", []byte("x"))},
		"an old passphrase": {text: legacy},
		"a certificate":     {text: certificateOf(ec)},
		"and a certificate": {text: pkcs8(ec) + certificateOf(ec)},
		"two keys":          {text: pkcs8(ec) + pkcs8(other)},
		"a rest":            {text: pkcs8(ec) + "rest"},
		"damaged":           {text: block("PRIVATE KEY", []byte("\x30\x80 no key"))},
		"of OpenSSH":        {text: block("OPENSSH PRIVATE KEY", []byte("x"))},
		"P-224":             {text: pkcs8(curve224)},
		"768 bits":          {text: pkcs8(narrow)},
		"8,192 bits":        {text: certificatetest.RSA(t, 8192)}, // each connection would take a tenth of a second of CPU
		"no signatures":     {text: pkcs8(must(ecdh.X25519().GenerateKey(rand.Reader)))},
		"too long":          {text: pkcs8(ec) + strings.Repeat("\n", 16<<10)},
	} {
		err := gateway.CheckUpstreamClientKey(tc.text)
		if tc.key == nil {
			wantField(t, name, err, field)
			if lines := strings.Split(tc.text, "\n"); err != nil && len(lines) > 2 && strings.Contains(err.Error(), lines[1]) {
				t.Errorf("%s: got error %v; want one without the key", name, err)
			}
			continue
		}
		wantField(t, name, err, "")
		wantField(t, name, gateway.CheckUpstreamClientPair(certificateOf(tc.key), tc.text), "")
		wantField(t, name, gateway.CheckUpstreamClientPair(certificateOf(other), tc.text), field)
		wantField(t, name, gateway.CheckUpstreamClientPair(certificateOf(other)+certificateOf(tc.key), tc.text), field)
		wantField(t, name, gateway.CheckUpstreamClientPair(certificateOf(tc.key)+certificateOf(other), tc.text), "")
	}
}

// Guarantee: contract 3.3, the timeouts and the number of connections have bounds.
func TestCheckConnectionBounds(t *testing.T) {
	for text, ok := range map[string][3]bool{
		"100ms": {true, false, false}, "99ms": {}, "999ms": {true, false, false}, "1s": {true, true, true}, "1m": {true, true, true},
		"1m1s": {false, true, true}, "1h": {false, true, true}, "1h1s": {false, false, true}, "24h": {false, false, true},
		"24h0m1s": {}, "": {}, "10": {}, "-1s": {}, "x": {}, "NaN": {},
	} {
		for i, field := range []string{"upstream_connect_timeout", "upstream_idle_timeout", "upstream_max_connection_age"} {
			err := []func(string) error{
				gateway.CheckUpstreamConnectTimeout, gateway.CheckUpstreamIdleTimeout, gateway.CheckUpstreamMaxConnectionAge,
			}[i](text)
			if ok[i] {
				field = ""
			}
			wantField(t, text, err, field)
		}
	}
	for n, ok := range map[int64]bool{-1: false, 0: false, 1: true, 100_000: true, 100_001: false} {
		err := gateway.CheckUpstreamMaxConnections(n)
		if ok && err != nil {
			t.Errorf("%d connections: got %v, want no error", n, err)
		}
		if !ok && fault.CodeOf(err) != fault.ValidationFailed {
			t.Errorf("%d connections: got %v, want a validation error", n, err)
		}
	}
}
