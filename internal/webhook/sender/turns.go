package sender

import (
	"container/heap"
	"crypto/rand"
	"slices"
	"sort"
	"time"
)

// Bounds of a claim. They keep claims short, because a delivery that has just become due waits for the claim under way.
const (
	maxClaim = 512
	maxWants = 128
)

// wanted is a claim under way. The slots and leases that it may need are taken until it has
// returned.
type wanted struct {
	Claim
	claimant string
	of       []source
	total    int // of the limits
}

// source is the endpoint of a want.
type source struct {
	*endpoint
	from class // when the claim was made
	due  due   // what was expected to be due
}

// listLocked lets e wait for a claim if it wants one.
func (d *dispatcher) listLocked(e *endpoint, now time.Time) {
	if e.listed || d.stopped || !e.wantsClaim(now) {
		return
	}
	e.listed = true
	t, c := e.tenant, e.class
	at := len(t.waiting[c])
	if c != quick {
		at = sort.Search(at, func(i int) bool { return t.waiting[c][i].due.since.After(e.due.since) })
	}
	t.waiting[c] = slices.Insert(t.waiting[c], at, e)
	if !t.inTurn[c] {
		t.inTurn[c] = true
		d.pools[c].turn = append(d.pools[c].turn, t)
	}
}

// unlistLocked ends e's wait for a claim in its earlier class. The account keeps its turn there.
func (d *dispatcher) unlistLocked(e *endpoint, c class) {
	if i := slices.Index(e.tenant.waiting[c], e); i >= 0 {
		e.tenant.waiting[c] = slices.Delete(e.tenant.waiting[c], i, i+1)
		e.listed = false
	}
}

// askIfWaitingLocked asks for a claim if an endpoint waits for one.
func (d *dispatcher) askIfWaitingLocked() {
	for c := range d.pools {
		if len(d.pools[c].turn) > 0 {
			d.wake.Notify()
			return
		}
	}
}

// claim returns the next claim to make. It wants nothing if there is nothing to claim, or no room.
// Each claim is followed by a call of claimed.
func (d *dispatcher) claim() *wanted {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	clear(d.recalled)
	d.resumeLocked(now)
	claimant, ok := d.claimant.now()
	w := &wanted{claimant: claimant, Claim: Claim{Now: now, Token: TokenOf(claimant, rand.Text()), Until: now.Add(leaseTime)}}
	if d.stopped || !ok {
		return w
	}
	for _, c := range [...]class{quick, untried, unproven, hanging} {
		d.chooseLocked(c, w)
	}
	return w
}

// chooseLocked adds endpoints of a class to a claim: one of each account in turn, until no account
// has one or may take more.
func (d *dispatcher) chooseLocked(c class, w *wanted) {
	p := &d.pools[c]
	for blocked := 0; blocked < len(p.turn) && len(w.Wants) < maxWants && w.total < maxClaim; {
		t := p.turn[0]
		p.turn[0], p.turn = nil, p.turn[1:]
		n := min(room(maxHeld, d.held, t.held), maxClaim-w.total)
		if c != quick {
			n = min(n, (max(0, d.roomLocked(t, c))+1)/2) // for one endpoint
		}
		switch {
		case n == 0:
			blocked++
		case d.chooseOfLocked(t, c, n, w):
			blocked = 0
		}
		if t.inTurn[c] = len(t.waiting[c]) > 0; t.inTurn[c] {
			p.turn = append(p.turn, t)
		}
	}
}

// chooseOfLocked adds the first waiting endpoint of an account that still wants a claim, with up
// to n deliveries. It reports whether there was such an endpoint.
func (d *dispatcher) chooseOfLocked(t *tenant, c class, n int, w *wanted) bool {
	for len(t.waiting[c]) > 0 {
		e := t.waiting[c][0]
		t.waiting[c][0], t.waiting[c] = nil, t.waiting[c][1:]
		e.listed = false
		if e.class != c {
			d.listLocked(e, w.Now)
			continue
		}
		allowed, skipNew := e.allowance(w.Now)
		if allowed <= 0 {
			continue
		}
		allowed = min(allowed, n)
		w.Wants = append(w.Wants, Want{WebhookID: e.webhookID, Limit: allowed, SkipNew: skipNew})
		w.of = append(w.of, source{e, c, e.takeDue(skipNew)})
		w.total += allowed
		d.reserveLocked(e, c, allowed)
		return true
	}
	return false
}

// reserveLocked takes what n deliveries of a claim need, or gives it back if n is negative.
func (d *dispatcher) reserveLocked(e *endpoint, c class, n int) {
	d.holdLocked(e, n)
	if c != quick {
		d.takeLocked(e, c, n)
	}
}

// claimed takes the jobs that a claim returned, or the error with which it failed, and starts
// those that may start. It reports whether the next claim should follow at once.
func (d *dispatcher) claimed(w *wanted, jobs []Job, err error) (again bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	index, tasks := make(map[string]int, len(w.of)), make([][]*task, len(w.of))
	for i, e := range w.of {
		index[e.webhookID] = i
		d.reserveLocked(e.endpoint, e.from, -w.Wants[i].Limit)
	}
	for _, j := range jobs {
		i := index[j.Endpoint.WebhookID]
		tasks[i] = append(tasks[i], &task{Job: j, endpoint: w.of[i].endpoint, until: w.Until, claimant: w.claimant})
	}
	for i, e := range w.of {
		slices.SortFunc(tasks[i], func(a, b *task) int { return a.DueAt.Compare(b.DueAt) })
		if n := len(tasks[i]); n > 0 {
			e.due.since = tasks[i][n-1].DueAt
		}
		if err != nil || len(tasks[i]) > 0 {
			e.endpoint.add(e.due) // there may be more
		}
		d.takeTasksLocked(w, i, tasks[i])
		d.listLocked(e.endpoint, w.Now)
	}
	for c := range d.pools {
		again = again || len(d.pools[c].turn) > 0
	}
	return again && len(w.Wants) > 0
}

// takeTasksLocked takes the tasks that a claim returned for its i-th want, beginning with the task that has
// been due longest.
func (d *dispatcher) takeTasksLocked(w *wanted, i int, tasks []*task) {
	e, from, skipNew := w.of[i].endpoint, w.of[i].from, w.Wants[i].SkipNew
	d.holdLocked(e, len(tasks))
	e.claimed(tasks, w.Wants[i].Limit, skipNew, w.Now)
	_, changed := d.recalled[e.webhookID]
	switch {
	case d.stopped || changed || e.gone:
		d.releaseLocked(tasks...)
	case from != quick:
		for _, t := range tasks {
			if e.paused(w.Now) && !skipNew && t.postponed() { // the breaker opened meanwhile
				d.stats.postponed.Add(1)
				d.releaseLocked(t)
			} else {
				d.startLocked(t, from)
			}
		}
	case e.class != quick: // not any more
		d.releaseLocked(tasks...)
	default:
		e.queue = append(e.queue, tasks...)
		if !skipNew && e.paused(w.Now) {
			d.postponeLocked(e)
		}
		d.sendLocked(e)
	}
}

// resumption is the end of a pause of an endpoint.
type resumption struct {
	at time.Time
	of *endpoint
}

// resumptions is a heap of the ends of pauses, the earliest first. An endpoint that has succeeded
// meanwhile, or paused again, does not leave it early.
type resumptions []resumption

// Len implements heap.Interface.
func (h resumptions) Len() int { return len(h) }

// Less implements heap.Interface.
func (h resumptions) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

// Swap implements heap.Interface.
func (h resumptions) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *resumptions) Push(x any) { *h = append(*h, x.(resumption)) }

// Pop implements heap.Interface.
func (h *resumptions) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = resumption{}
	*h = old[:len(old)-1]
	return last
}

// resumeLocked lets the endpoints whose pauses have ended wait for a claim.
func (d *dispatcher) resumeLocked(now time.Time) {
	for len(d.paused) > 0 && !d.paused[0].at.After(now) {
		d.listLocked(heap.Pop(&d.paused).(resumption).of, now)
	}
}

// nextWork returns how long to wait for the next look or the end of a pause.
func (d *dispatcher) nextWork() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.lookAt
	if len(d.paused) > 0 && d.paused[0].at.Before(next) {
		next = d.paused[0].at
	}
	return max(0, next.Sub(d.now()))
}

// dueToLook reports whether to look for due deliveries now, and if so, sets the time of the next look.
func (d *dispatcher) dueToLook() (now time.Time, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now = d.now()
	if now.Before(d.lookAt) && d.lookAt.Sub(now) <= d.poll { // otherwise the clock was set back
		return now, false
	}
	d.lookAt = now.Add(d.poll)
	return now, true
}

// lookBy makes the next look happen at the given time or earlier.
func (d *dispatcher) lookBy(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at.Before(d.lookAt) {
		d.lookAt = at
	}
}
