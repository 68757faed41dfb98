package ratelimit

import (
	"sync"
	"sync/atomic"
)

// Buckets gives each key its own bucket of one limit (per: key), made at its
// first use and dropped by Sweep when it is full again. It is safe for concurrent use.
type Buckets struct {
	shards [shards]bucketShard
}

type bucketShard struct {
	mu      sync.Mutex // held to change the index, not to look up
	current atomic.Pointer[generation]
}

// generation is the buckets of one shard that hold to the same parameters.
type generation struct {
	params  *Params
	buckets index[Bucket]
	// older is what stood before the last change of parameters and has not been
	// converted. It is guarded by the shard's mutex.
	older *generation
}

// NewBuckets returns an empty set whose buckets hold to p.
func NewBuckets(p *Params) *Buckets {
	b := new(Buckets)
	for i := range b.shards {
		b.shards[i].current.Store(&generation{params: p, buckets: newIndex[Bucket](0)})
	}
	return b
}

// Bucket returns the bucket of the key whose bucket identity is k, with the parameters
// that it holds to. It allocates only when it makes the bucket.
func (b *Buckets) Bucket(now Instant, k [16]byte) (*Params, *Bucket) {
	h := hash(&k)
	s := &b.shards[shardOf(h)]
	g := s.current.Load()
	if n := g.buckets.find(h, &k); n != nil && n.value.state.Load() != closed {
		return g.params, &n.value
	}
	return s.bucket(now, h, k)
}

// bucket finds or makes the bucket of k under the lock.
func (s *bucketShard) bucket(now Instant, h uint64, k [16]byte) (*Params, *Bucket) {
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
			n.value.state.Store(convert(o.params, g.params, word, now))
			break
		}
	}
	return s.add(n).params, &n.value
}

// add puts n into the current generation, which it returns. The lock is held.
func (s *bucketShard) add(n *node[Bucket]) *generation {
	g := s.current.Load()
	if !g.buckets.full() {
		g.buckets.add(n)
		return g
	}
	larger := &generation{params: g.params, buckets: g.buckets.with(keepAll[Bucket]), older: g.older}
	larger.buckets.add(n)
	s.current.Store(larger)
	return larger
}

// Configure makes b hold to p from now on, each bucket with its level in
// proportion: a bucket is converted at its next use or by Sweep.
func (b *Buckets) Configure(p *Params) {
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		if g := s.current.Load(); *g.params != *p {
			s.current.Store(&generation{params: p, buckets: newIndex[Bucket](0), older: g})
		}
		s.mu.Unlock()
	}
}

// sweepGrace is how long, in nanoseconds, a bucket must have been full before Sweep drops
// it, so that a decision by an instant read a little earlier finds no fuller one.
const sweepGrace = second

// Sweep drops every bucket that has been full for a second. Call it now and
// then, about once a minute. Whoever holds a bucket that is dropped gets Stale from it.
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
			if word == closed || o.params.used(word, now.Mono-sweepGrace) == 0 {
				return
			}
			moved := &node[Bucket]{key: n.key}
			moved.value.state.Store(convert(o.params, g.params, word, now))
			g = s.add(moved)
		})
	}
	g.older = nil

	dropped := 0
	at := g.params.unitsAt(now.Mono - sweepGrace)
	g.buckets.each(func(n *node[Bucket]) {
		if word := n.value.state.Load(); word <= at && n.value.state.CompareAndSwap(word, closed) {
			dropped++
		}
	})
	if dropped > 0 {
		s.current.Store(&generation{params: g.params, buckets: g.buckets.with(isOpen)})
	}
}

func isOpen(n *node[Bucket]) bool { return n.value.state.Load() != closed }
