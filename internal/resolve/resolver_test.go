package resolve

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/keygatetest/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// fakeLookup looks up names as its function says.
type fakeLookup func(ctx context.Context, host string) ([]netip.Addr, error)

func (f fakeLookup) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	return f(ctx, host)
}

func (fakeLookup) LookupSRV(context.Context, string, string, string) (string, []*net.SRV, error) {
	return "", nil, errors.New("not expected")
}

// start starts a resolver in the bubble of a test. The result has the upstreams that were told of changes.
func start(t *testing.T, by Lookup) (r *Resolver, told func() []balance.Name) {
	t.Helper()
	var mu sync.Mutex
	var list []balance.Name
	began := time.Now()
	r, err := New(Config{Lookup: by, Now: func() time.Duration { return time.Since(began) }, Changed: func(n balance.Name) {
		mu.Lock()
		defer mu.Unlock()
		list = append(list, n)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r, func() []balance.Name {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		defer func() { list = nil }()
		return slices.Clone(list)
	}
}

// Guarantee (targets.md, section 5): a name is looked up at once and then every refresh, and upstreams are told of what changes and of
// nothing else. A failure keeps the last addresses and says degraded until a look-up succeeds.
func TestNamesAreLookedUpEveryRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lookups atomic.Int64
		var now atomic.Pointer[[]netip.Addr] // nil: it does not exist
		r, told := start(t, fakeLookup(func(_ context.Context, host string) ([]netip.Addr, error) {
			lookups.Add(1)
			if list := now.Load(); list != nil {
				return *list, nil
			}
			return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		}))
		one, two := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
		owner, other, n := balance.Name{Account: "a", Upstream: "x"}, balance.Name{Account: "a", Upstream: "y"}, Name{Host: "n.test"}
		want := func(when string, changed int, degraded bool, addrs ...netip.Addr) {
			t.Helper()
			got, found := told(), r.Found("a", n)
			var list []netip.Addr
			for _, record := range found.Records {
				list = append(list, record.Addr)
			}
			if len(got) != changed || found.Degraded != degraded || !slices.Equal(list, addrs) {
				t.Errorf("%s: told %v, degraded %v, addresses %v; want %d upstreams, %v, %v", when, got, found.Degraded, list, changed, degraded, addrs)
			}
		}
		r.Want(owner, 10*time.Second, []Name{n})
		want("it does not exist", 1, true)
		now.Store(&[]netip.Addr{two, one})
		time.Sleep(10 * time.Second) //nolint:forbidigo // virtual time
		want("it exists", 1, false, one, two)
		r.Want(other, 2*time.Second, []Name{n, n})
		now.Store(&[]netip.Addr{one, two})
		before := lookups.Load()
		time.Sleep(10 * time.Second) //nolint:forbidigo // virtual time
		want("only the order changes", 0, false, one, two)
		if n := lookups.Load() - before; n != 5 {
			t.Errorf("got %d look-ups in 10 s; want 5, in the shorter refresh", n)
		}
		now.Store(&[]netip.Addr{})
		time.Sleep(2 * time.Second) //nolint:forbidigo // virtual time
		want("it has no address", 2, true, one, two)
		now.Store(&[]netip.Addr{two})
		time.Sleep(2 * time.Second) //nolint:forbidigo // virtual time
		want("it has one", 2, false, two)
		r.Want(owner, 0, nil)
		r.Want(other, 0, nil)
		before = lookups.Load()
		time.Sleep(time.Hour) //nolint:forbidigo // virtual time
		if got := r.Found("a", n); lookups.Load() != before || got.Records != nil {
			t.Errorf("got %d look-ups and %v after nothing wants the name", lookups.Load()-before, got)
		}
		if err := r.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Guarantee: neither Start, Want nor Stop waits for a name server that does not respond; the look-ups at a time are bounded; and each
// ends after 5 s.
func TestSilentNameServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at, most, ended atomic.Int64
		began := time.Now()
		r, told := start(t, fakeLookup(func(ctx context.Context, _ string) ([]netip.Addr, error) {
			most.Store(max(most.Load(), at.Add(1)))
			defer at.Add(-1)
			<-ctx.Done()
			ended.Add(1)
			return nil, ctx.Err()
		}))
		var names []Name
		for i := range 100 {
			names = append(names, Name{Host: string(rune('a' + i))})
		}
		for _, account := range []string{"a", "b", "c", "d", "e"} {
			r.Want(balance.Name{Account: account}, time.Second, names)
		}
		told()
		if time.Since(began) != 0 || at.Load() != MaxRunning {
			t.Errorf("waited %v, with %d look-ups; want %d", time.Since(began), at.Load(), MaxRunning)
		}
		time.Sleep(lookupTimeout) //nolint:forbidigo // virtual time
		if got := told(); ended.Load() != MaxRunning || most.Load() != MaxRunning || len(got) == 0 {
			t.Errorf("after 5 s, %d look-ups have ended, with at most %d at a time, and %d upstreams were told; want %d", ended.Load(), most.Load(), len(got), MaxRunning)
		}
		stopped := time.Now()
		if err := r.Stop(t.Context()); err != nil || time.Since(stopped) != 0 {
			t.Errorf("Stop took %v, error %v", time.Since(stopped), err)
		}
	})
}
