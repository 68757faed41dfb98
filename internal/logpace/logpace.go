// Package logpace bounds the lines that a log gets about one thing, which may change its state very often.
package logpace

import (
	"sync"
	"time"
)

// The bounds of a Gate: Burst lines at once, and then one line in each Every, which makes seven lines in a
// minute at most.
const (
	Burst = 4
	Every = 20 * time.Second
)

// Gate says when a line may be written. The zero value is ready to use. It is safe for concurrent use.
type Gate struct {
	mu   sync.Mutex
	used bool
	next time.Duration // when the next line would be due, at the pace of one line in each Every
}

// Pass reports whether a line may be written at now, counted from any fixed moment. If it may not, wait is the time
// until it may.
func (g *Gate) Pass(now time.Duration) (ok bool, wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if oldest := now - (Burst-1)*Every; !g.used || g.next < oldest {
		g.used, g.next = true, oldest
	}
	if g.next > now {
		return false, g.next - now
	}
	g.next += Every
	return true, 0
}
