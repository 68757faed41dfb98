package ratelimit

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// sharedSlots is what a process knows of slots that other processes have, too.
//
// The process claims in the store how many requests it may have in flight, ahead of use as long as many are left. Then
// requests begin and end without the store.
type sharedSlots struct {
	slots   *Slots
	keeper  *SlotKeeper
	account string
	name    string // in the store

	most    atomic.Int64 // of the request that has asked last
	under   atomic.Int64 // the most for which the store has granted
	others  atomic.Int64 // what the others have, as far as is known
	low     atomic.Int64 // when as many are not in use, more are claimed; less than 0 if none are claimed ahead
	fullAt  atomic.Int64 // SlotClaim.FullAt, in Unix microseconds
	claims  atomic.Int64 // how many were made
	known   atomic.Int64 // how many of these were made until the last that was answered
	at      atomic.Int64 // when that was, by the store's clock in Unix microseconds
	tight   atomic.Bool  // few are left: what is not in use is given back at once
	waiting atomic.Int64 // requests in wait
	wants   atomic.Bool  // more are to be claimed ahead
	asked   atomic.Bool  // others need what is not in use
	ended   atomic.Bool  // a request has ended since the keeper looked last
	alone   atomic.Bool  // with SlotKeeperConfig.Serve: the store has not answered in time
	queued  atomic.Bool  // it is in the keeper's queue
	next    *sharedSlots // in the queue

	// Used only by the keeper's goroutine.
	part    int64     // its number; 0 before the first claim
	saved   int64     // what the store has granted
	unsaved bool      // saved is not known
	inUse   time.Time // SlotClaim.FullSince
	newly   bool      // the present claim is the first that finds all in use
	told    bool      // the present claim answers others
	again   bool      // because the one before was newly
	lacked  time.Time // when the store had less than was needed; zero if it had enough
	pause   time.Duration
	quiet   int   // ticks since a request has begun
	surplus int   // ticks in which more were idle than are claimed ahead
	spare   int64 // how many that are not in use are kept; less than 0 for all
	idle    bool  // the keeper looks at it soon
}

// sharedSlotsSize is the bytes of shared slots, with their name.
const sharedSlotsSize = int64(unsafe.Sizeof(sharedSlots{})) + 128

const (
	// slotWait is how long a request waits for slots that other processes have.
	slotWait = 500 * time.Millisecond
	// firstPause and longestPause are between the claims of a request that waits.
	firstPause, longestPause = 4 * time.Millisecond, 40 * time.Millisecond
)

// check returns what the slots in the state w allow, and sets v.over. Fewer than most requests are in flight.
func (s *sharedSlots) check(m *moment, w slotWord, most int64, v *view) finding {
	switch {
	case s.has(w, most):
		v.few, v.over = true, s.keeper.hasLapsed() // few, because the keeper may take back any number before the charge
		return passes
	case s.isAlone():
		s.ask(most) // for the time when the store is back
		v.over = true
		return passes
	case m.full == s:
		return refuses
	default:
		return mustReserve
	}
}

// has reports whether the process may have one more request in flight.
func (s *sharedSlots) has(w slotWord, most int64) bool {
	return w.flying() < w.granted() && w.turn() == s.keeper.turn.Load() && most >= s.under.Load()
}

// isAlone reports whether this process counts alone, with SlotKeeperConfig.Serve.
func (s *sharedSlots) isAlone() bool {
	return s.keeper.cfg.Serve && (s.alone.Load() || s.keeper.lost.Load())
}

// setAlone says whether this process counts alone because the store has not answered in time.
func (s *sharedSlots) setAlone(alone bool) {
	switch {
	case s.alone.Load() == alone || s.alone.Swap(alone) == alone:
	case alone:
		s.keeper.alone.Add(1)
	default:
		s.keeper.alone.Add(-1)
	}
}

// charged does what follows a charge in the view.
func (s *sharedSlots) charged(v *view) {
	w := slotWord(v.next)
	if v.over {
		s.keeper.unconfirmed.Add(1)
		s.keeper.enqueue(s) // it is claimed once the store is back
	}
	switch idle := w.granted() - w.flying(); {
	case idle < 0: // in none that was granted
	case idle == s.low.Load() || idle < s.low.Load() && !s.wants.Load():
		s.wants.Store(true)
		s.keeper.enqueue(s)
	}
}

// releases does what comes before the end of a request.
func (s *sharedSlots) releases() {
	if !s.ended.Load() {
		s.ended.Store(true)
	}
}

// released does what follows the end of a request.
func (s *sharedSlots) released() {
	switch {
	case !s.tight.Load():
	case s.waiting.Load() > 0:
		s.keeper.enqueue(s) // the round lets them look
	default:
		s.keeper.enqueueLater(s)
	}
}

// ask notes how many requests may be in flight.
func (s *sharedSlots) ask(most int64) {
	if s.most.Load() != most {
		s.most.Store(most)
	}
}

// lower makes the slots those of the turn, and takes away all that are not in use except keep of them. It returns how many
// requests may now be in flight, and how many are. open is false if the slots are closed.
func (s *sharedSlots) lower(turn uint64, keep int64) (granted, flying int64, open bool) {
	for {
		w := slotWord(s.slots.word.Load())
		if w == closedSlots {
			return 0, 0, false
		}
		flying = w.flying()
		if granted = min(w.granted(), flying+keep); w.turn() != turn {
			granted = 0
		}
		if next := packSlots(turn, granted, flying) | w&begunSlot; s.slots.word.CompareAndSwap(uint64(w), uint64(next)) {
			return granted, flying, true
		}
	}
}

// raise sets how many the process may have in flight.
func (s *sharedSlots) raise(granted int64) {
	for {
		w := slotWord(s.slots.word.Load())
		if w == closedSlots {
			return
		}
		if next := packSlots(w.turn(), granted, w.flying()) | w&begunSlot; s.slots.word.CompareAndSwap(uint64(w), uint64(next)) {
			return
		}
	}
}

// prepare returns the claim that is needed; ok is false if none is.
func (s *sharedSlots) prepare(turn uint64, nodes int64) (c SlotClaim, ok bool) {
	k := s.keeper
	asked, wants, waiting, most := s.asked.Swap(false), s.wants.Swap(false), s.waiting.Load(), s.most.Load()
	keep := int64(flights)
	switch {
	case k.ending:
		keep, waiting, wants = 0, 0, false
	case most < s.under.Load():
		keep = 0
	case asked || s.tight.Load():
		keep = waiting
	case s.spare >= 0:
		keep = max(s.spare, waiting)
	}
	s.spare = -1
	ended := s.ended.Swap(false) // before what is in flight is read
	granted, flying, open := s.lower(turn, keep)
	if !open { // requests look for others
		waiting, wants = 0, false
	}
	held := max(granted, flying)
	if k.ending { // nothing is in flight any more that counts
		held, flying = 0, 0
	}
	if flying < held || ended {
		s.inUse = time.Time{}
	}
	s.newly, s.told = flying == held && s.inUse.IsZero(), asked
	c = SlotClaim{Name: s.name, Part: s.part, Most: most, Held: held, FullSince: s.inUse, Seen: k.seen, Few: 2 * nodes}
	if c.Need = max(0, min(waiting-(held-flying), most-held)); c.Need > 0 && !s.lacked.IsZero() && time.Since(s.lacked) < s.pause {
		c.Need = 0 // the requests that wait ask again
	}
	if block := max(1, most/(4*nodes)); wants && !asked && held-flying < block || c.Need > 0 {
		c.Ahead = max(0, block-max(0, held-flying-waiting))
	}
	if nodes == 1 {
		c.Few = 0
	}
	return c, c.Need > 0 || c.Ahead > 0 || asked && held > 0 || held != s.saved || s.unsaved
}

// apply makes the answer to a claim what the process has.
func (s *sharedSlots) apply(c *SlotClaim, nodes int64) {
	s.saved, s.unsaved = c.Granted, false
	s.under.Store(c.Most)
	s.others.Store(c.Others)
	s.tight.Store(c.Left() < c.Few)
	s.low.Store(max(1, c.Most/(4*nodes))/2 - 1)
	if s.tight.Load() {
		s.low.Store(-1)
	}
	s.raise(c.Granted)
	again := s.again
	s.again = false
	switch {
	case c.Granted > c.Held:
		s.inUse = time.Time{}
	case s.newly:
		s.inUse = c.At // if nothing ends meanwhile, which the next claim finds out
		if s.told && !again {
			s.again = true
			s.asked.Store(true)
			s.keeper.enqueue(s)
		}
	}
	s.at.Store(c.At.UnixMicro())
	s.known.Store(s.claims.Load())
	switch {
	case !c.Lacks():
		s.lacked = time.Time{}
		return
	case s.lacked.IsZero():
		s.pause = firstPause / 2
	default:
		s.pause = min(2*s.pause, longestPause/2)
	}
	s.lacked = time.Now()
	if !c.FullAt.IsZero() {
		s.fullAt.Store(c.FullAt.UnixMicro())
	}
}

// tick looks at the slots now and then. It reports whether they are neither used nor stored: then they are as before the
// first claim.
func (s *sharedSlots) tick(nodes int64) (unused bool) {
	w := slotWord(s.slots.word.Load())
	if w == closedSlots {
		if s.saved == 0 && !s.unsaved {
			return true
		}
		s.keeper.enqueue(s)
		return false
	}
	idle, block := w.granted()-w.flying(), max(1, s.most.Load()/(4*nodes))
	if s.waiting.Load() == 0 {
		s.lacked = time.Time{}
	}
	s.quiet++
	if w&begunSlot != 0 {
		s.quiet = 0
		s.slots.word.And(^uint64(begunSlot)) // nobody closes it meanwhile
	}
	if s.surplus++; idle <= 2*block {
		s.surplus = 0
	}
	switch {
	case s.saved == 0 && !s.unsaved && w.flying() == 0 && w.granted() == 0 && s.waiting.Load() == 0 && !s.queued.Load():
		return s.slots.word.CompareAndSwap(uint64(w), 0)
	case s.quiet > idleTicks && idle > 0:
		s.spare = 0
		s.keeper.enqueue(s)
	case s.surplus > idleTicks:
		s.spare = block
		s.keeper.enqueue(s)
	case s.saved > max(w.flying(), w.granted()):
		s.keeper.enqueue(s)
	}
	return false
}
