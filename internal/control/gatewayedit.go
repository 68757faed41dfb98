package control

import (
	"context"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/plan"
)

// gatewayEdit is a gateway.Patch whose settings were each checked by themselves.
type gatewayEdit struct {
	set []func(*gateway.Gateway) error // in this order

	isDefault     Optional[bool]
	newClientPair bool // the client certificate or its key is set
	fromFile      bool // the patch comes from a configuration file, where *** stands for a secret that the gateway has
	open          func(sealed []byte) ([]byte, error)
}

// put makes e set something that cannot fail.
func (e *gatewayEdit) put(set func(*gateway.Gateway)) {
	e.set = append(e.set, func(g *gateway.Gateway) error {
		set(g)
		return nil
	})
}

// readPatch checks each setting by itself, and that the account may have the hostname. In a file, ***
// stands for a secret that the gateway has. A creation applies a patch to the defaults.
func (s *Service) readPatch(actor *Actor, p *gateway.Patch, fromFile bool) (*gatewayEdit, error) {
	e := &gatewayEdit{
		open: s.cfg.Sealer.Open, fromFile: fromFile,
		newClientPair: p.UpstreamClientCertificate.Present || p.UpstreamClientKey.Present,
	}
	var problems []error
	for _, setting := range gateway.Settings() {
		problems = append(problems, s.putSetting(e, actor, p, &setting))
	}
	return e, fault.Join(problems...)
}

// readPatchOf is readPatch for a patch that a call gives. The call may give the default plan by its identifier instead of its
// name. readPatchOf also checks that the account has that plan: everything that is wrong is said at once. The transaction
// finds the plan again.
func (s *Service) readPatchOf(ctx context.Context, actor *Actor, planID Optional[string], p *gateway.Patch, fromFile bool) (*gatewayEdit, error) {
	choice := PlanChoice{ID: planID, Name: p.DefaultPlan}
	if !choice.given() {
		return s.readPatch(actor, p, fromFile)
	}
	found, bad := read(ctx, s, actor, func(tx ReadTx) (*plan.Plan, error) { return choice.find(ctx, tx, actor, "default_") })
	if planID.Present && bad == nil {
		if p.DefaultPlan = (gateway.Member[string]{Present: true, Null: found == nil}); found != nil {
			p.DefaultPlan.Value = found.Name
		}
	}
	e, err := s.readPatch(actor, p, fromFile)
	return e, fault.Join(err, bad)
}

// putSetting makes e set one setting, if p has it.
func (s *Service) putSetting(e *gatewayEdit, actor *Actor, p *gateway.Patch, setting *gateway.Setting) error {
	switch setting.Name {
	case "hostname":
		return s.putHostname(e, actor, p.Hostname)
	case "default":
		return putDefault(e, actor, p.Default)
	case "upstream_headers":
		return s.putHeaders(e, p.UpstreamHeaders)
	case "upstream_client_key":
		return s.putClientKey(e, p.UpstreamClientKey)
	}
	change, err := setting.Change(p)
	if change != nil {
		e.put(change)
	}
	return err
}

func (s *Service) putHostname(e *gatewayEdit, actor *Actor, h Optional[string]) error {
	if !h.Present {
		return nil
	}
	name := "" // made from the gateway's identifier
	if !h.Null {
		var err error
		if name, err = gateway.ParseHostname(h.Value, s.cfg.GatewayDomain); err != nil {
			return err
		}
		if !actor.Account.MayUse(name) {
			return fault.Invalid("hostname", "this account may not use %s: ask the operator to allow it", name)
		}
	}
	e.put(func(g *gateway.Gateway) { g.Hostname, g.HostGiven = name, name != "" })
	return nil
}

// apply changes g and checks the settings that depend on each other. It replaces
// maps and slices and never changes them, so g may share them with another record.
func (e *gatewayEdit) apply(g *gateway.Gateway) error {
	var problems []error
	for _, set := range e.set {
		problems = append(problems, set(g))
	}
	if err := fault.Join(problems...); err != nil {
		return err
	}
	return fault.Join(e.applyDefault(g), e.checkUpstream(&g.Upstream))
}
