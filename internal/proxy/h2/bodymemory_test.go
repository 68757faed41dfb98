package h2

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// Guarantee: an upload whose client pauses holds no memory besides its memory in proxy.Bodies, on however many
// streams, and however long they stay open.
func TestRestingUploadsHoldNoMemory(t *testing.T) {
	for _, scheme := range []string{"http", "h2c"} {
		t.Run(scheme, func(t *testing.T) {
			var arrived atomic.Int64
			a := newAccess(t, accessSetup{scheme: scheme, keep: true, handler: func(_ http.ResponseWriter, r *http.Request) {
				piece := make([]byte, 4<<10)
				for {
					n, err := r.Body.Read(piece)
					if arrived.Add(int64(n)); err != nil {
						return
					}
				}
			}})
			const streams, size = 60, 60 << 10
			var all sync.WaitGroup
			var pipes []*io.PipeWriter
			c := client(t)
			for range streams {
				body, pipe := io.Pipe()
				pipes = append(pipes, pipe)
				all.Go(func() {
					response, err := c.RoundTrip(a.request("POST", "/orders", body, ""))
					if err != nil || response.StatusCode != http.StatusOK {
						t.Errorf("got %v, %v; want a 200", response, err)
						return
					}
					_ = response.Body.Close()
				})
				all.Go(func() {
					if _, err := pipe.Write(make([]byte, size)); err != nil {
						t.Error(err)
					}
				})
			}
			held := func() (resting, memory, counted int) {
				a.engine.each(func(c *conn) {
					c.mu.Lock()
					defer c.mu.Unlock()
					for _, s := range c.streams {
						if s.restsAt != 0 {
							resting++
							memory, counted = memory+cap(s.in)+cap(s.out)+cap(s.room), counted+s.taken
						}
					}
				})
				return resting, memory, counted
			}
			awaittest.True(t, "the bodies", func() bool {
				resting, _, _ := held()
				return arrived.Load() == streams*size && resting == streams
			})
			a.engine.each(func(c *conn) { // a part arrives, and the sweep is before the goroutine that forwards
				c.mu.Lock()
				defer c.mu.Unlock()
				for _, s := range c.streams {
					if s.in = append(s.in, 'x'); s.restsAt != 0 {
						s.shrink(s.restsAt + time.Hour.Milliseconds())
					}
					if len(s.in) != 1 {
						t.Error("a part that was not forwarded yet is given up")
					}
					s.in = s.in[:0]
				}
			})
			for at := time.Duration(0); at <= restTime+tickTime; at += tickTime {
				a.tick()
			}
			if _, memory, counted := held(); memory != 0 || counted != 0 {
				t.Errorf("%d uploads that rest hold %d bytes of memory, and count %d", streams, memory, counted)
			}
			for _, pipe := range pipes { // they go on
				all.Go(func() {
					_, _ = pipe.Write(make([]byte, size))
					_ = pipe.Close()
				})
			}
			all.Wait()
			if n := arrived.Load(); n != 2*streams*size {
				t.Errorf("%d bytes have arrived, want %d", n, 2*streams*size)
			}
		})
	}
}
