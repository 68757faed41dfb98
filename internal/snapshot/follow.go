package snapshot

import (
	"context"
	"errors"
	"fmt"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// changeBatch is the number of entries of the change log that are applied together.
const changeBatch = 1000

// CatchUp returns when every change committed before the call is in force. It reads the
// change log after the last entry in force, reads the records that it names again, and
// publishes them. If the log was trimmed, it loads everything again. The next call resumes
// where a failed call stopped.
//
// A gateway that cannot be compiled keeps its previous form and does not delay the changes
// of others. It is an error of the call that read its change, and is retried by every later
// call.
func (f *Follower) CatchUp(ctx context.Context) error {
	if err := f.lock(ctx); err != nil {
		return err
	}
	defer f.unlock()
	if !f.loaded {
		return f.load(ctx)
	}
	begun := f.cfg.Now().Mono
	var unusable error
	for {
		changes, complete, err := f.cfg.Source.Changes(ctx, f.seq, changeBatch)
		switch {
		case err != nil:
			return fmt.Errorf("read the change log: %w", err)
		case !complete:
			return errors.Join(unusable, f.load(ctx))
		}
		if len(changes) > 0 || len(f.failed) > 0 {
			bad, err := f.apply(ctx, changes)
			if err != nil {
				return err
			}
			unusable = errors.Join(unusable, bad)
		}
		if len(changes) > 0 {
			f.seq = changes[len(changes)-1].Seq
		}
		if len(changes) < changeBatch {
			f.caughtUp.Store(begun)
			return unusable
		}
	}
}

// apply publishes the records that changes name, as the source has them now. unusable
// reports gateways that cannot be compiled. If err is not nil, the source could not be
// read, and all of changes must be applied again.
func (f *Follower) apply(ctx context.Context, changes []Change) (unusable, err error) {
	var (
		named    = map[Change]bool{} // without Seq
		gateways = map[string]bool{}
		accounts = f.Current().accounts
		newAccs  bool
	)
	for id := range f.failed {
		gateways[id] = true
	}
	for _, c := range changes {
		c.Seq = 0
		if named[c] {
			continue
		}
		named[c] = true
		switch c.Kind {
		case KeyChange:
			if err := f.readKey(ctx, c.ID); err != nil {
				return nil, err
			}
		case GatewayChange:
			gateways[c.ID] = true
		case AccountChange:
			newAccs = true
		}
	}
	if newAccs {
		if accounts, err = f.readAccounts(ctx); err != nil {
			return nil, err
		}
	}
	if !newAccs && len(gateways) == 0 {
		return nil, nil
	}
	unusable, err = f.readGateways(ctx, accounts, gateways, named)
	if newAccs && err == nil {
		f.forgetKeys(accounts)
	}
	return unusable, err
}

// forgetKeys removes the keys of accounts that are deleted. They have no use since then; this
// frees their memory.
func (f *Follower) forgetKeys(accounts map[string]*account.Account) {
	gone := map[string]bool{}
	for name := range f.classes {
		if accounts[name.accountID] == nil {
			gone[name.accountID] = true
		}
	}
	if len(gone) == 0 {
		return
	}
	for _, k := range f.Current().keys.removeAll(func(k *Key) bool { return gone[k.AccountID()] }) {
		f.releaseClass(k)
	}
}

// readGateways publishes the gateways in ids as the source has them.
func (f *Follower) readGateways(ctx context.Context, accounts map[string]*account.Account, ids map[string]bool, named map[Change]bool) (unusable, err error) {
	changed := map[string]*Gateway{}
	failed := map[string]bool{}
	for gatewayID := range ids {
		g, routes, err := f.cfg.Source.GatewayByID(ctx, gatewayID)
		if fault.CodeOf(err) == fault.NotFound {
			changed[gatewayID] = nil
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read gateway %s: %w", gatewayID, err)
		}
		c, err := f.compile(g, routes, publicOnly(accounts, g.AccountID))
		if err != nil {
			failed[gatewayID] = true
			if named[Change{Kind: GatewayChange, ID: gatewayID}] {
				unusable = errors.Join(unusable, err)
			}
			continue
		}
		changed[gatewayID] = c
	}
	defaultID, err := f.readDefault(ctx)
	if err != nil {
		return nil, err
	}
	f.publish(accounts, changed, defaultID)
	f.failed = failed
	return unusable, nil
}

// readKey publishes one key as the source has it.
func (f *Follower) readKey(ctx context.Context, keyID string) error {
	table := f.Current().keys
	k, err := f.cfg.Source.KeyByID(ctx, keyID)
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		// Keys are revoked, never deleted, so this case is not worth an index.
		if u, ok := id.Parse(id.Key, keyID); ok {
			f.forgetKey(table, u)
		}
		return nil
	case err != nil:
		return fmt.Errorf("read key %s: %w", keyID, err)
	case !k.RevokedAt.IsZero():
		f.revoked.add(k, f.cfg.Now().Wall/1000)
		if old := table.find(&k.Digest); old != nil {
			f.removeKey(table, old)
		}
		return nil
	default:
		return f.putKey(table, k)
	}
}

func (f *Follower) forgetKey(table *keyTable, keyID [16]byte) {
	var found *Key
	table.each(func(k *Key) {
		if k.id == keyID {
			found = k
		}
	})
	if found != nil {
		f.removeKey(table, found)
	}
}

// putKey adds k to the table, or replaces the key with the same digest.
func (f *Follower) putKey(table *keyTable, k *apikey.Key) error {
	c, err := compileKey(k)
	if err != nil {
		return err
	}
	c.scopes = f.sharedScopes(k.Scope)
	f.limitKey(table, c, k.RateLimit)
	c.class = f.acquireClass(classID{accountID: k.AccountID, gatewayID: k.GatewayID, level: k.Level})
	old := table.find(&c.digest)
	if old != nil && old.same(c) {
		f.releaseClass(c)
		return nil
	}
	table.put(old, c)
	if old != nil {
		f.releaseClass(old)
	}
	return nil
}

func (f *Follower) removeKey(table *keyTable, k *Key) {
	table.remove(k)
	f.releaseClass(k)
}

// limitKey sets k's rate limit. After a rotation, k shares it with the other keys that have
// its BucketID. If theirs differs, their bucket is converted, and they get the new limit as
// well. The count of a daily cap belongs to the BucketID, and stays.
func (f *Follower) limitKey(table *keyTable, k *Key, config ratelimit.KeyLimit) {
	if config.IsZero() {
		return
	}
	next := &keyLimit{daily: config.Daily.Count, dailies: f.keyDailies}
	if config.HasBucket() {
		next.params, next.bucket = f.sharedParams(ratelimit.Compile(config.Config)), new(ratelimit.Bucket)
	}
	k.limit = next
	var partners []*Key
	table.partners(k.BucketID(), func(p *Key) { partners = append(partners, p) })
	if len(partners) == 0 {
		return
	}
	was := partners[0].limit
	if was.equal(next) {
		k.limit = was
		return
	}
	if was.bucket != nil && next.bucket != nil {
		next.bucket = was.bucket.Convert(was.params, next.params, f.cfg.Now())
	}
	for _, p := range partners {
		table.put(p, p.withLimit(next))
	}
}

// maxShared bounds the number of shared rates, and of shared scopes. When it is reached,
// sharing starts anew.
const maxShared = 10_000

// sharedParams returns the one copy of p that all limits of the same rate use, so that it
// is more likely to be in the processor's cache.
func (f *Follower) sharedParams(p ratelimit.Params) *ratelimit.Params {
	if shared := f.rates[p]; shared != nil {
		return shared
	}
	if len(f.rates) >= maxShared {
		clear(f.rates)
	}
	f.rates[p] = &p
	return &p
}

// sharedScopes returns the one copy of the scopes s that all keys with the same scopes
// use.
func (f *Follower) sharedScopes(s apikey.Scopes) *scopes {
	text := s.String()
	if shared := f.scopes[text]; shared != nil {
		return shared
	}
	if len(f.scopes) >= maxShared {
		clear(f.scopes)
	}
	shared := &scopes{}
	if normal := s.Normal(); len(normal) > 0 {
		shared.first, shared.more = normal[0], normal[1:]
	}
	f.scopes[text] = shared
	return shared
}

// acquireClass returns the class with the given ID and counts one more key in it.
func (f *Follower) acquireClass(name classID) *keyClass {
	h := f.classes[name]
	if h == nil {
		h = &keyClass{classID: name, used: f.used}
		f.classes[name] = h
	}
	h.keys++
	return h
}

// releaseClass counts one key less in k's class, and removes the class after the last.
func (f *Follower) releaseClass(k *Key) {
	if k.class.keys--; k.class.keys == 0 {
		delete(f.classes, k.class.classID)
	}
}
