package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync"
	"testing"

	"github.com/keygate/keygate/internal/certificate/certificatetest"
)

// rawUpstream is an upstream whose connections the test handles itself.
type rawUpstream struct {
	addr  string
	conns chan net.Conn
}

func newRawUpstream(t testing.TB) *rawUpstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &rawUpstream{addr: l.Addr().String(), conns: make(chan net.Conn, 1024)}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b.conns <- conn
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		accepting.Wait()
		for {
			select {
			case conn := <-b.conns:
				_ = conn.Close()
			default:
				return
			}
		}
	})
	return b
}

// stopNow stops a data plane without waiting for running requests.
func stopNow(p *dataPlane) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p.stop(ctx)
}

// clientTLS returns the TLS configuration of a client that trusts a listener's certificate.
func clientTLS(server *tls.Config) *tls.Config {
	return &tls.Config{RootCAs: server.RootCAs, ServerName: hostname, MinVersion: tls.VersionTLS12}
}

// serverTLS returns the TLS configuration of an HTTP/1.1 listener with a new certificate,
// which RootCAs contains as well.
func serverTLS(t testing.TB) *tls.Config {
	t.Helper()
	pair := certificatetest.New(t, hostname)
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pair.Cert)
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, MinVersion: tls.VersionTLS12}
}
