package control

import (
	"cmp"
	"context"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/ratelimit"
)

// What holders of keys may do with them (plans.md, section 9).
const (
	// maxHolderOverlapDays is the longest time for which the old key of a rotation by its holder stays active.
	maxHolderOverlapDays = 30
	// holderRotatesEvery is the time between two rotations by holders in a chain.
	holderRotatesEvery = 24 * time.Hour
	// maxFamily is how many keys that self-service has made are revoked with a key, the newest. There is a day or more
	// between two of them, so that the others have expired a month before.
	maxFamily = 64
)

// RotateOwnKey is RotateKey for the holder of the key, a HolderActor, at one of the gateways where it may be used. It
// works once a day in the chain of rotations that the key belongs to; otherwise the error is fault.RateLimitExceeded. If
// the gateway does not let holders rotate keys any more, the error is fault.RouteNotFound. What the errors say is for the
// holder, who knows nothing of the account.
func (s *Service) RotateOwnKey(ctx context.Context, actor *Actor, gatewayID string, overlapDays int) (*NewKey, error) {
	if overlapDays < 1 || overlapDays > maxHolderOverlapDays {
		return nil, fault.Invalid("overlap_days", "must be between 1 and %d", maxHolderOverlapDays)
	}
	if err := actor.checkHolder(); err != nil {
		return nil, err
	}
	return inTx(ctx, s, actor, func(w *work) (*NewKey, error) {
		k, err := w.heldKey(ctx, gatewayID)
		if err != nil {
			return nil, err
		}
		if next, err := w.rotatesAgain(ctx, k); err != nil || w.now.Before(next) {
			return nil, cmp.Or(err, rotatedToday(w.now, next))
		}
		if k.RotatedTo != "" {
			return nil, fault.New(fault.Conflict, "the key was already rotated: use the key that replaced it")
		}
		for _, room := range []func() error{
			func() error { return s.roomForKey(ctx, w, k) },
			func() error { return w.roomInChain(ctx, k) },
			func() error { return s.roomForEvent(actor) },
		} {
			if err := room(); err != nil {
				return nil, withoutRoom(err)
			}
		}
		return s.rotate(ctx, w, k, overlapDays, time.Time{})
	})
}

// rotatesAgain returns from when on a holder may rotate a key of the chain of k again. The key that replaced k says when that
// was, if it did.
func (w *work) rotatesAgain(ctx context.Context, k *apikey.Key) (time.Time, error) {
	at := k.HolderRotatedAt
	if k.RotatedTo != "" {
		switch next, err := w.Key(ctx, k.AccountID, k.RotatedTo); {
		case err == nil && next.HolderRotatedAt.After(at):
			at = next.HolderRotatedAt
		case err != nil && fault.CodeOf(err) != fault.NotFound:
			return time.Time{}, err
		}
	}
	if at.IsZero() {
		return at, nil
	}
	return at.Add(holderRotatesEvery), nil
}

// checkHolder returns fault.Unauthorized unless a is the holder of a key.
func (a *Actor) checkHolder() error {
	if err := a.check(); err != nil || a.Kind == HolderActor {
		return err
	}
	return &fault.Error{Code: fault.Unauthorized, Auth: fault.KeyInvalid, Message: "only the holder of a key may do this"}
}

// heldKey returns the actor's own key, which admitActor has found active, if the gateway lets its holder rotate it.
func (w *work) heldKey(ctx context.Context, gatewayID string) (*apikey.Key, error) {
	g, err := w.Gateway(ctx, w.actor.Account.ID, gatewayID)
	if fault.CodeOf(err) == fault.NotFound || err == nil && !g.Requests.SelfService.Rotate {
		return nil, fault.New(fault.RouteNotFound, "holders of keys cannot rotate them here")
	}
	if err != nil {
		return nil, err
	}
	k, err := keyWithPlan(ctx, w, w.actor, w.actor.KeyID)
	if err != nil {
		return nil, err
	}
	if k.Level != apikey.GatewayLevel || k.GatewayID != "" && k.GatewayID != gatewayID {
		return nil, fault.Denied("the key is for another gateway")
	}
	if k.OwnerID == "" {
		return k, nil
	}
	o, err := w.Owner(ctx, w.actor.Account.ID, k.OwnerID)
	if fault.CodeOf(err) == fault.NotFound {
		return k, nil // it was deleted
	}
	if err == nil && o.State == owner.Suspended {
		err = &fault.Error{Code: fault.Forbidden, Auth: fault.OwnerSuspended, Message: "the owner of the key is suspended"}
	}
	return k, err
}

// rotatedToday returns the error of a rotation by a holder before the next one may be.
func rotatedToday(now, next time.Time) error {
	until := min(next.Sub(now), holderRotatesEvery) // the clock may have been ahead
	at := now.Add(until + time.Second - 1)          // a whole second, rounded up
	return &fault.Error{
		Code:    fault.RateLimitExceeded,
		Message: "the key was rotated less than a day ago: wait for the number of seconds in the Retry-After header, then try again, or ask whoever issued it to rotate it",
		Limit:   &fault.Limit{Limit: 1, ResetAt: at.Unix(), Scope: ratelimit.SelfServiceScope.String(), Window: int64(holderRotatesEvery / time.Second)},
	}
}

// withoutRoom returns the error of a rotation for which the account has no room, without what it says of the account.
func withoutRoom(err error) error {
	switch fault.CodeOf(err) {
	case fault.Conflict:
		return &fault.Error{Code: fault.Conflict, Message: "the key cannot be rotated, because the account that issued it may have no more keys: ask whoever issued it", Err: err}
	case fault.RateLimitExceeded:
		return &fault.Error{Code: fault.Unavailable, Message: "the key cannot be rotated now: try again later", Err: err}
	}
	return err
}

// revokeFamily revokes a key, and the keys that self-service has made from it, in one or more rotations. A key that an
// operator has made from one of these stays, and what was made from that one. They are all read before anything is
// written, since a store would otherwise have to hold up other transactions.
func (w *work) revokeFamily(ctx context.Context, k *apikey.Key) (*apikey.Key, error) {
	made, err := w.madeFrom(ctx, k)
	if err != nil {
		return nil, err
	}
	revoked, err := w.revoke(ctx, k, w.now)
	if err != nil {
		return nil, err
	}
	for i := range made {
		if _, err := w.revoke(ctx, &made[i], w.now); err != nil {
			return nil, err
		}
	}
	return revoked, nil
}

// madeFrom returns the keys that self-service has made from k and that are not revoked. The transaction sees every
// rotation that was committed before it, and each later one sees that k, or the key between them, is revoked.
func (w *work) madeFrom(ctx context.Context, k *apikey.Key) ([]apikey.Key, error) {
	if k.RotatedTo == "" {
		return nil, nil
	}
	var after time.Time // the root comes before all others
	if k.HolderRoot != "" {
		after = k.CreatedAt
	}
	return w.KeysByHolders(ctx, k.AccountID, k.BucketID, cmp.Or(k.HolderRoot, k.ID), after, maxFamily)
}

// HolderUsage is what the holder of a key may see of it.
type HolderUsage struct {
	Key    *apikey.Key
	Plan   string       // the first that there is of the key, its owner and the gateway; "" for none
	Quotas []QuotaUsage // those that count requests with the key to the gateway
}

// UsageOfHolder returns what was used of the quotas that count requests with the actor's key, a HolderActor, to a gateway:
// those of its owner first.
func (s *Service) UsageOfHolder(ctx context.Context, actor *Actor, gatewayID string) (*HolderUsage, error) {
	if err := actor.checkHolder(); err != nil {
		return nil, err
	}
	var u HolderUsage
	quotas, err := read(ctx, s, actor, func(tx ReadTx) ([]appliedQuota, error) {
		return quotasOf(ctx, tx, actor, func(ctx context.Context, tx ReadTx, actor *Actor) ([]quotaSubject, error) {
			q, err := keySubject(actor.KeyID)(ctx, tx, actor)
			if err != nil {
				return nil, err
			}
			q.gatewayID, u.Key = gatewayID, q.key
			u.Plan, err = q.planName(ctx, tx)
			if q.owner == nil || err != nil {
				return []quotaSubject{*q}, err
			}
			return []quotaSubject{{id: q.owner.ID, owner: q.owner, gatewayID: gatewayID}, *q}, nil
		})
	})
	if err == nil {
		u.Quotas, err = s.usageOf(ctx, actor, quotas)
	}
	return &u, err
}

// planName returns the name of the plan that applies to requests of a key to its gateway; "" without one.
func (q *quotaSubject) planName(ctx context.Context, tx ReadTx) (string, error) {
	planID := q.planID()
	if planID == "" {
		g, err := tx.Gateway(ctx, q.accountID(), q.gatewayID)
		if err != nil || g.DefaultPlanID == "" {
			return "", err
		}
		planID = g.DefaultPlanID
	}
	p, err := tx.Plan(ctx, q.accountID(), planID)
	if err != nil {
		return "", err
	}
	return p.Name, nil
}
