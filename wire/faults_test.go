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

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// cutCase is an exchange that the tests cut off at every byte.
type cutCase struct {
	name, request, response string
}

func cutCases(key string) []cutCase {
	head := " HTTP/1.1\r\nHost: " + hostname + "\r\nAuthorization: Bearer " + key + "\r\n"
	return []cutCase{
		{"lengths", "POST /a" + head + "Content-Length: 5\r\n\r\nhello", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nworld"},
		{"chunks", "POST /b" + head + "Transfer-Encoding: chunked\r\nTE: trailers\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nX: y\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nworld\r\n0\r\nZ: z\r\n\r\n"},
		{"upgrade", "GET /c" + head + "Connection: Upgrade\r\nUpgrade: x\r\n\r\nhi", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nho"},
	}
}

// Guarantee: at whatever byte of its request the client closes or resets the connection, the
// exchange ends: no upstream connection is left within a message, and no connection leaks.
func TestClientHangsUpAtEveryByte(t *testing.T) {
	t.Parallel()
	up := newFixedUpstream(t)
	p := start(t, setup{}, up.addr, nil)
	for _, e := range cutCases(p.key) {
		t.Run(e.name, func(t *testing.T) {
			up.respondWith(e.response)
			for n := range len(e.request) + 1 {
				for _, hangUp := range []func(net.Conn){func(c net.Conn) { _ = c.Close() }, breakOff} {
					conn := dial(t, p.addr)
					if _, err := io.WriteString(conn, e.request[:n]); err != nil {
						t.Fatal(err)
					}
					hangUp(conn)
				}
			}
			settle(t, p, up)
		})
	}
}

// Guarantee: at whatever byte the upstream's response is cut off, the client receives either
// an error of the gateway's or a message that is visibly incomplete; the next request is
// served.
func TestUpstreamHangsUpAtEveryByte(t *testing.T) {
	t.Parallel()
	up := newFixedUpstream(t)
	p := start(t, setup{}, up.addr, nil)
	for _, e := range cutCases(p.key)[:2] {
		t.Run(e.name, func(t *testing.T) {
			for n := range len(e.response) {
				up.respondWith(e.response[:n])
				conn := dial(t, p.addr)
				s := newSide(t, "client", conn)
				s.send(e.request)
				text := s.untilCut()
				switch {
				case strings.HasPrefix(text, "HTTP/1.1 502 "):
				case strings.HasPrefix(text, "HTTP/1.1 200 ") && n > strings.Index(e.response, "\r\n\r\n"):
					if isWhole(text) {
						t.Errorf("after %d bytes of the response: the client received a complete message %q, want an incomplete one", n, text)
					}
				default:
					t.Errorf("after %d bytes of the response: the client received %q, want a 502 or an incomplete 200", n, text)
				}
				s.close()
			}
			settle(t, p, up)
		})
	}
}

// untilCut receives up to the end of the connection, or up to the end of a 502, which leaves
// the connection open.
func (s *side) untilCut() string {
	for s.more() {
		head, body, whole := strings.Cut(string(s.in), "\r\n\r\n")
		if whole && strings.HasPrefix(head, "HTTP/1.1 502 ") && strings.HasSuffix(body, "}\n") {
			break
		}
	}
	return string(s.in)
}

// Guarantee: 512 clients that hang up at random moments leak no goroutine, file descriptor or
// connection, and the gateway continues to serve.
func TestRandomAborts(t *testing.T) { //nolint:paralleltest // it counts the file descriptors of the process
	up := newFixedUpstream(t)
	p := start(t, setup{}, up.addr, nil)
	before := descriptors(t)
	cases := cutCases(p.key)
	up.respondWith(cases[0].response)
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
	s.send(cases[0].request)
	s.expect(t, compile(t, `HTTP/1.1 200 OK\r\n`, nil))
	s.close()
	stopNow(p)
	waitUntil(t, "all file descriptors are closed", func() bool { return descriptors(t) <= before })
}

// Guarantee: a drain closes idle connections, lets running requests finish with
// Connection: close, and waits for upgraded connections.
func TestDrain(t *testing.T) {
	t.Parallel()
	back := newRawUpstream(t)
	p := start(t, setup{}, back.addr, nil)
	head := " HTTP/1.1\r\nHost: " + hostname + "\r\nAuthorization: Bearer " + p.key + "\r\n"
	idle := newSide(t, "idle client", dial(t, p.addr))
	idle.send("GET /1 HTTP/1.1\r\nHost: " + hostname + "\r\n\r\n")
	if resp, _ := idle.response(t); resp.StatusCode != 401 {
		t.Fatalf("idle client: got %s, want 401", resp.Status)
	}
	tunnel := newSide(t, "upgraded client", dial(t, p.addr))
	tunnel.send("GET /ws" + head + "Connection: Upgrade\r\nUpgrade: x\r\n\r\n")
	far := newSide(t, "upstream", back.next(t))
	far.readUntil(t, "\r\n\r\n")
	far.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
	tunnel.readUntil(t, "\r\n\r\n")
	running := newSide(t, "running client", dial(t, p.addr))
	running.send("GET /2" + head + "\r\n")
	up := newSide(t, "upstream", back.next(t))
	up.readUntil(t, "\r\n\r\n")

	ended := make(chan struct{})
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), awaittest.Timeout)
		defer cancel()
		p.stop(ctx)
		close(ended)
	}()
	idle.expectClean(t)
	idle.close()
	up.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	resp, body := running.response(t)
	if resp.StatusCode != 200 || string(body) != "ok" || !resp.Close {
		t.Errorf("running request: got %s %q, close %v; want 200 \"ok\" with Connection: close", resp.Status, body, resp.Close)
	}
	running.expectClean(t)
	running.close()
	tunnel.send("still")
	far.expect(t, compile(t, "still", nil))
	far.send("here")
	tunnel.expect(t, compile(t, "here", nil))
	select {
	case <-ended:
		t.Error("the drain ended while a connection was upgraded, want it to wait")
	default:
	}
	tunnel.close()
	far.expectEnd(t)
	far.close()
	<-ended
}

// readUntil consumes everything up to and including mark.
func (s *side) readUntil(t testing.TB, mark string) {
	t.Helper()
	for {
		if i := bytes.Index(s.in, []byte(mark)); i >= 0 {
			s.in = s.in[i+len(mark):]
			return
		}
		if !s.more() {
			t.Fatalf("%s: received %q, then %v; want %q in it", s.name, s.in, s.err, mark)
		}
	}
}

// next waits for the next connection.
func (b *rawUpstream) next(t testing.TB) net.Conn {
	t.Helper()
	select {
	case conn := <-b.conns:
		return conn
	case <-time.After(awaittest.Timeout):
		t.Fatal("timed out waiting for a connection to the upstream")
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

// settle waits until the gateway serves no connection and the upstream no request.
func settle(t testing.TB, p *dataPlane, up *fixedUpstream) {
	t.Helper()
	waitUntil(t, "all client connections are closed", func() bool { return p.engine.Connections() == 0 })
	waitUntil(t, "no upstream connection is within a message", func() bool { return up.busy() == 0 })
}

// waitUntil polls until cond returns true. It fails with the stacks of all goroutines.
func waitUntil(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(awaittest.Timeout)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(deadline) {
			stacks := make([]byte, 64<<10)
			t.Fatalf("timed out waiting until %s\n%s", what, stacks[:runtime.Stack(stacks, true)])
		}
		<-tick.C
	}
}

// descriptors returns the number of open file descriptors of this process.
func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
