package upstream

import (
	"bufio"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/proctest"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/tlspump/tlspumptest"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

const (
	smallRequest  = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	smallResponse = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
)

// newSecureTest returns the pool for HTTP/1.1 of a TLS server, which passes its connections to serve
// after the handshake.
func newSecureTest(t testing.TB, cfg *tls.Config, serve func(over *tls.Conn, tcp *net.TCPConn)) *H1Pool {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	s.Close()
	cfg.Certificates, cfg.NextProtos = s.TLS.Certificates, []string{"http/1.1"}
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		over := tls.Server(c.Conn, cfg)
		if over.Handshake() == nil {
			serve(over, c.Conn.(*net.TCPConn))
		}
	})
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	pools, err := NewPools(Config{Guard: netguard.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pools.Close)
	pool, err := pools.Multiplexed(Origin{Scheme: "https", Host: addr, CA: ca})
	if err != nil {
		t.Fatal(err)
	}
	return pool.HTTP1()
}

// respond responds to every request.
func respond(over *tls.Conn, _ *net.TCPConn) {
	buf, response := make([]byte, 1<<10), []byte(smallResponse)
	for {
		if _, err := over.Read(buf); err != nil {
			return
		}
		if _, err := over.Write(response); err != nil {
			return
		}
	}
}

// exchanger makes exchanges over a connection as the engine does, without memory of its own.
type exchanger struct {
	c      *H1Conn
	buf    []byte
	sent   bool
	n      int
	err    error
	onRead func(fd uintptr) bool
}

func newExchanger(c *H1Conn) *exchanger {
	e := &exchanger{c: c, buf: make([]byte, 4<<10)}
	request := []byte(smallRequest)
	e.onRead = func(fd uintptr) bool {
		if !e.sent {
			e.sent = true
			_, e.err = e.c.Write(request)
			return e.err != nil
		}
		e.n, e.err = e.c.Receive(fd, e.buf)
		return e.n > 0 || e.err != nil
	}
	return e
}

func (e *exchanger) exchange() error {
	e.sent, e.n = false, 0
	if err := e.c.Raw().Read(e.onRead); err != nil {
		return err
	}
	if string(e.buf[:e.n]) != smallResponse {
		return errors.Join(e.err, errors.New("not the response"))
	}
	return nil
}

// again makes one exchange after another over a connection that is released between them.
func (e *exchanger) again(pool *H1Pool) error {
	err := e.exchange()
	e.c.Release()
	if pool.Take(e.c) != e.c {
		return errors.New("the connection was not kept")
	}
	return err
}

// BenchmarkH1Conn shows the costs of a small exchange over a kept connection, including the server's
// on the same machine.
func BenchmarkH1Conn(b *testing.B) {
	run := func(b *testing.B, pool *H1Pool) {
		c, err := pool.Acquire(b.Context(), time.Time{}, nil)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Discard()
		e := newExchanger(c)
		b.ReportAllocs()
		before := proctest.CPUTime(b)
		for b.Loop() {
			if err := e.again(pool); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(proctest.CPUTime(b)-before)/float64(b.N), "cpu-ns/op")
	}
	b.Run("http", func(b *testing.B) {
		addr := upstreamtest.Serve(b, func(c *upstreamtest.Conn) {
			buf := make([]byte, 1<<10)
			for {
				if _, err := c.Conn.Read(buf); err != nil {
					return
				}
				c.Send(smallResponse)
			}
		})
		_, pool := newPlain(b, Config{}, addr)
		run(b, pool)
	})
	b.Run("https", func(b *testing.B) { run(b, newSecureTest(b, &tls.Config{}, respond)) })
}

// Guarantee: a KeyUpdate that arrives on an idle connection is taken and replied to, and the
// connection stays usable.
func TestKeyUpdateOfIdleConnection(t *testing.T) {
	const rounds = 20
	keys, updated := &tlspumptest.Keys{}, make(chan struct{})
	pool := newSecureTest(t, &tls.Config{MinVersion: tls.VersionTLS13, KeyLogWriter: keys, SessionTicketsDisabled: true}, func(_ *tls.Conn, tcp *net.TCPConn) {
		in, out := keys.Layer(t, tlspumptest.FromClient), keys.Layer(t, tlspumptest.FromServer)
		updated <- struct{}{} // nothing of the first request was read together with the handshake
		for i := range rounds {
			if i > 0 {
				if kind, data, err := in.TryOpen(tcp); err != nil || kind != tlspumptest.Handshake || string(data) != tlspumptest.KeyReply {
					t.Errorf("got record %d %x, %v; want the reply to the KeyUpdate", kind, data, err)
					return
				}
				in.Update()
			}
			if kind, data, err := in.TryOpen(tcp); err != nil || kind != tlspumptest.Data || string(data) != smallRequest {
				t.Errorf("got record %d %q, %v; want the request", kind, data, err)
				return
			}
			_, _ = tcp.Write(out.Seal(tlspumptest.Data, smallResponse))
			<-updated
			_, _ = tcp.Write(out.Seal(tlspumptest.Handshake, tlspumptest.KeyUpdate))
			out.Update()
			updated <- struct{}{}
		}
		_, _ = io.Copy(io.Discard, tcp)
	})
	e := newExchanger(acquire(t, pool, nil))
	<-updated
	for range rounds {
		if err := e.exchange(); err != nil {
			t.Fatal(err)
		}
		e.c.Release()
		updated <- struct{}{}
		<-updated
		if pool.Take(e.c) != e.c {
			t.Fatal("the connection was not kept")
		}
	}
	e.c.Discard()
}

// Guarantee: a server that closes its side, properly or not, makes an idle connection unusable, and
// CutShort distinguishes the two cases.
func TestEndOfSecureConnection(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, proper := range []bool{true, false} {
			end := make(chan bool)
			pool := newSecureTest(t, &tls.Config{MaxVersion: version}, func(over *tls.Conn, tcp *net.TCPConn) {
				from := bufio.NewReader(over)
				if _, err := http.ReadRequest(from); err != nil {
					return
				}
				_, _ = io.WriteString(over, smallResponse)
				<-end
				if proper {
					_ = over.CloseWrite()
				}
				_ = tcp.CloseWrite()
				end <- true
				_, _ = io.Copy(io.Discard, tcp)
			})
			e := newExchanger(acquire(t, pool, nil))
			if err := e.exchange(); err != nil {
				t.Fatal(err)
			}
			if e.c.Stale() {
				t.Error("the connection is unusable before its end")
			}
			end <- true
			<-end
			awaittest.True(t, "the end of the connection is noticed", e.c.Stale)
			_, err := e.c.NetConn().Read(make([]byte, 1))
			if !errors.Is(err, io.EOF) || e.c.CutShort() == proper {
				t.Errorf("%s, proper %v: got error %v, cut short %v", tls.VersionName(version), proper, err, e.c.CutShort())
			}
			e.c.Discard()
		}
	}
}
