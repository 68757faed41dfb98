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
	// largeBody is the size of a body from which on no more of them are checked at once than there are processors: what a
	// body becomes for its check takes up to a hundred times its size.
	largeBody = 32 << 10
)

// Holder bounds the memory for bodies that are held until they are checked. It is safe for concurrent use.
type Holder struct {
	checking chan struct{} // has a slot for each check of a large body

	mu        sync.Mutex
	bytes     int64
	ofAccount map[string]int64
}

// NewHolder returns a Holder.
func NewHolder() *Holder {
	return &Holder{checking: make(chan struct{}, runtime.GOMAXPROCS(0)), ofAccount: map[string]int64{}}
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

// check calls f, for a body of so many bytes, when there is a slot for it.
func (h *Holder) check(size int, f func()) {
	if size >= largeBody {
		h.checking <- struct{}{}
		defer func() { <-h.checking }()
	}
	f()
}
