package upstream

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/http2"
	"github.com/keygate/keygate/internal/keygatetest/proctest"
)

// storm sends requests of all kinds at once, and gives many of them up. It returns how many
// ended well.
func storm(t *testing.T, pools *Pools, pool *H2Pool, workers, rounds int) (well int64) {
	var done sync.WaitGroup
	var ok atomic.Int64
	for w := range workers {
		done.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			body := make([]byte, 100_000)
			for range rounds {
				size := random.IntN(3) * random.IntN(len(body)/2)
				c := newCall("POST", "/")
				late := random.IntN(4) == 0
				c.hold = late
				if err := pool.Open(t.Context(), time.Now().Add(time.Minute), &c.H2Stream, H2Request{Exchange: c}); err != nil {
					t.Errorf("got %v", err)
					return
				}
				if random.IntN(5) == 0 { // given up on the way
					_, _ = c.SendData(body[:size/2], false)
					c.Close()
					continue
				}
				err := c.Send(t.Context(), body[:size], true)
				if late {
					<-c.headIn
					c.read()
				}
				if random.IntN(5) == 0 {
					c.Reset(http2.Cancel)
					continue
				}
				c.wait(t)
				switch {
				case err != nil || c.err != nil:
					if c.err == nil || !errors.Is(err, io.ErrClosedPipe) && err != nil {
						t.Errorf("got %v and %v", err, c.err)
					}
				case c.body.Len() != size:
					t.Errorf("got %d bytes, want %d", c.body.Len(), size)
				default:
					ok.Add(1)
				}
			}
		})
	}
	done.Wait()
	if s := pool.Stats(); s.Streams != 0 || s.Waiting != 0 {
		t.Errorf("unexpected statistics %+v", s)
	}
	pools.Close()
	await(t, func() bool { return pools.budget.inUse() == 0 && pool.unused() }, func() any { return pool.Stats() })
	return ok.Load()
}

// Guarantee: under storms of requests that are sent, held, given up and reset at once, every
// exchange ends, every response is whole and belongs to its request, and nothing is left.
func TestMultiplexedStorm(t *testing.T) {
	for _, kind := range serverKinds {
		t.Run(kind, func(t *testing.T) {
			o := serve(t, kind, 5, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).Flush()
				_, _ = io.Copy(w, r.Body)
			}))
			pools, pool := newMultiplexed(t, Config{MaxDescriptors: 100}, o)
			if well := storm(t, pools, pool, 16, 6); well == 0 {
				t.Error("no exchange ended well")
			}
		})
	}
}

// Guarantee: requests that were not processed fail as safe, are sent again, and all of them
// are answered, while the server refuses streams and goes away all the time.
func TestMultiplexedStormOfGoAways(t *testing.T) {
	var n atomic.Int64
	o := script(t, func(s *scripted) {
		for served := 0; ; served++ {
			ev := s.next()
			switch {
			case ev.Kind == 0:
				return
			case ev.Kind != http2.Head:
			case n.Add(1)%7 == 0:
				s.Reset(ev.Stream, http2.RefusedStream)
				s.Done(ev.Stream)
			case served == 20:
				s.GoAway(http2.NoError)
				fallthrough
			default:
				s.respond(ev.Stream, s.target())
			}
		}
	})
	pools, pool := newMultiplexed(t, Config{MaxDescriptors: 1000}, o)
	var done sync.WaitGroup
	for w := range 16 {
		done.Go(func() {
			for i := range 20 {
				path := fmt.Sprint("/", w, "/", i)
				for {
					c := get(t, pool, path)
					if c.err != nil && c.safe {
						continue
					}
					c.want(t, 200, path)
					break
				}
			}
		})
	}
	done.Wait()
	pools.Close()
	await(t, func() bool { return pools.budget.inUse() == 0 && pool.unused() }, func() any { return pool.Stats() })
}

// unary is an exchange without allocations.
type unary struct {
	H2Stream
	ended bool
	over  chan struct{}
	fail  error
}

func (u *unary) WriteHead(w *http2.Conn) {
	w.FieldString(":method", "POST", false)
	w.FieldString(":scheme", "http", false)
	w.FieldString(":authority", "up.example", false)
	w.FieldString(":path", "/service/Method", false)
	w.FieldString("content-type", "application/grpc", false)
	w.FieldString("te", "trailers", false)
}

func (u *unary) TakeInterim(*http2.Response) {}

func (u *unary) TakeHead(_ *http2.Response, end bool) { u.ended = end }
func (u *unary) TakeData(b []byte, end bool) {
	u.Consumed(len(b))
	u.ended = end
}
func (u *unary) TakeTrailers(*http2.TrailerFields) { u.ended = true }
func (u *unary) CanSend()                          {}
func (u *unary) Fail(err error, _ bool)            { u.fail = err; u.over <- struct{}{} }

// Settle is the last callback of a response, after which the stream may be used again.
func (u *unary) Settle(bool) Flusher {
	if u.ended {
		u.ended = false
		u.over <- struct{}{}
	}
	return nil
}

var message = make([]byte, 64)

// exchange runs one exchange.
func (u *unary) exchange(t testing.TB, p *H2Pool) {
	if !p.TryOpen(&u.H2Stream, H2Request{Exchange: u}) {
		if err := p.Open(t.Context(), time.Time{}, &u.H2Stream, H2Request{Exchange: u}); err != nil {
			t.Fatal(err)
		}
	}
	if n, ok := u.SendData(message, true); n != len(message) || !ok {
		t.Fatal("the request was not sent")
	}
	<-u.over
	u.Close()
	if u.fail != nil {
		t.Fatal(u.fail)
	}
}

// lean responds to requests like a gRPC server, without allocations.
func lean(s *scripted) {
	var ev http2.Event
	var spare []byte
	for {
		n, err := s.net.Read(s.buf)
		if err != nil {
			return
		}
		s.Feed(0, s.buf[:n])
		for s.Next(&ev) {
			switch ev.Kind {
			case http2.Head:
				_ = s.ReadRequest(&s.req)
			case http2.Data:
				s.Consumed(ev.Stream, len(ev.Data))
				if !ev.End {
					continue
				}
				s.BeginHead(ev.Stream)
				s.FieldString(":status", "200", false)
				s.FieldString("content-type", "application/grpc", false)
				s.EndHead(false)
				s.Data(ev.Stream, message, false)
				s.BeginHead(ev.Stream)
				s.FieldString("grpc-status", "0", false)
				s.EndHead(true)
				s.Done(ev.Stream)
			}
		}
		spare = s.Take(spare)
		if _, err := s.net.Write(spare); err != nil {
			return
		}
	}
}

func newLean(t testing.TB) *H2Pool {
	o := script(t, func(s *scripted) {
		s.flush()
		lean(s)
	})
	_, pool := newMultiplexed(t, Config{}, o)
	return pool
}

// Guarantee: an exchange on a connection in its steady state allocates nothing.
func TestMultiplexedAllocations(t *testing.T) {
	pool := newLean(t)
	u := &unary{over: make(chan struct{}, 1)}
	for range 100 {
		u.exchange(t, pool)
	}
	if n := testing.AllocsPerRun(500, func() { u.exchange(t, pool) }); n > 1 {
		t.Errorf("an exchange makes %v allocations, want none", n)
	}
}

// BenchmarkMultiplexed shows the costs of an exchange of 64 bytes each way with trailers, including
// the server's on the same machine.
func BenchmarkMultiplexed(b *testing.B) {
	for _, at := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("streams=%d", at), func(b *testing.B) {
			pool := newLean(b)
			each(b, at, func() func() {
				u := &unary{over: make(chan struct{}, 1)}
				return func() { u.exchange(b, pool) }
			})
		})
	}
}

// each runs b.N exchanges, as many at the same time as at says, and reports the CPU time of each.
func each(b *testing.B, at int, prepare func() (exchange func())) {
	prepare()()
	b.ReportAllocs()
	b.ResetTimer()
	before := proctest.CPUTime(b)
	var left atomic.Int64
	left.Store(int64(b.N))
	var done sync.WaitGroup
	for range at {
		done.Go(func() {
			exchange := prepare()
			for left.Add(-1) >= 0 {
				exchange()
			}
		})
	}
	done.Wait()
	b.ReportMetric(float64(proctest.CPUTime(b)-before)/float64(b.N), "cpu-ns/op")
}
