package clientip

import "net/netip"

// Group identifies the addresses that count as one client: an IPv4 address, or the /64 of an IPv6 address,
// because a customer of a network usually has all of that. An IPv4-mapped IPv6 address is the IPv4 address.
// The zero value is no Group.
//
// Its bytes are those of the address. The last byte is the length of the prefix, if it is not IPv4.
type Group [16]byte

const (
	networkBits = 64
	siteBits    = 48
	unknownMark = 1 // instead of a length: the address is not known
	othersMark  = 0xff
)

// Others stands for all addresses that there is no room to count on their own. It is the group of no address.
//
//nolint:gochecknoglobals // never written
var Others = Group{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, othersMark}

// GroupOf returns the group of an address. Addresses that are not valid, because a client's address is not
// known, are one group.
func GroupOf(a netip.Addr) Group {
	switch a = a.Unmap(); {
	case a.Is4():
		return a.As16()
	case a.Is6():
		g := Group(a.As16())
		clear(g[8:])
		g[15] = networkBits
		return g
	default:
		return Group{15: unknownMark}
	}
}

// Site returns the /48 of a /64, which may count as one when many of its networks are in use. Of any other
// group it returns the group itself, and false.
func (g Group) Site() (site Group, ok bool) {
	if g[10] != 0 || g[15] != networkBits {
		return g, false
	}
	clear(g[6:])
	g[15] = siteBits
	return g, true
}

// IsSite reports whether g is a /48.
func (g Group) IsSite() bool { return g[10] == 0 && g[15] == siteBits }

// String returns an IPv4 address, or a prefix such as 2001:db8:0:1::/64; "others" for Others, and "unknown" for
// the group of addresses that are not known.
func (g Group) String() string {
	switch {
	case g == Others:
		return "others"
	case g[10] != 0:
		return netip.AddrFrom16(g).Unmap().String()
	case g[15] == networkBits || g[15] == siteBits:
		bits := int(g[15])
		g[15] = 0
		return netip.PrefixFrom(netip.AddrFrom16(g), bits).String()
	default:
		return "unknown"
	}
}
