package proxy_test

import (
	"net/netip"
	"testing"

	"github.com/keygate/keygate/internal/proxy"
)

// Guarantee: an address holds at most 64 MiB of waiting bodies over all of its connections, and all addresses
// together 256 MiB, beyond which each may still hold 64 KiB. A request that ends gives back what it held.
func TestBodiesAreBounded(t *testing.T) {
	const piece = 16 << 10
	var b proxy.Bodies
	fill := func(c *proxy.ConnBodies) (n int) {
		for c.Take(piece) {
			n += piece
		}
		return n
	}
	conn := func(text string) *proxy.ConnBodies { return b.Of(netip.MustParseAddr(text), false) }
	first, second := conn("2001:db8::1"), conn("2001:db8::2") // of one network
	for range 10 {
		first.Take(piece)
	}
	if got := 10*piece + fill(second); got != proxy.MaxBodiesOfAddress {
		t.Errorf("one network holds %d bytes, want %d", got, proxy.MaxBodiesOfAddress)
	}
	if first.Take(1) {
		t.Error("the first connection of the network holds one byte more")
	}
	for _, text := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"} {
		if got := fill(conn(text)); got != proxy.MaxBodiesOfAddress {
			t.Errorf("%s holds %d bytes, want %d", text, got, proxy.MaxBodiesOfAddress)
		}
	}
	if got := fill(conn("192.0.2.4")); got != 64<<10 {
		t.Errorf("an address holds %d bytes beyond the bound of all, want %d", got, 64<<10)
	}
	if got := fill(b.Of(netip.MustParseAddr("192.0.2.9"), true)); got != 0 {
		t.Errorf("a trusted proxy holds %d bytes beyond the bound of all, want 0", got)
	}
	second.Give(piece)
	second.Done()
	first.Done()
	if got := fill(conn("2001:db8::3")); got != proxy.MaxBodiesOfAddress-64<<10 {
		t.Errorf("the network holds %d bytes after its connections have ended, want what is left of the bound of all", got)
	}
}
