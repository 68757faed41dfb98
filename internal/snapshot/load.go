package snapshot

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/gateway"
)

// Load reads everything from the source and publishes it. On the first call, a gateway that
// cannot be compiled is an error, and nothing is published. A later call keeps the state of
// limits and treats such a gateway as CatchUp does.
func (f *Follower) Load(ctx context.Context) error {
	if err := f.lock(ctx); err != nil {
		return err
	}
	begun, first := f.cfg.Now().Mono, !f.loaded
	var err error
	if first {
		err = f.load(ctx)
	} else {
		err = f.reload(ctx)
	}
	if err == nil {
		f.lastRead.Store(begun)
	}
	f.unlock()
	if err != nil || first {
		return err
	}
	return f.settleAll(ctx)
}

// load is the first Load under the lock. Changes committed while it reads are after seq, and are read
// again by the next CatchUp.
func (f *Follower) load(ctx context.Context) error {
	begun := f.cfg.Now().Mono
	last, err := f.lastPosition(ctx)
	if err != nil {
		return fmt.Errorf("load the configuration: %w", err)
	}
	accounts, err := f.readAccounts(ctx)
	if err != nil {
		return err
	}
	if err := f.loadPlans(ctx, accounts); err != nil {
		return err
	}
	if err := f.loadOwners(ctx, accounts); err != nil {
		return err
	}
	if err := f.loadIssuers(ctx, accounts); err != nil {
		return err
	}
	changed := map[string]*transition{}
	err = f.eachGateway(ctx, func(g *gateway.Gateway, routes []gateway.Route) error {
		read := f.nextRead()
		c, err := f.compile(g, routes, read)
		if err != nil && f.cfg.Shared != nil {
			f.report(err, new(bool), "compiling a gateway")
			f.setUnusable(g.ID, true)
			c, err = f.outOfService(g, nil, read), nil
		}
		if err == nil {
			changed[g.ID] = f.transition(nil, c)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("load gateways: %w", err)
	}
	if err := f.loadKeys(ctx, accounts); err != nil {
		return fmt.Errorf("load keys: %w", err)
	}
	if err := f.loadCertificates(ctx); err != nil {
		return err
	}
	f.publish(accounts, changed)
	f.setRead(last)
	f.setApplied(f.at.Load())
	f.inForce.Store(f.seq.Load())
	f.loaded = true
	f.caughtUp.Store(begun)
	return nil
}

// reload reads the accounts and keys again under the lock, and marks every gateway.
func (f *Follower) reload(ctx context.Context) error {
	last, err := f.lastPosition(ctx)
	if err != nil {
		return fmt.Errorf("load the configuration: %w", err)
	}
	accounts, err := f.readAccounts(ctx)
	if err != nil {
		return err
	}
	ids, err := f.cfg.Source.GatewayIDs(ctx)
	if err != nil {
		return fmt.Errorf("load gateways: %w", err)
	}
	if err := f.loadPlans(ctx, accounts); err != nil {
		return err
	}
	if err := f.loadOwners(ctx, accounts); err != nil {
		return err
	}
	if err := f.loadIssuers(ctx, accounts); err != nil {
		return err
	}
	if err := f.loadKeys(ctx, accounts); err != nil {
		return fmt.Errorf("load keys: %w", err)
	}
	if err := f.loadCertificates(ctx); err != nil {
		return err
	}
	if err := f.joined(ctx); err != nil {
		return err
	}
	f.publish(accounts, nil)
	f.recall(Change{})
	for _, gatewayID := range slices.AppendSeq(ids, maps.Keys(f.Current().gateways)) {
		f.pending.mark(Change{Seq: last.Number, Kind: GatewayChange, ID: gatewayID})
	}
	f.setRead(last)
	return nil
}

func (f *Follower) readAccounts(ctx context.Context) (map[string]*account.Account, error) {
	list, err := f.storedAccounts(ctx)
	if err != nil {
		return nil, fmt.Errorf("load accounts: %w", err)
	}
	accounts := make(map[string]*account.Account, len(list))
	for i := range list {
		accounts[list[i].ID] = &list[i]
	}
	return accounts, nil
}

// publicOnly reports whether the gateways of the account may reach only public addresses.
// That includes the gateways of an unknown account.
func publicOnly(accounts map[string]*account.Account, accountID string) bool {
	a := accounts[accountID]
	return a == nil || !a.IsDefault()
}

// loadKeys brings the key table up to date with the source. The first time it fills a new
// table, which no reader knows yet; later it changes the table in force, key by key. It leaves out
// the keys of accounts that are deleted, or that are so new that the change log has yet to name
// them.
func (f *Follower) loadKeys(ctx context.Context, accounts map[string]*account.Account) error {
	s := f.Current()
	if !f.loaded {
		fresh := (&Snapshot{keys: newKeyTable()}).publishable(s.accounts, s.gateways)
		fresh.keys.private = true
		clear(f.classes)
		err := f.eachKey(ctx, accounts, func(k *apikey.Key) error { return f.putReadable(fresh.keys, k) })
		fresh.keys.private = false
		if err == nil {
			f.put(fresh)
		}
		return err
	}
	seen := map[shortDigest]bool{}
	err := f.eachKey(ctx, accounts, func(k *apikey.Key) error {
		seen[shortened(&k.Digest)] = true
		return f.putReadable(s.keys, k)
	})
	if err != nil {
		return err
	}
	var gone []*Key
	s.keys.each(func(k *Key) {
		if !seen[k.digest] {
			gone = append(gone, k)
		}
	})
	for _, k := range gone {
		f.removeKey(s.keys, k)
	}
	return nil
}

// eachKey calls do for each key in force, and remembers the keys that were revoked a short
// time ago. It leaves out the keys of other accounts.
func (f *Follower) eachKey(ctx context.Context, accounts map[string]*account.Account, do func(*apikey.Key) error) error {
	now := f.cfg.Now().Wall / 1000
	return f.eachStoredKey(ctx, time.UnixMicro(now).Add(-revokedFor), func(k *apikey.Key) error {
		if accounts[k.AccountID] == nil {
			return nil
		}
		if k.RevokedAt.IsZero() {
			return do(k)
		}
		f.revoked.add(k, now)
		return nil
	})
}
