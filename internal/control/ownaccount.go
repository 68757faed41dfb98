package control

import (
	"context"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/user"
)

// OwnAccount is the account of the calling key or user, with one of them.
type OwnAccount struct {
	account.Account
	Key  *apikey.Key
	User *user.User
}

// RecordVersion is the version of the account and the key or user together. Both only grow.
func (a *OwnAccount) RecordVersion() int64 {
	if a.User != nil {
		return a.Account.Version + a.User.Version
	}
	return a.Account.Version + a.Key.Version
}

// OwnAccountPatch is what an account may change about itself.
type OwnAccountPatch struct{ DefaultPlan PlanChoice }

// defaultPrefix is what the fields of an account's plan have before those of other records.
const defaultPrefix = "default_"

// OwnAccount returns the account of the calling key.
func (s *Service) OwnAccount(ctx context.Context, actor *Actor) (*OwnAccount, error) {
	return read(ctx, s, actor, func(tx ReadTx) (*OwnAccount, error) { return ownAccount(ctx, tx, actor) })
}

func ownAccount(ctx context.Context, tx ReadTx, actor *Actor) (*OwnAccount, error) {
	a, err := tx.Account(ctx, actor.Account.ID)
	if err != nil {
		return nil, err
	}
	own := &OwnAccount{Account: *a}
	if actor.Kind == UserActor {
		if own.User, err = tx.User(ctx, actor.Account.ID, actor.User.ID); err != nil {
			return nil, err
		}
	} else if own.Key, err = tx.Key(ctx, actor.Account.ID, actor.KeyID); err != nil {
		return nil, err
	}
	return own, namesOfPlans(tx, actor).put(ctx, own.DefaultPlanID, &own.DefaultPlan)
}

// UpdateOwnAccount changes the account of the calling key. The default plan is that of owners that are created from then
// on because a key names them.
func (s *Service) UpdateOwnAccount(ctx context.Context, actor *Actor, p OwnAccountPatch, m Match) (*OwnAccount, error) {
	if onlyChecks(ctx) {
		return nil, s.checked(ctx, actor, nil, func(tx ReadTx) error { return p.DefaultPlan.check(ctx, tx, actor, defaultPrefix) })
	}
	return inTx(ctx, s, actor, func(w *work) (*OwnAccount, error) {
		chosen, err := p.DefaultPlan.find(ctx, w, actor, defaultPrefix)
		if err != nil {
			return nil, err
		}
		before, err := ownAccount(ctx, w, actor)
		if err != nil {
			return nil, err
		}
		if err := require(m, before.RecordVersion()); err != nil {
			return nil, err
		}
		a := *before
		p.DefaultPlan.put(chosen, &a.DefaultPlanID, &a.DefaultPlan)
		if a.DefaultPlanID == before.DefaultPlanID {
			return &a, nil
		}
		a.Account.Version++
		if err := w.UpdateAccount(ctx, &a.Account); err != nil {
			return nil, err
		}
		diff := audit.Diff{"default_plan_id": {orNil(before.DefaultPlanID), orNil(a.DefaultPlanID)}}
		return &a, w.audit(ctx, audit.AccountUpdate, a.ID, "", diff)
	})
}
