package addrlist_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/fault"
)

// addresses draws addresses of a few networks, so that networks meet.
func addresses() *rapid.Generator[netip.Addr] {
	return rapid.Custom(func(t *rapid.T) netip.Addr {
		if rapid.Bool().Draw(t, "IPv4") {
			var b [4]byte
			for i := range b {
				b[i] = rapid.SampledFrom([]byte{0, 1, 127, 128, 254, 255}).Draw(t, "byte")
			}
			return netip.AddrFrom4(b)
		}
		var b [16]byte
		for i := range b {
			b[i] = rapid.SampledFrom([]byte{0, 0, 0, 255, 1, 128}).Draw(t, "byte")
		}
		return netip.AddrFrom16(b).Unmap()
	})
}

func networks() *rapid.Generator[[]string] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
		a := addresses().Draw(t, "address")
		p, err := a.Prefix(rapid.IntRange(0, a.BitLen()).Draw(t, "bits"))
		if err != nil {
			t.Fatal(err)
		}
		if p.Addr().Is4() && rapid.Bool().Draw(t, "mapped") {
			p = netip.PrefixFrom(netip.AddrFrom16(p.Addr().As16()), p.Bits()+96)
		}
		return p.String()
	}), 0, 12)
}

// allows is the naive model: it compares an address with each network.
func allows(l addrlist.Lists, a netip.Addr) bool {
	longest := func(list []string) int {
		most := -1
		for _, text := range list {
			p := netip.MustParsePrefix(text)
			if p.Addr().Is4In6() {
				p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
			}
			if p.Contains(a) {
				most = max(most, p.Bits())
			}
		}
		return most
	}
	allow, deny := longest(l.Allow), longest(l.Deny)
	if allow < 0 && deny < 0 {
		return len(l.Allow) == 0
	}
	return allow > deny
}

// Guarantee: the compiled form decides as a comparison with each network does: the longest prefix decides, deny among
// equal ones, and a list of allowed addresses denies the rest. IPv4-mapped addresses and networks are IPv4. The normal
// form decides as the lists do, passes the check and is its own normal form.
func TestAllowsLikeModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := addrlist.Lists{Allow: networks().Draw(t, "allow"), Deny: networks().Draw(t, "deny")}
		if err := l.Check(); err != nil {
			t.Fatal(err)
		}
		compiled, err := addrlist.Compile(l)
		if err != nil {
			t.Fatal(err)
		}
		normal := l.Normal()
		if again := normal.Normal(); normal.Check() != nil || !again.Equal(normal) {
			t.Fatalf("%v is not its own normal form: got %v, %v", normal, again, normal.Check())
		}
		compiledNormal, err := addrlist.Compile(normal)
		if err != nil {
			t.Fatal(err)
		}
		asked := rapid.SliceOfN(addresses(), 8, 32).Draw(t, "addresses")
		for _, text := range slices.Concat(l.Allow, l.Deny) {
			first := netip.MustParsePrefix(text).Addr().Unmap()
			asked = append(asked, first)
			if before := first.Prev(); before.IsValid() {
				asked = append(asked, before.Unmap()) // the one before ::1:0:0:0 is IPv4-mapped
			}
		}
		for _, a := range asked {
			want := allows(l, a)
			if got := compiled.Allows(a); got != want {
				t.Fatalf("%s: got allowed %t, want %t", a, got, want)
			}
			if got := compiledNormal.Allows(a); got != want {
				t.Fatalf("%s by the normal form %v: got allowed %t, want %t", a, normal, got, want)
			}
			if mapped := netip.AddrFrom16(a.As16()); compiled.Allows(mapped) != want {
				t.Fatalf("%s: got allowed %t, want %t", mapped, !want, want)
			}
		}
	})
}

// Guarantee: without lists every address is allowed, also an unknown one; with any, an unknown address is not. A zone
// does not matter.
func TestUnknownAddress(t *testing.T) {
	none, err := addrlist.Compile(addrlist.Lists{Allow: []string{}})
	if err != nil || none != nil || !none.Allows(netip.Addr{}) {
		t.Errorf("got %v, %v, want every address allowed", none, err)
	}
	for _, l := range []addrlist.Lists{{Deny: []string{"192.0.2.0/24"}}, {Allow: []string{"::/0", "0.0.0.0/0"}}} {
		some, err := addrlist.Compile(l)
		if err != nil || some.Allows(netip.Addr{}) || !some.Allows(netip.MustParseAddr("fe80::1%eth0")) {
			t.Errorf("%v: got an unknown address allowed, or fe80::1%%eth0 denied, %v", l, err)
		}
	}
}

// Guarantee: what is not a network in CIDR notation is refused, with the item and what to write instead; a longer list
// than Max is refused.
func TestCheck(t *testing.T) {
	for _, c := range []struct{ network, want string }{
		{"203.0.113.0/24", ""}, {"0.0.0.0/0", ""}, {"::/0", ""}, {"2001:db8::1/128", ""}, {"::ffff:10.0.0.0/104", ""},
		{"203.0.113.7", "write 203.0.113.7/32"}, {"2001:db8::1", "write 2001:db8::1/128"},
		{"203.0.113.7/24", "write 203.0.113.0/24 for the network, or 203.0.113.7/32"}, {"::ffff:10.0.0.0/90", "behind the prefix"},
		{"fe80::%eth0/64", "is not a network"}, {"10.0.0.0/33", "is not a network"}, {"10.0.0.0/08", "is not a network"}, {"010.0.0.0/8", "is not a network"},
		{"", "is not a network"}, {" 10.0.0.0/8", "is not a network"}, {"example.com", "is not a network"}, {strings.Repeat("x", 1000), "is not a network"},
	} {
		err := addrlist.Lists{Allow: []string{"10.0.0.0/8"}, Deny: []string{"10.0.0.0/8", c.network}}.Check()
		problems := fault.ProblemsOf(err)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: got %v, want it accepted", c.network, err)
		case c.want != "" && (len(problems) != 1 || problems[0].Field != "deny_ips[1]" || !strings.Contains(problems[0].Message, c.want) || len(problems[0].Message) > 200):
			t.Errorf("%.40s: got %+v, want one problem of deny_ips[1] that says %s", c.network, problems, c.want)
		}
	}
	many := make([]string, addrlist.Max+1)
	for i := range many {
		many[i] = fmt.Sprintf("10.0.%d.%d/32", i/256, i%256)
	}
	if err := addrlist.Check(many[1:]); err != nil {
		t.Errorf("%d networks: got %v, want them accepted", addrlist.Max, err)
	}
	if p := fault.ProblemsOf(addrlist.Lists{Allow: many}.Check()); len(p) != 1 || p[0].Field != "allow_ips" {
		t.Errorf("%d networks: got %+v, want a problem of allow_ips", len(many), p)
	}
}

// Guarantee: the normal form is the network itself, and has each network once.
func TestNormal(t *testing.T) {
	got := addrlist.Normal([]string{"::ffff:10.0.0.0/104", "2001:DB8:0::/32", "10.0.0.0/8", "192.0.2.1/32"})
	if want := []string{"10.0.0.0/8", "2001:db8::/32", "192.0.2.1/32"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := addrlist.Normal([]string{}); got != nil {
		t.Errorf("got %v for an empty list, want nil", got)
	}
}

// Guarantee: a list with the most networks needs at most 16 bytes for each end of a network.
func TestCompactForm(t *testing.T) {
	var l addrlist.Lists
	for i := range addrlist.Max {
		l.Allow = append(l.Allow, fmt.Sprintf("2001:db8:%x::/48", 2*i))
		l.Deny = append(l.Deny, fmt.Sprintf("10.%d.0.0/16", i))
	}
	c, err := addrlist.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	edges := 0
	for i := range reflect.ValueOf(*c).NumField() {
		if f := reflect.ValueOf(*c).Field(i); f.Kind() == reflect.Slice {
			edges += f.Len()
		}
	}
	if edges > 2*2*addrlist.Max {
		t.Errorf("got %d edges, want at most two for each network", edges)
	}
}

// BenchmarkAllows measures a decision by two lists with the most networks.
func BenchmarkAllows(b *testing.B) {
	var l addrlist.Lists
	for i := range addrlist.Max {
		l.Allow = append(l.Allow, fmt.Sprintf("10.%d.0.0/16", i))
		l.Deny = append(l.Deny, fmt.Sprintf("10.%d.7.0/24", i))
	}
	c, err := addrlist.Compile(l)
	if err != nil {
		b.Fatal(err)
	}
	a := netip.MustParseAddr("10.77.7.1")
	b.ReportAllocs()
	for b.Loop() {
		if c.Allows(a) {
			b.Fatal("allowed")
		}
	}
}

// Guarantee: lists narrow others exactly if some address that all of the old ones allow is not allowed by all of the new ones, and leave
// none if that holds for every such address.
func TestNarrowsLikeModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var compiled [2][]*addrlist.List
		var all [2][]addrlist.Lists
		for side := range all {
			for range rapid.IntRange(0, 2).Draw(t, "levels") {
				l := addrlist.Lists{Allow: networks().Draw(t, "allow"), Deny: networks().Draw(t, "deny")}
				all[side] = append(all[side], l)
				compiled[side] = append(compiled[side], addrlist.CompileStrict(l))
			}
		}
		allowed := func(side int, a netip.Addr) bool {
			return !slices.ContainsFunc(all[side], func(l addrlist.Lists) bool { return !allows(l, a) })
		}
		// The decisions change only at the ends of networks.
		points := []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
		for _, side := range all {
			for _, l := range side {
				for _, text := range slices.Concat(l.Allow, l.Deny) {
					p := netip.MustParsePrefix(text)
					if p.Addr().Is4In6() {
						p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
					}
					points = append(points, p.Addr())
					last := p.Addr().AsSlice()
					for i := p.Bits(); i < 8*len(last); i++ {
						last[i/8] |= 0x80 >> (i % 8)
					}
					if end, _ := netip.AddrFromSlice(last); end.Next().IsValid() {
						points = append(points, end.Next())
					}
				}
			}
		}
		some, every := false, true
		for _, a := range points {
			if allowed(0, a) {
				refused := !allowed(1, a)
				some, every = some || refused, every && refused
			}
		}
		if gotSome, gotAll := addrlist.Narrows(compiled[0], compiled[1]); gotSome != some || gotAll != (some && every) {
			t.Fatalf("%v to %v: got %t, %t, want %t, %t", all[0], all[1], gotSome, gotAll, some, some && every)
		}
	})
}
