package ratelimit

import (
	"encoding/binary"
	"sync/atomic"
)

// shards is the number of shards of a set of buckets or daily counts.
const shards = 16

// node is one entry of an index. Its address never changes.
type node[V any] struct {
	key   [16]byte
	value V
}

// index is a hash table of nodes by key, with open addressing. Readers take no lock;
// writers hold the shard's lock. Nodes are never removed from an index: a smaller index
// replaces it.
type index[V any] struct {
	slots []atomic.Pointer[node[V]] // a power of two; at least a quarter are nil
	count int
}

func newIndex[V any](count int) index[V] {
	size := 8
	for size*3 < count*4+4 {
		size *= 2
	}
	return index[V]{slots: make([]atomic.Pointer[node[V]], size)}
}

// find returns the node of k, whose hash is h, or nil.
func (x *index[V]) find(h uint64, k *[16]byte) *node[V] {
	mask := uint64(len(x.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		n := x.slots[i].Load()
		if n == nil || n.key == *k {
			return n
		}
	}
}

// full reports whether one more node needs a larger index.
func (x *index[V]) full() bool { return (x.count+1)*4 > len(x.slots)*3 }

// add adds a node whose key is not in the index. The index must not be full.
func (x *index[V]) add(n *node[V]) {
	mask := uint64(len(x.slots) - 1)
	i := hash(&n.key) & mask
	for x.slots[i].Load() != nil {
		i = (i + 1) & mask
	}
	x.slots[i].Store(n)
	x.count++
}

// each calls f for every node.
func (x *index[V]) each(f func(n *node[V])) {
	for i := range x.slots {
		if n := x.slots[i].Load(); n != nil {
			f(n)
		}
	}
}

// with returns an index of those nodes of x for which keep returns true, with room for one
// more.
func (x *index[V]) with(keep func(n *node[V]) bool) index[V] {
	kept := 0
	x.each(func(n *node[V]) {
		if keep(n) {
			kept++
		}
	})
	smaller := newIndex[V](kept + 1)
	x.each(func(n *node[V]) {
		if keep(n) {
			smaller.add(n)
		}
	})
	return smaller
}

// hash hashes the key of a node: the low bits choose a slot, the top bits a shard.
func hash(k *[16]byte) uint64 {
	const odd1, odd2 = 0x9e3779b97f4a7c15, 0xd6e8feb86659fd93
	h := binary.LittleEndian.Uint64(k[:8])*odd1 ^ binary.LittleEndian.Uint64(k[8:])
	h ^= h >> 32
	h *= odd2
	return h ^ h>>29
}

// shardOf returns the shard of a hash.
func shardOf(h uint64) uint64 { return h >> 60 }

// keepAll keeps every node.
func keepAll[V any](*node[V]) bool { return true }
