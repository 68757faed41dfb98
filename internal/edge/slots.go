package edge

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"
)

// slots counts the open connections and enforces the limits on them, in total and
// per address. It is safe for concurrent use.
type slots struct {
	max           int64
	maxPerAddress int64
	open          atomic.Int64
	shards        [shards]shard
}

const shards = 64 // a power of two

// shard holds the counts of some of the addresses.
type shard struct {
	mu     sync.Mutex
	counts map[Block]int64
	_      [48]byte // keeps neighbours out of the same cache line
}

// Block is the unit of the limit per address: one IPv4 address, or one IPv6 /64
// network, the least that a provider assigns to a customer.
type Block struct {
	bits uint64 // the IPv4 address, or the first 64 bits of the IPv6 address
	is4  bool
}

// BlockOf returns the block of an address.
func BlockOf(a netip.Addr) Block {
	if a = a.Unmap(); a.Is4() {
		b := a.As4()
		return Block{uint64(binary.BigEndian.Uint32(b[:])), true}
	}
	b := a.As16()
	return Block{binary.BigEndian.Uint64(b[:]), false}
}

func newSlots(total, perAddress int) *slots {
	s := &slots{max: int64(total), maxPerAddress: int64(perAddress)}
	for i := range s.shards {
		s.shards[i].counts = map[Block]int64{}
	}
	return s
}

// acquire takes a slot. It returns false if none is free.
func (s *slots) acquire() bool {
	if s.open.Add(1) > s.max {
		s.open.Add(-1)
		return false
	}
	return true
}

// release returns a slot that acquire took.
func (s *slots) release() { s.open.Add(-1) }

// acquireFor takes one of the slots of b. It returns false if none is free.
func (s *slots) acquireFor(b Block) bool {
	sh := s.shard(b)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	n := sh.counts[b]
	if n >= s.maxPerAddress {
		return false
	}
	sh.counts[b] = n + 1
	return true
}

// releaseFor returns a slot that acquireFor took.
func (s *slots) releaseFor(b Block) {
	sh := s.shard(b)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if n := sh.counts[b]; n > 1 {
		sh.counts[b] = n - 1
	} else {
		delete(sh.counts, b)
	}
}

func (s *slots) shard(b Block) *shard {
	// The high bits of the product depend on all bits of the address.
	return &s.shards[(b.bits*0x9e3779b97f4a7c15)>>58&(shards-1)]
}
