package h2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/keygate/keygate/internal/accesslog"
	protocol "github.com/keygate/keygate/internal/http2"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/upstream"
)

// relay is an engine before an upstream over HTTP/2 that the test plays itself, frame by frame.
type relay struct {
	t         *testing.T
	engine    *Engine
	wire      wire
	addr      string
	listener  net.Listener
	collector *accesslog.Collector

	mu       sync.Mutex
	statuses []int // of the records
}

// Take implements accesslog.Sink.
func (r *relay) Take(batch []accesslog.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range batch {
		r.statuses = append(r.statuses, int(batch[i].Status))
	}
}

func newRelay(t *testing.T) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	r := &relay{t: t, listener: l}
	if r.collector, err = accesslog.NewCollector(accesslog.Config{Sinks: []accesslog.Sink{r}}); err != nil {
		t.Fatal(err)
	}
	pools, err := upstream.NewPools(upstream.Config{Guard: netguard.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pools.Close)
	gateway := &snapshot.Settings{ID: "gw_1", Upstream: &snapshot.Upstream{Targets: []*snapshot.Target{{Base: &url.URL{Scheme: "h2c", Host: l.Addr().String(), Path: "/x"}}}, Timeout: time.Minute}}
	r.engine, err = New(Config{Config: proxy.Config{Admit: forwarder{gateway}, Pools: pools, Shard: r.collector.Shard}})
	if err != nil {
		t.Fatal(err)
	}
	listen(t, r.engine)
	r.addr = r.wire.listen(t, r.engine)
	return r
}

// begin returns a client and the upstream's side of a connection, over which a call was made.
func (r *relay) begin() (*talker, *callee) {
	r.t.Helper()
	c := r.wire.talk(r.t, r.addr)
	c.get(1, "/")
	up := r.accept()
	up.respond(up.head(), "warm")
	c.bodies(1)
	return c, up
}

// wants waits until as many records as it wants were emitted, besides the record of begin's call, and checks them.
func (r *relay) wants(statuses ...int) {
	r.t.Helper()
	statuses = append([]int{200}, statuses...)
	var got []int
	awaittest.True(r.t, fmt.Sprint(len(statuses), " records"), func() bool {
		if err := r.collector.Sync(r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		got = slices.Clone(r.statuses)
		return len(got) >= len(statuses)
	})
	if !slices.Equal(got, statuses) {
		r.t.Errorf("got records with status %d, want %d", got, statuses)
	}
}

// callee is an upstream's side of a connection.
type callee struct {
	*protocol.Conn
	t       *testing.T
	net     net.Conn
	buf     []byte
	arrived int // times that bytes were received
}

func (r *relay) accept() *callee {
	r.t.Helper()
	c, err := r.listener.Accept()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(testTimeout))
	u := &callee{Conn: protocol.NewConn(protocol.Config{}), t: r.t, net: c, buf: make([]byte, 32<<10)}
	u.flush()
	return u
}

func (u *callee) flush() {
	if _, err := u.net.Write(u.Take(nil)); err != nil {
		u.t.Error(err)
	}
}

// next returns the next event of a stream.
func (u *callee) next() (ev protocol.Event) {
	u.t.Helper()
	for {
		for u.Next(&ev) {
			if ev.Kind == protocol.Head {
				if err := u.ReadRequest(new(protocol.Request)); err != nil {
					u.t.Fatal(err)
				}
			}
			if ev.Stream != 0 && ev.Kind != protocol.Window {
				return ev
			}
		}
		if u.Pending() > 0 {
			u.flush()
		}
		n, err := u.net.Read(u.buf)
		if err != nil {
			u.t.Fatal(err)
		}
		u.arrived++
		u.Feed(0, u.buf[:n])
	}
}

// head awaits a request without a body, and returns its stream.
func (u *callee) head() uint32 {
	u.t.Helper()
	ev := u.next()
	if ev.Kind != protocol.Head || !ev.End {
		u.t.Fatalf("the upstream got %+v, want a request", ev)
	}
	return ev.Stream
}

// reset awaits the reset of a stream.
func (u *callee) reset(stream uint32) {
	u.t.Helper()
	if ev := u.next(); ev.Kind != protocol.Reset || ev.Stream != stream || ev.Code != protocol.Cancel {
		u.t.Errorf("the upstream got %+v, want CANCEL of stream %d", ev, stream)
	}
	u.Done(stream)
}

func (u *callee) begin(stream uint32) {
	u.BeginHead(stream)
	u.FieldString(":status", "200", false)
	u.FieldString("content-type", "application/grpc", false)
	u.EndHead(false)
}

func (u *callee) end(stream uint32) {
	u.BeginHead(stream)
	u.FieldString("grpc-status", "0", false)
	u.EndHead(true)
	u.Done(stream)
}

// respond sends the response to a call at once.
func (u *callee) respond(stream uint32, body string) {
	u.begin(stream)
	u.Data(stream, []byte(body), false)
	u.end(stream)
	u.flush()
}

// want checks what a client has got on a stream, which has ended.
func (c *talker) want(stream uint32, body string) {
	c.t.Helper()
	got := ""
	if b := c.body[stream]; b != nil {
		got = b.String()
	}
	if got != body {
		c.t.Errorf("stream %d: got a body of %d bytes, want one of %d", stream, len(got), len(body))
	}
}

// running returns how many goroutines serve streams.
func running() int {
	b := make([]byte, 4<<20)
	return strings.Count(string(b[:runtime.Stack(b, true)]), "(*stream).run(")
}

// Guarantee: calls that arrive whole together go to the upstream together, await their responses
// without a goroutine for each, and each ends once.
func TestCallsNeedNoGoroutines(t *testing.T) {
	r := newRelay(t)
	c, up := r.begin()
	const calls = 40
	var burst bytes.Buffer
	c.Framer = http2.NewFramer(&burst, c.conn)
	statuses := make([]int, calls)
	for i := range uint32(calls) {
		c.get(3+2*i, "/")
		statuses[i] = 200
	}
	up.arrived = 0
	if _, err := burst.WriteTo(c.conn); err != nil {
		t.Fatal(err)
	}
	for range calls {
		id := up.head()
		up.begin(id)
		up.Data(id, fmt.Append(nil, id), false)
		up.end(id)
	}
	if up.arrived != 1 {
		t.Errorf("the upstream received the calls in %d parts, want one", up.arrived)
	}
	if n := running(); n != 0 {
		t.Errorf("%d goroutines serve calls that await their responses, want none", n)
	}
	up.flush()
	seen := map[string]bool{}
	for stream, body := range c.bodies(calls) {
		if stream > 1 && seen[body.String()] {
			t.Errorf("stream %d: got the response %q, as another stream", stream, body)
		}
		seen[body.String()] = true
	}
	r.wants(statuses...)
}

// Guarantee: a response that arrives in parts is relayed part by part.
func TestPartsAreRelayedAtOnce(t *testing.T) {
	r := newRelay(t)
	c, up := r.begin()
	c.get(3, "/")
	id := up.head()
	up.begin(id)
	up.flush()
	if f, err := c.ReadFrame(); err != nil || f.Header().Type != http2.FrameHeaders {
		t.Fatalf("got %v, error %v; want the head", f, err)
	}
	up.Data(id, []byte("part"), false)
	up.flush()
	if f, err := c.ReadFrame(); err != nil || f.Header().Type != http2.FrameData {
		t.Fatalf("got %v, error %v; want data", f, err)
	}
	up.end(id)
	up.flush()
	c.bodies(1)
	r.wants(200)
}

// Guarantee: a call that ends while it awaits its response is recorded once, and the work of the
// upstream ends.
func TestWaitingCallIsEnded(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(r *relay, c *talker)
		want int
	}{
		"by a reset":             {func(_ *relay, c *talker) { _ = c.WriteRSTStream(3, http2.ErrCodeCancel) }, 499},
		"by a closed connection": {func(_ *relay, c *talker) { _ = c.conn.Close() }, 499},
		"by a violation":         {func(_ *relay, c *talker) { _ = c.WriteRawFrame(http2.FrameData, 0, 0, nil) }, 499},
		"by a timeout": {func(r *relay, _ *talker) {
			until(r.t, r.engine, "the call", func(c *conn) bool {
				if len(c.streams) > 0 {
					c.streams[0].deadline = 1
				}
				return len(c.streams) > 0
			})
		}, 504},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRelay(t)
			client, up := r.begin()
			client.get(3, "/")
			id := up.head()
			c.end(r, client)
			up.reset(id)
			r.wants(c.want)
			_ = client.conn.Close()
			gone(t, r.engine)
		})
	}
}

// Guarantee: a call that the upstream has certainly not served is sent once again, and no more
// than once; others fail.
func TestWaitingCallIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		codes []protocol.Code
		want  int
	}{
		"once":                 {[]protocol.Code{protocol.RefusedStream}, 200},
		"twice":                {[]protocol.Code{protocol.RefusedStream, protocol.RefusedStream}, 502},
		"after work on it":     {[]protocol.Code{protocol.InternalError}, 502},
		"by the end, unserved": {nil, 200},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRelay(t)
			client, up := r.begin()
			client.get(3, "/")
			for _, code := range c.codes {
				id := up.head()
				up.Reset(id, code)
				up.Done(id)
				up.flush()
			}
			if c.codes == nil {
				up.head()
				if _, err := up.net.Write(protocol.AppendGoAway(nil, 1, protocol.NoError, "")); err != nil {
					t.Fatal(err)
				}
				up = r.accept()
			}
			body := ""
			if c.want == 200 {
				body = "again"
				up.respond(up.head(), body)
			}
			client.bodies(1)
			if body != "" {
				client.want(3, body)
			}
			r.wants(c.want)
		})
	}
}

// Guarantee: a client without room for its response, in its windows or in its socket, delays no
// other client whose calls share the upstream's connection, and gets the whole response when it has
// room.
func TestClientWithoutRoomHoldsUpNobody(t *testing.T) {
	for name, setting := range map[string]struct {
		window uint32
		calls  uint32
	}{"a window of 4 bytes": {4, 1}, "a socket that is full": {1<<31 - 1, 60}} {
		t.Run(name, func(t *testing.T) {
			r := newRelay(t)
			quick, up := r.begin()
			slow := r.wire.talk(t, r.addr)
			if err := slow.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: setting.window}); err != nil {
				t.Fatal(err)
			}
			body := string(pattern(16000))
			for i := range setting.calls {
				slow.get(1+2*i, "/")
				up.respond(up.head(), body)
			}
			statuses := []int{200}
			quick.get(3, "/")
			up.respond(up.head(), "quick")
			quick.bodies(1)
			quick.want(3, "quick")
			if err := slow.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1}); err != nil {
				t.Fatal(err)
			}
			slow.bodies(int(setting.calls))
			for i := range setting.calls {
				slow.want(1+2*i, body)
				statuses = append(statuses, 200)
			}
			r.wants(statuses...)
		})
	}
}

// Guarantee: a shutdown waits for calls that await their responses.
func TestShutdownAwaitsWaitingCalls(t *testing.T) {
	r := newRelay(t)
	c, up := r.begin()
	c.get(3, "/")
	id := up.head()
	ended := make(chan error, 1)
	go func() { ended <- r.engine.Shutdown(t.Context()) }()
	for {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if ping, ok := f.(*http2.PingFrame); ok {
			if err := c.WritePing(true, ping.Data); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	up.respond(id, "late")
	for over := false; !over; {
		switch f, err := c.ReadFrame(); {
		case errors.Is(err, io.EOF):
			t.Fatal("the connection ended before the response")
		case err != nil:
			t.Fatal(err)
		default:
			over = f.Header().StreamID == 3 && f.Header().Flags.Has(http2.FlagDataEndStream)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	r.wants(200)
}
