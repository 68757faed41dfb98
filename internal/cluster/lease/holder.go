package lease

import (
	"errors"
	"sync/atomic"
	"time"
)

// ErrNameInUse is returned if another process with the same name renews its lease.
var ErrNameInUse = errors.New("another node with this name holds a lease and renews it")

// ErrTooOld is in the chain of the error of a Join if the change log has changes in a format that the node does
// not read.
var ErrTooOld = errors.New("this version cannot read changes that newer nodes have made")

// HolderConfig configures a Holder. All fields are required.
type HolderConfig struct {
	Node string // name
	Boot Boot
	TTL  time.Duration
	// Clock reads the node's clock.
	Clock func() Instant
	// Quick reads a clock for Held, which each request calls. It is never behind Clock, and ahead of it
	// by a few milliseconds at most. Nil means Clock.
	Quick func() Instant
	// Jitter returns a random number of at least 0 and below 1.
	Jitter func() float64
}

// Holder is the node's side of the protocol. It says which call to the store is due, and takes the
// answers. Its methods must not overlap, except Held and Remaining, which are safe for concurrent use.
type Holder struct {
	cfg      HolderConfig
	deadline atomic.Int64 // an Instant; 0 without a lease that may be used

	epoch    int64    // of the lease; 0 without one
	granted  Instant  // the deadline of the newest grant
	lacks    Position // the newest change when the lease began, until it is in force here
	acked    Position
	nextCall Instant // no Join or Renew is due before
	occupant occupant
}

// occupant is another process that has the node's name.
type occupant struct {
	row   Row
	since Instant // when its newest grant was first seen; 0 for none
}

// NewHolder returns a Holder without a lease.
func NewHolder(cfg HolderConfig) *Holder {
	if cfg.Quick == nil {
		cfg.Quick = cfg.Clock
	}
	return &Holder{cfg: cfg}
}

// Held reports whether the node holds a lease at this moment. It reads an atomic variable and the clock.
func (h *Holder) Held() bool { return h.cfg.Quick() < Instant(h.deadline.Load()) }

// Remaining returns how long the lease still runs, or 0 without one.
func (h *Holder) Remaining() time.Duration {
	return max(0, Instant(h.deadline.Load()).Sub(h.cfg.Clock()))
}

// Next returns the call that is due, given the position that is in force on this node. If none is due, it
// returns false and after how long to call Next again; a new position is a reason to call it earlier.
func (h *Holder) Next(applied Position) (c Call, wait time.Duration, due bool) {
	h.use(applied)
	now := h.cfg.Clock()
	c = Call{Node: h.cfg.Node, Boot: h.cfg.Boot, Epoch: h.epoch, TTL: h.cfg.TTL, Position: applied, begun: now}
	switch {
	case now >= h.nextCall && h.epoch == 0:
		c.Kind = Join
		if o := &h.occupant; o.since != 0 && now.Sub(o.since) > Expiry(o.row.TTL) {
			c.Replace = o.row.Seen()
		}
	case now >= h.nextCall:
		c.Kind = Renew
	case h.epoch != 0 && applied != h.acked:
		c.Kind = Acknowledge
	default:
		return Call{}, h.nextCall.Sub(now), false
	}
	return c, 0, true
}

// Answer takes the answer to a call. After Done and Behind, the caller has nothing else to do. After
// OtherHistory the node must read the configuration again. The only error is ErrNameInUse.
func (h *Holder) Answer(c Call, a Answer) error {
	if c.Kind != Join && c.Epoch != h.epoch {
		return nil // of a lease that was given up meanwhile
	}
	now := h.cfg.Clock()
	switch a.Result {
	case Done:
		h.acked = c.Position
		if c.Kind == Acknowledge {
			return nil
		}
		h.epoch = a.Row.Epoch
		h.occupant = occupant{}
		h.granted = c.begun.Add(c.TTL)
		if c.Kind == Join {
			h.lacks = a.Newest
		}
		h.use(c.Position)
		h.nextCall = now.Add(h.spread(c.TTL / 3))
	case Lost, OtherHistory:
		h.GiveUp()
		h.retry(c)
	case Occupied:
		h.retry(c)
		return h.wait(a.Row, now)
	default:
		h.retry(c)
	}
	return nil
}

// use lets the lease be used if everything that was committed when it began is in force, as the position says.
func (h *Holder) use(applied Position) {
	if h.epoch == 0 || h.lacks.Number > applied.Number || h.lacks.Number == applied.Number && h.lacks != applied {
		return
	}
	h.lacks = Position{}
	h.deadline.Store(int64(h.granted))
}

// Failed notes that a call failed, or that no answer came. The lease is not renewed, and its old deadline
// stands: whether the store carried the call out is unknown.
func (h *Holder) Failed(c Call) { h.retry(c) }

// GiveUp ends the use of the lease at once. The store does not learn of it.
func (h *Holder) GiveUp() {
	h.deadline.Store(0)
	h.epoch = 0
	h.acked, h.lacks = Position{}, Position{}
}

// Stop gives the lease up and returns the call that gives it back to the store. It returns false if there
// is none.
func (h *Holder) Stop() (Call, bool) {
	c := Call{Kind: Leave, Node: h.cfg.Node, Boot: h.cfg.Boot, Epoch: h.epoch, TTL: h.cfg.TTL}
	h.GiveUp()
	return c, c.Epoch != 0
}

func (h *Holder) retry(c Call) { h.nextCall = h.cfg.Clock().Add(h.spread(c.TTL / 40)) }

// spread returns between half of d and d.
func (h *Holder) spread(d time.Duration) time.Duration {
	return d/2 + time.Duration(h.cfg.Jitter()*float64(d/2))
}

// wait waits for the lease of another process with the node's name.
func (h *Holder) wait(r Row, now Instant) error {
	o := &h.occupant
	switch {
	case o.since == 0:
		*o = occupant{row: r, since: now}
	case r.Seen() != o.row.Seen():
		return ErrNameInUse
	}
	return nil
}
