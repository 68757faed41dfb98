package snapshot

import (
	"net/netip"
	"time"

	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// CallerKind says what kind of credential identifies a Caller.
type CallerKind uint8

// The kinds.
const (
	Nobody      CallerKind = iota // there is none: the kind of a nil Caller
	KeyCaller                     // an API key
	TokenCaller                   // a token of an issuer
)

// Caller is who makes a request, as far as the data plane is concerned: what its credential allows, and
// which limits it has. A Caller is immutable. A nil Caller is nobody: the request is to a public route,
// or its credential identifies no one.
//
// There may be a million keys, each with a Caller, so a Caller has no field that can be derived or shared.
type Caller struct {
	digest  shortDigest // of the credential
	id      [16]byte
	owner   *ownerSlot // nil without an owner
	chain   *[16]byte  // identifier of the bucket, if it differs from id
	rights  *rights    // shared by callers with the same scopes, plan and addresses
	class   *callerClass
	limit   *keyLimit // shared by the keys of a rotation; nil without limits
	expires int64     // microseconds since 1970; 0 means never
}

// callerClass is what many callers have in common.
type callerClass struct {
	classID
	used *usedList
	keys int // number of keys in the class; guarded by the Follower's lock
}

type classID struct {
	kind      CallerKind
	accountID string
	gatewayID string
	level     apikey.Level
	imported  bool
}

// rights is the scopes of callers, in normal form, their plan, and the addresses that may use their keys. The first scope, which is usually the only
// one, is within the struct.
type rights struct {
	first apikey.Scope
	more  []apikey.Scope
	plan  *planSlot // of the callers themselves; nil without a plan

	addresses *addrlist.List // that may use the keys; nil for all
}

// Kind returns the caller's kind.
func (c *Caller) Kind() CallerKind {
	if c == nil {
		return Nobody
	}
	return c.class.kind
}

// ID returns the identifier of the caller's key. It allocates; AppendID does not.
func (c *Caller) ID() string { return id.Format(id.Key, c.id) }

// AppendID appends the caller's identifier to dst.
func (c *Caller) AppendID(dst []byte) []byte { return id.Append(dst, id.Key, c.id) }

// UUID returns the 16 bytes that the caller's identifier encodes, or the hash of the issuer and the subject of a token; zeros
// for nobody.
func (c *Caller) UUID() [16]byte {
	if c == nil {
		return [16]byte{}
	}
	return c.id
}

// AccountID returns the identifier of the account that issued the credential.
func (c *Caller) AccountID() string { return c.class.accountID }

// GatewayID returns the gateway that the credential is restricted to, or "".
func (c *Caller) GatewayID() string { return c.class.gatewayID }

// Owner returns the external ID of the owner, or "".
func (c *Caller) Owner() string {
	if c == nil || c.owner == nil {
		return ""
	}
	return c.owner.externalID
}

// OwnerUUID returns the 16 bytes that the identifier of the owner encodes; zeros without one.
func (c *Caller) OwnerUUID() [16]byte {
	if c == nil || c.owner == nil || c.owner.unrecorded {
		return [16]byte{}
	}
	return c.owner.id
}

// OwnerSuspended reports whether the owner is suspended now.
func (c *Caller) OwnerSuspended() bool { return c != nil && c.owner != nil && c.owner.suspended.Load() }

// Scope returns the scopes in normal form, like the paths that they are compared with. It allocates;
// Allows does not.
func (c *Caller) Scope() apikey.Scopes {
	return append(apikey.Scopes{c.rights.first}, c.rights.more...)
}

// Allows reports whether one of the scopes allows method on path, as apikey.Scope.Allows does. To
// nobody, nothing is allowed.
func (c *Caller) Allows(method, path string) bool {
	return c != nil && (c.rights.first.Allows(method, path) || apikey.Scopes(c.rights.more).Allows(method, path))
}

// Expires returns when the credential expires, in microseconds since 1970, or 0 if it never does. For a
// key that the store marks as ended, it is a time long past.
func (c *Caller) Expires() int64 {
	if c == nil {
		return 0
	}
	return c.expires
}

// ExpiredAt reports whether the credential has expired at the time now, in microseconds since 1970.
func (c *Caller) ExpiredAt(now int64) bool { return c.expires != 0 && now >= c.expires }

// Expired is ExpiredAt for a time.Time.
func (c *Caller) Expired(now time.Time) bool { return c.ExpiredAt(now.UnixMicro()) }

// BucketID returns the identifier of the caller in limits that count each caller. The keys of a rotation
// share it, and so do the tokens of an issuer with the same subject; for nobody it is zero.
func (c *Caller) BucketID() [16]byte {
	if c != nil && c.chain != nil {
		return *c.chain
	}
	return c.UUID()
}

// PrincipalHash returns the balance.HashValue of who makes a request: of the key, where the keys of a rotation are one principal.
// Without a key it is that of the address of the client, IPv6 by /64, and isAddress is set.
func (c *Caller) PrincipalHash(client netip.Addr) (hash uint64, isAddress bool) {
	p := c.BucketID()
	if isAddress = p == ([16]byte{}); isAddress {
		p = clientip.GroupOf(client)
	}
	return balance.HashValue(p[:]), isAddress
}

// AddLimits adds the caller's own limits to a charge, and reports whether there is room to count them. It allocates only for
// the first request of a caller.
func (c *Caller) AddLimits(charge *ratelimit.Charge) (fits bool) {
	if c == nil || c.limit == nil {
		return true
	}
	l := c.limit
	if l.bucket != nil {
		charge.Add(ratelimit.Limit{Scope: ratelimit.KeyScope, Params: l.params, Bucket: l.bucket}, 1)
	}
	if l.daily > 0 {
		charge.Add(ratelimit.Limit{Scope: ratelimit.KeyDailyScope, Daily: l.dailies.DailyOf(c.BucketID(), l.daily)}, 1)
	}
	if l.slots != nil {
		slots := l.slots.Slots(c.BucketID())
		if slots == nil {
			return false
		}
		charge.Add(ratelimit.Limit{Scope: ratelimit.KeyConcurrencyScope, Slots: slots, Most: l.most}, 1)
	}
	return true
}
