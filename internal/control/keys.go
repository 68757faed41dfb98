package control

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
)

// Keys lists the account's keys that f selects, newest first. It sets f.Now.
func (s *Service) Keys(ctx context.Context, actor *Actor, f KeyFilter, p Page) ([]apikey.Key, error) {
	switch f.State {
	case "", apikey.Active, apikey.Expired, apikey.Revoked:
	default:
		return nil, fault.Invalid("state", "must be active, expired or revoked")
	}
	if f.Level != "" && !f.Level.Valid() {
		return nil, badLevel()
	}
	f.Now = s.now()
	list := func(tx ReadTx) ([]apikey.Key, error) { return listKeys(ctx, tx, actor, f, p) }
	if f.Searches() {
		return search(ctx, s, actor, list)
	}
	return read(ctx, s, actor, list)
}

// listKeys lists keys with the names of their plans.
func listKeys(ctx context.Context, tx ReadTx, actor *Actor, f KeyFilter, p Page) ([]apikey.Key, error) {
	all, err := tx.Keys(ctx, actor.Account.ID, f, p)
	if err != nil {
		return nil, err
	}
	names := namesOfPlans(tx, actor)
	for i := range all {
		if err := names.put(ctx, all[i].PlanID, &all[i].Plan); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Key returns one key.
func (s *Service) Key(ctx context.Context, actor *Actor, keyID string) (*apikey.Key, error) {
	return read(ctx, s, actor, func(tx ReadTx) (*apikey.Key, error) { return keyWithPlan(ctx, tx, actor, keyID) })
}

// keyWithPlan returns a key with the name of its plan.
func keyWithPlan(ctx context.Context, tx ReadTx, actor *Actor, keyID string) (*apikey.Key, error) {
	k, err := tx.Key(ctx, actor.Account.ID, keyID)
	if err != nil {
		return nil, err
	}
	return k, namesOfPlans(tx, actor).put(ctx, k.PlanID, &k.Plan)
}

// CreateKey creates a key and, if the account has no such owner, its owner. If gateway_id does not name a gateway of the
// account, or plan_id or plan no plan, the error is fault.ValidationFailed.
func (s *Service) CreateKey(ctx context.Context, actor *Actor, in KeyInput) (*NewKey, error) {
	k, err := in.key(actor, s.now())
	if err != nil || onlyChecks(ctx) {
		return nil, s.checked(ctx, actor, err, func(tx ReadTx) error {
			_, err := in.references(ctx, tx, actor, k.Level)
			return err
		})
	}
	return inTx(ctx, s, actor, func(w *work) (*NewKey, error) {
		k := k
		chosen, err := in.references(ctx, w, actor, k.Level)
		if err != nil {
			return nil, err
		}
		in.Plan.put(chosen, &k.PlanID, &k.Plan)
		if err := s.roomForKey(ctx, w, &k); err != nil {
			return nil, err
		}
		if err := s.roomForEvent(actor); err != nil {
			return nil, err
		}
		suspended, err := w.giveOwner(ctx, &k, "")
		if err != nil {
			return nil, err
		}
		made, err := s.insertKey(ctx, w, k, "")
		if err != nil {
			return nil, err
		}
		made.Warnings = s.scopeWarnings(&made.Key)
		if suspended {
			made.Warnings = append(made.Warnings, ownerSuspendedWarning)
		}
		return made, nil
	})
}

const ownerSuspendedWarning = "the owner is suspended, so gateways refuse the key until the owner is resumed"

// references checks the gateway and the plan that in names, and returns the plan, or nil for none.
func (in *KeyInput) references(ctx context.Context, tx ReadTx, actor *Actor, level apikey.Level) (*plan.Plan, error) {
	p, badPlan := in.Plan.find(ctx, tx, actor, "")
	return p, fault.Join(checkGatewayOfKey(ctx, tx, actor, in.GatewayID), badPlan, in.Plan.checkLevel(p, level))
}

// giveOwner sets the identifier of k's owner, which it creates if there is none with that external ID. before is the
// external ID of the owner that k has. suspended reports whether the owner is suspended.
func (w *work) giveOwner(ctx context.Context, k *apikey.Key, before string) (suspended bool, err error) {
	switch k.Owner {
	case before:
		return false, nil
	case "":
		k.OwnerID = ""
		return false, nil
	}
	o, err := w.ownerNamed(ctx, k.Owner)
	if err != nil {
		return false, err
	}
	if err := w.addOwner(ctx, o); err != nil {
		return false, err
	}
	k.OwnerID = o.ID
	return o.State == owner.Suspended, nil
}

// scopeWarnings names the resources of k's scopes under which there is no route.
func (s *Service) scopeWarnings(k *apikey.Key) (warnings []string) {
	if k.Level != apikey.GatewayLevel || s.cfg.Sources.Routes == nil {
		return nil
	}
	var resources []string
	for _, scope := range k.Scope {
		if scope.Resource != "" && !slices.Contains(resources, scope.Resource) {
			resources = append(resources, scope.Resource)
		}
	}
	whose := "no gateway of the account has"
	if k.GatewayID != "" {
		whose = "the gateway does not have"
	}
	for _, resource := range s.cfg.Sources.Routes.Unrouted(k.AccountID, k.GatewayID, resources) {
		warnings = append(warnings, fmt.Sprintf("%s a route at or below /%s, so a scope with the resource %s allows nothing at present", whose, resource, resource))
	}
	return warnings
}

// checkGatewayOfKey checks the gateway that a key is restricted to, "" for none.
func checkGatewayOfKey(ctx context.Context, tx GatewayReader, actor *Actor, gatewayID string) error {
	if gatewayID == "" {
		return nil
	}
	_, err := tx.Gateway(ctx, actor.Account.ID, gatewayID)
	return absent(err, "gateway_id", "there is no such gateway: create it first, or leave gateway_id out for all gateways")
}

// key validates in and returns the key that it describes. If the actor may not create such a key,
// that error takes precedence over all others except an invalid level.
func (in KeyInput) key(actor *Actor, now time.Time) (k apikey.Key, err error) {
	k = apikey.Key{
		Name: in.Name, Level: apikey.Level(in.Level), Owner: in.Owner,
		GatewayID: in.GatewayID, Metadata: maps.Clone(in.Metadata), Addresses: in.Addresses.Normal(),
	}
	k.Level = cmp.Or(k.Level, apikey.GatewayLevel)
	var invalidLevel, badScope, badRate, badConcurrency, badExpiry error
	k.Scope, badScope = apikey.ParseScopes(in.Scope)
	if !k.Level.Valid() {
		invalidLevel = badLevel()
	} else if denied := actor.mayIssue(keysPath, k.Level, k.Scope); denied != nil {
		return k, denied
	}
	k.RateLimit, badRate = in.RateLimit.parse()
	if in.Concurrency != nil {
		k.Concurrency, badConcurrency = *in.Concurrency, checkConcurrency(*in.Concurrency)
	}
	if in.ExpiresAt != "" {
		k.ExpiresAt, badExpiry = apikey.ParseExpiry(in.ExpiresAt, now)
	}
	return k, fault.Join(invalidLevel, badScope, badExpiry, badRate, badConcurrency, k.Validate())
}

// checkConcurrency checks the concurrency of a key.
func checkConcurrency(n int64) error {
	return fault.Prefixed("concurrency", ratelimit.CheckConcurrency(n))
}

func badLevel() error { return fault.Invalid("level", "must be gateway or account") }

// parse parses a key's rate_limit.
func (in KeyLimitInput) parse() (l ratelimit.KeyLimit, err error) {
	if o := in.Object; o != nil {
		l, err = ratelimit.ParseKeyObject(o.Sustained, o.Burst, o.Daily)
	} else {
		var r ratelimit.Rate
		err = r.UnmarshalText([]byte(in.Rate))
		l = ratelimit.RateOf(r)
	}
	return l, fault.Prefixed("rate_limit", err)
}

// insertKey stores k with a new identifier, its event and its audit record. secret is its string; "" means a new one.
func (s *Service) insertKey(ctx context.Context, w *work, k apikey.Key, secret string) (*NewKey, error) {
	made, err := s.issue(ctx, w, k, secret)
	if err != nil {
		return nil, err
	}
	return made, w.audit(ctx, audit.KeyCreate, made.ID, made.GatewayID, keyDiff(nil, &made.Key))
}

// issue stores k, with a new identifier and bucket unless it has them, and raises key.created. secret is its string;
// "" means a new one.
func (s *Service) issue(ctx context.Context, w *work, k apikey.Key, secret string) (*NewKey, error) {
	if secret == "" {
		var err error
		if secret, err = apikey.Generate(k.Level, s.cfg.Random); err != nil {
			return nil, err
		}
	}
	k.Digest = apikey.DigestOf(secret)
	k.Prefix = apikey.PrefixOf(secret)
	if err := w.storeNewKey(ctx, &k); err != nil {
		return nil, err
	}
	return &NewKey{Key: k, Secret: secret}, w.changed(ctx, changeOfKey(&k, k.HolderRoot != ""), k.ID)
}

// storeNewKey stores k, which has a digest, with a new identifier and bucket unless it has them, and raises key.created. The
// change log is the caller's.
func (w *work) storeNewKey(ctx context.Context, k *apikey.Key) error {
	w.identify(k)
	if err := w.InsertKey(ctx, k); err != nil {
		return err
	}
	return w.raise(ctx, event.KeyCreated, k.EventData())
}

// identify gives a new key its identifier and bucket, unless it has them, and its account and time.
func (w *work) identify(k *apikey.Key) {
	if k.ID == "" {
		k.ID = id.NewAt(id.Key, w.now)
	}
	k.AccountID = w.actor.Account.ID
	k.CreatedAt = w.now
	k.Version = 1
	k.BucketID = cmp.Or(k.BucketID, k.ID)
}

// changeOfKey returns the kind of change that stores k. byHolder says that its holder has made it.
func changeOfKey(k *apikey.Key, byHolder bool) snapshot.ChangeKind {
	switch {
	case k.Imported:
		return snapshot.ImportChange
	case !k.Addresses.IsZero():
		return snapshot.AddressChange
	case k.Concurrency != 0:
		return snapshot.ConcurrencyChange
	case byHolder:
		return snapshot.HolderChange
	default:
		return snapshot.KeyChange
	}
}

// storeKey stores k with a new version and an audit record, unless it equals before.
func (w *work) storeKey(ctx context.Context, a audit.Action, before, k *apikey.Key) error {
	diff := keyDiff(before, k)
	if len(diff) == 0 {
		return nil
	}
	if w.actor.Kind == HolderActor {
		diff["by"] = [2]any{nil, string(HolderActor)}
	}
	k.Version = before.Version + 1
	if err := w.UpdateKey(ctx, k); err != nil {
		return err
	}
	if err := w.audit(ctx, a, k.ID, k.GatewayID, diff); err != nil {
		return err
	}
	if k.RevokedAt.IsZero() {
		return w.changed(ctx, changeOfKey(k, false), k.ID)
	}
	return w.revoked(ctx, k)
}
