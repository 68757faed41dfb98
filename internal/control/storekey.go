package control

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/apikey"
)

// KeyFilter selects keys for a list. Fields that are zero select every key.
type KeyFilter struct {
	State     apikey.State
	GatewayID string
	Level     apikey.Level
	Owner     string
	PlanID    string    // of the key itself
	Name      string    // the whole name
	Query     string    // a part of the name, ignoring the case of ASCII letters, or the start of the prefix
	Now       time.Time // distinguishes active keys from expired keys
}

// Searches reports whether many other keys may have to be read to find the keys. That is so if the filter selects names
// or prefixes; if it has two conditions, of which an index has only one, as when all keys of an owner must be read; or
// if it selects a state that many keys have got together and the index does not show yet: revoked with their gateway,
// or expired at the same time.
func (f *KeyFilter) Searches() bool {
	indexed := 0
	for _, of := range []string{f.Owner, f.PlanID, f.GatewayID, string(f.Level)} {
		if of != "" {
			indexed++
		}
	}
	return f.Query != "" || f.Name != "" || indexed > 1 || f.State == apikey.Revoked || f.State == apikey.Expired
}

// KeyReader finds keys.
type KeyReader interface {
	Key(ctx context.Context, accountID, keyID string) (*apikey.Key, error)
	KeyByDigest(ctx context.Context, d apikey.Digest) (*apikey.Key, error)
	// HaveDigests returns those of digests that a key of the account has, in whatever state.
	HaveDigests(ctx context.Context, accountID string, digests []apikey.Digest) (map[apikey.Digest]bool, error)
	Keys(ctx context.Context, accountID string, f KeyFilter, p Page) ([]apikey.Key, error)
	// KeysToRevoke returns up to limit keys, as they are stored, that are restricted to a gateway which has ended and
	// are not stored as revoked yet.
	KeysToRevoke(ctx context.Context, gatewayID string, limit int) ([]apikey.Key, error)
	// KeysOfBucket returns up to limit keys that share a per-key bucket, without those that were revoked,
	// have expired before since, or were ended by a rotation without overlap.
	KeysOfBucket(ctx context.Context, accountID, bucketID string, since time.Time, limit int) ([]apikey.Key, error)
	// CountKeysOfBucket returns how many keys KeysOfBucket would return.
	CountKeysOfBucket(ctx context.Context, accountID, bucketID string, since time.Time, limit int) (int, error)
	// KeysByHolders returns up to limit keys with the HolderRoot root, the newest first, that share the bucket, were
	// created after a time and were neither revoked nor ended by a rotation without overlap.
	KeysByHolders(ctx context.Context, accountID, bucketID, root string, after time.Time, limit int) ([]apikey.Key, error)
	// SharedBuckets returns the per-key bucket of each of the account's keys that a
	// rotation created, in any state. It is the bucket of the first key that was rotated.
	SharedBuckets(ctx context.Context, accountID string) (map[string]string, error)
	// KeysToNotify returns up to limit keys that are not revoked and have expired by now
	// without a key.expired event, the earliest expiry first.
	KeysToNotify(ctx context.Context, now time.Time, limit int) ([]apikey.Key, error)
	// KeysToIndex returns how many keys IndexKeys has yet to index, but at most limit.
	KeysToIndex(ctx context.Context, limit int) (int, error)
}

// KeyStore finds and changes keys. The caller sets Version.
type KeyStore interface {
	KeyReader
	InsertKey(ctx context.Context, k *apikey.Key) error
	// UpdateKey writes all fields but ID, AccountID, Digest, Prefix, Imported, CreatedAt and
	// LastUsedAt.
	UpdateKey(ctx context.Context, k *apikey.Key) error
	// TouchKeys sets LastUsedAt where the given time is later than the stored one. It
	// skips keys that do not exist.
	TouchKeys(ctx context.Context, used map[string]time.Time) error
	// IndexKeys adds up to limit new and changed keys to the index that makes lists with a Name
	// or Query fast, and returns their number. It may index fewer, to keep the transaction
	// short. A list has the same keys before and after.
	IndexKeys(ctx context.Context, limit int) (int, error)
}
