package netguard_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/netguard"
)

// Guarantee: the operator's account may connect anywhere except to addresses that are
// always refused, other accounts only to public addresses, in whatever form an address is
// written (contract, 4.6).
func TestAccessByPolicy(t *testing.T) {
	for _, c := range []struct {
		name             string
		operator, tenant bool // allowed for the operator's account, and for another account
		addrs            []string
	}{
		{"public addresses are open to all accounts", true, true, []string{
			"93.184.215.14",
			"2606:2800:220:1:248:1893:25c8:1946",
			"::ffff:93.184.215.14",
			"64:ff9b::5db8:d70e", // NAT64 of a public address
			"2002:5db8:d70e::1",  // 6to4 of a public address
			"192.0.1.1",          // beside the protocol assignments
			"172.32.0.1",         // beside a private network
			"100.128.0.1",        // beside the carriers' network
			"2620:4f:8000::1",    // AS112, globally reachable
		}},
		{"other addresses are open to the operator's account only", true, false, []string{
			"127.0.0.1",
			"127.255.255.254",
			"::1",
			"::ffff:127.0.0.1",   // mapped
			"::ffff:7f00:1",      // mapped
			"::127.0.0.1",        // compatible
			"::ffff:0:127.0.0.1", // translated
			"64:ff9b::7f00:1",    // NAT64
			"64:ff9b:1::7f00:1",  // local NAT64
			"64:ff9b:1::5db8:d70e",
			"2002:7f00:1::",      // 6to4
			"2002:a00:1::1",      // 6to4 of 10.0.0.1
			"2002:c0a8:101::",    // 6to4 of 192.168.1.1
			"2001:0:5db8:d70e::", // Teredo
			"10.0.0.1",
			"172.16.0.1",
			"172.31.255.255",
			"192.168.1.1",
			"::ffff:10.0.0.1",
			"100.64.0.1",
			"192.0.0.8",
			"192.0.2.1",
			"192.88.99.1",
			"198.18.0.1",
			"198.19.255.255",
			"198.51.100.7",
			"203.0.113.7",
			"240.0.0.1",
			"fc00::1",
			"fdff::1",
			"fec0::1", // site-local, deprecated
			"100::1",  // discard
			"2001:db8::1",
			"2001:2::1", // benchmarking
			"3fff::1",
			"5f00::1",
			"4000::1", // not assigned
		}},
		{"addresses that are always refused", false, false, []string{
			"0.0.0.0",
			"0.1.2.3",
			"::",
			"::ffff:0.0.0.0",
			"255.255.255.255",
			"224.0.0.1",
			"239.255.255.250",
			"ff02::1",
			"169.254.0.1",
			"169.254.169.254",
			"169.254.170.2",
			"::ffff:169.254.169.254",
			"::169.254.169.254",
			"::ffff:0:169.254.169.254",
			"64:ff9b::a9fe:a9fe",
			"64:ff9b:1::a9fe:a9fe",
			"64:ff9b:1:a9fe:a9:fe00::", // the form with a 48-bit prefix
			"2002:a9fe:a9fe::1",
			"2001:0:a9fe:a9fe::1",            // Teredo server
			"2001:0:5db8:d70e:0:0:5601:5601", // Teredo client, inverted
			"fe80::1",
			"fe80::1%eth0",
			"febf::1",
			"100.100.100.200",
			"168.63.129.16",
			"192.0.0.192",
			"fd00:ec2::254",
			"fd20:ce::254",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, addr := range c.addrs {
				checkAccess(t, "the operator's account", netguard.Policy{}, addr, c.operator)
				checkAccess(t, "another account", netguard.Policy{PublicOnly: true}, addr, c.tenant)
			}
		})
	}
}

// checkAccess checks whether policy p allows an address. A refusal must name the address and
// give a reason.
func checkAccess(t *testing.T, who string, p netguard.Policy, address string, allowed bool) {
	t.Helper()
	addr := netip.AddrPortFrom(netip.MustParseAddr(address), 443)
	err := netguard.New().Check(p, addr)
	var refused *netguard.RefusedError
	switch {
	case allowed && err != nil:
		t.Errorf("%s for %s: got %v, want it allowed", address, who, err)
	case !allowed && err == nil:
		t.Errorf("%s for %s: allowed, want a refusal", address, who)
	case !allowed && (!errors.As(err, &refused) || refused.Addr != addr || !strings.Contains(refused.Reason, "address")):
		t.Errorf("%s for %s: got error %v, want a RefusedError that names the address and a reason", address, who, err)
	}
}

// Guarantee: a network in Policy.Allow is open to all accounts, also when a transition
// mechanism embeds it. Addresses that are always refused stay refused.
func TestAllowedNetworks(t *testing.T) {
	policy := netguard.Policy{PublicOnly: true, Allow: []netip.Prefix{
		netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd01::/16"),
		netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("64:ff9b:1:7::/64"),
	}}
	for addr, want := range map[string]bool{
		"10.1.2.3": true, "10.2.0.1": false, "::ffff:10.1.2.3": true, "fd01::5": true, "fd02::5": false,
		"64:ff9b::a01:203": true, "64:ff9b::a02:1": false, "2002:a01:203::": true,
		"64:ff9b:1:7::a02:1": true, "64:ff9b:1:8::a01:203": false,
		"169.254.169.254": false, "64:ff9b:1:7::a9fe:a9fe": false, "1.1.1.1": true,
	} {
		err := netguard.New().Check(policy, netip.AddrPortFrom(netip.MustParseAddr(addr), 80))
		if allowed := err == nil; allowed != want {
			t.Errorf("%s: got %v, want allowed %v", addr, err, want)
		}
	}
}

// Guarantee: with AllowRisky, Policy.Allow opens link-local and metadata addresses that it
// contains, and no addresses that do not belong to a single machine.
func TestAllowRisky(t *testing.T) {
	policy := netguard.Policy{PublicOnly: true, AllowRisky: true, Allow: []netip.Prefix{
		netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fd00:ec2::254/128"),
		netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("64:ff9b::/96"),
	}}
	for addr, want := range map[string]bool{
		"169.254.169.254": true, "::ffff:169.254.1.1": true, "64:ff9b::a9fe:a9fe": true, "fd00:ec2::254": true,
		"fe80::1": false, "fd00:ec2::253": false, "100.100.100.200": false, "64:ff9b::6464:64c8": false,
		"127.0.0.1": false, "0.0.0.0": false, "224.0.0.1": false,
	} {
		err := netguard.New().Check(policy, netip.AddrPortFrom(netip.MustParseAddr(addr), 80))
		if allowed := err == nil; allowed != want {
			t.Errorf("%s: got %v, want allowed %v", addr, err, want)
		}
	}
}

// Guarantee: a policy lists an address if one of its networks contains the address or an address
// that it embeds.
func TestLists(t *testing.T) {
	policy := netguard.Policy{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	for addr, want := range map[string]bool{
		"127.0.0.1": true, "::ffff:127.0.0.1": true, "2002:7f00:1::": true, "::1": false, "1.1.1.1": false,
	} {
		if got := policy.Lists(netip.MustParseAddr(addr)); got != want {
			t.Errorf("Lists(%s) = %v, want %v", addr, got, want)
		}
	}
}

// Guarantee: no account can make Keygate connect to its own listeners, whatever address
// leads there.
func TestOwnListeners(t *testing.T) {
	local, other := localAddress(t), "203.0.113.9:8081"
	g := netguard.New()
	g.SetListeners(netip.MustParseAddrPort("127.0.0.1:8080"), netip.MustParseAddrPort("[::]:8081"),
		netip.MustParseAddrPort("10.9.9.9:8082"), netip.MustParseAddrPort("[::1]:8083"))
	for addr, want := range map[string]bool{
		"127.0.0.1:8080": false, "127.4.4.4:8080": false, "[::1]:8080": false, "[::ffff:127.0.0.1]:8080": false,
		"[64:ff9b::7f00:1]:8080": false, "127.0.0.1:9000": true, "10.9.9.9:8080": true,
		"127.0.0.1:8081": false, "[::1]:8081": false, local.String() + ":8081": false, local.String() + ":9000": true, other: true,
		"10.9.9.9:8082": false, "[::ffff:10.9.9.9]:8082": false, "127.0.0.1:8082": true, "127.0.0.1:8083": false,
	} {
		err := g.Check(netguard.Policy{}, netip.MustParseAddrPort(addr))
		if allowed := err == nil; allowed != want {
			t.Errorf("%s: got %v, want allowed %v", addr, err, want)
		}
	}
}

// localAddress returns an IPv4 address of this machine, if possible not a loopback address.
func localAddress(t *testing.T) netip.Addr {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if p, ok := a.(*net.IPNet); ok && p.IP.To4() != nil && !p.IP.IsLoopback() {
			return netip.AddrFrom4([4]byte(p.IP.To4()))
		}
	}
	return netip.MustParseAddr("127.0.0.1")
}

// Guarantee: the guard checks the address at each attempt to connect, before anything is
// sent.
func TestDialerAsks(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	g := netguard.New()
	dial := func(p netguard.Policy) error {
		dialer := net.Dialer{ControlContext: g.Control(p)}
		conn, err := dialer.DialContext(t.Context(), "tcp", l.Addr().String())
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	if err := dial(netguard.Policy{}); err != nil {
		t.Errorf("operator's account: got %v, want a connection", err)
	}
	var refused *netguard.RefusedError
	if err := dial(netguard.Policy{PublicOnly: true}); !errors.As(err, &refused) {
		t.Errorf("another account: got %v, want a RefusedError", err)
	}
	g.SetListeners(netip.MustParseAddrPort(l.Addr().String()))
	if err := dial(netguard.Policy{}); !errors.As(err, &refused) {
		t.Errorf("Keygate's own listener: got %v, want a RefusedError", err)
	}
	if err := g.Control(netguard.Policy{})(context.Background(), "unix", "/run/docker.sock", nil); err == nil {
		t.Error("a Unix socket was allowed, want an error")
	}
}

// Guarantee: the decision about an IPv4 address is the same for every form that embeds it.
func TestEmbeddedAddressesDecideAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v4 := [4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "v4"))
		policy := netguard.Policy{PublicOnly: rapid.Bool().Draw(t, "publicOnly")}
		allowed := func(a netip.Addr) bool {
			return netguard.New().Check(policy, netip.AddrPortFrom(a, 80)) == nil
		}
		plain := netip.AddrFrom4(v4)
		nat64 := [16]byte{0, 0x64, 0xff, 0x9b, 12: v4[0], 13: v4[1], 14: v4[2], 15: v4[3]}
		sixToFour := [16]byte{0x20, 0x02, v4[0], v4[1], v4[2], v4[3]}
		for _, wrapped := range [][16]byte{plain.As16(), nat64, sixToFour} {
			a, want := netip.AddrFrom16(wrapped), allowed(plain)
			if got := allowed(a); got != want {
				t.Fatalf("%v: got allowed %v, want %v as for %v", a, got, want, plain)
			}
		}
	})
}
