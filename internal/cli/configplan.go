package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// action is what applying files does to a gateway.
type action string

const (
	createGateway action = "create"
	updateGateway action = "update"
	deleteGateway action = "delete"
	keepGateway   action = "none"
)

// planned is a gateway with what applying files does, or has done, to it.
type planned struct {
	difference
	file *configFile // nil for a gateway that is deleted
	etag string      // of the gateway; "" if it does not exist yet
}

// prepare reads and validates the files, finds their gateways, and asks the server what would
// change. It prints what is wrong with all files. Nothing is changed.
func (o *configRun) prepare(c *cobra.Command, args []string) error {
	name, err := fileArgument(args)
	if err != nil {
		return err
	}
	sets, err := o.readConfigs([]string{name})
	if err != nil {
		return err
	}
	o.set = sets[0]
	switch {
	case o.set.dir != "" && o.gateway != "":
		return usagef("--gateway cannot be used with a directory: its files name their gateways")
	case o.set.dir == "" && o.prune:
		return usagef("--prune needs a directory: a gateway is deleted if no file of the directory names it")
	}
	if o.api, err = o.connect(); err != nil {
		return err
	}
	all, err := o.findGateways()
	if err != nil {
		return err
	}
	if err := o.order(all); err != nil {
		return err
	}
	if err := o.planFiles(c.Context()); err != nil || !o.prune {
		return err
	}
	return o.planDeletions(c.Context(), all)
}

// findGateways plans an update for each file whose gateway exists, and a creation for the others.
// It returns the gateways of the account if it had to list them.
func (o *configRun) findGateways() (all []client.Gateway, err error) {
	if f := o.set.files[0]; o.set.dir == "" && (o.gateway != "" || !f.config.Gateway.Name.Present) {
		id, err := o.gatewayID(o.api, o.gateway)
		o.plan = []*planned{newPlanned(f, &client.Gateway{GatewayID: id})}
		return nil, err
	}
	if all, err = o.allGateways(o.api); err != nil {
		return nil, err
	}
	byName := map[string][]match{}
	for i := range all {
		byName[all[i].Name] = append(byName[all[i].Name], gatewayMatch(&all[i]))
	}
	f := &failures{app: o.app, files: len(o.set.files)}
	for _, file := range o.set.files {
		name := file.config.Gateway.Name.Value
		found := byName[name]
		if len(found) == 0 {
			o.plan = append(o.plan, newPlanned(file, nil))
			continue
		}
		id, err := only("gateway", name, found, "")
		if err != nil {
			f.add(file.documentFile, err)
			continue
		}
		o.plan = append(o.plan, newPlanned(file, &client.Gateway{GatewayID: id, Name: name}))
	}
	return all, f.err()
}

// allGateways lists the gateways of the account.
func (a *app) allGateways(api *client.Client) (all []client.Gateway, err error) {
	for g, err := range api.Gateways(a.Context, client.ListOptions{}) {
		if err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	return all, nil
}

// newPlanned returns the plan for a file. g is nil if its gateway does not exist yet.
func newPlanned(f *configFile, g *client.Gateway) *planned {
	p := &planned{file: f}
	p.File, p.Action, p.Name = f.name, createGateway, f.config.Gateway.Name.Value
	if g != nil {
		p.Action, p.GatewayID, p.Name = updateGateway, g.GatewayID, g.Name
	}
	return p
}

// planFiles asks the server what each file would change.
func (o *configRun) planFiles(ctx context.Context) error {
	f := &failures{app: o.app, files: len(o.plan)}
	for _, p := range o.plan {
		err := errChanged(p, o.look(ctx, p))
		if err != nil && ends(err) {
			return o.about(p, err)
		}
		if err != nil {
			f.add(p.file.documentFile, err)
		}
	}
	return f.err()
}

// about names the file in an error, if there are several.
func (o *configRun) about(p *planned, err error) error {
	var printed *mistakesError
	if o.set.dir == "" || errors.As(err, &printed) {
		return err
	}
	lines := messages(err)
	return &mistakesError{p.stepName() + ": " + strings.Join(lines, "\n"), len(lines), err}
}

// look asks the server what p would change. A gateway that does not change takes one call.
func (o *configRun) look(ctx context.Context, p *planned) error {
	if p.Action == createGateway {
		return o.lookNew(ctx, p)
	}
	if p.Name != "" {
		if err := o.tryPush(ctx, p); err != nil || p.Action == keepGateway {
			return err
		}
	}
	_, err := inTurn(ctx, o.app, func() (_ *client.Gateway, err error) {
		g, etag, err := o.api.GatewayWithETag(ctx, p.GatewayID)
		if err == nil {
			p.Name, p.etag = g.Name, etag
		}
		return g, err
	})
	if err != nil {
		return err
	}
	return o.tryPush(ctx, p, client.IfMatch(p.etag))
}

// tryPush has the server try the push of p.
func (o *configRun) tryPush(ctx context.Context, p *planned, options ...client.Option) error {
	push, err := inTurn(ctx, o.app, func() (*client.Push, error) {
		return o.api.PushConfig(ctx, p.GatewayID, p.file.content, true, effectOptions(o.effect, options...)...)
	})
	if err != nil {
		return err
	}
	p.Push, p.Gateway = push, settingsOf(push)
	if p.Action = updateGateway; !p.differs() {
		p.Action = keepGateway
	}
	p.hide()
	return nil
}

// lookNew asks the server what creating p's gateway would create.
func (o *configRun) lookNew(ctx context.Context, p *planned) error {
	section := &p.file.config.Gateway
	if !section.UpstreamURL.Present {
		return p.file.at("gateway").Invalid("gateway.upstream_url", "is missing: there is no gateway %s, and a new one needs it", section.Name.Value)
	}
	push, err := inTurn(ctx, o.app, func() (*client.Push, error) { return o.api.PlanGatewayFromConfig(ctx, p.file.content) })
	if err != nil {
		return err
	}
	p.Push, p.Gateway = push, settingsOf(push)
	p.hide()
	return nil
}

// planDeletions plans the deletion of each gateway that was applied from a file before and is not
// in the plan. all are the gateways of the account.
func (o *configRun) planDeletions(ctx context.Context, all []client.Gateway) error {
	kept := map[string]bool{}
	for _, p := range o.plan {
		kept[p.GatewayID] = true
	}
	first := len(o.plan)
	for i := range all {
		g := &all[i]
		if kept[g.GatewayID] || g.Revision == nil {
			continue
		}
		p, err := inTurn(ctx, o.app, func() (*planned, error) { return o.planDeletion(ctx, g.GatewayID) })
		if client.IsNotFound(err) {
			continue // it was deleted meanwhile
		}
		if err != nil {
			return fmt.Errorf("find out whether %s was applied from a file: %w", gatewayLabel(g), err)
		}
		if p != nil {
			o.plan = append(o.plan, p)
		}
	}
	slices.SortStableFunc(o.plan[first:], func(x, y *planned) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.GatewayID, y.GatewayID))
	})
	return o.mayDelete(ctx, o.plan[first:])
}

// planDeletion returns the plan for the deletion of a gateway, or nil if it is not to be deleted.
func (o *configRun) planDeletion(ctx context.Context, id string) (*planned, error) {
	revision, err := o.fromFile(ctx, id)
	if err != nil || revision == 0 {
		return nil, err
	}
	g, etag, err := o.api.GatewayWithETag(ctx, id)
	if err != nil {
		return nil, err
	}
	if g.Revision == nil || *g.Revision != revision {
		return nil, fault.New(fault.PreconditionFailed, "%s was changed meanwhile: run the command again", gatewayLabel(g))
	}
	p := &planned{etag: etag}
	p.Action, p.GatewayID, p.Name, p.Gateway = deleteGateway, id, g.Name, []client.SettingChange{}
	p.Push = noChanges()
	return p, nil
}

// fromFile returns the number of the newest revision of a gateway that was applied from a file, and 0
// for any other. Its newest revision, rollbacks left out, is a configuration file that this command
// pushed, and it has no repository. A gateway whose routes came from an OpenAPI document or from a
// repository since then is not one.
func (o *configRun) fromFile(ctx context.Context, id string) (newest int64, err error) {
	for r, err := range o.api.Revisions(ctx, id, client.ListOptions{PageSize: 10}) {
		if err != nil {
			return 0, err
		}
		newest = max(newest, r.Number)
		if r.Source == client.RevisionSource(gateway.Rollback) {
			continue
		}
		if r.Source != client.RevisionSource(gateway.CLI) || r.Kind != client.RevisionKind(gateway.ConfigDocument) {
			return 0, nil
		}
		_, err := o.api.Do(ctx, &client.Request{Method: http.MethodGet, Path: "/v1/gateways/" + id + "/repository"})
		if client.IsNotFound(err) {
			return newest, nil
		}
		return 0, err
	}
	return 0, nil
}

// mayDelete checks that the key may delete gateways, before anything is applied.
func (o *configRun) mayDelete(ctx context.Context, list []*planned) error {
	if len(list) == 0 {
		return nil
	}
	account, err := inTurn(ctx, o.app, func() (*client.CallingAccount, error) { return o.api.Account(ctx) })
	if err != nil {
		return err
	}
	scopes, err := apikey.ParseScopes(account.Key.Scope)
	if err != nil {
		return nil //nolint:nilerr // a newer server has other scopes, and checks them itself
	}
	for _, p := range list {
		if !scopes.Allows(http.MethodDelete, "/gateways/"+p.GatewayID) {
			return fault.Denied("--prune would delete %s, for which a key needs the scope admin or admin:gateways; this one has %s", p.label(), account.Key.Scope)
		}
	}
	return nil
}

// anyDifferent reports whether the plan changes anything.
func (o *configRun) anyDifferent() bool {
	return slices.ContainsFunc(o.plan, func(p *planned) bool { return p.Action != keepGateway })
}

// errChanged is the error of a file whose gateway was changed after the differences were shown.
func errChanged(p *planned, err error) error {
	var refused *client.Error
	if errors.As(err, &refused) && refused.Status == http.StatusPreconditionFailed {
		return fault.New(fault.PreconditionFailed, "gateway %s was changed meanwhile: run the command again", withID(p.Name, p.GatewayID))
	}
	return err
}
