package balance

import (
	"math/bits"
	"slices"
	"time"
)

// view says which targets of an upstream take part (section 2). It is immutable, except for the rotation.
type view struct {
	table *table
	until time.Duration // it must be made anew by then

	// The targets that take part without restriction come first: those that are neither unhealthy, ejected nor draining; of
	// these, backups only while there are no others. If there are none at all, all that do not drain are here.
	targets []entry
	open    int // how many of them are not half-open
	// Cumulative weights of targets up to and with each: with equal weights, that is not looked up.
	sums         []uint64
	hashes       []uint64 // for Hash
	equal        uint64   // the weight of each, if all have the same
	allUnhealthy bool
	untried      untried
	rotation     *rotation // for RoundRobin
}

const (
	warmUp     = 10 * time.Second
	warmStep   = 100 * time.Millisecond
	fullWeight = 1000 // of a target of weight 1
)

// total returns the sum of the weights of the first n targets.
func (v *view) total(n int) uint64 {
	if n == 0 {
		return 0
	}
	return v.sums[n-1]
}

// find returns the target at a point below total(n).
func (v *view) find(point uint64, n int) int {
	if v.equal != 0 {
		return int(point / v.equal)
	}
	sums := v.sums[:n]
	from := 0
	for n > 1 {
		half := n / 2
		if sums[from+half-1] <= point {
			from += half
		}
		n -= half
	}
	return from
}

// below maps a random number to one below n.
func below(random, n uint64) uint64 {
	hi, _ := bits.Mul64(random, n)
	return hi
}

// warmFrom returns since when the weight grows.
func (t *entry) warmFrom() time.Duration {
	from := max(t.joined.Load(), t.address.returned.Load())
	if h := t.health; h != nil {
		from = max(from, h.returned.Load())
		if t.joined.Load() != int64(never) {
			from = max(from, h.known.Load())
		}
	}
	return time.Duration(from)
}

// grown returns the weight of a target in thousandths of its configured weight: a tenth at first, and all after 10 s.
func grown(now, from time.Duration) uint64 {
	switch age := now - from; {
	case age >= warmUp:
		return fullWeight
	case age <= 0:
		return fullWeight / 10
	default:
		return fullWeight/10 + uint64(age)*(fullWeight-fullWeight/10)/uint64(warmUp)
	}
}

// level says how good a choice a target is.
type level int

const (
	primary        level = iota
	primaryUnknown       // no check has ended
	backup
	backupUnknown
	halfOpened // takes one request at a time
	excluded   // unhealthy or ejected
	drains

	levels = int(drains)
)

// level returns the level of a target at a time.
func (t *entry) level(now time.Duration, heeds bool) level {
	if t.leaves.Load() {
		return drains
	}
	state := good
	if h := t.health; h != nil {
		state = verdict(h.state.Load())
	}
	if state == bad || t.address.refused.Load() > int64(now) {
		return excluded
	}
	if heeds {
		switch t.address.stateAt(now).state() {
		case ejected:
			return excluded
		case halfOpen:
			return halfOpened
		case open:
		}
	}
	l := primary
	if t.backup {
		l = backup
	}
	if state == unknown {
		l++
	}
	return l
}

// view returns the view for a pick. If another goroutine makes a new one, it returns the old one: what is chosen from it is
// checked again.
func (u *Upstream) view(now time.Duration) *view {
	v := u.current.Load()
	if !u.stale.Load() && now < v.until || !u.mu.TryLock() {
		return v
	}
	defer u.mu.Unlock()
	if v = u.current.Load(); !u.stale.Load() && now < v.until {
		return v
	}
	return u.rebuild(now)
}

// rebuild makes a view. The caller holds the lock.
func (u *Upstream) rebuild(now time.Duration) *view {
	u.stale.Store(false) // before the state of any address is read
	t := u.table
	heeds := !t.cfg.Ejection.off()
	const forever = time.Duration(1<<63 - 1)
	v := &view{table: t, until: forever}

	levelOf := make([]level, len(t.targets))
	best := excluded
	for i := range t.targets {
		x := &t.targets[i]
		levelOf[i] = x.level(now, heeds)
		if levelOf[i] < halfOpened {
			best = min(best, levelOf[i])
		}
		if levelOf[i] == excluded {
			v.wake(now, x, heeds)
		}
	}
	v.allUnhealthy = best == excluded
	v.targets = make([]entry, 0, len(t.targets))
	for i := range t.targets {
		if l := levelOf[i]; l == best || v.allUnhealthy && l != drains {
			v.add(now, t.targets[i])
		}
	}
	v.open = len(v.targets)
	for i := range t.targets {
		x := &t.targets[i]
		if x.backup && best < backup { // not needed
			continue
		}
		if !v.allUnhealthy && levelOf[i] == halfOpened {
			v.add(now, *x)
		}
		if leavesOut(levelOf[i], best, v.allUnhealthy) {
			v.untried.note(now, x, heeds)
		}
	}
	v.sum()
	if t.cfg.Policy == RoundRobin {
		v.rotation = newRotation(v.targets[:v.open], u.fleet.random, u.current.Load())
	}
	u.current.Store(v)
	return v
}

// wake makes the view end when an excluded target may take part again.
func (v *view) wake(now time.Duration, t *entry, heeds bool) {
	if refused := time.Duration(t.address.refused.Load()); refused > now {
		v.until = min(v.until, refused)
	}
	if heeds && phase(t.address.phase.Load()).state() == ejected {
		v.until = min(v.until, time.Duration(t.address.until.Load()))
	}
}

func (v *view) add(now time.Duration, t entry) {
	share := grown(now, t.warmFrom())
	if share < fullWeight {
		v.until = min(v.until, now+warmStep)
	}
	t.weight = t.weight / fullWeight * share
	v.targets = append(v.targets, t)
}

func (v *view) sum() {
	v.sums = make([]uint64, len(v.targets))
	var sum uint64
	for i := range v.targets {
		sum += v.targets[i].weight
		v.sums[i] = sum
	}
	if v.table.cfg.Policy == Hash {
		v.hashes = make([]uint64, len(v.targets))
		for i := range v.targets {
			v.hashes[i] = v.targets[i].address.hash
		}
	}
	if n := uint64(len(v.targets)); n > 0 && !slices.ContainsFunc(v.targets, func(e entry) bool { return e.weight != v.targets[0].weight }) {
		v.equal = sum / n
	}
}

// heeds reports whether the upstream leaves out ejected addresses.
func (v *view) heeds() bool { return !v.table.cfg.Ejection.off() }
