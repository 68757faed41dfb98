package servercert_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"io"
	"math/big"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/certificate/servercert"
)

// handshake returns the client's error of a handshake with a server of cert, and its state.
func handshake(t *testing.T, cfg *tls.Config, host string, cert *tls.Certificate) (tls.ConnectionState, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		far, err := l.Accept()
		if err != nil {
			return
		}
		defer far.Close()
		_ = far.SetDeadline(time.Now().Add(time.Minute))
		own := &tls.Config{Certificates: []tls.Certificate{*cert}}
		own.SetSessionTicketKeys([][32]byte{{1}})
		server := tls.Server(far, own)
		if server.Handshake() == nil {
			_, _ = server.Write([]byte("x"))
			_, _ = server.Read(make([]byte, 1)) // until the client closes
		}
	}()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	if err := near.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	below := servercert.Below(near)
	client, err := servercert.Handshake(t.Context(), below, below, cfg, host)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	_, err = client.Read(make([]byte, 1)) // the ticket comes before the data
	return client.ConnectionState(), err
}

// certificate returns a certificate with a serial number, a key, and an extension of so many bytes.
func certificate(t *testing.T, key any, extension int) []byte {
	t.Helper()
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "another"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Value: make([]byte, extension)}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key, signer)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// Guarantee: a server is accepted if it has a certificate of the roots for the host, a name or an address, and is
// refused otherwise, as crypto/tls alone does. A resumed session is verified too.
func TestServersAreVerified(t *testing.T) {
	pair := certificatetest.NewFor(t, "one.test")
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		host  string
		roots *x509.CertPool
		want  any // what the error is; nil for none
	}{
		{"one.test", pair.Pool(t), nil},
		{"ONE.test", pair.Pool(t), nil},
		{"127.0.0.1", pair.Pool(t), nil},
		{"::1", pair.Pool(t), nil},
		{"two.test", pair.Pool(t), new(x509.HostnameError)},
		{"127.0.0.2", pair.Pool(t), new(x509.HostnameError)},
		{"", pair.Pool(t), new(x509.HostnameError)},
		{"one.test", certificatetest.New(t, "one.test").Pool(t), new(x509.UnknownAuthorityError)},
		{"one.test", nil, new(x509.UnknownAuthorityError)}, // the roots of the system
	} {
		cfg := &tls.Config{RootCAs: c.roots, ClientSessionCache: tls.NewLRUClientSessionCache(0)}
		for range 2 {
			state, err := handshake(t, cfg, c.host, &cert)
			if c.want == nil && err != nil || c.want != nil && !errors.As(err, c.want) || err != nil && !errors.As(err, new(*tls.CertificateVerificationError)) {
				t.Errorf("host %q: got error %v, want %T", c.host, err, c.want)
			}
			if c.want == nil && !strings.Contains(c.host, ":") && !strings.HasPrefix(c.host, "127.") && state.ServerName != strings.TrimSuffix(c.host, ".") {
				t.Errorf("host %q: the server was asked for %q", c.host, state.ServerName)
			}
		}
	}
	cache := tls.NewLRUClientSessionCache(0)
	cfg := &tls.Config{RootCAs: pair.Pool(t), ClientSessionCache: cache}
	for i := range 2 {
		if state, err := handshake(t, cfg, "one.test", &cert); err != nil || state.DidResume != (i == 1) {
			t.Fatalf("handshake %d: resumed %v, error %v", i, state.DidResume, err)
		}
	}
	changed := &tls.Config{RootCAs: certificatetest.New(t, "one.test").Pool(t), ClientSessionCache: cache}
	if _, err := handshake(t, changed, "one.test", &cert); !errors.As(err, new(x509.UnknownAuthorityError)) {
		t.Errorf("a resumed session with other roots: got error %v, want an unknown authority", err)
	}
}

// Guarantee: what a server staples to its certificate counts as the certificate does, in each version of TLS.
func TestStaplesAreBounded(t *testing.T) {
	pair := certificatetest.New(t, "one.test")
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for size, refused := range map[int]bool{2 << 10: false, servercert.MaxBytes: true} {
			for name, staple := range map[string]func(*tls.Certificate){
				"a status":    func(c *tls.Certificate) { c.OCSPStaple = make([]byte, size) },
				"a timestamp": func(c *tls.Certificate) { c.SignedCertificateTimestamps = [][]byte{make([]byte, size)} },
			} {
				cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
				if err != nil {
					t.Fatal(err)
				}
				staple(&cert)
				cfg := &tls.Config{RootCAs: pair.Pool(t), MaxVersion: version}
				if _, err := handshake(t, cfg, "one.test", &cert); errors.As(err, new(servercert.BoundsError)) != refused || !refused && err != nil {
					t.Errorf("%s of %d bytes, version %x: got error %v, want a refusal: %v", name, size, version, err, refused)
				}
			}
		}
	}
}

// Guarantee: docs/limits.md, certificates of a server. A server that sends more, or larger, certificates than it needs
// is refused before they are verified.
func TestChainsAreBounded(t *testing.T) {
	pair := certificatetest.New(t, "one.test")
	leaf, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	modulus := new(big.Int).Lsh(big.NewInt(1), 2047)
	modulus.SetBit(modulus, 0, 1)
	small := certificate(t, &key.PublicKey, 0)
	for name, c := range map[string]struct {
		more [][]byte
		says string // of the error; "" for none
	}{
		"as many as may be":  {slices.Repeat([][]byte{small}, servercert.MaxCertificates-1), ""},
		"one too many":       {slices.Repeat([][]byte{small}, servercert.MaxCertificates), "sent 17 certificates"},
		"many bytes":         {[][]byte{certificate(t, &key.PublicKey, 20<<10)}, ""},
		"too many bytes":     {[][]byte{certificate(t, &key.PublicKey, servercert.MaxBytes)}, "more than 32768 bytes"},
		"the usual exponent": {[][]byte{certificate(t, &rsa.PublicKey{N: modulus, E: 65537}, 0)}, ""},
		"a large exponent":   {[][]byte{certificate(t, &rsa.PublicKey{N: modulus, E: 1<<31 - 1}, 0)}, "exponent"},
	} {
		cert := leaf
		cert.Certificate = append(slices.Clone(leaf.Certificate), c.more...)
		cfg := &tls.Config{RootCAs: pair.Pool(t)}
		_, err := handshake(t, cfg, "one.test", &cert)
		var bounds servercert.BoundsError
		if c.says == "" && err != nil || c.says != "" && (!errors.As(err, &bounds) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: got error %v, want %q", name, err, c.says)
		}
	}
}

// Guarantee: docs/limits.md, handshake of a server. However a server fills its handshake, no more than MaxHandshake bytes
// of it are read; after the handshake there is no bound.
func TestHandshakesAreBounded(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	sent := make(chan int, 1)
	go func() {
		n, _ := far.Write(make([]byte, 4*servercert.MaxHandshake))
		sent <- n
	}()
	below := servercert.Below(near)
	read, err := io.Copy(io.Discard, below)
	if !errors.As(err, new(servercert.BoundsError)) || read != servercert.MaxHandshake {
		t.Errorf("read %d bytes and got error %v, want %d and a BoundsError", read, err, servercert.MaxHandshake)
	}
	near.Close()
	if n := <-sent; n != servercert.MaxHandshake {
		t.Errorf("the server could send %d bytes, want %d", n, servercert.MaxHandshake)
	}

	pair := certificatetest.New(t, "one.test")
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert.Certificate = append(cert.Certificate, slices.Repeat([][]byte{certificate(t, &key.PublicKey, 20<<10)}, 4)...)
	if _, err := handshake(t, &tls.Config{RootCAs: pair.Pool(t)}, "one.test", &cert); !errors.As(err, new(servercert.BoundsError)) || !strings.Contains(err.Error(), "in its TLS handshake") {
		t.Errorf("got error %v, want the bound of the handshake", err)
	}
}
