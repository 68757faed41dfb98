package h1

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// waitForHangUp returns once the engine's end of the connection shows that the client hung up.
func (g *harness) waitForHangUp() {
	g.t.Helper()
	g.awaitConn("the client has hung up", func(c *conn) bool { return c.control(proxy.IsClosed) })
}

// runUntilCutOff makes the upstream serve requests until they are cut off, with the start of a
// response for /stream. The channels receive a value when a request has arrived and when it is
// cut off.
func (s *setup) runUntilCutOff(t *testing.T, overHTTP2 bool) (_, _ <-chan bool) {
	started, ended := make(chan bool, 1), make(chan bool, 1)
	if overHTTP2 {
		s.upstream = h2cUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/stream" {
				_, _ = io.WriteString(w, "x")
				_ = http.NewResponseController(w).Flush()
			}
			started <- true
			<-r.Context().Done()
			ended <- true
		})
		return started, ended
	}
	s.upstream, _ = upstreamOf(t, func(h string, up *upstreamtest.Conn) string {
		if strings.HasPrefix(h, "GET /stream") {
			up.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
		}
		started <- true
		_, _ = io.Copy(io.Discard, up)
		ended <- true
		return ""
	})
	return started, ended
}

// h2cUpstream starts an upstream that speaks HTTP/2 in clear, and returns its URL.
func h2cUpstream(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return "h2c" + strings.TrimPrefix(server.URL, "http")
}

// Guarantee: when the client hangs up, the request to the upstream ends within 2 s of the
// engine's clock, whatever the state of the exchange, over HTTP/2 as well.
func TestClientHangUpEndsUpstream(t *testing.T) {
	t.Parallel()
	const ticks = int(2 * time.Second / tickTime)
	modes(t, func(t *testing.T, s setup) {
		for _, c := range []struct {
			name, request string
			phase         phase
			overHTTP2     bool
		}{
			{"waiting", "GET /wait HTTP/1.1\r\nKEY\r\n\r\n", phaseExchange, false},
			{"streaming", "GET /stream HTTP/1.1\r\nKEY\r\n\r\n", phaseStream, false},
			{"uploading", "POST /wait HTTP/1.1\r\nKEY\r\nContent-Length: 9\r\n\r\npart", phaseExchange, false},
			{"HTTP/2, uploading", "POST /wait HTTP/1.1\r\nKEY\r\nContent-Length: 9\r\n\r\npart", phaseExchange, true},
			{"HTTP/2, waiting", "GET /wait HTTP/1.1\r\nKEY\r\n\r\n", phaseExchange, true},
			{"HTTP/2, streaming", "GET /stream HTTP/1.1\r\nKEY\r\n\r\n", phaseStream, true},
		} {
			t.Run(c.name, func(t *testing.T) {
				s := s
				started, ended := s.runUntilCutOff(t, c.overHTTP2)
				g := start(t, s)
				pass := g.byTick()
				client := g.dial(t)
				client.send(c.request)
				if strings.HasPrefix(c.request, "GET /stream") {
					client.wantStatus("200")
				}
				<-started
				g.await(c.phase)
				pass()
				_ = client.Close()
				if !strings.HasSuffix(c.name, "uploading") { // where the reader of the body notices it
					g.waitForHangUp()
				}
				for range ticks {
					pass()
				}
				select {
				case <-ended:
				case <-time.After(testTimeout):
					t.Error("the request to the upstream is still running, want it ended")
				}
			})
		}
	})
}

// Guarantee: a connection does not continue to its next exchange while the sweeper is cutting off
// the previous one.
func TestCutHoldsConnection(t *testing.T) {
	t.Parallel()
	g := start(t, setup{limit: "1000000/s", upstream: "http://127.0.0.1:9"})
	c := newConn(g.engine, &net.TCPConn{}, ConnInfo{Client: netip.MustParseAddrPort("192.0.2.1:1")})
	c.phase.enter(phaseExchange, 1)
	left := make(chan cut)
	var early bool
	end := context.CancelCauseFunc(func(error) {
		go func() { left <- c.phase.enter(phaseIdle, 0) }()
		for range 1000 {
			runtime.Gosched()
			select {
			case why := <-left:
				early = true
				go func() { left <- why }()
				return
			default:
			}
		}
	})
	c.cancel.Store(&end)
	c.cutExchange(c.phase.word.Load(), cutTimeout)
	if why := <-left; why != cutTimeout {
		t.Errorf("got cut %d, want %d", why, cutTimeout)
	}
	if early {
		t.Error("the connection continued while its exchange was being cut off, want it to wait")
	}
	c.cancel.Store(nil)
}

// Guarantee: a request is a 504 when its upstream has sent no head within the gateway's
// timeout, and not earlier.
func TestTimeoutIs504(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.timeout = "3s"
		url, heads := upstreamOf(t, func(h string, up *upstreamtest.Conn) string {
			if strings.HasPrefix(h, "GET /now") {
				return okResponse
			}
			_, _ = io.Copy(io.Discard, up)
			return ""
		})
		s.upstream = url
		g := start(t, s)
		pass := g.byHand()
		client := g.dial(t)
		// Connecting counts towards the timeout, so open the upstream connection first.
		client.send("GET /now HTTP/1.1\r\nKEY\r\n\r\n")
		client.wantStatus("200")
		client.bytes(2)
		<-heads
		client.send("GET /wait HTTP/1.1\r\nKEY\r\n\r\n")
		<-heads
		g.await(phaseExchange)
		pass(3 * time.Second)
		g.engine.conns.each(func(c *conn) {
			if why := c.phase.wasCut(); why != notCut {
				t.Errorf("got cut %d before the timeout, want none", why)
			}
		})
		pass(2 * tickTime)
		client.wantStatus("504")
	})
}
