package upstream

import (
	"errors"
	"sync"
	"time"
)

// errNoDescriptors is the cause of a failure to connect because Config.MaxDescriptors are in
// use.
var errNoDescriptors = errors.New("upstream: all file descriptors for connections to upstreams are in use")

const (
	// dialCost is the number of descriptors that connecting may hold: two lookups of a name
	// at a time, or connections to addresses of both versions of IP.
	dialCost = 2
	// After a search for idle connections that found none, the next search waits for ten times the
	// duration of the last one, so that searches take at most a tenth of a core, but for
	// maxReclaimPause at most.
	maxReclaimPause = 20 * time.Millisecond
)

// budget shares the file descriptors of connections to upstreams, dials included, out
// between accounts and pools. Everyone may use all descriptors except the last ninth. One half of
// that ninth is kept for pools that hold few, the other half for accounts that hold few, so that
// neither a gateway nor an account with many gateways can take the last descriptors from others.
// The zero budget has no limit.
type budget struct {
	max int64

	reclaiming sync.Mutex // held while idle connections are looked for
	reclaim    time.Time  // time of the next search, if the last search found none; guarded by reclaiming

	mu       sync.Mutex
	used     int64
	accounts map[string]int64 // what each account holds, without zeros
}

// spender is a pool as the budget sees it.
type spender struct {
	account string
	held    int64 // guarded by budget.mu
}

// take takes n descriptors. It reports false if none are free for s.
func (b *budget) take(s *spender, n int64) bool {
	if b.max == 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	reserve := b.max / 9
	few := max(dialCost, reserve/16)
	switch left := b.max - b.used - n; {
	case left < 0:
		return false
	case left >= reserve:
	case left >= reserve/2:
		if s.held+n > few {
			return false
		}
	case b.accounts[s.account]+n > few:
		return false
	}
	b.used += n
	s.held += n
	if b.accounts == nil {
		b.accounts = map[string]int64{}
	}
	b.accounts[s.account] += n
	return true
}

// give gives back n descriptors.
func (b *budget) give(s *spender, n int64) {
	if b.max == 0 || n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	s.held -= n
	if b.accounts[s.account] -= n; b.accounts[s.account] == 0 {
		delete(b.accounts, s.account)
	}
}

// inUse returns the number of descriptors in use.
func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// takeForDial takes the descriptors of a dial. If too few are free, it closes idle connections,
// first of the same account.
func (p *Pools) takeForDial(s *spender) error {
	b := &p.budget
	if b.take(s, dialCost) {
		return nil
	}
	b.reclaiming.Lock()
	defer b.reclaiming.Unlock()
	if b.take(s, dialCost) { // another search may have freed some
		return nil
	}
	began := time.Now()
	if began.Before(b.reclaim) {
		return errNoDescriptors
	}
	before := b.inUse()
	for _, own := range []bool{true, false} {
		p.closeIdleOf(func(account string) bool { return (account == s.account) == own })
		if b.take(s, dialCost) {
			return nil
		}
	}
	if b.inUse() >= before {
		now := time.Now()
		b.reclaim = now.Add(min(10*now.Sub(began), maxReclaimPause))
	}
	return errNoDescriptors
}

// closeIdleOf closes the idle connections of the accounts for which which returns true.
func (p *Pools) closeIdleOf(which func(account string) bool) {
	p.h1State.pools.Range(func(_, value any) bool {
		if pool := value.(*H1Pool); which(pool.origin.Account) {
			pool.CloseIdle()
		}
		return true
	})
	p.h2State.pools.Range(func(_, value any) bool {
		if pool := value.(*H2Pool); which(pool.origin.Account) {
			pool.closeIdle()
		}
		return true
	})
}
