package nethttp

import (
	"context"
	"sync"
)

// tunnels is the set of open tunnels. net/http no longer tracks their connections.
type tunnels struct {
	mu     sync.Mutex
	open   map[*pair]struct{}
	closed bool          // no tunnel may open: the drain is over
	empty  chan struct{} // closed when the last tunnel has ended; made by drain
}

// add adds a tunnel. It reports false if the tunnel must not open.
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

// drain waits until all tunnels have ended. When ctx ends, it closes the remaining ones and
// returns their number. A running request may still become a tunnel, so Shutdown first
// waits for requests.
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
