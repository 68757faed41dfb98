package snapshot

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/gateway"
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
	resource *string   // of the scope, normalized by gateway.NormalizePath; nil if it has none
	class    *keyClass
	params   *ratelimit.Params // nil without a rate limit
	bucket   *ratelimit.Bucket // shared by the keys of a rotation
	expires  int64             // microseconds since 1970; 0 means never
	used     atomic.Int64      // last use, in microseconds since 1970
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
	word      apikey.Word
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

// Scope returns the key's scope. Its resource is normalized by gateway.NormalizePath, like
// the paths that it is compared with.
func (k *Key) Scope() apikey.Scope {
	if k.resource == nil {
		return apikey.Scope{Word: k.class.word}
	}
	return apikey.Scope{Word: k.class.word, Resource: *k.resource}
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

// Limit returns the key's own limit. ok is false if it has none.
func (k *Key) Limit() (l ratelimit.Limit, ok bool) {
	return ratelimit.Limit{Scope: ratelimit.KeyScope, Params: k.params, Bucket: k.bucket}, k.bucket != nil
}

// compileKey returns k without class and limit. It fails if an identifier is not valid.
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
	if k.Scope.Resource != "" {
		resource := gateway.NormalizePath(nil, k.Scope.Resource)
		c.resource = &resource
	}
	if !k.ExpiresAt.IsZero() {
		c.expires = k.ExpiresAt.UnixMicro()
	}
	return c, nil
}

// same reports whether k and o are equal, except for their last use.
func (k *Key) same(o *Key) bool {
	return k.digest == o.digest && k.id == o.id && k.BucketID() == o.BucketID() && k.owner == o.owner && k.Scope() == o.Scope() &&
		k.class == o.class && k.params == o.params && k.bucket == o.bucket && k.expires == o.expires
}

// withBucket returns a copy of k with another limit.
func (k *Key) withBucket(p *ratelimit.Params, b *ratelimit.Bucket) *Key {
	return &Key{digest: k.digest, id: k.id, chain: k.chain, owner: k.owner, resource: k.resource, class: k.class, params: p, bucket: b, expires: k.expires}
}
