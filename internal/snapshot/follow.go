package snapshot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// changeBatch is the number of entries of the change log that are applied together.
const changeBatch = 1000

// CatchUp returns when every change committed before the call is in force or, if only is given, the
// changes that it names. It reads the change log after the last entry that was read, reads the
// records that it names again, and publishes them. If the log was trimmed, it loads everything
// again. The next call resumes where a failed call stopped.
//
// Changes of keys and accounts are in force as soon as the log is read, and never wait for changes
// of gateways. Changes of one gateway come into force in their order.
//
// A gateway that cannot be compiled keeps its previous form and does not delay the changes of other
// gateways. The call that read its change, or that names it in only, returns an error, and every
// later call for all changes retries it.
func (f *Follower) CatchUp(ctx context.Context, only ...Change) error {
	if err := f.read(ctx); err != nil && !f.hasRead(only) {
		return err
	}
	if len(only) > 0 {
		f.work.Notify() // the other gateways, too: Applied waits for all
		return f.settleOnly(ctx, only)
	}
	return f.settleAll(ctx)
}

// hasRead reports whether the change log has been read up to all of changes. There must be at least
// one.
func (f *Follower) hasRead(changes []Change) bool {
	for _, c := range changes {
		if c.Seq > f.seq.Load() {
			return false
		}
	}
	return len(changes) > 0
}

// settleAll returns when everything that was read is in force.
func (f *Follower) settleAll(ctx context.Context) error {
	begun, at, seq := f.lastRead.Load(), f.at.Load(), f.seq.Load()
	var errs []error
	current := true
	ids := f.pending.ids()
	for _, gatewayID := range ids {
		err := f.settle(ctx, gatewayID)
		errs = append(errs, err)
		current = current && (err == nil || f.isUnusable(gatewayID))
	}
	for _, gatewayID := range f.unusable() {
		if slices.Contains(ids, gatewayID) {
			continue
		}
		f.pending.mark(Change{Kind: GatewayChange, ID: gatewayID})
		if err := f.settle(ctx, gatewayID); err != nil && !f.isUnusable(gatewayID) { // else it was reported before
			errs, current = append(errs, err), false
		}
	}
	if current {
		f.caughtUp.Store(begun)
		f.setApplied(at)
		for was := f.inForce.Load(); was < seq && !f.inForce.CompareAndSwap(was, seq); was = f.inForce.Load() {
		}
	}
	return errors.Join(errs...)
}

// settleOnly returns when the gateways of changes are in force.
func (f *Follower) settleOnly(ctx context.Context, changes []Change) error {
	var errs []error
	done := map[string]bool{"": true}
	for _, c := range changes {
		gatewayID, _ := c.Gateway()
		if done[gatewayID] {
			continue
		}
		done[gatewayID] = true
		if f.isUnusable(gatewayID) {
			f.pending.mark(Change{Kind: GatewayChange, ID: gatewayID})
		}
		errs = append(errs, f.settle(ctx, gatewayID))
	}
	return errors.Join(errs...)
}

// unusable returns the gateways that could not be compiled.
func (f *Follower) unusable() []string {
	f.failedMu.Lock()
	defer f.failedMu.Unlock()
	return slices.Sorted(maps.Keys(f.failed))
}

func (f *Follower) isUnusable(gatewayID string) bool {
	f.failedMu.Lock()
	defer f.failedMu.Unlock()
	return f.failed[gatewayID]
}

// setUnusable records whether a gateway could be compiled.
func (f *Follower) setUnusable(gatewayID string, unusable bool) {
	f.failedMu.Lock()
	defer f.failedMu.Unlock()
	if unusable {
		f.failed[gatewayID] = true
	} else {
		delete(f.failed, gatewayID)
	}
}

// read reads the change log to its end. Then the changes of keys and accounts are in force, and
// changes of gateways are pending.
func (f *Follower) read(ctx context.Context) error {
	if err := f.lock(ctx); err != nil {
		return err
	}
	defer f.unlock()
	begun := f.cfg.Now().Mono
	if err := f.readLog(ctx); err != nil {
		return err
	}
	f.lastRead.Store(begun)
	return nil
}

// Unusable returns how many records this node cannot read or use at present: keys that are refused, gateways that
// are out of service, and accounts that count as suspended. Without other nodes, such a gateway keeps its previous
// form.
func (f *Follower) Unusable() (keys, gateways, accounts int) {
	f.failedMu.Lock()
	gateways = len(f.failed)
	f.failedMu.Unlock()
	return int(f.unusableKeys.Load()), gateways, int(f.unusableAccounts.Load())
}

// readLog is read under the lock.
func (f *Follower) readLog(ctx context.Context) error {
	if !f.loaded {
		return f.load(ctx)
	}
	if err := f.readUnreadable(ctx); err != nil {
		return err
	}
	for {
		changes, complete, err := f.nextChanges(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("read the change log: %w", err)
		case !complete:
			return f.reload(ctx)
		}
		readable, tooNew := f.readable(changes)
		if err := errors.Join(f.apply(ctx, readable), tooNew); err != nil {
			return err
		}
		if len(changes) < changeBatch {
			return nil
		}
	}
}

// apply publishes the plans, owners, keys and accounts that changes name, as the source has them now, and marks
// the gateways. It stops at the first change that cannot be read. With several nodes, it puts
// revocations in force before it reads anything, and then reads all keys at once. Plans come before the owners and
// keys that may have them.
func (f *Follower) apply(ctx context.Context, changes []Change) error {
	done := map[string]bool{}
	if f.cfg.Shared != nil {
		f.revoke(changes)
		if err := f.readChangedPlans(ctx, changes, done); err != nil {
			return err
		}
		if err := f.readChangedKeys(ctx, changes, done); err != nil {
			return err
		}
	}
	readAccounts := false
	for _, c := range changes {
		switch {
		case done[c.ID]:
		case c.Kind == PlanChange || c.Kind == OwnerChange:
			if err := f.readChangedPlans(ctx, []Change{c}, done); err != nil {
				return err
			}
		case c.Kind == IssuerChange:
			if err := f.readIssuer(ctx, c.ID); err != nil {
				return err
			}
			done[c.ID] = true
		case c.Kind == DenialChange:
			if err := f.readDenial(ctx, c.ID); err != nil {
				return err
			}
			done[c.ID] = true
		case c.Kind.isKey():
			if err := f.readKey(ctx, c.ID); err != nil {
				return err
			}
			done[c.ID] = true
		case c.Kind == AccountChange:
			if !readAccounts {
				accounts, err := f.readAccounts(ctx)
				if err != nil {
					return err
				}
				f.publish(accounts, nil)
				f.forgetKeys(accounts)
				f.forgetPlans(accounts)
				readAccounts = true
			}
			f.recall(c)
		case c.Kind == WebhookChange:
			f.recall(c)
		case c.Kind == ReturnChange:
			f.returnTarget(c)
		case c.Kind == CertificateChange:
			if err := f.readCertificate(ctx, c.ID); err != nil {
				return err
			}
			done[c.ID] = true
		case c.Kind == NodeChange:
			if err := f.joined(ctx); err != nil {
				return err
			}
		default:
			if c.Kind == GatewayChange {
				if err := f.refuseKeysOf(ctx, c.ID); err != nil {
					return err
				}
			}
			if gatewayID, _ := c.Gateway(); gatewayID != "" {
				f.pending.mark(c)
			}
		}
		f.setRead(Position{Number: c.Seq, Mark: c.Mark})
	}
	return nil
}

// readCertificate puts a certificate in force as the store has it.
func (f *Follower) readCertificate(ctx context.Context, certificateID string) error {
	if f.cfg.Certificates == nil {
		return nil
	}
	if err := f.cfg.Certificates.Read(ctx, certificateID); err != nil {
		return fmt.Errorf("read certificate %s: %w", certificateID, err)
	}
	return nil
}

// loadCertificates puts all certificates in force as the store has them.
func (f *Follower) loadCertificates(ctx context.Context) error {
	if f.cfg.Certificates == nil {
		return nil
	}
	if err := f.cfg.Certificates.Load(ctx); err != nil {
		return fmt.Errorf("load certificates: %w", err)
	}
	return nil
}

// recall notes that the sender must hand back the deliveries that it holds for what has changed.
func (f *Follower) recall(c Change) {
	if f.cfg.Recall != nil {
		f.cfg.Recall(c)
	}
}

// forgetKeys removes the keys of deleted accounts, which cannot be used any more, to free their
// memory.
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

// refuseKeysOf removes the keys that are restricted to a gateway, if the gateway was deleted: they have been revoked
// since, and their own changes may follow much later.
func (f *Follower) refuseKeysOf(ctx context.Context, gatewayID string) error {
	if !f.hasKeysOf(gatewayID) {
		return nil
	}
	exists, err := f.cfg.Source.HasGateway(ctx, gatewayID)
	if err != nil {
		return fmt.Errorf("find out whether gateway %s was deleted: %w", gatewayID, err)
	}
	if exists {
		return nil
	}
	now := f.cfg.Now().Wall / 1000
	for _, k := range f.Current().keys.removeAll(func(k *Key) bool { return k.GatewayID() == gatewayID }) {
		f.revoked.addShort(k.digest, k.id, k.AccountID(), now)
		f.releaseClass(k)
	}
	return nil
}

// hasKeysOf reports whether any key is restricted to a gateway. It looks through all classes only if the gateway is not
// in force.
func (f *Follower) hasKeysOf(gatewayID string) bool {
	if g := f.Current().GatewayByID(gatewayID); g != nil {
		name := classID{kind: KeyCaller, accountID: g.AccountID, gatewayID: gatewayID, level: apikey.GatewayLevel}
		imported := name
		imported.imported = true
		return f.classes[name] != nil || f.classes[imported] != nil
	}
	for name := range f.classes {
		if name.gatewayID == gatewayID {
			return true
		}
	}
	return false
}

// readKey publishes one key as the source has it.
func (f *Follower) readKey(ctx context.Context, keyID string) error {
	table := f.Current().keys
	k, err := f.cfg.Source.KeyByID(ctx, keyID)
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		f.forgetKeysByID(table, keyID)
		return nil
	case err != nil:
		return fmt.Errorf("read key %s: %w", keyID, err)
	default:
		return f.publishKey(table, k)
	}
}

// publishKey publishes one key as its record says.
func (f *Follower) publishKey(table *keyTable, k *apikey.Key) error {
	if k.RevokedAt.IsZero() {
		return f.putKey(table, k)
	}
	f.revoked.add(k, f.cfg.Now().Wall/1000)
	f.ended.add(k)
	if old := table.find(&k.Digest); old != nil {
		f.removeKey(table, old)
	}
	return nil
}

// forgetKeysByID removes keys that have no record, or an unreadable one. Keys are revoked, never
// deleted, so this case is not worth an index.
func (f *Follower) forgetKeysByID(table *keyTable, keyIDs ...string) {
	gone := map[[16]byte]bool{}
	for _, keyID := range keyIDs {
		if u, ok := id.Parse(id.Key, keyID); ok {
			gone[u] = true
		}
	}
	if len(gone) == 0 {
		return
	}
	var found []*Key
	table.each(func(k *Key) {
		if gone[k.id] {
			found = append(found, k)
		}
	})
	for _, k := range found {
		f.removeKey(table, k)
	}
}

// putKey adds k to the table, or replaces the key with the same digest.
func (f *Follower) putKey(table *keyTable, k *apikey.Key) error {
	c, err := compileKey(k)
	if err != nil {
		return err
	}
	if c.rights, err = f.sharedRights(k.Scope, f.plans.slot(k.PlanID), k.Addresses); err != nil {
		return fmt.Errorf("compile key %s: %w", k.ID, err)
	}
	c.owner = f.ownerOf(k)
	f.limitKey(table, c, k)
	c.class = f.acquireClass(classID{kind: KeyCaller, accountID: k.AccountID, gatewayID: k.GatewayID, level: k.Level, imported: k.Imported})
	old := table.find(&k.Digest)
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

// limitKey gives k the limits of its record. After a rotation, k shares them with the other keys that have
// its BucketID. If their limits differ, their bucket is converted, and they get the new limits as well. An expired
// key gets their limits instead, because changes of the limits are not written to its record. The count of a daily
// cap belongs to the BucketID, and stays, as do the requests in flight.
func (f *Follower) limitKey(table *keyTable, k *Key, record *apikey.Key) {
	config, accountID := record.RateLimit, record.AccountID
	if config.IsZero() && record.Concurrency == 0 {
		return
	}
	next := &keyLimit{daily: config.Daily.Count, dailies: f.keyDailies.OfAccount(f.buckets.Of(accountID))}
	if config.HasBucket() {
		next.params = f.rates.of(ratelimit.Compile(config.Config))
		next.bucket = f.cfg.Sharing.NewBucket(ratelimit.Name{Account: accountID, Kind: id.Key, Owner: k.BucketID()}, next.params)
	}
	if next.most = record.Concurrency; next.most > 0 {
		next.slots = f.slotsOf(accountID, id.Key)
	}
	k.limit = next
	var partners []*Key
	table.partners(k.BucketID(), func(p *Key) { partners = append(partners, p) })
	if len(partners) == 0 {
		return
	}
	was := partners[0].limit
	if was.equal(next) || k.ExpiredAt(f.cfg.Now().Wall/1000) {
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

// maxShared bounds the number of shared rates, and of shared rights. When it is reached,
// sharing starts anew.
const maxShared = 10_000

// rightsID identifies rights: the scopes as they are written, the plan, and the lists of addresses.
type rightsID struct {
	scopes      string
	plan        *planSlot
	allow, deny string
}

// sharedRights returns the one copy of the scopes s, the plan p, which may be nil, and the lists of addresses that all keys
// with the same ones use. It fails if a list has something that is not a network.
func (f *Follower) sharedRights(s apikey.Scopes, p *planSlot, addresses addrlist.Lists) (*rights, error) {
	name := rightsID{s.String(), p, strings.Join(addresses.Allow, " "), strings.Join(addresses.Deny, " ")}
	if shared := f.rights[name]; shared != nil {
		return shared, nil
	}
	list, err := addrlist.Compile(addresses)
	if err != nil {
		return nil, err
	}
	if len(f.rights) >= maxShared {
		clear(f.rights)
	}
	shared := &rights{plan: p, addresses: list}
	if normal := s.Normal(); len(normal) > 0 {
		shared.first, shared.more = normal[0], normal[1:]
	}
	f.rights[name] = shared
	return shared, nil
}

// acquireClass returns the class with the given ID and counts one more key in it.
func (f *Follower) acquireClass(name classID) *callerClass {
	h := f.classes[name]
	if h == nil {
		h = &callerClass{classID: name, used: f.used}
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
