package upstream

import (
	"crypto/tls"
	"io"
	"net"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// Guarantee: closing a TLS connection whose peer is gone does not block on the closing
// alert, so the connection frees its slot at once.
func TestCloseAfterPeerIsGone(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	certificate := server.TLS.Certificates
	server.Close()
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		c := tls.Client(newConn(here), &tls.Config{InsecureSkipVerify: true})
		shaken := make(chan error, 1)
		go func() { shaken <- c.Handshake() }()
		peer := tls.Server(there, &tls.Config{Certificates: certificate, MaxVersion: tls.VersionTLS12}) // the server sends nothing after a TLS 1.2 handshake
		if err := peer.Handshake(); err != nil {
			t.Fatal(err)
		}
		if err := <-shaken; err != nil {
			t.Fatal(err)
		}
		_ = there.Close()
		start := time.Now()
		_ = c.Close()
		if took := time.Since(start); took != 0 {
			t.Errorf("Close took %v, want 0", took)
		}
	})
}

// Guarantee: a failed write waits until everything that arrived has been read: it may be a
// response.
func TestWriteWaitsForReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer func() { _ = there.Close() }()
		c := newConn(brokenWriter{here})
		wrote := make(chan error, 1)
		go func() {
			_, err := c.Write([]byte("more"))
			wrote <- err
		}()
		synctest.Wait()
		select {
		case <-wrote:
			t.Error("the failed write returned before reading ended")
		default:
		}
		_ = there.Close()
		_, _ = io.ReadAll(c)
		if err := <-wrote; err == nil {
			t.Error("the failed write returned no error")
		}
	})
}

// brokenWriter is a connection to a peer that has stopped reading.
type brokenWriter struct{ net.Conn }

func (brokenWriter) Write([]byte) (int, error) { return 0, net.ErrClosed }
