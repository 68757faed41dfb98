package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/snapshot"
)

// MaxImport is the most keys that one call of ImportKeys takes.
const MaxImport = 1000

// ImportInput is a key of ImportKeys: its string or the hash of that, and the fields of a key.
type ImportInput struct {
	KeyInput
	SHA256     string // of the string, as apikey.ParseDigest takes it; "" if Secret is given
	Secret     string // the string in clear; "" if SHA256 is given
	Prefix     string // what may be shown of the string; "" for the first characters of Secret
	LastUsedAt string // an RFC 3339 time; "" for never
}

// importedKey is a validated ImportInput.
type importedKey struct {
	in     *ImportInput
	key    apikey.Key
	digest apikey.Digest // of the string
	field  string        // that has the string or its hash
	at     int           // in the list
}

// ImportKeys stores keys that exist already, all or none, and creates owners that do not exist (contract, edge, section 4).
// The fields of validation errors begin with keys[0]. A key that the account has, or had before it was revoked or
// replaced in a rotation, is fault.Conflict, with a problem for each of them; what other accounts have does not
// matter. Many keys are stored in pieces, see importInPieces. A NewKey of the result has no Secret. Where only the hash was given, it has the warning apikey.StrengthUnknown.
func (s *Service) ImportKeys(ctx context.Context, actor *Actor, inputs []ImportInput) ([]NewKey, error) {
	all, err := readImport(actor, inputs, s.now())
	if err != nil || onlyChecks(ctx) {
		return nil, s.checked(ctx, actor, err, func(tx ReadTx) error {
			_, err := findReferences(ctx, tx, actor, all)
			return err
		})
	}
	if len(all) > importPiece {
		return s.importInPieces(ctx, actor, all)
	}
	return inTx(ctx, s, actor, func(w *work) ([]NewKey, error) {
		plans, err := findReferences(ctx, w, actor, all)
		if err != nil {
			return nil, err
		}
		digests, err := digestsOf(ctx, w, actor, all)
		if err != nil {
			return nil, err
		}
		if err := s.roomForImport(ctx, w, all); err != nil {
			return nil, err
		}
		owners, err := w.ownersOf(ctx, all)
		if err != nil {
			return nil, err
		}
		made := newKeys(all, plans, digests)
		if err := w.storeImport(ctx, made, owners); err != nil {
			return nil, err
		}
		s.warnOfImport(made, all, owners)
		return made, nil
	})
}

// roomForImport checks that the actor's account may have the keys in addition to its keys.
func (s *Service) roomForImport(ctx context.Context, w *work, all []importedKey) error {
	bytes := int64(0)
	for i := range all {
		bytes += keyBytes(&all[i].key)
	}
	if err := s.roomForKeys(ctx, w, int64(len(all)), bytes); err != nil {
		return err
	}
	return s.roomForEvent(w.actor)
}

// newKeys returns the keys with their plans and digests, but without identifiers.
func newKeys(all []importedKey, plans []*plan.Plan, digests []apikey.Digest) []NewKey {
	made := make([]NewKey, len(all))
	for i := range all {
		made[i].Key = all[i].key
		made[i].Digest = digests[i]
		all[i].in.Plan.put(plans[i], &made[i].PlanID, &made[i].Plan)
	}
	return made
}

// ownersOf returns the owners that the keys name, by their external IDs. Those that do not exist are new, and have no
// identifier yet.
func (w *work) ownersOf(ctx context.Context, all []importedKey) (map[string]*owner.Owner, error) {
	owners := map[string]*owner.Owner{}
	for i := range all {
		if name := all[i].key.Owner; name != "" {
			owners[name] = nil
		}
	}
	if len(owners) == 0 {
		return owners, nil
	}
	names := slices.Sorted(maps.Keys(owners))
	known, err := w.OwnersByExternalID(ctx, w.actor.Account.ID, names)
	if err != nil {
		return nil, err
	}
	for i := range known {
		owners[known[i].ExternalID] = &known[i]
	}
	missing := len(owners) - len(known)
	if missing == 0 {
		return owners, nil
	}
	a, err := w.Account(ctx, w.actor.Account.ID)
	if err != nil {
		return nil, err
	}
	for name, o := range owners {
		if o == nil {
			owners[name] = &owner.Owner{ExternalID: name, PlanID: a.DefaultPlanID, State: owner.Active}
		}
	}
	return owners, w.roomForOwners(ctx, missing)
}

// storeImport stores the keys, and those of their owners that are new. Everything has been read before. The change log
// comes last, because its head is held from then on.
func (w *work) storeImport(ctx context.Context, keys []NewKey, owners map[string]*owner.Owner) error {
	added, err := w.storeOwners(ctx, owners)
	if err != nil {
		return err
	}
	ids := make([]string, len(keys))
	for i := range keys {
		k := &keys[i].Key
		if o := owners[k.Owner]; o != nil {
			k.OwnerID = o.ID
		}
		if err := w.storeNewKey(ctx, k); err != nil {
			return err
		}
		if err := w.audit(ctx, audit.KeyImport, k.ID, k.GatewayID, keyDiff(nil, k)); err != nil {
			return err
		}
		ids[i] = k.ID
	}
	if err := w.allChanged(ctx, snapshot.OwnerChange, added); err != nil {
		return err
	}
	return w.allChanged(ctx, snapshot.ImportChange, ids)
}

// storeOwners stores those of the owners that are new, and returns their identifiers. Their change log is the caller's.
func (w *work) storeOwners(ctx context.Context, owners map[string]*owner.Owner) (added []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(owners)) {
		if o := owners[name]; o.ID == "" {
			if err := w.storeNewOwner(ctx, o); err != nil {
				return nil, err
			}
			added = append(added, o.ID)
		}
	}
	return added, nil
}

// warnOfImport sets the warnings about imported keys.
func (s *Service) warnOfImport(keys []NewKey, all []importedKey, owners map[string]*owner.Owner) {
	known := map[[2]string][]string{} // by gateway and scopes
	for i := range keys {
		k := &keys[i]
		if all[i].in.SHA256 != "" {
			k.Warnings = append(k.Warnings, apikey.StrengthUnknown)
		}
		name := [2]string{k.GatewayID, k.Scope.String()}
		if _, ok := known[name]; !ok {
			known[name] = s.scopeWarnings(&k.Key)
		}
		k.Warnings = append(k.Warnings, known[name]...)
		if o := owners[k.Owner]; o != nil && o.State == owner.Suspended {
			k.Warnings = append(k.Warnings, ownerSuspendedWarning)
		}
	}
}

// readImport validates inputs without the store. What the actor may not do takes precedence over all other errors.
func readImport(actor *Actor, inputs []ImportInput, now time.Time) ([]importedKey, error) {
	if len(inputs) == 0 || len(inputs) > MaxImport {
		return nil, fault.Invalid("keys", "must have between 1 and %d keys", MaxImport)
	}
	all, errs := make([]importedKey, len(inputs)), make([]error, len(inputs))
	first := make(map[apikey.Digest]int, len(inputs))
	for i := range inputs {
		k, err := inputs[i].read(actor, now)
		k.at = i
		if k.field != "" { // the digest is known
			if same, twice := first[k.digest]; twice {
				err = fault.Join(err, fault.Invalid(k.field, "is the same key as keys[%d]: leave one of them out", same))
			} else {
				first[k.digest] = i
			}
		}
		all[i], errs[i] = k, fault.Prefixed(fmt.Sprintf("keys[%d]", i), err)
	}
	return all, fault.Join(errs...)
}

// read validates in. The result has a field only if its digest is known.
func (in *ImportInput) read(actor *Actor, now time.Time) (k importedKey, err error) {
	k = importedKey{in: in}
	var invalid, badLevel, badKey, badPrefix, badUse error
	if k.key, invalid = in.key(actor, now); k.key.Level == apikey.AccountLevel {
		badLevel = fault.Invalid("level", "must be gateway: imported keys are for calls through gateways alone")
	}
	k.key.Imported = true
	switch {
	case in.Secret != "" && in.SHA256 != "":
		badKey = fault.Invalid("key", "must not be given together with sha256: give one of them")
	case in.Secret != "":
		if badKey = apikey.CheckImportedClear("key", in.Secret); badKey == nil {
			k.digest, k.field = apikey.DigestOf(in.Secret), "key"
		}
	case in.SHA256 != "":
		if k.digest, badKey = apikey.ParseDigest("sha256", in.SHA256); badKey == nil {
			k.field = "sha256"
		}
	default:
		badKey = fault.Invalid("sha256", "is required: give the SHA-256 of the key, or the key itself as key")
	}
	if badKey == nil || in.Secret == "" {
		k.key.Prefix, badPrefix = apikey.ImportedPrefix(in.Secret, in.Prefix)
	}
	if in.LastUsedAt != "" {
		k.key.LastUsedAt, badUse = parseLastUse(in.LastUsedAt, now)
	}
	return k, fault.Join(invalid, badLevel, badKey, badPrefix, badUse)
}

// parseLastUse parses the last_used_at of an imported key.
func parseLastUse(s string, now time.Time) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, fault.Invalid("last_used_at", "must be an RFC 3339 time such as 2026-07-31T12:00:00Z")
	}
	if t = t.UTC().Truncate(time.Microsecond); t.After(now) || t.Before(time.Unix(0, 0)) {
		return time.Time{}, fault.Invalid("last_used_at", "must be in the past, and not before 1970")
	}
	return t, nil
}

// findReferences checks the gateways and plans that the keys name, each once, and returns the plans, nil for none.
func findReferences(ctx context.Context, tx ReadTx, actor *Actor, all []importedKey) ([]*plan.Plan, error) {
	type reference struct {
		gatewayID string
		plan      PlanChoice
	}
	type found struct {
		plan *plan.Plan
		err  error
	}
	known := map[reference]found{}
	plans, errs := make([]*plan.Plan, len(all)), make([]error, len(all))
	for i := range all {
		in := all[i].in
		name := reference{in.GatewayID, in.Plan}
		f, ok := known[name]
		if !ok {
			f.plan, f.err = in.references(ctx, tx, actor, apikey.GatewayLevel)
			known[name] = f
		}
		plans[i], errs[i] = f.plan, fault.Prefixed(fmt.Sprintf("keys[%d]", i), f.err)
	}
	return plans, fault.Join(errs...)
}

// digestsOf returns the digests under which the account stores the keys. If it has one of them in whatever state, or a key
// of Keygate with the same string, the error is fault.Conflict and lists them.
func digestsOf(ctx context.Context, tx KeyReader, actor *Actor, all []importedKey) ([]apikey.Digest, error) {
	of, ok := id.Parse(id.Account, actor.Account.ID)
	if !ok {
		return nil, fmt.Errorf("import keys: %q is not an account ID", actor.Account.ID)
	}
	digests := make([]apikey.Digest, 2*len(all))
	for i := range all {
		digests[i], digests[len(all)+i] = apikey.ImportedDigest(of, all[i].digest), all[i].digest
	}
	have, err := tx.HaveDigests(ctx, actor.Account.ID, digests)
	if err != nil {
		return nil, err
	}
	conflict := &fault.Error{Code: fault.Conflict}
	for i := range all {
		if !have[digests[i]] && !have[all[i].digest] {
			continue
		}
		if len(conflict.Problems) == fault.MaxProblems {
			conflict.LeftOut++
			continue
		}
		conflict.Problems = append(conflict.Problems, fault.Problem{
			Field: fmt.Sprintf("keys[%d].%s", all[i].at, all[i].field), Message: "the account has this key, or had it before it was revoked or replaced, or imports it in another call: leave it out",
		})
	}
	if len(conflict.Problems) > 0 {
		conflict.Field, conflict.Message = conflict.Problems[0].Field, conflict.Problems[0].Message
		return nil, conflict
	}
	return digests[:len(all)], nil
}
