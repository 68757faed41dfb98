package clientip_test

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/clientip"
)

func TestGroupsOfAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"203.0.113.7":            "203.0.113.7",
		"203.0.113.64":           "203.0.113.64", // its last byte is the length of a prefix
		"::ffff:203.0.113.7":     "203.0.113.7",
		"2001:db8:1:2::1":        "2001:db8:1:2::/64",
		"2001:db8:1:2:ffff::9":   "2001:db8:1:2::/64",
		"2001:db8:1:3::1":        "2001:db8:1:3::/64",
		"::1":                    "::/64",
		"fe80::1%eth0":           "fe80::/64",
		"ffff:ffff:ffff:ffff::1": "ffff:ffff:ffff:ffff::/64",
		"255.255.255.255":        "255.255.255.255",
	} {
		if got := clientip.GroupOf(netip.MustParseAddr(address)).String(); got != want {
			t.Errorf("%s counts as %s, want %s", address, got, want)
		}
	}
	if got := clientip.GroupOf(netip.Addr{}).String(); got != "unknown" {
		t.Errorf("no address counts as %s", got)
	}
}

// Two addresses are one group exactly if they are the same IPv4 address or in the same /64, and no group of an
// address is Others, a site or zero.
func TestAddressesAreOneGroupExactlyIfTheyAreOneNetwork(t *testing.T) {
	addr := rapid.Custom(func(t *rapid.T) netip.Addr {
		b := [16]byte(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 48, 64, 255}), 16, 16).Draw(t, "bytes"))
		switch rapid.IntRange(0, 2).Draw(t, "form") {
		case 0:
			return netip.AddrFrom4([4]byte(b[12:]))
		case 1:
			return netip.AddrFrom16(netip.AddrFrom4([4]byte(b[12:])).As16())
		}
		return netip.AddrFrom16(b)
	})
	network := func(a netip.Addr) netip.Prefix {
		if a = a.Unmap(); a.Is4() {
			return netip.PrefixFrom(a, 32)
		}
		p, _ := a.Prefix(64)
		return p
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := addr.Draw(t, "a"), addr.Draw(t, "b")
		g, h := clientip.GroupOf(a), clientip.GroupOf(b)
		if (g == h) != (network(a) == network(b)) {
			t.Fatalf("%s and %s are the groups %s and %s", a, b, g, h)
		}
		site, ok := g.Site()
		other, _ := h.Site()
		sixteen := a.Unmap().Is6()
		if ok != sixteen || ok && (site == g || site == h) || g == (clientip.Group{}) || g == clientip.Others {
			t.Fatalf("the group of %s is %s, its site %s", a, g, site)
		}
		if site.IsSite() != sixteen || g.IsSite() {
			t.Fatalf("%s is a site: %t, its site: %t", g, g.IsSite(), site.IsSite())
		}
		if p, _ := a.Unmap().Prefix(48); sixteen && b.Unmap().Is6() && (site == other) != p.Contains(b) {
			t.Fatalf("%s and %s are in the sites %s and %s", a, b, site, other)
		}
		if sixteen && site.String() != netip.PrefixFrom(a, 48).Masked().String() {
			t.Fatalf("the site of %s is %s", a, site)
		}
	})
}
