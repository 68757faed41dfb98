package sender

import (
	"cmp"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/webhook"
)

// Bounds of a sender. A delivery in flight costs up to about 64 KiB, mostly for its
// connection; a held delivery costs its payload and about 1 KiB.
const (
	// maxInFlight is the default of Config.MaxInFlight.
	maxInFlight = 2048
	// maxHeld is how many deliveries are leased at a time.
	maxHeld = 8192
	// An endpoint gets at most one in flightShare of the free slots in flight, and one
	// in claimShare of the free leases. The fewer are free, the fewer an endpoint gets,
	// so a few endpoints cannot take them all. About 300 endpoints that hang at the
	// same time can.
	flightShare = 64
	claimShare  = 8
)

// A lease expires after leaseTime. An attempt starts only while attemptNeeds of it is left:
// enough for the whole attempt and for writing its result.
const (
	leaseTime    = 90 * time.Second
	attemptNeeds = Timeout + 20*time.Second
)

// forgetAfter is how long an endpoint without deliveries is remembered.
const forgetAfter = time.Minute

// dispatcher decides which deliveries to claim, which of the held ones to send next,
// and which to hand back. It calls neither the store nor an endpoint. Its methods may be
// called by several goroutines; those whose names end in Locked need mu held.
type dispatcher struct {
	now   func() time.Time
	waits [webhook.MaxAttempts - 1]time.Duration // pauses of the breakers
	// start makes an attempt in a new goroutine and reports it to ended or
	// cutOff. It does not block.
	start   func(*task)
	results *results      // takes what is handed back
	wake    chan struct{} // asks for a claim
	stats   *counters

	maxInFlight int

	mu        sync.Mutex
	endpoints map[string]*endpoint
	// busy has the endpoints with held deliveries or an open breaker.
	busy map[*endpoint]struct{}
	// starved has the endpoints that wait for a slot in flight, in FIFO order.
	starved   []*endpoint
	held      int
	inFlight  int
	stopped   bool
	sweptAt   time.Time
	claimFull bool                // the last claim returned as many deliveries as its limit
	nextClaim time.Time           // when the next claim happens at the latest; zero during a claim
	recalled  map[string]struct{} // endpoints recalled since the last claim started
}

func newDispatcher(cfg *Config, r *results, stats *counters) *dispatcher {
	return &dispatcher{
		now: cfg.Now, waits: cfg.Backoff, results: r, stats: stats, wake: make(chan struct{}, 1), maxInFlight: cmp.Or(cfg.MaxInFlight, maxInFlight),
		endpoints: map[string]*endpoint{}, busy: map[*endpoint]struct{}{}, recalled: map[string]struct{}{},
	}
}

// askForClaim makes the next claim happen now. It never blocks.
func (d *dispatcher) askForClaim() { signal(d.wake) }

// claim returns the next claim to make. Its Limit is 0 or less if nothing can be
// claimed until a lease ends.
func (d *dispatcher) claim() Claim {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	free := maxHeld - d.held
	d.claimFull = free <= 0
	d.nextClaim = time.Time{}
	clear(d.recalled)
	most := max(1, free/claimShare)
	c := Claim{
		Now: now, Token: rand.Text(), Until: now.Add(leaseTime),
		Limit: free, EachLimit: min(minWindow, most), Allowances: make(map[string]Allowance, len(d.busy)),
	}
	for e := range d.busy {
		a := e.allowance(now)
		a.Limit = min(a.Limit, most)
		c.Allowances[e.webhookID] = a
	}
	return c
}

// claimed takes the jobs that claim c returned and starts those that may start. It
// reports whether the next claim should follow at once.
func (d *dispatcher) claimed(c Claim, jobs []Job) (again bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.claimFull = len(jobs) >= c.Limit
	tasks := map[*endpoint][]*task{}
	for _, j := range jobs {
		e := d.endpointLocked(j.Endpoint.WebhookID)
		tasks[e] = append(tasks[e], &task{Job: j, endpoint: e, until: c.Until})
	}
	if !d.claimFull {
		for e := range d.busy {
			if asked, ok := c.Allowances[e.webhookID]; ok && len(tasks[e]) == 0 {
				e.claimed(nil, asked, c.Now)
			}
		}
	}
	d.held += len(jobs)
	for e, list := range tasks {
		asked, ok := c.Allowances[e.webhookID]
		if !ok {
			asked.Limit = c.EachLimit
		}
		slices.SortFunc(list, func(a, b *task) int { return a.DueAt.Compare(b.DueAt) })
		e.claimed(list, asked, c.Now)
		d.busy[e] = struct{}{}
		if !asked.SkipNew && e.paused(c.Now) {
			d.postponeLocked(e) // the breaker opened during the claim
		}
		if _, changed := d.recalled[e.webhookID]; changed || e.gone {
			d.releaseQueueLocked(e)
		}
		d.sendLocked(e)
		again = again || e.wantsMore()
	}
	return again && d.held < maxHeld
}

// endpointLocked returns the state of an endpoint, new if there is none.
func (d *dispatcher) endpointLocked(webhookID string) *endpoint {
	e := d.endpoints[webhookID]
	if e == nil {
		e = newEndpoint(webhookID)
		d.endpoints[webhookID] = e
	}
	return e
}

// sendLocked starts queued deliveries of e while e's window and its share of the slots
// have room. If the slots have none, e joins the starved endpoints.
func (d *dispatcher) sendLocked(e *endpoint) {
	now := d.now()
	for len(e.queue) > 0 && !d.stopped && e.inFlight < e.window {
		if e.inFlight >= (d.maxInFlight-d.inFlight+flightShare-1)/flightShare {
			if !e.starved {
				e.starved = true
				d.starved = append(d.starved, e)
			}
			return
		}
		t := e.pop()
		if now.After(t.until.Add(-attemptNeeds)) {
			d.releaseLocked(t)
			continue
		}
		e.inFlight++
		d.inFlight++
		d.start(t)
	}
}

// ended records the result of an attempt and starts other deliveries in its slot.
func (d *dispatcher) ended(f finished) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, now := f.task.endpoint, d.now()
	d.freeSlotLocked(f.task)
	switch {
	case f.result.State == webhook.Delivered:
		e.succeeded(now)
	case f.result.Attempt.Gone():
		e.gone = true
		d.releaseQueueLocked(e) // the store fails them once it has disabled the endpoint
	case e.failed(now, d.waits):
		d.stats.pauses.Add(1)
		d.postponeLocked(e)
	}
	d.results.add(f)
	d.refillLocked(e)
}

// cutOff hands back a task whose attempt the shutdown interrupted.
func (d *dispatcher) cutOff(t *task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.freeSlotLocked(t)
	d.releaseLocked(t)
	d.refillLocked(t.endpoint)
}

// freeSlotLocked frees the slot of an attempt that has ended.
func (d *dispatcher) freeSlotLocked(t *task) {
	t.endpoint.inFlight--
	d.inFlight--
	t.endpoint.clearProbe(t)
}

// refillLocked starts deliveries in a slot that an attempt of e has freed: of e first,
// then of the starved endpoints in their order.
func (d *dispatcher) refillLocked(e *endpoint) {
	d.sendLocked(e)
	waiting := d.starved
	d.starved = nil
	for i, w := range waiting {
		if d.inFlight >= d.maxInFlight {
			d.starved = append(d.starved, waiting[i:]...)
			break
		}
		w.starved = false
		d.sendLocked(w)
	}
	if e.wantsMore() {
		d.askForClaim()
	}
}

// recall hands back what is queued for an endpoint, and what a claim under way may
// still return for it.
func (d *dispatcher) recall(webhookID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.recallLocked(webhookID)
}

func (d *dispatcher) recallLocked(webhookID string) {
	d.recalled[webhookID] = struct{}{}
	if e := d.endpoints[webhookID]; e != nil {
		d.releaseQueueLocked(e)
	}
}

// releaseQueueLocked hands back everything queued for e.
func (d *dispatcher) releaseQueueLocked(e *endpoint) {
	d.releaseLocked(e.queue...)
	e.queue = nil
}

// postponeLocked hands back the deliveries that e's open breaker postpones.
func (d *dispatcher) postponeLocked(e *endpoint) {
	postponed := e.takeNew()
	d.stats.postponed.Add(int64(len(postponed)))
	d.releaseLocked(postponed...)
}

// releaseLocked hands back tasks that are not in flight.
func (d *dispatcher) releaseLocked(tasks ...*task) {
	for _, t := range tasks {
		t.endpoint.clearProbe(t)
	}
	d.results.release(tasks...)
}

// recorded takes note of results that the writer has passed to the store, whether or
// not the store took them.
func (d *dispatcher) recorded(batch []finished) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range batch {
		if f.result.Attempt.Gone() {
			f.task.endpoint.gone = false
			d.recallLocked(f.task.endpoint.webhookID)
		}
	}
	for _, f := range batch {
		r := &f.result
		if r.State == webhook.RetryScheduled && (d.nextClaim.IsZero() || r.NextAttemptAt.Before(d.nextClaim)) {
			d.askForClaim() // the planned one would be too late
			return
		}
	}
}

// unhold forgets tasks whose leases have ended.
func (d *dispatcher) unhold(tasks []*task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	wake := d.claimFull
	for _, t := range tasks {
		e := t.endpoint
		e.held--
		d.held--
		e.usedAt = now
		wake = wake || e.wantsMore()
		if e.held == 0 && e.resumeAt.IsZero() {
			delete(d.busy, e)
		}
	}
	if wake {
		d.askForClaim()
	}
}

// planClaim returns how long to wait after a claim made at claimed for the next: until
// the store's next delivery is due or a breaker's pause ends, and at most idlePoll.
func (d *dispatcher) planClaim(claimed, nextDue time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	wait := idlePoll
	if !nextDue.IsZero() {
		wait = min(wait, nextDue.Sub(now))
	}
	for e := range d.busy {
		if e.paused(claimed) {
			wait = min(wait, e.resumeAt.Sub(now))
		}
	}
	wait = max(wait, 0)
	d.nextClaim = now.Add(wait)
	return wait
}

// sweep forgets endpoints that have had no deliveries for a while.
func (d *dispatcher) sweep() {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	if now.Sub(d.sweptAt) < forgetAfter {
		return
	}
	d.sweptAt = now
	for webhookID, e := range d.endpoints {
		if e.forgettable(now) {
			delete(d.busy, e)
			delete(d.endpoints, webhookID)
		}
	}
}

// stop hands back everything that is queued. Nothing is started after it.
func (d *dispatcher) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	for e := range d.busy {
		d.releaseQueueLocked(e)
	}
}

// gauges returns how many deliveries are held and in flight, and how many endpoints have
// an open breaker.
func (d *dispatcher) gauges() (held, inFlight, paused int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	for e := range d.busy {
		if e.paused(now) {
			paused++
		}
	}
	return d.held, d.inFlight, paused
}
