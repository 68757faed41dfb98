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

// Policy says which addresses a caller may connect to, among the addresses that are not always
// refused. The zero value allows all of these.
type Policy struct {
	// PublicOnly refuses every address that is not public unicast.
	PublicOnly bool
	// Allow lists networks that PublicOnly does not refuse.
	Allow []netip.Prefix
	// AllowRisky makes Allow apply to link-local and metadata addresses too.
	AllowRisky bool
}

// Lists reports whether Allow contains addr or an IPv4 address that addr embeds.
func (p Policy) Lists(addr netip.Addr) bool {
	return slices.ContainsFunc(equivalents(addr), func(a netip.Addr) bool { return allowed(p.Allow, a) })
}

// RefusedError says that the guard refused an address. It is for the log: a client is only told
// that the upstream is unreachable.
type RefusedError struct {
	Addr   netip.AddrPort
	Reason string
	// Unlisted is set if the policy is PublicOnly, and refuses the address, which it does not list. Then whoever chose it must
	// not be told Reason, which shows where a name leads in a network that is not open to them.
	Unlisted bool
	// Allowable is set if the address would be permitted if Policy.Allow contained it.
	Allowable bool
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("address %s refused by the guard: %s", e.Addr, e.Reason)
}

// Guard checks addresses by a policy and against Keygate's own listeners. It is safe for
// concurrent use.
type Guard struct {
	own   atomic.Pointer[[]netip.AddrPort]
	local func() ([]net.Addr, error)
}

// New returns a guard that knows no listeners.
func New() *Guard {
	return &Guard{local: net.InterfaceAddrs}
}

// SetListeners sets the addresses of Keygate's own listeners, which the guard refuses. A
// listener on a wildcard address stands for every address of this machine, one on a
// loopback address for every loopback address.
func (g *Guard) SetListeners(listeners ...netip.AddrPort) {
	own := slices.Clone(listeners)
	g.own.Store(&own)
}

// Check returns nil if p allows connecting to addr, and a *RefusedError otherwise.
func (g *Guard) Check(p Policy, addr netip.AddrPort) error {
	reason := refusalReason(p, addr.Addr())
	if reason == "" && g.isOwn(addr) {
		reason = "it is one of Keygate's own listeners"
	}
	if reason == "" {
		return nil
	}
	return &RefusedError{Addr: addr, Reason: reason, Unlisted: p.PublicOnly && !p.Lists(addr.Addr()) && refusalReason(p, addr.Addr()) != "", Allowable: couldBeAllowed(p, addr.Addr()) && !g.isOwn(addr)}
}

// couldBeAllowed reports whether p would allow addr if p.Allow contained it.
func couldBeAllowed(p Policy, addr netip.Addr) bool {
	if !addr.IsValid() {
		return false
	}
	for _, a := range equivalents(addr) {
		p.Allow = append(slices.Clone(p.Allow), netip.PrefixFrom(a, a.BitLen()))
	}
	return refusalReason(p, addr) == ""
}

// Control returns a function for net.Dialer.ControlContext that checks each address before
// the dialer connects to it. It counts the attempts of Dial.
func (g *Guard) Control(p Policy) func(ctx context.Context, network, address string, c syscall.RawConn) error {
	return func(ctx context.Context, _, address string, _ syscall.RawConn) error {
		tries := attemptsOf(ctx)
		if err := tries.begin(); err != nil {
			return err
		}
		addr, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("check address %q: %w", address, err)
		}
		err = g.Check(p, addr)
		tries.refuse(err)
		return err
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

// isLocal reports whether a is an address of this machine. It returns true if the addresses
// cannot be listed.
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
