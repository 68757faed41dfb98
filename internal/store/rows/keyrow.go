package rows

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/ratelimit"
)

// KeyRow is what the data plane needs of the row of a key. NULL is "".
type KeyRow struct {
	ID, Account          string
	Digest               []byte
	Level, Word          int64
	Resource, More       string
	Gateway, Owner       string
	OwnerID, Plan        string
	Bucket, Rate         string
	Concurrency          int64 // NULL is 0
	Expires, Revoked     int64 // microseconds
	HasExpiry, IsRevoked bool
	Ended, Imported      bool
	Addresses            string
}

// KeyDecoder decodes the rows of many keys. Equal accounts, gateways, plans, owners' identifiers, scopes and lists of
// addresses share their memory.
type KeyDecoder struct {
	key    apikey.Key
	shared map[string]string // identifiers
	scopes map[scopeRow]apikey.Scopes
	rate   string // encoded key.RateLimit
	lists  map[string]addrlist.Lists
}

// Decode returns the key of a row, which is valid until the next call.
func (d *KeyDecoder) Decode(r KeyRow) (*apikey.Key, error) {
	k := &d.key
	if r.ID == "" || len(r.Digest) != len(k.Digest) {
		return nil, fmt.Errorf("the row of key %q is damaged", r.ID)
	}
	k.ID, k.AccountID, k.Digest = r.ID, d.share(r.Account), apikey.Digest(r.Digest)
	k.Level = levelOf(r.Level)
	k.Scope = d.scope(scopeRow{r.Word, r.Resource, r.More})
	k.GatewayID, k.Owner, k.OwnerID, k.PlanID = d.share(r.Gateway), r.Owner, d.share(r.OwnerID), d.share(r.Plan)
	if k.BucketID = r.ID; r.Bucket != "" {
		k.BucketID = r.Bucket
	}
	if r.Rate != d.rate {
		var err error
		if k.RateLimit, err = ratelimit.ParseKeyLimit(r.Rate); err != nil {
			k.RateLimit, d.rate = ratelimit.KeyLimit{}, "" // of no row: the next one is parsed
			return nil, fmt.Errorf("stored rate of key %s: %w", r.ID, err)
		}
		d.rate = r.Rate
	}
	k.Concurrency = r.Concurrency
	if k.ExpiresAt = (time.Time{}); r.HasExpiry {
		k.ExpiresAt = time.UnixMicro(r.Expires).UTC()
	}
	k.Ended, k.Imported = r.Ended, r.Imported
	var err error
	if k.Addresses, err = d.addresses(r.Addresses); err != nil {
		return nil, fmt.Errorf("stored addresses of key %s: %w", r.ID, err)
	}
	if k.RevokedAt = (time.Time{}); r.IsRevoked {
		k.RevokedAt = time.UnixMicro(r.Revoked).UTC()
	}
	return k, nil
}

// addresses returns the lists of a row, which equal rows share as long as these are not too many.
func (d *KeyDecoder) addresses(text string) (l addrlist.Lists, err error) {
	if text == "" {
		return l, nil
	}
	l, known := d.lists[text]
	if known {
		return l, nil
	}
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return addrlist.Lists{}, err
	}
	if d.lists == nil {
		d.lists = map[string]addrlist.Lists{}
	}
	if len(d.lists) < maxSharedLists {
		d.lists[text] = l
	}
	return l, nil
}

// maxSharedLists bounds how many different lists of addresses are remembered.
const maxSharedLists = 1 << 10

// scopeRow is the columns that hold the scopes of a key.
type scopeRow struct {
	word           int64
	resource, more string
}

// scope returns the scopes of a row, which all equal rows share.
func (d *KeyDecoder) scope(row scopeRow) apikey.Scopes {
	if one, ok := d.scopes[row]; ok {
		return one
	}
	if d.scopes == nil {
		d.scopes = map[scopeRow]apikey.Scopes{}
	}
	one := scopesOf(row.word, row.resource, row.more)
	d.scopes[row] = one
	return one
}

// maxShared bounds how many different identifiers are remembered: owners may be as many as keys.
const maxShared = 1 << 16

// share returns s as a string that all equal values share, as long as these are not too many.
func (d *KeyDecoder) share(s string) string {
	if s == "" {
		return ""
	}
	if one, ok := d.shared[s]; ok {
		return one
	}
	if d.shared == nil {
		d.shared = map[string]string{}
	}
	if len(d.shared) < maxShared {
		d.shared[s] = s
	}
	return s
}
