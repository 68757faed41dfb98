package snapshot

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Key is a key in force. It is immutable, except for the time of its last use; a change of
// the key creates another. There may be a million keys, and each request meets another one,
// so a Key has no field that can be derived or shared, and fills two cache lines.
type Key struct {
	digest   apikey.Digest
	id       [16]byte
	owner    string
	chain    *[16]byte // identifier of the bucket, if it differs from id
	scopes   *scopes   // shared by keys with the same scopes
	class    *keyClass
	limit    *keyLimit    // shared by the keys of a rotation; nil without a rate limit
	expires  int64        // microseconds since 1970; 0 means never
	used     atomic.Int64 // last use, in microseconds since 1970
	nextUsed atomic.Pointer[Key]
}

// keyClass is what many keys have in common.
type keyClass struct {
	classID
	used *usedList
	keys int // number of keys in the class; guarded by the Follower's lock
}

type classID struct {
	accountID string
	gatewayID string
	level     apikey.Level
}

// ID returns the key's identifier. It allocates; AppendID does not.
func (k *Key) ID() string { return id.Format(id.Key, k.id) }

// AppendID appends the key's identifier to dst.
func (k *Key) AppendID(dst []byte) []byte { return id.Append(dst, id.Key, k.id) }

// UUID returns the 16 bytes that the key's identifier encodes.
func (k *Key) UUID() [16]byte { return k.id }

// AccountID returns the identifier of the key's account.
func (k *Key) AccountID() string { return k.class.accountID }

// Level returns the key's level.
func (k *Key) Level() apikey.Level { return k.class.level }

// scopes is the scopes of keys, in normal form. The first one, which is usually the only
// one, is within the struct.
type scopes struct {
	first apikey.Scope
	more  []apikey.Scope
}

// Scope returns the key's scopes in normal form, like the paths that they are compared
// with. It allocates; Allows does not.
func (k *Key) Scope() apikey.Scopes {
	return append(apikey.Scopes{k.scopes.first}, k.scopes.more...)
}

// Allows reports whether one of the key's scopes allows method on path, as
// apikey.Scope.Allows does.
func (k *Key) Allows(method, path string) bool {
	return k.scopes.first.Allows(method, path) || apikey.Scopes(k.scopes.more).Allows(method, path)
}

// Owner returns the key's owner, or "".
func (k *Key) Owner() string { return k.owner }

// GatewayID returns the gateway that the key is restricted to, or "".
func (k *Key) GatewayID() string { return k.class.gatewayID }

// BucketID returns the identifier of the key's rate limit bucket, which the keys of a
// rotation share.
func (k *Key) BucketID() [16]byte {
	if k.chain != nil {
		return *k.chain
	}
	return k.id
}

// Expired reports whether the key has expired at the time now.
func (k *Key) Expired(now time.Time) bool { return k.ExpiredAt(now.UnixMicro()) }

// ExpiredAt is Expired for a time in microseconds since 1970.
func (k *Key) ExpiredAt(now int64) bool { return k.expires != 0 && now >= k.expires }

// Expires returns when the key expires, in microseconds since 1970, or 0 if it never does. For a key that
// the store has for expired, it is a time long past.
func (k *Key) Expires() int64 { return k.expires }

// keyLimit is the rate limit of a key, and of the others of its rotation.
type keyLimit struct {
	params  *ratelimit.Params // of bucket; nil if it has none
	bucket  *ratelimit.Bucket
	daily   int64 // cap; 0 for none
	dailies *ratelimit.Dailies
}

func (l *keyLimit) equal(o *keyLimit) bool {
	return l.daily == o.daily && (l.params == nil) == (o.params == nil) && (l.params == nil || *l.params == *o.params)
}

// AddLimits adds the key's own limits to c. It allocates only for the first request of a key
// with a daily cap.
func (k *Key) AddLimits(c *ratelimit.Charge) {
	l := k.limit
	if l == nil {
		return
	}
	if l.bucket != nil {
		c.Add(ratelimit.Limit{Scope: ratelimit.KeyScope, Params: l.params, Bucket: l.bucket}, 1)
	}
	if l.daily > 0 {
		c.Add(ratelimit.Limit{Scope: ratelimit.KeyDailyScope, Daily: l.dailies.DailyOf(k.BucketID(), l.daily)}, 1)
	}
}

// ended is the expiry of a key that has ended by the store, so that no clock is asked.
const ended = 1

// compileKey returns k without class, scopes and limit. It fails if an identifier is not valid.
func compileKey(k *apikey.Key) (*Key, error) {
	c := &Key{digest: k.Digest, owner: k.Owner}
	var ok bool
	if c.id, ok = id.Parse(id.Key, k.ID); !ok {
		return nil, fmt.Errorf("compile key: %q is not a key ID", k.ID)
	}
	if k.BucketID != "" && k.BucketID != k.ID {
		chain, ok := id.Parse(id.Key, k.BucketID)
		if !ok {
			return nil, fmt.Errorf("compile key %s: bucket ID %q is not a key ID", k.ID, k.BucketID)
		}
		c.chain = &chain
	}
	switch {
	case k.Ended:
		c.expires = ended
	case !k.ExpiresAt.IsZero():
		c.expires = k.ExpiresAt.UnixMicro()
	}
	return c, nil
}

// same reports whether k and o are equal, except for their last use.
func (k *Key) same(o *Key) bool {
	return k.digest == o.digest && k.id == o.id && k.BucketID() == o.BucketID() && k.owner == o.owner && (k.scopes == o.scopes || slices.Equal(k.Scope(), o.Scope())) &&
		k.class == o.class && k.limit == o.limit && k.expires == o.expires
}

// withLimit returns a copy of k with another limit.
func (k *Key) withLimit(l *keyLimit) *Key {
	return &Key{digest: k.digest, id: k.id, chain: k.chain, owner: k.owner, scopes: k.scopes, class: k.class, limit: l, expires: k.expires}
}
