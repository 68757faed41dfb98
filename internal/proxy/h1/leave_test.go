package h1

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// gone returns once the engine's system knows that a client has left.
func (e *edge) gone() {
	e.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); runtime.Gosched() {
		found := false
		e.engine.conns.each(func(c *conn) { found = found || c.control(hungUp) })
		if found {
			return
		}
	}
	e.t.Fatal("the client did not leave")
}

// Guarantee: the upstream's work ends within 2 s of the engine's clock when the
// client leaves: before the head of the answer, within the answer, within an
// upload, and where another driver forwards.
func TestLeaving(t *testing.T) {
	const ticks = int(2 * time.Second / tickTime)
	drivers(t, func(t *testing.T, s setup) {
		for _, c := range []struct {
			name, say string
			phase     phase
			foreign   bool
		}{
			{"waiting", "GET /wait HTTP/1.1\r\nKEY\r\n\r\n", phaseExchange, false},
			{"stream", "GET /stream HTTP/1.1\r\nKEY\r\n\r\n", phaseStream, false},
			{"upload", "POST /wait HTTP/1.1\r\nKEY\r\nContent-Length: 9\r\n\r\npart", phaseExchange, false},
			{"foreign upload", "POST /wait HTTP/1.1\r\nKEY\r\nContent-Length: 9\r\n\r\npart", phaseForeign, true},
			{"foreign", "GET /wait HTTP/1.1\r\nKEY\r\n\r\n", phaseForeign, true},
			{"foreign stream", "GET /stream HTTP/1.1\r\nKEY\r\n\r\n", phaseForeign, true},
		} {
			t.Run(c.name, func(t *testing.T) {
				begun, ended := make(chan bool, 1), make(chan bool, 1)
				s := s
				s.timeout = "10m"
				s.upstream, _ = upstreamOf(t, func(h string, up *upstreamtest.Conn) string {
					if strings.HasPrefix(h, "GET /stream") {
						up.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
					}
					begun <- true
					_, _ = io.Copy(io.Discard, up)
					ended <- true
					return ""
				})
				if c.foreign {
					s.upstream = "https://127.0.0.1:9"
				}
				s.forward = func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/stream" {
						_, _ = io.WriteString(w, "x")
						_ = http.NewResponseController(w).Flush()
					}
					begun <- true
					<-r.Context().Done()
					ended <- true
				}
				e := start(t, s)
				e.t = t
				pass := e.byTick()
				client := e.dial()
				client.say(c.say)
				if strings.HasPrefix(c.say, "GET /stream") {
					client.wantStatus("200")
				}
				<-begun
				e.await(c.phase)
				pass()
				if c.name == "foreign upload" { // that nobody reads: its end cannot be seen, only a reset
					_ = client.Conn.(*net.TCPConn).SetLinger(0)
				}
				_ = client.Close()
				if c.name != "upload" { // whose reader sees it by itself
					e.gone()
				}
				for range ticks {
					pass()
				}
				select {
				case <-ended:
				case <-time.After(patience):
					t.Error("the upstream works on")
				}
			})
		}
	})
}

// Guarantee: a connection does not go on to its next exchange while the sweeper
// ends the one before.
func TestCutHoldsTheConnection(t *testing.T) {
	e := start(t, setup{limit: "1000000/s", upstream: "http://127.0.0.1:9"})
	c := newConn(e.engine, &net.TCPConn{}, ConnInfo{Client: netip.MustParseAddrPort("192.0.2.1:1")})
	c.main.enter(phaseExchange, 1)
	left := make(chan cut)
	var early bool
	end := context.CancelCauseFunc(func(error) {
		go func() { left <- c.main.enter(phaseIdle, 0) }()
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
	c.cutExchange(c.main.word.Load(), cutLate)
	if why := <-left; early || why != cutLate {
		t.Errorf("the connection went on early: %v, told of %d", early, why)
	}
	c.cancel.Store(nil)
}

// Guarantee: 504 when no head comes in time, and not before.
func TestNoHead(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		s.timeout = "3s"
		url, heads := upstreamOf(t, func(h string, up *upstreamtest.Conn) string {
			if strings.HasPrefix(h, "GET /now") {
				return okAnswer
			}
			_, _ = io.Copy(io.Discard, up)
			return ""
		})
		s.upstream = url
		e := start(t, s)
		pass := e.byHand()
		client := e.dial()
		// What it takes to connect counts, so there is a connection at first.
		client.say("GET /now HTTP/1.1\r\nKEY\r\n\r\n")
		client.wantStatus("200")
		client.bytes(2)
		<-heads
		client.say("GET /wait HTTP/1.1\r\nKEY\r\n\r\n")
		<-heads
		e.await(phaseExchange)
		pass(3 * time.Second)
		e.engine.conns.each(func(c *conn) {
			if why := c.main.wasCut(); why != notCut {
				t.Errorf("cut off too early: %d", why)
			}
		})
		pass(2 * tickTime)
		client.wantStatus("504")
	})
}
