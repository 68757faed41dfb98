package token

import (
	"sync"
	"time"

	"github.com/keygate/keygate/internal/clientip"
)

// The bounds of failed checks of tokens (docs/limits.md).
const (
	MaxFailures   = 20 // of one address in FailurePeriod
	FailurePeriod = 10 * time.Second
	maxAddresses  = 32_768 // whose failures are counted
)

const failureShards = 16

// Failures counts failed checks of tokens by address, so that an address that sends tokens that fail is refused before
// any work is done for it. It is a sliding window: MaxFailures within FailurePeriod. When there are too many addresses,
// those whose last failure is the oldest are forgotten. It is safe for concurrent use.
type Failures struct {
	start  time.Time
	shards [failureShards]failureShard
}

type failureShard struct {
	mu        sync.Mutex
	addresses map[clientip.Group]*window
	first     *window // in the order of their last failures; nil for none
	last      *window
}

// window is the times of the latest failures of an address, in a ring.
type window struct {
	address    clientip.Group
	times      [MaxFailures]time.Duration // since the start
	count      int                        // at most MaxFailures
	next       int                        // index of the next one
	newer, old *window
}

// NewFailures returns a count that begins now.
func NewFailures(now time.Time) *Failures {
	f := &Failures{start: now}
	for i := range f.shards {
		f.shards[i].addresses = map[clientip.Group]*window{}
	}
	return f
}

func (f *Failures) shard(g clientip.Group) *failureShard {
	sum := uint8(0)
	for _, b := range g {
		sum = sum*31 + b
	}
	return &f.shards[sum%failureShards]
}

// RefusedUntil returns until when an address has too many failures, or the zero time if it has not.
func (f *Failures) RefusedUntil(g clientip.Group, now time.Time) time.Time {
	s := f.shard(g)
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.addresses[g]
	if w == nil || w.count < MaxFailures {
		return time.Time{}
	}
	// The ring is full, so the next one to be overwritten is the oldest.
	if end := f.start.Add(w.times[w.next] + FailurePeriod); now.Before(end) {
		return end
	}
	return time.Time{}
}

// Add counts a failure of an address.
func (f *Failures) Add(g clientip.Group, now time.Time) {
	s := f.shard(g)
	s.mu.Lock()
	defer s.mu.Unlock()
	at := now.Sub(f.start)
	s.dropUntil(at - FailurePeriod)
	w := s.addresses[g]
	if w == nil {
		if len(s.addresses) >= maxAddresses/failureShards {
			s.drop(s.first)
		}
		w = &window{address: g}
		s.addresses[g] = w
	} else {
		s.unlink(w)
	}
	w.times[w.next] = at
	w.next = (w.next + 1) % MaxFailures
	w.count = min(w.count+1, MaxFailures)
	s.append(w)
}

// dropUntil forgets the addresses whose last failure was at the time or before.
func (s *failureShard) dropUntil(at time.Duration) {
	for s.first != nil && s.first.times[(s.first.next+MaxFailures-1)%MaxFailures] <= at {
		s.drop(s.first)
	}
}

func (s *failureShard) drop(w *window) {
	s.unlink(w)
	delete(s.addresses, w.address)
}

func (s *failureShard) unlink(w *window) {
	if w.old == nil {
		s.first = w.newer
	} else {
		w.old.newer = w.newer
	}
	if w.newer == nil {
		s.last = w.old
	} else {
		w.newer.old = w.old
	}
	w.old, w.newer = nil, nil
}

func (s *failureShard) append(w *window) {
	w.old, s.last = s.last, w
	if w.old == nil {
		s.first = w
	} else {
		w.old.newer = w
	}
}
