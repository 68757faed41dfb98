package edge

import (
	"net/netip"
	"testing"
)

// Guarantee: an IPv4 address is one block, whether written as IPv4 or as
// IPv4-mapped IPv6; all IPv6 addresses of one /64 network are one block.
func TestBlockOf(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
		{"2001:db8:1:2::1", "2001:db8:1:2:ffff::", true},
		{"2001:db8:1:2::1", "2001:db8:1:3::1", false},
		{"192.0.2.1", "::c000:201", false},
		{"0.0.0.0", "::", false},
	} {
		a, b := BlockOf(netip.MustParseAddr(tc.a)), BlockOf(netip.MustParseAddr(tc.b))
		if same := a == b; same != tc.same {
			t.Errorf("%s and %s: got blocks %v and %v, want the same block: %v", tc.a, tc.b, a, b, tc.same)
		}
	}
}

// Guarantee: consecutive addresses spread over all shards, each address has exactly
// its own slots, and nothing is stored for an address without connections.
func TestSlotsPerAddress(t *testing.T) {
	s := newSlots(10, 1)
	used := map[*shard]bool{}
	first := netip.MustParseAddr("10.0.0.0")
	for a, i := first, 0; i < 1000; a, i = a.Next(), i+1 {
		b := BlockOf(a)
		used[s.shard(b)] = true
		if !s.acquireFor(b) || s.acquireFor(b) {
			t.Fatalf("%s: want exactly one slot", a)
		}
	}
	if len(used) != shards {
		t.Errorf("got %d shards in use, want all %d", len(used), shards)
	}
	for a, i := first, 0; i < 1000; a, i = a.Next(), i+1 {
		s.releaseFor(BlockOf(a))
	}
	for i := range s.shards {
		if n := len(s.shards[i].counts); n != 0 {
			t.Errorf("shard %d: got %d addresses after the last release, want 0", i, n)
		}
	}
}

func BenchmarkSlots(b *testing.B) {
	s := newSlots(DefaultMaxConnections, DefaultMaxConnectionsPerAddress)
	a := netip.MustParseAddr("192.0.2.1")
	b.ReportAllocs()
	for b.Loop() {
		blk := BlockOf(a)
		if s.acquire() && s.acquireFor(blk) {
			s.releaseFor(blk)
			s.release()
		}
	}
}
