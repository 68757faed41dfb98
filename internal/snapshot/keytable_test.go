package snapshot

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// TestKeyTableAgainstMap holds that the table finds what a map finds after any
// run of additions, replacements and removals, with keys that collide, and that
// what a reader holds does not change under it.
func TestKeyTableAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := &keyTable{private: rapid.Bool().Draw(t, "private")}
		model := map[apikey.Digest]*Key{}
		digest := rapid.Custom(func(t *rapid.T) (d apikey.Digest) {
			// One shard, and first slots that repeat.
			binary.LittleEndian.PutUint64(d[:8], rapid.Uint64Range(0, 6).Draw(t, "slot")<<shardBits)
			d[31] = byte(rapid.IntRange(0, 4).Draw(t, "rest"))
			return d
		})
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			d := digest.Draw(t, "digest")
			held := table.digests[0].Load()
			var slots []*Key
			if held != nil {
				slots = append(slots, held.slots...)
			}
			old := model[d]
			if old != nil && rapid.Bool().Draw(t, "remove") {
				table.remove(old)
				delete(model, d)
			} else {
				k := &Key{digest: d, id: [16]byte(d[16:])}
				k.chain = &[16]byte{byte(rapid.IntRange(0, 3).Draw(t, "bucket"))}
				if rapid.Bool().Draw(t, "rated") {
					k.bucket = new(ratelimit.Bucket)
				}
				table.put(old, k)
				model[d] = k
			}
			if held != nil && !table.private {
				for i := range slots {
					if held.slots[i] != slots[i] {
						t.Fatal("a published shard changed")
					}
				}
			}
		}
		n := 0
		table.each(func(k *Key) {
			n++
			if model[k.digest] != k {
				t.Fatalf("the table has a key that the map has not")
			}
		})
		if n != len(model) {
			t.Fatalf("%d keys, want %d", n, len(model))
		}
		for slot := range uint64(8) {
			for rest := range 6 {
				var d apikey.Digest
				binary.LittleEndian.PutUint64(d[:8], slot<<shardBits)
				d[31] = byte(rest)
				if table.find(&d) != model[d] {
					t.Fatalf("find %x", d)
				}
			}
		}
		for b := range byte(5) {
			partners := map[*Key]bool{}
			table.partners([16]byte{b}, func(k *Key) { partners[k] = true })
			for _, k := range model {
				if want := k.bucket != nil && k.chain[0] == b; partners[k] != want {
					t.Fatalf("partner %v, want %v", partners[k], want)
				}
				delete(partners, k)
			}
			if len(partners) != 0 {
				t.Fatal("a partner that is gone")
			}
		}
	})
}

// manyKeys is a source of n keys that are made as they are asked for, so that
// they weigh nothing themselves.
type manyKeys struct {
	*house
	n     int
	rate  ratelimit.Rate
	owner bool
}

func (m *manyKeys) nth(i int) (k apikey.Key) {
	var u [16]byte
	binary.BigEndian.PutUint64(u[:8], 0x0190_0000_0000_7000+uint64(i)<<16)
	binary.BigEndian.PutUint64(u[8:], uint64(i+1)*0x9e3779b97f4a7c15)
	k = apikey.Key{ID: id.Format(id.Key, u), AccountID: m.account.ID, Digest: m.digest(i), Level: apikey.GatewayLevel, Scope: apikey.Scope{Word: apikey.Read}, RateLimit: m.rate}
	if m.owner {
		k.Owner = fmt.Sprintf("customer-%07d", i)
	}
	return k
}

func (m *manyKeys) digest(i int) apikey.Digest {
	return apikey.DigestOf(fmt.Sprint("key number ", i))
}

func (m *manyKeys) EachKey(_ context.Context, f func(*apikey.Key) error) error {
	for i := range m.n {
		k := m.nth(i)
		if err := f(&k); err != nil {
			return err
		}
	}
	return nil
}

// source puts EachKey of manyKeys in the place of the house's.
type manySource struct {
	Source
	keys *manyKeys
}

func (s manySource) EachKey(ctx context.Context, f func(*apikey.Key) error) error {
	return s.keys.EachKey(ctx, f)
}

func liveOf(t testing.TB, m *manyKeys) *Follower {
	t.Helper()
	l, err := New(Config{Source: manySource{m.source, m}, Ledger: m.ledger, Now: m.clock.Now})
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

// BenchmarkKeyMemory loads a million keys, with an owner of 16 bytes and, in the
// second form, a rate limit of their own, and reports the live heap that each
// takes and the time of the whole load.
func BenchmarkKeyMemory(b *testing.B) {
	const keys = 1_000_000
	for _, c := range []struct {
		name string
		rate ratelimit.Rate
	}{{"plain", ratelimit.Rate{}}, {"rated", ratelimit.Rate{Count: 100, Per: 1e9}}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				m := &manyKeys{house: newHouse(b), n: keys, rate: c.rate, owner: true}
				l := liveOf(b, m)
				empty := liveHeap()
				began := time.Now()
				if err := l.Load(context.Background()); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(time.Since(began).Seconds(), "load-s")
				perKey := float64(liveHeap()-empty) / keys
				b.ReportMetric(perKey, "B/key")
				if perKey > 250 {
					b.Errorf("%.0f bytes of live heap for each key, want at most 250", perKey)
				}
				runtime.KeepAlive(l)
			}
		})
	}
}

// TestKeySize holds that a key fills two lines of a cache.
func TestKeySize(t *testing.T) {
	if size := unsafe.Sizeof(Key{}); size != 128 {
		t.Errorf("a key has %d bytes, want 128", size)
	}
}

// TestKeyMemory holds the bound of live heap for each key at a size that a test
// can afford.
func TestKeyMemory(t *testing.T) {
	const keys = 100_000
	m := &manyKeys{house: newHouse(t), n: keys, rate: ratelimit.Rate{Count: 100, Per: 1e9}, owner: true}
	l := liveOf(t, m)
	empty := liveHeap()
	if err := l.Load(context.Background()); err != nil {
		t.Fatal(err)
	}
	if perKey := float64(liveHeap()-empty) / keys; perKey > 250 {
		t.Errorf("%.0f bytes of live heap for each key, want at most 250", perKey)
	}
	for i := range keys {
		d := m.digest(i)
		if k := l.Current().KeyByDigest(d); k == nil || k.digest != d {
			t.Fatalf("key %d is not found", i)
		}
	}
	runtime.KeepAlive(l)
}

// BenchmarkKeyChange creates and revokes one key beside others: the cost must
// not depend on how many there are.
func BenchmarkKeyChange(b *testing.B) {
	for _, n := range []int{10, 1_000_000} {
		b.Run(fmt.Sprintf("among-%d", n), func(b *testing.B) {
			m := &manyKeys{house: newHouse(b), n: n}
			l := liveOf(b, m)
			ctx := context.Background()
			if err := l.Load(ctx); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			i := n
			for b.Loop() {
				i++
				k := m.nth(i)
				table := l.Current().keys
				if err := l.putKey(table, &k); err != nil {
					b.Fatal(err)
				}
				l.removeKey(table, table.find(&k.Digest))
			}
		})
	}
}

// BenchmarkFindKey looks up keys among 100,000 by their digests, each in turn.
func BenchmarkFindKey(b *testing.B) {
	const keys = 100_000
	m := &manyKeys{house: newHouse(b), n: keys}
	l := liveOf(b, m)
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
