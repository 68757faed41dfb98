package admit

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/clientip"
)

// Imported keys may be short, so an address with maxFailures failed authentications within a failureWindow cannot guess
// further: imported keys are not looked up for it (contract, edge, section 4).
const (
	maxFailures   = 60
	failureWindow = int64(time.Minute)

	failureShards = 64
	// maxFailing is the number of addresses of a shard that are counted on their own: 32,768 in all, with 16 MB. The further
	// ones of a shard count as one.
	maxFailing = 512
)

// failures counts the failed authentications of addresses, IPv6 by /64. It is safe for concurrent use.
type failures struct {
	seed   maphash.Seed // random, so that nobody knows which addresses share a shard
	shards [failureShards]failureShard
}

type failureShard struct {
	any    atomic.Bool // an address has failed
	mu     sync.RWMutex
	of     map[clientip.Group]*failureLog
	others failureLog // of the addresses for which there is no room
	swept  int64
}

// failureLog is a sliding-window log: the times of the last maxFailures failures, as a ring. They are of the monotonic
// clock in nanoseconds.
type failureLog struct {
	at     [maxFailures]int64
	oldest int // index in at, once all of it is used
	n      int
}

func newFailures() *failures { return &failures{seed: maphash.MakeSeed()} }

func (f *failures) shard(client clientip.Group) *failureShard {
	return &f.shards[maphash.Comparable(f.seed, client)%failureShards]
}

// add counts a failed authentication of an address at the time now, by the monotonic clock in nanoseconds.
func (f *failures) add(client clientip.Group, now int64) {
	s := f.shard(client)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log(client, now).add(now)
	s.any.Store(true)
}

// tooMany reports whether an address has had maxFailures failures within the last failureWindow. It does not allocate.
func (f *failures) tooMany(client clientip.Group, now int64) bool {
	s := f.shard(client)
	if !s.any.Load() {
		return false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if l := s.of[client]; l != nil {
		return l.full(now)
	}
	return s.others.full(now)
}

// log returns the log for a failure of an address: its own or, if there is no room, that of the others. The caller holds
// the lock.
func (s *failureShard) log(client clientip.Group, now int64) *failureLog {
	if l := s.of[client]; l != nil {
		return l
	}
	if len(s.of) >= maxFailing && now-s.swept >= int64(time.Second) { // at most so often, since it reads all of them
		s.swept = now
		for other, l := range s.of {
			if l.over(now) {
				delete(s.of, other)
			}
		}
	}
	if len(s.of) >= maxFailing {
		return &s.others
	}
	if s.of == nil {
		s.of = map[clientip.Group]*failureLog{}
	}
	l := &failureLog{}
	s.of[client] = l
	return l
}

func (l *failureLog) add(now int64) {
	if l.n < maxFailures {
		l.at[l.n] = now
		l.n++
		return
	}
	l.at[l.oldest] = now
	l.oldest = (l.oldest + 1) % maxFailures
}

// full reports whether the last maxFailures failures were within the last failureWindow.
func (l *failureLog) full(now int64) bool {
	return l.n == maxFailures && now-l.at[l.oldest] < failureWindow
}

// over reports whether the last failure was not within the last failureWindow.
func (l *failureLog) over(now int64) bool {
	last := l.n - 1
	if l.n == maxFailures {
		last = (l.oldest + maxFailures - 1) % maxFailures
	}
	return last < 0 || now-l.at[last] >= failureWindow
}
