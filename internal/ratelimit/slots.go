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
	word   atomic.Uint64 // a slotWord
	shared *sharedSlots  // nil if this process counts alone
}

// A slotWord is what requests change of slots. Only with other processes there is more than the first part.
//
//	bits  0–20  requests in flight
//	bits 21–41  how many the store has granted this process
//	bits 42–61  the turn in which it has
//	bit     62  a request has begun since the keeper looked last
type slotWord uint64

const (
	closedSlots slotWord = math.MaxUint64 // the state of slots that a sweep has dropped

	flightBits = 21
	flights    = 1<<flightBits - 1
	slotTurns  = 1<<20 - 1
	begunSlot  = slotWord(1) << 62
)

func packSlots(turn uint64, granted, flying int64) slotWord {
	return slotWord(turn)<<(2*flightBits) | slotWord(granted)<<flightBits | slotWord(flying)
}

func (w slotWord) flying() int64  { return int64(w & flights) }
func (w slotWord) granted() int64 { return int64(w >> flightBits & flights) }
func (w slotWord) turn() uint64   { return uint64(w) >> (2 * flightBits) & slotTurns }

// check returns what the slots allow if most requests may be in flight, and sets v.next.
func (s *Slots) check(m *moment, most int64, v *view) finding {
	w := slotWord(s.word.Load())
	v.state, v.bucket, v.params, v.wall, v.word, v.next, v.over = &s.word, nil, nil, 0, uint64(w), uint64(w)+1, false
	flying := w.flying()
	switch {
	case w == closedSlots:
		return isStale
	case flying >= most:
		return refuses
	}
	v.few = most-flying < scarce
	if shared := s.shared; shared != nil {
		v.next |= uint64(begunSlot)
		return shared.check(m, w, most, v)
	}
	return passes
}

// charged does what follows a charge in the view.
func (s *Slots) charged(v *view) {
	if shared := s.shared; shared != nil {
		shared.charged(v)
	}
}

// peek sets v.next to the state, for a status.
func (s *Slots) peek(v *view) {
	v.params, v.wall = nil, 0
	if v.next = s.word.Load(); slotWord(v.next) == closedSlots {
		v.next = 0
	}
}

// release ends one request that was charged.
func (s *Slots) release() {
	if s.shared != nil {
		s.shared.releases()
	}
	s.word.Add(math.MaxUint64)
	if shared := s.shared; shared != nil {
		shared.released()
	}
}

// fillStatus fills the status of slots in the state word. It has no reset: only the end of a request frees a slot.
func (s *Slots) fillStatus(of *Status, most int64, word uint64) {
	of.Limit, of.Window, of.ResetAt, of.ResetIn = most, 0, 0, 0
	of.Remaining = most - slotWord(word).flying()
	if shared := s.shared; shared != nil {
		of.Remaining -= shared.others.Load()
	}
	of.Remaining = max(0, of.Remaining)
}

// slotsRetry is for how long, in nanoseconds, a caller without a slot is told to wait.
const slotsRetry = second

// SlotSet is the slots of the subjects of one limit, keys or owners, or of the limits that the keys or the routes of an account
// have of their own. They are created on first use, and dropped by Sweep when no request is in flight. It is safe for
// concurrent use.
type SlotSet struct {
	budget *AccountBudget // what they count towards; may be nil
	keeper *SlotKeeper    // nil if this process counts alone
	name   Name           // of the limit, with a keeper; without an owner if each subject has a limit of its own
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

// NewSlotSet returns an empty set of the limit with the name. If the name has no owner, each subject is the owner of another
// limit. It counts towards budget, which may be nil. The keeper is nil if this process counts alone.
func NewSlotSet(budget *AccountBudget, keeper *SlotKeeper, name Name) *SlotSet {
	return &SlotSet{budget: budget, keeper: keeper, name: name}
}

// size returns the bytes of the slots of one subject.
func (s *SlotSet) size() int64 {
	if s.keeper != nil {
		return slotsSize + sharedSlotsSize
	}
	return slotsSize
}

// Slots returns the slots of a subject, or nil if it has none and the budget has no room for them. It allocates only to
// create them.
func (s *SlotSet) Slots(subject [16]byte) *Slots {
	if found := s.Find(subject); found != nil {
		return found
	}
	return s.create(subject)
}

// Find returns the slots of a subject, or nil if there are none: then none are in use.
func (s *SlotSet) Find(subject [16]byte) *Slots {
	h := hash(&subject)
	if x := s.shards[shardOf(h)].current.Load(); x != nil {
		if n := x.find(h, &subject); n != nil && isOpenSlots(n) {
			return &n.value
		}
	}
	return nil
}

// create finds or creates the slots of a subject, under the lock.
func (s *SlotSet) create(subject [16]byte) *Slots {
	h := hash(&subject)
	shard := &s.shards[shardOf(h)]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if shard.dropped {
		gone := new(Slots)
		gone.word.Store(uint64(closedSlots))
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
	case !s.budget.fits(s.size()):
		return nil
	case n != nil || x.full():
		larger := x.with(isOpenSlots)
		x = &larger
	}
	n = &node[Slots]{key: subject}
	if s.keeper != nil {
		name := s.name
		if name.Owner == [16]byte{} {
			name.Owner = subject
		} else {
			name.Key = subject
		}
		s.keeper.Share(&n.value, &name)
	}
	x.add(n)
	s.store(shard, x)
	return &n.value
}

// store makes x the index of the shard, or removes the index if x is nil. The caller holds the lock.
func (s *SlotSet) store(shard *slotShard, x *index[Slots]) {
	shard.current.Store(x)
	size := int64(0)
	if x != nil {
		size = int64(len(x.slots))*slotSize + int64(x.count)*s.size()
	}
	s.budget.add(size - shard.counted)
	shard.counted = size
}

func isOpenSlots(n *node[Slots]) bool { return slotWord(n.value.word.Load()) != closedSlots }

// Sweep drops the slots of which none are used. A decision that uses dropped slots returns Stale. Call Sweep about once
// a minute.
func (s *SlotSet) Sweep() {
	for i := range s.shards {
		shard := &s.shards[i]
		shard.mu.Lock()
		if x := shard.current.Load(); x != nil {
			dropped := 0
			x.each(func(n *node[Slots]) {
				if n.value.word.CompareAndSwap(0, uint64(closedSlots)) || !isOpenSlots(n) {
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
	s.fillStatus(&status, most, v.next)
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
