package postgres

import (
	"crypto/tls"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/cabletest"
)

// tlsServer terminates TLS in front of a server: it asks for a client certificate, and passes on what it decrypts.
type tlsServer struct {
	addr   string
	to     string
	config atomic.Pointer[tls.Config]
}

func startTLS(t *testing.T, to string) *tlsServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &tlsServer{addr: l.Addr().String(), to: to}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		running.Wait()
	})
	return s
}

// serve ends when the client hangs up.
func (s *tlsServer) serve(c net.Conn) {
	defer c.Close()
	if _, err := io.CopyN(io.Discard, c, 8); err != nil { // SSLRequest
		return
	}
	if _, err := c.Write([]byte("S")); err != nil {
		return
	}
	near := tls.Server(c, s.config.Load())
	if near.Handshake() != nil {
		return
	}
	far, err := net.Dial("tcp", s.to)
	if err != nil {
		return
	}
	defer far.Close()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(near, far)
		_ = near.Close()
	})
	_, _ = io.Copy(far, near)
	_ = far.Close()
	back.Wait()
}

// expect sets the certificate of the server, and the certificate that it requires from clients.
func (s *tlsServer) expect(t *testing.T, server, client certificatetest.Pair) {
	t.Helper()
	pair, err := tls.X509KeyPair(server.Cert, server.Key)
	if err != nil {
		t.Fatal(err)
	}
	s.config.Store(&tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: client.Pool(t)})
}

// Guarantee: the certificates that the URL names are read at each connect: when the certificates of the server and the
// client are replaced, a running store goes on with the new ones. An error names the file that cannot be read, and no
// password.
func TestCertificatesAreReadAtEachConnect(t *testing.T) {
	u, err := url.Parse(migrated(t))
	if err != nil {
		t.Fatal(err)
	}
	server := startTLS(t, u.Host)
	cable := cabletest.New(t, server.addr)
	dir := t.TempDir()
	files := map[string]string{"sslrootcert": filepath.Join(dir, "roots.pem"), "sslcert": filepath.Join(dir, "cert.pem"), "sslkey": filepath.Join(dir, "key.pem")}
	write := func(server, client certificatetest.Pair) {
		for name, text := range map[string][]byte{"sslrootcert": server.Cert, "sslcert": client.Cert, "sslkey": client.Key} {
			if err := os.WriteFile(files[name], text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	u.Host = cable.Addr
	query := u.Query()
	query.Set("sslmode", "verify-full")
	for name, path := range files {
		query.Set(name, path)
	}
	u.RawQuery = query.Encode()

	ours, theirs := certificatetest.New(t, "client"), certificatetest.New(t, "server")
	write(theirs, ours)
	server.expect(t, theirs, ours)
	db := openWith(t, Config{URL: u.String()})
	if _, err := db.OldestSnapshot(t.Context()); err != nil {
		t.Fatal(err)
	}

	ours, theirs = certificatetest.New(t, "client"), certificatetest.New(t, "server")
	server.expect(t, theirs, ours)
	cable.HangUp()
	if _, err := db.OldestSnapshot(t.Context()); err == nil {
		t.Fatal("a server whose certificate is not in the file is trusted")
	}
	write(theirs, ours)
	awaittest.True(t, "the database can be read with exchanged certificates", func() bool {
		_, err := db.OldestSnapshot(t.Context())
		return err == nil
	})

	if err := os.Remove(files["sslrootcert"]); err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	_, err = Open(t.Context(), Config{URL: u.String()})
	if err == nil || !strings.Contains(err.Error(), files["sslrootcert"]) || strings.Contains(err.Error(), password) {
		t.Errorf("without the file: the error %v", err)
	}
	cable.HangUp()
	if _, err = db.OldestSnapshot(t.Context()); err == nil {
		t.Error("without the file a connection was made")
	}
}
