package ratelimit

import (
	"context"
	"math"
	"slices"
)

// A charge has room of its own for fewLimits limits. There are maxLimits at most: a bucket, a daily cap and slots of the
// key, the same of the route, the global limit, and two plans with eight limits each.
const (
	fewLimits = 8
	maxLimits = 7 + 2*8
)

// Use says what of a request a limit counts.
type Use uint8

// The uses.
const (
	UseRequest  Use = iota // the request itself: its amount does not change
	UseBytesIn             // the bytes of its body
	UseBytesOut            // the bytes of its response's body
	UseCost                // the first of the costs of its route; each has a use of its own
	uses        = UseCost + MaxCosts
)

// MaxCosts is how many costs a route has at most (plans.md, section 5).
const MaxCosts = 4

// Used is how many units a request has used, by Use. What it has for UseRequest does not matter.
type Used [uses]int64

// Charge is what one request is charged: limits, each with an amount. Limiter.Decide takes all of it or
// nothing. Limiter.Settle makes what it took what the request has used, and Limiter.Release gives it back. The
// first call of either counts; later calls have no effect.
//
// The zero value has no limits. A Charge is for one request after the other, and for one goroutine at a
// time.
type Charge struct {
	few   [fewLimits]entry
	many  []entry // in the place of few if there are more; its memory is kept for later requests
	count int     // of entries
	shown int     // number of statuses, which belong to the first entries
	worst int     // the index of Worst, if there is one
	taken bool
	kept  bool // after settle, until Clear
	meter bool // some limit counts another Use than UseRequest
	slots bool // some limit counts requests in flight
	// What Kept returns, in Unix nanoseconds.
	from, until int64

	came   Instant     // when Decide was called
	ticket *ticket     // question to the limit store, which has perhaps charged it; nil if there was none, or all is taken
	awaits *entry      // the limit for which Wait waits; nil if it waits for the limit store
	slot   slotWaiting // of Wait, for slots
}

// entry is one limit of a charge.
type entry struct {
	Limit
	view
	use    Use
	status Status
}

// Add adds a limit that the request is charged the amount of, 1 to MaxUnits. A daily cap counts requests, so
// it is charged 1 whatever the amount. Limits must be added in the order in which the statuses are to be shown,
// no two with the same bucket. It allocates only for the first request with more than fewLimits limits.
func (c *Charge) Add(l Limit, amount int64) { c.AddUse(l, UseRequest, amount) }

// AddQuota does what AddUse does. If c has the quota already, under other terms, it counts once, under the tighter ones.
func (c *Charge) AddQuota(l Limit, use Use, amount int64) {
	entries := c.entries()
	for i := range entries {
		if e := &entries[i]; e.Quota == l.Quota {
			if l.Terms.isTighter(e.Terms) {
				e.Limit = l
			}
			return
		}
	}
	c.AddUse(l, use, amount)
}

// AddUse does what Add does. The amount, 0 to MaxUnits, is what is taken for the use until Limiter.Settle knows more.
func (c *Charge) AddUse(l Limit, use Use, amount int64) {
	if c.count == fewLimits {
		if c.many == nil {
			c.many = make([]entry, 0, maxLimits)
		}
		c.many = append(c.many[:0], c.few[:]...)
	}
	if c.count >= fewLimits {
		c.many = append(c.many[:c.count], entry{})
	}
	c.count++
	e := &c.entries()[c.count-1]
	e.Limit, e.use, e.amount = l, use, l.amountOf(amount)
	c.meter = c.meter || use != UseRequest
	c.slots = c.slots || l.Slots != nil
}

// entries returns the limits.
func (c *Charge) entries() []entry {
	if c.count > fewLimits {
		return c.many[:c.count]
	}
	return c.few[:c.count]
}

// Clear removes the limits, so that the same request can be decided again with other limits. Charges that the
// limit store has made for the request are still used, or given back by Release.
func (c *Charge) Clear() {
	c.count, c.shown, c.taken, c.kept, c.meter, c.slots = 0, 0, false, false, false, false
}

// Keep removes the limits whose scopes are not among scopes. Settle or release c before.
func (c *Charge) Keep(scopes ...Scope) {
	kept := slices.DeleteFunc(c.entries(), func(e entry) bool { return !slices.Contains(scopes, e.Scope) })
	if len(kept) <= fewLimits {
		copy(c.few[:], kept)
	}
	c.count, c.shown = len(kept), 0
}

// settle keeps what was taken.
func (c *Charge) settle() {
	if !c.taken {
		return
	}
	c.taken, c.kept, c.from, c.until = false, true, 0, math.MaxInt64
	entries := c.entries()
	for i := range entries {
		if q := entries[i].quota; entries[i].Quota != nil && q.end != 0 {
			c.from, c.until = max(c.from, q.start), min(c.until, q.end)
		}
	}
}

// Kept reports whether Limiter.Settle has kept what was taken. from and until are then the time, in Unix nanoseconds, in which
// the windows of all quotas are those that were charged: 0 and math.MaxInt64 without quotas.
func (c *Charge) Kept() (from, until int64, kept bool) { return c.from, c.until, c.kept }

// Wait waits for what Decide lacked when it returned NeedsReservation or NeedsTicket. The caller must then
// decide again. The error is ctx.Err(), or has the code fault.Unavailable if the store of the daily cap
// fails, or if requests are refused while the limit store is lost.
func (c *Charge) Wait(ctx context.Context) error {
	if e := c.awaits; e != nil {
		if e.Slots == nil {
			return e.wait(ctx, e.amount)
		}
		return e.Slots.shared.wait(ctx, e.Most, &c.slot)
	}
	c.ask()
	return c.ticket.wait(ctx)
}

// Shown returns the number of statuses: the number of limits after Decide or Peek, and 0 before.
func (c *Charge) Shown() int { return c.shown }

// Status returns the status with the index i, below Shown.
func (c *Charge) Status(i int) *Status { return &c.entries()[i].status }

// Worst returns the status for the fields X-RateLimit-*. After a refusal, this is the status of the refusing
// limit for which the caller must wait longest; otherwise it is the status of the limit of requests with the fewest
// left (on a tie, the limit that resets later). It is nil if no such status is shown.
func (c *Charge) Worst() *Status {
	if c.shown == 0 || c.worst < 0 {
		return nil
	}
	return &c.entries()[c.worst].status
}

// Refuse replaces the limits of c by one that is counted elsewhere and has refused the request, with its status.
func (c *Charge) Refuse(s Status) {
	c.Clear()
	c.Add(Limit{Scope: s.Scope}, 1)
	s.Refused = true
	c.entries()[0].status = s
	c.show(0)
}

// show sets the number of statuses, and the index of the status that Worst returns, or -1.
func (c *Charge) show(worst int) { c.shown, c.worst = c.count, worst }
