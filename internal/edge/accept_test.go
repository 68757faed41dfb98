package edge_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/edge"
)

// Guarantee: beyond the caps a connection is closed at once, counted, and logged
// seldom; one that ends makes room.
func TestCaps(t *testing.T) {
	d := open(t, edge.Config{MaxConnections: 4, MaxConnectionsPerAddress: 2})
	serve := func(from string) *caller {
		c := d.dialFrom(from)
		c.say("x\n")
		c.hears(`"x\n"`)
		return c
	}
	one, _ := serve("127.0.0.1"), serve("127.0.0.1")
	for range 3 {
		d.dialFrom("127.0.0.1").isClosed()
	}
	serve("127.0.0.2")
	serve("127.0.0.3")
	d.dialFrom("127.0.0.4").isClosed()
	if s := d.server.Stats(); s.Open != 4 || s.Accepted != 8 || s.RefusedAddress != 3 || s.RefusedTotal != 1 {
		t.Errorf("%+v", s)
	}
	if n := d.log.count("too many connections"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	_ = one.Close()
	eventually(t, "there is room again", func() bool { return d.server.Stats().Open == 3 })
	serve("127.0.0.1")
}

// broken is a listener that first fails as one does in a process without a free
// file.
type broken struct {
	net.Listener
	mu   sync.Mutex
	left int
}

func (b *broken) Accept() (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left > 0 {
		b.left--
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return b.Listener.Accept()
}

// Guarantee: trouble with accepting passes.
func TestAcceptErrors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := openOn(t, &broken{Listener: l, left: 4}, edge.Config{})
	c := d.dial()
	c.say("x\n")
	c.hears(`"x\n"`)
	if d.server.Stats().AcceptErrors != 4 || d.log.count("cannot be accepted") != 1 {
		t.Errorf("%+v", d.server.Stats())
	}
}

// Guarantee: a shutdown ends the pause after an error.
func TestShutdownInPause(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := openOn(t, &broken{Listener: l, left: 1 << 30}, edge.Config{})
	eventually(t, "it pauses for long", func() bool { return d.server.Stats().AcceptErrors > 5 })
	d.close()
}

// Guarantee: a listener that somebody else closed is told of.
func TestListenerGone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := openOn(t, l, edge.Config{})
	_ = l.Close()
	if err := <-d.served; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve returned %v", err)
	}
	d.served <- nil
}

// Guarantee: a shutdown refuses new connections, closes at once those that have
// said nothing, tells both drivers to end, and waits for what runs.
func TestShutdown(t *testing.T) {
	arrived, answer := make(chan struct{}), make(chan struct{})
	d := open(t, edge.Config{HTTP2: newWeb(func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-answer
		_, _ = io.WriteString(w, "done")
	})})
	client, got := priorKnowledge(t), make(chan string, 1)
	go func() {
		resp, err := client.Get("http://" + d.addr)
		if err != nil {
			got <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		got <- string(body)
	}()
	<-arrived
	silent := d.dial()
	part := d.dial()
	part.say("PRI")
	busy := d.dial()
	busy.say("x\n")
	busy.hears(`"x\n"`)

	ended := make(chan error, 1)
	go func() { ended <- d.server.Shutdown(context.Background()) }()
	silent.isClosed()
	part.isClosed()
	<-d.http1.ended
	busy.isClosed()
	if err := <-d.served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if c, err := net.Dial("tcp", d.addr); err == nil {
		_ = c.Close()
		t.Error("it still accepts")
	}
	select {
	case err := <-ended:
		t.Fatalf("ended before the stream: %v", err)
	default:
	}
	close(answer)
	if body := <-got; body != "done" {
		t.Errorf("the stream that ran got %q", body)
	}
	client.CloseIdleConnections()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := d.server.Serve(listener(t)); err != nil {
		t.Errorf("Serve after the end: %v", err)
	}
	d.served <- nil
}

func listener(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Guarantee: what still runs when the time is over is cut off.
func TestCutOff(t *testing.T) {
	arrived := make(chan struct{})
	w := &hard{newWeb(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})}
	d := open(t, edge.Config{HTTP2: w})
	failed := make(chan error, 1)
	go func() {
		resp, err := priorKnowledge(t).Get("http://" + d.addr)
		if err == nil {
			_ = resp.Body.Close()
		}
		failed <- err
	}()
	<-arrived
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := d.server.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := <-failed; err == nil || strings.Contains(err.Error(), "Timeout") {
		t.Errorf("the stream ended with %v", err)
	}
}

// hard is a web that cuts off what runs, as h2.Server does.
type hard struct{ *web }

func (h *hard) Shutdown(ctx context.Context) error {
	if err := h.web.Shutdown(ctx); err != nil {
		return h.web.Close()
	}
	return nil
}

// Guarantee: thousands of connections that come and go leave nothing behind.
func TestMany(t *testing.T) {
	d := open(t, edge.Config{})
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for i := range 50 {
				c, err := net.Dial("tcp", d.addr)
				if err != nil {
					t.Error(err)
					return
				}
				if i%2 == 0 {
					_, _ = io.WriteString(c, "x\n")
					_, _ = c.Read(make([]byte, 100))
				}
				_ = c.Close()
			}
		})
	}
	all.Wait()
	eventually(t, "all are closed", func() bool { s := d.server.Stats(); return s.Accepted == 1600 && s.Open == 0 })
}
