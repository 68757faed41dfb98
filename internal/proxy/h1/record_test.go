package h1

import (
	"context"
	"io"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// wantRecord is what a test expects of an access record.
type wantRecord struct {
	result           accesslog.Result
	status, upstream uint16
	in, out          int64
	authenticated    bool
	method           string
	path             string
}

func (w wantRecord) check(t *testing.T, e accesslog.Entry) {
	t.Helper()
	method := e.MethodText
	if e.Method != accesslog.OtherMethod {
		method = [...]string{"", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"}[e.Method]
	}
	got := wantRecord{e.Result, e.Status, e.UpstreamStatus, e.BytesIn, e.BytesOut, e.Authenticated, method, e.Path}
	if got != w {
		t.Errorf("\n got %+v\nwant %+v", got, w)
	}
	if age := time.Since(time.UnixMicro(e.Start)); age < 0 || age > time.Hour {
		t.Errorf("got a start %v ago, want 0 to 1h", age)
	}
	if e.Duration < 0 || e.Duration > int64(time.Hour) {
		t.Errorf("got duration %v, want 0 to 1h", time.Duration(e.Duration))
	}
	if e.Upstream > e.Duration {
		t.Errorf("got upstream time %v, want at most the duration %v", time.Duration(e.Upstream), time.Duration(e.Duration))
	}
	if w.upstream != 0 && e.Upstream < 0 {
		t.Errorf("got upstream time %v with an upstream response, want at least 0", time.Duration(e.Upstream))
	}
	if w.upstream == 0 && e.Upstream >= 0 {
		t.Errorf("got upstream time %v without an upstream response, want a negative one", time.Duration(e.Upstream))
	}
	if netip.AddrFrom16(e.Client).Unmap() != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("got client %v, want 127.0.0.1", netip.AddrFrom16(e.Client))
	}
	if e.Request == [16]byte{} {
		t.Error("got no request identifier, want one")
	}
	if e.Part == accesslog.Started {
		t.Error("got the record of a start, want that of an end")
	}
}

// byPath starts the upstream of the tests below. The path selects its response.
func byPath(t *testing.T) (url string, heads chan string) {
	return upstreamOf(t, func(h string, c *upstreamtest.Conn) string {
		_, target, _ := strings.Cut(h, " ")
		target, _, _ = strings.Cut(target, " ")
		path, _, _ := strings.Cut(target, "?")
		switch path {
		case "/chunks":
			return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nX-T: 1\r\n\r\n"
		case "/interim":
			return "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno"
		case "/none":
			return "HTTP/1.1 204 No Content\r\n\r\n"
		case "/large":
			return "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 1_000_000)
		case "/half":
			c.Send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
			return ""
		case "/nothing":
			return ""
		case "/early":
			return "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"
		case "/five":
			_, _ = io.ReadFull(c, make([]byte, 5))
		case "/chunked":
			for body := ""; !strings.HasSuffix(body, "\r\n0\r\n\r\n"); {
				line, err := c.ReadString('\n')
				if err != nil {
					return ""
				}
				body += line
			}
		case "/forever":
			_, _ = io.Copy(io.Discard, c)
			return ""
		}
		return okResponse
	})
}

// Guarantee: however a request ends, exactly one access record says what the client
// received. It is emitted before the client has the whole response.
func TestOneRecordForEachRequest(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.upstream, _ = byPath(t)
		s.maxBody = 100_000
		s.cors = &gateway.CORS{Origins: []string{"*"}}
		g := start(t, s)
		forwarded := func(status uint16, in, out int64, method, path string) wantRecord {
			return wantRecord{accesslog.Forwarded, status, status, in, out, true, method, path}
		}
		for _, c := range []struct {
			request, status string
			want            wantRecord
		}{
			{"GET /a?api_key=secret&b=c HTTP/1.1\r\nKEY\r\n\r\n", "200", forwarded(200, 0, 2, "GET", "/a")},
			{"HEAD /a HTTP/1.1\r\nKEY\r\n\r\n", "200", forwarded(200, 0, 0, "HEAD", "/a")},
			{"GET /public/a HTTP/1.1\r\nHost: a\r\n\r\n", "200", wantRecord{accesslog.Forwarded, 200, 200, 0, 2, false, "GET", "/public/a"}},
			{"GET /chunks HTTP/1.1\r\nKEY\r\nTE: trailers\r\n\r\n", "200", forwarded(200, 0, 5, "GET", "/chunks")},
			{"GET /chunks HTTP/1.0\r\nKEY\r\n\r\n", "200", forwarded(200, 0, 5, "GET", "/chunks")},
			{"GET /interim HTTP/1.1\r\nKEY\r\n\r\n", "103", forwarded(404, 0, 2, "GET", "/interim")},
			{"GET /none HTTP/1.1\r\nKEY\r\n\r\n", "204", forwarded(204, 0, 0, "GET", "/none")},
			{"GET /large HTTP/1.1\r\nKEY\r\n\r\n", "200", forwarded(200, 0, 1_000_000, "GET", "/large")},
			{"POST /five HTTP/1.1\r\nKEY\r\nContent-Length: 5\r\n\r\nhello", "200", forwarded(200, 5, 2, "POST", "/five")},
			{"PUT /chunked HTTP/1.1\r\nKEY\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n", "200", forwarded(200, 7, 2, "PUT", "/chunked")},
			{"POST /early HTTP/1.1\r\nKEY\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", "503", forwarded(503, 0, 4, "POST", "/early")},
			{"GET /half HTTP/1.1\r\nKEY\r\n\r\n", "200", forwarded(200, 0, 4, "GET", "/half")},
			{"POST /nothing HTTP/1.1\r\nKEY\r\nContent-Length: 5\r\n\r\nhello", "502", wantRecord{accesslog.Unreachable, 502, 0, 5, -1, true, "POST", "/nothing"}},
			{"GET /a HTTP/1.1\r\nKEY\r\nVia: 1.1 keygate-test\r\n\r\n", "502", wantRecord{accesslog.Unreachable, 502, 0, 0, -1, true, "GET", "/a"}},
			{"GET /a HTTP/1.1\r\nHost: a\r\n\r\n", "401", wantRecord{accesslog.KeyInvalid, 401, 0, 0, -1, true, "GET", "/a"}},
			{"HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n", "401", wantRecord{accesslog.KeyInvalid, 401, 0, 0, 0, true, "HEAD", "/a"}},
			{"PROPFIND /a HTTP/1.1\r\nKEY\r\n\r\n", "405", wantRecord{accesslog.NoMethod, 405, 0, 0, -1, true, "PROPFIND", "/a"}},
			{"OPTIONS /a HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\nAccess-Control-Request-Method: GET\r\n\r\n", "204", wantRecord{accesslog.Preflight, 204, 0, 0, 0, false, "OPTIONS", "/a"}},
			{"GET /a?api_key=1&api_key=2 HTTP/1.1\r\nHost: a\r\n\r\n", "400", wantRecord{accesslog.Malformed, 400, 0, 0, -1, false, "GET", "/a"}},
			{"GET /a/../b HTTP/1.1\r\nKEY\r\n\r\n", "400", wantRecord{accesslog.Malformed, 400, 0, 0, -1, false, "GET", ""}},
			{"TRACE /a HTTP/1.1\r\nKEY\r\n\r\n", "405", wantRecord{accesslog.Malformed, 405, 0, 0, -1, false, "TRACE", ""}},
			{"nonsense\r\n\r\n", "400", wantRecord{accesslog.Malformed, 400, 0, 0, -1, false, "", ""}},
			{"GET /" + strings.Repeat("a", admit.MaxTarget) + " HTTP/1.1\r\nKEY\r\n\r\n", "414", wantRecord{accesslog.Malformed, 414, 0, 0, -1, false, "", ""}},
			{"GET /a HTTP/2.0\r\nKEY\r\n\r\n", "505", wantRecord{accesslog.Malformed, 505, 0, 0, -1, false, "", ""}},
			{"GET /a HTTP/1.1\r\nKEY\r\n" + strings.Repeat("A: b\r\n", 100) + "\r\n", "431", wantRecord{accesslog.Malformed, 431, 0, 0, -1, false, "", ""}},
			{"POST /a HTTP/1.1\r\nKEY\r\nContent-Length: 100001\r\n\r\n", "413", wantRecord{accesslog.Malformed, 413, 0, 0, -1, true, "POST", "/a"}},
			{"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", "401", wantRecord{accesslog.KeyInvalid, 401, 0, 0, -1, true, "POST", "/a"}},
			{"POST /chunked HTTP/1.1\r\nKEY\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n", "400", wantRecord{accesslog.Malformed, 400, 0, 0, -1, true, "POST", "/chunked"}},
		} {
			line, _, _ := strings.Cut(c.request[:min(len(c.request), 60)], "\r\n")
			t.Run(line, func(t *testing.T) {
				client := g.dial(t)
				client.send(c.request)
				if !strings.Contains(c.request, "Expect") {
					_ = proxy.TCPOf(client.Conn).CloseWrite()
				}
				head := client.wantStatus(c.status)
				if c.status == "103" {
					head = client.head()
				}
				body, _ := client.rest()
				entries := g.records()
				if len(entries) != 1 {
					t.Fatalf("got %d records, want 1: %+v", len(entries), entries)
				}
				if c.want.out < 0 {
					c.want.out = int64(len(body))
				}
				c.want.check(t, entries[0])
				if _, name, _ := strings.Cut(head, "X-Request-Id: "); !strings.HasPrefix(name, id.Format(id.Request, entries[0].Request)) {
					t.Errorf("got X-Request-Id %.30q, want %s as in the record", name, id.Format(id.Request, entries[0].Request))
				}
			})
		}
	})
}

// Guarantee: each request of a connection has its own record, which contains nothing of the
// previous one. It is emitted before the client has the whole response.
func TestRecordsOfOneConnection(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.upstream, _ = byPath(t)
		g := start(t, s)
		c := g.dial(t)
		for range 50 {
			c.send("POST /five HTTP/1.1\r\nKEY\r\nContent-Length: 5\r\n\r\nhello")
			c.wantStatus("200")
			c.bytes(2)
			c.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nKEY\r\n\r\n")
			refusal := c.body(c.wantStatus("401"))
			c.wantStatus("200")
			c.bytes(2)
			entries := g.records()
			if len(entries) != 3 {
				t.Fatalf("got %d records, want 3: %+v", len(entries), entries)
			}
			for _, entry := range entries {
				switch entry.Path {
				case "/five":
					wantRecord{accesslog.Forwarded, 200, 200, 5, 2, true, "POST", "/five"}.check(t, entry)
				case "/a":
					wantRecord{accesslog.KeyInvalid, 401, 0, 0, int64(len(refusal)), true, "GET", "/a"}.check(t, entry)
				default:
					wantRecord{accesslog.Forwarded, 200, 200, 0, 2, true, "GET", "/b"}.check(t, entry)
				}
				key, _ := id.Parse(id.Key, keyID)
				if entry.Path == "/a" && entry.Key == key {
					t.Errorf("request without a key: got key %x of the request before, want none", entry.Key)
				}
				if entry.Path != "/a" && entry.Key != key {
					t.Errorf("%s: got key %x, want %x", entry.Path, entry.Key, key)
				}
			}
		}
	})
}

// Guarantee: a client that hangs up during its request body or before the response is
// recorded with status 499; a client that hangs up after the response is not.
func TestRecordsOfClientsThatHangUp(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		var heads chan string
		s.upstream, heads = byPath(t)
		g := start(t, s)
		pass := g.byHand()
		uploading := g.dial(t)
		uploading.send("POST /forever HTTP/1.1\r\nKEY\r\nContent-Length: 50\r\n\r\nhello")
		<-heads
		_ = uploading.Close()
		g.waitForNoConnections()

		waiting := g.dial(t)
		waiting.send("GET /forever HTTP/1.1\r\nKEY\r\n\r\n")
		<-heads
		pass(tickTime)
		_ = waiting.Close()
		g.waitForHangUp()
		pass(checkAfter)
		g.waitForNoConnections()

		responded := g.dial(t)
		responded.send("GET /a HTTP/1.1\r\nKEY\r\n\r\n")
		responded.wantResponse("200", "ok")
		<-heads
		_ = responded.Close()
		g.waitForNoConnections()

		g.stop(t.Context())
		results := map[accesslog.Result]int{}
		for _, entry := range g.endRecords() {
			results[entry.Result]++
			if entry.Result == accesslog.Abandoned && (entry.Status != 499 || entry.UpstreamStatus != 0 || entry.BytesOut != 0) {
				t.Errorf("got %+v, want status 499, no upstream status and no bytes", entry)
			}
		}
		want := map[accesslog.Result]int{accesslog.Abandoned: 2, accesslog.Forwarded: 1}
		if !maps.Equal(results, want) {
			t.Errorf("got results %v, want %v", results, want)
		}
	})
}

// Guarantee: a request whose upstream does not respond in time is recorded as timed out.
func TestRecordOfTimeout(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		var heads chan string
		s.upstream, heads = byPath(t)
		g := start(t, s)
		pass := g.byHand()
		c := g.dial(t)
		c.send("GET /forever HTTP/1.1\r\nKEY\r\n\r\n")
		<-heads
		g.await(phaseExchange)
		pass(10*time.Minute + 2*tickTime)
		c.wantStatus("504")
		_ = c.Close()
		g.stop(t.Context())
		if entries := g.endRecords(); len(entries) != 1 || entries[0].Result != accesslog.TimedOut {
			t.Errorf("got records %+v, want one with result TimedOut", entries)
		}
	})
}

// waitForNoConnections waits until the engine has no connection.
func (g *harness) waitForNoConnections() {
	g.t.Helper()
	awaittest.True(g.t, "the engine has no connection", func() bool { return g.engine.Connections() == 0 })
}

// endRecords returns the access records emitted since the last call, without the records of the
// starts of requests.
func (g *harness) endRecords() (entries []accesslog.Entry) {
	for _, entry := range g.records() {
		if entry.Part != accesslog.Started {
			entries = append(entries, entry)
		}
	}
	return entries
}

// nextRecords waits for the next access records.
func (g *harness) nextRecords(t *testing.T) (entries []accesslog.Entry) {
	t.Helper()
	awaittest.True(t, "an access record is emitted", func() bool {
		entries = g.records()
		return len(entries) > 0
	})
	return entries
}

// wantStart waits for the record of the start of a request to path and returns it.
func (g *harness) wantStart(t *testing.T, path string) accesslog.Entry {
	t.Helper()
	entries := g.nextRecords(t)
	started := entries[0]
	if len(entries) != 1 || started.Part != accesslog.Started || !started.Authenticated || started.Path != path || started.Status != 0 {
		t.Fatalf("got records %+v, want the start of one authenticated request to %s, without a status", entries, path)
	}
	return started
}

// wantEnd checks that entries contain exactly one record, which ends the request that
// started began, and returns it.
func wantEnd(t *testing.T, started accesslog.Entry, entries []accesslog.Entry) accesslog.Entry {
	t.Helper()
	if len(entries) != 1 || entries[0].Part != accesslog.Ended || entries[0].Request != started.Request {
		t.Fatalf("got records %+v, want the end of request %x", entries, started.Request)
	}
	return entries[0]
}

// Guarantee: a long request is recorded once while it runs, whether it waits for its
// response or receives it, and once at its end, with all of its bytes.
func TestLongRequestIsRecordedTwice(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		release := make(chan bool)
		s.now = time.Now
		s.upstream, _ = upstreamOf(t, func(h string, c *upstreamtest.Conn) string {
			if strings.HasPrefix(h, "GET /wait") {
				<-release
				return okResponse
			}
			c.Send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc")
			<-release
			return "de"
		})
		g := start(t, s)
		for path, size := range map[string]int{"/wait": 2, "/stream": 5} {
			t.Run(path[1:], func(t *testing.T) {
				c := g.dial(t)
				c.send("GET " + path + " HTTP/1.1\r\nKEY\r\n\r\n")
				started := g.wantStart(t, path)
				release <- true
				c.wantStatus("200")
				c.bytes(size)
				ended := wantEnd(t, started, g.records())
				wantRecord{accesslog.Forwarded, 200, 200, 0, int64(size), true, "GET", path}.check(t, ended)
				if ended.Duration < int64(proxy.StartedAfter) {
					t.Errorf("got duration %v, want at least %v", time.Duration(ended.Duration), proxy.StartedAfter)
				}
			})
		}
	})
}

// Guarantee: a tunnel is recorded at its start and at its end, with the bytes of both
// directions.
func TestTunnelIsRecordedTwice(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.now = time.Now
		s.upstream, _ = upstreamOf(t, func(_ string, c *upstreamtest.Conn) string {
			c.Send("HTTP/1.1 101 Switching\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\nfirst")
			b, _ := io.ReadAll(c)
			c.Send(string(b))
			return ""
		})
		g := start(t, s)
		c := g.dial(t)
		c.send("GET /tunnel HTTP/1.1\r\nKEY\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		started := g.wantStart(t, "/tunnel")
		c.wantStatus("101")
		c.send("back")
		_ = proxy.TCPOf(c.Conn).CloseWrite()
		c.wantEnd("firstback")
		ended := wantEnd(t, started, g.nextRecords(t))
		wantRecord{accesslog.Forwarded, 101, 101, 4, 9, true, "GET", "/tunnel"}.check(t, ended)
	})
}

// Guarantee: requests that a drain cuts off are recorded: as a failure with status 503 if no
// response had started, otherwise with the bytes of the response that were sent.
func TestRecordsOfRequestsCutOffByDrain(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		var arrived sync.WaitGroup
		arrived.Add(3)
		s.upstream, _ = upstreamOf(t, func(h string, c *upstreamtest.Conn) string {
			switch {
			case strings.HasPrefix(h, "GET /stream"):
				c.Send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc")
			case strings.HasPrefix(h, "GET /tunnel"):
				c.Send("HTTP/1.1 101 Switching\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\nfirst")
			}
			arrived.Done()
			_, _ = io.Copy(io.Discard, c)
			return ""
		})
		g := start(t, s)
		a, b, tunnel := g.dial(t), g.dial(t), g.dial(t)
		a.send("GET /wait HTTP/1.1\r\nKEY\r\n\r\n")
		b.send("GET /stream HTTP/1.1\r\nKEY\r\n\r\n")
		b.wantStatus("200")
		b.bytes(3)
		tunnel.send("GET /tunnel HTTP/1.1\r\nKEY\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		tunnel.wantStatus("101")
		tunnel.bytes(5)
		arrived.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		g.stop(ctx)
		entries := g.endRecords()
		if len(entries) != 3 {
			t.Fatalf("got %d records, want 3: %+v", len(entries), entries)
		}
		for _, entry := range entries {
			want := wantRecord{accesslog.Failed, 503, 0, 0, 0, true, "GET", "/wait"}
			if entry.Path == "/stream" {
				want = wantRecord{accesslog.Forwarded, 200, 200, 0, 3, true, "GET", "/stream"}
			} else if entry.Path == "/tunnel" {
				want = wantRecord{accesslog.Forwarded, 101, 101, 0, 5, true, "GET", "/tunnel"}
			}
			want.check(t, entry)
		}
	})
}

// waitingDecider is a Decider whose verdict is to wait, which fails.
type waitingDecider struct{ proxy.Decider }

func (d waitingDecider) Decide(req *admit.Request, v *admit.Verdict) {
	d.Decider.Decide(req, v)
	v.Action = admit.Wait
}

func (waitingDecider) Wait(context.Context, *admit.Verdict) error {
	return fault.New(fault.Unavailable, "later")
}

// Guarantee: a panic is a 500, and a daily count that cannot be read a 503, each with its
// access record.
func TestRecordsOfFailures(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.upstream, _ = byPath(t)
		good := start(t, s)
		for _, c := range []struct {
			decider proxy.Decider
			path    string
			status  string
			want    wantRecord
		}{
			{panickingDecider{good.engine.cfg.Admit}, "/panic", "500", wantRecord{accesslog.Failed, 500, 0, 0, -1, false, "GET", ""}},
			{waitingDecider{good.engine.cfg.Admit}, "/a", "503", wantRecord{accesslog.Failed, 503, 0, 0, -1, true, "GET", "/a"}},
		} {
			g := serve(t, c.decider, s)
			client := g.dial(t)
			client.key = good.key
			client.send("GET " + c.path + " HTTP/1.1\r\nKEY\r\n\r\n")
			body := client.body(client.wantStatus(c.status))
			entries := g.records()
			if len(entries) != 1 {
				t.Fatalf("got %d records, want 1: %+v", len(entries), entries)
			}
			c.want.out = int64(len(body))
			entries[0].Duration = 0 // the clocks of two engines differ
			c.want.check(t, entries[0])
		}
	})
}

// Guarantee: the record's client is the address that a trusted proxy names; without a
// trusted proxy it is the peer's.
func TestClientOfRecord(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.upstream, _ = byPath(t)
		for _, trusted := range []bool{false, true} {
			for _, trust := range []*clientip.Trust{nil, clientip.NewTrust([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("192.0.2.0/24")})} {
				s.trusted, s.trust = trusted, trust
				g := start(t, s)
				c := g.dial(t)
				c.send("GET /a HTTP/1.1\r\nKEY\r\nX-Forwarded-For: 198.51.100.7, 2001:db8::1\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n")
				c.wantStatus("200")
				want := "127.0.0.1"
				switch {
				case trusted && trust != nil:
					want = "2001:db8::1"
				case trusted:
					want = "192.0.2.1"
				}
				if got := netip.AddrFrom16(g.records()[0].Client).Unmap().String(); got != want {
					t.Errorf("trusted %v: got client %s, want %s", trusted, got, want)
				}
			}
		}
	})
}

// makeRequests makes n requests over one connection, alternately for a chunked and a large
// response.
func (g *harness) makeRequests(t *testing.T, n int) {
	c := g.dial(t)
	defer func() { _ = c.Close() }()
	for i := range n {
		if i%2 == 1 {
			c.send("GET /large HTTP/1.1\r\nKEY\r\n\r\n")
			c.head()
			if _, err := io.CopyN(io.Discard, c, 1_000_000); err != nil {
				t.Error(err)
				return
			}
			continue
		}
		c.send("GET /chunks HTTP/1.1\r\nKEY\r\n\r\n")
		c.head()
		for line := ""; line != "0\r\n"; {
			var err error
			if line, err = c.ReadString('\n'); err != nil {
				t.Error(err)
				return
			}
		}
		_, _ = c.ReadString('\n')
	}
}

// recordStarts makes the sweeper record the start of every running request.
func (g *harness) recordStarts() {
	g.engine.conns.each(func(c *conn) {
		word := c.phase.word.Load()
		if p := phaseOf(word); p == phaseExchange || p == phaseStream {
			c.sweeper.attend(c, &admit.Review{}, word, c.sweeper.since+proxy.StartedAfter.Milliseconds())
		}
	})
}
