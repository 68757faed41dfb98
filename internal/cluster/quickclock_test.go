package cluster

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/cluster/lease"
)

// world has three clocks of one machine. Each reading takes time.
type world struct {
	monotonic, wall, boot time.Duration
	reading               func() time.Duration
}

func (w *world) pass(d time.Duration) {
	w.monotonic, w.wall, w.boot = w.monotonic+d, w.wall+d, w.boot+d
}
func (w *world) suspend(d time.Duration) { w.wall, w.boot = w.wall+d, w.boot+d }
func (w *world) step(d time.Duration)    { w.wall += d }

func (w *world) quick() *quickClock {
	return &quickClock{
		clock: func() lease.Instant { w.pass(w.reading()); return lease.Instant(w.boot) },
		readings: func() (monotonic, wall time.Duration) {
			w.pass(w.reading())
			wall = w.wall
			w.pass(w.reading())
			return w.monotonic, wall
		},
	}
}

// Whatever happens to the machine, the quick clock is never behind the clock that goes on while the machine
// is suspended, and is ahead of it by no more than its bound.
func TestQuickClockIsNeverBehind(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		between := func(least, most time.Duration) time.Duration {
			return least + time.Duration(random.Int64N(int64(most-least)))
		}
		w := &world{wall: between(-time.Hour, time.Hour), reading: func() time.Duration {
			if random.IntN(20) == 0 { // descheduled
				return between(0, 50*time.Millisecond)
			}
			return between(0, time.Microsecond)
		}}
		q := w.quick()
		for range 300 {
			switch random.IntN(4) {
			case 0:
				w.suspend(between(0, 10*time.Second) / time.Duration(1+random.IntN(10000)))
			case 1:
				w.step(between(0, time.Minute))
			default:
				w.pass(between(0, time.Second))
			}
			earliest := lease.Instant(w.boot)
			got := q.read()
			if latest := lease.Instant(w.boot).Add(3 * time.Millisecond); got < earliest || got > latest {
				t.Fatalf("seed %d: the quick clock shows %d, want at least %d and at most %d", seed, got, earliest, latest)
			}
		}
	}
}

// The usual reading makes no system call, and none allocates while the machine runs.
func TestQuickClockReadsTheClockSeldom(t *testing.T) {
	w := &world{reading: func() time.Duration { return 30 }}
	q := w.quick()
	slow := q.clock
	calls := 0
	q.clock = func() lease.Instant { calls++; return slow() }
	for range 1000 {
		w.pass(time.Second)
		q.read()
	}
	if calls != 1 {
		t.Errorf("1000 readings read the slow clock %d times, want once", calls)
	}
	read := NewQuickClock(NewClock())
	read()
	if n := testing.AllocsPerRun(1000, func() { read() }); n >= 1 {
		t.Errorf("a reading allocates %v times", n)
	}
}

func BenchmarkClock(b *testing.B) {
	clock := NewClock()
	for name, read := range map[string]func() lease.Instant{"exact": clock, "quick": NewQuickClock(clock)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				read()
			}
		})
	}
}
