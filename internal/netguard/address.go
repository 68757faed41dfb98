package netguard

import (
	"net/netip"
	"slices"
)

// refusalReason returns why p forbids connecting to addr, or "" if it does not.
func refusalReason(p Policy, addr netip.Addr) string {
	if !addr.IsValid() {
		return "it is not a valid address"
	}
	for _, a := range equivalents(addr) {
		if reason := neverReason(a); reason != "" {
			return reason
		}
		if reason := riskyReason(a); reason != "" && !(p.AllowRisky && allowed(p.Allow, a)) {
			return reason
		}
	}
	if !p.PublicOnly {
		return ""
	}
	for i, a := range equivalents(addr) {
		reason := notPublicReason(a)
		if reason == "" {
			continue
		}
		if !allowed(p.Allow, a) {
			return reason
		}
		if i == 0 { // the address itself is allowed, and so is an address that it embeds
			return ""
		}
	}
	return ""
}

func allowed(networks []netip.Prefix, a netip.Addr) bool {
	for _, n := range networks {
		if n.Contains(a) {
			return true
		}
	}
	return false
}

// neverReason returns why no policy allows connecting to a, which does not belong to a single
// machine. It returns "" for any other address.
func neverReason(a netip.Addr) string {
	switch {
	case a.IsUnspecified(), prefix4(0, 0, 0, 0, 8).Contains(a):
		return "it is an unspecified address"
	case a.IsMulticast():
		return "it is a multicast address"
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "it is the broadcast address"
	}
	return ""
}

// riskyReason returns why connecting to a needs Policy.AllowRisky: a belongs to one link, or to the
// machine's own cloud. It returns "" for any other address.
func riskyReason(a netip.Addr) string {
	switch {
	case a.IsLinkLocalUnicast():
		return "it is a link-local address"
	case isMetadata(a):
		return "it is a cloud's metadata address"
	}
	return ""
}

func isMetadata(a netip.Addr) bool {
	return slices.ContainsFunc(metadata(), func(n netip.Prefix) bool { return n.Contains(a) })
}

// metadata lists the addresses outside the link-local networks at which clouds serve a
// machine's credentials or configuration.
func metadata() []netip.Prefix {
	return []netip.Prefix{
		prefix4(100, 100, 100, 200, 32), // Alibaba Cloud
		prefix4(168, 63, 129, 16, 32),   // Azure, wire server
		prefix4(192, 0, 0, 192, 32),     // Oracle Cloud
		prefix6(32, 0xfd00, 0x0ec2),     // AWS, all its instance services
		prefix6(32, 0xfd20, 0x00ce),     // Google Cloud
		prefix6(32, 0xfd00, 0x0042),     // Scaleway
	}
}

// notPublicReason returns why a is not a public unicast address, or "" if it is one. The
// lists follow IANA's special-purpose address registries: a block that is not globally reachable
// there, or only by a deprecated mechanism, is not public. In IPv6 only the block assigned for
// global unicast is public.
func notPublicReason(a netip.Addr) string {
	switch {
	case a.IsLoopback():
		return "it is a loopback address"
	case a.IsPrivate():
		return "it is a private address"
	}
	if a.Is4() {
		for _, n := range special4() {
			if n.Contains(a) {
				return "it is a reserved address"
			}
		}
		return ""
	}
	if prefix6(96, 0x64, 0xff9b).Contains(a) { // NAT64: its embedded IPv4 address decides
		return ""
	}
	for _, n := range special6() {
		if n.Contains(a) {
			return "it is a reserved address"
		}
	}
	if !prefix6(3, 0x2000).Contains(a) {
		return "it is not a global unicast address"
	}
	return ""
}

func special4() []netip.Prefix {
	return []netip.Prefix{
		prefix4(100, 64, 0, 0, 10),   // shared by carriers (CGNAT)
		prefix4(192, 0, 0, 0, 24),    // protocol assignments
		prefix4(192, 0, 2, 0, 24),    // documentation
		prefix4(192, 88, 99, 0, 24),  // 6to4 relays, deprecated
		prefix4(198, 18, 0, 0, 15),   // benchmarking
		prefix4(198, 51, 100, 0, 24), // documentation
		prefix4(203, 0, 113, 0, 24),  // documentation
		prefix4(240, 0, 0, 0, 4),     // reserved
	}
}

func special6() []netip.Prefix {
	return []netip.Prefix{
		prefix6(23, 0x2001),         // protocol assignments: Teredo, benchmarking, ORCHID, …
		prefix6(32, 0x2001, 0x0db8), // documentation
		prefix6(20, 0x3fff),         // documentation
	}
}
