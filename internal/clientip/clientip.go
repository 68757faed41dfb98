// Package clientip determines a client's IP address from the peer's address and the
// X-Forwarded-For fields of trusted proxies (contract, section 1, --trusted-proxies).
package clientip

import (
	"net/netip"
	"strings"
)

// Trust is the set of networks in which the trusted proxies are. A nil Trust trusts
// no address. It is immutable and safe for concurrent use.
type Trust struct{ networks []netip.Prefix }

// NewTrust returns a Trust of networks. A network of IPv4-mapped IPv6 addresses is
// treated as the IPv4 network.
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

// Trusted reports whether addr is the address of a trusted proxy. An IPv4-mapped IPv6
// address is treated as IPv4, and a zone is ignored.
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

// ClientIP returns the client's address. If the peer is not a trusted proxy, that is
// the peer's address. Otherwise it is the right-most address of the X-Forwarded-For fields that
// does not belong to a trusted proxy, or the left-most address if all belong to trusted proxies. An
// element that is not a valid address ends the search; the client's address is then the one to its
// right.
//
// forwardedFor holds the values of the X-Forwarded-For fields in their order.
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
				continue // RFC 9110, 5.6.1.2: a recipient ignores empty list elements
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

// ClientBehind is ClientIP for a peer already known to be trusted. If t has no networks by
// which to judge further proxies, the client's address is the last element of
// forwardedFor, or peer if that element is not a valid address.
func (t *Trust) ClientBehind(peer netip.Addr, forwardedFor []string) netip.Addr {
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

// parse parses one element of X-Forwarded-For: an address. Some proxies append a port to it, and
// some put brackets around an IPv6 address.
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

// Append returns the value of X-Forwarded-For for the next hop: the values in
// forwardedFor, joined by commas, followed by the peer's address.
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
