package ratelimit

import (
	"math"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Slots counts the requests in flight of one subject of a limit (plans.md, section 6). The zero value has none in flight.
// It is safe for concurrent use.
type Slots struct {
	word atomic.Uint64 // requests in flight, or closedSlots
}

// closedSlots is the state of slots that a sweep has dropped.
const closedSlots = math.MaxUint64

// check returns what the slots allow if most requests may be in flight, and sets v.next.
func (s *Slots) check(most int64, v *view) finding {
	word := s.word.Load()
	v.state, v.bucket, v.params, v.wall, v.word, v.next = &s.word, nil, nil, 0, word, word+1
	switch {
	case word == closedSlots:
		return isStale
	case word >= uint64(most):
		return refuses
	default:
		v.few = uint64(most)-word < scarce
		return passes
	}
}

// peek sets v.next to the state, for a status.
func (s *Slots) peek(v *view) {
	v.params, v.wall = nil, 0
	if v.next = s.word.Load(); v.next == closedSlots {
		v.next = 0
	}
}

// release ends one request that was charged.
func (s *Slots) release() { s.word.Add(math.MaxUint64) }

// fillSlots fills the status of slots in the state word. Nothing but the end of requests makes room, so it tells no reset.
func (s *Status) fillSlots(most int64, word uint64) {
	s.Limit, s.Window, s.ResetAt, s.ResetIn = most, 0, 0, 0
	s.Remaining = most - int64(min(word, uint64(most)))
}

// slotsRetry is for how long, in nanoseconds, a caller without a slot is told to wait.
const slotsRetry = second

// SlotSet is the slots of the subjects of one limit: keys or owners. They are created on first use, and dropped by Sweep
// when no request is in flight. It is safe for concurrent use.
type SlotSet struct {
	budget *AccountBudget // what they count towards; may be nil
	shards [shards]slotShard
}

type slotShard struct {
	mu      sync.Mutex // held to change the index, not to read it
	current atomic.Pointer[index[Slots]]
	counted int64 // bytes that were counted towards the budget
	dropped bool  // by Drop
}

// slotsSize is the bytes of the slots of one subject.
const slotsSize = int64(unsafe.Sizeof(node[Slots]{}))

// NewSlotSet returns an empty set. It counts towards budget, which may be nil.
func NewSlotSet(budget *AccountBudget) *SlotSet { return &SlotSet{budget: budget} }

// Slots returns the slots of a subject, or nil if it has none and the budget has no room for them. It allocates only to
// create them.
func (s *SlotSet) Slots(subject [16]byte) *Slots {
	h := hash(&subject)
	shard := &s.shards[shardOf(h)]
	if x := shard.current.Load(); x != nil {
		if n := x.find(h, &subject); n != nil && isOpenSlots(n) {
			return &n.value
		}
	}
	return s.create(shard, h, subject)
}

// create finds or creates the slots of a subject, under the lock.
func (s *SlotSet) create(shard *slotShard, h uint64, subject [16]byte) *Slots {
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if shard.dropped {
		gone := new(Slots)
		gone.word.Store(closedSlots)
		return gone
	}
	x := shard.current.Load()
	if x == nil {
		empty := newIndex[Slots](0)
		x = &empty
	}
	n := x.find(h, &subject)
	switch {
	case n != nil && isOpenSlots(n):
		return &n.value
	case !s.budget.fits(slotsSize):
		return nil
	case n != nil || x.full():
		larger := x.with(isOpenSlots)
		x = &larger
	}
	n = &node[Slots]{key: subject}
	x.add(n)
	s.store(shard, x)
	return &n.value
}

// store makes x the index of the shard, or removes the index if x is nil. The caller holds the lock.
func (s *SlotSet) store(shard *slotShard, x *index[Slots]) {
	shard.current.Store(x)
	size := int64(0)
	if x != nil {
		size = int64(len(x.slots))*slotSize + int64(x.count)*slotsSize
	}
	s.budget.add(size - shard.counted)
	shard.counted = size
}

func isOpenSlots(n *node[Slots]) bool { return n.value.word.Load() != closedSlots }

// Sweep drops the slots of which none are used. A decision that uses dropped slots returns Stale. Call Sweep about once
// a minute.
func (s *SlotSet) Sweep() {
	for i := range s.shards {
		shard := &s.shards[i]
		shard.mu.Lock()
		if x := shard.current.Load(); x != nil {
			dropped := 0
			x.each(func(n *node[Slots]) {
				if n.value.word.CompareAndSwap(0, closedSlots) || !isOpenSlots(n) {
					dropped++
				}
			})
			switch {
			case dropped == x.count:
				s.store(shard, nil)
			case dropped > 0:
				smaller := x.with(isOpenSlots)
				s.store(shard, &smaller)
			}
		}
		shard.mu.Unlock()
	}
}

// EachLevel calls f for the subjects of which requests are in flight, in no particular order, with the status under a limit
// of most in the scope. It does not block decisions.
func (s *SlotSet) EachLevel(scope Scope, most int64, f func(subject [16]byte, s Status)) {
	for i := range s.shards {
		x := s.shards[i].current.Load()
		if x == nil {
			continue
		}
		x.each(func(n *node[Slots]) {
			if status := n.value.Status(scope, most); status.Remaining < status.Limit {
				f(n.key, status)
			}
		})
	}
}

// Status returns the status under a limit of most in the scope.
func (s *Slots) Status(scope Scope, most int64) Status {
	var v view
	s.peek(&v)
	status := Status{Scope: scope}
	status.fillSlots(most, v.next)
	return status
}

// Drop drops all slots, of a limit that is not in force any more. Requests that hold some go on, and decisions that come to
// the set from now on return Stale, so publish a configuration without the limit first.
func (s *SlotSet) Drop() {
	for i := range s.shards {
		shard := &s.shards[i]
		shard.mu.Lock()
		shard.dropped = true
		s.store(shard, nil)
		shard.mu.Unlock()
	}
}
