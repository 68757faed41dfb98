package h1

import (
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/upstream"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// byHand stops the engine's sweeper and returns a function that sweeps as if
// d had passed since the last time.
func (e *edge) byHand() (pass func(d time.Duration)) {
	e.engine.stop()
	e.engine.sweeper.Wait()
	now := e.engine.clock.ms.Load()
	return func(d time.Duration) {
		now += d.Milliseconds()
		e.engine.clock.ms.Store(now)
		e.engine.sweep(true)
	}
}

// byTick is byHand for one tick after the other, as the engine makes them.
func (e *edge) byTick() (pass func()) {
	e.engine.stop()
	e.engine.sweeper.Wait()
	n, now := 0, e.engine.clock.ms.Load()
	return func() {
		n, now = n+1, now+tickTime.Milliseconds()
		e.engine.clock.ms.Store(now)
		e.engine.sweep(n%leaveEvery == 0)
	}
}

// await returns once the only connection is in a phase, of any of its watches.
func (e *edge) await(p phase) {
	e.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); runtime.Gosched() {
		found := false
		e.engine.conns.each(func(c *conn) {
			for _, w := range []*watch{&c.main, &c.reading, &c.writing} {
				found = found || phaseOf(w.word.Load()) == p
			}
		})
		if found {
			return
		}
	}
	e.t.Fatalf("the connection did not come to phase %d", p)
}

// Guarantee: what a request waits for a connection counts against the time that
// its gateway gives the upstream for the head of an answer.
func TestOneTimeout(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		const timeout = 10 * time.Minute
		s.timeout, s.maxConns = timeout.String(), 1
		goOn := make(chan bool)
		url, heads := upstreamOf(t, func(string, *upstreamtest.Conn) string {
			<-goOn
			return okAnswer
		})
		s.upstream = url
		e := start(t, s)
		first, second := e.dial(), e.dial()
		first.say("GET /first HTTP/1.1\r\nKEY\r\n\r\n")
		<-heads
		second.say("GET /second HTTP/1.1\r\nKEY\r\n\r\n")
		for waiting := 0; waiting == 0; runtime.Gosched() {
			e.pools.EachPlain(func(_ upstream.Origin, stats upstream.H1Stats) { waiting = stats.Waiting })
		}
		since := time.Now()
		<-time.After(50 * time.Millisecond)
		waited := time.Since(since)
		goOn <- true
		<-heads
		pass := e.byHand()
		e.await(phaseExchange)
		found := false
		e.engine.conns.each(func(c *conn) {
			if word := c.main.word.Load(); phaseOf(word) == phaseExchange && c.main.hold(word) {
				found = true
				if c.x.patience > timeout-waited {
					t.Errorf("%v are left of %v after %v", c.x.patience, timeout, waited)
				}
				c.main.letGo()
			}
		})
		if !found {
			t.Error("no exchange waits")
		}
		pass(timeout + time.Second)
		second.wantStatus("504")
		close(goOn)
	})
}

// Guarantee: a head that is not complete after 10 s, a body that stalls for
// 30 s, a reader that takes nothing for 30 s, and a connection that idles for
// two minutes are closed; not before, and not while anything moves.
func TestDeadlines(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
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
			return okAnswer
		})
		for _, c := range []struct {
			name, say string
			phase     phase
			limit     time.Duration
		}{
			{"head", "GET /a HTTP/1.1\r\nHost: a\r\n", phaseHead, headTime},
			{"silence", "", phaseIdle, headTime},
			{"idle", "GET /a HTTP/1.1\r\nKEY\r\n\r\n", phaseIdle, idleTime},
			{"body", "POST /a HTTP/1.1\r\nKEY\r\nContent-Length: 10\r\n\r\nhello", phaseReading, stallTime},
			{"reader", "GET /endless HTTP/1.1\r\nKEY\r\n\r\n", phaseWriting, stallTime},
		} {
			t.Run(c.name, func(t *testing.T) {
				e := start(t, s)
				e.t = t
				pass := e.byHand()
				client := e.dial()
				client.say(c.say)
				if c.name == "idle" {
					client.wantStatus("200")
					client.bytes(2)
				}
				e.await(c.phase)
				var served *conn
				e.engine.conns.each(func(c *conn) { served = c })
				watched := &served.main
				switch c.phase {
				case phaseReading:
					watched = &served.reading
				case phaseWriting:
					watched = &served.writing
				}
				// The clock stands still in between: what moves after a pass, while the
				// buffers between are not full yet, has its time from then on.
				for deadline := time.Now().Add(patience); watched.wasCut() == notCut && e.engine.Connections() > 0; {
					pass(0)
					until := max(int64(watched.word.Load()>>16), served.sweeper.movedAt+c.limit.Milliseconds())
					if left := time.Duration(until-e.engine.clock.ms.Load())*time.Millisecond - time.Second; left > 0 {
						pass(left)
						if watched.wasCut() != notCut || e.engine.Connections() != 1 {
							t.Fatal("closed too early")
						}
					}
					pass(2 * time.Second)
					if time.Now().After(deadline) {
						t.Fatal("not ended")
					}
				}
				if _, err := client.rest(); c.name != "reader" && err != nil {
					t.Error(err)
				}
				for deadline := time.Now().Add(patience); e.engine.Connections() > 0; runtime.Gosched() {
					if time.Now().After(deadline) {
						t.Fatal("not closed")
					}
				}
			})
		}
	})
}
