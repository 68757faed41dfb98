package postgres

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
)

// cancelCode is in every request to cancel, after its length.
var cancelCode = []byte{0, 0, 0, 16, 0x04, 0xd2, 0x16, 0x2e}

// Guarantee: a request to cancel is not broken off because its statement has ended meanwhile. PgBouncer 1.18 ends
// when a client does that, with the connections of all nodes.
func TestRequestToCancelIsNotBrokenOff(t *testing.T) {
	to, err := url.Parse(postgrestest.Empty(t))
	if err != nil {
		t.Fatal(err)
	}
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var passing sync.WaitGroup
	t.Cleanup(passing.Wait)
	t.Cleanup(func() { _ = front.Close() })
	arrived, over, left := make(chan bool), make(chan bool), make(chan bool, 1)
	passing.Go(func() {
		for {
			client, err := front.Accept()
			if err != nil {
				return
			}
			passing.Go(func() {
				defer client.Close()
				head := make([]byte, len(cancelCode))
				if _, err := io.ReadFull(client, head); err != nil {
					return
				}
				if bytes.Equal(head, cancelCode) {
					_, _ = io.CopyN(io.Discard, client, 8)
					arrived <- true
					read := make(chan bool)
					go func() { // ends with client
						_, err := client.Read(head)
						read <- err == io.EOF //nolint:errorlint // as io.Reader returns it
					}()
					<-over
					select {
					case <-read:
						left <- true
					default:
						left <- false
						_ = client.Close()
						<-read
					}
					return
				}
				server, err := net.Dial("tcp", to.Host)
				if err != nil {
					return
				}
				defer server.Close()
				_, _ = server.Write(head)
				passing.Go(func() { _, _ = io.Copy(client, server) })
				_, _ = io.Copy(server, client)
			})
		}
	})

	settings, err := pgconn.ParseConfig(to.String())
	if err != nil {
		t.Fatal(err)
	}
	addr := front.Addr().(*net.TCPAddr)
	settings.Host, settings.Port = "127.0.0.1", uint16(addr.Port)
	settings.BuildContextWatcherHandler = func(p *pgconn.PgConn) ctxwatch.Handler { return &canceler{conn: p, grace: time.Minute} }
	c, err := pgconn.ConnectConfig(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := c.Exec(ctx, "SELECT 1")
	cancel()
	<-arrived
	ended := make(chan error, 1)
	go func() {
		_, err := result.ReadAll() // all of it has arrived, or does
		ended <- err
	}()
	// The statement has ended; its caller returns when the request to cancel has been taken. However long
	// this waits, correct code does not fail here.
	select {
	case err := <-ended:
		t.Errorf("the statement ended with error %v while the request to cancel was under way", err)
		ended <- err
	case <-time.After(300 * time.Millisecond):
	}
	over <- true
	if <-left {
		t.Error("the client left while its request to cancel was passed on")
	}
	if err := <-ended; err != nil {
		t.Errorf("the statement that had ended: %v", err)
	}
	if _, err := c.Exec(t.Context(), "SELECT 1").ReadAll(); err != nil {
		t.Errorf("the next statement: %v", err)
	}
}
