package ratelimit

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// A leaseWord is the tokens of a shared bucket that were granted to this node and not spent.
//
//	bits  0–23  tokens
//	bits 24–63  the millisecond of Instant.Mono at which they lapse
type leaseWord = uint64

const (
	tokenBits = 24
	maxTokens = 1<<tokenBits - 1
	// grantLife is how long granted tokens may be spent, counted from before the call that asked for
	// them, in milliseconds.
	grantLife = 1000
)

func packLease(tokens, lapses int64) leaseWord {
	return uint64(lapses)<<tokenBits | uint64(min(tokens, maxTokens))
}

// tokensAt returns how many of the tokens in w may be spent at mono.
func tokensAt(w leaseWord, mono int64) int64 {
	if w == closed || uint64(mono/int64(time.Millisecond)) >= w>>tokenBits {
		return 0
	}
	return int64(w & maxTokens)
}

// Lease is this node's side of a bucket that nodes share. It holds tokens that the limit store
// has granted, which decisions spend without waiting, and the node's share of the limit, which
// decides if limits are divided or the store is lost. It belongs to one Bucket and its parameters.
type Lease struct {
	sharing *Sharing
	name    Name
	bucket  *Bucket
	params  *Params
	divided atomic.Bool // always decided by the share

	tokens atomic.Uint64          // a leaseWord
	shadow atomic.Pointer[shadow] // the node's share; nil until it is needed
	half   atomic.Int64           // with this many tokens left, more are asked for
	queued atomic.Bool            // it is in the queue of leases that ask for more
	next   *Lease                 // in the queue

	pending []*trip // the trips that have not left, beginning with this; guarded by Sharing.mu

	// origin is the answer of the store by which the oldest of the tokens was granted, or an earlier answer.
	// It changes before tokens does.
	origin atomic.Pointer[answer]

	mu     sync.Mutex
	debt   debt
	flying int     // trips that are on their way
	sent   int64   // when the last trip left, in nanoseconds of Instant.Mono; 0 for none
	asked  int64   // when the last trip left that asked for tokens ahead of use
	held   int64   // tokens that the node had when that trip returned
	newest int64   // how many of these that trip brought
	last   *answer // of the last one that granted tokens
	taken  int64   // tickets since it left
	heard  int64   // generation of the store that gave the last answer
	birth  int64   // of the bucket that it was about
}

// shadow is the share of a limit that a node has.
type shadow struct {
	share  Share
	params *Params
	bucketState
}

// check reads the lease into v and returns what it allows.
func (e *Lease) check(m *moment, t *ticket, v *view) finding {
	if t != nil {
		return t.check(e, m, v)
	}
	v.state, v.bucket, v.params, v.word = &e.tokens, nil, nil, e.tokens.Load()
	if v.word == closed {
		return isStale
	}
	if n := tokensAt(v.word, m.Mono); n >= v.amount && v.amount > 0 {
		v.next, v.few = v.word-uint64(v.amount), n-v.amount < scarce
		return passes
	}
	switch {
	case e.divided.Load():
		return e.checkShadow(m, v)
	case e.sharing.Lost():
		return e.checkLost(m, v)
	case v.amount == 0:
		return e.checkNothing(m, v)
	case e.sharing.cfg.Mode == Leased:
		m.load(v, &e.bucket.bucketState, e.params)
		if f := e.params.check(v); f != passes {
			return f // no node can be granted a token until the bucket regains one
		}
	}
	v.state, v.bucket, v.params = nil, nil, nil
	return mustAsk
}

// checkNothing does what check does for an amount of 0, which is refused only while the bucket is below empty.
func (e *Lease) checkNothing(m *moment, v *view) finding {
	tokens := v.word
	m.load(v, &e.bucket.bucketState, e.params)
	if f := e.params.check(v); f != passes {
		return f
	}
	v.state, v.bucket, v.params, v.word, v.next = &e.tokens, nil, nil, tokens, tokens
	return passes
}

// checkLost does what check does, for a request that the limit store does not decide in time.
func (e *Lease) checkLost(m *moment, v *view) finding {
	f := e.checkShadow(m, v)
	switch {
	case e.sharing.cfg.OnLoss == RefuseOnLoss && f != isStale:
		v.state, v.bucket, v.params = nil, nil, nil
		return mustAsk // ticket.wait returns the error
	case e.sharing.cfg.OnLoss == AllowOnLoss && f == refuses: // it counts as far as the share reaches
		v.next, f = v.at+v.params.span, passes
	}
	return f
}

func (e *Lease) checkShadow(m *moment, v *view) finding {
	s := e.shadowAt(m.Instant)
	if !e.divided.Load() {
		m.advance() // past the last answer of the store
		e.inform(s, m.Instant)
	}
	m.load(v, &s.bucketState, s.params)
	return s.params.check(v)
}

// inform makes at least the same fraction of the share used as the store has said is used of the whole limit,
// so that the loss of a store whose bucket is empty does not give each node a full share. The share refills in
// proportion to the limit, so that while the store is lost only the first call has an effect.
func (e *Lease) inform(s *shadow, now Instant) {
	word := e.bucket.state.Load()
	if word == closed || s.params.span == 0 {
		return
	}
	used := min(e.params.used(word, now.Mono), e.params.span)
	if used == 0 {
		return
	}
	units := s.params.span
	if used < e.params.span {
		hi, lo := bits.Mul64(used, s.params.span)
		part, rest := bits.Div64(hi, lo, e.params.span)
		units = part + min(rest, 1)
	}
	s.raise(s.params.unitsAt(now.Mono) + units)
}

// raise raises the state to at least the given state. It leaves a closed bucket alone.
func (s *shadow) raise(least uint64) {
	for {
		word := s.state.Load()
		if word >= least || s.state.CompareAndSwap(word, least) { // closed is the greatest
			return
		}
	}
}

// shadowAt returns the node's present share.
func (e *Lease) shadowAt(now Instant) *shadow {
	share := e.sharing.Share()
	if s := e.shadow.Load(); s != nil && s.share == share {
		return s
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	old := e.shadow.Load()
	if old != nil && old.share == share {
		return old
	}
	s := &shadow{share: share, params: e.sharing.shareOf(e.params, share)}
	// Use counts in a smaller share too. The additional part of a larger share begins empty, because another
	// node may have used it.
	if old != nil {
		word := old.state.Swap(closed)
		if word == closed {
			return old // the lease is closed
		}
		used := min(old.params.used(word, now.Mono), old.params.span)
		left := old.params.requests(old.params.span - used)
		left = max(0, min(left, left+share.of(e.params.capacity)-old.share.of(e.params.capacity)))
		s.state.Store(s.params.unitsAt(now.Mono) + s.params.span - uint64(left)*s.params.cost)
	}
	e.shadow.Store(s)
	return s
}

// peek reads into v what a status needs.
func (e *Lease) peek(m *moment, v *view) {
	if !e.divided.Load() && (!e.sharing.Lost() || e.sharing.cfg.OnLoss == RefuseOnLoss) {
		v.state, v.bucket, v.params = nil, nil, nil
		return
	}
	if e.checkShadow(m, v); v.word == closed {
		v.word = 0
	}
	v.next = v.word
}

// fillStatus fills s with the level of the cluster as far as it is known here: what the store has
// said, and the granted tokens that this node still holds.
func (e *Lease) fillStatus(s *Status, m *moment, tokens leaseWord) {
	word := e.bucket.state.Load()
	if word == closed {
		word = 0
	}
	at := e.params.unitsAt(m.Mono)
	if word > at {
		m.advance()
		at = e.params.unitsAt(m.Mono)
	}
	if held := uint64(tokensAt(tokens, m.Mono)) * e.params.cost; word > at {
		word -= min(word-at, held)
	}
	e.params.fillStatus(s, word, at, m.Wall)
}

// charged does what follows a decision that has charged the lease, by the ticket t or without one.
func (e *Lease) charged(now Instant, v *view, t *ticket) {
	switch {
	case v.bucket == nil && v.state == nil:
		v.kind, v.answer = toStore, t.answerOf(e)
	case v.bucket == nil:
		v.kind, v.answer = toStore, e.origin.Load()
		if a := v.answer; a != nil && a.lapses > v.word>>tokenBits { // of a later answer than the token, perhaps
			v.answer = nil
		}
		if int64(v.next&maxTokens) <= e.half.Load() {
			e.sharing.enqueue(e)
		}
	default:
		v.kind, v.answer = toShare, nil
		if v.next-max(v.word, v.at) != v.units() { // the share was used up
			v.bucket = nil
		}
		if !e.divided.Load() {
			v.kind = toShareAndStore
			v.owed = e.sharing.owe(e, v.amount, now.Mono)
		}
	}
}

// giveBack takes back the charge in v of a request that was admitted and did not reach its upstream.
func (e *Lease) giveBack(v *view, l *Limiter) {
	if v.kind == toStore {
		e.payBack(v, v.answer, l.mono())
		return
	}
	if v.bucket != nil {
		back := *v // which giveBack may change
		l.giveBack(&back)
	}
	if v.kind == toShareAndStore {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.debt.forgive(v.owed, v.amount, l.mono(), e.params.window)
	}
}

// payBack gives back the tokens that v was charged, for which the limit store gave the answer a. If v has spent tokens
// of this node, they go back to these; otherwise they go to the store.
func (e *Lease) payBack(v *view, a *answer, mono int64) {
	if v.state == nil || !e.keepTokens(v.word, v.amount, a, mono) {
		e.sharing.giveBack(e, v.amount, a, mono)
	}
}

// keepTokens puts back n tokens that were spent when the tokens were in the state spent, and reports true. If the
// store has learned since that they are spent, or is about to, it reports false: other tokens have then been granted,
// the bucket may have regained a part of the charge, and only the store knows what the tokens are still worth.
func (e *Lease) keepTokens(spent leaseWord, n int64, a *answer, mono int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		w := e.tokens.Load()
		if w == closed || uint64(mono/int64(time.Millisecond)) >= w>>tokenBits || w>>tokenBits != spent>>tokenBits || int64(w&maxTokens)+n > e.held || e.flying > 0 {
			return false
		}
		if a.isBefore(e.origin.Load()) { // the returned token is the oldest now, and is spent first
			e.origin.Store(a.until(w >> tokenBits))
			e.newest = 0
		}
		if e.tokens.CompareAndSwap(w, w+uint64(n)) {
			return true
		}
	}
}

// succeed closes e and returns the lease of the bucket that takes over, with the parameters p. It
// has no tokens: the tokens of a changed limit are dropped. The share keeps what was used.
func (e *Lease) succeed(b *Bucket, p *Params, now Instant) *Lease {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tokens.Store(closed)
	c := &Lease{sharing: e.sharing, name: e.name, bucket: b, params: p, debt: e.debt}
	c.debt.gifts, c.debt.sent = nil, nil // of a limit that was changed
	c.divide(e.divided.Load())
	e.debt = debt{}
	if old := e.shadow.Load(); old != nil {
		s := &shadow{share: old.share, params: e.sharing.shareOf(p, old.share)}
		old.replaceBy(&s.bucketState, old.params, s.params, now.Mono)
		c.shadow.Store(s)
	}
	e.sharing.succeeded(e, c)
	return c
}

// idle reports whether nothing would be lost if the lease was dropped.
func (e *Lease) idle(mono int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.shadow.Load()
	return tokensAt(e.tokens.Load(), mono) == 0 && e.flying == 0 && e.debt.isZero() &&
		(s == nil || s.params.used(s.state.Load(), mono-sweepGrace) == 0)
}

// close makes decisions that still use the lease return Stale.
func (e *Lease) close() {
	e.tokens.Store(closed)
	if s := e.shadow.Load(); s != nil {
		s.state.Store(closed)
	}
}

// ahead returns the most tokens of the bucket that all nodes together may hold unspent: 5 % of the
// capacity or 50 ms of refill, whichever is less. It is 0 if the capacity is below 0.4 s of refill.
func (p *Params) ahead() int64 {
	// capacity < 0.4 s × n/d ns
	hi, lo := bits.Mul64(uint64(p.capacity), p.d)
	if n := p.n * 400_000_000; hi == 0 && lo < n {
		return 0
	}
	return min(p.capacity/20, int64(p.n*50_000_000/p.d), maxTokens)
}
