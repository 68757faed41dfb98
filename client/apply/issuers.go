package apply

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/issuer"
)

// issuerSet is what applying a set does to issuers. Gateways name issuers, so they come before all gateways and are
// deleted after them.
type issuerSet struct {
	file    *File         // nil if the set has none
	early   []*Difference // one for each issuer of the file
	deleted []*Difference
	others  []client.Issuer // that the file does not name

	// after has the claim iss of each issuer that there is once the set is applied, by its name. It is nil without a file.
	after map[string]string
}

// issuerStep is how to carry out a difference of an issuer.
type issuerStep struct{ want *issuer.FileIssuer }

// compareIssuers compares the issuers of the account with the file of issuers of a set.
func (a *Applier) compareIssuers(ctx context.Context, set *Set) (*issuerSet, error) {
	s := &issuerSet{file: set.Issuers}
	if set.Issuers == nil {
		return s, nil
	}
	s.after = map[string]string{}
	present, err := a.issuers(ctx)
	if err != nil {
		return nil, err
	}
	byName := map[string]*client.Issuer{}
	for i := range present {
		byName[present[i].Name] = &present[i]
	}
	for i := range set.Issuers.issuers.Issuers {
		want := &set.Issuers.issuers.Issuers[i]
		d := &Difference{
			file: set.Issuers, File: set.Issuers.Name, Kind: Issuer, Action: Create, Name: want.Name, Gateway: []client.SettingChange{}, Push: noRoutes(),
			issuer: &issuerStep{want},
		}
		if err := a.lookAtIssuer(ctx, d, byName[want.Name]); err != nil {
			return nil, &FileError{d.File, d.file.Secrets, err}
		}
		s.early = append(s.early, d)
		s.after[want.Name] = want.URL
		delete(byName, want.Name)
	}
	for i := range present {
		switch left := &present[i]; {
		case byName[left.Name] == nil:
		case set.Dir != "" && a.cfg.Prune:
			s.others = append(s.others, *left)
		default:
			s.after[left.Name] = left.Issuer
		}
	}
	return s, nil
}

// check checks the issuers that the file of d names against those that there are once the set is applied. Those of them
// that do not exist yet become d.coming.
func (s *issuerSet) check(d *Difference) error {
	if s.file == nil {
		return nil // the server knows better
	}
	names := d.file.config.Gateway.Issuers.Value
	at := func(n int) (document.Position, string) {
		return d.file.at("gateway", "issuers"), fmt.Sprintf("gateway.issuers[%d]", n)
	}
	first := map[string]string{} // name by claim iss
	var problems []error
	for n, name := range names {
		iss, known := s.after[name]
		position, field := at(n)
		other, taken := first[iss]
		switch {
		case !known:
			problems = append(problems, position.Invalid(field, "there is no issuer with the name %q, and %s has none: add it there, or name another one", name, s.file.Name))
		case taken:
			problems = append(problems, position.Invalid(field, "has the same value of issuer as %s: a gateway cannot tell their tokens apart, so leave one out", other))
		default:
			first[iss] = name
		}
		if slices.ContainsFunc(s.early, func(e *Difference) bool { return e.Name == name && e.Action == Create }) {
			d.coming = append(d.coming, name)
		}
	}
	return fault.Join(problems...)
}

// withoutComing returns the issuers of the file that exist already.
func (d *Difference) withoutComing() []string {
	return slices.DeleteFunc(slices.Clone(d.file.config.Gateway.Issuers.Value), func(name string) bool { return slices.Contains(d.coming, name) })
}

// addIssuers adds the issuers that tried left out to the changes.
func (d *Difference) addIssuers() {
	change := client.SettingChange{Field: "issuers", After: anyOf(d.file.config.Gateway.Issuers.Value)}
	if left := d.withoutComing(); len(left) > 0 {
		change.Before = anyOf(left) // unless the server says otherwise
	}
	d.addSetting(change)
}

// anyOf returns a list as JSON decodes it.
func anyOf(list []string) []any {
	out := make([]any, len(list))
	for i, one := range list {
		out[i] = one
	}
	return out
}

// issuers lists the issuers of the account, newest first.
func (a *Applier) issuers(ctx context.Context) (all []client.Issuer, err error) {
	for i, err := range a.cfg.Client.Issuers(ctx, client.IssuerFilter{}) {
		if err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, nil
}

// lookAtIssuer sets what d changes. present is the issuer in the list of all, or nil if there is none.
func (a *Applier) lookAtIssuer(ctx context.Context, d *Difference, present *client.Issuer) (err error) {
	if present != nil {
		d.IssuerID, d.Action = present.IssuerID, Keep
		if d.Issuer, err = d.issuer.changes(present); err != nil || len(d.Issuer) == 0 {
			return err
		}
		// The list has no ETags.
		_, err := client.WhileBusy(ctx, a.cfg.Busy, func() (_ *client.Issuer, err error) {
			present, d.etag, err = a.cfg.Client.IssuerWithETag(ctx, present.IssuerID)
			return present, err
		})
		if err != nil {
			return err
		}
		d.Action = Update
	}
	if d.Issuer, err = d.issuer.changes(present); d.Action == Update && len(d.Issuer) == 0 {
		d.Action = Keep
	}
	d.hide()
	return err
}

// changes returns what the step changes about an issuer; nil stands for one that does not exist.
func (s *issuerStep) changes(present *client.Issuer) (changes []client.SettingChange, err error) {
	before := &issuer.Issuer{Name: s.want.Name} // with the defaults
	if present != nil {
		has, err := fileIssuer(present)
		if err != nil {
			return nil, err
		}
		before = &has.Issuer
	}
	for _, c := range issuer.Diff(before, &s.want.Issuer) {
		changes = append(changes, client.SettingChange{Field: c.Field, Before: shownIssuer(c.Field, c.Before), After: shownIssuer(c.Field, c.After)})
	}
	return changes, nil
}

// shownIssuer returns the value of a field as a difference shows it: keys and certificates as digests.
func shownIssuer(field string, value any) (shown any) {
	if text, isText := value.(string); isText && (field == "jwks" || field == "ca") {
		return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text)))
	}
	content, err := json.Marshal(value)
	if err != nil || json.Unmarshal(content, &shown) != nil {
		return value
	}
	return shown
}

// fileIssuer returns an issuer in the form of a file.
func fileIssuer(i *client.Issuer) (*issuer.FileIssuer, error) {
	content, err := json.Marshal(i)
	if err != nil {
		return nil, err
	}
	var members, kept map[string]json.RawMessage
	if err := json.Unmarshal(content, &members); err != nil {
		return nil, err
	}
	kept = map[string]json.RawMessage{}
	for _, f := range issuer.Fields() {
		if v := members[f.Name]; v != nil {
			kept[f.Name] = v
		}
	}
	if content, err = json.Marshal(kept); err != nil {
		return nil, err
	}
	out, err := issuer.ParseOne(content)
	if err != nil {
		return nil, fmt.Errorf("the issuer %s has settings that this version of keygate does not know: use the version of the server: %w", i.Name, err)
	}
	return out, nil
}

// applyIssuer carries out a difference of an issuer.
func (a *Applier) applyIssuer(ctx context.Context, d *Difference) error {
	r := &client.Request{Method: http.MethodDelete, Path: "/v1/issuers/" + d.IssuerID}
	var body map[string]any
	switch d.Action {
	case Create:
		r.Method, r.Path, body = http.MethodPost, "/v1/issuers", d.issuer.want.Given()
	case Update:
		r.Method, body = http.MethodPatch, map[string]any{}
		given := d.issuer.want.Given()
		for _, c := range d.Issuer {
			body[c.Field] = given[c.Field] // null restores the default
		}
	}
	if body != nil {
		var err error
		if r.Body, err = json.Marshal(body); err != nil {
			return err
		}
	}
	if d.etag != "" {
		client.IfMatch(d.etag)(r)
	}
	changed, err := client.WhileBusy(ctx, a.cfg.Busy, func() (*client.Issuer, error) {
		res, err := a.cfg.Client.Do(ctx, r)
		if err != nil {
			return nil, err
		}
		out := &client.Issuer{}
		return out, json.Unmarshal(res.Body, out)
	})
	if err == nil {
		d.IssuerID = changed.IssuerID
	}
	return err
}

// issuerChanged returns an error if the update d would change something else now than when Compare returned it.
func (a *Applier) issuerChanged(ctx context.Context, d *Difference) error {
	_, etag, err := a.cfg.Client.IssuerWithETag(ctx, d.IssuerID)
	if err == nil && etag != d.etag {
		err = changedMeanwhile(d)
	}
	return err
}

// usersOfIssuers returns a gateway for each issuer that one names once the set is applied, by the names of the issuers.
func (a *Applier) usersOfIssuers(ctx context.Context, differences, deletions []*Difference) (map[string]string, error) {
	inUse, settled := map[string]string{}, map[string]bool{}
	for _, d := range deletions {
		settled[d.GatewayID] = true
	}
	for _, d := range differences {
		if d.file.config.Gateway.Issuers.Present { // they are checked
			settled[d.GatewayID] = true
		}
	}
	all, err := a.gateways(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if g := &all[i]; g.Issuers != nil && !settled[g.GatewayID] {
			for _, name := range *g.Issuers {
				inUse[name] = label(g.Name, g.GatewayID)
			}
		}
	}
	return inUse, nil
}

// prune sets the deletions of the issuers that the file does not name.
func (s *issuerSet) prune(ctx context.Context, a *Applier, differences, deletions []*Difference) error {
	if len(s.others) == 0 {
		return nil
	}
	inUse, err := a.usersOfIssuers(ctx, differences, deletions)
	if err != nil {
		return err
	}
	slices.SortFunc(s.others, func(x, y client.Issuer) int { return cmp.Compare(x.Name, y.Name) })
	for i := range s.others {
		found, etag, err := a.cfg.Client.IssuerWithETag(ctx, s.others[i].IssuerID)
		if client.IsNotFound(err) {
			continue // it was deleted meanwhile
		}
		if err != nil {
			return err
		}
		d := &Difference{
			Kind: Issuer, Action: Delete, IssuerID: found.IssuerID, Name: found.Name, Gateway: []client.SettingChange{}, Push: noRoutes(), etag: etag, issuer: &issuerStep{},
		}
		if user := inUse[found.Name]; user != "" {
			return fault.New(fault.Conflict, "--prune would delete %s, but %s names it: take it out of its issuers first, or name the issuer in the file", d.Label(), user)
		}
		s.deleted = append(s.deleted, d)
	}
	return a.mayDelete(ctx, s.deleted)
}

// exportIssuers returns the file of all issuers by name, and what is not in it. It is nil if the key may not read issuers,
// or if the server is of a version without issuers.
func (a *Applier) exportIssuers(ctx context.Context) (*Exported, []string, error) {
	all, err := a.issuers(ctx)
	var refused *client.Error
	switch {
	case client.IsNotFound(err):
		return nil, nil, nil
	case errors.As(err, &refused) && refused.Status == http.StatusForbidden:
		return nil, []string{"issuers are not exported: " + refused.Message}, nil
	case err != nil:
		return nil, nil, fmt.Errorf("export the issuers: %w", err)
	}
	slices.SortFunc(all, func(x, y client.Issuer) int { return cmp.Compare(x.Name, y.Name) })
	file := &issuer.File{}
	for i := range all {
		one, err := fileIssuer(&all[i])
		if err != nil {
			return nil, nil, err
		}
		file.Issuers = append(file.Issuers, *one)
	}
	return &Exported{Kind: Issuer, Issuers: len(all), content: file.Encode()}, nil, nil
}
