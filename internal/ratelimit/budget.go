package ratelimit

import (
	"sync"
	"sync/atomic"

	"github.com/keygate/keygate/internal/service"
)

// Budget bounds the memory of the buckets and daily counts of limits with per: key or per: address, of each account
// and of all together, and the number of the buckets of addresses (MaxAddresses). An account may use three times as much as is left, so that something always remains for
// another account. It is safe for concurrent use.
//
// A bucket that is not full must stay, or its limit would admit too much. So buckets and counts
// that do not fit are refused; only Buckets.Sweep and the end of the day make room.
type Budget struct {
	max     int64
	used    atomic.Int64
	refused atomic.Int64
	slots   addressSlots
	short   service.Signal

	mu       sync.Mutex
	accounts map[string]*AccountBudget
}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget {
	return &Budget{max: limit, short: service.NewSignal(), accounts: map[string]*AccountBudget{}}
}

// Of returns the budget of an account. Budgets are never forgotten, because only operators create accounts.
func (b *Budget) Of(accountID string) *AccountBudget {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.accounts[accountID]
	if a == nil {
		a = &AccountBudget{all: b}
		b.accounts[accountID] = a
	}
	return a
}

// Used returns how many bytes are in use.
func (b *Budget) Used() int64 { return b.used.Load() }

// Refused returns how often a bucket or count was refused.
func (b *Budget) Refused() int64 { return b.refused.Load() }

// Short receives a value when little is left, of the whole or for an account, so that Buckets.Sweep is due.
func (b *Budget) Short() <-chan struct{} { return b.short }

// AccountBudget is what one account uses of a Budget. A nil AccountBudget has no bound.
type AccountBudget struct {
	all       *Budget
	used      atomic.Int64
	addresses atomic.Int64 // number of buckets of addresses
	own       atomic.Pointer[OwnDailies]
}

// fits reports whether there is room for n bytes more. Calls at the same time may all find the same
// room.
func (a *AccountBudget) fits(n int64) bool {
	if a == nil {
		return true
	}
	left, own := a.all.max-a.all.used.Load()-n, a.used.Load()+n
	if left < a.all.max/4 || own > 2*left {
		a.all.short.Notify()
	}
	if own <= 3*left {
		return true
	}
	a.all.refused.Add(1)
	return false
}

// add counts n bytes, which may be negative.
func (a *AccountBudget) add(n int64) {
	if a != nil && n != 0 {
		a.used.Add(n)
		a.all.used.Add(n)
	}
}
