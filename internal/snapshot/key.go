package snapshot

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Key is a key in force: a Caller, and when it was last used. It is immutable, except for that time; a
// change of the key creates another. There may be a million keys, and each request uses a different
// one, so a Key has no field that can be derived or shared, and needs 96 bytes.
type Key struct {
	Caller
	used     atomic.Int64 // last use, in microseconds since 1970
	nextUsed atomic.Pointer[Key]
}

// Level returns the key's level.
func (k *Key) Level() apikey.Level { return k.class.level }

// Imported reports whether the key was imported.
func (k *Key) Imported() bool { return k.class.imported }

// keyLimit is the limits of a key, which the other keys of its rotation share.
type keyLimit struct {
	params  *ratelimit.Params // of bucket; nil without a limit
	bucket  *ratelimit.Bucket
	daily   int64 // cap; 0 for none
	dailies *ratelimit.OwnDailies
	slots   *ratelimit.SlotSet // of the keys of the account; nil for any number of requests in flight
	most    int64              // of them
}

func (l *keyLimit) equal(o *keyLimit) bool {
	return l.daily == o.daily && l.most == o.most && (l.params == nil) == (o.params == nil) && (l.params == nil || *l.params == *o.params)
}

// ended is the expiry of a key that the store marks as ended, so that no clock matters.
const ended = 1

// compileKey returns k without class, rights, limit and owner. It fails if an identifier is not valid.
func compileKey(k *apikey.Key) (*Key, error) {
	c := &Key{Caller: Caller{digest: shortened(&k.Digest)}}
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
	return k.digest == o.digest && k.id == o.id && k.BucketID() == o.BucketID() && k.owner.same(o.owner) && k.rights.plan == o.rights.plan && k.rights.addresses == o.rights.addresses && (k.rights == o.rights || slices.Equal(k.Scope(), o.Scope())) &&
		k.class == o.class && k.limit == o.limit && k.expires == o.expires
}

// withLimit returns a copy of k with another limit.
func (k *Key) withLimit(l *keyLimit) *Key {
	c := &Key{Caller: k.Caller}
	c.limit = l
	return c
}
