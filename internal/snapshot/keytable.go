package snapshot

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"

	"github.com/keygate/keygate/internal/apikey"
)

// shards is the number of shards of a key table. With a million keys, a shard has about
// 244, and a change of one key copies 4 KB.
const shards = 4096

// keyTable finds keys by digest without a lock, while one writer changes it.
type keyTable struct {
	digests [shards]atomic.Pointer[shard]
	// byBucket finds the keys with a rate limit by their bucket. Only the writer uses it,
	// so it is changed in place.
	byBucket [shards]*shard
	// private is set while no reader knows the table, so that digests may be changed in
	// place too.
	private bool
	// changes grows after each change of digests.
	changes atomic.Uint64
	// imported is the number of imported keys.
	imported atomic.Int64
	// seed is random: tenants choose the digests of keys that they import, and must not know which ones collide.
	seed uint64
}

func newKeyTable() *keyTable { return &keyTable{seed: rand.Uint64() | 1} }

// shard is a hash table with open addressing and linear probing, at most three quarters
// full. A shard in digests never changes.
type shard struct {
	slots []*Key // a power of two
	keys  int
}

// digestHash and bucketHash return the hashes of a key: the low bits choose the shard, the
// high bits the first slot. A digest is mixed with the seed, and a bucket identifier, which begins with a
// time, with itself.
func (t *keyTable) digestHash(d *shortDigest) uint64 {
	hi, lo := bits.Mul64(binary.LittleEndian.Uint64(d[:8]), t.seed)
	return hi ^ lo
}

func bucketHash(b *[16]byte) uint64 {
	h := (binary.LittleEndian.Uint64(b[8:]) ^ binary.BigEndian.Uint64(b[:8])) * 0x9e3779b97f4a7c15
	return h ^ h>>32
}

const shardBits = 12

// find returns the key with the digest d, or nil.
func (t *keyTable) find(d *apikey.Digest) *Key {
	short := shortened(d)
	return t.findShort(&short)
}

// findShort is find for the first half of a digest.
func (t *keyTable) findShort(d *shortDigest) *Key {
	h := t.digestHash(d)
	s := t.digests[h%shards].Load()
	if s == nil {
		return nil
	}
	mask := uint64(len(s.slots) - 1)
	for i := h >> shardBits & mask; ; i = (i + 1) & mask {
		k := s.slots[i]
		if k == nil || k.digest == *d {
			return k
		}
	}
}

// put replaces old, which has the same digest, by k, or adds k if old is nil.
func (t *keyTable) put(old, k *Key) {
	at := &t.digests[t.byDigest(k)%shards]
	s := at.Load()
	switch {
	case s == nil:
		s = &shard{}
	case !t.private:
		s = s.clone(old == nil)
	}
	if old == nil {
		s.add(k, t.byDigest)
		t.count(k, 1)
	} else {
		s.slots[s.index(old, t.byDigest)] = k
	}
	at.Store(s)
	t.changes.Add(1)
	if old != nil && old.limit != nil {
		t.bucketShard(old).remove(old, byBucket)
	}
	if k.limit != nil {
		t.bucketShard(k).add(k, byBucket)
	}
}

// remove removes k, which must be in the table.
func (t *keyTable) remove(k *Key) {
	at := &t.digests[t.byDigest(k)%shards]
	s := at.Load()
	if !t.private {
		s = s.clone(false)
	}
	s.remove(k, t.byDigest)
	t.count(k, -1)
	at.Store(s)
	t.changes.Add(1)
	if k.limit != nil {
		t.bucketShard(k).remove(k, byBucket)
	}
}

// removeAll removes the keys that gone selects, and returns them. It copies each shard at most
// once, so that it takes milliseconds even for a million keys.
func (t *keyTable) removeAll(gone func(*Key) bool) (removed []*Key) {
	for i := range t.digests {
		s := t.digests[i].Load()
		if s == nil {
			continue
		}
		kept, before := &shard{}, len(removed)
		for _, k := range s.slots {
			switch {
			case k == nil:
			case gone(k):
				removed = append(removed, k)
			default:
				kept.add(k, t.byDigest)
			}
		}
		if len(removed) == before {
			continue
		}
		if kept.keys == 0 {
			kept = nil
		}
		t.digests[i].Store(kept)
		t.changes.Add(1)
	}
	for _, k := range removed {
		t.count(k, -1)
		if k.limit != nil {
			t.bucketShard(k).remove(k, byBucket)
		}
	}
	return removed
}

// partners calls f for each key with a rate limit whose bucket is identified by b. f must
// not change the table.
func (t *keyTable) partners(b [16]byte, f func(*Key)) {
	h := bucketHash(&b)
	s := t.byBucket[h%shards]
	if s == nil {
		return
	}
	mask := uint64(len(s.slots) - 1)
	for i := h >> shardBits & mask; s.slots[i] != nil; i = (i + 1) & mask {
		if s.slots[i].BucketID() == b {
			f(s.slots[i])
		}
	}
}

// each calls f for each key in the table.
func (t *keyTable) each(f func(*Key)) {
	for i := range t.digests {
		if s := t.digests[i].Load(); s != nil {
			for _, k := range s.slots {
				if k != nil {
					f(k)
				}
			}
		}
	}
}

// count counts n more imported keys if k is one. A key and what replaces it are both imported, or neither is, since
// the digests of imported keys are no others' (apikey.ImportedDigest).
func (t *keyTable) count(k *Key, n int64) {
	if k.class != nil && k.class.imported {
		t.imported.Add(n)
	}
}

func (t *keyTable) bucketShard(k *Key) *shard {
	at := &t.byBucket[byBucket(k)%shards]
	if *at == nil {
		*at = &shard{}
	}
	return *at
}

// hashOf is the type of keyTable.byDigest and byBucket.
type hashOf func(*Key) uint64

func (t *keyTable) byDigest(k *Key) uint64 { return t.digestHash(&k.digest) }
func byBucket(k *Key) uint64               { b := k.BucketID(); return bucketHash(&b) }

// clone returns a copy of s, with room for one more key if grow is set.
func (s *shard) clone(grow bool) *shard {
	c := &shard{keys: s.keys}
	if grow && s.full() {
		c.slots = s.slots // add grows by copying
		return c
	}
	c.slots = append([]*Key(nil), s.slots...)
	return c
}

func (s *shard) full() bool { return 4*(s.keys+1) > 3*len(s.slots) }

// add adds k.
func (s *shard) add(k *Key, hash hashOf) {
	if s.full() {
		grown := make([]*Key, max(4, 2*len(s.slots)))
		for _, o := range s.slots {
			if o != nil {
				grown[free(grown, hash(o))] = o
			}
		}
		s.slots = grown
	}
	s.slots[free(s.slots, hash(k))] = k
	s.keys++
}

// free returns the slot for a new key with the hash h.
func free(slots []*Key, h uint64) uint64 {
	mask := uint64(len(slots) - 1)
	i := h >> shardBits & mask
	for slots[i] != nil {
		i = (i + 1) & mask
	}
	return i
}

// index returns the slot of k, which must be in s.
func (s *shard) index(k *Key, hash hashOf) uint64 {
	mask := uint64(len(s.slots) - 1)
	i := hash(k) >> shardBits & mask
	for s.slots[i] != k {
		i = (i + 1) & mask
	}
	return i
}

// remove removes k, which must be in s, and moves later keys of its probe sequence back.
func (s *shard) remove(k *Key, hash hashOf) {
	mask := uint64(len(s.slots) - 1)
	hole := s.index(k, hash)
	s.slots[hole] = nil
	s.keys--
	for i := (hole + 1) & mask; s.slots[i] != nil; i = (i + 1) & mask {
		home := hash(s.slots[i]) >> shardBits & mask
		if (i-home)&mask >= (i-hole)&mask { // the hole is between its first slot and i
			s.slots[hole], s.slots[i] = s.slots[i], nil
			hole = i
		}
	}
}
