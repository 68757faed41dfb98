package ratelimit

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// Buckets is a set of buckets of one limit, one for each key (per: key) or for each address. A bucket is
// created on first use and dropped by Sweep when it is full again. It is safe for
// concurrent use.
type Buckets struct {
	sharing   *Sharing               // nil for buckets of this node alone
	name      Name                   // of each, except for its Key
	budget    *AccountBudget         // what the buckets count towards; may be nil
	params    atomic.Pointer[Params] // those in force
	shards    [shards]bucketShard
	addresses *[shards]addressShard // nil if there is a bucket for each key
}

type bucketShard struct {
	mu      sync.Mutex                 // held to change the index, not to read it
	current atomic.Pointer[generation] // nil without buckets: most routes of a large table are rarely used
	counted int64                      // bytes that were counted towards the budget
	refunds int64                      // bytes for what was given back, as the last sweep found them
	dropped bool                       // by Drop
}

// The bytes of a bucket, the bytes that it has in addition if nodes share it, and the bytes of a shard's generation.
const (
	bucketSize     = int64(unsafe.Sizeof(node[Bucket]{}))
	sharedSize     = int64(unsafe.Sizeof(Lease{}) + unsafe.Sizeof(shadow{}))
	generationSize = int64(unsafe.Sizeof(generation{}))
	slotSize       = int64(unsafe.Sizeof(uintptr(0)))
)

// generation is the buckets of one shard that have the same parameters.
type generation struct {
	params  *Params
	since   int64 // when params came into force, in nanoseconds of Instant.Mono
	buckets index[Bucket]
	// older has the buckets that have not been converted since the last change of
	// parameters. It is guarded by the shard's mutex.
	older *generation
}

// NewBuckets returns an empty set of buckets with the parameters p, of this node alone. They count
// towards budget, which may be nil.
func NewBuckets(p *Params, budget *AccountBudget) *Buckets {
	return (*Sharing)(nil).NewBuckets(Name{}, p, budget)
}

// NewBuckets returns an empty set of buckets with the parameters p. Each has the given name, with
// its key, and counts towards budget, which may be nil.
func (s *Sharing) NewBuckets(n Name, p *Params, budget *AccountBudget) *Buckets {
	b := &Buckets{sharing: s, name: n, budget: budget}
	b.params.Store(p)
	return b
}

// Bucket returns the bucket of the key whose bucket is identified by k, and its parameters. The bucket
// is nil if the key has none and the budget has no room for it. Bucket allocates only to create the
// bucket.
func (b *Buckets) Bucket(k [16]byte) (*Params, *Bucket) {
	h := hash(&k)
	s := &b.shards[shardOf(h)]
	if g := s.current.Load(); g != nil {
		if n := g.buckets.find(h, &k); n != nil && n.value.state.Load() != closed {
			return g.params, &n.value
		}
	}
	return b.bucket(s, k)
}

// droppedBucket returns the bucket of a key after Drop: decisions with it return Stale.
func droppedBucket() *Bucket {
	b := new(Bucket)
	b.state.Store(closed)
	return b
}

// bucket finds or creates the bucket of k, under the lock.
func (b *Buckets) bucket(s *bucketShard, k [16]byte) (*Params, *Bucket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped {
		return b.params.Load(), droppedBucket()
	}
	if p, one := b.existing(s, k); one != nil {
		return p, one
	}
	if !b.budget.fits(b.sizeOfOne()) {
		return nil, nil
	}
	return b.create(s, k)
}

// existing returns the bucket of k, which it moves from an older generation if it is there; nil if there is
// none. The caller holds the lock.
func (b *Buckets) existing(s *bucketShard, k [16]byte) (*Params, *Bucket) {
	g := s.current.Load()
	if g == nil {
		return nil, nil
	}
	h := hash(&k)
	if n := g.buckets.find(h, &k); n != nil {
		return g.params, &n.value
	}
	for o := g.older; o != nil; o = o.older {
		before := o.buckets.find(h, &k)
		if before == nil {
			continue
		}
		n := &node[Bucket]{key: k}
		if g.takeOver(o, &before.value.bucketState, &n.value.bucketState) {
			n.value.inherit(&before.value, g)
			g = s.add(n)
			b.count(s)
			return g.params, &n.value
		}
	}
	return nil, nil
}

// create creates the bucket of k, which does not exist. The caller holds the lock.
func (b *Buckets) create(s *bucketShard, k [16]byte) (*Params, *Bucket) {
	g := s.current.Load()
	if g == nil {
		g = &generation{params: b.params.Load(), buckets: newIndex[Bucket](0)}
		s.current.Store(g)
	}
	n := &node[Bucket]{key: k}
	if b.sharing != nil {
		name := b.name
		name.Key = k
		n.value.lease = b.sharing.newLease(name, &n.value, g.params)
	}
	defer b.count(s)
	return s.add(n).params, &n.value
}

// sizeOfOne returns the bytes of a bucket without its slot.
func (b *Buckets) sizeOfOne() int64 {
	if b.sharing != nil {
		return bucketSize + sharedSize
	}
	return bucketSize
}

// count counts the bytes of s towards the budget. The caller holds the lock.
func (b *Buckets) count(s *bucketShard) {
	size := s.refunds
	for g := s.current.Load(); g != nil; g = g.older {
		size += generationSize + int64(len(g.buckets.slots))*slotSize + int64(g.buckets.count)*b.sizeOfOne()
	}
	b.budget.add(size - s.counted)
	s.counted = size
}

// inherit makes b, which has taken over the state of before, take over its lease under the parameters of g.
func (b *Bucket) inherit(before *Bucket, g *generation) {
	if before.lease != nil {
		b.lease = before.lease.succeed(b, g.params, Instant{Mono: g.since})
	}
}

// takeOver makes b, which is new, the state in g of the bucket before of the older generation o, as if every change
// between them had converted the bucket at once. It reports false if before is closed.
func (g *generation) takeOver(o *generation, before, b *bucketState) bool {
	if g.older != o {
		between := new(bucketState)
		if !g.older.takeOver(o, before, between) {
			return false
		}
		before, o = between, g.older
	}
	return before.handOver(b, o.params, g.params, g.since)
}

// add puts n into the current generation and returns that. The caller holds the lock.
func (s *bucketShard) add(n *node[Bucket]) *generation {
	g := s.current.Load()
	if !g.buckets.full() {
		g.buckets.add(n)
		return g
	}
	larger := &generation{params: g.params, since: g.since, buckets: g.buckets.with(keepAll[Bucket]), older: g.older}
	larger.buckets.add(n)
	s.current.Store(larger)
	return larger
}

// Configure sets the parameters of all buckets to p from now on. Each bucket keeps what is
// used of it, as Bucket.Convert does; the work is done at its next use or by Sweep.
func (b *Buckets) Configure(p *Params, now Instant) {
	b.params.Store(p) // before the shards: a shard without buckets gets its parameters from here
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		if g := s.current.Load(); g != nil && *g.params != *p {
			s.current.Store(&generation{params: p, since: now.Mono, buckets: newIndex[Bucket](0), older: g})
			b.count(s)
		}
		s.mu.Unlock()
	}
}

// Drop drops all buckets, of a limit that is not in force any more. Decisions that still use them
// return Stale, so publish a configuration without the limit first.
func (b *Buckets) Drop() {
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		for g := s.current.Load(); g != nil; g = g.older {
			g.buckets.each(func(n *node[Bucket]) {
				n.value.state.Store(closed)
				n.value.closeLease()
			})
		}
		s.dropped, s.refunds = true, 0
		s.current.Store(nil)
		b.recount(i)
		b.count(s)
		s.mu.Unlock()
	}
}

// sweepGrace is how long, in nanoseconds, a bucket must have been full before Sweep drops
// it, so that a decision at a slightly earlier instant does not find a fuller one.
const sweepGrace = second

// Sweep drops every bucket that has been full for a second, and every bucket of this node alone whose
// key has ended: the key was revoked so long ago that no decision still uses it. A bucket that nodes
// share stays until it is full, as it does in the limit store. Call Sweep about once a minute. A
// decision that uses a dropped bucket returns Stale.
func (b *Buckets) Sweep(now Instant, ended map[[16]byte]bool) {
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		s.sweep(now, ended)
		b.recount(i)
		b.count(s)
		s.mu.Unlock()
	}
}

// sweep is called under the lock.
func (s *bucketShard) sweep(now Instant, ended map[[16]byte]bool) {
	s.refunds = 0
	g := s.current.Load()
	if g == nil {
		return
	}
	hasEnded := func(n *node[Bucket]) bool { return n.value.lease == nil && len(ended) > 0 && ended[n.key] }
	for o := g.older; o != nil; o = o.older {
		o.buckets.each(func(n *node[Bucket]) {
			if hasEnded(n) {
				n.value.state.Store(closed)
			}
			if !isOpen(n) {
				return
			}
			moved := &node[Bucket]{key: n.key}
			switch {
			case !g.takeOver(o, &n.value.bucketState, &moved.value.bucketState):
			case g.params.used(moved.value.state.Load(), now.Mono-sweepGrace) == 0 && n.value.idle(now.Mono):
				n.value.closeLease()
			default:
				moved.value.inherit(&n.value, g)
				g = s.add(moved)
			}
		})
	}
	g.older = nil

	dropped := 0
	at := g.params.unitsAt(now.Mono - sweepGrace)
	g.buckets.each(func(n *node[Bucket]) {
		word := n.value.state.Load()
		switch {
		case word == closed:
			dropped++
		case hasEnded(n):
			n.value.state.Store(closed)
			dropped++
		case word <= at && n.value.idle(now.Mono) && n.value.state.CompareAndSwap(word, closed):
			n.value.closeLease()
			dropped++
		default:
			s.refunds += n.value.refundBytes()
		}
	})
	switch {
	case dropped == g.buckets.count:
		s.current.Store(nil)
	case dropped > 0:
		s.current.Store(&generation{params: g.params, since: g.since, buckets: g.buckets.with(isOpen)})
	}
}

func isOpen(n *node[Bucket]) bool { return n.value.state.Load() != closed }

// refundBytes returns the memory that refunds take, including refunds in this node's share.
func (b *Bucket) refundBytes() int64 {
	n := b.bucketState.refundBytes()
	if b.lease != nil {
		if s := b.lease.shadow.Load(); s != nil {
			n += s.refundBytes()
		}
	}
	return n
}

// idle reports whether the bucket has no lease, or a lease with nothing to do.
func (b *Bucket) idle(mono int64) bool { return b.lease == nil || b.lease.idle(mono) }

// closeLease closes the lease of a closed bucket, if it has one.
func (b *Bucket) closeLease() {
	if b.lease != nil {
		b.lease.close()
	}
}
