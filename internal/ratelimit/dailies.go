package ratelimit

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// dailyLimit is one configured daily cap, with one count for all callers or one for each
// key.
type dailyLimit struct {
	reserver *Reserver
	id       string
	capacity atomic.Int64

	one  *Daily   // the count for all callers; nil with per: key
	keys *Dailies // the counts of the keys; nil without per: key

	mu    sync.Mutex
	day   int64                   // day for which the counts are known; -1 for none
	known map[[16]byte]knownCount // counts of the keys that have no Daily

	budget  *AccountBudget // budget of the counts of keys; may be nil
	counted int64          // the bytes of these
}

// The bytes of the count of a key with its slot, and of a known count.
const (
	dailySize = int64(unsafe.Sizeof(node[Daily]{})) + 3*slotSize
	knownSize = 5 * int64(unsafe.Sizeof(knownCount{})) / 2 // a map is half full on average
)

// count adds n bytes. The caller holds mu.
func (limit *dailyLimit) count(n int64) {
	limit.counted += n
	limit.budget.add(n)
}

// countTowards sets the budget of the counts of keys, if there is none yet.
func (limit *dailyLimit) countTowards(b *AccountBudget) {
	limit.mu.Lock()
	defer limit.mu.Unlock()
	if limit.budget == nil {
		limit.budget = b
		b.add(limit.counted)
	}
}

// uncount gives back what a dropped limit has counted.
func (limit *dailyLimit) uncount() {
	limit.mu.Lock()
	defer limit.mu.Unlock()
	limit.count(-limit.counted)
	limit.budget = nil
}

// knownCount is a count as the store has it when nothing is reserved: the most requests that have
// passed, and the most that were lost in crashes among them. own and ownLost are the parts that this
// node has written.
type knownCount struct{ used, lost, own, ownLost int64 }

// Dailies is the counts of one daily cap, one for each key (per: key). It is safe for
// concurrent use.
type Dailies struct {
	limit  dailyLimit
	shards [shards]dailyShard
}

type dailyShard struct {
	mu      sync.Mutex // held to change the index, not to read it
	current atomic.Pointer[index[Daily]]
}

func newDailyLimit(l *Reserver, limitID string, perKey bool) *dailyLimit {
	if !perKey {
		limit := &dailyLimit{reserver: l, id: limitID, day: -1}
		limit.one = &Daily{limit: limit}
		return limit
	}
	d := &Dailies{limit: dailyLimit{reserver: l, id: limitID, day: -1}}
	d.limit.keys = d
	for i := range d.shards {
		empty := newIndex[Daily](0)
		d.shards[i].current.Store(&empty)
	}
	return &d.limit
}

// CountTowards makes the memory of the counts count towards a budget. Only the first call has an effect.
func (d *Dailies) CountTowards(b *AccountBudget) { d.limit.countTowards(b) }

// Daily returns the count of the key whose bucket is identified by k. It is nil if the key has no
// count of the day and the budget has no room for one. Daily allocates only to create the count.
func (d *Dailies) Daily(k [16]byte) *Daily {
	h := hash(&k)
	s := &d.shards[shardOf(h)]
	if n := s.current.Load().find(h, &k); n != nil && n.value.load() != closedDaily {
		return &n.value
	}
	return d.daily(s, h, k)
}

// OwnDailies are the counts of those keys of an account that have caps of their own, which replace the cap of the limit.
// Their memory is not counted.
type OwnDailies struct {
	*Dailies
	account *AccountBudget
}

// OfAccount returns the counts of an account. There can be one limit whose counts are divided like that.
func (d *Dailies) OfAccount(a *AccountBudget) *OwnDailies {
	if own := a.own.Load(); own != nil && own.Dailies == d {
		return own
	}
	own := &OwnDailies{d, a}
	a.own.Store(own)
	return own
}

// DailyOf does the same as Daily for a key with a cap of its own.
func (d *OwnDailies) DailyOf(k [16]byte, capacity int64) *Daily {
	one := d.Daily(k)
	if one.own.Load() != capacity && one.own.Swap(capacity) != 0 {
		d.limit.reserver.enqueue(one) // it may hold more than its new range
	}
	if one.account.Load() == nil {
		one.account.Store(d.account)
	}
	return one
}

// CountTowards says whose the count is.
func (d *Daily) CountTowards(a *AccountBudget) { d.account.Store(a) }

// owner returns whose the count is, or nil if that is not known.
func (d *Daily) owner() *AccountBudget {
	if a := d.account.Load(); a != nil {
		return a
	}
	d.limit.mu.Lock()
	defer d.limit.mu.Unlock()
	return d.limit.budget
}

// used returns how many requests of the key k have passed on the day.
func (d *Dailies) used(k [16]byte, day int64) int64 {
	h := hash(&k)
	if n := d.shards[shardOf(h)].current.Load().find(h, &k); n != nil {
		if w := n.value.load(); w != closedDaily && w.isOf(day) {
			return w.used()
		}
	}
	d.limit.mu.Lock()
	defer d.limit.mu.Unlock()
	if d.limit.day != day {
		return 0
	}
	return d.limit.known[k].used
}

// daily finds or creates the count of k, under the lock.
func (d *Dailies) daily(s *dailyShard, h uint64, k [16]byte) *Daily {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.current.Load()
	if n := x.find(h, &k); n != nil {
		return &n.value
	}
	n := &node[Daily]{key: k}
	n.value.limit, n.value.key = &d.limit, k
	if !d.limit.initialize(&n.value) {
		return nil
	}
	if x.full() {
		larger := x.with(keepAll[Daily])
		x = &larger
		x.add(n)
		s.current.Store(x)
	} else {
		x.add(n)
	}
	return &n.value
}

// initialize sets the word of a key's new count to the known count. It reports false if there is no room for
// the count.
func (limit *dailyLimit) initialize(d *Daily) bool {
	limit.mu.Lock()
	defer limit.mu.Unlock()
	known, ok := limit.known[d.key]
	if !ok && !limit.budget.fits(dailySize) {
		return false
	}
	limit.count(dailySize)
	if limit.day >= 0 {
		d.set(limit.day, known)
	}
	return true
}

// startDay makes counts the known counts of day, and sets every word to them.
func (limit *dailyLimit) startDay(day int64, counts dailyCounts) {
	limit.mu.Lock()
	limit.count(int64(len(counts.keys)-len(limit.known)) * knownSize)
	limit.day, limit.known = day, counts.keys
	limit.mu.Unlock()
	limit.each(func(d *Daily) {
		if limit.keys != nil {
			d.set(day, counts.keys[d.key])
		} else {
			d.set(day, counts.shared)
		}
	})
}

// each calls f for every count of the limit that is not closed.
func (limit *dailyLimit) each(f func(d *Daily)) {
	if limit.one != nil {
		if limit.one.load() != closedDaily {
			f(limit.one)
		}
		return
	}
	for i := range limit.keys.shards {
		s := &limit.keys.shards[i]
		s.mu.Lock()
		s.current.Load().each(func(n *node[Daily]) {
			if n.value.load() != closedDaily {
				f(&n.value)
			}
		})
		s.mu.Unlock()
	}
}

// evict drops the counts of keys that were not used since the last call and whose exact
// count is in the store, and remembers them as known. It returns the unused counts whose exact
// value is not in the store.
func (limit *dailyLimit) evict() (idle []*Daily) {
	if limit.keys == nil {
		return nil
	}
	for i := range limit.keys.shards {
		s := &limit.keys.shards[i]
		s.mu.Lock()
		x := s.current.Load()
		evicted := 0
		x.each(func(n *node[Daily]) {
			d := &n.value
			switch w := d.load(); {
			case w != d.seen:
				d.seen = w
			case w.used()-d.others != d.saved || d.savedLost != 0: // something is reserved, or a save failed
				idle = append(idle, d)
			case limit.evictOne(d, w):
				evicted++
			}
		})
		if evicted > 0 {
			smaller := x.with(func(n *node[Daily]) bool { return n.value.load() != closedDaily })
			s.current.Store(&smaller)
		}
		s.mu.Unlock()
	}
	return idle
}

// evictOne closes d, whose word is w, and remembers its count. It reports false if d has
// changed.
func (limit *dailyLimit) evictOne(d *Daily, w dailyWord) bool {
	limit.mu.Lock()
	defer limit.mu.Unlock()
	if limit.day < 0 || !d.swap(w, closedDaily) {
		return false
	}
	limit.count(-dailySize)
	if used := w.used(); used > 0 && w.isOf(limit.day) {
		if _, ok := limit.known[d.key]; !ok {
			limit.count(knownSize)
		}
		limit.known[d.key] = knownCount{used, d.lost.Load(), used - d.others, d.wasted}
	}
	return true
}
