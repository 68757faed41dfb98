// Package clientip tells who is at the other end of a connection, and which of the
// proxies in between are believed when they say for whom they speak (contract,
// section 1, --trusted-proxies).
package clientip

import (
	"net/netip"
	"strings"
)

// Trust is the networks whose proxies are believed. A nil Trust believes
// nobody. It is safe for concurrent use.
type Trust struct{ networks []netip.Prefix }

// NewTrust returns a Trust of networks. A network of IPv4-mapped IPv6 addresses
// counts as the IPv4 network that it stands for.
func NewTrust(networks []netip.Prefix) *Trust {
	t := &Trust{networks: make([]netip.Prefix, 0, len(networks))}
	for _, n := range networks {
		if a := n.Addr(); a.Is4In6() && n.Bits() >= 96 {
			n = netip.PrefixFrom(a.Unmap(), n.Bits()-96)
		}
		t.networks = append(t.networks, n.Masked())
	}
	return t
}

// Trusted reports whether the proxy at addr is believed. IPv4-mapped IPv6
// addresses count as IPv4.
func (t *Trust) Trusted(addr netip.Addr) bool {
	if t == nil || len(t.networks) == 0 {
		return false
	}
	addr = addr.Unmap().WithZone("")
	for _, n := range t.networks {
		if n.Contains(addr) {
			return true
		}
	}
	return false
}

// ClientIP returns the address that stands for the client: the peer's, or, if
// the peer is trusted, the right-most address of the X-Forwarded-For fields
// that is not of a trusted proxy. What a trusted proxy says is followed only as
// far as it can be read: before an element that is no address, the address to
// its right counts. If all are trusted it is the left-most.
//
// forwardedFor holds the values of the fields in their order.
func (t *Trust) ClientIP(peer netip.Addr, forwardedFor []string) netip.Addr {
	client := peer.Unmap()
	for i := len(forwardedFor) - 1; i >= 0 && t.Trusted(client); i-- {
		rest := forwardedFor[i]
		for more := true; more && t.Trusted(client); {
			var element string
			if at := strings.LastIndexByte(rest, ','); at >= 0 {
				rest, element = rest[:at], rest[at+1:]
			} else {
				element, more = rest, false
			}
			element = strings.Trim(element, " \t")
			if element == "" {
				continue // an empty element of a list means nothing
			}
			addr, ok := parse(element)
			if !ok {
				return client
			}
			client = addr
		}
	}
	return client
}

// Caller is ClientIP for a peer that is believed, whoever knows that. Without
// networks the right-most address counts, if it can be read.
func (t *Trust) Caller(peer netip.Addr, forwardedFor []string) netip.Addr {
	if t != nil && len(t.networks) > 0 {
		return t.ClientIP(peer, forwardedFor)
	}
	if len(forwardedFor) == 0 {
		return peer
	}
	last := forwardedFor[len(forwardedFor)-1]
	last = last[strings.LastIndexByte(last, ',')+1:]
	if addr, ok := parse(strings.Trim(last, " \t")); ok {
		return addr
	}
	return peer
}

// parse reads one element of X-Forwarded-For: an address, with a port from some
// proxies, an IPv6 one in brackets from others.
func parse(s string) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Unmap().WithZone(""), true
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap().WithZone(""), true
	}
	if inner, ok := strings.CutPrefix(s, "["); ok {
		if inner, ok = strings.CutSuffix(inner, "]"); ok {
			if a, err := netip.ParseAddr(inner); err == nil && a.Is6() {
				return a.Unmap().WithZone(""), true
			}
		}
	}
	return netip.Addr{}, false
}

// Append returns the value of X-Forwarded-For for the next hop: what the fields
// of a trusted peer say, in one line, and the peer behind it.
func Append(forwardedFor []string, peer netip.Addr) string {
	var b strings.Builder
	for _, v := range forwardedFor {
		if v = strings.Trim(v, " \t,"); v != "" {
			b.WriteString(v)
			b.WriteString(", ")
		}
	}
	b.WriteString(peer.Unmap().WithZone("").String())
	return b.String()
}
