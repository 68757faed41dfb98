package netguard

import "net/netip"

// equivalents returns addr without its zone, and, if addr belongs to a transition mechanism, the
// IPv4 addresses that it embeds. An IPv4-mapped address is returned as IPv4.
func equivalents(addr netip.Addr) []netip.Addr {
	addr = addr.WithZone("").Unmap()
	out := []netip.Addr{addr}
	if addr.Is4() {
		return out
	}
	b := addr.As16()
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(b[i : i+4])) }
	switch {
	case addr.IsLoopback(), addr.IsUnspecified():
	case prefix6(96).Contains(addr), // IPv4-compatible, deprecated
		prefix6(96, 0, 0, 0, 0, 0xffff).Contains(addr), // IPv4-translated
		prefix6(96, 0x64, 0xff9b).Contains(addr):       // NAT64
		out = append(out, at(12))
	case prefix6(48, 0x64, 0xff9b, 1).Contains(addr):
		// Local NAT64: the network's operator chose one of several forms (RFC 6052, 2.2).
		out = appendRisky(out, at(12), netip.AddrFrom4([4]byte{b[6], b[7], b[9], b[10]}),
			netip.AddrFrom4([4]byte{b[7], b[9], b[10], b[11]}), at(9))
	case prefix6(16, 0x2002).Contains(addr): // 6to4
		out = append(out, at(2))
	case prefix6(32, 0x2001, 0).Contains(addr): // Teredo: its server, and the client inverted
		out = appendRisky(out, at(4), netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}))
	}
	return out
}

// appendRisky appends the addresses of addrs that must not be reached: loopback, link-local and
// metadata addresses. The bits of the address do not show whether it really embeds an address of
// addrs, so the other addresses are no reason to allow or refuse it.
func appendRisky(out []netip.Addr, addrs ...netip.Addr) []netip.Addr {
	for _, a := range addrs {
		if a.IsLoopback() || a.IsLinkLocalUnicast() || isMetadata(a) {
			out = append(out, a)
		}
	}
	return out
}

func prefix4(a, b, c, d byte, bits int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{a, b, c, d}), bits)
}

// prefix6 returns the IPv6 prefix that begins with the given 16-bit groups.
func prefix6(bits int, groups ...uint16) netip.Prefix {
	var b [16]byte
	for i, g := range groups {
		b[2*i], b[2*i+1] = byte(g>>8), byte(g)
	}
	return netip.PrefixFrom(netip.AddrFrom16(b), bits)
}
