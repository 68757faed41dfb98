package h1

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/snapshot/snapshottest"
	"github.com/keygate/keygate/internal/upstream"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// Guarantee: a request that waited for a connection to the upstream is refused if its key was
// revoked meanwhile: nothing of it goes upstream, the response and the record say that the key is
// revoked, and the connection goes on.
func TestRevokedWhileWaitingForConnection(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.maxConns, s.keepStreams = 1, true // so that the sweeper does not end the wait
		release := make(chan bool)
		url, heads := upstreamOf(t, func(h string, _ *upstreamtest.Conn) string {
			if strings.HasPrefix(h, "GET /first") {
				<-release
			}
			return okResponse
		})
		s.upstream = url
		for _, request := range []string{
			"GET /second HTTP/1.1\r\nKEY\r\n\r\n", "POST /second HTTP/1.1\r\nKEY\r\nContent-Length: 2\r\n\r\nok",
			"GET /second HTTP/1.1\r\nKEY\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		} {
			g := start(t, s)
			first, second := g.dial(t), g.dial(t)
			first.key = g.other
			first.send("GET /first HTTP/1.1\r\nKEY\r\n\r\n")
			<-heads
			second.send(request)
			awaittest.True(t, "the second request waits", func() bool {
				waiting := 0
				g.pools.EachPlain(func(_ upstream.Origin, stats upstream.H1Stats) { waiting = stats.Waiting })
				return waiting > 0
			})
			g.access.revoke(t)
			release <- true
			first.wantResponse("200", "ok")
			wantIn(t, second.body(second.wantStatus("401")), `"key_invalid"`)
			second.key = g.other
			second.send("GET /third HTTP/1.1\r\nKEY\r\n\r\n")
			second.wantResponse("200", "ok")
			if h := <-heads; !strings.HasPrefix(h, "GET /third") {
				t.Errorf("the upstream received %q, want nothing of the revoked key", h)
			}
			g.stop(t.Context())
			for _, e := range g.endRecords() {
				if e.Path == "/second" && (e.Status != 401 || e.Result != accesslog.KeyInvalid || e.Reason != accesslog.KeyWasRevoked || e.Key == [16]byte{}) {
					t.Errorf("got the record %+v, want 401, the key and that it was revoked", e)
				}
			}
		}
	})
}

// Guarantee: a request is not sent a second time if its key was revoked after the first.
func TestRevokedBeforeRetry(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.keepStreams = true
		var g *harness
		url, heads := upstreamOf(t, func(h string, _ *upstreamtest.Conn) string {
			if strings.HasPrefix(h, "GET /broken") {
				g.access.revoke(t)
				return ""
			}
			return okResponse
		})
		s.upstream = url
		g = start(t, s)
		c := g.dial(t)
		c.send("GET /a HTTP/1.1\r\nKEY\r\n\r\n")
		c.wantResponse("200", "ok")
		c.send("GET /broken HTTP/1.1\r\nKEY\r\n\r\n")
		wantIn(t, c.body(c.wantStatus("401")), `"key_invalid"`)
		if len(heads) != 2 {
			t.Errorf("the upstream received %d requests, want the broken one once", len(heads))
		}
	})
}

// longExchange is an exchange that goes on until it is cut.
type longExchange struct {
	name, request string
	phase         phase
	begin         func(c *client) // until the exchange is under way
	status        uint16          // recorded; 0 if the client gets the refusal
}

var longExchanges = []longExchange{
	{"stream of events", "GET /events HTTP/1.1\r\nKEY\r\n\r\n", phaseStream, func(c *client) { c.wantStatus("200"); c.wantBytes("7\r\ndata: 1") }, 200},
	{"long body", "GET /long HTTP/1.1\r\nKEY\r\n\r\n", phaseStream, func(c *client) { c.wantStatus("200"); c.bytes(1 << 20) }, 200},
	{"body that is not read", "GET /endless HTTP/1.1\r\nKEY\r\n\r\n", phaseStream, func(c *client) { c.wantStatus("200") }, 200},
	{"tunnel", "GET /tunnel HTTP/1.1\r\nKEY\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", phaseTunnel, func(c *client) { c.wantStatus("101"); c.wantBytes("hello") }, 101},
	{"upload", "POST /upload HTTP/1.1\r\nKEY\r\nContent-Length: 1000\r\n\r\npart", phaseExchange, func(*client) {}, 0},
	{"upload with an early response", "POST /events HTTP/1.1\r\nKEY\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n", phaseStream, func(c *client) { c.wantStatus("200"); c.wantBytes("7\r\ndata: 1") }, 200},
	{"slow response", "GET /slow HTTP/1.1\r\nKEY\r\n\r\n", phaseExchange, func(*client) {}, 0},
}

// serveLong makes the upstream serve the longExchanges. ended receives a value for each exchange
// that has ended at the upstream.
func (s *setup) serveLong(t testing.TB) (begun, ended chan string) {
	ended = make(chan string, 1000)
	s.upstream, begun = upstreamOf(t, func(h string, c *upstreamtest.Conn) string {
		_, rest, _ := strings.Cut(h, " ")
		switch path, _, _ := strings.Cut(rest, " "); path {
		case "/short":
			return okResponse
		case "/events":
			c.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\ndata: 1\r\n")
		case "/long":
			c.Send("HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n" + strings.Repeat("x", 1<<20))
		case "/endless":
			c.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			for piece, err := "8000\r\n"+strings.Repeat("x", 0x8000)+"\r\n", error(nil); err == nil; {
				_, err = io.WriteString(c.Conn, piece)
			}
		case "/tunnel":
			c.Send("HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello")
		}
		_, _ = io.Copy(io.Discard, c)
		ended <- h
		return ""
	})
	return begun, ended
}

// ends are the ways in which access ends.
var ends = []struct {
	name   string
	end    func(t testing.TB, a *access)
	reason accesslog.Reason
	status string // of the refusal
	always bool   // also with cut_streams: false
}{
	{"revoked", func(t testing.TB, a *access) { a.revoke(t) }, accesslog.KeyWasRevoked, "401", false},
	{"expired", func(t testing.TB, a *access) {
		a.changeKey(t, func(k *apikey.Key) { k.ExpiresAt = time.Unix(0, time.Now().UnixNano()+a.ahead.Load()) })
	}, accesslog.KeyHasExpired, "401", false},
	{"restricted", func(t testing.TB, a *access) {
		a.changeKey(t, func(k *apikey.Key) { k.Scope, _ = apikey.ParseScopes("read:other") })
	}, accesslog.KeyNotAllowed, "403", false},
	{"suspended", func(t testing.TB, a *access) {
		a.apply(t, func(s *snapshottest.Source) {
			all, _ := s.Accounts(t.Context())
			all[0].State = account.Suspended
			s.PutAccount(all[0])
		})
	}, accesslog.GatewayGone, "404", true},
	{"gateway deleted", func(t testing.TB, a *access) {
		a.apply(t, func(s *snapshottest.Source) { s.DeleteGateway(gatewayID) })
	}, accesslog.GatewayGone, "404", true},
	{"lease lost", func(_ testing.TB, a *access) { a.lost.Store(true) }, accesslog.LeaseLost, "503", true},
}

// tick advances all clocks by one tick and sweeps.
func (g *harness) tick(pass func(time.Duration)) {
	g.access.ahead.Add(int64(tickTime))
	pass(tickTime)
}

// underWay begins the exchange, and returns once it has run for long enough to be reviewed.
func (x *longExchange) underWay(g *harness, t *testing.T, begun chan string, pass func(time.Duration)) *client {
	t.Helper()
	c := g.dial(t)
	c.send(x.request)
	<-begun
	x.begin(c)
	g.await(x.phase)
	for range 5 {
		g.tick(pass)
	}
	g.await(x.phase)
	return c
}

// Guarantee: contract 3.3, cut_streams: an exchange that runs for long ends within 1 s, on both
// sides, when its key or its gateway or the lease ends. A response that has begun is broken off;
// otherwise the client gets the refusal. The record says why.
func TestLongExchangesAreCut(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		begun, ended := s.serveLong(t)
		for _, x := range longExchanges {
			for _, e := range ends {
				t.Run(x.name+", "+e.name, func(t *testing.T) {
					g := start(t, s)
					pass := g.byHand()
					c := x.underWay(g, t, begun, pass)
					e.end(t, g.access)
					for range int(time.Second/tickTime) - 1 { // and up to one until the next
						g.tick(pass)
					}
					<-ended
					if x.status == 0 {
						c.body(c.wantStatus(e.status))
					} else if rest, _ := c.rest(); strings.HasSuffix(rest, "0\r\n\r\n") {
						t.Error("the response ended properly, want it broken off")
					}
					_ = c.Close()
					g.stop(t.Context())
					records := g.endRecords()
					if len(records) != 1 || records[0].Reason != e.reason || x.status != 0 && records[0].Status != x.status {
						t.Errorf("got records %+v, want one with status %d and reason %q", records, x.status, e.reason)
					}
				})
			}
		}
	})
}

// Guarantee: the bound of 1 s also holds if the key is revoked at once after the request was admitted.
func TestCutFromTheStart(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		begun, ended := s.serveLong(t)
		for _, x := range longExchanges {
			t.Run(x.name, func(t *testing.T) {
				g := start(t, s)
				pass := g.byHand()
				c := g.dial(t)
				c.send(x.request)
				<-begun
				x.begin(c)
				g.await(x.phase)
				g.access.revoke(t)
				for range int(time.Second/tickTime) - 1 { // and up to one until the first
					g.tick(pass)
				}
				<-ended
				_ = c.Close()
				g.stop(t.Context())
			})
		}
	})
}

// Guarantee: with cut_streams: false, exchanges go on when their key ends. What has begun on a
// public route goes on in any case.
func TestKeptStreamsGoOn(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.keepStreams = true
		begun, ended := s.serveLong(t)
		for _, x := range longExchanges {
			for _, e := range ends {
				if e.always {
					continue
				}
				t.Run(x.name+", "+e.name, func(t *testing.T) {
					g := start(t, s)
					pass := g.byHand()
					c := x.underWay(g, t, begun, pass)
					e.end(t, g.access)
					for range 20 {
						g.tick(pass)
					}
					g.await(x.phase)
					if len(ended) > 0 {
						t.Error("the exchange ended at the upstream, want it to go on")
					}
					_ = c.Close()
					g.stop(canceled(t))
					<-ended
				})
			}
		}
	})
}

// Guarantee: an exchange shorter than proxy.ReviewAfter is never cut, whatever happens to its key.
func TestShortExchangesAreNotCut(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		release := make(chan bool)
		url, heads := upstreamOf(t, func(string, *upstreamtest.Conn) string {
			<-release
			return okResponse
		})
		s.upstream = url
		g := start(t, s)
		pass := g.byHand()
		c := g.dial(t)
		c.send("GET /a HTTP/1.1\r\nKEY\r\n\r\n")
		<-heads
		g.await(phaseExchange)
		g.access.revoke(t)
		for range 10 {
			pass(tickTime) // the clock of the decisions stands still
		}
		release <- true
		c.wantResponse("200", "ok")
		c.send("GET /a HTTP/1.1\r\nKEY\r\n\r\n")
		c.body(c.wantStatus("401"))
	})
}

// Guarantee: under a storm of revocations each stream ends on both sides, and no short request of
// another key is disturbed.
func TestStormOfRevocations(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.now = time.Now
		begun, ended := s.serveLong(t)
		g := start(t, s)
		shapes := []longExchange{longExchanges[0], longExchanges[1], longExchanges[3], longExchanges[5]}
		const streams, rounds = 12, 3
		done := make(chan bool)
		var short, long sync.WaitGroup
		short.Go(func() {
			for {
				select {
				case <-begun:
				case <-done:
					return
				}
			}
		})
		for range 3 {
			c := g.dial(t)
			c.key = g.other
			short.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-done:
						return
					default:
					}
					if _, err := io.WriteString(c.Conn, "GET /short HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer "+c.key+"\r\n\r\n"); err != nil {
						t.Error(err)
						return
					}
					u := upstreamtest.Conn{Conn: c.Conn, Reader: c.Reader}
					if h, err := u.ReadHead(); err != nil || !strings.HasPrefix(h, "HTTP/1.1 200") {
						t.Errorf("request %d of another key: got %q, error %v; want a 200", n, h, err)
						return
					}
					_, _ = io.CopyN(io.Discard, c.Reader, 2)
				}
			})
		}
		for i := range streams {
			x := shapes[i%len(shapes)]
			long.Go(func() {
				for range rounds {
					key, revoke := g.access.newKey(t)
					c := g.dial(t)
					c.key = key
					c.send(x.request)
					x.begin(c)
					revoke()
					if rest, _ := c.rest(); strings.HasSuffix(rest, "0\r\n\r\n") {
						t.Errorf("%s: the response ended properly, want it broken off", x.name)
					}
					_ = c.Close()
				}
			})
		}
		long.Wait()
		for range streams * rounds {
			<-ended
		}
		close(done)
		short.Wait()
	})
}

// canceled returns a context that has ended.
func canceled(t testing.TB) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// Guarantee: plans.md, section 5: a request that is cut before its response, because its key was revoked, costs what is unknown
// of it: of each byte of its body, too, when that came with the head.
func TestCostOfARequestThatIsCut(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		begun, ended := s.serveLong(t)
		s.cost = cost.Rules{{Meter: "units", Reserve: 1, Max: 1000, From: cost.From{Source: cost.FromHeader, Header: "X-Cost"}, Unknown: cost.Unknown{Fallback: cost.UnknownBytesIn, Weight: 3_000_000}}}
		if err := s.cost.Validate(); err != nil {
			t.Fatal(err)
		}
		x := longExchange{"", "POST /slow HTTP/1.1\r\nKEY\r\nContent-Length: 4\r\n\r\npart", phaseExchange, func(*client) {}, 0}
		g := start(t, s)
		pass := g.byHand()
		c := x.underWay(g, t, begun, pass)
		g.access.revoke(t)
		for range int(time.Second/tickTime) - 1 {
			g.tick(pass)
		}
		<-ended
		c.body(c.wantStatus("401"))
		_ = c.Close()
		g.stop(t.Context())
		for _, e := range g.endRecords() {
			all := slices.Collect(accesslog.Costs(e.Cost))
			if len(all) != 1 || all[0].Units != 12 || all[0].Unknown != "incomplete" {
				t.Errorf("got the costs %+v of %d bytes, want 12 units for 4 bytes", all, e.BytesIn)
			}
		}
	})
}
