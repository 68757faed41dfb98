package h1

import (
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/keygatetest/leaktest"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// Guarantee: whatever byte a connection breaks at, no goroutine or connection is leaked,
// and no client receives another's response.
func TestRandomAborts(t *testing.T) {
	before := goleak.IgnoreCurrent()
	defer func() {
		if err := leaktest.Find(before); err != nil {
			t.Error(err)
		}
	}()
	t.Run("all", func(t *testing.T) {
		modes(t, func(t *testing.T, s setup) {
			s.upstream = "http://" + upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
				random := rand.New(rand.NewPCG(uint64(c.Number), 1))
				for {
					h, err := c.ReadHead()
					if err != nil {
						return
					}
					path, _, _ := strings.Cut(h[strings.Index(h, "/")+1:], " ")
					if strings.Contains(h, "Content-Length: 3000") {
						if _, err := io.CopyN(io.Discard, c, 3000); err != nil {
							return
						}
					}
					response := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n" + path + "\r\n0\r\n\r\n"
					if random.IntN(4) == 0 {
						response = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + path
					}
					if random.IntN(8) == 0 {
						c.Send(response[:random.IntN(len(response))])
						return
					}
					c.Send(response)
				}
			})
			g := start(t, s)
			var all sync.WaitGroup
			for n := range 200 {
				all.Go(func() { abuse(t, g, rand.New(rand.NewPCG(uint64(n), 2))) })
			}
			all.Wait()
			g.stop(t.Context())
			if n := g.engine.Connections(); n != 0 {
				t.Errorf("got %d connections after the shutdown, want 0", n)
			}
		})
	})
}

// abuse is a client that makes requests, hangs up in the middle of some of them, and
// checks complete responses.
func abuse(t *testing.T, g *harness, random *rand.Rand) {
	for range 6 {
		conn, err := net.Dial("tcp", g.addr)
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.SetDeadline(time.Now().Add(testTimeout))
		tag := string([]byte{'a' + byte(random.IntN(26)), 'a' + byte(random.IntN(26)), 'a' + byte(random.IntN(26)), 'a' + byte(random.IntN(26))})
		request := "GET /" + tag + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer " + g.key + "\r\n\r\n"
		if random.IntN(3) == 0 {
			request = "POST /" + tag + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer " + g.key + "\r\nContent-Length: 3000\r\n\r\n" + strings.Repeat("x", 3000)
		}
		if random.IntN(3) == 0 {
			_, _ = io.WriteString(conn, request[:random.IntN(len(request))])
			if random.IntN(2) == 0 {
				_ = conn.(*net.TCPConn).SetLinger(0)
			}
			_ = conn.Close()
			continue
		}
		cut := random.IntN(len(request))
		_, _ = io.WriteString(conn, request[:cut])
		_, _ = io.WriteString(conn, request[cut:])
		response, _ := io.ReadAll(conn)
		head, body, _ := strings.Cut(string(response), "\r\n\r\n")
		whole := strings.Contains(head, "Content-Length: 4\r\n") && len(body) == 4 || strings.HasSuffix(body, "\r\n0\r\n\r\n")
		if whole && strings.HasPrefix(head, "HTTP/1.1 200") && !strings.Contains(body, tag) {
			t.Errorf("got body %q, want %s in it", body, tag)
		}
		_ = conn.Close()
	}
}

// Guarantee: a panic in one request is a 500, is logged, and ends that connection only.
func TestPanicEndsOneConnection(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.upstream, _ = upstreamOf(t, always(okResponse))
		good := start(t, s)
		g := serve(t, panickingDecider{good.engine.cfg.Admit}, s)
		g.key = good.key
		other, bad := g.dial(t), g.dial(t)
		other.send("GET /a HTTP/1.1\r\nKEY\r\n\r\n")
		other.wantStatus("200")
		other.bytes(2)
		bad.send("GET /panic HTTP/1.1\r\nKEY\r\n\r\n")
		bad.wantStatus("500")
		got, err := bad.rest()
		if err != nil {
			t.Errorf("got error %v, want the end of the connection", err)
		}
		wantIn(t, got, `"error":"internal"`)
		other.send("GET /a HTTP/1.1\r\nKEY\r\n\r\n")
		other.wantStatus("200")
		wantIn(t, g.log.String(), "panic in a test's decider")
	})
}

// panickingDecider is a Decider that panics for /panic.
type panickingDecider struct{ proxy.Decider }

func (p panickingDecider) Decide(req *admit.Request, v *admit.Verdict) {
	if req.Target == "/panic" {
		panic("panic in a test's decider")
	}
	p.Decider.Decide(req, v)
}
