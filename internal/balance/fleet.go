package balance

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Fleet is every upstream of this node, with the addresses that they share. It is safe for concurrent use.
type Fleet struct {
	sink   Sink
	random func() uint64
	ending atomic.Bool // see Ending

	mu        sync.Mutex // held to change what there is; it is taken before the locks of upstreams and addresses
	upstreams map[Name]*Upstream
	dropped   []*Upstream // with requests in flight
	addresses map[Key]*used
	healths   map[healthKey]*Health
	checks    func() // what is to be checked has changed; nil does nothing
	lones     map[*Lone]keptLone
}

// used is an address with the number of targets that have it.
type used struct {
	*Address
	uses int
}

type healthKey struct {
	address Key
	check   string
}

// NewFleet returns an empty Fleet. sink may be nil.
func NewFleet(sink Sink) *Fleet {
	return &Fleet{sink: sink, random: rand.Uint64, upstreams: map[Name]*Upstream{}, addresses: map[Key]*used{}, healths: map[healthKey]*Health{}, lones: map[*Lone]keptLone{}}
}

// Upstream returns the upstream of a name with the configuration cfg, which is in force when it returns. An upstream that
// exists keeps its state: of addresses that stay, everything; of targets that stay, their counts; and the retry budget.
// Targets that are gone get no more attempts.
func (f *Fleet) Upstream(now time.Duration, n Name, cfg *Config) *Upstream {
	f.mu.Lock()
	defer f.mu.Unlock()
	u := f.upstreams[n]
	if u == nil {
		u = &Upstream{name: n, fleet: f}
		f.upstreams[n] = u
	}
	u.configure(now, cfg)
	return u
}

// Drop ends an upstream. Requests that still use it find no target.
func (f *Fleet) Drop(now time.Duration, n Name) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if u := f.upstreams[n]; u != nil {
		delete(f.upstreams, n)
		u.dropped.Store(true)
		u.configure(now, &Config{DrainTimeout: u.table.cfg.DrainTimeout})
		f.dropped = append(f.dropped, u)
		f.sweep()
	}
}

// Address returns an address, or nil if no upstream has it.
func (f *Fleet) Address(k Key) *Address {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.addresses[k]; a != nil {
		return a.Address
	}
	return nil
}

// OnChecks makes the Fleet call f whenever Healths has changed. It must be called before the Fleet is used. f is called with a
// lock held: it must not block, and must not call this package.
func (f *Fleet) OnChecks(call func()) { f.checks = call }

func (f *Fleet) noteChecks() {
	if f.checks != nil {
		f.checks()
	}
}

// Healths calls f for what is to be checked, until it returns false.
func (f *Fleet) Healths(each func(*Health, Check) bool) {
	f.mu.Lock()
	all := make([]*Health, 0, len(f.healths))
	for _, h := range f.healths {
		all = append(all, h)
	}
	f.mu.Unlock()
	for _, h := range all {
		if !each(h, h.check) {
			return
		}
	}
}

// take returns an address for a target of u. The caller holds f.mu.
func (f *Fleet) take(now time.Duration, u *Upstream, k Key) *Address {
	a := f.addresses[k]
	if a == nil {
		a = &used{Address: &Address{key: k, hash: hashStrings(k.Origin, k.Address), sink: f.sink, since: now, upstreams: map[*Upstream]int{}}}
		a.returned.Store(int64(never))
		a.refused.Store(int64(never))
		f.addresses[k] = a
	}
	a.uses++
	a.mu.Lock()
	a.upstreams[u]++
	a.mu.Unlock()
	return a.Address
}

// release gives up an address of a target of u. The caller holds f.mu.
func (f *Fleet) release(u *Upstream, of *Address) {
	a := f.addresses[of.key]
	if a.uses--; a.uses == 0 {
		delete(f.addresses, of.key)
	}
	a.mu.Lock()
	if a.upstreams[u]--; a.upstreams[u] == 0 {
		delete(a.upstreams, u)
	}
	a.mu.Unlock()
}

// takeHealth returns what the checks of u find at an address; nil without checks. The caller holds f.mu.
func (f *Fleet) takeHealth(now time.Duration, a *Address, c Check) *Health {
	if c.ID == "" {
		return nil
	}
	k := healthKey{a.key, c.ID}
	h := f.healths[k]
	if h == nil {
		h = &Health{address: a, check: c, since: now}
		h.known.Store(int64(never))
		h.returned.Store(int64(never))
		f.healths[k] = h
		f.noteChecks()
	}
	h.uses++
	return h
}

// releaseHealth gives up what takeHealth has returned. The caller holds f.mu.
func (f *Fleet) releaseHealth(h *Health) {
	if h == nil {
		return
	}
	if h.uses--; h.uses == 0 {
		delete(f.healths, healthKey{h.address.key, h.check.ID})
		f.noteChecks()
	}
}

// Names returns the names of all upstreams, in order.
func (f *Fleet) Names() []Name {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := make([]Name, 0, len(f.upstreams))
	for n := range f.upstreams {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b Name) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Gateway, b.Gateway), cmp.Compare(a.Upstream, b.Upstream))
	})
	return names
}
