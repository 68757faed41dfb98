package control

import (
	"context"
	"math/bits"

	"github.com/keygate/keygate/internal/owner"
)

// mostListed is how many quotas of one owner are compared for a list. Only an owner without a plan, in an account with many
// default plans of gateways, has more.
const mostListed = 8

// OwnerWithUsage is an owner, and the quota of which it has used the greatest share.
type OwnerWithUsage struct {
	owner.Owner
	Tightest *QuotaUsage // nil if no quota counts the owner
}

// OwnersWithUsage lists owners as Owners does, with the tightest quota of each. Its work is bounded by the page, and by the
// number of gateways if an owner has no plan.
func (s *Service) OwnersWithUsage(ctx context.Context, actor *Actor, f OwnerFilter, p Page) ([]OwnerWithUsage, error) {
	owners, err := s.Owners(ctx, actor, f, p)
	if err != nil {
		return nil, err
	}
	var of []int // the owners of quotas
	quotas, err := search(ctx, s, actor, func(tx ReadTx) (all []appliedQuota, err error) {
		from := plansOf(tx, actor)
		of = of[:0]
		for i := range owners {
			q := quotaSubject{id: owners[i].ID, owner: &owners[i]}
			some, err := q.quotas(ctx, from, mostListed)
			if err != nil {
				return nil, err
			}
			for range some {
				of = append(of, i)
			}
			all = append(all, some...)
		}
		return all, nil
	})
	if err != nil {
		return nil, err
	}
	used, err := s.usageOf(ctx, actor, quotas)
	if err != nil {
		return nil, err
	}
	out := make([]OwnerWithUsage, len(owners))
	for i := range owners {
		out[i].Owner = owners[i]
	}
	for i := range used {
		if o := &out[of[i]]; o.Tightest == nil || used[i].tighter(o.Tightest) {
			o.Tightest = &used[i]
		}
	}
	return out, nil
}

// tighter reports whether a greater share of u was used than of o.
func (u *QuotaUsage) tighter(o *QuotaUsage) bool {
	uHigh, uLow := bits.Mul64(uint64(u.Used), uint64(o.whole()))
	oHigh, oLow := bits.Mul64(uint64(o.Used), uint64(u.whole()))
	return uHigh > oHigh || uHigh == oHigh && uLow > oLow
}

// whole returns the units of the window, with those that were granted.
func (u *QuotaUsage) whole() int64 { return u.Limit.Quota.Count + u.Grants }
