package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/plan"
)

// gatewayEdit is a gateway.Patch whose settings were each checked by themselves.
type gatewayEdit struct {
	reach []func(*gateway.Gateway) error // the settings that say whom the upstream's secrets are sent to
	set   []func(*gateway.Gateway) error // all others, in this order, after those of reach

	upstreams []*upstreamEdit // of the list of upstreams
	hasList   bool            // it is given, so upstreams that are not in it are removed
	hasSplit  bool            // the split is given
	moved     moved           // into the list

	isDefault     Optional[bool]
	newClientPair bool                                // the client certificate or its key is set
	given         struct{ headers, key, health bool } // whether the patch has these; health is the headers of checks
	newHeaders    bool                                // all headers are given, and none is ***
	newKey        bool                                // the client key is given, and not ***
	newHealth     bool                                // all headers of checks are given, and none is ***
	ofUpstream    bool                                // the patch is that of an upstream
	fromFile      bool                                // the patch comes from a configuration file, where *** stands for a secret that the gateway has
	open          func(sealed []byte) ([]byte, error)
}

// put makes e set something that cannot fail.
func (e *gatewayEdit) put(set func(*gateway.Gateway)) { e.set = append(e.set, sure(set)) }

// sure returns a change that cannot fail.
func sure(set func(*gateway.Gateway)) func(*gateway.Gateway) error {
	return func(g *gateway.Gateway) error {
		set(g)
		return nil
	}
}

// readPatch checks each setting by itself, and that the account may have the hostname. In a file, ***
// stands for a secret that the gateway has. A creation applies a patch to the defaults.
func (s *Service) readPatch(actor *Actor, p *gateway.Patch, fromFile bool) (*gatewayEdit, error) {
	p, moved := withDefaultEntry(p)
	e := s.newEdit(p, fromFile)
	e.moved, e.hasSplit = moved, p.Split.Present
	var problems []error
	for _, setting := range gateway.Settings() {
		problems = append(problems, s.putSetting(e, actor, p, &setting))
	}
	return e, fault.Join(append(problems, s.putUpstreams(e, p))...)
}

// newEdit returns an edit without settings for p.
func (s *Service) newEdit(p *gateway.Patch, fromFile bool) *gatewayEdit {
	e := &gatewayEdit{
		open: s.cfg.Sealer.Open, fromFile: fromFile,
		newClientPair: p.UpstreamClientCertificate.Present || p.UpstreamClientKey.Present,
		newHeaders:    p.UpstreamHeaders.Present, newKey: p.UpstreamClientKey.Present && (!fromFile || p.UpstreamClientKey.Value != gateway.Masked),
	}
	e.given.headers, e.given.key = p.UpstreamHeaders.Present, p.UpstreamClientKey.Present
	h := &p.Health
	e.given.health = h.Present && (h.Null || h.Value.Headers != nil || !h.Value.TakesHeaders())
	e.newHeaders, e.newHealth = e.newHeaders && e.allNew(p.UpstreamHeaders.Value), e.given.health && e.allNew(h.Value.Headers)
	return e
}

// allNew reports whether all headers have values of their own.
func (e *gatewayEdit) allNew(headers map[string]string) bool {
	for _, value := range headers {
		if e.fromFile && value == gateway.Masked {
			return false
		}
	}
	return true
}

// readPatchOf is readPatch for a patch that a call gives. The call may give the default plan by its identifier instead of its
// name. readPatchOf also checks that the account has that plan, and the keys of a split: everything that is wrong is said at once. The transaction
// finds the plan again.
func (s *Service) readPatchOf(ctx context.Context, actor *Actor, planID Optional[string], p *gateway.Patch, fromFile bool) (*gatewayEdit, error) {
	badKeys := fault.Prefixed("split", s.findSplitKeys(ctx, actor, &p.Split.Value))
	choice := PlanChoice{ID: planID, Name: p.DefaultPlan}
	if !choice.given() {
		e, err := s.readPatch(actor, p, fromFile)
		return e, fault.Join(err, badKeys)
	}
	found, bad := read(ctx, s, actor, func(tx ReadTx) (*plan.Plan, error) { return choice.find(ctx, tx, actor, "default_") })
	if planID.Present && bad == nil {
		if p.DefaultPlan = (gateway.Member[string]{Present: true, Null: found == nil}); found != nil {
			p.DefaultPlan.Value = found.Name
		}
	}
	e, err := s.readPatch(actor, p, fromFile)
	return e, fault.Join(err, bad, badKeys)
}

// putSetting makes e set one setting, if p has it.
func (s *Service) putSetting(e *gatewayEdit, actor *Actor, p *gateway.Patch, setting *gateway.Setting) error {
	switch setting.Name {
	case "hostname":
		return s.putHostname(e, actor, p.Hostname)
	case "acme":
		return s.putACME(e, p.ACME)
	case "default":
		return putDefault(e, actor, p.Default)
	case "upstream_headers", "headers":
		return s.putHeaders(e, p.UpstreamHeaders)
	case "health":
		return s.putHealth(e, setting, p)
	case "upstream_client_key", "client_key":
		return s.putClientKey(e, p.UpstreamClientKey)
	}
	change, err := setting.Change(p)
	switch {
	case change == nil:
	case setting.Name == "upstream_url":
		e.reach = append(e.reach, putURL(change, p.UpstreamURL.Value))
	case saysWhere(setting.Name):
		e.reach = append(e.reach, sure(change))
	default:
		e.put(change)
	}
	return err
}

// saysWhere reports whether a setting of a gateway or of an upstream says whom the upstream's secrets are sent to.
func saysWhere(name string) bool {
	switch name {
	case "upstream_url", "upstream_host", "upstream_ca", "targets", "host", "ca":
		return true
	}
	return false
}

// putURL returns a change of upstream_url, which is that of the only target. With several targets it is fault.Conflict.
func putURL(change func(*gateway.Gateway), url string) func(*gateway.Gateway) error {
	return func(g *gateway.Gateway) error {
		if u := &g.Upstream; u.Several() && url != u.URL {
			return &fault.Error{
				Code: fault.Conflict, Field: "upstream_url",
				Message: fmt.Sprintf("the upstream %s has %d targets, of which this is the first: change the targets of the upstream instead", gateway.DefaultUpstream, len(u.Targets)),
			}
		}
		change(g)
		if t := g.Upstream.AllTargets()[0]; t.Resolve == gateway.ResolveSRV {
			return urlOfGateway(t.Check())
		}
		return nil
	}
}

// urlOfGateway returns an error of the URL of a target as one of upstream_url.
func urlOfGateway(err error) error {
	problems := slices.Clone(fault.ProblemsOf(err))
	for i := range problems {
		problems[i].Field = "upstream_url"
	}
	if problems == nil {
		return err
	}
	return fault.InvalidAll(problems, fault.LeftOut(err))
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
	before := *g
	if err := e.applySettings(g); err != nil {
		return err
	}
	err := fault.Join(checkACME(g), e.applyDefault(g), e.checkUpstream(&g.Upstream), e.applyUpstreams(g))
	if err == nil {
		err = fault.Join(e.checkSplit(g), checkHeaderRules(g))
	}
	if err == nil && e.hasList {
		err = inField(upstreamsField, g.CheckUpstreamBytes(&before))
	}
	return err
}

// applySettings applies the settings to g, and then decides about the secrets that its upstream has.
func (e *gatewayEdit) applySettings(g *gateway.Gateway) error {
	before := g.Upstream
	var problems []error
	for _, set := range e.reach {
		problems = append(problems, set(g))
	}
	if err := fault.Join(problems...); err != nil {
		return err
	}
	problems = append(problems, e.guardSecrets(&before, &g.Upstream))
	for _, set := range e.set {
		problems = append(problems, set(g))
	}
	u := &g.Upstream
	u.OfOrigin = u.OfOrigin && (len(u.Headers) > 0 && !e.newHeaders || len(u.TLS.ClientKey) > 0 && !e.newKey || len(u.Health.SealedHeaders()) > 0 && !e.newHealth)
	return fault.Join(problems...)
}
