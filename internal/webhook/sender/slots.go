package sender

import "time"

// class says how long the attempts of an endpoint occupy a slot in flight. Each class has slots of
// its own, so endpoints that hang never take slots that quick endpoints need.
type class int

// The classes.
const (
	// hanging: the last attempt failed after more than quickTime. Endpoints whose last attempt
	// failed before this sender knew them count as hanging too, however quickly they failed.
	hanging class = iota
	// unproven: no attempt has ended yet; or the last attempt ended with a late success; or too few
	// quick attempts have followed a slow one.
	unproven
	// quick: the last attempt ended within quickTime and, if an earlier attempt took longer, so did
	// trustAfter attempts since then.
	quick
	// untried: this sender has not started an attempt yet, and the last attempt of other senders has
	// not failed. Such an endpoint gets one slot, for its first attempt.
	untried
	classes
)

const (
	quickTime  = 2 * time.Second
	trustAfter = 10
)

// Bounds of a sender. A delivery in flight costs up to about 64 KiB and a descriptor, two while it
// connects; a held delivery costs its payload and about 1 KiB.
const (
	// maxInFlight is the default of Config.MaxInFlight.
	maxInFlight = 2048
	// maxHeld is how many deliveries are leased at a time.
	maxHeld = 8192
)

// reserved is the part of the slots of a class, and of the leases, that only accounts without a
// slot, or lease, can take.
const reserved = 8

// room returns how many more slots an account may take (dynamic thresholds, Choudhury and Hahne
// 1998). It has own of the size slots, and all accounts together have used. An account may have at
// most half as many slots as it leaves free, apart from the reserve, so one account gets a third,
// and the more accounts take slots, the fewer each gets. An account without a slot gets one while
// any is free.
func room(size, used, own int) int {
	free := size - used
	if n := (free - size/reserved - 2*own) / 3; n > 0 {
		return n
	}
	if own == 0 && free > 0 {
		return 1
	}
	return 0
}

// First attempts get slots that the other classes leave free: three quarters of the slots of each
// class may be lent to them. An endpoint has only one first attempt, so endpoints that hang cannot
// keep these slots from others; and an account may have untriedShare times as many as it leaves
// free, apart from a reserve.
const (
	unlent          = 4
	untriedShare    = 4
	untriedReserved = 16
)

// pool is the slots of a class.
type pool struct {
	size, used int
	// turn has the accounts with endpoints that wait for a claim, in the order in which
	// they are served (round robin).
	turn []*tenant
}

// newPools shares slots out between the classes: half to quick, three eighths to hanging and the
// rest to unproven. The size of untried is how many of these may be lent to it.
func newPools(slots int) (p [classes]pool) {
	p[quick].size = slots / 2
	p[hanging].size = slots * 3 / 8
	p[unproven].size = slots - p[quick].size - p[hanging].size
	p[untried].size = slots - p[quick].size/unlent - p[hanging].size/unlent - p[unproven].size/unlent
	return p
}

// roomLocked returns how many more slots of a class an account may take.
func (d *dispatcher) roomLocked(t *tenant, c class) int {
	p := &d.pools[c]
	if c != untried {
		return min(room(p.size, p.used, t.used[c]), d.slots-d.inFlight)
	}
	free, own := d.slots-p.used, t.used[c]
	for k := range d.pools {
		if other := &d.pools[k]; class(k) != untried {
			free -= max(other.used, other.size/unlent)
		}
	}
	if n := untriedShare*(free-p.size/untriedReserved) - own; n > 0 {
		return min(n, free)
	}
	return min(max(free, 0), max(1-own, 0))
}

// tenant is the state of one account in a sender.
type tenant struct {
	accountID string
	endpoints int // that the dispatcher knows
	held      int
	used      [classes]int // slots
	// waiting has the endpoints that wait for a claim: in the class quick in FIFO order, in the
	// other classes in the order in which their oldest deliveries became due.
	waiting [classes][]*endpoint
	inTurn  [classes]bool // it is in the pool's turn
}
