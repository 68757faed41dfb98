// Package apikey defines API keys: their strings, scopes, states, and the rules for
// creating, expiring and revoking them (specification, API key; contract, 3.1 and 3.2).
package apikey

import (
	"time"

	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/label"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/ratelimit"
)

// State is the state of a key.
type State string

// The states.
const (
	Active  State = "active"
	Expired State = "expired"
	Revoked State = "revoked"
)

// Key is the stored record of a key. Of the key string it contains only the prefix and the
// digest. Zero times and empty strings mean absent.
type Key struct {
	ID        string
	AccountID string
	Digest    Digest
	Prefix    string
	Name      string
	Level     Level
	Scope     Scopes
	Owner     string             // the external ID of its owner, or ""
	OwnerID   string             // "" without an owner
	PlanID    string             // of the key itself, whatever its owner has; "" for none
	Plan      string             // the name of that plan, in what package control shows; it is not stored
	GatewayID string             // "" for all gateways of the account
	RateLimit ratelimit.KeyLimit // of the bucket and the daily count BucketID
	// Concurrency is how many requests of the keys with its BucketID may be in flight at once: 1 to
	// ratelimit.MaxConcurrency, or 0 for any number.
	Concurrency int64
	Metadata    map[string]string
	// Addresses are those that may use the key, in normal form.
	Addresses addrlist.Lists

	// BucketID identifies the key's rate limit bucket: it is the ID of the first key in a
	// chain of rotations, so that the old and the new key share a bucket.
	BucketID string

	CreatedAt  time.Time
	ExpiresAt  time.Time
	RevokedAt  time.Time
	LastUsedAt time.Time

	RotatedFrom string
	RotatedTo   string

	// HolderRoot is the ID of the key from which rotations by holders alone have led to this one; "" for a key that an
	// operator has made. With that key, or one in between, this one is revoked too (plans.md, section 9).
	HolderRoot string
	// HolderRotatedAt is when a holder last rotated a key of the chain, up to this key; zero if none has.
	HolderRotatedAt time.Time

	// ExpiryNotified is the expiry for which the event key.expired was already emitted. It says nothing
	// about the state of the key: the clock may have been ahead.
	ExpiryNotified time.Time

	// Imported says that the string of the key is not one of Keygate's: it was imported.
	Imported bool

	// Ended says that a rotation without overlap has ended the key. It has expired, whatever a clock shows:
	// the clocks of nodes differ.
	Ended bool

	// Version increases with every change by a management request. It is the ETag.
	Version int64
}

// State returns the state of the key at the time now. A revoked key is Revoked whether or
// not it has expired.
func (k *Key) State(now time.Time) State {
	switch {
	case !k.RevokedAt.IsZero():
		return Revoked
	case k.Ended, !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt):
		return Expired
	default:
		return Active
	}
}

// MaxName is the maximum number of characters of a name.
const MaxName = label.MaxName

// Validate checks the fields that a user sets, except for times: see ParseExpiry. The error
// is a validation error that names every invalid field.
func (k *Key) Validate() error {
	var badOwner error
	if k.Owner != "" {
		badOwner = owner.CheckExternalID("owner", k.Owner)
	}
	return fault.Join(label.CheckName("name", k.Name), k.CheckLevel(), badOwner, label.CheckMetadata("metadata", k.Metadata), k.Addresses.Check())
}

// CheckLevel checks that an account-level key has no fields that only gateway-level keys may have. The error is
// a validation error that names them.
func (k *Key) CheckLevel() error {
	var badGateway, badRate, badConcurrency, badPlan error
	if k.Level == AccountLevel && k.GatewayID != "" {
		badGateway = fault.Invalid("gateway_id", "must be absent for an account-level key: omit it, or use the level gateway")
	}
	if k.Level == AccountLevel && !k.RateLimit.IsZero() {
		badRate = fault.Invalid("rate_limit", "must be absent for an account-level key: omit it, or use the level gateway")
	}
	if k.Level == AccountLevel && k.Concurrency != 0 {
		badConcurrency = fault.Invalid("concurrency", "must be absent for an account-level key: omit it, or use the level gateway")
	}
	if k.Level == AccountLevel && k.PlanID != "" {
		badPlan = fault.Invalid("plan_id", "must be absent for an account-level key: omit it, or use the level gateway")
	}
	var badAllow, badDeny error
	if k.Level == AccountLevel && len(k.Addresses.Allow) > 0 {
		badAllow = fault.Invalid(addrlist.AllowField, "must be absent for an account-level key: omit it, or use the level gateway")
	}
	if k.Level == AccountLevel && len(k.Addresses.Deny) > 0 {
		badDeny = fault.Invalid(addrlist.DenyField, "must be absent for an account-level key: omit it, or use the level gateway")
	}
	return fault.Join(badGateway, badRate, badConcurrency, badPlan, badAllow, badDeny)
}

// endOfTime returns the first instant that RFC 3339 cannot write.
func endOfTime() time.Time { return time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }

// ParseExpiry parses an expires_at: an RFC 3339 time, or a date, which means that the key
// is valid through the last instant of that day in UTC (contract, section 2). It must be
// after now, and in the year 9999 at the latest: its last day ends at its last microsecond. The error
// is a validation error of the field "expires_at". The result is in UTC and in whole microseconds, the
// precision of every store.
func ParseExpiry(s string, now time.Time) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		if t, err = time.ParseInLocation(time.DateOnly, s, time.UTC); err != nil {
			return time.Time{}, fault.Invalid("expires_at", "must be an RFC 3339 time such as 2027-01-31T12:00:00Z, or a date such as 2027-01-31")
		}
		if t = t.AddDate(0, 0, 1); t.Equal(endOfTime()) { // RFC 3339 does not go further
			t = t.Add(-time.Microsecond)
		}
	}
	if t = t.UTC().Truncate(time.Microsecond); !t.After(now) {
		return time.Time{}, fault.Invalid("expires_at", "must be in the future")
	}
	if !t.Before(endOfTime()) {
		return time.Time{}, fault.Invalid("expires_at", "must be in the year 9999 in UTC at the latest: leave it out for a key that does not expire")
	}
	return t, nil
}

// EventData returns the data of the events about the key.
func (k *Key) EventData() event.Key {
	d := event.Key{KeyID: k.ID, KeyPrefix: k.Prefix, Name: k.Name, Scope: k.Scope.String(), Level: string(k.Level)}
	if k.Owner != "" {
		d.Owner = &k.Owner
	}
	if k.GatewayID != "" {
		d.GatewayID = &k.GatewayID
	}
	if !k.ExpiresAt.IsZero() {
		d.ExpiresAt = &k.ExpiresAt
	}
	return d
}
