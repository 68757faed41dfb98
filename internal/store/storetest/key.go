package storetest

import (
	"context"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

func (h *harness) key(accountID, keyID string) *apikey.Key {
	h.Helper()
	return get(h, func(ctx context.Context, tx control.ReadTx) (*apikey.Key, error) {
		return tx.Key(ctx, accountID, keyID)
	})
}

func scope() *rapid.Generator[apikey.Scope] {
	return rapid.Custom(func(t *rapid.T) apikey.Scope {
		return apikey.Scope{Word: rapid.SampledFrom([]apikey.Word{apikey.Read, apikey.Write, apikey.Admin}).Draw(t, "word"),
			Resource: maybe(rapid.SampledFrom([]string{"orders/items", "a*", "x,y:z"})).Draw(t, "resource")}
	})
}

func keyOf(a *account.Account) *rapid.Generator[*apikey.Key] {
	return rapid.Custom(func(t *rapid.T) *apikey.Key {
		k := newKey(a)
		k.Name = text().Draw(t, "name")
		k.Level = rapid.SampledFrom([]apikey.Level{apikey.GatewayLevel, apikey.AccountLevel}).Draw(t, "level")
		k.Scope = rapid.SliceOfN(scope(), 1, apikey.MaxScopes).Draw(t, "scope")
		setOwner(k, rapid.StringMatching(`[ -~]{0,20}`).Draw(t, "owner"))
		k.PlanID = maybe(rapid.Just(id.New(id.Plan))).Draw(t, "plan")
		k.GatewayID = maybe(rapid.Just(id.New(id.Gateway))).Draw(t, "gateway")
		k.RateLimit = maybe(keyLimitOf()).Draw(t, "rate_limit")
		k.Concurrency = rapid.Int64Range(0, ratelimit.MaxConcurrency).Draw(t, "concurrency")
		if rapid.Bool().Draw(t, "has addresses") {
			k.Addresses = addrlist.Lists{Allow: []string{"203.0.113.0/24", "2001:db8::/32"}}
			if rapid.Bool().Draw(t, "denied ones too") {
				k.Addresses.Deny = []string{"203.0.113.7/32"}
			}
		}
		if rapid.Bool().Draw(t, "has metadata") {
			k.Metadata = rapid.MapOfN(text(), text(), 1, 16).Draw(t, "metadata")
		}
		if rapid.Bool().Draw(t, "rotated") {
			k.BucketID, k.RotatedFrom = id.New(id.Key), id.New(id.Key)
		}
		k.RotatedTo = maybe(rapid.Just(id.New(id.Key))).Draw(t, "rotated_to")
		k.CreatedAt = moment().Draw(t, "created_at")
		k.ExpiresAt = maybe(moment()).Draw(t, "expires_at")
		k.RevokedAt = maybe(moment()).Draw(t, "revoked_at")
		k.LastUsedAt = maybe(moment()).Draw(t, "last_used_at")
		k.ExpiryNotified = maybe(rapid.SampledFrom([]time.Time{k.ExpiresAt, epoch()})).Draw(t, "expiry_told")
		k.Ended = rapid.Bool().Draw(t, "ended")
		k.Imported = rapid.Bool().Draw(t, "imported")
		k.HolderRoot = maybe(rapid.Just(id.New(id.Key))).Draw(t, "holder_root")
		k.HolderRotatedAt = maybe(moment()).Draw(t, "holder_rotated_at")
		k.Version = rapid.Int64Min(1).Draw(t, "version")
		return k
	})
}

// Guarantee: a key is returned as it was inserted, with texts in any script, metadata, times in
// microseconds, and absent values.
func testKeyRoundTrip(h *harness) {
	a := h.insertAccount("a")
	rapid.Check(h, func(t *rapid.T) {
		k := keyOf(a).Draw(t, "key")
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertKey(ctx, k) })
		same(t, "by id", h.key(a.ID, k.ID), k)
		same(t, "by digest", get(h, func(ctx context.Context, tx control.ReadTx) (*apikey.Key, error) {
			return tx.KeyByDigest(ctx, k.Digest)
		}), k)
	})
}

// Guarantee: an update writes all fields except the fixed ones and LastUsedAt, which TouchKeys sets.
func testKeyUpdate(h *harness) {
	a := h.insertAccount("a")
	rapid.Check(h, func(t *rapid.T) {
		k, changed := keyOf(a).Draw(t, "key"), keyOf(a).Draw(t, "changed")
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertKey(ctx, k) })
		changed.ID = k.ID
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateKey(ctx, changed) })
		changed.Digest, changed.Prefix, changed.Imported, changed.CreatedAt, changed.LastUsedAt = k.Digest, k.Prefix, k.Imported, k.CreatedAt, k.LastUsedAt
		same(t, "updated", h.key(a.ID, k.ID), changed)
	})
}

// Guarantee: a digest is unique, and a key that does not exist cannot be found or changed.
func testKeyRules(h *harness) {
	a := h.insertAccount("a")
	k := h.insertKey(a, nil)
	twin := newKey(a)
	twin.Digest = k.Digest
	h.conflict("digest", func(ctx context.Context, tx control.Tx) error { return tx.InsertKey(ctx, twin) })
	twin = newKey(a)
	twin.ID = k.ID
	h.rejected(fault.Conflict, func(ctx context.Context, tx control.Tx) error { return tx.InsertKey(ctx, twin) })

	gone := newKey(a)
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error { return tx.UpdateKey(ctx, gone) })
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error {
		return tx.InsertKey(ctx, newKey(&account.Account{ID: id.New(id.Account)}))
	})
	missing(h, "unknown id", func(ctx context.Context, tx control.ReadTx) (*apikey.Key, error) { return tx.Key(ctx, a.ID, gone.ID) })
	missing(h, "unknown digest", func(ctx context.Context, tx control.ReadTx) (*apikey.Key, error) {
		return tx.KeyByDigest(ctx, gone.Digest)
	})
}

// Guarantee: of any number of digests, HaveDigests returns those that keys of the account have, the revoked ones
// included, and none that another account has.
func testHaveDigests(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	var digests []apikey.Digest
	want := map[apikey.Digest]bool{}
	for i := range 300 {
		k := newKey(a)
		switch {
		case i%3 == 1:
			k.AccountID = b.ID
		case i%2 == 0:
			k.RevokedAt = epoch()
		}
		if digests = append(digests, k.Digest); i%7 > 0 {
			h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertKey(ctx, k) })
			if k.AccountID == a.ID {
				want[k.Digest] = true
			}
		}
	}
	have := func(digests []apikey.Digest) map[apikey.Digest]bool {
		return get(h, func(ctx context.Context, tx control.ReadTx) (map[apikey.Digest]bool, error) {
			return tx.HaveDigests(ctx, a.ID, digests)
		})
	}
	same(h, "of 300 digests", have(digests), want)
	same(h, "of none", have(nil), map[apikey.Digest]bool{})
	same(h, "of one", have(digests[2:3]), map[apikey.Digest]bool{digests[2]: true})
}

// Guarantee: TouchKeys only moves LastUsedAt forward, and ignores keys that do not exist.
func testKeyTouch(h *harness) {
	a := h.insertAccount("a")
	k, other := h.insertKey(a, nil), h.insertKey(a, nil)
	touch := func(at time.Time) time.Time {
		h.update(func(ctx context.Context, tx control.Tx) error {
			return tx.TouchKeys(ctx, map[string]time.Time{k.ID: at, id.New(id.Key): at})
		})
		return h.key(a.ID, k.ID).LastUsedAt
	}
	first, later := epoch(), epoch().Add(time.Microsecond)
	same(h, "first use", touch(first), first)
	same(h, "later use", touch(later), later)
	same(h, "earlier use", touch(first), later)
	same(h, "untouched", h.key(a.ID, other.ID), other)
	k.LastUsedAt = later
	same(h, "everything else", h.key(a.ID, k.ID), k)
}

func ids(keys []apikey.Key) []string {
	list := []string{}
	for i := range keys {
		list = append(list, keys[i].ID)
	}
	return list
}

// sortedIDs is ids for results without an order.
func sortedIDs(keys []apikey.Key) []string {
	list := ids(keys)
	slices.Sort(list)
	return list
}

func sortedOf(keys ...*apikey.Key) []string {
	list := []string{}
	for _, k := range keys {
		list = append(list, k.ID)
	}
	slices.Sort(list)
	return list
}

// revoke is a change for insertKey.
func revoke(k *apikey.Key) { k.RevokedAt = epoch() }

// Guarantee: KeysOfBucket returns the keys of a chain of rotations that are neither revoked, nor ended, nor
// expired before a given time, whether or not the first one is, up to a limit, and CountKeysOfBucket their number.
func testKeysOfBucket(h *harness) {
	a := h.insertAccount("a")
	first := h.insertKey(a, nil)
	follow := func(k *apikey.Key) { k.BucketID = first.ID }
	second, third := h.insertKey(a, follow), h.insertKey(a, follow)
	revoked := h.insertKey(a, func(k *apikey.Key) { follow(k); revoke(k) })
	expires := func(at time.Time, ended bool) *apikey.Key {
		return h.insertKey(a, func(k *apikey.Key) { follow(k); k.ExpiresAt, k.Ended = at, ended })
	}
	expired, before, ended := expires(epoch(), false), expires(epoch().Add(-time.Microsecond), false), expires(epoch(), true)
	h.insertKey(a, nil)
	some := func(bucketID string, limit int) []string {
		return sortedIDs(get(h, func(ctx context.Context, tx control.ReadTx) ([]apikey.Key, error) {
			return tx.KeysOfBucket(ctx, a.ID, bucketID, epoch(), limit)
		}))
	}
	bucket := func(bucketID string) []string { return some(bucketID, 10) }
	same(h, "chain", bucket(first.ID), sortedOf(first, second, third, expired))
	same(h, "some of it", len(some(first.ID, 2)), 2)
	count := func(bucketID string, limit int) int {
		return get(h, func(ctx context.Context, tx control.ReadTx) (int, error) {
			return tx.CountKeysOfBucket(ctx, a.ID, bucketID, epoch(), limit)
		})
	}
	same(h, "their number", []int{count(first.ID, 10), count(first.ID, 2), count(second.ID, 10)}, []int{4, 2, 0})
	same(h, "by a follower's id", bucket(second.ID), sortedOf())
	revoke(first)
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateKey(ctx, first) })
	same(h, "without the first", bucket(first.ID), sortedOf(second, third, expired))
	b := h.insertAccount("b")
	other := h.insertKey(b, func(k *apikey.Key) { k.BucketID = id.New(id.Key) })
	same(h, "shared buckets", get(h, func(ctx context.Context, tx control.ReadTx) (map[string]string, error) {
		return tx.SharedBuckets(ctx, a.ID)
	}), map[string]string{second.ID: first.ID, third.ID: first.ID, revoked.ID: first.ID, expired.ID: first.ID, before.ID: first.ID, ended.ID: first.ID})
	same(h, "shared buckets of another account", get(h, func(ctx context.Context, tx control.ReadTx) (map[string]string, error) {
		return tx.SharedBuckets(ctx, b.ID)
	}), map[string]string{other.ID: other.BucketID})
}

// Guarantee: KeysByHolders returns the keys that self-service has made from a root after a time and that may be in use,
// the newest first, up to a limit: not those that were revoked or ended, those of another root, bucket or account, and those
// that an operator made.
func testKeysByHolders(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	root := h.insertKey(a, nil)
	made := func(of *account.Account, days int, more func(*apikey.Key)) *apikey.Key {
		return h.insertKey(of, func(k *apikey.Key) {
			k.BucketID, k.HolderRoot, k.CreatedAt = root.ID, root.ID, epoch().AddDate(0, 0, days)
			if more != nil {
				more(k)
			}
		})
	}
	first, second := made(a, 1, nil), made(a, 2, func(k *apikey.Key) { k.ExpiresAt = epoch() })
	made(a, 3, revoke)
	made(a, 4, func(k *apikey.Key) { k.Ended = true })
	made(a, 5, func(k *apikey.Key) { k.HolderRoot = "" })
	made(a, 6, func(k *apikey.Key) { k.HolderRoot = id.New(id.Key) })
	made(a, 7, func(k *apikey.Key) { k.BucketID = id.New(id.Key) })
	made(b, 8, nil)
	third := made(a, 9, nil)
	list := func(of *account.Account, after time.Time, limit int) []string {
		return ids(get(h, func(ctx context.Context, tx control.ReadTx) ([]apikey.Key, error) {
			return tx.KeysByHolders(ctx, of.ID, root.ID, root.ID, after, limit)
		}))
	}
	same(h, "all", list(a, time.Time{}, 10), []string{third.ID, second.ID, first.ID})
	same(h, "the newest", list(a, time.Time{}, 1), []string{third.ID})
	same(h, "after the first", list(a, first.CreatedAt, 10), []string{third.ID, second.ID})
	same(h, "after the last", list(a, third.CreatedAt, 10), []string{})
	revoke(second)
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateKey(ctx, second) })
	same(h, "without a revoked one", list(a, time.Time{}, 10), []string{third.ID, first.ID})
}

// Guarantee: KeysToNotify returns expired keys whose expiry was not notified yet, the earliest
// first and in batches. A key that gets a new expiry is returned again.
func testKeysToNotify(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	at := func(d time.Duration) func(*apikey.Key) {
		return func(k *apikey.Key) { k.ExpiresAt = epoch().Add(d) }
	}
	third := h.insertKey(a, at(0))
	first := h.insertKey(a, at(-2*time.Second))
	second := h.insertKey(b, at(-time.Second))
	later := h.insertKey(a, at(time.Microsecond))
	h.insertKey(a, nil)
	h.insertKey(a, func(k *apikey.Key) { at(-time.Hour)(k); revoke(k) })
	h.insertKey(a, func(k *apikey.Key) { at(-time.Hour)(k); k.ExpiryNotified = k.ExpiresAt })
	again := h.insertKey(a, func(k *apikey.Key) { at(time.Hour)(k); k.ExpiryNotified = epoch() })

	due := func(now time.Time, limit int) []string {
		return ids(get(h, func(ctx context.Context, tx control.ReadTx) ([]apikey.Key, error) {
			return tx.KeysToNotify(ctx, now, limit)
		}))
	}
	same(h, "all due", due(epoch(), 10), []string{first.ID, second.ID, third.ID})
	same(h, "first batch", due(epoch(), 2), []string{first.ID, second.ID})
	for _, k := range []*apikey.Key{first, second} {
		k.ExpiryNotified = k.ExpiresAt
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateKey(ctx, k) })
	}
	same(h, "what is left", due(epoch(), 2), []string{third.ID})
	same(h, "a microsecond later", due(epoch().Add(time.Microsecond), 10), []string{third.ID, later.ID})
	same(h, "a new expiry of a key that was notified", due(epoch().Add(time.Hour), 10), []string{third.ID, later.ID, again.ID})
}
