package health

import (
	"container/heap"
	"container/list"
	"time"
)

// Bounds of checks on a node (targets.md, section 1).
const (
	accountPace = time.Second / 100 // between checks of one account
	addressPace = time.Second / 10  // between checks of one address, of all accounts

	// totalPace is the time between two checks on average, so that those of a node that has just started are spread.
	totalPace = time.Second / 4000
	// maxBehind is how much time without checks is made up for.
	maxBehind = 10 * time.Millisecond
	// maxRunning is how many checks run at once. An account may have as many as are free: so others always find some.
	maxRunning = 1024
)

// schedule decides when checks begin. It is pure: times are passed to it, as durations since an arbitrary start. It is not safe for
// concurrent use.
//
//	       due            turn of its account, which keeps its pace            of its address
//	idle ───────► ready ────────────────────────────────────────────► running
//	  ▲             ▲ │ pace of the address                              │
//	  │             │ ▼                                                  │
//	  │           waiting at the address                                 │
//	  └──────────────────────────────────────────────────────────────────┘ ended
//
// Accounts take turns (round robin), in all and at each address, and those of an account come in the order in which they are due.
type schedule struct {
	timers    timers
	ready     turns
	accounts  map[string]*account
	addresses map[string]*address
	next      time.Duration // when the next check may begin, of any account
	running   int
	held      []*account // that have as many checks running as they may
	jitter    func(time.Duration) time.Duration
}

// probe is what is checked again and again: an address with certain settings.
type probe struct {
	timer    timer
	account  *account
	address  *address
	interval time.Duration
	started  time.Duration
	running  bool
	gone     bool
	woken    bool // it has waited at its address, and it is its turn there

	in *fifo // in which it waits, or nil
	at *list.Element

	check *check
}

// account is a tenant with checks.
type account struct {
	timer   timer
	name    string
	next    time.Duration // when its next check may begin
	probes  int
	running int
}

// address is a host and port with checks, of one or more accounts. The host is a name until it is known where it leads.
type address struct {
	timer   timer
	name    string
	next    time.Duration
	probes  int
	waiting turns
	moved   bool // a check has been moved here, and put next off, since the last one began
}

// newSchedule returns an empty schedule. jitter varies an interval.
func newSchedule(jitter func(time.Duration) time.Duration) *schedule {
	return &schedule{accounts: map[string]*account{}, addresses: map[string]*address{}, jitter: jitter}
}

// add adds a probe of an account and address, whose first check is due at once.
func (s *schedule) add(p *probe, accountName, addressName string, interval time.Duration) {
	a := s.accounts[accountName]
	if a == nil {
		a = &account{name: accountName}
		s.accounts[accountName] = a
	}
	a.probes++
	p.account, p.interval = a, interval
	s.put(p, addressName)
	s.ready.push(p)
}

// put makes a probe one of an address.
func (s *schedule) put(p *probe, addressName string) {
	at := s.addresses[addressName]
	if at == nil {
		at = &address{name: addressName}
		s.addresses[addressName] = at
	}
	at.probes++
	p.address = at
}

// remove removes a probe. A check that runs goes on until ended.
func (s *schedule) remove(p *probe) {
	if p.gone {
		return
	}
	p.gone = true
	s.timers.stop(&p.timer)
	if p.in != nil {
		p.in.remove(p)
	}
	if !p.running {
		s.forget(p)
	}
}

// forget forgets a probe that is gone. Its account and address are forgotten with it if they have no others, once their pace
// allows another check.
func (s *schedule) forget(p *probe) {
	if p.account.probes--; p.account.probes == 0 {
		s.start(&p.account.timer, p.account.next, timer{account: p.account})
	}
	s.leave(p.address)
}

// leave forgets an address that has lost a probe, as forget does.
func (s *schedule) leave(at *address) {
	if at.probes--; at.probes == 0 {
		s.start(&at.timer, at.next, timer{address: at})
	}
}

// move makes a probe, whose check runs, one of the address to which its name has led: what follows keeps the pace of that, whatever
// other names lead there. It puts the next check of the address off only once: otherwise names that are led there again and again
// would keep those that wait from ever having their turn.
func (s *schedule) move(p *probe, addressName string) {
	if p.gone || p.address.name == addressName {
		return
	}
	s.leave(p.address)
	s.put(p, addressName)
	if at := p.address; !at.moved {
		at.next, at.moved = max(at.next, p.started+addressPace), true
	}
}

// due appends the probes whose checks begin now to dst. Each must be ended.
func (s *schedule) due(now time.Duration, dst []*probe) []*probe {
	for len(s.timers) > 0 && s.timers[0].when <= now {
		t := s.timers[0]
		s.timers.stop(t)
		switch {
		case t.probe != nil:
			s.ready.push(t.probe)
		case t.account != nil:
			if s.ready.unpark(t.account); t.account.probes == 0 {
				delete(s.accounts, t.account.name)
			}
		default:
			s.wake(now, t.address)
		}
	}
	for s.running < maxRunning && now >= s.next {
		p := s.ready.pop()
		if p == nil {
			break
		}
		if s.begin(now, p) {
			dst = append(dst, p)
		}
	}
	return dst
}

// wake lets a probe that waits at an address take its turn if the pace of the address allows it.
func (s *schedule) wake(now time.Duration, at *address) {
	switch {
	case at.probes == 0:
		delete(s.addresses, at.name)
		return
	case at.waiting.n == 0:
		return
	case now < at.next: // one that was late has begun meanwhile
		s.start(&at.timer, at.next, timer{address: at})
		return
	}
	p := at.waiting.pop()
	p.woken = true
	s.ready.pushFirst(p)
	if at.waiting.n > 0 {
		s.start(&at.timer, now+addressPace, timer{address: at})
	}
}

// begin begins the check of a probe, unless its account or address must wait.
func (s *schedule) begin(now time.Duration, p *probe) bool {
	a, at := p.account, p.address
	switch {
	case a.running >= maxRunning-s.running:
		s.ready.park(p)
		s.held = append(s.held, a)
		return false
	case now < a.next:
		s.ready.park(p)
		s.start(&a.timer, a.next, timer{account: a})
		return false
	case now < at.next, at.waiting.n > 0 && !p.woken:
		if p.woken { // it keeps its turn
			p.woken = false
			at.waiting.pushFirst(p)
		} else {
			at.waiting.push(p)
		}
		if !at.timer.active() {
			s.start(&at.timer, at.next, timer{address: at})
		}
		return false
	}
	s.next = max(s.next, now-maxBehind) + totalPace
	a.next, at.next, at.moved = now+accountPace, now+addressPace, false
	p.started, p.running, p.woken = now, true, false
	a.running++
	s.running++
	return true
}

// ended notes that the check of a probe has ended.
func (s *schedule) ended(now time.Duration, p *probe) {
	p.running = false
	p.account.running--
	s.running--
	for _, a := range s.held {
		s.ready.unpark(a)
	}
	s.held = s.held[:0]
	if p.gone {
		s.forget(p)
		return
	}
	s.start(&p.timer, max(now, p.started+s.jitter(p.interval)), timer{probe: p})
}

// wakeAt returns when due is to be called next. never is set if that is only after ended, or add.
func (s *schedule) wakeAt() (at time.Duration, never bool) {
	switch {
	case s.running < maxRunning && s.ready.canPop():
		at = s.next
		if len(s.timers) > 0 {
			at = min(at, s.timers[0].when)
		}
		return at, false
	case len(s.timers) > 0:
		return s.timers[0].when, false
	}
	return 0, true
}

// turns is a queue in which accounts take turns: a FIFO queue for each of them, and a ring of those that have something and are not
// parked.
type turns struct {
	of   map[*account]*fifo
	ring list.List // of *fifo
	n    int       // probes
}

// fifo is the probes of an account in turns.
type fifo struct {
	owner   *turns
	account *account
	probes  list.List
	turn    *list.Element // in the ring, or nil
	parked  bool          // it is not in the ring until unpark
}

func (q *turns) fifo(a *account) *fifo {
	f := q.of[a]
	if f == nil {
		if q.of == nil {
			q.of = map[*account]*fifo{}
		}
		f = &fifo{owner: q, account: a}
		q.of[a] = f
	}
	return f
}

func (q *turns) push(p *probe) {
	f := q.fifo(p.account)
	p.in, p.at = f, f.probes.PushBack(p)
	q.n++
	q.rejoin(f)
}

// pushFirst puts a probe before the others of its account.
func (q *turns) pushFirst(p *probe) {
	f := q.fifo(p.account)
	p.in, p.at = f, f.probes.PushFront(p)
	q.n++
	q.rejoin(f)
}

// park puts a probe before the others of its account, and lets the account take no turns until unpark.
func (q *turns) park(p *probe) {
	q.pushFirst(p)
	if f := p.in; f.turn != nil {
		q.ring.Remove(f.turn)
		f.turn = nil
	}
	p.in.parked = true
}

func (q *turns) unpark(a *account) {
	if f := q.of[a]; f != nil {
		f.parked = false
		q.rejoin(f)
	}
}

// rejoin puts the queue of an account behind the others, unless it is among them, empty or parked.
func (q *turns) rejoin(f *fifo) {
	if f.turn == nil && f.probes.Len() > 0 && !f.parked {
		f.turn = q.ring.PushBack(f)
	}
}

func (q *turns) canPop() bool { return q.ring.Len() > 0 }

// pop returns the next probe, or nil.
func (q *turns) pop() *probe {
	first := q.ring.Front()
	if first == nil {
		return nil
	}
	f := first.Value.(*fifo)
	p := f.probes.Front().Value.(*probe)
	f.remove(p)
	if f.turn != nil {
		q.ring.MoveToBack(f.turn)
	}
	return p
}

// remove takes a probe out of the queue.
func (f *fifo) remove(p *probe) {
	f.probes.Remove(p.at)
	p.in, p.at = nil, nil
	f.owner.n--
	if f.probes.Len() > 0 {
		return
	}
	if f.turn != nil {
		f.owner.ring.Remove(f.turn)
		f.turn = nil
	}
	delete(f.owner.of, f.account)
}

// timer is when something of a probe, an account or an address is due: exactly one of these is set.
type timer struct {
	when    time.Duration
	index   int // in timers, plus 1; 0 if it is in none
	probe   *probe
	account *account
	address *address
}

func (t *timer) active() bool { return t.index > 0 }

// start starts a timer, whose owner is that of what.
func (s *schedule) start(t *timer, when time.Duration, of timer) {
	s.timers.stop(t)
	*t = of
	t.when = when
	heap.Push(&s.timers, t)
}

// timers is a heap.
type timers []*timer

func (h *timers) stop(t *timer) {
	if t.active() {
		heap.Remove(h, t.index-1)
	}
}

// Len implements heap.Interface, as the following do.
func (h timers) Len() int           { return len(h) }
func (h timers) Less(i, j int) bool { return h[i].when < h[j].when }
func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

// Push appends a *timer.
func (h *timers) Push(x any) {
	t := x.(*timer)
	*h = append(*h, t)
	t.index = len(*h)
}

// Pop removes the last one.
func (h *timers) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.index = 0
	return t
}
