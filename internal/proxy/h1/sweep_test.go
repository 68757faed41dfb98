package h1

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/upstream"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// byHand stops the engine's sweeper and returns a function that sweeps once, as if d had
// passed since the last sweep.
func (g *harness) byHand() (pass func(d time.Duration)) {
	_ = g.engine.sweeper.Stop(context.Background()) // has no bound, so no error
	now := g.engine.clock.Now()
	return func(d time.Duration) {
		now += d.Milliseconds()
		g.engine.clock.Set(now)
		g.engine.sweep(true)
	}
}

// byTick is byHand in steps of one tick, as the engine sweeps.
func (g *harness) byTick() (pass func()) {
	_ = g.engine.sweeper.Stop(context.Background()) // has no bound, so no error
	n, now := 0, g.engine.clock.Now()
	return func() {
		n, now = n+1, now+tickTime.Milliseconds()
		g.engine.clock.Set(now)
		g.engine.sweep(n%checkEvery == 0)
	}
}

// await returns once the only connection is in phase p, by any of its phase clocks.
func (g *harness) await(p phase) {
	g.t.Helper()
	g.awaitConn(fmt.Sprintf("phase %d of the connection", p), func(c *conn) bool {
		return slices.ContainsFunc([]*phaseClock{&c.phase, &c.reading, &c.writing}, func(w *phaseClock) bool { return phaseOf(w.word.Load()) == p })
	})
}

// awaitConn waits for a condition of the engine's connections. The condition must only read fields
// that may be read while connections are served.
func (g *harness) awaitConn(what string, holds func(c *conn) bool) {
	g.t.Helper()
	awaittest.True(g.t, what, func() (found bool) {
		g.engine.conns.each(func(c *conn) { found = found || holds(c) })
		return found
	})
}

// Guarantee: the time that a request waits for a connection slot counts towards the
// gateway's timeout.
func TestWaitingForSlotCountsTowardsTimeout(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		const timeout = 10 * time.Minute
		s.timeout, s.maxConns = timeout.String(), 1
		release := make(chan bool)
		url, heads := upstreamOf(t, func(string, *upstreamtest.Conn) string {
			<-release
			return okResponse
		})
		s.upstream = url
		g := start(t, s)
		first, second := g.dial(t), g.dial(t)
		first.send("GET /first HTTP/1.1\r\nKEY\r\n\r\n")
		<-heads
		second.send("GET /second HTTP/1.1\r\nKEY\r\n\r\n")
		awaittest.True(t, "the second request waits for a connection", func() (waits bool) {
			g.pools.EachPlain(func(_ upstream.Origin, stats upstream.H1Stats) { waits = stats.Waiting > 0 })
			return waits
		})
		since := time.Now()
		<-time.After(50 * time.Millisecond)
		waited := time.Since(since)
		release <- true
		<-heads
		pass := g.byHand()
		g.await(phaseExchange)
		found := false
		g.engine.conns.each(func(c *conn) {
			if word := c.phase.word.Load(); phaseOf(word) == phaseExchange && c.phase.hold(word) {
				found = true
				if c.x.timeout > timeout-waited {
					t.Errorf("got %v left of the timeout, want at most %v after waiting %v", c.x.timeout, timeout-waited, waited)
				}
				c.phase.unhold()
			}
		})
		if !found {
			t.Error("got no exchange in phaseExchange, want one")
		}
		pass(timeout + time.Second)
		second.wantStatus("504")
		close(release)
	})
}

// waitForCut advances the engine's clock until the only connection, which is in phase p, is
// cut off. It checks that this does not happen before limit has passed.
func (g *harness) waitForCut(t *testing.T, pass func(time.Duration), p phase, limit time.Duration) {
	t.Helper()
	var served *conn
	g.engine.conns.each(func(c *conn) { served = c })
	watched := &served.phase
	switch p {
	case phaseReading:
		watched = &served.reading
	case phaseWriting:
		watched = &served.writing
	}
	// The clock stands still between passes. If bytes move after a pass, because
	// buffers on the way are not full yet, the limit counts from then on.
	for deadline := time.Now().Add(testTimeout); watched.wasCut() == notCut && g.engine.Connections() > 0; {
		pass(0)
		until := max(int64(watched.word.Load()>>16), served.sweeper.movedAt+limit.Milliseconds())
		if rest := time.Duration(until-g.engine.clock.Now())*time.Millisecond - time.Second; rest > 0 {
			pass(rest)
			if watched.wasCut() != notCut || g.engine.Connections() != 1 {
				t.Fatal("the connection was closed before its limit, want it open")
			}
		}
		pass(2 * time.Second)
		if time.Now().After(deadline) {
			t.Fatal("timed out waiting until the connection is cut off")
		}
	}
}

// Guarantee: a connection is closed when its head is not complete after 10 s, a body stalls
// for 30 s, a client reads nothing for 30 s, or it is idle for two minutes; not earlier,
// and not while bytes move.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.timeout = "10m"
		s.upstream, _ = upstreamOf(t, func(h string, c *upstreamtest.Conn) string {
			if strings.HasPrefix(h, "POST") {
				_, _ = io.Copy(io.Discard, c)
				return ""
			}
			if strings.HasPrefix(h, "GET /endless") {
				c.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
				for piece := "8000\r\n" + strings.Repeat("x", 0x8000) + "\r\n"; ; {
					if _, err := io.WriteString(c.Conn, piece); err != nil {
						return ""
					}
				}
			}
			return okResponse
		})
		for _, c := range []struct {
			name, request string
			phase         phase
			limit         time.Duration
		}{
			{"head", "GET /a HTTP/1.1\r\nHost: a\r\n", phaseHead, headTime},
			{"silence", "", phaseNew, headTime},
			{"idle", "GET /a HTTP/1.1\r\nKEY\r\n\r\n", phaseIdle, idleTime},
			{"body", "POST /a HTTP/1.1\r\nKEY\r\nContent-Length: 10\r\n\r\nhello", phaseReading, stallTime},
			{"reader", "GET /endless HTTP/1.1\r\nKEY\r\n\r\n", phaseWriting, stallTime},
		} {
			t.Run(c.name, func(t *testing.T) {
				g := start(t, s)
				pass := g.byHand()
				client := g.dial(t)
				client.send(c.request)
				if c.name == "idle" {
					client.wantStatus("200")
					client.bytes(2)
				}
				g.await(c.phase)
				g.waitForCut(t, pass, c.phase, c.limit)
				if _, err := client.rest(); c.name != "reader" && err != nil {
					t.Errorf("got error %v, want the end of the connection", err)
				}
				g.waitForNoConnections()
			})
		}
	})
}
