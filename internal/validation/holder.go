package validation

import (
	"runtime"
	"sync"
)

// The bounds of Holder.
const (
	// MaxHeld bounds the bytes of the bodies that are held in total, and MaxHeldOfAccount those of one account.
	MaxHeld          = 64 << 20
	MaxHeldOfAccount = 8 << 20
	// largeBody is the size of a body from which on no more of them are checked at once than there are processors, and mediumBody that
	// from which on there are mediumChecks, and mediumChecksOfAccount: what a body becomes for its check takes up to a hundred times its
	// size, and the check of one with a document that is made for it about a second.
	largeBody             = 32 << 10
	mediumBody            = 1 << 10
	mediumChecks          = 256
	mediumChecksOfAccount = 32
)

// Holder bounds the memory for bodies that are held until they are checked. It is safe for concurrent use.
type Holder struct {
	large, medium turns // of the checks of bodies

	mu        sync.Mutex
	bytes     int64
	ofAccount map[string]int64
}

// NewHolder returns a Holder.
func NewHolder() *Holder {
	n := max(2, runtime.GOMAXPROCS(0))
	return &Holder{large: newTurns(n, n/2), medium: newTurns(mediumChecks, mediumChecksOfAccount), ofAccount: map[string]int64{}}
}

// Bytes returns how many bytes are held.
func (h *Holder) Bytes() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.bytes
}

// take reserves so many bytes for a body of the account. If that would exceed a bound, it reserves none and reports false.
func (h *Holder) take(accountID string, size int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bytes+size > MaxHeld || h.ofAccount[accountID]+size > MaxHeldOfAccount {
		return false
	}
	h.bytes += size
	h.ofAccount[accountID] += size
	return true
}

// give gives back what take has reserved.
func (h *Holder) give(accountID string, size int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bytes -= size
	if h.ofAccount[accountID] -= size; h.ofAccount[accountID] == 0 {
		delete(h.ofAccount, accountID)
	}
}

// Held is the memory for one body. The zero value holds nothing.
type Held struct {
	holder    *Holder
	accountID string
	bytes     int64
}

// Grow makes it hold size bytes for the account, as far as it does not hold as many. If a bound is exceeded, it reports false.
func (b *Held) Grow(h *Holder, accountID string, size int64) bool {
	const step = 4 << 10
	if size <= b.bytes {
		return true
	}
	more := (size - b.bytes + step - 1) / step * step
	if !h.take(accountID, more) {
		return false
	}
	b.holder, b.accountID = h, accountID
	b.bytes += more
	return true
}

// Release gives all of it back.
func (b *Held) Release() {
	if b.bytes > 0 {
		b.holder.give(b.accountID, b.bytes)
	}
	*b = Held{}
}

// check calls f, for a body of so many bytes of the account, when it is its turn.
func (h *Holder) check(accountID string, size int, f func()) {
	switch {
	case size >= largeBody:
		h.large.call(accountID, f)
	case size >= mediumBody:
		h.medium.call(accountID, f)
	default:
		f()
	}
}

// turns bounds how many calls run at once, in all and of an account: those of an account wait for each other, and not others for them.
type turns struct {
	all  chan struct{} // has a slot for each call
	each int           // the slots of an account

	mu        sync.Mutex
	ofAccount map[string]*turnsOfAccount
}

// turnsOfAccount are the slots of an account, and how many calls have or want one.
type turnsOfAccount struct {
	slots chan struct{}
	calls int
}

func newTurns(all, each int) turns {
	return turns{all: make(chan struct{}, all), each: each, ofAccount: map[string]*turnsOfAccount{}}
}

// call calls f when it is the turn of the account.
func (t *turns) call(accountID string, f func()) {
	own := t.enter(accountID)
	defer t.leave(accountID, own)
	own.slots <- struct{}{}
	defer func() { <-own.slots }()
	t.all <- struct{}{}
	defer func() { <-t.all }()
	f()
}

func (t *turns) enter(accountID string) *turnsOfAccount {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.ofAccount[accountID]
	if own == nil {
		own = &turnsOfAccount{slots: make(chan struct{}, t.each)}
		t.ofAccount[accountID] = own
	}
	own.calls++
	return own
}

func (t *turns) leave(accountID string, own *turnsOfAccount) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own.calls--; own.calls == 0 {
		delete(t.ofAccount, accountID)
	}
}
