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

// Guarantee: the last words of TLS to who has gone hold nothing up: until they are said or
// given up, the connection keeps its place under a bound.
func TestLastWordsOfTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	certificate := server.TLS.Certificates
	server.Close()
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		c := tls.Client(newConn(here), &tls.Config{InsecureSkipVerify: true})
		shaken := make(chan error, 1)
		go func() { shaken <- c.Handshake() }()
		peer := tls.Server(there, &tls.Config{Certificates: certificate, MaxVersion: tls.VersionTLS12}) // after whose handshake the server sends nothing
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
			t.Errorf("closing took %v", took)
		}
	})
}

// Guarantee: a write that fails waits for what is still read, which may be an answer.
func TestWriteWaitsForReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer func() { _ = there.Close() }()
		c := newConn(deaf{here})
		wrote := make(chan error, 1)
		go func() {
			_, err := c.Write([]byte("more"))
			wrote <- err
		}()
		synctest.Wait()
		select {
		case <-wrote:
			t.Error("it did not wait")
		default:
		}
		_ = there.Close()
		_, _ = io.ReadAll(c)
		if err := <-wrote; err == nil {
			t.Error("no error")
		}
	})
}

// deaf is a connection to who reads nothing more.
type deaf struct{ net.Conn }

func (deaf) Write([]byte) (int, error) { return 0, net.ErrClosed }
