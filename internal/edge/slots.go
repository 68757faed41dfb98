package edge

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"
)

// slots counts open connections, in all and by address.
type slots struct {
	max, maxEach int64
	open         atomic.Int64
	shards       [shards]shard
}

const shards = 64 // a power of two

type shard struct {
	mu     sync.Mutex
	counts map[block]int64
	_      [48]byte // so that two do not share a line of the cache
}

// block is what counts as one address: an IPv4 address, or an IPv6 network of
// 64 bits, which is what one customer has at least.
type block struct {
	bits uint64
	four bool
}

func blockOf(a netip.Addr) block {
	if a = a.Unmap(); a.Is4() {
		b := a.As4()
		return block{uint64(binary.BigEndian.Uint32(b[:])), true}
	}
	b := a.As16()
	return block{binary.BigEndian.Uint64(b[:]), false}
}

func newSlots(total, each int) *slots {
	s := &slots{max: int64(total), maxEach: int64(each)}
	for i := range s.shards {
		s.shards[i].counts = map[block]int64{}
	}
	return s
}

// take takes one of all slots; false if none is left.
func (s *slots) take() bool {
	if s.open.Add(1) > s.max {
		s.open.Add(-1)
		return false
	}
	return true
}

func (s *slots) give() { s.open.Add(-1) }

// takeOf takes one of the slots of b; false if none is left.
func (s *slots) takeOf(b block) bool {
	sh := s.shard(b)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	n := sh.counts[b]
	if n >= s.maxEach {
		return false
	}
	sh.counts[b] = n + 1
	return true
}

func (s *slots) giveOf(b block) {
	sh := s.shard(b)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if n := sh.counts[b]; n > 1 {
		sh.counts[b] = n - 1
	} else {
		delete(sh.counts, b)
	}
}

func (s *slots) shard(b block) *shard {
	// The high bits of the product depend on all bits of the address.
	return &s.shards[(b.bits*0x9e3779b97f4a7c15)>>58&(shards-1)]
}
