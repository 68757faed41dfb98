package clientip_test

import (
	"net/netip"
	"testing"

	"github.com/keygate/keygate/internal/clientip"
)

func trust(t testing.TB, networks ...string) *clientip.Trust {
	t.Helper()
	var all []netip.Prefix
	for _, n := range networks {
		all = append(all, netip.MustParsePrefix(n))
	}
	return clientip.NewTrust(all)
}

// Guarantee: an address is trusted if one of the networks contains it, whether either
// is written as IPv4 or as IPv4-mapped IPv6.
func TestTrusted(t *testing.T) {
	for _, tc := range []struct {
		networks []string
		addr     string
		want     bool
	}{
		{nil, "127.0.0.1", false},
		{[]string{"10.0.0.0/8"}, "10.255.0.1", true},
		{[]string{"10.0.0.0/8"}, "11.0.0.1", false},
		{[]string{"10.0.0.0/8"}, "::ffff:10.0.0.1", true},
		{[]string{"::ffff:10.0.0.0/104"}, "10.0.0.1", true},
		{[]string{"::ffff:10.0.0.0/104"}, "11.0.0.1", false},
		{[]string{"10.0.0.0/8", "fd00::/8"}, "fd12::1", true},
		{[]string{"fe80::/10"}, "fe80::1%eth0", true},
		{[]string{"::/0"}, "10.0.0.1", false},
		{[]string{"0.0.0.0/0"}, "::1", false},
		{[]string{"127.0.0.1/32"}, "127.0.0.2", false},
	} {
		if got := trust(t, tc.networks...).Trusted(netip.MustParseAddr(tc.addr)); got != tc.want {
			t.Errorf("networks %v, address %s: got trusted %v, want %v", tc.networks, tc.addr, got, tc.want)
		}
	}
}

// Guarantee: a nil Trust trusts no address.
func TestNilTrustsNothing(t *testing.T) {
	var none *clientip.Trust
	if none.Trusted(netip.MustParseAddr("127.0.0.1")) {
		t.Error("a nil Trust trusts 127.0.0.1, want it to trust nothing")
	}
}

// Guarantee: the zero Addr is never trusted.
func TestZeroAddrIsNotTrusted(t *testing.T) {
	if trust(t, "0.0.0.0/0").Trusted(netip.Addr{}) {
		t.Error("0.0.0.0/0 trusts the zero Addr, want it not trusted")
	}
}

// Guarantee: the client is the right-most address that does not belong to a trusted
// proxy; addresses that anything else wrote are ignored.
func TestClientIP(t *testing.T) {
	proxies := trust(t, "10.0.0.0/8", "fd00::/8")
	for _, tc := range []struct {
		name, peer string
		forwarded  []string
		want       string
	}{
		{"a direct client", "192.0.2.1", nil, "192.0.2.1"},
		{"a direct client that claims another address", "192.0.2.1", []string{"198.51.100.7"}, "192.0.2.1"},
		{"one proxy", "10.0.0.1", []string{"192.0.2.1"}, "192.0.2.1"},
		{"a proxy without X-Forwarded-For", "10.0.0.1", nil, "10.0.0.1"},
		{"a client that claims another address through a proxy", "10.0.0.1", []string{"198.51.100.7, 192.0.2.1"}, "192.0.2.1"},
		{"two proxies", "10.0.0.1", []string{"198.51.100.7, 192.0.2.1, 10.0.0.2"}, "192.0.2.1"},
		{"several fields", "10.0.0.1", []string{"198.51.100.7", "192.0.2.1,10.0.0.3", "10.0.0.2"}, "192.0.2.1"},
		{"all trusted", "10.0.0.1", []string{"10.0.0.9, 10.0.0.2"}, "10.0.0.9"},
		{"empty elements", "10.0.0.1", []string{"192.0.2.1, , ", ""}, "192.0.2.1"},
		{"an element that is not an address", "10.0.0.1", []string{"192.0.2.1, unknown, 10.0.0.2"}, "10.0.0.2"},
		{"no address at all", "10.0.0.1", []string{"_hidden"}, "10.0.0.1"},
		{"ports", "10.0.0.1", []string{"192.0.2.1:443, 10.0.0.2:80"}, "192.0.2.1"},
		{"IPv6", "fd00::1", []string{"[2001:db8::1]:443, [fd00::2], fd00::3"}, "2001:db8::1"},
		{"IPv4 in IPv6", "::ffff:10.0.0.1", []string{"::ffff:192.0.2.1"}, "192.0.2.1"},
		{"a zone", "fd00::1", []string{"fe80::1%lan"}, "fe80::1"},
	} {
		if got := proxies.ClientIP(netip.MustParseAddr(tc.peer), tc.forwarded); got.String() != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}

// Guarantee: the next hop receives the whole chain of addresses, with this peer last.
func TestAppend(t *testing.T) {
	for _, tc := range []struct {
		forwarded []string
		want      string
	}{
		{nil, "10.0.0.1"},
		{[]string{""}, "10.0.0.1"},
		{[]string{"192.0.2.1"}, "192.0.2.1, 10.0.0.1"},
		{[]string{"192.0.2.1, 192.0.2.2", " 192.0.2.3,"}, "192.0.2.1, 192.0.2.2, 192.0.2.3, 10.0.0.1"},
	} {
		if got := clientip.Append(tc.forwarded, netip.MustParseAddr("::ffff:10.0.0.1")); got != tc.want {
			t.Errorf("Append(%q): got %q, want %q", tc.forwarded, got, tc.want)
		}
	}
}

// Guarantee: behind a trusted proxy that appends the client's address, nothing that a
// client sends in X-Forwarded-For changes the result.
func FuzzClientIP(f *testing.F) {
	for _, s := range []string{"", "198.51.100.7", "10.0.0.1, ::1", "a,b,,c", ",", "[::1]:80, 10.1.1.1:1"} {
		f.Add(s)
	}
	proxies, proxy := trust(f, "10.0.0.0/8"), netip.MustParseAddr("10.0.0.1")
	client := netip.MustParseAddr("192.0.2.1")
	f.Fuzz(func(t *testing.T, claim string) {
		if got := proxies.ClientIP(proxy, []string{claim, clientip.Append([]string{claim}, client)}); got != client {
			t.Errorf("claim %q: got client %s, want %s", claim, got, client)
		}
		if got := proxies.ClientIP(proxy, []string{claim}); !got.IsValid() {
			t.Errorf("claim %q: got an invalid address", claim)
		}
	})
}
