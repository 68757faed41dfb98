package nethttp

import (
	"context"
	"sync"
)

// tunnels knows the tunnels that are open, which net/http has let go.
type tunnels struct {
	mu     sync.Mutex
	open   map[*pair]struct{}
	closed bool          // no more tunnels: the drain is over
	empty  chan struct{} // closed when the last has ended; made by drain
}

// add reports whether the tunnel may open.
func (t *tunnels) add(p *pair) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	if t.open == nil {
		t.open = make(map[*pair]struct{})
	}
	t.open[p] = struct{}{}
	return true
}

func (t *tunnels) remove(p *pair) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, p)
	if len(t.open) == 0 && t.empty != nil {
		close(t.empty)
		t.empty = nil
	}
}

// drain waits until the last tunnel has ended, or closes those that are left
// when ctx ends and returns their number. A request that runs may still become a
// tunnel: whoever serves it waits for it.
func (t *tunnels) drain(ctx context.Context) (cut int) {
	t.mu.Lock()
	if len(t.open) == 0 {
		t.mu.Unlock()
		return 0
	}
	if t.empty == nil {
		t.empty = make(chan struct{})
	}
	empty := t.empty
	t.mu.Unlock()
	select {
	case <-empty:
		return 0
	case <-ctx.Done():
	}
	t.mu.Lock()
	t.closed = true
	for p := range t.open {
		p.close()
		cut++
	}
	t.mu.Unlock()
	<-empty
	return cut
}
