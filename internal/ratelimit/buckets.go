package ratelimit

import (
	"sync"
	"sync/atomic"
)

// Buckets is a set of buckets of one limit, one for each key (per: key). A bucket is
// created on first use and dropped by Sweep when it is full again. It is safe for
// concurrent use.
type Buckets struct {
	sharing *Sharing // nil for buckets of this node alone
	name    Name     // of each, except for its Key
	shards  [shards]bucketShard
}

type bucketShard struct {
	mu      sync.Mutex // held to change the index, not to read it
	current atomic.Pointer[generation]
}

// generation is the buckets of one shard that have the same parameters.
type generation struct {
	params  *Params
	since   int64 // when params came into force, in nanoseconds of Instant.Mono
	buckets index[Bucket]
	// older has the buckets that have not been converted since the last change of
	// parameters. It is guarded by the shard's mutex.
	older *generation
}

// NewBuckets returns an empty set of buckets with the parameters p, of this node alone.
func NewBuckets(p *Params) *Buckets { return (*Sharing)(nil).NewBuckets(Name{}, p) }

// NewBuckets returns an empty set of buckets with the parameters p. Each has the given name, with
// its key.
func (s *Sharing) NewBuckets(n Name, p *Params) *Buckets {
	b := &Buckets{sharing: s, name: n}
	for i := range b.shards {
		b.shards[i].current.Store(&generation{params: p, buckets: newIndex[Bucket](0)})
	}
	return b
}

// Bucket returns the bucket of the key whose bucket is identified by k, and its parameters.
// It allocates only to create the bucket.
func (b *Buckets) Bucket(k [16]byte) (*Params, *Bucket) {
	h := hash(&k)
	s := &b.shards[shardOf(h)]
	g := s.current.Load()
	if n := g.buckets.find(h, &k); n != nil && n.value.state.Load() != closed {
		return g.params, &n.value
	}
	return b.bucket(s, h, k)
}

// bucket finds or creates the bucket of k, under the lock.
func (b *Buckets) bucket(s *bucketShard, h uint64, k [16]byte) (*Params, *Bucket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.current.Load()
	if n := g.buckets.find(h, &k); n != nil {
		return g.params, &n.value
	}
	n := &node[Bucket]{key: k}
	for o := g.older; o != nil; o = o.older {
		before := o.buckets.find(h, &k)
		if before == nil {
			continue
		}
		if word := before.value.state.Swap(closed); word != closed {
			n.value.inherit(&before.value, g, g.convert(o, word))
			break
		}
	}
	if b.sharing != nil && n.value.lease == nil {
		name := b.name
		name.Key = k
		n.value.lease = b.sharing.newLease(name, &n.value, g.params)
	}
	return s.add(n).params, &n.value
}

// inherit makes b take over from before, which is closed, in the state word under g.
func (b *Bucket) inherit(before *Bucket, g *generation, word uint64) {
	b.state.Store(word)
	if before.lease != nil {
		b.lease = before.lease.succeed(b, g.params, Instant{Mono: g.since})
	}
}

// convert returns the state in g of a bucket of the older generation o, as if every change
// between them had converted the bucket at once.
func (g *generation) convert(o *generation, word uint64) uint64 {
	if g.older != o {
		word, o = g.older.convert(o, word), g.older
	}
	return convert(o.params, g.params, word, g.since)
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
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		if g := s.current.Load(); *g.params != *p {
			s.current.Store(&generation{params: p, since: now.Mono, buckets: newIndex[Bucket](0), older: g})
		}
		s.mu.Unlock()
	}
}

// sweepGrace is how long, in nanoseconds, a bucket must have been full before Sweep drops
// it, so that a decision at a slightly earlier instant does not find a fuller one.
const sweepGrace = second

// Sweep drops every bucket that has been full for a second. Call it about once a minute. A
// decision that uses a dropped bucket returns Stale.
func (b *Buckets) Sweep(now Instant) {
	for i := range b.shards {
		b.shards[i].sweep(now)
	}
}

func (s *bucketShard) sweep(now Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.current.Load()
	for o := g.older; o != nil; o = o.older {
		o.buckets.each(func(n *node[Bucket]) {
			word := n.value.state.Swap(closed)
			if word == closed {
				return
			}
			if word = g.convert(o, word); g.params.used(word, now.Mono-sweepGrace) == 0 && n.value.idle(now.Mono) {
				n.value.closeLease()
				return
			}
			moved := &node[Bucket]{key: n.key}
			moved.value.inherit(&n.value, g, word)
			g = s.add(moved)
		})
	}
	g.older = nil

	dropped := 0
	at := g.params.unitsAt(now.Mono - sweepGrace)
	g.buckets.each(func(n *node[Bucket]) {
		if word := n.value.state.Load(); word <= at && n.value.idle(now.Mono) && n.value.state.CompareAndSwap(word, closed) {
			n.value.closeLease()
			dropped++
		}
	})
	if dropped > 0 {
		s.current.Store(&generation{params: g.params, since: g.since, buckets: g.buckets.with(isOpen)})
	}
}

func isOpen(n *node[Bucket]) bool { return n.value.state.Load() != closed }

// idle reports whether the bucket has no lease, or one that has nothing to do.
func (b *Bucket) idle(mono int64) bool { return b.lease == nil || b.lease.idle(mono) }

// closeLease closes the lease of a closed bucket, if it has one.
func (b *Bucket) closeLease() {
	if b.lease != nil {
		b.lease.close()
	}
}
