package control

import (
	"cmp"
	"context"
	"maps"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
)

// maxOverlapDays is the longest time for which the old key stays active.
const maxOverlapDays = 365

// RotateKey creates a key that replaces another. The old key stays active for overlapDays × 24 hours,
// or until its own expiry if that is sooner; with 0 it expires at once. The new key expires at expiresAt,
// or, if that is "", when the old key would have expired. If the old key is revoked or expired, or was
// rotated before, or maxChain keys share its rate limit, the error is fault.Conflict (contract, 3.2).
func (s *Service) RotateKey(ctx context.Context, actor *Actor, keyID string, overlapDays int, expiresAt string, m Match) (*NewKey, error) {
	expiry, invalid := readRotation(overlapDays, expiresAt, s.now())
	if onlyChecks(ctx) {
		return nil, cmp.Or(invalid, errOnlyChecked)
	}
	return inTx(ctx, s, actor, func(w *work) (*NewKey, error) {
		old, err := w.keyToRotate(ctx, keyID, invalid)
		if err != nil {
			return nil, err
		}
		if err := require(m, old.Version); err != nil {
			return nil, err
		}
		if err := w.mustBeActive(old); err != nil {
			return nil, err
		}
		if old.RotatedTo != "" {
			return nil, fault.New(fault.Conflict, "the key was already rotated: rotate the key that replaced it")
		}
		if err := s.roomForKey(ctx, w, old); err != nil {
			return nil, err
		}
		if err := w.roomInChain(ctx, old); err != nil {
			return nil, err
		}
		if err := s.roomForEvent(actor); err != nil {
			return nil, err
		}
		return s.rotate(ctx, w, old, overlapDays, expiry)
	})
}

func readRotation(overlapDays int, expiresAt string, now time.Time) (expiry time.Time, err error) {
	var badOverlap, badExpiry error
	if overlapDays < 0 || overlapDays > maxOverlapDays {
		badOverlap = fault.Invalid("overlap_days", "must be between 0 and %d", maxOverlapDays)
	}
	if expiresAt != "" {
		expiry, badExpiry = apikey.ParseExpiry(expiresAt, now)
	}
	return expiry, fault.Join(badOverlap, badExpiry)
}

// keyToRotate returns the key if the actor may issue a key like it. Errors take precedence as in
// keyToChange.
func (w *work) keyToRotate(ctx context.Context, keyID string, invalid error) (*apikey.Key, error) {
	k, err := keyWithPlan(ctx, w, w.actor, keyID)
	if err == nil {
		if denied := w.actor.mayIssue(keysPath+"/"+k.ID+"/rotate", k.Level, k.Scope); denied != nil {
			return nil, denied
		}
	}
	if invalid != nil {
		return nil, invalid
	}
	return k, err
}

// rotate rotates a key that may be rotated. If the actor is its holder, the new key is revoked with the old one.
func (s *Service) rotate(ctx context.Context, w *work, before *apikey.Key, overlapDays int, expiry time.Time) (*NewKey, error) {
	old := *before
	old.RotatedTo = id.NewAt(id.Key, w.now)
	ends := w.now.Add(time.Duration(overlapDays) * 24 * time.Hour)
	if old.ExpiresAt.IsZero() || ends.Before(old.ExpiresAt) {
		old.ExpiresAt = ends
	}
	if expiry.IsZero() {
		expiry = before.ExpiresAt
	}
	rotated := event.Rotation{KeyID: old.ID, KeyPrefix: old.Prefix, OverlapDays: overlapDays, NewKeyID: old.RotatedTo}
	root, rotatedAt := "", old.HolderRotatedAt
	if w.actor.Kind == HolderActor {
		rotated.By = string(HolderActor)
		root, rotatedAt = cmp.Or(old.HolderRoot, old.ID), w.now
	}
	if err := w.raise(ctx, event.KeyRotated, rotated); err != nil {
		return nil, err
	}
	made, err := s.issue(ctx, w, apikey.Key{
		HolderRoot: root, HolderRotatedAt: rotatedAt,
		ID: old.RotatedTo, BucketID: old.BucketID, RotatedFrom: old.ID, ExpiresAt: expiry,
		Name: old.Name, Level: old.Level, Scope: old.Scope, Owner: old.Owner, OwnerID: old.OwnerID,
		PlanID: old.PlanID, Plan: old.Plan, GatewayID: old.GatewayID, RateLimit: old.RateLimit, Concurrency: old.Concurrency, Metadata: maps.Clone(old.Metadata), Addresses: old.Addresses,
	}, "")
	if err != nil {
		return nil, err
	}
	made.OverlapEndsAt = old.ExpiresAt
	made.Warnings = s.scopeWarnings(&made.Key)
	if overlapDays == 0 {
		old.Ended = true
		if err := notifyExpiry(ctx, w.Tx, &old, w.now); err != nil {
			return nil, err
		}
	}
	return made, w.storeKey(ctx, audit.KeyRotate, before, &old)
}
