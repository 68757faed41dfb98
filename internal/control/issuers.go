package control

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/snapshot"
)

// Issuers lists the account's issuers that f selects, newest first.
func (s *Service) Issuers(ctx context.Context, actor *Actor, f IssuerFilter, p Page) ([]issuer.Issuer, error) {
	return read(ctx, s, actor, func(tx ReadTx) ([]issuer.Issuer, error) { return tx.Issuers(ctx, actor.Account.ID, f, p) })
}

// Issuer returns one issuer.
func (s *Service) Issuer(ctx context.Context, actor *Actor, issuerID string) (*issuer.Issuer, error) {
	return read(ctx, s, actor, func(tx ReadTx) (*issuer.Issuer, error) { return tx.Issuer(ctx, actor.Account.ID, issuerID) })
}

// issuersPath is the path of issuers below /v1.
const issuersPath = "/issuers"

// mayIssueTokens returns nil if a may say whose tokens are valid. Tokens may have any scope on gateways, as an issuer
// decides, so the rule that no key grants more than it has requires the word admin.
func (a *Actor) mayIssueTokens() error {
	if a.Scope.WordOn(issuersPath) < apikey.Admin {
		return fault.Denied("an issuer gives its tokens any scope: creating or changing one requires the word admin for %s", issuersPath)
	}
	return nil
}

// CreateIssuer creates an issuer with the name and the settings. A name that is in use is fault.Conflict.
func (s *Service) CreateIssuer(ctx context.Context, actor *Actor, name string, settings *issuer.Settings) (*issuer.Issuer, error) {
	made := issuer.Issuer{Name: name, Settings: *settings}
	invalid := made.Validate()
	if onlyChecks(ctx) {
		return nil, s.checked(ctx, actor, invalid, func(ReadTx) error { return nil })
	}
	defer s.fetchDueKeys()
	return inTx(ctx, s, actor, func(w *work) (*issuer.Issuer, error) {
		i := made
		if err := actor.mayIssueTokens(); err != nil {
			return nil, err
		}
		if invalid != nil {
			return nil, invalid
		}
		i.ID, i.AccountID, i.CreatedAt, i.Version = id.NewAt(id.Issuer, w.now), actor.Account.ID, w.now, 1
		if err := w.seeKeys(nil, &i); err != nil {
			return nil, err
		}
		if err := w.roomForIssuer(ctx, nil, &i); err != nil {
			return nil, err
		}
		if err := w.InsertIssuer(ctx, &i); err != nil {
			return nil, err
		}
		if err := w.audit(ctx, audit.IssuerCreate, i.ID, "", issuerDiff(nil, &i)); err != nil {
			return nil, err
		}
		return &i, w.changed(ctx, snapshot.IssuerChange, i.ID)
	})
}

// seeKeys notes the keys of an issuer in place of before, which is nil for a new one. Keys that are given by hand are its
// present keys; others are to be fetched at once if they come from elsewhere than those of before, which then count no more.
func (w *work) seeKeys(before, i *issuer.Issuer) error {
	source, fetched := i.FetchedFrom()
	if !fetched {
		set, err := i.GivenKeys()
		if err != nil {
			return err
		}
		i.Fetched = issuer.Fetched{}
		i.See(set, w.now)
		return nil
	}
	if before != nil {
		if had, was := before.FetchedFrom(); was && had == source {
			return nil
		}
	}
	i.Fetched, i.Seen = issuer.Fetched{FetchAt: w.now}, nil
	return nil
}

// roomForIssuer checks that the actor's account may have i in place of before, which is nil for one more. Otherwise the
// error is fault.Conflict. An account that has more than it may already can change what it has, as long as it does not grow.
func (w *work) roomForIssuer(ctx context.Context, before, i *issuer.Issuer) error {
	use, err := w.IssuerUse(ctx, w.actor.Account.ID, i.ID)
	if err != nil {
		return err
	}
	size, sizeBefore := settingsBytes(i), settingsBytes(before)
	switch {
	case before == nil && use.Issuers >= issuer.MaxIssuers:
		return fault.New(fault.Conflict, "the account has %d issuers, which is the most that it may have: delete issuers that are no longer needed first", use.Issuers)
	case use.Bytes+size > issuer.MaxAccountBytes && size > sizeBefore:
		return fault.New(fault.Conflict, "the issuers of the account would take %s, and may take %s: leave out keys of jwks that sign no tokens, and members such as x5c", sizeText(use.Bytes+size), sizeText(issuer.MaxAccountBytes))
	}
	return nil
}

// settingsBytes returns how many bytes the settings of an issuer take in the store.
func settingsBytes(i *issuer.Issuer) int64 {
	if i == nil {
		return 0
	}
	text, _ := json.Marshal(i.Settings) // valid settings have a form
	return int64(len(text))
}

// UpdateIssuer changes an issuer by change, which may set its name and its settings. A name that is in use is
// fault.Conflict.
func (s *Service) UpdateIssuer(ctx context.Context, actor *Actor, issuerID string, change func(*issuer.Issuer), m Match) (*issuer.Issuer, error) {
	if onlyChecks(ctx) {
		// These rules hold for every record.
		sample := issuer.Issuer{Name: "x", Settings: issuer.Settings{URL: "https://x.example", Audiences: []string{"x"}}}
		change(&sample)
		return nil, s.checked(ctx, actor, sample.Validate(), func(ReadTx) error { return nil })
	}
	defer s.fetchDueKeys()
	return inTx(ctx, s, actor, func(w *work) (*issuer.Issuer, error) {
		if err := actor.mayIssueTokens(); err != nil {
			return nil, err
		}
		before, err := w.Issuer(ctx, actor.Account.ID, issuerID)
		if err != nil {
			return nil, err
		}
		if err := require(m, before.Version); err != nil {
			return nil, err
		}
		after := *before
		change(&after)
		if err := after.Validate(); err != nil {
			return nil, err
		}
		diff := issuerDiff(before, &after)
		if len(diff) == 0 {
			return before, nil
		}
		if err := w.seeKeys(before, &after); err != nil {
			return nil, err
		}
		if err := w.roomForIssuer(ctx, before, &after); err != nil {
			return nil, err
		}
		if after.Name != before.Name {
			if err := w.issuerIsUnused(ctx, before.Name, "renamed"); err != nil {
				return nil, err
			}
		}
		if after.URL != before.URL {
			if err := w.issuersDiffer(ctx, before.Name, after.URL); err != nil {
				return nil, err
			}
		}
		after.Version = before.Version + 1
		if err := w.UpdateIssuer(ctx, &after); err != nil {
			return nil, err
		}
		if err := w.audit(ctx, audit.IssuerUpdate, after.ID, "", diff); err != nil {
			return nil, err
		}
		return &after, w.changed(ctx, snapshot.IssuerChange, after.ID)
	})
}

// DeleteIssuer deletes an issuer and returns it as it was.
func (s *Service) DeleteIssuer(ctx context.Context, actor *Actor, issuerID string, m Match) (*issuer.Issuer, error) {
	return inTx(ctx, s, actor, func(w *work) (*issuer.Issuer, error) {
		i, err := w.Issuer(ctx, actor.Account.ID, issuerID)
		if err != nil {
			return nil, err
		}
		if err := require(m, i.Version); err != nil {
			return nil, err
		}
		if err := w.issuerIsUnused(ctx, i.Name, "deleted"); err != nil {
			return nil, err
		}
		if err := w.DeleteIssuer(ctx, actor.Account.ID, issuerID); err != nil {
			return nil, err
		}
		if err := w.audit(ctx, audit.IssuerDelete, i.ID, "", issuerDiff(i, nil)); err != nil {
			return nil, err
		}
		return i, w.changed(ctx, snapshot.IssuerChange, i.ID)
	})
}

// issuerIsUnused returns fault.Conflict if a gateway names the issuer, which is to be deleted or renamed.
func (w *work) issuerIsUnused(ctx context.Context, name, what string) error {
	users, err := w.GatewaysOfIssuer(ctx, w.actor.Account.ID, name, maxNamed+1)
	if err != nil || len(users) == 0 {
		return err
	}
	named := make([]string, len(users))
	for n := range users {
		named[n] = fmt.Sprintf("%s (%s)", users[n].Gateway, users[n].GatewayID)
	}
	if len(named) > maxNamed {
		named[maxNamed] = "others"
	}
	return fault.New(fault.Conflict, "the issuer is in use and cannot be %s: these gateways name it: %s: take it out of their issuers first", what, strings.Join(named, ", "))
}

// maxNamed is how many gateways an error names.
const maxNamed = 5

// issuersDiffer returns fault.Conflict if a gateway that names the issuer names another one with the claim iss.
func (w *work) issuersDiffer(ctx context.Context, name, url string) error {
	users, err := w.GatewaysOfIssuer(ctx, w.actor.Account.ID, name, maxGatewaysOfIssuer)
	if err != nil || len(users) == 0 {
		return err
	}
	others, err := w.IssuersOfURL(ctx, w.actor.Account.ID, url)
	if err != nil {
		return err
	}
	for n := range users {
		for _, other := range users[n].Issuers {
			if other != name && slices.Contains(others, other) {
				return fault.New(fault.Conflict, "the gateway %s also names the issuer %s, which has the same value of issuer: a gateway cannot tell their tokens apart", users[n].GatewayID, other)
			}
		}
	}
	return nil
}

// maxGatewaysOfIssuer is more than the gateways of any account.
const maxGatewaysOfIssuer = 1 << 20

// checkIssuers checks the issuers that a gateway names (identity.md, section 2), if they are not those of before, which is
// nil for a new gateway: the account has them, and no two have the same claim iss. The rules of the gateway name no header that their tokens
// set. The error is a validation error of the field "issuers", or of a field of the rules.
func checkIssuers(ctx context.Context, tx IssuerReader, before, g *gateway.Gateway) error {
	if len(g.Requests.Issuers) == 0 {
		return nil
	}
	if before != nil && slices.Equal(before.Requests.Issuers, g.Requests.Issuers) {
		return checkClaimHeaders(ctx, tx, before, g)
	}
	all, err := tx.IssuersNamed(ctx, g.AccountID, g.Requests.Issuers)
	if err != nil {
		return err
	}
	first := map[string]string{} // name by claim iss
	var problems []error
	for n, name := range g.Requests.Issuers {
		field := fmt.Sprintf("issuers[%d]", n)
		at := slices.IndexFunc(all, func(i NamedIssuer) bool { return i.Name == name })
		if at < 0 {
			problems = append(problems, fault.Invalid(field, "there is no issuer with the name %q: create it first, or name another one", name))
			continue
		}
		if other, taken := first[all[at].URL]; taken {
			problems = append(problems, fault.Invalid(field, "has the same value of issuer as %s: a gateway cannot tell their tokens apart, so leave one out", other))
		}
		first[all[at].URL] = name
	}
	if err := fault.Join(problems...); err != nil {
		return err
	}
	return checkClaimHeaders(ctx, tx, before, g)
}

// issuerDiff returns what differs between two issuers as the audit log has it: keys and certificates as digests.
func issuerDiff(before, after *issuer.Issuer) audit.Diff {
	d := audit.Diff{}
	for _, c := range issuer.Diff(before, after) {
		if b, a := issuerValue(c.Field, c.Before), issuerValue(c.Field, c.After); b != nil || a != nil {
			d[c.Field] = [2]any{b, a}
		}
	}
	return d
}

// issuerValue returns the value of a field as the audit log has it; nil for nothing.
func issuerValue(field string, value any) any {
	if text, isText := value.(string); isText && (field == "jwks" || field == "ca") {
		return digestOrNil(text)
	}
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.Map, reflect.Slice:
		if v.Len() == 0 {
			return nil
		}
	default:
	}
	return value
}
