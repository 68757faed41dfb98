package resolve

import (
	"container/heap"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/balance"
)

// limits are the bounds of a schedule.
type limits struct {
	running, accountRunning int // look-ups at a time
	extra, accountExtra     int // addresses of names beside the first of each, counted for each target that wants the name
	// Queries of an account come one in an interval, after as many at once as burst says. 0 means no bound.
	interval time.Duration
	burst    int
}

// schedule says which name is looked up when, and keeps what was found. It does no I/O and has no clock. It is not safe for
// concurrent use.
type schedule struct {
	limits   limits
	accounts map[string]*accountNames
	wanted   map[balance.Name][]Name // in order, with duplicates
	timers   timers                  // names that are neither due nor being looked up, and accounts that have sent many queries
	turns    []*accountNames         // accounts with due names that may begin a look-up, in the order of their turns
	running  int
	extra    int
	changed  map[balance.Name]struct{} // upstreams that want a name of which something else is known than before
}

// accountNames is the names of an account.
type accountNames struct {
	id      string
	names   map[Name]*entry
	due     []*entry // first come, first
	running int
	extra   int
	waits   bool          // it is in turns, or pause is in timers
	free    time.Duration // the next query may be sent then; by at most limits.burst queries in the past
	pause   entry         // in timers until free
}

// entry is a name that upstreams of an account want.
type entry struct {
	of      *accountNames
	name    Name
	owners  map[balance.Name]want
	uses    int                   // the sum of want.uses
	every   map[time.Duration]int // how many owners have a refresh
	refresh time.Duration         // the shortest of every
	state   state
	began   time.Duration // the last look-up, or never
	at      time.Duration // when it is due, while it is idle
	index   int           // in timers, while it is idle
	found   Found
}

// want is what an upstream wants of a name.
type want struct {
	uses    int // targets with the name
	refresh time.Duration
}

type state uint8

const (
	idle state = iota
	due
	running
	gone // no upstream wants it any more
)

const (
	never   = time.Duration(-1 << 62)
	forever = time.Duration(1<<63 - 1)
)

func newSchedule(l limits) *schedule {
	return &schedule{limits: l, accounts: map[string]*accountNames{}, wanted: map[balance.Name][]Name{}, changed: map[balance.Name]struct{}{}}
}

// want replaces the names that an upstream wants. New ones are due at once. What is known of those that stay is kept.
func (s *schedule) want(now time.Duration, owner balance.Name, refresh time.Duration, names []Name) {
	before := s.wanted[owner]
	if len(names) == 0 {
		if len(before) == 0 {
			return
		}
		delete(s.wanted, owner)
	} else {
		s.wanted[owner] = slices.Clone(names)
	}
	uses := map[Name]int{}
	for _, n := range before {
		uses[n] = 0
	}
	for _, n := range names {
		uses[n]++
	}
	a := s.accounts[owner.Account]
	if a == nil {
		a = &accountNames{id: owner.Account, names: map[Name]*entry{}, free: never}
		a.pause.of = a
		s.accounts[owner.Account] = a
	}
	for n, count := range uses {
		e := a.names[n]
		if e == nil {
			e = &entry{of: a, name: n, owners: map[balance.Name]want{}, every: map[time.Duration]int{}, began: never, at: now}
			a.names[n] = e
			heap.Push(&s.timers, e)
		}
		s.use(now, e, owner, want{count, refresh})
	}
	if len(a.names) == 0 && a.running == 0 {
		delete(s.accounts, a.id)
	}
}

// use sets what an upstream wants of a name.
func (s *schedule) use(now time.Duration, e *entry, owner balance.Name, w want) {
	was := e.owners[owner]
	if e.owners[owner] = w; w.uses == 0 {
		delete(e.owners, owner)
	}
	e.countRefresh(was, -1)
	e.countRefresh(w, 1)
	before := e.found
	s.addExtra(e, -1)
	if e.uses += w.uses - was.uses; e.uses == 0 {
		s.remove(e)
		return
	}
	s.addExtra(e, 1)
	s.fit(e)
	s.noteChange(e, &before)
	if e.began == never {
		return
	}
	e.at = max(now, e.began+e.refresh)
	switch {
	case e.state == idle:
		heap.Fix(&s.timers, e.index)
	case e.state == due && e.at > now:
		s.undue(e)
		e.state = idle
		heap.Push(&s.timers, e)
	}
}

// undue takes a name that is due out of the queue of its account.
func (s *schedule) undue(e *entry) {
	e.of.due = slices.DeleteFunc(e.of.due, func(d *entry) bool { return d == e })
}

// countRefresh counts the refresh of an owner, or with sign -1 does not count it any more.
func (e *entry) countRefresh(w want, sign int) {
	if w.uses == 0 {
		return
	}
	if e.every[w.refresh] += sign; e.every[w.refresh] == 0 {
		delete(e.every, w.refresh)
	}
	if sign > 0 && (len(e.every) == 1 || w.refresh < e.refresh) {
		e.refresh = w.refresh
	} else if sign < 0 && w.refresh == e.refresh && e.every[w.refresh] == 0 {
		e.refresh = forever
		for d := range e.every {
			e.refresh = min(e.refresh, d)
		}
	}
}

// remove forgets a name that no upstream wants.
func (s *schedule) remove(e *entry) {
	switch e.state {
	case idle:
		heap.Remove(&s.timers, e.index)
	case due:
		s.undue(e)
	case running, gone: // end counts it
	}
	e.state = gone
	delete(e.of.names, e.name)
}

// addExtra counts the addresses of e beside the first, or with sign -1 does not count them any more.
func (s *schedule) addExtra(e *entry, sign int) {
	n := sign * e.uses * max(0, len(e.found.Records)-1)
	s.extra += n
	e.of.extra += n
}

// fit leaves out addresses of e that exceed the bounds. What is counted is within them after that, if it was before e changed.
func (s *schedule) fit(e *entry) {
	over := max(s.extra-s.limits.extra, e.of.extra-s.limits.accountExtra)
	if over <= 0 || len(e.found.Records) <= 1 {
		return
	}
	s.addExtra(e, -1)
	n := max(1, len(e.found.Records)-(over+e.uses-1)/e.uses)
	e.found = Found{Records: slices.Clone(e.found.Records[:n]), Degraded: true}
	s.addExtra(e, 1)
}

// noteChange notes whether something else is known of e than before.
func (s *schedule) noteChange(e *entry, before *Found) {
	if before.Degraded == e.found.Degraded && slices.Equal(before.Records, e.found.Records) {
		return
	}
	for owner := range e.owners {
		s.changed[owner] = struct{}{}
	}
}

// begin returns names to look up now. end must follow for each of them.
func (s *schedule) begin(now time.Duration) (list []*entry) {
	for len(s.timers) > 0 && s.timers[0].at <= now {
		e := heap.Pop(&s.timers).(*entry)
		if e == &e.of.pause {
			e.of.waits = false
		} else {
			e.state = due
			e.of.due = append(e.of.due, e)
		}
		s.queue(now, e.of)
	}
	for s.running < s.limits.running && len(s.turns) > 0 {
		a := s.turns[0]
		s.turns, a.waits = s.turns[1:], false
		if len(a.due) == 0 { // they were removed
			continue
		}
		e := a.due[0]
		a.due = a.due[1:]
		e.state, e.began = running, now
		s.running++
		a.running++
		s.spend(now, a, 1)
		list = append(list, e)
		s.queue(now, a)
	}
	return list
}

// queue gives an account a turn if it may begin a look-up, or as soon as it may send a query.
func (s *schedule) queue(now time.Duration, a *accountNames) {
	if a.waits || len(a.due) == 0 || a.running >= s.limits.accountRunning {
		return
	}
	a.waits = true
	if a.free > now {
		a.pause.at = a.free
		heap.Push(&s.timers, &a.pause)
		return
	}
	s.turns = append(s.turns, a)
}

// spend counts queries of an account.
func (s *schedule) spend(now time.Duration, a *accountNames, queries int) {
	a.free = max(a.free, now-time.Duration(s.limits.burst)*s.limits.interval) + time.Duration(queries)*s.limits.interval
}

// end notes the result of a look-up: records, or a failure if there are none, and how many queries it took.
func (s *schedule) end(now time.Duration, e *entry, records []Record, queries int) {
	s.running--
	e.of.running--
	s.spend(now, e.of, max(0, queries-1))
	s.queue(now, e.of)
	if e.state == gone {
		if len(e.of.names) == 0 && e.of.running == 0 && s.accounts[e.of.id] == e.of {
			delete(s.accounts, e.of.id)
		}
		return
	}
	e.state, e.at = idle, max(now, e.began+e.refresh)
	heap.Push(&s.timers, e)
	before := e.found
	s.addExtra(e, -1)
	if len(records) == 0 {
		e.found.Degraded = true
	} else {
		e.found = Found{Records: records}
	}
	s.addExtra(e, 1)
	s.fit(e)
	s.noteChange(e, &before)
}

// next returns when the next name is due.
func (s *schedule) next() time.Duration {
	if len(s.timers) == 0 {
		return forever
	}
	return s.timers[0].at
}

// found returns what is known of a name.
func (s *schedule) found(account string, n Name) Found {
	if a := s.accounts[account]; a != nil {
		if e := a.names[n]; e != nil {
			return e.found
		}
	}
	return Found{}
}

// timers is a heap of entries by the time at which they are due.
type timers []*entry

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].at < t[j].at }
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}

// Push implements heap.Interface.
func (t *timers) Push(x any) {
	e := x.(*entry)
	e.index = len(*t)
	*t = append(*t, e)
}

// Pop implements heap.Interface.
func (t *timers) Pop() any {
	last := len(*t) - 1
	e := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	return e
}
