package h2

import (
	"sync"
	"sync/atomic"
)

// maxParked is the number of goroutines that wait for a request to forward.
const maxParked = 64

// workers runs streams in goroutines that are reused: their stacks have grown to the size that
// forwarding needs. A new goroutine would have to copy its stack several times to grow.
type workers struct {
	jobs   chan *stream
	parked atomic.Int64
	done   chan struct{} // closed at the end
	once   sync.Once
}

func (w *workers) init() { w.jobs, w.done = make(chan *stream), make(chan struct{}) }

// end ends the goroutines that wait.
func (w *workers) end() { w.once.Do(func() { close(w.done) }) }

// do runs s in a goroutine.
func (w *workers) do(s *stream) {
	select {
	case w.jobs <- s:
	default:
		go w.work(s)
	}
}

func (w *workers) work(s *stream) {
	for {
		s.run()
		if w.parked.Add(1) > maxParked {
			w.parked.Add(-1)
			return
		}
		select {
		case s = <-w.jobs:
			w.parked.Add(-1)
		case <-w.done:
			return
		}
	}
}
