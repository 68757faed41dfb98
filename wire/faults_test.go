package wire

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// exchangeCase is an exchange that is cut at every byte.
type exchangeCase struct {
	name, request, answer string
}

func exchangeCases(key string) []exchangeCase {
	head := " HTTP/1.1\r\nHost: " + hostname + "\r\nAuthorization: Bearer " + key + "\r\n"
	return []exchangeCase{
		{"lengths", "POST /a" + head + "Content-Length: 5\r\n\r\nhello", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nworld"},
		{"chunks", "POST /b" + head + "Transfer-Encoding: chunked\r\nTE: trailers\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nX: y\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nworld\r\n0\r\nZ: z\r\n\r\n"},
		{"upgrade", "GET /c" + head + "Connection: Upgrade\r\nUpgrade: x\r\n\r\nhi", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nho"},
	}
}

// Guarantee: whenever the client leaves within an exchange, by an end or a reset,
// everything ends: no connection to the upstream hangs on its message, and
// nothing is left behind.
func TestClientLeavesAtEveryByte(t *testing.T) {
	t.Parallel()
	up := newEcho(t)
	p := start(t, setup{}, up.addr, nil)
	for _, e := range exchangeCases(p.key) {
		t.Run(e.name, func(t *testing.T) {
			up.script(e.answer)
			for n := range len(e.request) + 1 {
				for _, leave := range []func(net.Conn){func(c net.Conn) { _ = c.Close() }, breakOff} {
					conn := dial(t, p.addr)
					if _, err := io.WriteString(conn, e.request[:n]); err != nil {
						t.Fatal(err)
					}
					leave(conn)
				}
			}
			settle(t, p, up)
		})
	}
}

// Guarantee: wherever the upstream's answer ends early, the client gets either an
// error of the gateway's or a message that it can see is not whole; the next
// request is served.
func TestUpstreamLeavesAtEveryByte(t *testing.T) {
	t.Parallel()
	up := newEcho(t)
	p := start(t, setup{}, up.addr, nil)
	for _, e := range exchangeCases(p.key)[:2] {
		t.Run(e.name, func(t *testing.T) {
			for n := range len(e.answer) {
				up.script(e.answer[:n])
				conn := dial(t, p.addr)
				s := newSide(t, "client", conn)
				s.say(e.request)
				text := s.untilCut()
				switch {
				case strings.HasPrefix(text, "HTTP/1.1 502 "):
				case strings.HasPrefix(text, "HTTP/1.1 200 ") && n > strings.Index(e.answer, "\r\n\r\n"):
					if isWhole(text) {
						t.Errorf("after %d bytes of the answer the client got a whole message: %q", n, text)
					}
				default:
					t.Errorf("after %d bytes of the answer the client got %q", n, text)
				}
				s.close()
			}
			settle(t, p, up)
		})
	}
}

// untilCut receives an error of the gateway's, which leaves the connection
// open, or until the end.
func (s *side) untilCut() string {
	for s.more() {
		head, body, whole := strings.Cut(string(s.in), "\r\n\r\n")
		if whole && strings.HasPrefix(head, "HTTP/1.1 502 ") && strings.HasSuffix(body, "}") {
			break
		}
	}
	return string(s.in)
}

// Guarantee: 512 connections whose clients leave at random moments leave no
// goroutine, no descriptor and no connection behind, and the gateway serves on.
func TestRandomAborts(t *testing.T) { //nolint:paralleltest // it counts descriptors
	up := newEcho(t)
	p := start(t, setup{}, up.addr, nil)
	before := descriptors(t)
	cases := exchangeCases(p.key)
	up.script(cases[0].answer)
	var clients sync.WaitGroup
	for i := range 512 {
		clients.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 5))
			conn, err := net.Dial("tcp", p.addr)
			if err != nil {
				t.Error(err)
				return
			}
			stream := strings.Repeat(cases[r.IntN(2)].request, 1+r.IntN(4))
			stream = stream[:r.IntN(len(stream)+1)]
			for stream != "" {
				n := 1 + r.IntN(len(stream))
				if _, err := io.WriteString(conn, stream[:n]); err != nil {
					break
				}
				stream = stream[n:]
				if r.IntN(3) == 0 {
					_ = conn.SetReadDeadline(time.Now().Add(time.Duration(r.IntN(3)) * time.Millisecond))
					_, _ = conn.Read(make([]byte, 1+r.IntN(300)))
				}
			}
			if r.IntN(2) == 0 {
				breakOff(conn)
			} else {
				_ = conn.Close()
			}
		})
	}
	clients.Wait()
	settle(t, p, up)
	conn := dial(t, p.addr)
	s := newSide(t, "client", conn)
	s.say(cases[0].request)
	s.expect(t, compile(t, `HTTP/1.1 200 OK\r\n`, nil))
	s.close()
	stopNow(p)
	eventually(t, "no descriptor is left", func() bool { return descriptors(t) <= before })
}

// Guarantee: a drain tells running exchanges to close, ends idle connections,
// and lets what runs finish; upgraded connections last.
func TestDrain(t *testing.T) {
	t.Parallel()
	back := newBackstage(t)
	p := start(t, setup{}, back.addr, nil)
	head := " HTTP/1.1\r\nHost: " + hostname + "\r\nAuthorization: Bearer " + p.key + "\r\n"
	idle := newSide(t, "idle client", dial(t, p.addr))
	idle.say("GET /1 HTTP/1.1\r\nHost: " + hostname + "\r\n\r\n")
	if resp, _ := idle.response(t); resp.StatusCode != 401 {
		t.Fatal(resp.Status)
	}
	tunnel := newSide(t, "upgraded client", dial(t, p.addr))
	tunnel.say("GET /ws" + head + "Connection: Upgrade\r\nUpgrade: x\r\n\r\n")
	far := newSide(t, "upstream", back.next(t))
	far.until(t, "\r\n\r\n")
	far.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
	tunnel.until(t, "\r\n\r\n")
	running := newSide(t, "running client", dial(t, p.addr))
	running.say("GET /2" + head + "\r\n")
	up := newSide(t, "upstream", back.next(t))
	up.until(t, "\r\n\r\n")

	ended := make(chan struct{})
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		p.stop(ctx)
		close(ended)
	}()
	idle.expectClean(t)
	idle.close()
	up.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	resp, body := running.response(t)
	if resp.StatusCode != 200 || string(body) != "ok" || !resp.Close {
		t.Errorf("the running request got %s %q, close %v", resp.Status, body, resp.Close)
	}
	running.expectClean(t)
	running.close()
	tunnel.say("still")
	far.expect(t, compile(t, "still", nil))
	far.say("here")
	tunnel.expect(t, compile(t, "here", nil))
	select {
	case <-ended:
		t.Error("the drain ended before the upgraded connection")
	default:
	}
	tunnel.close()
	far.expectEnd(t)
	far.close()
	<-ended
}

// until receives up to and with mark.
func (s *side) until(t testing.TB, mark string) {
	t.Helper()
	for {
		if i := bytes.Index(s.in, []byte(mark)); i >= 0 {
			s.in = s.in[i+len(mark):]
			return
		}
		if !s.more() {
			t.Fatalf("the %s received no %q (%v) in %q", s.name, mark, s.err, s.in)
		}
	}
}

func (b *backstage) next(t testing.TB) net.Conn {
	t.Helper()
	select {
	case conn := <-b.conns:
		return conn
	case <-time.After(patience):
		t.Fatal("nothing connects to the upstream")
		return nil
	}
}

func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// settle waits until the gateway serves no connection.
func settle(t testing.TB, p *plane, up *echo) {
	t.Helper()
	eventually(t, "no client's connection is left", func() bool { return p.engine.Connections() == 0 })
	eventually(t, "no upstream's connection hangs within a message", func() bool { return up.busy() == 0 })
}

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(deadline) {
			stacks := make([]byte, 64<<10)
			t.Fatalf("not come about: %s\n%s", what, stacks[:runtime.Stack(stacks, true)])
		}
		<-tick.C
	}
}

// descriptors returns the number of open descriptors of this process.
func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
