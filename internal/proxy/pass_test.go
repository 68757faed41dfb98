package proxy_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/proxy"
)

// socketPair returns both ends of a TCP connection over the loopback interface.
func socketPair(t testing.TB) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = dialed.Close(), accepted.Close() })
	return dialed.(*net.TCPConn), accepted
}

// hidden hides that a connection is a socket, as TLS does.
type hidden struct{ io.ReadWriter }

// Guarantee: a tunnel passes every byte, in pieces of any size, from sockets and from other
// connections, and reports how many they were.
func TestPass(t *testing.T) {
	t.Parallel()
	for name, hide := range map[string]bool{"socket": false, "other": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in, from := socketPair(t)
			to, out := socketPair(t)
			sent := make([]byte, 3<<20)
			_, _ = rand.Read(sent)
			go func() {
				defer func() { _ = in.CloseWrite() }()
				rest := sent
				for size := 1; len(rest) > 0; size = size*3 + 1 {
					n := min(size, len(rest))
					if _, err := in.Write(rest[:n]); err != nil {
						t.Error(err)
						return
					}
					rest = rest[n:]
				}
			}()
			type result struct {
				n   int64
				err error
			}
			done := make(chan result, 1)
			go func() {
				var reader io.Reader = from
				if hide {
					reader = hidden{from}
				}
				n, err := proxy.Pass(to, reader)
				_ = to.CloseWrite()
				done <- result{n, err}
			}()
			got, err := io.ReadAll(out)
			if err != nil || !bytes.Equal(got, sent) {
				t.Errorf("got %d bytes, error %v, want the %d that were sent", len(got), err, len(sent))
			}
			if r := <-done; r.err != nil || r.n != int64(len(sent)) {
				t.Errorf("Pass returned %d, %v, want %d, nil", r.n, r.err, len(sent))
			}
		})
	}
}

// Guarantee: Pass ends with an error if one of its connections breaks, and at a deadline.
func TestPassEnds(t *testing.T) {
	t.Parallel()
	t.Run("deadline", func(t *testing.T) {
		t.Parallel()
		_, from := socketPair(t)
		_ = from.SetReadDeadline(time.Unix(1, 0))
		if _, err := proxy.Pass(io.Discard, from); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got error %v, want one of the deadline", err)
		}
	})
	t.Run("reset", func(t *testing.T) {
		t.Parallel()
		in, from := socketPair(t)
		_ = in.SetLinger(0)
		_ = in.Close()
		if _, err := proxy.Pass(io.Discard, from); err == nil {
			t.Error("got no error after a reset")
		}
	})
	t.Run("write", func(t *testing.T) {
		t.Parallel()
		in, from := socketPair(t)
		to, _ := socketPair(t)
		_ = to.Close()
		_, _ = in.Write([]byte("x"))
		if _, err := proxy.Pass(to, from); !errors.Is(err, net.ErrClosed) {
			t.Errorf("got error %v, want net.ErrClosed", err)
		}
	})
}

// Guarantee: an idle tunnel holds no large buffer in either direction.
func TestIdlePassHoldsNoBuffer(t *testing.T) {
	const idle = 200
	for name, hide := range map[string]bool{"socket": false, "other": true} {
		t.Run(name, func(t *testing.T) {
			var senders []*net.TCPConn
			var passing sync.WaitGroup
			before := reachable()
			for range idle {
				in, from := socketPair(t)
				to, out := socketPair(t)
				senders = append(senders, in)
				var reader io.Reader = from
				if hide {
					reader = hidden{from}
				}
				passing.Go(func() { _, _ = proxy.Pass(to, reader) })
				if _, err := in.Write(make([]byte, 1000)); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(out, make([]byte, 1000)); err != nil {
					t.Fatal(err)
				}
			}
			// The last buffers go back to the pool a moment after they were written.
			const bound = 8 << 10 // four connections of net, and a goroutine
			for end := time.Now().Add(time.Minute); ; {
				used := (reachable() - before) / idle
				if used <= bound {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("an idle direction holds %d bytes, want at most %d", used, bound)
				}
				runtime.Gosched()
			}
			for _, in := range senders {
				_ = in.Close()
			}
			passing.Wait()
		})
	}
}

// reachable returns the bytes of the heap that are in use.
func reachable() int64 {
	runtime.GC()
	runtime.GC() // the first only empties a sync.Pool by half
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
