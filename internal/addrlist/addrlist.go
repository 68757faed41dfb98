// Package addrlist implements the lists of addresses that may use a gateway, a route or a key, and of those that may
// not (edge.md, section 2: allow_ips and deny_ips).
package addrlist

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/keygate/keygate/internal/fault"
)

// Max is the maximum number of networks of a list.
const Max = 256

// Names of the fields with the two lists.
const (
	AllowField = "allow_ips"
	DenyField  = "deny_ips"
)

// Lists are the addresses that are allowed and those that are denied, as networks in CIDR notation. The longest prefix
// that contains an address decides, and among equal ones that of Deny. An address in none of them is allowed if Allow is
// empty. The zero value allows every address.
type Lists struct {
	Allow []string `json:"allow_ips,omitempty"`
	Deny  []string `json:"deny_ips,omitempty"`
}

// IsZero reports whether there are no lists, so that every address is allowed.
func (l Lists) IsZero() bool { return len(l.Allow) == 0 && len(l.Deny) == 0 }

// Bytes returns how many bytes the lists have as JSON, as they are stored; 0 without lists.
func (l Lists) Bytes() int {
	if l.IsZero() {
		return 0
	}
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // it consists of texts
	}
	return len(text)
}

// Equal reports whether both have the same networks in the same order.
func (l Lists) Equal(o Lists) bool {
	return slices.Equal(l.Allow, o.Allow) && slices.Equal(l.Deny, o.Deny)
}

// Check checks both lists. The error is a validation error of the fields "allow_ips" and "deny_ips", and of their items.
func (l Lists) Check() error {
	return fault.Join(fault.Prefixed(AllowField, Check(l.Allow)), fault.Prefixed(DenyField, Check(l.Deny)))
}

// Normal returns the lists in normal form.
func (l Lists) Normal() Lists { return Lists{Normal(l.Allow), Normal(l.Deny)} }

// Check checks one list, which may have at most Max networks. The error is a validation error of its items, or of the
// field "" for the list itself.
func Check(list []string) error {
	if len(list) > Max {
		return fault.Invalid("", "must not have more than %d networks: fold some into larger ones", Max)
	}
	var problems []error
	for i, text := range list {
		if _, problem := parse(text); problem != "" {
			problems = append(problems, fault.Invalid(fmt.Sprintf("[%d]", i), "%s", problem))
		}
	}
	return fault.Join(problems...)
}

// Normal returns a list that passes Check with each network once, in its normal form and at its first position; nil for
// an empty list. It returns any other list as it is.
func Normal(list []string) []string {
	if len(list) > Max {
		return list
	}
	var normal []string
	seen := make(map[netip.Prefix]bool, len(list))
	for _, text := range list {
		p, problem := parse(text)
		if problem != "" {
			return list
		}
		if !seen[p] {
			normal = append(normal, p.String())
		}
		seen[p] = true
	}
	return normal
}

// parse returns the network that text names, an IPv4 network for one of IPv4-mapped addresses, or what is wrong with text.
func parse(text string) (p netip.Prefix, problem string) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
			return netip.Prefix{}, fmt.Sprintf("has no prefix length: write %s/%d for this address alone", a, a.BitLen())
		}
		return netip.Prefix{}, fmt.Sprintf("%.60q is not a network: write it as 203.0.113.0/24 or 2001:db8::/32", text)
	}
	if masked := p.Masked(); masked != p {
		return netip.Prefix{}, fmt.Sprintf("has bits of the address behind the prefix: write %s for the network, or %s/%d for this address alone", masked, p.Addr(), p.Addr().BitLen())
	}
	if p.Addr().Is4In6() { // at least 96 bits, since the bits before would be behind the prefix
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p, ""
}

// List is the compiled form of Lists: the addresses at which the decision changes, in their order. A search in it is
// binary, and it needs 4 bytes for each edge of IPv4 and 16 for one of IPv6. It is immutable. A nil List allows every
// address.
type List struct {
	otherwise bool // the decision on the lowest address, and on those in no network
	edges4    []uint32
	edges6    []edge6
}

type edge6 struct{ high, low uint64 }

func (e edge6) compare(o edge6) int {
	return cmp.Or(cmp.Compare(e.high, o.high), cmp.Compare(e.low, o.low))
}

// Compile returns the compiled form of lists; nil if they are empty. It fails if one has something that is not a network.
func Compile(l Lists) (*List, error) {
	if l.IsZero() {
		return nil, nil
	}
	allowed := map[netip.Prefix]bool{}
	for _, list := range []struct {
		networks []string
		allow    bool
	}{{l.Allow, true}, {l.Deny, false}} { // deny is last, as it decides among equal prefixes
		for _, text := range list.networks {
			p, problem := parse(text)
			if problem != "" {
				return nil, fmt.Errorf("addrlist: %q %s", text, problem)
			}
			allowed[p] = list.allow
		}
	}
	c := &List{otherwise: len(l.Allow) == 0}
	for _, e := range edgesOf(allowed, c.otherwise, netip.Addr.Is4) {
		b := e.As4()
		c.edges4 = append(c.edges4, binary.BigEndian.Uint32(b[:]))
	}
	for _, e := range edgesOf(allowed, c.otherwise, netip.Addr.Is6) {
		c.edges6 = append(c.edges6, edgeOf(e))
	}
	return c, nil
}

// CompileStrict is Compile for lists that were checked. It allows no address if one has something that is not a network.
func CompileStrict(l Lists) *List {
	c, err := Compile(l)
	if err != nil {
		return &List{}
	}
	return c
}

// edgesOf returns the addresses of one family at which the decision changes, beginning with otherwise. The networks are
// nested or disjoint, so that one pass over them in their order, with a stack of those that are open, finds the edges.
func edgesOf(allowed map[netip.Prefix]bool, otherwise bool, family func(netip.Addr) bool) []netip.Addr {
	var networks []netip.Prefix
	for p := range allowed {
		if family(p.Addr()) {
			networks = append(networks, p)
		}
	}
	slices.SortFunc(networks, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	type change struct {
		at    netip.Addr
		allow bool
	}
	var changes []change
	put := func(at netip.Addr, allow bool) {
		if n := len(changes); n > 0 && changes[n-1].at == at {
			changes[n-1].allow = allow
			return
		}
		changes = append(changes, change{at, allow})
	}
	var open []netip.Prefix
	closeLast := func() {
		end := last(open[len(open)-1]).Next()
		open = open[:len(open)-1]
		decision := otherwise
		if len(open) > 0 {
			decision = allowed[open[len(open)-1]]
		}
		if end.IsValid() { // else the network ends with the highest address
			put(end, decision)
		}
	}
	for _, p := range networks {
		for len(open) > 0 && !open[len(open)-1].Contains(p.Addr()) {
			closeLast()
		}
		open = append(open, p)
		put(p.Addr(), allowed[p])
	}
	for len(open) > 0 {
		closeLast()
	}
	var edges []netip.Addr
	decision := otherwise
	for _, c := range changes {
		if c.allow != decision {
			decision = c.allow
			edges = append(edges, c.at)
		}
	}
	return edges
}

// last returns the highest address of a network.
func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func edgeOf(a netip.Addr) edge6 {
	b := a.As16()
	return edge6{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// Allows reports whether the lists allow an address. An IPv4-mapped IPv6 address is the IPv4 address, and a zone is
// ignored. An address that is not valid, because the client's is not known, is not allowed.
func (l *List) Allows(a netip.Addr) bool {
	if l == nil {
		return true
	}
	var passed int // number of edges at or before a
	var at bool
	switch a = a.Unmap(); {
	case a.Is4():
		b := a.As4()
		if passed, at = slices.BinarySearch(l.edges4, binary.BigEndian.Uint32(b[:])); at {
			passed++
		}
	case a.Is6():
		if passed, at = slices.BinarySearchFunc(l.edges6, edgeOf(a), edge6.compare); at {
			passed++
		}
	default:
		return false
	}
	return l.otherwise != (passed%2 == 1)
}
