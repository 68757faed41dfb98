package sender

import (
	"cmp"
	"container/heap"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/service"
	"github.com/keygate/keygate/internal/webhook"
)

// A lease expires after leaseTime, so that the deliveries of a node that died go on elsewhere a
// minute later. An attempt starts only while attemptNeeds of it is left: enough for the whole
// attempt and for writing its result.
const (
	leaseTime    = 60 * time.Second
	attemptNeeds = Timeout + 15*time.Second
)

// forgetAfter is how long an endpoint without deliveries is remembered.
const forgetAfter = 10 * time.Minute

// dispatcher decides which deliveries to claim, which of the held deliveries to send next, and
// which to hand back. It calls neither the store nor an endpoint. Its methods may be called by
// several goroutines; methods whose names end in Locked need mu held.
type dispatcher struct {
	poll     time.Duration
	now      func() time.Time
	claimant *claimant
	waits    [webhook.MaxAttempts - 1]time.Duration // pauses of the breakers
	// start makes an attempt in a new goroutine and reports it to ended or
	// cutOff. It does not block.
	start   func(*task)
	results *results       // takes deliveries that are handed back
	wake    service.Signal // asks for a claim
	stats   *counters

	mu        sync.Mutex
	endpoints map[string]*endpoint
	tenants   map[string]*tenant
	slots     int // of all classes in total
	pools     [classes]pool
	// paused has the endpoints whose breakers were opened, in the order in which they resume.
	paused resumptions
	// starved has the endpoints with queued deliveries that wait for a slot in flight, in
	// FIFO order.
	starved  []*endpoint
	held     int
	inFlight int
	stopped  bool
	sweptAt  time.Time
	lookAt   time.Time           // when to look for due deliveries again
	recalled map[string]struct{} // endpoints recalled since the last claim started
}

func newDispatcher(cfg *Config, c *claimant, r *results, stats *counters) *dispatcher {
	slots := cmp.Or(cfg.MaxInFlight, maxInFlight)
	return &dispatcher{
		claimant: c, poll: cmp.Or(cfg.Poll, idlePoll), now: cfg.Now, waits: cfg.Backoff, results: r, stats: stats, wake: service.NewSignal(),
		endpoints: map[string]*endpoint{}, tenants: map[string]*tenant{}, slots: slots, pools: newPools(slots), recalled: map[string]struct{}{},
	}
}

// look makes the sender look for due deliveries now. It never blocks.
func (d *dispatcher) look() {
	d.mu.Lock()
	d.lookAt = time.Time{}
	d.mu.Unlock()
	d.wake.Notify()
}

// found takes note of endpoints that may have due deliveries.
func (d *dispatcher) found(list []Due) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	for i := range list {
		e := d.endpoints[list[i].WebhookID]
		if e == nil {
			e = d.newEndpointLocked(&list[i])
		}
		e.add(due{fresh: list[i].New, begun: list[i].Begun, since: now})
		d.listLocked(e, now)
	}
}

func (d *dispatcher) newEndpointLocked(of *Due) *endpoint {
	t := d.tenants[of.AccountID]
	if t == nil {
		t = &tenant{accountID: of.AccountID}
		d.tenants[of.AccountID] = t
	}
	t.endpoints++
	now := d.now()
	e := &endpoint{webhookID: of.WebhookID, tenant: t, class: untried, window: minWindow, limit: minWindow, usedAt: now}
	if of.Failing {
		e.class = hanging
	}
	if of.PausedUntil.After(now) { // by another sender, or by this one before a restart
		e.pause(of.PausedUntil, now)
		heap.Push(&d.paused, resumption{e.resumeAt, e})
	}
	d.endpoints[of.WebhookID] = e
	return e
}

// recall hands back deliveries that are queued for an endpoint, and deliveries that a claim under
// way may still return for it.
func (d *dispatcher) recall(webhookID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.recallLocked(webhookID)
}

// recallAccount is recall for the endpoints of an account.
func (d *dispatcher) recallAccount(accountID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tenants[accountID] == nil {
		return
	}
	for webhookID, e := range d.endpoints {
		if e.tenant.accountID == accountID {
			d.recallLocked(webhookID)
		}
	}
}

// recallAll is recall for all endpoints.
func (d *dispatcher) recallAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for webhookID := range d.endpoints {
		d.recallLocked(webhookID)
	}
}

func (d *dispatcher) recallLocked(webhookID string) {
	d.recalled[webhookID] = struct{}{}
	if e := d.endpoints[webhookID]; e != nil {
		d.releaseQueueLocked(e)
	}
}

// sendLocked starts queued deliveries of e while e's window and its account's share of the
// slots have room. If the share has none, e joins the starved endpoints.
func (d *dispatcher) sendLocked(e *endpoint) {
	now := d.now()
	for len(e.queue) > 0 && !d.stopped && e.inFlight < e.window {
		if d.roomLocked(e.tenant, e.class) <= 0 {
			if !e.starved {
				e.starved = true
				d.starved = append(d.starved, e)
			}
			return
		}
		if t := e.pop(); now.After(t.until.Add(-attemptNeeds)) {
			d.releaseLocked(t)
		} else {
			d.startLocked(t, e.class)
		}
	}
}

// takeLocked takes n slots of a class for e, or gives them back if n is negative.
func (d *dispatcher) takeLocked(e *endpoint, c class, n int) {
	d.pools[c].used += n
	e.tenant.used[c] += n
	e.inFlight += n
	d.inFlight += n
}

// holdLocked counts n more leases for e, or fewer if n is negative.
func (d *dispatcher) holdLocked(e *endpoint, n int) {
	d.held += n
	e.tenant.held += n
	e.held += n
}

// startLocked starts an attempt, unless the lease under which its delivery was claimed has ended.
func (d *dispatcher) startLocked(t *task, c class) {
	if !d.claimant.is(t.claimant) {
		d.releaseLocked(t)
		return
	}
	t.slot = c
	if t.endpoint.class == untried {
		t.endpoint.class = unproven
	}
	d.takeLocked(t.endpoint, c, 1)
	d.start(t)
}

// ended records the result of an attempt and starts other deliveries in its slot.
func (d *dispatcher) ended(f finished) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, now, a := f.task.endpoint, d.now(), &f.result.Attempt
	d.freeLocked(f.task)
	before := e.class
	if e.took(a.Duration, a.Succeeded()); e.class != before {
		d.unlistLocked(e, before) // a slot of its new class may be free
	}
	switch {
	case f.result.State == webhook.Delivered:
		e.succeeded(now)
	case a.Gone():
		e.gone = true
		d.releaseQueueLocked(e) // the store fails them once it has disabled the endpoint
	case e.failed(now, a.Duration >= Timeout, d.waits):
		d.stats.pauses.Add(1)
		f.result.PausedUntil = e.resumeAt
		d.postponeLocked(e)
		heap.Push(&d.paused, resumption{e.resumeAt, e})
	}
	if e.class != quick {
		d.releaseQueueLocked(e) // they may have to wait longer than their leases last
	}
	d.results.add(f)
	d.refillLocked(e)
}

// cutOff hands back a task whose attempt the shutdown interrupted.
func (d *dispatcher) cutOff(t *task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.freeLocked(t)
	d.releaseLocked(t)
	d.refillLocked(t.endpoint)
}

// freeLocked frees the slot of an attempt that has ended.
func (d *dispatcher) freeLocked(t *task) {
	d.takeLocked(t.endpoint, t.slot, -1)
	t.endpoint.clearProbe(t)
}

// mostRefilled bounds the work after an attempt.
const mostRefilled = 64

// refillLocked starts deliveries in a slot that an attempt of e has freed: of e first,
// then of the starved endpoints in their order.
func (d *dispatcher) refillLocked(e *endpoint) {
	d.sendLocked(e)
	for range min(len(d.starved), mostRefilled) {
		w := d.starved[0]
		d.starved[0], d.starved = nil, d.starved[1:]
		w.starved = false
		d.sendLocked(w)
	}
	d.listLocked(e, d.now())
	d.askIfWaitingLocked()
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
	now := d.now()
	for _, f := range batch {
		e, r := f.task.endpoint, &f.result
		if r.Attempt.Gone() {
			e.gone = false
			d.recallLocked(e.webhookID)
		}
		if r.State != webhook.RetryScheduled {
			continue
		}
		if !r.NextAttemptAt.After(now) {
			e.add(due{begun: true, since: r.NextAttemptAt}) // a look may have passed this time already
			d.listLocked(e, now)
		} else if r.NextAttemptAt.Before(d.lookAt) {
			d.lookAt = r.NextAttemptAt // the one that is already due would be too late
			d.wake.Notify()
		}
	}
	d.askIfWaitingLocked()
}

// unhold forgets tasks whose leases have ended. If these were handed back, their deliveries are due.
func (d *dispatcher) unhold(tasks []*task, handedBack bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	for _, t := range tasks {
		e := t.endpoint
		d.holdLocked(e, -1)
		e.usedAt = now
		if handedBack {
			e.add(due{fresh: t.postponed(), begun: !t.postponed(), since: t.DueAt})
		}
		d.listLocked(e, now)
	}
	d.askIfWaitingLocked()
}

// sweep forgets endpoints that have had no deliveries for a while.
func (d *dispatcher) sweep() {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	if now.Sub(d.sweptAt) < time.Minute {
		return
	}
	d.sweptAt = now
	for webhookID, e := range d.endpoints {
		if !e.forgettable(now) {
			continue
		}
		delete(d.endpoints, webhookID)
		if e.tenant.endpoints--; e.tenant.endpoints == 0 {
			delete(d.tenants, e.tenant.accountID)
		}
	}
}

// stop hands back everything that is queued. Nothing is started after it.
func (d *dispatcher) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	for _, e := range d.endpoints {
		d.releaseQueueLocked(e)
	}
}

// gauges returns how many deliveries are held and in flight, and how many endpoints have
// an open breaker.
func (d *dispatcher) gauges() (held, inFlight, paused int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	for _, e := range d.endpoints {
		if e.paused(now) {
			paused++
		}
	}
	return d.held, d.inFlight, paused
}
