package ratelimit

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/service"
)

// Mode is how nodes share token buckets.
type Mode string

// The modes.
const (
	Leased  Mode = "leased"  // a node is granted tokens ahead of use, and spends them without waiting
	Exact   Mode = "exact"   // the limit store makes every decision
	Divided Mode = "divided" // each node has a share of every limit
)

// OnLoss is what happens to limits while the limit store is lost.
type OnLoss string

// The kinds of OnLoss.
const (
	DivideOnLoss OnLoss = "divide" // as Divided
	RefuseOnLoss OnLoss = "refuse" // requests are refused
	AllowOnLoss  OnLoss = "allow"  // no limit applies
)

// Name names a shared bucket. Buckets of one account are kept together in the limit store.
type Name struct {
	Account string   // identifier
	Kind    id.Kind  // of the record that has the limit: a gateway, route, key or plan
	Owner   [16]byte // its identifier
	// Of says which of the limits of a plan it is; else it is nil.
	Of *PlanLimit
	// Key is the identifier of the key's bucket, for a limit with per: key, or of the subject of a plan's limit; else it
	// is zero.
	Key [16]byte
}

// PlanLimit is one limit of a plan, as a part of a Name.
type PlanLimit struct {
	Limit   string  // its name
	Subject id.Kind // what Name.Key identifies: id.Key or id.Owner
}

// String returns the name as a key of the limit store, whose part {account} decides the slot.
func (n *Name) String() string {
	s := "{" + n.Account + "}:" + id.Format(n.Kind, n.Owner)
	subject := id.Key
	if n.Of != nil {
		s += ":" + n.Of.Limit
		subject = n.Of.Subject
	}
	if n.Key != [16]byte{} {
		s += ":" + id.Format(subject, n.Key)
	}
	return s
}

// SharingConfig configures a Sharing.
type SharingConfig struct {
	Mode   Mode
	OnLoss OnLoss
	// Store is required unless Mode is Divided.
	Store LimitStore
	// Shares returns the share of this node. Nil means the whole. Call Sharing.Reshare when it
	// changes.
	Shares func() Share
	// Version returns the number of the last change of the configuration up to which every change
	// is in force on this node. Required with a Store.
	Version func() int64
	// CatchUp puts in force every change that was made before the call. Required with a Store.
	CatchUp func(ctx context.Context) error
	// Now must be the function by which limits are decided. Required.
	Now func() Instant
	// Log receives losses of the store. Nil discards them.
	Log *slog.Logger
}

// Sharing makes the token buckets of this node parts of buckets that all nodes share. It is safe
// for concurrent use. A nil *Sharing makes buckets of this node alone.
type Sharing struct {
	cfg   SharingConfig
	log   *slog.Logger
	share atomic.Uint64 // a Share: its Index in the upper half, its Of in the lower
	lost  atomic.Bool
	told  told

	queue atomic.Pointer[Lease] // the leases that ask for tokens, linked by next
	wake  service.Signal        // there is work to do

	mu       sync.Mutex
	stopped  bool
	loss     error           // why the store was lost last
	pending  []*trip         // trips that have not left, the oldest first
	indebted map[*Lease]bool // leases that have something to report
	shares   map[shareKey]*Params

	numbers  atomic.Int64  // the last number of a question or report
	catching chan struct{} // has a token while a goroutine catches up with the configuration
	group    service.Group
	stats    sharingStats
}

type shareKey struct {
	params Params
	share  Share
}

type sharingStats struct{ trips, pipelines, waits, granted, losses, late atomic.Int64 }

// SharingStats counts what a Sharing has done since its start.
type SharingStats struct {
	Trips      int64 // questions to the limit store
	RoundTrips int64 // pipelines in which they were sent
	Waits      int64 // requests that waited for an answer
	Granted    int64 // tokens that were granted ahead of use
	Losses     int64 // how often the store was lost
	Late       int64 // requests that waited for an answer and were decided without it
}

// NewSharing returns a Sharing that is not started. It is an error if a field of cfg is missing.
func NewSharing(cfg SharingConfig) (*Sharing, error) {
	switch {
	case cfg.Now == nil:
		return nil, errors.New("ratelimit: SharingConfig.Now is required")
	case cfg.Mode != Divided && (cfg.Store == nil || cfg.Version == nil || cfg.CatchUp == nil):
		return nil, errors.New("ratelimit: SharingConfig.Store, Version and CatchUp are required unless limits are divided")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Sharing{
		cfg: cfg, log: cfg.Log, wake: service.NewSignal(), catching: make(chan struct{}, 1),
		indebted: map[*Lease]bool{}, shares: map[shareKey]*Params{},
	}
	s.Reshare()
	return s, nil
}

// NewBucket returns the bucket of this node with the given name and parameters, full.
func (s *Sharing) NewBucket(n Name, p *Params) *Bucket {
	b := new(Bucket)
	if s != nil {
		b.lease = s.newLease(n, b, p)
	}
	return b
}

func (s *Sharing) newLease(n Name, b *Bucket, p *Params) *Lease {
	e := &Lease{sharing: s, name: n, bucket: b, params: p}
	e.divide(false)
	return e
}

// Divide sets whether each node has a share of the bucket whatever the mode.
func (b *Bucket) Divide(divided bool) {
	if e := b.lease; e != nil {
		e.divide(divided)
	}
}

// divide sets whether each node has a share, as it has of a rate that the limit store cannot compute with.
func (e *Lease) divide(divided bool) {
	t := e.params.take("", 0, 0)
	e.divided.Store(divided || e.sharing.cfg.Mode == Divided || t.Count > maxTakeCount || t.Per > maxTakePer)
}

// Share returns the share of this node.
func (s *Sharing) Share() Share {
	packed := s.share.Load()
	return Share{Index: int(packed >> 32), Of: int(packed & (1<<32 - 1))}
}

// Reshare puts in force what SharingConfig.Shares returns now.
func (s *Sharing) Reshare() {
	share := Share{Of: 1}
	if s.cfg.Shares != nil {
		share = s.cfg.Shares()
	}
	s.share.Store(uint64(share.Index)<<32 | uint64(share.Of))
}

// Lost reports whether the limit store cannot be used at present.
func (s *Sharing) Lost() bool { return s.lost.Load() }

// StoreAway is the result of Trouble while the limit store is lost.
const StoreAway = "limit_store_away"

// Trouble returns StoreAway while the limit store is lost, or "". It takes a nil s.
func (s *Sharing) Trouble() string {
	if s == nil || !s.Lost() {
		return ""
	}
	return StoreAway
}

// Mode returns how buckets are shared. It takes a nil s, and returns "" then.
func (s *Sharing) Mode() Mode {
	if s == nil {
		return ""
	}
	return s.cfg.Mode
}

// Stats returns the present counts. It takes a nil s.
func (s *Sharing) Stats() SharingStats {
	if s == nil {
		return SharingStats{}
	}
	n := &s.stats
	return SharingStats{n.trips.Load(), n.pipelines.Load(), n.waits.Load(), n.granted.Load(), n.losses.Load(), n.late.Load()}
}

// maxShares bounds the number of parameters of shares that are kept. Beyond it, kept parameters are dropped
// and computed again.
const maxShares = 10_000

// shareOf returns the parameters of a share, one copy for all limits that are alike.
func (s *Sharing) shareOf(p *Params, share Share) *Params {
	if share.Of <= 1 {
		return p
	}
	k := shareKey{*p, share}
	s.mu.Lock()
	defer s.mu.Unlock()
	if made := s.shares[k]; made != nil {
		return made
	}
	if len(s.shares) >= maxShares {
		clear(s.shares)
	}
	made := p.share(share)
	s.shares[k] = &made
	return &made
}

// enqueue asks for tokens for e, without waiting. It neither blocks nor allocates.
func (s *Sharing) enqueue(e *Lease) {
	if e.queued.Swap(true) {
		return
	}
	for {
		head := s.queue.Load()
		e.next = head
		if s.queue.CompareAndSwap(head, e) {
			break
		}
	}
	s.wake.Notify()
}

// owe counts a request of the given amount that was admitted by e while the store was lost.
func (s *Sharing) owe(e *Lease, amount, mono int64) owed {
	e.mu.Lock()
	e.debt.add(amount, mono, e.params.window)
	o := owed{mono, e.debt.number}
	e.mu.Unlock()
	s.mu.Lock()
	s.indebted[e] = true
	s.mu.Unlock()
	if !s.Lost() { // a request that was decided without the answer: report it soon
		s.enqueue(e)
	}
	return o
}

// giveBack gives back to the store an amount that it has charged to e with the answer a, which may be nil.
func (s *Sharing) giveBack(e *Lease, amount int64, a *answer, mono int64) {
	if a == nil {
		return
	}
	e.mu.Lock()
	if e.tokens.Load() == closed {
		e.mu.Unlock()
		return
	}
	e.debt.give(amount, a)
	e.mu.Unlock()
	s.mu.Lock()
	s.indebted[e] = true
	s.mu.Unlock()
	e.lower(amount, mono)
	if !s.Lost() {
		s.enqueue(e)
	}
}

// lower lowers the level that the store has returned by an amount, until the store returns a new one.
func (e *Lease) lower(amount, mono int64) {
	units := e.params.unitsOf(amount)
	for {
		word := e.bucket.state.Load()
		used := e.params.used(word, mono)
		if word == closed || used == 0 || e.bucket.state.CompareAndSwap(word, word-min(used, units)) {
			return
		}
	}
}

// succeeded notes that c takes over from e.
func (s *Sharing) succeeded(e, c *Lease) {
	s.mu.Lock()
	if s.indebted[e] {
		delete(s.indebted, e)
		s.indebted[c] = true
	}
	s.mu.Unlock()
}

// join returns the trip on which a request with the given legs goes, and its number there.
func (s *Sharing) join(legs []leg) (*trip, int64) {
	if s.cfg.Mode == Exact {
		r := newTrip(legs)
		r.requests = 1
		return r, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.pend(legs)
	r.requests++
	s.wake.Notify()
	return r, r.requests - 1
}

// pend returns the trip with the given legs that has not left yet. The caller holds the lock.
func (s *Sharing) pend(legs []leg) *trip {
	first := legs[0].lease
	for _, r := range first.pending {
		if slices.EqualFunc(r.legs, legs, func(a, b leg) bool { return a.lease == b.lease && a.amount == b.amount }) {
			return r
		}
	}
	r := newTrip(legs)
	first.pending = append(first.pending, r)
	s.pending = append(s.pending, r)
	return r
}

// pendAlone makes a trip with the one leg e, on which no request goes unless one joins. The caller holds the lock.
func (s *Sharing) pendAlone(e *Lease) { s.pend([]leg{{lease: e, amount: 1}}) }

// wait waits for the answer to t.
func (s *Sharing) wait(ctx context.Context, t *ticket) error {
	if s.Lost() {
		return s.lostErr()
	}
	s.stats.waits.Add(1)
	if s.cfg.Mode == Exact {
		now, one := s.cfg.Now(), []*trip{t.trip}
		s.travel(one, s.questions(one, now), now)
	}
	left := time.Duration(t.began + int64(waitTimeout) - s.cfg.Now().Mono)
	timer := time.NewTimer(max(0, left))
	defer timer.Stop()
	select {
	case <-t.trip.done:
	case <-timer.C:
		t.late = !t.trip.answered()
	case <-ctx.Done():
		return ctx.Err()
	}
	switch {
	case t.late:
		s.stats.late.Add(1)
		return s.lostErr()
	case t.trip.err != nil:
		return s.lostErr()
	case t.trip.behind:
		return s.catchUp(ctx, t.trip)
	}
	return nil
}

// lostErr returns the error of a request while the store is lost: nil unless requests are then
// refused.
func (s *Sharing) lostErr() error {
	if s.cfg.OnLoss != RefuseOnLoss {
		return nil
	}
	return fault.New(fault.Unavailable, "the rate limit cannot be counted at the moment: try again")
}
