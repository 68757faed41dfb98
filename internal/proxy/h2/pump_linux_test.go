package h2

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/fault"
	protocol "github.com/keygate/keygate/internal/http2"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/tlspump"
	"github.com/keygate/keygate/internal/tlspump/tlspumptest"
)

// small is the size, in bytes, of socket buffers that are soon full.
const small = 32 << 10

// secured is a listener whose connections are like package edge's, with buffers that are soon full.
// They are plain TCP if config is nil.
type secured struct {
	net.Listener
	config *tls.Config
}

func (l secured) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp := c.(*net.TCPConn)
		_ = tcp.SetWriteBuffer(small)
		if l.config == nil {
			return tcp, nil
		}
		over := tls.Server(tlspump.Wrap(tcp, tcp), l.config)
		if over.Handshake() == nil {
			return over, nil
		}
		_ = tcp.Close()
	}
}

// wire is a way of speaking HTTP/2 to an engine.
type wire struct {
	version uint16 // of TLS; 0 means in clear
	raw     bool   // the client makes the records itself
	dial    func(t *testing.T, addr string) net.Conn
}

// overWires runs a test over each kind of connection, each with its own engine, whose upstream is handler.
func overWires(t *testing.T, handler http.HandlerFunc, f func(t *testing.T, e *Engine, w wire, addr string)) {
	for name, w := range map[string]wire{"h2c": {}, "TLS 1.2": {version: tls.VersionTLS12}, "TLS 1.3": {version: tls.VersionTLS13}, "TLS 1.3, KeyUpdate": {version: tls.VersionTLS13, raw: true}} {
		t.Run(name, func(t *testing.T) {
			_, e := plain(t, handler)
			f(t, e, w, w.listen(t, e))
		})
	}
}

// listen makes an engine serve another port.
func (w *wire) listen(t *testing.T, e *Engine) (addr string) {
	t.Helper()
	pair := certificatetest.New(t, "localhost")
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := secured{Listener: tcp}
	if w.version != 0 {
		l.config = &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}, MaxVersion: w.version, DynamicRecordSizingDisabled: true}
	}
	served := make(chan error, 1)
	go func() { served <- e.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(l.Close(), <-served); err != nil {
			t.Error(err)
		}
	})
	w.dial = func(t *testing.T, addr string) net.Conn {
		t.Helper()
		c, err := (&net.Dialer{Control: receiveLittle}).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(testTimeout))
		if w.version == 0 {
			return c
		}
		keys := &tlspumptest.Keys{}
		over := tls.Client(c, &tls.Config{RootCAs: pair.Pool(t), ServerName: "localhost", NextProtos: []string{"h2"}, KeyLogWriter: keys})
		if err := over.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if w.raw {
			return &layered{Conn: c, in: keys.Layer(t, tlspumptest.FromServer), out: keys.Layer(t, tlspumptest.FromClient)}
		}
		return over
	}
	return tcp.Addr().String()
}

// receiveLittle makes the receive buffer of a connection small before it connects. Later it would be smaller than the
// window that the kernel has promised: it drops what fits the window and not the buffer, and with it what the other side
// has acknowledged, so that neither direction goes on until the client reads.
func receiveLittle(_, _ string, c syscall.RawConn) error {
	var err error
	if failed := c.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, small)
	}); failed != nil {
		return failed
	}
	return err
}

// layered makes and reads the records of TLS 1.3 itself.
type layered struct {
	net.Conn
	in, out *tlspumptest.Layer
	data    []byte // read and not returned
	replies int    // KeyUpdates that the server has sent
}

func (l *layered) Write(b []byte) (int, error) {
	if _, err := l.Conn.Write(l.out.Seal(tlspumptest.Data, string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// update sends a KeyUpdate that asks for another.
func (l *layered) update() {
	_, _ = l.Conn.Write(l.out.Seal(tlspumptest.Handshake, tlspumptest.KeyUpdate))
	l.out.Update()
}

func (l *layered) Read(b []byte) (int, error) {
	for len(l.data) == 0 {
		kind, data, err := l.in.TryOpen(l.Conn)
		if err != nil {
			return 0, err
		}
		switch {
		case kind == tlspumptest.Data:
			l.data = data
		case string(data) == tlspumptest.KeyReply:
			l.replies++
			l.in.Update()
		}
	}
	n := copy(b, l.data)
	l.data = l.data[n:]
	return n, nil
}

// talker is a client that is done frame by frame.
type talker struct {
	*http2.Framer
	t    *testing.T
	conn net.Conn
	body map[uint32]*bytes.Buffer
}

// talk connects a client that accepts as much as it can.
func (w wire) talk(t *testing.T, addr string) *talker {
	t.Helper()
	conn := w.dial(t, addr)
	c := &talker{Framer: http2.NewFramer(conn, conn), t: t, conn: conn, body: map[uint32]*bytes.Buffer{}}
	_, err := io.WriteString(conn, http2.ClientPreface)
	err = errors.Join(err,
		c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1}),
		c.WriteWindowUpdate(0, 1<<30))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// get sends a request without a body. block is its path.
func (c *talker) get(stream uint32, path string) {
	c.t.Helper()
	// :method GET, :scheme http, :path, :authority a
	block := append([]byte("\x82\x86\x04"), byte(len(path)))
	block = append(append(block, path...), "\x01\x01a"...)
	if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndHeaders: true, EndStream: true}); err != nil {
		c.t.Fatal(err)
	}
}

// bodies reads until the given number of streams have ended, and returns their bodies.
func (c *talker) bodies(streams int) map[uint32]*bytes.Buffer {
	c.t.Helper()
	for streams > 0 {
		f, err := c.ReadFrame()
		if err != nil {
			c.t.Fatal(err)
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			if c.body[f.StreamID] == nil {
				c.body[f.StreamID] = &bytes.Buffer{}
			}
			c.body[f.StreamID].Write(f.Data())
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			c.t.Fatalf("got %v", f)
		}
		if f.Header().Flags.Has(http2.FlagDataEndStream) && (f.Header().Type == http2.FrameData || f.Header().Type == http2.FrameHeaders) {
			streams--
		}
	}
	return c.body
}

// until waits for a condition of the engine's only connection.
func until(t *testing.T, e *Engine, what string, holds func(c *conn) bool) {
	t.Helper()
	awaittest.True(t, what, func() (found bool) {
		e.each(func(c *conn) {
			c.mu.Lock()
			defer c.mu.Unlock()
			found = found || holds(c)
		})
		return found
	})
}

// gone waits until the engine has no connection.
func gone(t *testing.T, e *Engine) {
	t.Helper()
	awaittest.True(t, "the engine has no connection", func() bool { return e.Connections() == 0 })
}

// pattern is a body in which every part differs from every other.
func pattern(size int) []byte {
	b := make([]byte, 0, size+16)
	for i := 0; len(b) < size; i++ {
		b = fmt.Appendf(b, "%d,", i)
	}
	return b[:size]
}

// Guarantee: on Linux connections in clear and over TLS are pumped.
func TestConnectionsArePumped(t *testing.T) {
	overWires(t, echo, func(t *testing.T, e *Engine, w wire, addr string) {
		c := w.talk(t, addr)
		c.get(1, "/")
		c.bodies(1)
		until(t, e, "a connection that is pumped", func(c *conn) bool { return c.pump != nil })
	})
}

// Guarantee: a client that reads slowly gets all of its responses, whose output goes out in
// parts of any size.
func TestSlowReader(t *testing.T) {
	want := pattern(700_000)
	overWires(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(want) }, func(t *testing.T, _ *Engine, w wire, addr string) {
		c := w.talk(t, addr)
		for stream := uint32(1); stream < 8; stream += 2 {
			c.get(stream, "/")
		}
		c.Framer = http2.NewFramer(c.conn, drops{c.conn})
		for stream, got := range c.bodies(4) {
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("stream %d: got %d bytes, want the %d of the response", stream, got.Len(), len(want))
			}
		}
	})
}

// drops reads little at once.
type drops struct{ io.Reader }

func (d drops) Read(b []byte) (int, error) {
	runtime.Gosched()
	return d.Reader.Read(b[:min(len(b), 1500)])
}

// Guarantee: a client is read from while it reads nothing and its output is full; a
// KeyUpdate that comes then changes the keys where both sides expect it.
func TestReadsWhileOutputIsFull(t *testing.T) {
	want := pattern(1 << 20)
	arrived := make(chan string, 10)
	overWires(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- r.Method
		_, _ = w.Write(want)
	}, func(t *testing.T, e *Engine, w wire, addr string) {
		c := w.talk(t, addr)
		for stream := uint32(1); stream < 9; stream += 2 {
			c.get(stream, "/")
			<-arrived
		}
		full := func(c *conn) bool { return c.flushing && c.proto.Pending() >= maxOut }
		until(t, e, "output that is full", full)
		raw, isRaw := c.conn.(*layered)
		for stream := uint32(9); stream < 15; stream += 2 {
			if isRaw {
				raw.update()
			}
			c.get(stream, "/")
			<-arrived
		}
		for stream, got := range c.bodies(7) {
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("stream %d: got %d bytes, want the %d of the response", stream, got.Len(), len(want))
			}
		}
		if isRaw && raw.replies != 3 {
			t.Errorf("got %d KeyUpdates, want 3", raw.replies)
		}
	})
}

// refuser is a Decider that refuses requests without a body, and admits the rest.
type refuser struct{ forwarder }

func (r refuser) Decide(a *admit.Request, v *admit.Verdict) {
	if a.Method != http.MethodGet {
		r.forwarder.Decide(a, v)
		return
	}
	*v = admit.Verdict{Action: admit.Refuse, Gateway: r.gateway, Code: fault.Unauthorized}
}

// Guarantee: a client that sends requests, all of which are refused, and reads nothing makes
// the gateway stop reading before much output waits, and gets every response when it reads.
func TestRefusalsThatAreNotReadAreBounded(t *testing.T) {
	const most = 500_000 // requests; far fewer fill the buffers of the kernel, whose sizes it changes as it likes
	for name, w := range map[string]wire{"h2c": {}, "TLS 1.3": {version: tls.VersionTLS13}} {
		t.Run(name, func(t *testing.T) {
			e, err := New(Config{Config: proxy.Config{Admit: refuser{forwarder{&snapshot.Settings{ID: "gw_1"}}}, Pools: newPools(t)}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = e.Shutdown(context.Background()) })
			addr := w.listen(t, e)
			c := w.talk(t, addr)
			var full atomic.Bool
			sent := make(chan int, 1)
			go func() {
				n := uint32(0)
				for ; n < most && !full.Load(); n++ {
					c.get(2*n+1, "/")
				}
				sent <- int(n + 1) // before the last one, so that the reader knows it when that is answered
				c.get(2*n+1, "/")
			}()
			until(t, e, "output that is full", func(c *conn) bool { return c.proto.Pending() > maxOut+protocol.MaxBacklog })
			waiting := 0
			for range 1000 {
				until(t, e, "the connection", func(c *conn) bool {
					waiting = max(waiting, c.proto.Pending())
					return true
				})
			}
			if waiting > maxOut+protocol.MaxBacklog+4<<10 {
				t.Errorf("%d bytes of output wait, want at most the bound and one response", waiting)
			}
			full.Store(true)
			requests, known := 0, false
			for answered := 0; !known || answered < requests; answered++ {
				c.bodies(1)
				if !known {
					select {
					case requests = <-sent:
						known = true
					default:
					}
				}
			}
		})
	}
}

// Guarantee: a client whose bytes arrive one by one is served.
func TestOneByteAtATime(t *testing.T) {
	overWires(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") }, func(t *testing.T, _ *Engine, w wire, addr string) {
		dialed := w.dial
		w.dial = func(t *testing.T, addr string) net.Conn {
			t.Helper()
			relay := relayBytes(t, addr)
			return dialed(t, relay)
		}
		c := w.talk(t, addr)
		c.get(1, "/")
		if got := c.bodies(1)[1].String(); got != "served" {
			t.Errorf("got %q, want the response", got)
		}
	})
}

// relayBytes returns the address of a relay that passes one connection on to addr, each byte of the
// client by itself.
func relayBytes(t *testing.T, addr string) (relay string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		client, err := l.Accept()
		if err != nil {
			return
		}
		defer client.Close()
		server, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		defer server.Close()
		go func() { _, _ = io.Copy(client, server) }()
		b := make([]byte, 1)
		for {
			if _, err := client.Read(b); err != nil {
				return
			}
			if _, err := server.Write(b); err != nil {
				return
			}
		}
	}()
	return l.Addr().String()
}

// Guarantee: a connection ends when its client closes its sending side, with or without the alert
// of TLS, even if the alert arrives together with the last frames.
func TestClosedSendingSide(t *testing.T) {
	ends := map[string]func(c net.Conn) error{
		"sending side": func(c net.Conn) error {
			if half, ok := c.(interface{ CloseWrite() error }); ok { // over TLS an alert
				return half.CloseWrite()
			}
			return c.(*layered).Conn.(*net.TCPConn).CloseWrite()
		},
		"all": func(c net.Conn) error { return c.Close() },
		"without an alert": func(c net.Conn) error {
			if over, ok := c.(*tls.Conn); ok {
				c = over.NetConn()
			}
			return c.Close()
		},
	}
	overWires(t, echo, func(t *testing.T, e *Engine, w wire, addr string) {
		for name, end := range ends {
			c := w.talk(t, addr)
			c.get(1, "/")
			c.bodies(1)
			if err := errors.Join(c.WriteGoAway(0, http2.ErrCodeNo, nil), end(c.conn)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			gone(t, e)
		}
	})
}

// Guarantee: a shutdown ends idle connections and waits for requests, however their
// connection is read.
func TestShutdownOfPumped(t *testing.T) {
	arrived, proceed := make(chan bool, 1), make(chan bool)
	overWires(t, func(w http.ResponseWriter, _ *http.Request) {
		arrived <- true
		<-proceed
		_, _ = io.WriteString(w, "served")
	}, func(t *testing.T, e *Engine, w wire, addr string) {
		idle, busy := w.talk(t, addr), w.talk(t, addr)
		busy.get(1, "/")
		<-arrived
		ended := make(chan error, 1)
		go func() { ended <- e.Shutdown(t.Context()) }()
		for _, c := range []*talker{idle, busy} {
			for {
				f, err := c.ReadFrame()
				if err != nil {
					t.Fatal(err)
				}
				if p, ok := f.(*http2.PingFrame); ok && !p.IsAck() { // after GOAWAY
					_ = c.WritePing(true, p.Data)
					break
				}
			}
		}
		proceed <- true
		var got strings.Builder
		for got.Len() < len("served") {
			f, err := busy.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			switch f := f.(type) {
			case *http2.DataFrame:
				got.Write(f.Data())
			case *http2.PingFrame:
				_ = busy.WritePing(true, f.Data)
			}
		}
		if err := <-ended; err != nil || got.String() != "served" {
			t.Errorf("got %q, error %v; want the response", got.String(), err)
		}
	})
}
