package upstream

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/certificate/servercert"
	"github.com/keygate/keygate/internal/netguard"
)

// ticketServer is a TLS server with a certificate of about the given size, which sends tickets of another size. It returns its
// certificate.
func ticketServer(t *testing.T, l net.Listener, certificate, ticket int) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "one.test"}, DNSNames: []string{"one.test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Value: make([]byte, certificate)}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	own, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &tls.Config{
		Certificates:  []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		WrapSession:   func(tls.ConnectionState, *tls.SessionState) ([]byte, error) { return make([]byte, ticket), nil },
		UnwrapSession: func([]byte, tls.ConnectionState) (*tls.SessionState, error) { return nil, nil },
	}
	go func() {
		far, err := l.Accept()
		if err != nil {
			return // the test has failed
		}
		defer far.Close()
		_ = far.SetDeadline(time.Now().Add(time.Minute))
		server := tls.Server(far, cfg)
		_, _ = server.Write([]byte("x"))
		_, _ = server.Read(make([]byte, 1)) // until the client closes
	}()
	roots := x509.NewCertPool()
	roots.AddCert(own)
	return roots
}

// Guarantee: the sessions of an account's servers take a bounded amount of memory, whatever tickets and certificates the
// servers send and however many pools there are. A pool that is forgotten keeps none.
func TestSessionsOfAnAccountAreBoundedInBytes(t *testing.T) {
	p, err := NewPools(Config{Guard: netguard.New()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var pools []*H2Pool
	connect := func(n, certificate, ticket int) {
		t.Helper()
		pool, err := p.Multiplexed(Origin{Scheme: "https", Host: "one.test", Account: "a", MaxConnAge: time.Duration(n+1) * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		pools = append(pools, pool)
		cfg := pool.tls.Clone()
		cfg.RootCAs = ticketServer(t, l, certificate, ticket)
		near, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer near.Close()
		if err := near.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		below := servercert.Below(near)
		c, err := handshake(t.Context(), below, below, "one.test:443", cfg)
		if err == nil {
			_, err = c.Read(make([]byte, 1)) // the tickets come before it
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	used := func() int64 { return p.sessions.used["a"] }
	connect(0, 30<<10, 1000)
	if got := used(); got != 0 {
		t.Errorf("a session with a large certificate counts %d bytes; want that it is not kept", got)
	}
	connect(1, 0, 60_000)
	one := used()
	if one < 60_000 || one > maxSession {
		t.Fatalf("a session with a ticket of 60,000 bytes counts %d", one)
	}
	for n := range int(maxAccountSessions/one) + 20 {
		connect(2+n, 0, 60_000)
	}
	if got := used(); got > maxAccountSessions || got < maxAccountSessions-2*one {
		t.Errorf("the sessions of %d pools count %d bytes, want about %d", len(pools), got, maxAccountSessions)
	}
	p.making.Lock()
	for _, pool := range pools {
		p.forgetMultiplexed(pool)
	}
	p.making.Unlock()
	if got := used(); got != 0 || pools[1].session.last != nil {
		t.Errorf("the sessions of forgotten pools count %d bytes", got)
	}
}
