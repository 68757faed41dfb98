package snapshot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// readPoint is how far the change log was read, and by which read.
type readPoint struct {
	Position
	read int64
}

// appliedPoint is how far everything that was read is in force.
type appliedPoint struct {
	mu sync.Mutex
	readPoint
}

// Applied returns the position of the change log up to which every change is in force on this node. It
// needs Config.Shared.
func (f *Follower) Applied() Position {
	f.applied.mu.Lock()
	defer f.applied.mu.Unlock()
	return f.applied.Position
}

// Lag returns how many changes were read and are not in force yet.
func (f *Follower) Lag() int64 { return max(0, f.seq.Load()-f.Applied().Number) }

// setApplied records that everything up to p is in force. A p that was read before a position that is
// in force changes nothing.
func (f *Follower) setApplied(p *readPoint) {
	if f.cfg.Shared == nil || p == nil {
		return
	}
	f.applied.mu.Lock()
	changed := p.read > f.applied.read && p.Position != f.applied.Position
	if p.read > f.applied.read {
		f.applied.readPoint = *p
	}
	f.applied.mu.Unlock()
	if changed {
		f.cfg.Shared.Applied()
	}
}

// setRead records that the change log was read up to p: its changes of keys and accounts are in force,
// and the rest is pending.
func (f *Follower) setRead(p Position) {
	read := int64(1)
	if last := f.at.Load(); last != nil {
		read += last.read
	}
	f.seq.Store(p.Number)
	f.at.Store(&readPoint{Position: p, read: read})
}

// lastPosition returns the position of the newest change.
func (f *Follower) lastPosition(ctx context.Context) (Position, error) {
	if f.cfg.Shared != nil {
		return f.cfg.Shared.Log.LastPosition(ctx)
	}
	seq, err := f.cfg.Source.LastSeq(ctx)
	return Position{Number: seq}, err
}

// nextChanges returns the changes after the last one that was read.
func (f *Follower) nextChanges(ctx context.Context) (changes []Change, complete bool, err error) {
	if f.cfg.Shared == nil {
		return f.cfg.Source.Changes(ctx, f.seq.Load(), changeBatch)
	}
	changes, complete, err = f.cfg.Shared.Log.ChangesAfter(ctx, f.at.Load().Position, changeBatch)
	if err == nil && !complete {
		f.cfg.Shared.Restarted()
	}
	return changes, complete, err
}

// joined puts in force that another node has joined.
func (f *Follower) joined(ctx context.Context) error {
	if f.cfg.Shared == nil || f.cfg.Shared.Joined == nil {
		return nil
	}
	return f.cfg.Shared.Joined(ctx)
}

// pollWait returns the time until the next read of the change log. Several nodes spread theirs.
func (f *Follower) pollWait() time.Duration {
	if f.cfg.Shared == nil {
		return f.cfg.PollInterval
	}
	return f.cfg.PollInterval/2 + time.Duration(rand.Int64N(int64(f.cfg.PollInterval)))
}

// readable returns the changes up to the first one whose format this version does not read, and the error about
// that one.
func (f *Follower) readable(changes []Change) ([]Change, error) {
	for i := range changes {
		if c := &changes[i]; c.Format > ChangeFormat {
			err := fault.New(fault.Unavailable, "change %d has format %d, and this version reads formats up to %d: upgrade this node", c.Seq, c.Format, ChangeFormat)
			f.cfg.Shared.Unreadable(err)
			return changes[:i], err
		}
	}
	return changes, nil
}

// revoke puts the revocations among changes in force. It reads no records, so that none delays them.
func (f *Follower) revoke(changes []Change) {
	table := f.Current().keys
	for i := range changes {
		if d := changes[i].Revoked; d != nil {
			if k := table.find(d); k != nil {
				f.removeKey(table, k)
			}
		}
	}
}

// readChangedKeys publishes the keys that changes name, and adds them to done.
func (f *Follower) readChangedKeys(ctx context.Context, changes []Change, done map[string]bool) error {
	var keyIDs []string
	for _, c := range changes {
		if c.Kind.isKey() && !done[c.ID] {
			done[c.ID] = true
			keyIDs = append(keyIDs, c.ID)
		}
	}
	return f.readKeys(ctx, keyIDs)
}

// readKeys publishes keys as the store has them. Keys that cannot be read are refused, and read again
// until they can be. It is an error only if the store cannot be read.
func (f *Follower) readKeys(ctx context.Context, keyIDs []string) error {
	table := f.Current().keys
	for some := range slices.Chunk(keyIDs, changeBatch) {
		records := make(map[string]*apikey.Key, len(some))
		bad := map[string]error{}
		err := f.cfg.Shared.Log.KeysByID(ctx, some, func(keyID string, k *apikey.Key, unreadable error) {
			if records[keyID] = k; unreadable != nil {
				bad[keyID] = unreadable
			}
		})
		if err != nil {
			return fmt.Errorf("read keys: %w", err)
		}
		var gone []string
		for _, keyID := range some {
			k, unreadable := records[keyID], bad[keyID]
			if k != nil && unreadable == nil {
				unreadable = f.publishKey(table, k)
			}
			switch {
			case unreadable != nil:
				if f.noteUnreadable(keyID, unreadable) { // else it is refused already
					gone = append(gone, keyID)
				}
			case k == nil:
				gone = append(gone, keyID)
				fallthrough
			default:
				delete(f.unreadable, keyID)
				f.unusableKeys.Store(int64(len(f.unreadable)))
			}
		}
		f.forgetKeysByID(table, gone...)
	}
	return nil
}

// noteUnreadable remembers a key that cannot be read. It logs it the first time, and then returns true.
func (f *Follower) noteUnreadable(keyID string, err error) (first bool) {
	if _, known := f.unreadable[keyID]; known {
		return false
	}
	f.cfg.Log.Error("a key cannot be read and is refused", "key_id", keyID, "error", err)
	f.unreadable[keyID] = struct{}{}
	f.unusableKeys.Store(int64(len(f.unreadable)))
	return true
}

// isUnreadable reports whether err means that this node, which is one of several, cannot read a record. Otherwise the
// store has failed.
func (f *Follower) isUnreadable(err error) bool {
	return f.cfg.Shared != nil && errors.Is(err, ErrDamaged)
}

// storedAccounts returns Source.Accounts. A node that is one of several takes accounts that it cannot
// read for suspended.
func (f *Follower) storedAccounts(ctx context.Context) ([]account.Account, error) {
	if f.cfg.Shared == nil {
		return f.cfg.Source.Accounts(ctx)
	}
	bad := map[string]struct{}{}
	list, err := f.cfg.Shared.Log.ReadableAccounts(ctx, func(accountID string, err error) {
		if _, known := f.unreadableAccounts[accountID]; !known {
			f.cfg.Log.Error("an account cannot be read and counts as suspended", "account_id", accountID, "error", err)
		}
		bad[accountID] = struct{}{}
	})
	if err == nil {
		f.unreadableAccounts = bad
		f.unusableAccounts.Store(int64(len(bad)))
	}
	return list, err
}

// readUnreadable reads again the accounts, plans, owners and keys that could not be read. The caller holds the lock.
func (f *Follower) readUnreadable(ctx context.Context) error {
	if before := f.unreadableAccounts; len(before) > 0 {
		accounts, err := f.readAccounts(ctx)
		if err != nil {
			return err
		}
		if !maps.Equal(before, f.unreadableAccounts) {
			f.publish(accounts, nil)
		}
	}
	for planID := range f.unreadablePlans.ids {
		if err := f.readPlan(ctx, planID); err != nil {
			return err
		}
	}
	for ownerID := range f.unreadableOwners.ids {
		if err := f.readOwner(ctx, ownerID); err != nil {
			return err
		}
	}
	for issuerID := range f.unreadableIssuers.ids {
		if err := f.readIssuer(ctx, issuerID); err != nil {
			return err
		}
	}
	if len(f.unreadable) == 0 {
		return nil
	}
	return f.readKeys(ctx, slices.Sorted(maps.Keys(f.unreadable)))
}

// putReadable calls putKey for each key. A node that is one of several leaves out keys that it
// cannot use.
func (f *Follower) putReadable(table *keyTable, k *apikey.Key) error {
	err := f.putKey(table, k)
	if err == nil || f.cfg.Shared == nil {
		return err
	}
	f.noteUnreadable(k.ID, err)
	if old := table.find(&k.Digest); old != nil {
		f.removeKey(table, old)
	}
	return nil
}

// eachStoredKey does the same as KeySource.EachKey. A node that is one of several leaves out the keys that it
// cannot read.
func (f *Follower) eachStoredKey(ctx context.Context, revokedSince time.Time, do func(*apikey.Key) error) error {
	if f.cfg.Shared == nil {
		return f.cfg.Source.EachKey(ctx, revokedSince, do)
	}
	return f.cfg.Shared.Log.EachReadableKey(ctx, revokedSince, do, func(keyID string, err error) { f.noteUnreadable(keyID, err) })
}

// eachGateway does the same as GatewaySource.EachGateway. If a node that is one of several cannot read a
// gateway, it reads the gateways one by one, and leaves that gateway out.
func (f *Follower) eachGateway(ctx context.Context, do func(*gateway.Gateway, []gateway.Route) error) error {
	err := f.cfg.Source.EachGateway(ctx, do)
	if err == nil || !f.isUnreadable(err) {
		return err
	}
	ids, err := f.cfg.Source.GatewayIDs(ctx)
	if err != nil {
		return err
	}
	for _, gatewayID := range ids {
		g, routes, err := f.cfg.Source.GatewayByID(ctx, gatewayID)
		switch {
		case err == nil:
			if err := do(g, routes); err != nil {
				return err
			}
		case f.isUnreadable(err):
			f.cfg.Log.Error("a gateway cannot be read and is out of service", "gateway_id", gatewayID, "error", err)
			f.setUnusable(gatewayID, true)
		case fault.CodeOf(err) != fault.NotFound:
			return err
		}
	}
	return nil
}

// unreadableGateway returns the step for a gateway whose record cannot be read: its form in force goes out of
// service. If it has no form in force, as after a restart, its hostname is not known.
func unreadableGateway(old *Gateway, read int64) *transition {
	if old == nil {
		return &transition{}
	}
	c := *old
	c.OutOfService, c.read = true, read
	return &transition{next: &c}
}

// outOfService returns the form of a gateway that cannot be compiled. It keeps the limits of old, the
// gateway in force, if that is not nil.
func (f *Follower) outOfService(g *gateway.Gateway, old *Gateway, read int64) *Gateway {
	c := &Gateway{Settings: &Settings{ID: g.ID, AccountID: g.AccountID}, tree: &gateway.Tree[Node]{}}
	c.UUID, _ = id.Parse(id.Gateway, g.ID)
	c.AccountUUID, _ = id.Parse(id.Account, g.AccountID)
	params := f.defaultGlobal
	c.global.Default, c.global.Scope, c.global.Params = true, ratelimit.GlobalScope, &params
	if old != nil {
		*c = *old
	}
	c.OutOfService, c.read, c.isDefault, c.hostname = true, read, g.Default, strings.ToLower(g.Hostname)
	if !g.HostGiven {
		c.hostname = gateway.DefaultHostname(g.ID, f.cfg.GatewayDomain)
	}
	return c
}
