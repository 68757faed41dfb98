package snapshot

import (
	"maps"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// holderCalls is how many calls of self-service a key may make (plans.md, section 9).
func holderCalls() ratelimit.Rate { return ratelimit.Rate{Count: 10, Per: time.Second} }

// holderLimits has the limit of self-service of the keys of each account. A key has one bucket, at whichever gateway it
// is used. It is guarded by Follower.publishing.
type holderLimits map[string]*ratelimit.Buckets // by account

// adoptHolders gives g the buckets of its account, if g has self-service.
func (f *Follower) adoptHolders(g *Gateway) {
	if g.holders = nil; !g.SelfService.Reserves() {
		return
	}
	if f.holders[g.AccountID] == nil {
		params := ratelimit.CompileRate(holderCalls())
		name := ratelimit.Name{Account: g.AccountID, Kind: id.Account, Owner: g.AccountUUID}
		f.holders[g.AccountID] = f.cfg.Sharing.NewBuckets(name, &params, f.buckets.Of(g.AccountID))
	}
	g.holders = f.holders[g.AccountID]
}

// dropHolders drops the buckets of accounts that do not exist any more. Their gateways are not in force any more.
func (f *Follower) dropHolders(accounts map[string]*account.Account) {
	for accountID, buckets := range f.holders {
		if accounts[accountID] == nil {
			buckets.Drop()
			delete(f.holders, accountID)
		}
	}
}

// sweepHolders does for the limits of self-service what Follower.sweep does.
func (f *Follower) sweepHolders(now ratelimit.Instant, ended map[[16]byte]bool) {
	f.publishing.Lock()
	all := slices.Collect(maps.Values(f.holders))
	f.publishing.Unlock()
	for _, buckets := range all {
		buckets.Sweep(now, ended)
	}
}

// AddHolderLimit adds the limit of self-service of c, whose request is for self-service of g. It reports false if the
// account's memory has no room to count the key: then the limit is left out.
func (g *Gateway) AddHolderLimit(charge *ratelimit.Charge, c *Caller) bool {
	params, bucket := g.holders.Bucket(c.BucketID())
	if bucket == nil {
		return false
	}
	charge.Add(ratelimit.Limit{Scope: ratelimit.SelfServiceScope, Params: params, Bucket: bucket}, 1)
	return true
}
