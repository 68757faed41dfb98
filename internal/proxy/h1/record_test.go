package h1

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/netip"
	"runtime"
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
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// told is what a test wants a record to say.
type told struct {
	decision         accesslog.Result
	status, upstream uint16
	in, out          int64
	authenticated    bool
	method           string
	path             string
}

func (w told) check(t *testing.T, e accesslog.Entry) {
	t.Helper()
	method := e.MethodText
	if e.Method != accesslog.OtherMethod {
		method = [...]string{"", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"}[e.Method]
	}
	got := told{e.Result, e.Status, e.UpstreamStatus, e.BytesIn, e.BytesOut, e.Authenticated, method, e.Path}
	if got != w {
		t.Errorf("\n got %+v\nwant %+v", got, w)
	}
	if age := time.Since(time.UnixMicro(e.Start)); age < 0 || age > time.Hour {
		t.Errorf("it began %v ago", age)
	}
	if e.Duration < 0 || e.Duration > int64(time.Hour) || (e.Upstream >= 0) != (w.upstream != 0) || e.Upstream > e.Duration {
		t.Errorf("it lasted %v, the upstream %v", time.Duration(e.Duration), time.Duration(e.Upstream))
	}
	if netip.AddrFrom16(e.Client).Unmap() != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("the client is %v", netip.AddrFrom16(e.Client))
	}
	if e.Request == [16]byte{} || e.Part == accesslog.Started {
		t.Errorf("request %x, part %d", e.Request, e.Part)
	}
}

// ending is the upstream of the tests below: the path says what it does.
func ending(t *testing.T) (url string, heads chan string) {
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
		case "/five", "/chunked":
			end, n := "", 5
			if path == "/chunked" {
				end = "\r\n0\r\n\r\n"
			}
			b := make([]byte, n)
			if end == "" {
				_, _ = io.ReadFull(c, b)
			}
			for all := ""; end != "" && !strings.HasSuffix(all, end); {
				line, err := c.ReadString('\n')
				if err != nil {
					return ""
				}
				all += line
			}
		case "/forever":
			_, _ = io.Copy(io.Discard, c)
			return ""
		}
		return okAnswer
	})
}

// Guarantee: however a request ends, it gives exactly one record, which says what
// the client got, and it is there when the client has the answer.
func TestOneRecordForEachRequest(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		s.upstream, _ = ending(t)
		s.maxBody = 100_000
		s.cors = &gateway.CORS{Origins: []string{"*"}}
		e := start(t, s)
		forwarded := func(status uint16, in, out int64, method, path string) told {
			return told{accesslog.Forwarded, status, status, in, out, true, method, path}
		}
		for _, c := range []struct {
			request, status string
			want            told
		}{
			{"GET /a?api_key=secret&b=c HTTP/1.1\r\nKEY\r\n\r\n", "200", forwarded(200, 0, 2, "GET", "/a")},
			{"HEAD /a HTTP/1.1\r\nKEY\r\n\r\n", "200", forwarded(200, 0, 0, "HEAD", "/a")},
			{"GET /public/a HTTP/1.1\r\nHost: a\r\n\r\n", "200", told{accesslog.Forwarded, 200, 200, 0, 2, false, "GET", "/public/a"}},
			{"GET /chunks HTTP/1.1\r\nKEY\r\nTE: trailers\r\n\r\n", "200", forwarded(200, 0, 5, "GET", "/chunks")},
			{"GET /chunks HTTP/1.0\r\nKEY\r\n\r\n", "200", forwarded(200, 0, 5, "GET", "/chunks")},
			{"GET /interim HTTP/1.1\r\nKEY\r\n\r\n", "103", forwarded(404, 0, 2, "GET", "/interim")},
			{"GET /none HTTP/1.1\r\nKEY\r\n\r\n", "204", forwarded(204, 0, 0, "GET", "/none")},
			{"GET /large HTTP/1.1\r\nKEY\r\n\r\n", "200", forwarded(200, 0, 1_000_000, "GET", "/large")},
			{"POST /five HTTP/1.1\r\nKEY\r\nContent-Length: 5\r\n\r\nhello", "200", forwarded(200, 5, 2, "POST", "/five")},
			{"PUT /chunked HTTP/1.1\r\nKEY\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n", "200", forwarded(200, 7, 2, "PUT", "/chunked")},
			{"POST /early HTTP/1.1\r\nKEY\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", "503", forwarded(503, 0, 4, "POST", "/early")},
			{"GET /half HTTP/1.1\r\nKEY\r\n\r\n", "200", forwarded(200, 0, 4, "GET", "/half")},
			{"POST /nothing HTTP/1.1\r\nKEY\r\nContent-Length: 5\r\n\r\nhello", "502", told{accesslog.Unreachable, 502, 0, 5, -1, true, "POST", "/nothing"}},
			{"GET /a HTTP/1.1\r\nKEY\r\nVia: 1.1 keygate-test\r\n\r\n", "502", told{accesslog.Unreachable, 502, 0, 0, -1, true, "GET", "/a"}},
			{"GET /a HTTP/1.1\r\nHost: a\r\n\r\n", "401", told{accesslog.KeyInvalid, 401, 0, 0, -1, true, "GET", "/a"}},
			{"HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n", "401", told{accesslog.KeyInvalid, 401, 0, 0, 0, true, "HEAD", "/a"}},
			{"PROPFIND /a HTTP/1.1\r\nKEY\r\n\r\n", "405", told{accesslog.NoMethod, 405, 0, 0, -1, true, "PROPFIND", "/a"}},
			{"OPTIONS /a HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\nAccess-Control-Request-Method: GET\r\n\r\n", "204", told{accesslog.Preflight, 204, 0, 0, 0, false, "OPTIONS", "/a"}},
			{"GET /a?api_key=1&api_key=2 HTTP/1.1\r\nHost: a\r\n\r\n", "400", told{accesslog.Malformed, 400, 0, 0, -1, false, "GET", "/a"}},
			{"GET /a/../b HTTP/1.1\r\nKEY\r\n\r\n", "400", told{accesslog.Malformed, 400, 0, 0, -1, false, "GET", ""}},
			{"TRACE /a HTTP/1.1\r\nKEY\r\n\r\n", "405", told{accesslog.Malformed, 405, 0, 0, -1, false, "TRACE", ""}},
			{"nonsense\r\n\r\n", "400", told{accesslog.Malformed, 400, 0, 0, -1, false, "", ""}},
			{"GET /" + strings.Repeat("a", admit.MaxTarget) + " HTTP/1.1\r\nKEY\r\n\r\n", "414", told{accesslog.Malformed, 414, 0, 0, -1, false, "", ""}},
			{"GET /a HTTP/2.0\r\nKEY\r\n\r\n", "505", told{accesslog.Malformed, 505, 0, 0, -1, false, "", ""}},
			{"GET /a HTTP/1.1\r\nKEY\r\n" + strings.Repeat("A: b\r\n", 100) + "\r\n", "431", told{accesslog.Malformed, 431, 0, 0, -1, false, "", ""}},
			{"POST /a HTTP/1.1\r\nKEY\r\nContent-Length: 100001\r\n\r\n", "413", told{accesslog.Malformed, 413, 0, 0, -1, true, "POST", "/a"}},
			{"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", "401", told{accesslog.KeyInvalid, 401, 0, 0, -1, true, "POST", "/a"}},
			{"POST /chunked HTTP/1.1\r\nKEY\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n", "400", told{accesslog.Malformed, 400, 0, 0, -1, true, "POST", "/chunked"}},
		} {
			line, _, _ := strings.Cut(c.request[:min(len(c.request), 60)], "\r\n")
			t.Run(line, func(t *testing.T) {
				client := e.dial()
				client.t = t
				client.say(c.request)
				if !strings.Contains(c.request, "Expect") {
					_ = client.Conn.(*net.TCPConn).CloseWrite()
				}
				head := client.wantStatus(c.status)
				if c.status == "103" {
					head = client.head()
				}
				body, _ := client.rest()
				entries := e.records()
				if len(entries) != 1 {
					t.Fatalf("%d records: %+v", len(entries), entries)
				}
				if c.want.out < 0 {
					c.want.out = int64(len(body))
				}
				c.want.check(t, entries[0])
				if _, name, _ := strings.Cut(head, "X-Request-Id: "); !strings.HasPrefix(name, id.Format(id.Request, entries[0].Request)) {
					t.Errorf("the answer's identifier is %.30q", name)
				}
			})
		}
	})
}

// Guarantee: requests on one connection give a record each, in which nothing is
// left of the one before; the numbers are there when the answer is.
func TestRecordsOfOneConnection(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		s.upstream, _ = ending(t)
		e := start(t, s)
		c := e.dial()
		for range 50 {
			c.say("POST /five HTTP/1.1\r\nKEY\r\nContent-Length: 5\r\n\r\nhello")
			c.wantStatus("200")
			c.bytes(2)
			c.say("GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nKEY\r\n\r\n")
			_, after, _ := strings.Cut(c.wantStatus("401"), "Content-Length: ")
			c.bytes(len(after[:0]) + atoi(t, after))
			c.wantStatus("200")
			c.bytes(2)
			entries := e.records()
			if len(entries) != 3 {
				t.Fatalf("%d records of 3", len(entries))
			}
			for _, entry := range entries {
				switch entry.Path {
				case "/five":
					told{accesslog.Forwarded, 200, 200, 5, 2, true, "POST", "/five"}.check(t, entry)
				case "/a":
					told{accesslog.KeyInvalid, 401, 0, 0, int64(atoi(t, after)), true, "GET", "/a"}.check(t, entry)
				default:
					told{accesslog.Forwarded, 200, 200, 0, 2, true, "GET", "/b"}.check(t, entry)
				}
				if key, _ := id.Parse(id.Key, keyID); (entry.Key == key) != (entry.Path != "/a") {
					t.Errorf("%s: the key is %x", entry.Path, entry.Key)
				}
			}
		}
	})
}

func atoi(t *testing.T, s string) (n int) {
	t.Helper()
	for i := 0; i < len(s) && '0' <= s[i] && s[i] <= '9'; i++ {
		n = n*10 + int(s[i]-'0')
	}
	return n
}

// Guarantee: a client that leaves before an answer is 499, and an upstream that
// does not answer in time 504.
func TestRecordsOfThoseWhoWait(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		var heads chan string
		s.upstream, heads = ending(t)
		e := start(t, s)
		pass := e.byHand()
		uploading := e.dial()
		uploading.say("POST /forever HTTP/1.1\r\nKEY\r\nContent-Length: 50\r\n\r\nhello")
		<-heads
		_ = uploading.Close()
		e.alone()
		early := e.dial()
		early.say("GET /forever HTTP/1.1\r\nKEY\r\n\r\n")
		<-heads
		pass(tickTime)
		_ = early.Close()
		e.gone()
		pass(leaveAfter)
		e.alone()
		inTime := e.dial()
		inTime.say("GET /a HTTP/1.1\r\nKEY\r\n\r\n")
		inTime.wantStatus("200")
		inTime.bytes(2)
		<-heads
		_ = inTime.Close()
		e.alone()
		timedOut := e.dial()
		timedOut.say("GET /forever HTTP/1.1\r\nKEY\r\n\r\n")
		<-heads
		pass(10*time.Minute + 2*tickTime)
		timedOut.wantStatus("504")
		_ = timedOut.Close()
		e.stop(t.Context())
		byDecision := map[accesslog.Result]int{}
		for _, entry := range e.ended() {
			byDecision[entry.Result]++
			if entry.Result == accesslog.Abandoned && (entry.Status != 499 || entry.UpstreamStatus != 0 || entry.BytesOut != 0) {
				t.Errorf("%+v", entry)
			}
		}
		if byDecision[accesslog.Abandoned] != 2 || byDecision[accesslog.TimedOut] != 1 || byDecision[accesslog.Forwarded] != 1 {
			t.Errorf("decisions %v", byDecision)
		}
	})
}

// alone returns once the engine has no connection.
func (e *edge) alone() {
	e.t.Helper()
	for deadline := time.Now().Add(patience); e.engine.Connections() > 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			e.t.Fatal("a connection is left")
		}
	}
}

// ended returns what was told since the last call, but for beginnings.
func (e *edge) ended() (entries []accesslog.Entry) {
	for _, entry := range e.records() {
		if entry.Part != accesslog.Started {
			entries = append(entries, entry)
		}
	}
	return entries
}

// next waits for the next entries.
func (e *edge) next(t *testing.T) []accesslog.Entry {
	t.Helper()
	for {
		if entries := e.records(); len(entries) > 0 {
			return entries
		}
		select {
		case <-t.Context().Done():
			t.Fatal("nothing was told")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Guarantee: a request that lasts is told of while it runs, once, whether it waits
// for its answer, gets it, or became a tunnel; and once more at its end, with all
// of its bytes.
func TestBegunAndEnded(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		goOn := make(chan bool)
		s.now = time.Now
		s.upstream, _ = upstreamOf(t, func(h string, c *upstreamtest.Conn) string {
			switch {
			case strings.HasPrefix(h, "GET /slow"):
				<-goOn
			case strings.HasPrefix(h, "GET /stream"):
				c.Send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc")
				<-goOn
				return "de"
			case strings.HasPrefix(h, "GET /tunnel"):
				c.Send("HTTP/1.1 101 Switching\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\nfirst")
				b, _ := io.ReadAll(c)
				c.Send(string(b))
				return ""
			}
			return okAnswer
		})
		e := start(t, s)
		for _, path := range []string{"/slow", "/stream", "/tunnel"} {
			c := e.dial()
			upgrade := ""
			if path == "/tunnel" {
				upgrade = "Connection: Upgrade\r\nUpgrade: echo\r\n"
			}
			c.say("GET " + path + " HTTP/1.1\r\nKEY\r\n" + upgrade + "\r\n")
			entries := e.next(t)
			begun := entries[0]
			if len(entries) != 1 || begun.Part != accesslog.Started || !begun.Authenticated || begun.Path != path || begun.Status != 0 {
				t.Fatalf("%s: %+v", path, entries)
			}
			want := told{accesslog.Forwarded, 200, 200, 0, 2, true, "GET", path}
			switch path {
			case "/tunnel":
				want = told{accesslog.Forwarded, 101, 101, 4, 9, true, "GET", path}
				c.wantStatus("101")
				c.say("back")
				_ = c.Conn.(*net.TCPConn).CloseWrite()
				if got, err := c.rest(); got != "firstback" || err != nil {
					t.Errorf("%q %v", got, err)
				}
				entries = e.next(t)
			default:
				goOn <- true
				c.wantStatus("200")
				if path == "/stream" {
					want.out = 5
				}
				c.bytes(int(want.out))
				entries = e.records()
			}
			if len(entries) != 1 || entries[0].Part != accesslog.Ended || entries[0].Request != begun.Request {
				t.Fatalf("%s: %+v", path, entries)
			}
			want.check(t, entries[0])
			if entries[0].Duration < int64(proxy.StartedAfter) && path != "/tunnel" {
				t.Errorf("%s lasted %v", path, time.Duration(entries[0].Duration))
			}
		}
	})
}

// Guarantee: what the end of a drain cuts off is told of: a failure of ours if no
// answer had begun, else the answer as far as it came.
func TestRecordsAtTheEnd(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
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
		e := start(t, s)
		a, b, tunnel := e.dial(), e.dial(), e.dial()
		a.say("GET /wait HTTP/1.1\r\nKEY\r\n\r\n")
		b.say("GET /stream HTTP/1.1\r\nKEY\r\n\r\n")
		b.wantStatus("200")
		b.bytes(3)
		tunnel.say("GET /tunnel HTTP/1.1\r\nKEY\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		tunnel.wantStatus("101")
		tunnel.bytes(5)
		arrived.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		e.stop(ctx)
		entries := e.ended()
		if len(entries) != 3 {
			t.Fatalf("%+v", entries)
		}
		for _, entry := range entries {
			want := told{accesslog.Failed, 503, 0, 0, 0, true, "GET", "/wait"}
			if entry.Path == "/stream" {
				want = told{accesslog.Forwarded, 200, 200, 0, 3, true, "GET", "/stream"}
			} else if entry.Path == "/tunnel" {
				want = told{accesslog.Forwarded, 101, 101, 0, 5, true, "GET", "/tunnel"}
			}
			want.check(t, entry)
		}
	})
}

// waits is a Decider whose verdict is to wait, which fails.
type waits struct{ proxy.Decider }

func (w waits) Decide(req *admit.Request, v *admit.Verdict) {
	w.Decider.Decide(req, v)
	v.Action = admit.Wait
}

func (waits) Wait(context.Context, *admit.Verdict) error {
	return fault.New(fault.Unavailable, "later")
}

// Guarantee: a defect gives a 500, and a daily count that cannot be read a 503,
// with their records.
func TestRecordsOfFailures(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		s.upstream, _ = ending(t)
		good := start(t, s)
		for _, c := range []struct {
			decider proxy.Decider
			path    string
			status  string
			want    told
		}{
			{panics{good.engine.cfg.Admit}, "/panic", "500", told{accesslog.Failed, 500, 0, 0, -1, false, "GET", ""}},
			{waits{good.engine.cfg.Admit}, "/a", "503", told{accesslog.Failed, 503, 0, 0, -1, true, "GET", "/a"}},
		} {
			e := serve(t, c.decider, s)
			client := e.dial()
			client.key = good.key
			client.say("GET " + c.path + " HTTP/1.1\r\nKEY\r\n\r\n")
			body := client.body(client.wantStatus(c.status))
			entries := e.records()
			if len(entries) != 1 {
				t.Fatalf("%+v", entries)
			}
			c.want.out = int64(len(body))
			entries[0].Duration = 0 // the clocks of two engines differ
			c.want.check(t, entries[0])
		}
	})
}

// Guarantee: behind a trusted proxy the caller is whom it names, else the peer.
func TestCallerOfARecord(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		s.upstream, _ = ending(t)
		for _, trusted := range []bool{false, true} {
			for _, trust := range []*clientip.Trust{nil, clientip.NewTrust([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("192.0.2.0/24")})} {
				s.trusted, s.trust = trusted, trust
				e := start(t, s)
				c := e.dial()
				c.say("GET /a HTTP/1.1\r\nKEY\r\nX-Forwarded-For: 198.51.100.7, 2001:db8::1\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n")
				c.wantStatus("200")
				want := "127.0.0.1"
				switch {
				case trusted && trust != nil:
					want = "2001:db8::1"
				case trusted:
					want = "192.0.2.1"
				}
				if got := netip.AddrFrom16(e.records()[0].Client).Unmap().String(); got != want {
					t.Errorf("trusted %v: the caller is %s, want %s", trusted, got, want)
				}
			}
		}
	})
}

// Guarantee: the sweeper may tell of a request at any moment of it: each is told
// of once at its end, and what was told before has its Ended.
func TestBegunAtAnyMoment(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		s.upstream, _ = ending(t)
		e := start(t, s)
		e.byHand()
		const clients, each = 8, 10
		done := make(chan bool)
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				c := e.dial()
				defer func() { _ = c.Close() }()
				for n := range each {
					if n%2 == 0 {
						c.say("GET /chunks HTTP/1.1\r\nKEY\r\n\r\n")
						c.head()
						for line := ""; line != "0\r\n"; {
							var err error
							if line, err = c.ReadString('\n'); err != nil {
								t.Error(err)
								return
							}
						}
						_, _ = c.ReadString('\n')
						continue
					}
					c.say("GET /large HTTP/1.1\r\nKEY\r\n\r\n")
					c.head()
					if _, err := io.CopyN(io.Discard, c, 1_000_000); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		go func() {
			all.Wait()
			close(done)
		}()
		for running := true; running; {
			select {
			case <-done:
				running = false
			case <-time.After(50 * time.Microsecond):
				e.engine.conns.each(func(c *conn) {
					word := c.main.word.Load()
					if p := phaseOf(word); p == phaseExchange || p == phaseStream {
						c.sweeper.tell(c, word, c.sweeper.since+proxy.StartedAfter.Milliseconds())
					}
				})
			}
		}
		e.stop(t.Context())
		begun, ended, whole := map[[16]byte]int{}, map[[16]byte]int{}, map[[16]byte]int{}
		for _, entry := range e.records() {
			switch entry.Part {
			case accesslog.Started:
				begun[entry.Request]++
			case accesslog.Ended:
				ended[entry.Request]++
			default:
				whole[entry.Request]++
			}
		}
		if len(ended)+len(whole) != clients*each || len(begun) != len(ended) {
			t.Errorf("%d ended, %d whole of %d, %d begun", len(ended), len(whole), clients*each, len(begun))
		}
		for id, n := range ended {
			if n != 1 || begun[id] != 1 || whole[id] != 0 {
				t.Errorf("%x ended %d times, began %d times, was whole %d times", id, n, begun[id], whole[id])
			}
		}
		t.Log(len(begun), "were told of before their end")
	})
}

// tracer is a Tracer that shows what it was given.
type tracer struct{}

func (tracer) Begin(r *accesslog.Record, traceparent []byte) {
	r.Trace = [16]byte{}
	copy(r.Trace[:], traceparent)
}

func (tracer) Append(dst []byte, r *accesslog.Record, traceparent []byte) []byte {
	return append(append(append(dst, "ours-"...), bytes.TrimRight(r.Trace[:], "\x00")...), traceparent...)
}

// Guarantee: with a tracer the upstream gets its traceparent in the caller's
// place, whatever the caller sends, and the record has the trace.
func TestTracer(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		var heads chan string
		s.upstream, heads = upstreamOf(t, always(okAnswer))
		s.tracer = tracer{}
		e := start(t, s)
		c := e.dial()
		for _, want := range []struct{ fields, upstream, record string }{
			{"traceparent: one\r\n", "Traceparent: ours-oneone\r\n", "one"},
			{"", "Traceparent: ours-\r\n", ""},
			{"Traceparent: one\r\nTraceparent: two\r\n", "Traceparent: ours-\r\n", ""},
		} {
			c.say("GET /a HTTP/1.1\r\nKEY\r\n" + want.fields + "\r\n")
			c.wantStatus("200")
			c.bytes(2)
			if h := <-heads; !strings.Contains(h+"\r\n", want.upstream) || strings.Count(strings.ToLower(h), "traceparent") != 1 {
				t.Errorf("%q: the upstream got\n%s", want.fields, h)
			}
			if got := strings.TrimRight(string(e.records()[0].Trace[:]), "\x00"); got != want.record {
				t.Errorf("%q: the record has %q", want.fields, got)
			}
		}
	})
}

// Guarantee: under aborts at random bytes no record is lost or told twice, and
// each Begun has its Ended.
func TestRecordsUnderAborts(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		s.upstream, _ = ending(t)
		e := start(t, s)
		var all sync.WaitGroup
		for n := range 100 {
			all.Go(func() {
				c := e.dial()
				request := "POST /five HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + e.key + "\r\nContent-Length: 5\r\n\r\nhello"
				_, _ = io.WriteString(c.Conn, strings.Repeat(request, 3)[:len(request)*3-n])
				if n%2 == 0 {
					_, _ = c.ReadByte()
				}
				_ = c.Close()
			})
		}
		all.Wait()
		e.stop(t.Context())
		whole, begun := map[[16]byte]bool{}, map[[16]byte]bool{}
		for _, entry := range e.records() {
			if entry.Part == accesslog.Started {
				begun[entry.Request] = true
				continue
			}
			if whole[entry.Request] {
				t.Fatalf("%x was told twice", entry.Request)
			}
			whole[entry.Request] = true
			if (entry.Part == accesslog.Ended) != begun[entry.Request] {
				t.Errorf("part %d, begun %v", entry.Part, begun[entry.Request])
			}
		}
	})
}
