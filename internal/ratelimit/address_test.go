package ratelimit

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/clientip"
)

// group4 and group6 return groups of different IPv4 addresses, and of networks of a site.
func group4(n int) clientip.Group {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(n))
	return clientip.GroupOf(netip.AddrFrom4(b))
}

func group6(site, network int) clientip.Group {
	b := [16]byte{0: 0x20, 1: 0x01}
	binary.BigEndian.PutUint32(b[2:], uint32(site))
	binary.BigEndian.PutUint16(b[6:], uint16(network))
	return clientip.GroupOf(netip.AddrFrom16(b))
}

// use decides a request of a group, and returns what its bucket has left.
func use(t interface {
	Helper()
	Fatal(args ...any)
}, b *Buckets, now Instant, g clientip.Group) (left int64, admitted bool) {
	t.Helper()
	for range 3 {
		p, one := b.Address(g)
		if one == nil {
			t.Fatal("there is no bucket")
		}
		var c Charge
		c.Add(Limit{Scope: AnonymousScope, Params: p, Bucket: one}, 1)
		if r := (&Limiter{}).Decide(now, &c); r != Stale {
			return c.Worst().Remaining, r == Admitted
		}
	}
	t.Fatal("the bucket stays closed")
	return 0, false
}

func addressBuckets(budget *AccountBudget, rate string) (*Buckets, *Params) {
	r, err := ParseRate(rate)
	if err != nil {
		panic(err)
	}
	p := CompileRate(r)
	return (*Sharing)(nil).NewAddressBuckets(Name{}, &p, budget), &p
}

// Guarantee: each address has what the limit says, and the networks of a site have it each until there are more
// than 256. Then the site has it once, until its bucket is full and dropped.
func TestManyNetworksOfASiteCountAsOne(t *testing.T) {
	b, _ := addressBuckets(NewBudget(1<<30).Of("a"), "3/min")
	now := Instant{Mono: int64(time.Hour), Wall: int64(time.Hour)}
	for n := range maxNetworks {
		for want := int64(2); want >= 0; want-- {
			if left, ok := use(t, b, now, group6(1, n)); left != want || !ok {
				t.Fatalf("network %d has %d left, want %d", n, left, want)
			}
		}
	}
	for i, network := range []int{300, 0, 301} { // new ones, and one that has used its own
		if left, ok := use(t, b, now, group6(1, network)); left != int64(2-i) || !ok {
			t.Fatalf("request %d of the site leaves %d, want %d", i, left, 2-i)
		}
	}
	if _, ok := use(t, b, now, group6(1, 60_000)); ok {
		t.Fatal("a network beyond 256 has a bucket of its own")
	}
	if left, ok := use(t, b, now, group6(2, 0)); left != 2 || !ok {
		t.Fatal("another site is counted together with the first")
	}
	b.Sweep(now, nil)
	if _, ok := use(t, b, now, group6(1, 3)); ok {
		t.Fatal("the bucket of the site is gone before it was full")
	}
	now = Instant{Mono: now.Mono + int64(2*time.Minute), Wall: now.Wall + int64(2*time.Minute)}
	b.Sweep(now, nil)
	for n := range maxNetworks {
		if left, _ := use(t, b, now, group6(1, n)); left != 2 {
			t.Fatalf("network %d of the site that was idle has %d left, want 2", n, left)
		}
	}
}

// Guarantee: a node has 65,536 buckets of addresses, and 4,096 more for accounts that hold fewer than 256. Addresses
// without a place share one bucket of their limit. A flood at one account takes no place from another.
func TestAddressesBeyondTheSlotsShareOneBucket(t *testing.T) {
	budget := NewBudget(1 << 30)
	now := Instant{Mono: int64(time.Hour), Wall: int64(time.Hour)}
	flood, _ := addressBuckets(budget.Of("flood"), "2/min")
	for n := range MaxAddresses {
		if left, ok := use(t, flood, now, group4(n)); left != 1 || !ok {
			t.Fatalf("address %d has %d left", n, left)
		}
	}
	for n, want := range []bool{true, true, false, false} {
		if _, ok := use(t, flood, now, group4(MaxAddresses+n)); ok != want {
			t.Fatalf("address %d beyond the places was admitted: %t, want %t", n, ok, want)
		}
	}
	if left, ok := use(t, flood, now, group4(7)); left != 0 || !ok {
		t.Fatal("an address that has a place lost it")
	}
	for account := range reservedAddresses/fewAddresses + 2 {
		other, _ := addressBuckets(budget.Of(string(rune('A'+account))), "2/min")
		for n := range fewAddresses + 5 {
			use(t, other, now, group4(n))
		}
		total := int(budget.Addresses()) - MaxAddresses
		if want := min((account+1)*fewAddresses, reservedAddresses); total != want {
			t.Fatalf("%d reserved places are taken by %d accounts, want %d", total, account+1, want)
		}
	}
	select {
	case <-budget.Short():
	default:
		t.Error("no sweep is due")
	}
	flood.Drop()
	if n := budget.Addresses(); n != reservedAddresses {
		t.Errorf("%d places are taken after the flood's limit is gone, want %d", n, reservedAddresses)
	}
}

// Guarantee: in any order of requests, sweeps and changes of the limit, the bucket of an address with a place
// decides as a bucket that is never dropped, and no more places are taken than there are buckets.
func TestBucketsOfAddressesAreDroppedOnlyWhenFull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		budget := NewBudget(1 << 30)
		rates := []string{"3/min", "2/s", "10/h"}
		b, p := addressBuckets(budget.Of("a"), rates[0])
		now := Instant{Mono: int64(time.Hour), Wall: int64(time.Hour)}
		model := map[clientip.Group]*Bucket{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			wait := rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute}).Draw(t, "wait")
			now = Instant{Mono: now.Mono + int64(wait), Wall: now.Wall + int64(wait)}
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				b.Sweep(now, nil)
			case 1:
				r, _ := ParseRate(rapid.SampledFrom(rates).Draw(t, "rate"))
				next := CompileRate(r)
				for g, one := range model {
					model[g] = one.Convert(p, &next, now)
				}
				p = &next
				b.Configure(p, now)
			default:
				g := rapid.SampledFrom([]clientip.Group{group4(1), group4(2), group6(1, 1), group6(1, 2), group6(2, 1)}).Draw(t, "address")
				if model[g] == nil {
					model[g] = new(Bucket)
				}
				var c Charge
				c.Add(Limit{Params: p, Bucket: model[g]}, 1)
				want := (&Limiter{}).Decide(now, &c) == Admitted
				if left, ok := use(t, b, now, g); ok != want || left != c.Worst().Remaining {
					t.Fatalf("%s: admitted %t with %d left, want %t with %d", g, ok, left, want, c.Worst().Remaining)
				}
			}
			if n := budget.Addresses(); n > int64(len(model)) {
				t.Fatalf("%d places are taken by %d addresses", n, len(model))
			}
		}
		b.Drop()
		if n := budget.Addresses(); n != 0 {
			t.Fatalf("%d places are taken without a limit", n)
		}
	})
}

// Guarantee: goroutines that use many addresses at once take no more places than there are, and one for each bucket.
func TestAddressSlotsAreExactUnderConcurrency(t *testing.T) {
	budget := NewBudget(1 << 30)
	b, _ := addressBuckets(budget.Of("a"), "1000/s")
	const goroutines, each = 8, 12_000
	done := make(chan struct{})
	for g := range goroutines {
		go func() {
			defer func() { done <- struct{}{} }()
			for n := range each {
				b.Address(group4(n + g*each/2))
				if n%4000 == 0 {
					b.Sweep(Instant{Mono: 1}, nil)
				}
			}
		}()
	}
	for range goroutines {
		<-done
	}
	buckets := 0
	b.Buckets(func(*Bucket) { buckets++ })
	if n := budget.Addresses(); n != int64(buckets) || n > MaxAddresses {
		t.Errorf("%d places are taken by %d buckets", n, buckets)
	}
}

// BenchmarkAddress finds the buckets of addresses that have one, from all goroutines. It should take less than 60 ns
// and not allocate.
func BenchmarkAddress(b *testing.B) {
	for name, group := range map[string]func(n int) clientip.Group{"IPv4": group4, "IPv6": func(n int) clientip.Group { return group6(n, n) }} {
		b.Run(name, func(b *testing.B) {
			set, _ := addressBuckets(NewBudget(1<<30).Of("a"), "1000/s")
			const count = 10_000
			groups := make([]clientip.Group, count)
			for i := range groups {
				groups[i] = group(i)
				set.Address(groups[i])
			}
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for n := 0; pb.Next(); n++ {
					if _, one := set.Address(groups[n%count]); one == nil {
						b.Fail()
					}
				}
			})
		})
	}
}
