package snapshot

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/ratelimit"
)

// Guarantee: after any sequence of additions, replacements and removals of colliding keys,
// the table finds what a map finds, and a published shard has not changed.
func TestKeyTableAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := &keyTable{private: rapid.Bool().Draw(t, "private"), seed: 1}
		model := map[shortDigest]*Key{}
		digest := rapid.Custom(func(t *rapid.T) (d shortDigest) {
			// All in one shard, with few first slots.
			binary.LittleEndian.PutUint64(d[:8], rapid.Uint64Range(0, 6).Draw(t, "slot")<<shardBits)
			d[15] = byte(rapid.IntRange(0, 4).Draw(t, "rest"))
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
				k := &Key{Caller: Caller{digest: d, id: d}}
				k.chain = &[16]byte{byte(rapid.IntRange(0, 3).Draw(t, "bucket"))}
				if rapid.Bool().Draw(t, "rated") {
					k.limit = &keyLimit{bucket: new(ratelimit.Bucket)}
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
		checkTable(t, table, model)
	})
}

// checkTable checks that table finds exactly the keys of model.
func checkTable(t *rapid.T, table *keyTable, model map[shortDigest]*Key) {
	n := 0
	table.each(func(k *Key) {
		n++
		if model[k.digest] != k {
			t.Fatalf("the table has a key that the map does not have")
		}
	})
	if n != len(model) {
		t.Fatalf("each called %d times, want %d", n, len(model))
	}
	for slot := range uint64(8) {
		for rest := range 6 {
			var d shortDigest
			binary.LittleEndian.PutUint64(d[:8], slot<<shardBits)
			d[15] = byte(rest)
			if table.findShort(&d) != model[d] {
				t.Fatalf("find(%x): got %v, want %v as in the map", d, table.findShort(&d), model[d])
			}
		}
	}
	for b := range byte(5) {
		partners := map[*Key]bool{}
		table.partners([16]byte{b}, func(k *Key) { partners[k] = true })
		for _, k := range model {
			if want := k.limit != nil && k.chain[0] == b; partners[k] != want {
				t.Fatalf("key found by its bucket: got %v, want %v", partners[k], want)
			}
			delete(partners, k)
		}
		if len(partners) != 0 {
			t.Fatal("a removed key was found by its bucket")
		}
	}
}

// Guarantee: a key needs at most 96 bytes, which is a size of the allocator.
func TestKeySize(t *testing.T) {
	if size := unsafe.Sizeof(Key{}); size > 96 {
		t.Errorf("a Key has %d bytes, want at most 96", size)
	}
}
