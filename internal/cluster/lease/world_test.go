package lease

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// world runs events in the order of their virtual times. It is deterministic: one seed is one run.
type world struct {
	*rand.Rand
	now    time.Duration
	events events
	serial int
}

type event struct {
	at     time.Duration
	serial int
	run    func()
}

func newWorld(seed uint64) *world { return &world{Rand: rand.New(rand.NewPCG(seed, 0x6b657967617465))} }

// after runs f in d from now.
func (w *world) after(d time.Duration, f func()) {
	w.serial++
	heap.Push(&w.events, event{at: w.now + d, serial: w.serial, run: f})
}

// every runs f repeatedly, each time after a pause.
func (w *world) every(pause func() time.Duration, f func()) {
	w.after(pause(), func() {
		f()
		w.every(pause, f)
	})
}

// run runs the events until the given time.
func (w *world) run(until time.Duration) {
	for len(w.events) > 0 && w.events[0].at <= until {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.run()
	}
	w.now = until
}

// upTo returns a random time below d.
func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.Float64() * float64(d)) }

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].serial < e[j].serial
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}
