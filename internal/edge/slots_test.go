package edge

import (
	"net/netip"
	"testing"
)

// Guarantee: an IPv4 address counts for itself, in both its forms, and of IPv6
// all addresses of one /64 count as one.
func TestBlocks(t *testing.T) {
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
		a, b := blockOf(netip.MustParseAddr(tc.a)), blockOf(netip.MustParseAddr(tc.b))
		if (a == b) != tc.same {
			t.Errorf("%s and %s: %v %v", tc.a, tc.b, a, b)
		}
	}
}

// Guarantee: addresses in a row, as a botnet or a test has, spread over the
// shards; what is given back leaves nothing.
func TestShards(t *testing.T) {
	s := newSlots(10, 1)
	used := map[*shard]bool{}
	first := netip.MustParseAddr("10.0.0.0")
	for a, i := first, 0; i < 1000; a, i = a.Next(), i+1 {
		b := blockOf(a)
		used[s.shard(b)] = true
		if !s.takeOf(b) || s.takeOf(b) {
			t.Fatalf("%s does not have exactly one slot", a)
		}
	}
	if len(used) != shards {
		t.Errorf("%d shards of %d are used", len(used), shards)
	}
	for a, i := first, 0; i < 1000; a, i = a.Next(), i+1 {
		s.giveOf(blockOf(a))
	}
	for i := range s.shards {
		if n := len(s.shards[i].counts); n != 0 {
			t.Errorf("shard %d remembers %d addresses", i, n)
		}
	}
}

func BenchmarkSlots(b *testing.B) {
	s := newSlots(DefaultMaxConnections, DefaultMaxConnectionsPerAddress)
	a := netip.MustParseAddr("192.0.2.1")
	b.ReportAllocs()
	for b.Loop() {
		blk := blockOf(a)
		if s.take() && s.takeOf(blk) {
			s.giveOf(blk)
			s.give()
		}
	}
}
