package upstream

import (
	"sync"
	"sync/atomic"
)

const (
	// MaxReplay is how much of the body of a request is kept, in bytes, so that the request can be sent
	// again if the server says that it has not processed it.
	MaxReplay = 64 << 10
	// smallReplay is the size of the buffer for bodies that are that short.
	smallReplay = 4 << 10
	// maxReplays bounds the bytes of buffers that are kept in all, and maxAccountReplays the bytes
	// that are kept for the requests of one account.
	maxReplays        = 64 << 20
	maxAccountReplays = maxReplays / 2
)

// replays are the buffers of all Replays of a Pools.
type replays struct {
	used     atomic.Int64 // bytes of buffers in use
	accounts sync.Map     // maps an account to an *atomic.Int64 with its share of used
	small    sync.Pool    // of *[smallReplay]byte
	large    sync.Pool    // of *[MaxReplay]byte
}

// of returns what is in use for an account.
func (r *replays) of(account string) *atomic.Int64 {
	if n, ok := r.accounts.Load(account); ok {
		return n.(*atomic.Int64)
	}
	n, _ := r.accounts.LoadOrStore(account, new(atomic.Int64))
	return n.(*atomic.Int64)
}

// take counts n bytes of an account. It reports false if there is no room for them.
func (r *replays) take(account *atomic.Int64, n int64) bool {
	all, own := r.used.Add(n), account.Add(n)
	if all > maxReplays || own > maxAccountReplays {
		r.give(account, n)
		return false
	}
	return true
}

func (r *replays) give(account *atomic.Int64, n int64) {
	r.used.Add(-n)
	account.Add(-n)
}

// Replay keeps a request's body while it is sent, so that it can be sent again. It gives up when the
// body exceeds MaxReplay bytes, or when too many bytes are kept for other requests.
// Its zero value keeps nothing. It is not safe for concurrent use.
type Replay struct {
	all     *replays // nil if nothing is kept
	account *atomic.Int64
	small   *[smallReplay]byte
	large   *[MaxReplay]byte
	n       int
}

// Begin begins to keep a body that goes to the server of p.
func (r *Replay) Begin(p *H2Pool) { r.all, r.account = &p.owner.replays, p.replays }

// BeginPlain is Begin for a body that goes over HTTP/1.1.
func (r *Replay) BeginPlain(p *H1Pool) {
	r.all = &p.owner.replays
	r.account = r.all.of(p.origin.Account)
}

// Add keeps a further part of the body.
func (r *Replay) Add(b []byte) {
	if r.all == nil || len(b) == 0 {
		return
	}
	if !r.grow(r.n + len(b)) {
		r.Drop()
		return
	}
	r.n += copy(r.buffer()[r.n:], b)
}

// Bytes returns the body as far as it was added. ok is false if a part of it was not kept. The bytes
// are valid until Drop.
func (r *Replay) Bytes() (b []byte, ok bool) { return r.buffer()[:r.n], r.all != nil }

// Drop frees the memory and keeps nothing more.
func (r *Replay) Drop() {
	if r.all == nil {
		return
	}
	switch {
	case r.large != nil:
		r.all.large.Put(r.large)
		r.all.give(r.account, MaxReplay)
	case r.small != nil:
		r.all.small.Put(r.small)
		r.all.give(r.account, smallReplay)
	}
	*r = Replay{}
}

func (r *Replay) buffer() []byte {
	switch {
	case r.large != nil:
		return r.large[:]
	case r.small != nil:
		return r.small[:]
	}
	return nil
}

// grow makes room for n bytes in total. It reports false if that is not possible.
func (r *Replay) grow(n int) bool {
	all, account := r.all, r.account
	switch {
	case n <= len(r.buffer()):
		return true
	case n > MaxReplay:
		return false
	case n <= smallReplay:
		if !all.take(account, smallReplay) {
			return false
		}
		var ok bool
		if r.small, ok = all.small.Get().(*[smallReplay]byte); !ok {
			r.small = new([smallReplay]byte)
		}
		return true
	}
	if !all.take(account, MaxReplay) {
		return false
	}
	large, ok := all.large.Get().(*[MaxReplay]byte)
	if !ok {
		large = new([MaxReplay]byte)
	}
	if r.small != nil {
		copy(large[:], r.small[:r.n])
		all.small.Put(r.small)
		all.give(account, smallReplay)
		r.small = nil
	}
	r.large = large
	return true
}
