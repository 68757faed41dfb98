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

// Guarantee: whoever leaves at whatever byte, nothing is left behind and nobody
// gets an answer that is not his.
func TestRandomAborts(t *testing.T) {
	before := goleak.IgnoreCurrent()
	defer func() {
		if err := leaktest.Find(before); err != nil {
			t.Error(err)
		}
	}()
	t.Run("all", func(t *testing.T) {
		drivers(t, func(t *testing.T, s setup) {
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
					answer := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n" + path + "\r\n0\r\n\r\n"
					if random.IntN(4) == 0 {
						answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + path
					}
					if random.IntN(8) == 0 {
						c.Send(answer[:random.IntN(len(answer))])
						return
					}
					c.Send(answer)
				}
			})
			e := start(t, s)
			var all sync.WaitGroup
			for n := range 200 {
				all.Go(func() { abuse(t, e, rand.New(rand.NewPCG(uint64(n), 2))) })
			}
			all.Wait()
			e.stop(t.Context())
			if n := e.engine.Connections(); n != 0 {
				t.Error(n, "connections are left")
			}
		})
	})
}

// abuse is a client that makes requests, leaves some of them midway, and looks
// at whole answers.
func abuse(t *testing.T, e *edge, random *rand.Rand) {
	for range 6 {
		conn, err := net.Dial("tcp", e.addr)
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		tag := string([]byte{'a' + byte(random.IntN(26)), 'a' + byte(random.IntN(26)), 'a' + byte(random.IntN(26)), 'a' + byte(random.IntN(26))})
		request := "GET /" + tag + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer " + e.key + "\r\n\r\n"
		if random.IntN(3) == 0 {
			request = "POST /" + tag + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer " + e.key + "\r\nContent-Length: 3000\r\n\r\n" + strings.Repeat("x", 3000)
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
		answer, _ := io.ReadAll(conn)
		head, body, _ := strings.Cut(string(answer), "\r\n\r\n")
		whole := strings.Contains(head, "Content-Length: 4\r\n") && len(body) == 4 || strings.HasSuffix(body, "\r\n0\r\n\r\n")
		if whole && strings.HasPrefix(head, "HTTP/1.1 200") && !strings.Contains(body, tag) {
			t.Errorf("asked for %s, got %q", tag, body)
		}
		_ = conn.Close()
	}
}

// Guarantee: a defect in one request is answered, and ends its connection and
// no other.
func TestDefectsStayWithTheirConnection(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		s.upstream, _ = upstreamOf(t, always(okAnswer))
		good := start(t, s)
		e := serve(t, panics{good.engine.cfg.Admit}, s)
		e.key = good.key
		other, bad := e.dial(), e.dial()
		other.say("GET /a HTTP/1.1\r\nKEY\r\n\r\n")
		other.wantStatus("200")
		other.bytes(2)
		bad.say("GET /panic HTTP/1.1\r\nKEY\r\n\r\n")
		bad.wantStatus("500")
		if got, err := bad.rest(); !strings.Contains(got, `"error":"internal"`) || err != nil {
			t.Error(got, err)
		}
		other.say("GET /a HTTP/1.1\r\nKEY\r\n\r\n")
		other.wantStatus("200")
		if !strings.Contains(e.log.String(), "a defect of the test") {
			t.Error("nothing was logged")
		}
	})
}

type panics struct{ proxy.Decider }

func (p panics) Decide(req *admit.Request, v *admit.Verdict) {
	if req.Target == "/panic" {
		panic("a defect of the test")
	}
	p.Decider.Decide(req, v)
}
