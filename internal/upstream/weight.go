package upstream

import (
	"cmp"
	"errors"
	"slices"
	"unique"
)

// A pool is kept for Config.Retain after its last use, also when its gateway has another origin by then. So what pools
// weigh is bounded: a tenant may change settings hundreds of times a second.
const (
	poolWeight       = 4 << 10   // of a pool without certificates, in bytes
	maxAccountWeight = 192 << 20 // of the pools of an account
)

// errNoRoom is the cause of a failure to make a pool because those of the account weigh too much.
var errNoRoom = errors.New("upstream: connections of the account with former settings take too much memory")

// weight returns how many bytes a pool of o takes at most: certificates are kept as they are, and parsed.
func (o *Origin) weight() int64 {
	n := poolWeight + 2*len(o.CA)
	if o.Client != (unique.Handle[[2]string]{}) {
		pair := o.Client.Value()
		n += 2 * (len(pair[0]) + len(pair[1]))
	}
	return int64(n)
}

// weights is what pools weigh. Its user holds Pools.making.
type weights struct {
	max      int64 // maxAccountWeight, except in tests
	accounts map[string]int64
	leaving  []leavingPool
}

// leavingPool is a pool that was forgotten and still has connections.
type leavingPool struct {
	account string
	weight  int64
	unused  func() bool
}

// makeRoom counts a new pool of o. If the pools of its account would weigh too much, it first forgets those that were
// used least recently. It fails if too many of them have connections in use. The caller holds p.making.
func (p *Pools) makeRoom(o *Origin) error {
	w, account := &p.weights, o.Account
	added := o.weight()
	if w.accounts[account]+added > w.max {
		w.sweep()
		most := max(0, w.max/4*3-added)
		for _, pool := range p.leastUsed(account) {
			if w.accounts[account] <= most {
				break
			}
			pool.forget()
		}
		if w.accounts[account]+added > w.max {
			return Unreachable(errNoRoom)
		}
	}
	if w.accounts == nil {
		w.accounts = map[string]int64{}
	}
	w.accounts[account] += added
	return nil
}

// forgettable is a pool that can be forgotten.
type forgettable struct {
	used   int64 // tick of the last use
	forget func()
}

// leastUsed returns the pools of an account, the one whose last use is longest ago first.
func (p *Pools) leastUsed(account string) (list []forgettable) {
	p.h1State.pools.Range(func(_, value any) bool {
		if pool := value.(*H1Pool); pool.origin.Account == account {
			list = append(list, forgettable{pool.used.Load(), func() { p.forget(pool) }})
		}
		return true
	})
	p.h2State.pools.Range(func(_, value any) bool {
		if pool := value.(*H2Pool); pool.origin.Account == account {
			list = append(list, forgettable{pool.used.Load(), func() { p.forgetMultiplexed(pool) }})
		}
		return true
	})
	slices.SortFunc(list, func(a, b forgettable) int { return cmp.Compare(a.used, b.used) })
	return list
}

// leave counts a pool that was forgotten as long as it has connections.
func (w *weights) leave(o *Origin, unused func() bool) {
	w.leaving = append(w.leaving, leavingPool{o.Account, o.weight(), unused})
	w.sweep()
}

// sweep counts pools no longer that were forgotten and have no connection left.
func (w *weights) sweep() {
	w.leaving = slices.DeleteFunc(w.leaving, func(l leavingPool) bool {
		if !l.unused() {
			return false
		}
		if w.accounts[l.account] -= l.weight; w.accounts[l.account] == 0 {
			delete(w.accounts, l.account)
		}
		return true
	})
}
