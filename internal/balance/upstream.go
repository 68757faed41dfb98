package balance

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Upstream is a named service of a gateway with its targets on this node. It outlives snapshots. It is safe for concurrent
// use.
type Upstream struct {
	name  Name
	fleet *Fleet

	current atomic.Pointer[view]
	stale   atomic.Bool // something has changed that the view does not show
	budget  budget
	without atomic.Uint64 // picks while no target took part
	trial   atomic.Int64  // when Tries was true last
	dropped atomic.Bool

	mu       sync.Mutex // held to change the table or to make a view
	table    *table
	leaving  []*Target // gone from the table with requests in flight
	former   []*Lone   // only targets of before, with requests in flight
	ejecting sync.Mutex
}

// table is a configuration with its targets. It is immutable.
type table struct {
	cfg     *Config
	targets []entry
	active  int // targets that do not drain
}

// entry is a target with what a configuration says about it.
type entry struct {
	*Target
	weight   uint64 // in thousandths; in a view, as far as it has grown
	backup   bool
	degraded bool
	health   *Health // nil without checks
}

// Target is a target of an upstream at one address. Weight, backup and drain are its own; the rest is the address's. It is
// safe for concurrent use.
type Target struct {
	upstream *Upstream
	url      string
	address  *Address

	use    atomic.Pointer[any] // TargetConfig.Use
	joined atomic.Int64        // when it joined others, or never
	leaves atomic.Bool         // it drains, or is not in the table any more
	ending Ending              // of its requests in flight, because it leaves

	health *Health // nil without checks; guarded by the lock of the upstream
	byName bool    // as in TargetConfig; guarded by the lock of the upstream

	begun, ended atomic.Uint64
	failures     [results]atomic.Uint64
}

// Name returns the name of the upstream.
func (u *Upstream) Name() Name { return u.name }

// Dropped reports whether the upstream was dropped: it has no target any more.
func (u *Upstream) Dropped() bool { return u.dropped.Load() }

// URL returns the target as it is configured.
func (t *Target) URL() string { return t.url }

// Use returns TargetConfig.Use of the configuration in force, or of the last one that had the target.
func (t *Target) Use() any { return *t.use.Load() }

// Address returns the address of the target.
func (t *Target) Address() *Address { return t.address }

// InFlight returns the attempts in flight of this target: none of another upstream's at the same address.
func (t *Target) InFlight() int64 {
	ended := t.ended.Load() // first, so that the difference is never negative
	return int64(t.begun.Load() - ended)
}

// configure puts cfg into force. The caller holds the lock of the Fleet.
func (u *Upstream) configure(now time.Duration, cfg *Config) {
	u.mu.Lock()
	defer u.mu.Unlock()
	old, joins := map[targetKey]*Target{}, false
	for _, t := range u.leaving {
		old[t.key()] = t
	}
	if u.table != nil {
		joins = u.table.active > 0
		for _, t := range u.table.targets {
			old[t.key()] = t.Target
		}
	}

	next := &table{cfg: cfg, targets: make([]entry, 0, len(cfg.Targets))}
	for i := range cfg.Targets {
		c := &cfg.Targets[i]
		k := targetKey{c.URL, Key{Account: u.name.Account, Origin: c.Origin, Address: c.Address}}
		t, is := old[k]
		switch {
		case is && t == nil:
			continue // twice in the configuration
		case !is:
			t = &Target{upstream: u, url: c.URL, address: u.fleet.take(now, u, k.address)}
			t.join(now, joins)
		case t.leaves.Load() && !c.Drain:
			t.join(now, joins)
		}
		old[k] = nil
		t.use.Store(&c.Use)
		check := cfg.Check
		if c.Unchecked {
			check = Check{}
		}
		health := u.fleet.takeHealth(now, t.address, check)
		u.fleet.releaseHealth(t.health)
		t.health, t.byName = health, c.ByName
		if c.Drain {
			t.leave(now, cfg.DrainTimeout)
		} else {
			t.ending.at.Store(0)
			t.leaves.Store(false)
			next.active++
		}
		next.targets = append(next.targets, entry{Target: t, weight: uint64(max(1, c.Weight)) * fullWeight, backup: c.Backup, degraded: c.Degraded, health: health})
	}
	u.leaving = u.leaving[:0:0]
	for _, t := range old {
		if t == nil {
			continue
		}
		if t.byName {
			t.leave(now, 0)
			t.ending.byName(now, t.url, cfg)
		} else {
			t.leave(now, cfg.DrainTimeout)
		}
		u.fleet.releaseHealth(t.health) // what is in flight needs no more checks
		t.health = nil
		u.leaving = append(u.leaving, t)
	}
	for _, l := range u.former {
		l.ending.byName(now, l.url, cfg)
	}
	u.table = next
	u.sweep()
	u.rebuild(now)
}

// leave notes that the target gets no more attempts, and that what is in flight ends after timeout, if that is not 0. One that
// leaves already ends when it was to end.
func (t *Target) leave(now, timeout time.Duration) {
	if t.leaves.Load() {
		return
	}
	t.ending.after(now, timeout)
	t.leaves.Store(true)
}

// Ends is Ending.Ends of the target.
func (t *Target) Ends(now time.Duration) bool { return t.ending.Ends(now) }

// Ending returns when requests in flight at the target must end.
func (t *Target) Ending() *Ending { return &t.ending }

type targetKey struct {
	url     string
	address Key
}

func (t *Target) key() targetKey { return targetKey{t.url, t.address.key} }

// join notes that the target takes part from now on. Beside others its weight grows.
func (t *Target) join(now time.Duration, others bool) {
	t.joined.Store(int64(never))
	if others {
		t.joined.Store(int64(now))
	}
}

// adopt takes over an only target of before, whose requests in flight end when the target is taken away from u.
func (u *Upstream) adopt(now time.Duration, l *Lone) {
	u.mu.Lock()
	defer u.mu.Unlock()
	l.ending.byName(now, l.url, u.table.cfg)
	u.former = append(u.former, l)
}

// sweep forgets targets that are gone and have nothing in flight. The caller holds the locks of the Fleet and of u.
func (u *Upstream) sweep() {
	u.leaving = slices.DeleteFunc(u.leaving, func(t *Target) bool {
		if t.InFlight() > 0 {
			return false
		}
		u.fleet.release(u, t.address)
		return true
	})
	u.former = slices.DeleteFunc(u.former, func(l *Lone) bool { return l.InFlight() == 0 })
}

// Sweep forgets targets that are gone from the table and have nothing in flight any more, and sets what Ending reports. Call
// it at each SweepPeriod.
func (f *Fleet) Sweep(now time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	soon, ending := now+2*SweepPeriod, false
	for _, u := range f.upstreams {
		u.mu.Lock()
		u.sweep()
		ending = ending || u.ends(soon)
		u.mu.Unlock()
	}
	f.sweep()
	f.sweepLones()
	for _, u := range f.dropped {
		u.mu.Lock()
		ending = ending || u.ends(soon)
		u.mu.Unlock()
	}
	f.ending.Store(ending || f.endsLone(soon))
}

// sweep forgets such targets of upstreams that were dropped. The caller holds the lock.
func (f *Fleet) sweep() {
	f.dropped = slices.DeleteFunc(f.dropped, func(u *Upstream) bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.sweep()
		return len(u.leaving) == 0
	})
}

// SweepPeriod is how often Fleet.Sweep is called.
const SweepPeriod = time.Second

// Ending reports whether there may be a target with requests in flight that must end: see Target.Ends. If it is false, there was
// none at the last Sweep, nor will there be one before the next.
func (f *Fleet) Ending() bool { return f.ending.Load() }

// ends reports whether requests in flight must end by the given time. The caller holds the lock.
func (u *Upstream) ends(by time.Duration) bool {
	is := func(t *Target) bool { return t.Ends(by) && t.InFlight() > 0 }
	return slices.ContainsFunc(u.leaving, is) ||
		u.table.active < len(u.table.targets) && slices.ContainsFunc(u.table.targets, func(e entry) bool { return is(e.Target) })
}
