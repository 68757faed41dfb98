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

// Guarantee: an address has at most 8,192 requests over HTTP/2 in flight over all of its connections, and all addresses together
// 131,072, beyond which each may still have 4, but a trusted proxy none. The bytes of a head count with the bodies; a request
// that has no room for them counts nowhere.
func TestStreamsAreBounded(t *testing.T) {
	var b proxy.Bodies
	fill := func(c *proxy.ConnBodies) (n int) {
		for c.Open(0) {
			n++
		}
		return n
	}
	conn := func(i int) *proxy.ConnBodies {
		return b.Of(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), false)
	}
	first, second := conn(0), conn(0)
	if got := fill(first); got != proxy.MaxStreamsOfAddress {
		t.Errorf("an address has %d requests, want %d", got, proxy.MaxStreamsOfAddress)
	}
	if second.Open(0) {
		t.Error("another connection of the address has one more")
	}
	first.Close(0)
	if second.Open(proxy.MaxBodiesOfAddress + 1) {
		t.Error("a request has a head of more bytes than an address may hold")
	}
	if !second.Take(proxy.MaxBodiesOfAddress) || second.Open(1) {
		t.Error("heads and bodies are not counted together")
	}
	if !second.Open(0) {
		t.Error("a request without room for its head was counted")
	}
	for i := 1; i < proxy.MaxStreams/proxy.MaxStreamsOfAddress; i++ {
		if got := fill(conn(i)); got != proxy.MaxStreamsOfAddress {
			t.Errorf("address %d has %d requests, want %d", i, got, proxy.MaxStreamsOfAddress)
		}
	}
	if got := fill(conn(100)); got != 4 {
		t.Errorf("an address has %d requests beyond the bound of all, want 4", got)
	}
	proxied := b.Of(netip.MustParseAddr("192.0.2.200"), true)
	if got := fill(proxied); got != 0 {
		t.Errorf("a trusted proxy has %d requests beyond the bound of all, want 0", got)
	}
	first.Done()
	second.Done()
	if got := fill(proxied); got != proxy.MaxStreamsOfAddress-4 {
		t.Errorf("a trusted proxy has %d requests after connections have ended, want what is left of the bound of all", got)
	}
}

// Guarantee: responses that are not taken hold at most 512 MiB for an address over all of its connections, and 2 GiB for all
// addresses together, beyond which each may still hold 256 KiB, but a trusted proxy nothing. They do not count with requests, and
// a connection that ends gives back what it held.
func TestUntakenResponsesAreBounded(t *testing.T) {
	const piece = 64 << 10
	var b proxy.Bodies
	fill := func(c *proxy.ConnBodies) (n int) {
		for c.TakeResponse(piece) {
			n += piece
		}
		return n
	}
	conn := func(i int) *proxy.ConnBodies { return b.Of(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), false) }
	const addresses = proxy.MaxResponses / proxy.MaxResponsesOfAddress
	first, second := conn(0), conn(0)
	if got := fill(first); got != proxy.MaxResponsesOfAddress {
		t.Errorf("an address holds %d bytes, want %d", got, proxy.MaxResponsesOfAddress)
	}
	if second.TakeResponse(1) {
		t.Error("another connection of the address holds one byte more")
	}
	if !second.Take(proxy.MaxBodiesOfAddress) || !second.Open(0) {
		t.Error("responses count with requests")
	}
	for i := 1; i < addresses; i++ {
		fill(conn(i))
	}
	if got := fill(conn(addresses)); got != 256<<10 {
		t.Errorf("an address holds %d bytes beyond the bound of all, want %d", got, 256<<10)
	}
	trusted := b.Of(netip.MustParseAddr("192.0.2.200"), true)
	if trusted.TakeResponse(1) {
		t.Error("a trusted proxy holds a byte beyond the bound of all")
	}
	first.GiveResponse(piece)
	first.Done()
	if got := fill(trusted); got != proxy.MaxResponsesOfAddress-256<<10 {
		t.Errorf("a trusted proxy holds %d bytes after a connection has ended, want what is left of the bound of all", got)
	}
}
