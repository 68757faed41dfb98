package control

import (
	"context"
	"maps"
	"time"

	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

// keyEdit is a validated KeyPatch. Fields that are nil stay as they are.
type keyEdit struct {
	name        *string
	owner       *string
	rate        *ratelimit.KeyLimit
	concurrency *int64 // 0 for none
	metadata    map[string]string
	expiresAt   *time.Time // zero for no expiry
	allow, deny *[]string
}

// read validates p as far as possible without the record.
func (p KeyPatch) read(now time.Time) (e keyEdit, err error) {
	var badName, badRate, badConcurrency, badExpiry error
	switch {
	case p.Name.Null:
		badName = fault.Invalid("name", "cannot be removed")
	case p.Name.Present:
		e.name = &p.Name.Value
	}
	if p.Owner.Present {
		e.owner = &p.Owner.Value
	}
	if p.RateLimit.Present {
		var r ratelimit.KeyLimit
		r, badRate = p.RateLimit.Value.parse()
		if !p.RateLimit.Null && p.RateLimit.Value == (KeyLimitInput{}) {
			badRate = fault.Invalid("rate_limit", "must be a rate such as 10/s, an object, or null for none")
		}
		e.rate = &r
	}
	if p.Concurrency.Present {
		e.concurrency = new(int64)
		if !p.Concurrency.Null {
			*e.concurrency, badConcurrency = p.Concurrency.Value, checkConcurrency(p.Concurrency.Value)
		}
	}
	if p.Metadata.Present {
		if e.metadata = maps.Clone(p.Metadata.Value); e.metadata == nil {
			e.metadata = map[string]string{}
		}
	}
	if p.ExpiresAt.Present {
		var t time.Time
		if !p.ExpiresAt.Null {
			t, badExpiry = apikey.ParseExpiry(p.ExpiresAt.Value, now)
		}
		e.expiresAt = &t
	}
	if p.AllowIPs.Present {
		e.allow = new(addrlist.Normal(p.AllowIPs.Value))
	}
	if p.DenyIPs.Present {
		e.deny = new(addrlist.Normal(p.DenyIPs.Value))
	}
	// These rules hold for every record.
	sample := apikey.Key{Name: "x"}
	e.apply(&sample)
	return e, fault.Join(badName, badRate, badConcurrency, badExpiry, sample.Validate())
}

func (e *keyEdit) apply(k *apikey.Key) {
	if e.name != nil {
		k.Name = *e.name
	}
	if e.owner != nil {
		k.Owner = *e.owner
	}
	if e.rate != nil {
		k.RateLimit = *e.rate
	}
	if e.concurrency != nil {
		k.Concurrency = *e.concurrency
	}
	if e.metadata != nil {
		k.Metadata = e.metadata
	}
	if e.expiresAt != nil {
		k.ExpiresAt = *e.expiresAt
	}
	if e.allow != nil {
		k.Addresses.Allow = *e.allow
	}
	if e.deny != nil {
		k.Addresses.Deny = *e.deny
	}
}

// UpdateKey changes the settings in p of a key. A new rate_limit or concurrency applies to all keys
// that share its bucket. If the key is revoked or expired, or was rotated and would expire later than
// before, the error is fault.Conflict.
func (s *Service) UpdateKey(ctx context.Context, actor *Actor, keyID string, p KeyPatch, m Match) (*apikey.Key, error) {
	edit, invalid := p.read(s.now())
	if onlyChecks(ctx) {
		return nil, s.checked(ctx, actor, invalid, func(tx ReadTx) error { return p.Plan.check(ctx, tx, actor, "") })
	}
	return inTx(ctx, s, actor, func(w *work) (*apikey.Key, error) {
		chosen, bad := p.Plan.find(ctx, w, actor, "")
		before, err := w.keyToChange(ctx, keyID, false, fault.Join(invalid, bad))
		if err != nil {
			return nil, err
		}
		k := *before
		edit.apply(&k)
		if err := fault.Join(k.CheckLevel(), p.Plan.checkLevel(chosen, k.Level)); err != nil { // an account-level key has neither limits nor plan
			return nil, err
		}
		p.Plan.put(chosen, &k.PlanID, &k.Plan)
		if err := require(m, before.Version); err != nil {
			return nil, err
		}
		if err := w.mustBeActive(before); err != nil {
			return nil, err
		}
		if before.RotatedTo != "" && (k.ExpiresAt.IsZero() || k.ExpiresAt.After(before.ExpiresAt)) {
			return nil, fault.New(fault.Conflict, "the key was rotated: its expires_at can only be set to an earlier time")
		}
		var partners []apikey.Key
		if before.RateLimit != k.RateLimit || before.Concurrency != k.Concurrency {
			if partners, err = w.chain(ctx, &k); err != nil {
				return nil, err
			}
			if len(partners) > maxChain {
				return nil, fault.New(fault.Conflict, "the key shares its limits with more than %d other keys of its rotations: revoke those that are no longer needed first", maxChain-1)
			}
		}
		if _, err := w.giveOwner(ctx, &k, before.Owner); err != nil {
			return nil, err
		}
		if k.Addresses.Bytes() > before.Addresses.Bytes() {
			if err := w.mayGrow(ctx); err != nil {
				return nil, err
			}
		}
		if err := w.storeKey(ctx, audit.KeyUpdate, before, &k); err != nil {
			return nil, err
		}
		return &k, w.shareLimits(ctx, &k, partners)
	})
}

// maxChain is the most keys that share their limits through rotations. A change of a limit writes 5 rows
// for each key, in one transaction.
const maxChain = 64

// chainGrace is how long a key that has expired still gets each change of the limits that it shared. It
// could be in use again, because the clock by which it expired was ahead.
const chainGrace = 3 * 24 * time.Hour

// chain returns the keys that share k's bucket and may be in use, at most one more than maxChain. A key that has
// expired keeps the limits that it had then.
func (w *work) chain(ctx context.Context, k *apikey.Key) ([]apikey.Key, error) {
	return w.KeysOfBucket(ctx, k.AccountID, k.BucketID, w.chainSince(), maxChain+1)
}

// chainSince returns when a key must not have expired before, to be one of a chain.
func (w *work) chainSince() time.Time { return w.now.Add(-chainGrace) }

// shareLimits gives the other keys of k's bucket the limits of k. partners are the keys of the bucket, read before
// k was stored: to read them afterwards, a store would have to hold up other transactions.
func (w *work) shareLimits(ctx context.Context, k *apikey.Key, partners []apikey.Key) error {
	for i := range partners {
		if partners[i].ID == k.ID {
			continue
		}
		partner := partners[i]
		partner.RateLimit, partner.Concurrency = k.RateLimit, k.Concurrency
		if err := w.storeKey(ctx, audit.KeyUpdate, &partners[i], &partner); err != nil {
			return err
		}
	}
	return nil
}

// roomInChain returns fault.Conflict if as many keys share k's bucket as may.
func (w *work) roomInChain(ctx context.Context, k *apikey.Key) error {
	if k.RotatedFrom == "" { // the first rotation
		return nil
	}
	n, err := w.CountKeysOfBucket(ctx, k.AccountID, k.BucketID, w.chainSince(), maxChain)
	if err == nil && n >= maxChain {
		err = fault.New(fault.Conflict, "%d keys share their limits through rotations and are neither revoked nor expired for %d days, which is the most: revoke those that are no longer needed, or create a new key", maxChain, int(chainGrace.Hours()/24))
	}
	return err
}

// RevokeKey revokes a key, and with it the keys that self-service has made from it. It is idempotent.
func (s *Service) RevokeKey(ctx context.Context, actor *Actor, keyID string, m Match) (*apikey.Key, error) {
	return inTx(Urgent(ctx), s, actor, func(w *work) (*apikey.Key, error) {
		k, err := w.keyToChange(ctx, keyID, true, nil)
		if err != nil {
			return nil, err
		}
		if err := require(m, k.Version); err != nil {
			return nil, err
		}
		return w.revokeFamily(ctx, k)
	})
}

// revoke revokes a key that is refused since the given time, and raises key.revoked. If the key has expired without an
// event, it raises key.expired first. A revoked key is returned unchanged.
func (w *work) revoke(ctx context.Context, before *apikey.Key, at time.Time) (*apikey.Key, error) {
	state := before.State(at)
	if state == apikey.Revoked {
		return before, nil
	}
	k := *before
	if state == apikey.Expired {
		if err := notifyExpiry(ctx, w.Tx, &k, w.now); err != nil {
			return nil, err
		}
	}
	k.RevokedAt = at
	if err := w.storeKey(ctx, audit.KeyRevoke, before, &k); err != nil {
		return nil, err
	}
	return &k, w.raise(ctx, event.KeyRevoked, k.EventData())
}

// keyToChange returns the key if the actor may change it. Errors take precedence in this order: 403,
// then invalid (422), then 404.
func (w *work) keyToChange(ctx context.Context, keyID string, revoke bool, invalid error) (*apikey.Key, error) {
	k, err := keyWithPlan(ctx, w, w.actor, keyID)
	if err == nil {
		if denied := w.actor.mayChange(k, revoke); denied != nil {
			return nil, denied
		}
	}
	if invalid != nil {
		return nil, invalid
	}
	return k, err
}

// mustBeActive returns fault.Conflict for a key that is revoked or expired.
func (w *work) mustBeActive(k *apikey.Key) error {
	if state := k.State(w.now); state != apikey.Active {
		return fault.New(fault.Conflict, "the key is %s and cannot be changed: create a new one", state)
	}
	return nil
}
