package netguard

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
)

// Policy says what one kind of caller may reach beyond what is always refused.
// The zero value may reach everything else.
type Policy struct {
	// PublicOnly refuses every address that is not public unicast.
	PublicOnly bool
	// Allow names networks that PublicOnly does not refuse.
	Allow []netip.Prefix
	// AllowRisky lets Allow open link-local and metadata addresses too.
	AllowRisky bool
}

// Lists reports whether Allow names the network of addr, or of the IPv4 address
// that addr carries.
func (p Policy) Lists(addr netip.Addr) bool {
	return slices.ContainsFunc(equivalents(addr), func(a netip.Addr) bool { return allowed(p.Allow, a) })
}

// RefusedError tells that an address may not be connected to. It is for the
// log; a caller of Keygate learns only that the upstream is unreachable.
type RefusedError struct {
	Addr   netip.AddrPort
	Reason string
	// Allowable is set if a network that is named would not be refused.
	Allowable bool
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("address %s refused by the guard: %s", e.Addr, e.Reason)
}

// Guard holds what the decision needs beside a policy: Keygate's own
// listeners. Its methods may be called by several goroutines.
type Guard struct {
	own   atomic.Pointer[[]netip.AddrPort]
	local func() ([]net.Addr, error)
}

// New returns a guard without listeners.
func New() *Guard {
	return &Guard{local: net.InterfaceAddrs}
}

// SetListeners tells the guard the addresses of Keygate's listeners, in place of any
// told before. A listener on a wildcard counts for every address of this
// machine, one on a loopback address for every loopback address.
func (g *Guard) SetListeners(listeners ...netip.AddrPort) {
	own := slices.Clone(listeners)
	g.own.Store(&own)
}

// Check returns nil if p may connect to addr, else a *RefusedError.
func (g *Guard) Check(p Policy, addr netip.AddrPort) error {
	reason := refusalReason(p, addr.Addr())
	if reason == "" && g.isOwn(addr) {
		reason = "it is one of Keygate's own listeners"
	}
	if reason == "" {
		return nil
	}
	return &RefusedError{Addr: addr, Reason: reason, Allowable: couldBeAllowed(p, addr.Addr()) && !g.isOwn(addr)}
}

// couldBeAllowed reports whether p would let addr pass if it named its network.
func couldBeAllowed(p Policy, addr netip.Addr) bool {
	if !addr.IsValid() {
		return false
	}
	for _, a := range equivalents(addr) {
		p.Allow = append(slices.Clone(p.Allow), netip.PrefixFrom(a, a.BitLen()))
	}
	return refusalReason(p, addr) == ""
}

// Control returns a function for net.Dialer.ControlContext that applies p to
// each address before the dialer sends anything to it.
func (g *Guard) Control(p Policy) func(ctx context.Context, network, address string, c syscall.RawConn) error {
	return func(_ context.Context, _, address string, _ syscall.RawConn) error {
		addr, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("guard cannot judge the address %q: %w", address, err)
		}
		return g.Check(p, addr)
	}
}

func (g *Guard) isOwn(addr netip.AddrPort) bool {
	own := g.own.Load()
	if own == nil {
		return false
	}
	for _, l := range *own {
		if l.Port() == addr.Port() && g.reaches(l.Addr().Unmap().WithZone(""), addr.Addr()) {
			return true
		}
	}
	return false
}

// reaches reports whether a connection to addr can arrive at a listener on l.
func (g *Guard) reaches(l, addr netip.Addr) bool {
	for _, a := range equivalents(addr) {
		switch {
		case l == a, l.IsLoopback() && a.IsLoopback():
			return true
		case l.IsUnspecified() && (a.IsLoopback() || g.isLocal(a)):
			return true
		}
	}
	return false
}

// isLocal reports whether a is an address of this machine; true if that cannot
// be told.
func (g *Guard) isLocal(a netip.Addr) bool {
	addrs, err := g.local()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(addrs, func(n net.Addr) bool {
		prefix, ok := n.(*net.IPNet)
		if !ok {
			return false
		}
		local, ok := netip.AddrFromSlice(prefix.IP)
		return ok && local.Unmap() == a
	})
}
