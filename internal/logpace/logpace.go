// Package logpace bounds the lines that a log gets about one thing, which may change its state very often.
package logpace

import (
	"sync"
	"time"
)

// The bounds of a Gate: so many lines at once, and then one each Every. In a minute there are seven at most.
const (
	Burst = 4
	Every = 20 * time.Second
)

// Gate says when a line may be written. The zero value is ready to use. It is safe for concurrent use.
type Gate struct {
	mu   sync.Mutex
	used bool
	next time.Duration // when lines at the pace of one each Every would be due
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
