package snapshot_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
)

// manyKeys is a source of n keys that are generated when they are read, so that they use no
// memory themselves.
type manyKeys struct {
	*harness
	n      int
	rate   ratelimit.Rate
	owner  bool   // ten keys each have an owner
	planID string // of the owners and of the keys themselves
}

// keysOfOwner is the number of keys that an owner has.
const keysOfOwner = 10

func (m *manyKeys) nth(i int) (k apikey.Key) {
	k = apikey.Key{ID: nthID(id.Key, i), AccountID: m.account.ID, Digest: m.digest(i), Level: apikey.GatewayLevel, Scope: apikey.Scopes{{Word: apikey.Read}}, RateLimit: ratelimit.RateOf(m.rate)}
	if m.owner {
		o := m.nthOwner(i / keysOfOwner)
		k.Owner, k.OwnerID, k.PlanID = o.ExternalID, o.ID, m.planID
	}
	return k
}

func nthID(k id.Kind, i int) string {
	var u [16]byte
	binary.BigEndian.PutUint64(u[:8], 0x0190_0000_0000_7000+uint64(i)<<16)
	binary.BigEndian.PutUint64(u[8:], uint64(i+1)*0x9e3779b97f4a7c15)
	return id.Format(k, u)
}

func (m *manyKeys) nthOwner(i int) owner.Owner {
	return owner.Owner{ID: nthID(id.Owner, i), AccountID: m.account.ID, ExternalID: fmt.Sprintf("customer-%07d", i), State: owner.Active, PlanID: m.planID}
}

func (m *manyKeys) digest(i int) apikey.Digest {
	return apikey.DigestOf(fmt.Sprint("key number ", i))
}

func (m *manyKeys) EachKey(_ context.Context, _ time.Time, f func(*apikey.Key) error) error {
	for i := range m.n {
		k := m.nth(i)
		if err := f(&k); err != nil {
			return err
		}
	}
	return nil
}

// manySource is the harness's source with the keys of manyKeys.
type manySource struct {
	snapshot.Source
	keys *manyKeys
}

func (s manySource) EachKey(ctx context.Context, revokedSince time.Time, f func(*apikey.Key) error) error {
	return s.keys.EachKey(ctx, revokedSince, f)
}

func (s manySource) EachOwner(_ context.Context, f func(*owner.Owner) error) error {
	for i := range s.keys.n / keysOfOwner {
		if o := s.keys.nthOwner(i); s.keys.owner {
			if err := f(&o); err != nil {
				return err
			}
		}
	}
	return nil
}

func followerOf(t testing.TB, m *manyKeys) *snapshot.Follower {
	t.Helper()
	l, err := snapshot.New(snapshot.Config{Source: manySource{m.source, m}, Reserver: m.reserver, Now: m.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// BenchmarkKeyMemory loads a million keys with 100,000 owners of 16 bytes, without and with a
// rate limit of their own, and reports the live heap per key and the time of the load.
func BenchmarkKeyMemory(b *testing.B) {
	const keys = 1_000_000
	for _, c := range []struct {
		name string
		rate ratelimit.Rate
	}{{"plain", ratelimit.Rate{}}, {"rated", ratelimit.Rate{Count: 100, Per: 1e9}}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				m := &manyKeys{harness: newHarness(b), n: keys, rate: c.rate, owner: true}
				l := followerOf(b, m)
				empty := liveHeap()
				began := time.Now()
				if err := l.Load(context.Background()); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(time.Since(began).Seconds(), "load-s")
				perKey := float64(liveHeap()-empty) / keys
				b.ReportMetric(perKey, "B/key")
				if perKey > 250 {
					b.Errorf("%.0f bytes of live heap per key, want at most 250", perKey)
				}
				runtime.KeepAlive(l)
			}
		})
	}
}

// Guarantee: a key with an owner, which nine other keys have too, uses at most 250 bytes of live heap, measured with fewer
// keys than in BenchmarkKeyMemory.
func TestKeyMemory(t *testing.T) {
	const keys = 100_000
	m := &manyKeys{harness: newHarness(t), n: keys, rate: ratelimit.Rate{Count: 100, Per: 1e9}, owner: true}
	l := followerOf(t, m)
	empty := liveHeap()
	if err := l.Load(context.Background()); err != nil {
		t.Fatal(err)
	}
	if perKey := float64(liveHeap()-empty) / keys; perKey > 250 {
		t.Errorf("%.0f bytes of live heap per key, want at most 250", perKey)
	}
	for i := range keys {
		d := m.digest(i)
		if k := l.Current().KeyByDigest(d); k == nil || !k.HasDigest(d) {
			t.Fatalf("key %d is not found", i)
		}
	}
	runtime.KeepAlive(l)
}

// BenchmarkKeyChange creates and revokes one key among others. The cost must not depend on
// their number.
func BenchmarkKeyChange(b *testing.B) {
	for _, n := range []int{10, 1_000_000} {
		b.Run(fmt.Sprintf("among-%d", n), func(b *testing.B) {
			m := &manyKeys{harness: newHarness(b), n: n}
			l := followerOf(b, m)
			ctx := context.Background()
			if err := l.Load(ctx); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			i := n
			for b.Loop() {
				i++
				k := m.nth(i)
				if err := l.PutKey(&k); err != nil {
					b.Fatal(err)
				}
				l.RemoveKey(k.Digest)
			}
		})
	}
}

// BenchmarkFindKey finds keys among 100,000 by their digests, one after the other.
func BenchmarkFindKey(b *testing.B) {
	const keys = 100_000
	m := &manyKeys{harness: newHarness(b), n: keys}
	l := followerOf(b, m)
	if err := l.Load(context.Background()); err != nil {
		b.Fatal(err)
	}
	digests := make([]apikey.Digest, 4096)
	for i := range digests {
		digests[i] = m.digest(i * 7919 % keys)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if l.Current().KeyByDigest(digests[i%len(digests)]) == nil {
			b.Fatal("not found")
		}
		i++
	}
}
