package balance

import (
	"sync"
	"sync/atomic"
	"time"
)

// budget is the retry budget of an upstream on this node (section 4): of the last 10 s, it allows at most a percentage of
// the requests begun in that time or in flight, and 30 more. Time is divided into seconds. The second in which the last 10 s
// began counts for retries, but not for requests, so the budget is never exceeded.
type budget struct {
	second  atomic.Int64 // the latest
	mu      sync.Mutex   // held to begin a second
	seconds [16]second   // more than count, so that a late end of a request finds its second
	older   atomic.Int64 // requests in flight that began before
}

type second struct{ begun, ended, retries atomic.Int64 }

const (
	budgetSeconds = 10
	budgetSpare   = 30 // retries in 10 s that are always allowed
)

func (b *budget) at(s int64) *second { return &b.seconds[s&int64(len(b.seconds)-1)] }

// reach makes the second of now the latest, and returns the latest. wait is set if it must.
func (b *budget) reach(now time.Duration, wait bool) int64 {
	s := int64(now / time.Second)
	latest := b.second.Load()
	if s <= latest {
		return latest
	}
	if wait {
		b.mu.Lock()
	} else if !b.mu.TryLock() {
		return latest
	}
	defer b.mu.Unlock()
	latest = b.second.Load()
	if s <= latest {
		return latest
	}
	for next := max(latest+1, s-int64(len(b.seconds))+1); next <= s; next++ {
		x := b.at(next)
		b.older.Add(x.begun.Swap(0) - x.ended.Swap(0))
		x.retries.Store(0)
	}
	b.second.Store(s)
	return s
}

// begin counts a request, and returns the second in which it began.
func (b *budget) begin(now time.Duration) int64 {
	s := b.reach(now, false)
	b.at(s).begun.Add(1)
	return s
}

// end counts the end of a request that began in the second s.
func (b *budget) end(s int64) {
	if b.second.Load()-s >= int64(len(b.seconds)) {
		b.older.Add(-1)
		return
	}
	b.at(s).ended.Add(1)
}

// retry counts a retry and reports whether the budget allows it.
func (b *budget) retry(now time.Duration, percent int) bool {
	latest := b.reach(now, true)
	own := &b.at(latest).retries
	own.Add(1) // first, so that concurrent ones together stay within the budget
	var requests, retries int64
	for i := range b.seconds {
		x, age := &b.seconds[i], (latest-int64(i))&int64(len(b.seconds)-1)
		switch {
		case age < budgetSeconds:
			requests += x.begun.Load()
			retries += x.retries.Load()
		case age == budgetSeconds:
			retries += x.retries.Load()
			fallthrough
		default:
			requests += x.begun.Load() - x.ended.Load()
		}
	}
	requests += b.older.Load()
	if retries > requests*int64(percent)/100+budgetSpare {
		own.Add(-1)
		return false
	}
	return true
}
