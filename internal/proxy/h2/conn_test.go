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
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/upstream"
)

// forwarder is a Decider that admits every request, for a gateway.
type forwarder struct{ gateway *snapshot.Settings }

func newForwarder() forwarder {
	return forwarder{&snapshot.Settings{ID: "gw_1", Upstream: &snapshot.Upstream{Targets: []*snapshot.Target{{Base: &url.URL{Scheme: "http", Host: "a.test"}}}}}}
}

func (f forwarder) Decide(_ *admit.Request, v *admit.Verdict) {
	*v = admit.Verdict{Action: admit.Forward, Gateway: f.gateway, Upstream: f.gateway.Upstream}
}

func (forwarder) Wait(context.Context, *admit.Verdict) error { return nil }

func (forwarder) Unchanged(*admit.Verdict) bool { return true }

func (forwarder) Review() admit.Review    { return admit.Review{} }
func (forwarder) GiveBack(*admit.Verdict) {}

func (forwarder) Extend(*ratelimit.Charge, *ratelimit.Used) {}
func (forwarder) Settle(*ratelimit.Charge, *ratelimit.Used) {}

// readBodies is a handler that reads the request's body.
func readBodies(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusNoContent)
}

// newServer returns an engine whose upstream is a handler.
func newServer(t testing.TB, handler http.HandlerFunc) *Engine {
	t.Helper()
	e, err := New(Config{Config: proxy.Config{Admit: newForwarder(), Pools: newPools(t)}})
	if err != nil {
		t.Fatal(err)
	}
	inMemory(e, handler)
	return e
}

// pipes is a listener that accepts the connections sent to it.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (pipes) Close() error   { return nil }
func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

// peer is a client whose connection is in memory and whose time is virtual.
type peer struct {
	t      *testing.T
	conn   net.Conn
	mu     sync.Mutex // held while a frame is written
	framer *http2.Framer
	block  bytes.Buffer
	hpack  *hpack.Encoder
	closed chan time.Time // when the server closed the connection
	ended  chan uint32    // streams that have a response
	resets chan reset
	deaf   atomic.Bool // it does not respond to PINGs
	goAway atomic.Bool // it has received GOAWAY
}

// reset is a RST_STREAM frame that a peer has received.
type reset struct {
	code http2.ErrCode
	at   time.Time
}

// connect connects a peer to a server. Nothing is sent yet.
func connect(t *testing.T, s *Engine, cert *tls.Certificate) *peer {
	t.Helper()
	l := make(pipes)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	client, server := net.Pipe()
	if cert != nil {
		c := tls.Server(server, &tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: []string{"h2"}})
		handshake := make(chan error, 1)
		go func() { handshake <- c.Handshake() }()
		secure := tls.Client(client, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err := errors.Join(secure.Handshake(), <-handshake); err != nil {
			t.Fatal(err)
		}
		client, server = secure, c
	}
	l <- server
	t.Cleanup(func() {
		_ = client.Close()
		close(l)
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		<-served
	})
	p := &peer{t: t, conn: client, closed: make(chan time.Time, 1), ended: make(chan uint32, 100), resets: make(chan reset, 100)}
	p.framer = http2.NewFramer(client, client)
	p.hpack = hpack.NewEncoder(&p.block)
	go p.read()
	return p
}

// read responds to the server's PINGs until it closes the connection.
func (p *peer) read() {
	for {
		f, err := p.framer.ReadFrame()
		if err != nil {
			p.closed <- time.Now()
			return
		}
		switch f := f.(type) {
		case *http2.PingFrame:
			if p.deaf.Load() {
				continue
			}
			p.write(func(fr *http2.Framer) error { return fr.WritePing(true, f.Data) })
		case *http2.GoAwayFrame:
			p.goAway.Store(true)
		case *http2.HeadersFrame:
			p.ended <- f.StreamID
		case *http2.RSTStreamFrame:
			p.resets <- reset{f.ErrCode, time.Now()}
		}
	}
}

func (p *peer) write(f func(*http2.Framer) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = f(p.framer) // fails once the server has closed the connection, which the tests observe
}

// begin sends the preface and SETTINGS.
func (p *peer) begin() {
	_, _ = io.WriteString(p.conn, http2.ClientPreface)
	p.write(func(f *http2.Framer) error { return f.WriteSettings() })
	p.write(func(f *http2.Framer) error { return f.WriteSettingsAck() })
}

// head returns the header block of a POST.
func (p *peer) head() []byte {
	p.block.Reset()
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "a.test"}, {":path", "/"}} {
		_ = p.hpack.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	return bytes.Clone(p.block.Bytes())
}

// request sends a whole request and waits for the response.
func (p *peer) request(stream uint32) {
	p.write(func(f *http2.Framer) error {
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: p.head(), EndHeaders: true, EndStream: true})
	})
	select {
	case <-p.ended:
	case at := <-p.closed:
		p.closed <- at
		p.t.Errorf("stream %d: the connection was closed", stream)
	}
}

// drip sends a byte, or what next returns, each second until the server closes the
// connection.
func (p *peer) drip(next func(i int) []byte) {
	for i := range 60 {
		if b := next(i); len(b) > 0 {
			if _, err := p.conn.Write(b); err != nil {
				return
			}
		}
		pause(time.Second)
	}
}

// pause waits in virtual time.
func pause(d time.Duration) { <-time.After(d) }

// over runs a test in virtual time with and without TLS.
func over(t *testing.T, f func(t *testing.T, cert *tls.Certificate)) {
	for _, name := range []string{"h2c", "TLS"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if name == "h2c" {
					f(t, nil)
					return
				}
				pair := certificatetest.New(t, "a.test")
				cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
				if err != nil {
					t.Fatal(err)
				}
				f(t, &cert)
			})
		})
	}
}

// unfinished returns the ways in which a client can leave a head unfinished: the bytes that begin
// it, and the bytes that the client sends each second afterwards.
func unfinished() map[string]func(p *peer) (first []byte, next func(i int) []byte) {
	frame := func(length byte, kind http2.FrameType, flags http2.Flags) []byte {
		return []byte{0, 0, length, byte(kind), byte(flags), 0, 0, 0, 9}
	}
	silence := func(int) []byte { return nil }
	return map[string]func(p *peer) (first []byte, next func(i int) []byte){
		"part of a frame header": func(*peer) ([]byte, func(int) []byte) {
			return []byte{0}, silence
		},
		"frame header in drops": func(*peer) ([]byte, func(int) []byte) {
			h := frame(100, http2.FrameHeaders, 0)
			return h[:1], func(i int) []byte {
				if i%2 == 1 && i/2+1 < len(h) {
					return h[i/2+1 : i/2+2]
				}
				return nil
			}
		},
		"payload of HEADERS in drops": func(p *peer) ([]byte, func(int) []byte) {
			block := append(p.head(), bytes.Repeat([]byte{0x82}, 90)...)
			return frame(100, http2.FrameHeaders, http2.FlagHeadersEndHeaders), func(i int) []byte { return block[i : i+1] }
		},
		"HEADERS without CONTINUATION": func(p *peer) ([]byte, func(int) []byte) {
			block := p.head()
			return append(frame(byte(len(block)), http2.FrameHeaders, 0), block...), silence
		},
		"CONTINUATION in drops": func(p *peer) ([]byte, func(int) []byte) {
			block := p.head()
			rest := append(frame(100, http2.FrameContinuation, http2.FlagContinuationEndHeaders), bytes.Repeat([]byte{0x82}, 100)...)
			return append(frame(byte(len(block)), http2.FrameHeaders, 0), block...), func(i int) []byte { return rest[i : i+1] }
		},
		"empty CONTINUATION frames": func(p *peer) ([]byte, func(int) []byte) {
			block := p.head()
			return append(frame(byte(len(block)), http2.FrameHeaders, 0), block...), func(int) []byte {
				return frame(0, http2.FrameContinuation, 0)
			}
		},
	}
}

// Guarantee: contract 4.5: over HTTP/2, with and without TLS, a connection is closed when the
// head of a request is not complete 10 s after its first byte, in whatever form it is left
// unfinished, and whatever came before.
func TestUnfinishedHeadClosesConnection(t *testing.T) {
	for name, form := range unfinished() {
		t.Run(name, func(t *testing.T) {
			over(t, func(t *testing.T, cert *tls.Certificate) {
				p := connect(t, newServer(t, readBodies), cert)
				p.begin()
				pause(3 * time.Second)
				p.request(1)
				pause(4 * time.Second) // the timer of this head is still running
				p.request(3)
				pause(5 * time.Second)
				first, next := form(p)
				start := time.Now()
				if _, err := p.conn.Write(first); err != nil {
					t.Fatal(err)
				}
				p.drip(next)
				if took := (<-p.closed).Sub(start); took > proxy.HeadTimeout+2*tickTime || took < proxy.HeadTimeout && name != "empty CONTINUATION frames" {
					t.Errorf("the connection was closed %s after the head began, want %s", took, proxy.HeadTimeout)
				}
			})
		})
	}
}

// Guarantee: contract 4.5: a client that does not send the whole preface, or that sends nothing
// after it, is disconnected within 10 s.
func TestUnfinishedPrefaceClosesConnection(t *testing.T) {
	for _, sent := range []int{0, 1, 14, 23, 24} {
		over(t, func(t *testing.T, cert *tls.Certificate) {
			p := connect(t, newServer(t, readBodies), cert)
			start := time.Now()
			if _, err := io.WriteString(p.conn, http2.ClientPreface[:sent]); err != nil {
				t.Fatal(err)
			}
			if took := (<-p.closed).Sub(start); took > proxy.HeadTimeout+2*tickTime {
				t.Errorf("%d bytes of the preface: the connection was closed after %s, want %s", sent, took, proxy.HeadTimeout)
			}
		})
	}
}

// Guarantee: the time limit of heads closes neither a busy connection, on which a head may take
// several seconds, nor a connection with a slow body, nor an idle connection before its own time is
// over.
func TestTimeOfHeadsSparesOthers(t *testing.T) {
	over(t, func(t *testing.T, cert *tls.Certificate) {
		p := connect(t, newServer(t, readBodies), cert)
		p.begin()
		p.write(func(f *http2.Framer) error { // a body of a byte every 3 s
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.head(), EndHeaders: true})
		})
		for stream := uint32(3); stream < 63; stream += 2 {
			p.write(func(f *http2.Framer) error { return f.WriteData(1, false, []byte("x")) })
			p.write(func(f *http2.Framer) error {
				if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: p.head(), EndStream: true}); err != nil {
					return err
				}
				pause(3 * time.Second)
				return f.WriteContinuation(stream, true, nil)
			})
			select {
			case <-p.ended:
			case <-p.closed:
				t.Fatalf("stream %d: the connection was closed", stream)
			}
		}
		// A DATA frame whose payload is late has a time limit of its own.
		if _, err := p.conn.Write([]byte{0, 0, 1, 0, 0, 0, 0, 0, 1}); err != nil {
			t.Fatal(err)
		}
		pause(20 * time.Second)
		if _, err := p.conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		p.write(func(f *http2.Framer) error { return f.WriteData(1, true, nil) })
		if stream := <-p.ended; stream != 1 {
			t.Errorf("got a response to stream %d, want 1", stream)
		}
		start := time.Now()
		if took := (<-p.closed).Sub(start); took < proxy.IdleTimeout || took > proxy.IdleTimeout+2*time.Second {
			t.Errorf("the idle connection was closed after %s, want %s", took, proxy.IdleTimeout)
		}
	})
}

// Guarantee: a client that accepts less than 1 KiB of a response within 30 s loses the stream,
// whether it opens no window or a window of a byte a second. The other streams of its connection go
// on meanwhile.
func TestStalledResponseIsReset(t *testing.T) {
	for _, drip := range []bool{false, true} {
		t.Run(fmt.Sprintf("drip %v", drip), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan time.Duration, 1)
				p := connect(t, newServer(t, func(w http.ResponseWriter, r *http.Request) {
					if r.ContentLength >= 0 {
						w.WriteHeader(http.StatusNoContent)
						return
					}
					start := time.Now()
					_, err := w.Write(make([]byte, 200<<10))
					if err == nil {
						t.Error("the response was sent to a client that does not accept it")
					}
					ended <- time.Since(start)
				}), nil)
				p.begin()
				p.write(func(f *http2.Framer) error {
					return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.head(), EndHeaders: true})
				})
				for i := range uint32(40) {
					pause(time.Second)
					if drip {
						p.write(func(f *http2.Framer) error { return f.WriteWindowUpdate(1, 1) })
					}
					if i%10 == 0 {
						p.request(3 + 2*i)
					}
				}
				if took := <-ended; took < proxy.StallTimeout || took > proxy.StallTimeout+3*tickTime {
					t.Errorf("the response was given up after %s, want %s", took, proxy.StallTimeout)
				}
			})
		})
	}
}

// Guarantee: a response that its client does not take counts with those of its address. Beyond the bound its stream is reset at
// once with ENHANCE_YOUR_CALM, while responses that are taken go on. Whatever the end, nothing stays counted.
func TestUntakenResponsesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength < 0 {
				_, _ = w.Write(make([]byte, 200<<10))
			}
		})
		other := func() *proxy.ConnBodies { return e.bodies.Of(netip.Addr{}, false) } // of the peer's address
		p := connect(t, e, nil)
		p.begin()
		stall := func(stream uint32) {
			p.write(func(f *http2.Framer) error {
				return f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: p.head(), EndHeaders: true})
			})
			synctest.Wait()
		}
		stall(1)
		rest := other()
		if rest.TakeResponse(proxy.MaxResponsesOfAddress) {
			t.Error("a response that is not taken is not counted")
		}
		rest.TakeResponse(proxy.MaxResponsesOfAddress - tripBytes)
		start := time.Now()
		stall(3)
		select {
		case r := <-p.resets:
			if took := r.at.Sub(start); r.code != http2.ErrCodeEnhanceYourCalm || took > tickTime {
				t.Errorf("a response beyond the bound was reset with %s after %s, want ENHANCE_YOUR_CALM at once", r.code, took)
			}
		default:
			t.Error("a response beyond the bound was not reset")
		}
		p.request(5)
		rest.Done()
		p.write(func(f *http2.Framer) error { return f.WriteRSTStream(1, http2.ErrCodeCancel) })
		synctest.Wait()
		if all := other(); !all.TakeResponse(proxy.MaxResponsesOfAddress) {
			t.Error("a response that has ended stays counted")
		}
	})
}

// Guarantee: a drain announces itself, lets running requests end, accepts requests that were on
// their way, and then closes the connection.
func TestDrain(t *testing.T) {
	over(t, func(t *testing.T, cert *tls.Certificate) {
		release := make(chan struct{})
		e := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
			<-release
			w.WriteHeader(http.StatusNoContent)
		})
		p := connect(t, e, cert)
		p.begin()
		begin := func(stream uint32) {
			p.write(func(f *http2.Framer) error {
				return f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: p.head(), EndHeaders: true, EndStream: true})
			})
		}
		begin(1)
		pause(time.Second)
		p.deaf.Store(true) // the reply to the PING would end the time for new requests
		drained := make(chan error, 1)
		go func() { drained <- e.Shutdown(context.Background()) }()
		begin(3) // on its way when the drain begins
		pause(20 * time.Second)
		close(release)
		for range 2 {
			<-p.ended
		}
		if err := <-drained; err != nil {
			t.Error(err)
		}
		<-p.closed
	})
}

// Guarantee: once a shutdown is announced, a client receives GOAWAY ahead of its next response, or at once if
// it has had one. A new connection serves its first request.
func TestAnnouncedDrain(t *testing.T) {
	for _, early := range []bool{false, true} {
		t.Run(fmt.Sprintf("a request before: %v", early), func(t *testing.T) {
			over(t, func(t *testing.T, cert *tls.Certificate) {
				e := newServer(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
				p := connect(t, e, cert)
				p.begin()
				if early {
					p.request(1)
				}
				e.Announce()
				pause(5 * time.Second) // more than a sweep
				if !early {
					p.deaf.Store(true) // it would reply in the middle of what the server writes
					if p.goAway.Load() {
						t.Error("a connection without a request received GOAWAY")
					}
					p.write(func(f *http2.Framer) error {
						return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.head(), EndHeaders: true, EndStream: true})
					})
					<-p.ended
				}
				if !p.goAway.Load() {
					t.Error("the client has its response and no GOAWAY")
				}
				<-p.closed
			})
		})
	}
}

// Guarantee: a connection whose client has disappeared silently is closed: it is pinged after 30 s
// of silence, and closed when the reply is 15 s late.
func TestSilentClientIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connect(t, newServer(t, readBodies), nil)
		p.deaf.Store(true)
		p.begin()
		start := time.Now()
		if took := (<-p.closed).Sub(start); took < pingAfter+pingTimeout || took > pingAfter+pingTimeout+time.Second {
			t.Errorf("the connection was closed after %s, want %s", took, pingAfter+pingTimeout)
		}
	})
}

// Guarantee: a response that is complete before the body of its request, short or long, is
// followed by RST_STREAM only a while later, because some clients drop the response of a stream
// that is reset at once.
func TestResetAfterEarlyResponseIsLate(t *testing.T) {
	for _, length := range []int{0, 3_000_000} {
		over(t, func(t *testing.T, cert *tls.Certificate) {
			p := connect(t, newServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusForbidden)
			}), cert)
			p.begin()
			block := p.head()
			if length > 0 {
				block = append(block, "\x0f\x0d\x073000000"...) // content-length, without indexing
			}
			p.write(func(f *http2.Framer) error {
				return errors.Join(f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true}), f.WriteData(1, false, make([]byte, 10_000)))
			})
			<-p.ended
			start := time.Now()
			r := <-p.resets
			if took := r.at.Sub(start); r.code != http2.ErrCodeNo || took < lingerStream || took > lingerStream+3*tickTime {
				t.Errorf("length %d: got a reset with %v %s after the response, want NO_ERROR after %s", length, r.code, took, lingerStream)
			}
		})
	}
}

// Guarantee: the requests of a client that violates the protocol end at once, as when a client hangs
// up, even if the client does not read the GOAWAY. A response that came later could not be sent, and
// would be recorded as a failure of the upstream.
func TestViolationEndsRequestsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, cut := make(chan struct{}), make(chan time.Time, 1)
		e := newServer(t, func(_ http.ResponseWriter, r *http.Request) {
			close(began)
			<-r.Context().Done()
			cut <- time.Now()
		})
		l, served := make(pipes), make(chan error, 1)
		go func() { served <- e.Serve(l) }()
		client, server := net.Pipe()
		l <- server
		var sent bytes.Buffer
		p := &peer{t: t, conn: client, framer: http2.NewFramer(&sent, nil)}
		p.hpack = hpack.NewEncoder(&p.block)
		read := func() { // reads what the server has sent, in one piece
			t.Helper()
			if _, err := client.Read(make([]byte, 1<<16)); err != nil {
				t.Fatal(err)
			}
		}
		send := func(f func(*http2.Framer) error) {
			t.Helper()
			p.write(f)
			if _, err := sent.WriteTo(client); err != nil {
				t.Fatal(err)
			}
		}
		read()
		sent.WriteString(http2.ClientPreface)
		send(func(f *http2.Framer) error {
			return errors.Join(f.WriteSettings(), f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.head(), EndHeaders: true, EndStream: true}))
		})
		<-began
		read() // the acknowledgement
		start := time.Now()
		send(func(f *http2.Framer) error { return f.WriteRawFrame(http2.FramePing, 0, 0, []byte("short")) })
		if took := (<-cut).Sub(start); took != 0 {
			t.Errorf("the request was ended after %s, want at once", took)
		}
		read() // GOAWAY
		_ = client.Close()
		close(l)
		if err := e.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		<-served
	})
}

func newPools(t testing.TB) *upstream.Pools {
	t.Helper()
	pools, err := upstream.NewPools(upstream.Config{Guard: netguard.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pools.Close)
	return pools
}
