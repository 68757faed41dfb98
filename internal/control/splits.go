package control

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// namesOf returns the upstreams that a route and its split name.
func namesOf(r *gateway.Route) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !yield(upstreamName(r)) {
			return
		}
		for _, name := range r.Split.Names {
			if !yield(name) {
				return
			}
		}
	}
}

// splitKeys are the first keys of the rotations of keys that splits name, or "" for a key that the account does not have.
type splitKeys map[string]string

// add reads the keys that a split names.
func (k splitKeys) add(ctx context.Context, tx KeyReader, accountID string, s gateway.Split) error {
	for _, keyID := range s.Keys() {
		if _, known := k[keyID]; known {
			continue
		}
		switch key, err := tx.Key(ctx, accountID, keyID); {
		case fault.CodeOf(err) == fault.NotFound:
			k[keyID] = ""
		case err != nil:
			return err
		default:
			k[keyID] = cmp.Or(key.BucketID, keyID)
		}
	}
	return nil
}

// check returns a validation error for each key of a split that the account does not have.
func (k splitKeys) check(s gateway.Split) error {
	var problems []error
	for i := range s {
		if s[i].When == nil {
			continue
		}
		for at, keyID := range s[i].When.Key {
			if k[keyID] == "" {
				problems = append(problems, fault.Invalid(fmt.Sprintf("[%d].when.key[%d]", i, at), "the account has no key %s: list its keys", keyID))
			}
		}
	}
	return fault.Join(problems...)
}

// findSplitKeys sets the keys of *s as the data plane knows them. If the account does not have one of them, the error is a
// validation error of the items of the split. What else is wrong with the split is found elsewhere.
func (s *Service) findSplitKeys(ctx context.Context, actor *Actor, split *gateway.Split) error {
	if len(split.Keys()) == 0 || split.Check() != nil {
		return nil
	}
	known, err := read(ctx, s, actor, func(tx ReadTx) (splitKeys, error) {
		known := splitKeys{}
		return known, known.add(ctx, tx, actor.Account.ID, *split)
	})
	if err != nil {
		return err
	}
	*split = split.WithBuckets(known)
	return known.check(*split)
}

// findSplitKeys does that for the splits of the routes of d. Errors have the positions of the entries.
func (d *document) findSplitKeys(ctx context.Context, s *Service, actor *Actor) error {
	if !slices.ContainsFunc(d.routes, func(r gateway.RouteSpec) bool { return len(r.Split.Keys()) > 0 }) {
		return nil
	}
	known, err := read(ctx, s, actor, func(tx ReadTx) (splitKeys, error) {
		known := splitKeys{}
		for i := range d.routes {
			if err := known.add(ctx, tx, actor.Account.ID, d.routes[i].Split); err != nil {
				return nil, err
			}
		}
		return known, nil
	})
	if err != nil {
		return err
	}
	var problems []error
	done := map[*gateway.SplitEntry]gateway.Split{} // of splits that routes share
	for i := range d.routes {
		split := &d.routes[i].Split
		if len(split.Keys()) == 0 {
			continue
		}
		problems = append(problems, d.inSplit(i, known.check(*split)))
		first := &(*split)[0]
		if done[first] == nil {
			done[first] = split.WithBuckets(known)
		}
		*split = done[first]
	}
	return fault.Join(problems...)
}

// inSplit returns an error of the items of the split of route i with the field and the positions in d.
func (d *document) inSplit(i int, err error) error {
	at, isSpec := d.splits[i]
	if !isSpec {
		return d.located(fault.Prefixed(gateway.SplitOfRoute(i), err))
	}
	var problems []error
	for _, p := range fault.ProblemsOf(err) {
		item := 0
		if _, err := fmt.Sscanf(p.Field, "[%d]", &item); err == nil && item < len(at.Upstreams) {
			problems = append(problems, at.Upstreams[item].Invalid(at.Field+p.Field, "%s", p.Message))
		}
	}
	return fault.Join(problems...)
}

// restoreSplitKeys sets the keys of the split of an old revision. Those that the account does not have any more are the keys of
// no caller.
func restoreSplitKeys(ctx context.Context, tx KeyReader, accountID string, p *gateway.Patch) error {
	known := splitKeys{}
	if err := known.add(ctx, tx, accountID, p.Split.Value); err != nil || len(known) == 0 {
		return err
	}
	p.Split.Value = p.Split.Value.WithBuckets(known)
	return nil
}

// checkSplit checks that g has the upstreams that its split names.
func (e *gatewayEdit) checkSplit(g *gateway.Gateway) error {
	split := g.Requests.Split
	switch {
	case e.hasSplit:
		return fault.Prefixed("split", g.CheckSplit(split))
	case !e.hasList:
		return nil
	}
	for _, name := range split.Names {
		if g.UpstreamNamed(name) == nil {
			return fault.Invalid(upstreamsField, "would not have the upstream %s, which the split of the gateway names: keep it, or change the split too", name)
		}
	}
	return nil
}
