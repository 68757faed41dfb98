package control

import (
	"cmp"
	"context"
	"slices"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/snapshot"
)

// NamedUpstream is an upstream of a gateway.
type NamedUpstream struct {
	Gateway *gateway.Gateway // its Version is that of the upstream
	*gateway.Upstream
	Created bool   // by the call
	Target  string // URL of the target that the call has changed or removed
	// Status is the state of the targets at present. Only Upstream sets it, and only if Config.Targets is set.
	Status *UpstreamStatus
}

// Upstreams lists the upstreams of a gateway, by their names, the default one first. p.After is a name.
func (s *Service) Upstreams(ctx context.Context, actor *Actor, gatewayID string, p Page) ([]NamedUpstream, error) {
	return readOf(ctx, s, actor, gatewayID, func(_ ReadTx, g *gateway.Gateway) (list []NamedUpstream, err error) {
		after := p.After == ""
		for u := range g.AllUpstreams {
			if after && len(list) < p.Limit {
				list = append(list, NamedUpstream{Gateway: g, Upstream: u})
			}
			after = after || u.FullName() == p.After
		}
		return list, nil
	})
}

// Upstream returns one upstream, with the state of its targets.
func (s *Service) Upstream(ctx context.Context, actor *Actor, gatewayID, name string) (*NamedUpstream, error) {
	u, err := readOf(ctx, s, actor, gatewayID, func(_ ReadTx, g *gateway.Gateway) (*NamedUpstream, error) {
		return upstreamOf(g, name)
	})
	if err == nil {
		u.Status, err = s.upstreamStatus(ctx, u)
	}
	return u, err
}

// upstreamOf returns an upstream of g. If there is none, the error is fault.NotFound.
func upstreamOf(g *gateway.Gateway, name string) (*NamedUpstream, error) {
	u := g.UpstreamNamed(name)
	if u == nil || name == "" {
		return nil, fault.New(fault.NotFound, "the gateway has no upstream with the name %.64q: list its upstreams", name)
	}
	return &NamedUpstream{Gateway: g, Upstream: u}, nil
}

// PutUpstream creates the upstream p.Name, or replaces it. What p does not have gets its default, except for the targets
// of an upstream that exists, which stay.
func (s *Service) PutUpstream(ctx context.Context, actor *Actor, gatewayID string, p gateway.UpstreamPatch, m Match) (*NamedUpstream, error) {
	edit, err := s.readUpstream(&p, false)
	if err := fault.Join(gateway.CheckUpstreamName(p.Name), err); err != nil {
		return nil, err
	}
	edit.replaces = true
	if err := s.mayProtectOf(ctx, actor, gatewayID, &p, edit); err != nil {
		return nil, err
	}
	return s.changeUpstream(ctx, actor, gatewayID, p.Name, m, func(_ *work, g *gateway.Gateway) (upstreamChange, error) {
		c := upstreamChange{action: audit.UpstreamUpdate, change: edit.apply}
		if g.UpstreamNamed(p.Name) == nil {
			c.action = audit.UpstreamCreate
			if len(g.Others)+1 >= gateway.MaxUpstreams {
				c.refused = fault.New(fault.Conflict, "the gateway has %d upstreams, which is the most that it may have: delete one first", gateway.MaxUpstreams)
				full := *g
				return c, edit.apply(&full) // what is wrong with the upstream comes first
			}
		}
		return c, nil
	})
}

// PatchUpstream changes the settings in p of the upstream p.Name.
func (s *Service) PatchUpstream(ctx context.Context, actor *Actor, gatewayID string, p gateway.UpstreamPatch, m Match) (*NamedUpstream, error) {
	edit, err := s.readUpstream(&p, false)
	if err != nil {
		return nil, err
	}
	if err := s.mayProtectOf(ctx, actor, gatewayID, &p, edit); err != nil {
		return nil, err
	}
	return s.changeUpstream(ctx, actor, gatewayID, p.Name, m, func(_ *work, g *gateway.Gateway) (c upstreamChange, err error) {
		_, err = upstreamOf(g, p.Name)
		return upstreamChange{action: audit.UpstreamUpdate, change: edit.apply}, err
	})
}

// DeleteUpstream deletes an upstream, and returns it as it was. The default one, and one that a route or a split names, is
// fault.Conflict.
func (s *Service) DeleteUpstream(ctx context.Context, actor *Actor, gatewayID, name string, m Match) (*NamedUpstream, error) {
	check := func(tx ReadTx) error { return namedByRoute(ctx, tx, gatewayID, name) }
	return beside(ctx, s, actor, gatewayID, check, func(w *work, bad func() (error, error)) (*NamedUpstream, error) {
		before, err := s.gateway(ctx, w, actor, gatewayID)
		if err != nil {
			return nil, err
		}
		gone, err := upstreamOf(before, name)
		if err != nil {
			return nil, err
		}
		if err := require(m, before.Version); err != nil {
			return nil, err
		}
		if gone.Name == "" {
			return nil, fault.New(fault.Conflict, "the upstream %s cannot be deleted: routes that name no upstream use it", gateway.DefaultUpstream)
		}
		if before.Requests.Split.NamesUpstream(name) {
			return nil, fault.New(fault.Conflict, "the split of the gateway names the upstream %s: change the split first", name)
		}
		if c := before.Canary; c != nil && c.Upstream == name {
			return nil, fault.New(fault.Conflict, "the canary %s sends requests to the upstream %s: promote or abort it first", c.ID, name)
		}
		if named, err := bad(); err != nil || named != nil {
			return nil, cmp.Or(err, asConflict(named))
		}
		g := *before
		g.RemoveUpstream(name)
		return gone, w.storeUpstreams(ctx, audit.UpstreamDelete, before, &g)
	})
}

// namedByRoute returns a validation error that says which route of the gateway names an upstream, or nil if none does.
func namedByRoute(ctx context.Context, tx RouteReader, gatewayID, name string) error {
	table, err := tx.RouteTable(ctx, gatewayID)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(table, func(r gateway.Route) bool { return r.Upstream == name || r.Split.NamesUpstream(name) })
	if at < 0 {
		return nil
	}
	if r := &table[at]; r.Upstream != name {
		return fault.Invalid("upstream", "the split of the route %s (%s) names the upstream: change that split and all others that name it first", r.Path, r.ID)
	}
	return fault.Invalid("upstream", "the route %s (%s) names the upstream: give that route and all others that name it another one first", table[at].Path, table[at].ID)
}

// asConflict returns a validation error as a fault.Conflict.
func asConflict(err error) error {
	if err == nil {
		return nil
	}
	return fault.New(fault.Conflict, "%s", fault.MessageOf(err))
}

// NewTarget is a target that is added to an upstream. With it come the secrets of the upstream, if they are not kept.
type NewTarget struct {
	gateway.Target
	Headers       Optional[map[string]string] // replaced as a whole
	ClientKey     Optional[string]
	HealthHeaders Optional[map[string]string] // of checks; replaced as a whole
}

// AddTarget adds a target to an upstream. If the upstream has it already, or has the most targets, the error is
// fault.Conflict.
func (s *Service) AddTarget(ctx context.Context, actor *Actor, gatewayID, name string, in NewTarget, m Match) (*NamedUpstream, error) {
	p := gateway.UpstreamPatch{Name: name}
	p.UpstreamHeaders, p.UpstreamClientKey = in.Headers, in.ClientKey
	edit, err := s.readUpstream(&p, false)
	edit.given.health, edit.newHealth = in.HealthHeaders.Present, in.HealthHeaders.Present
	if err := fault.Join(in.Check(), err, s.putHealthHeaders(&edit.gatewayEdit, in.HealthHeaders)); err != nil {
		return nil, err
	}
	edit.reach = append(edit.reach, sure(func(g *gateway.Gateway) {
		g.Upstream.SetTargets(append(slices.Clone(g.Upstream.AllTargets()), in.Target))
	}))
	return s.changeUpstream(ctx, actor, gatewayID, name, m, func(_ *work, g *gateway.Gateway) (upstreamChange, error) {
		u, err := upstreamOf(g, name)
		if err != nil {
			return upstreamChange{}, err
		}
		c := upstreamChange{action: audit.TargetAdd, change: edit.apply}
		all := u.AllTargets()
		switch {
		case schemeOf(in.URL) != schemeOf(all[0].URL):
			return c, fault.Invalid("url", "must start with %s:// as the other targets do: the targets of an upstream have one scheme", schemeOf(all[0].URL))
		case u.FindTarget(in.URL) >= 0:
			c.refused = fault.New(fault.Conflict, "the upstream has this target already: change it, or give another URL")
		case len(all) >= gateway.MaxTargets:
			c.refused = fault.New(fault.Conflict, "the upstream has %d targets, which is the most that it may have: remove one first", gateway.MaxTargets)
		}
		return c, nil
	})
}

// schemeOf returns the scheme of a valid upstream URL.
func schemeOf(url string) string {
	u, err := gateway.ParseUpstreamURL(url)
	if err != nil {
		return ""
	}
	return u.Scheme
}

// TargetPatch is what a change of a target may have. null restores the default.
type TargetPatch struct {
	Weight  Optional[int]
	Backup  Optional[bool]
	Drain   Optional[bool]
	Resolve Optional[gateway.Resolve]
	// Awaited means that AwaitDrained follows: after the change, the target must drain.
	Awaited bool
}

// PatchTarget changes a target of an upstream.
func (s *Service) PatchTarget(ctx context.Context, actor *Actor, gatewayID, name, url string, p TargetPatch, m Match) (*NamedUpstream, error) {
	var badWeight, badResolve error
	if p.Weight.Present && !p.Weight.Null {
		badWeight = gateway.CheckTargetWeight(p.Weight.Value)
	}
	if p.Resolve.Present && !p.Resolve.Null {
		badResolve = gateway.CheckResolve(p.Resolve.Value)
	}
	if err := fault.Join(badWeight, badResolve); err != nil {
		return nil, err
	}
	return s.changeTargets(ctx, actor, gatewayID, name, url, m, func(all []gateway.Target, at int) ([]gateway.Target, audit.Action, error) {
		t, action := &all[at], audit.TargetUpdate
		if p.Drain.Value && !t.Drain {
			action = audit.TargetDrain
		}
		set(&t.Weight, p.Weight.Present, p.Weight.Value)
		set(&t.Backup, p.Backup.Present, p.Backup.Value)
		set(&t.Drain, p.Drain.Present, p.Drain.Value)
		set(&t.Resolve, p.Resolve.Present, p.Resolve.Value)
		if p.Awaited && !t.Drain {
			return all, action, fault.Invalid("drain", "waits until nothing is in flight at the target, which goes on to get requests: set drain to true in the body, or leave out ?drain")
		}
		return all, action, nil
	})
}

// DeleteTarget removes a target from an upstream. The last one is fault.Conflict.
func (s *Service) DeleteTarget(ctx context.Context, actor *Actor, gatewayID, name, url string, m Match) (*NamedUpstream, error) {
	return s.changeTargets(ctx, actor, gatewayID, name, url, m, func(all []gateway.Target, at int) ([]gateway.Target, audit.Action, error) {
		if len(all) == 1 {
			return all, audit.TargetDelete, fault.New(fault.Conflict, "this is the last target of the upstream, which needs one: add another one first, or delete the upstream")
		}
		return slices.Delete(all, at, at+1), audit.TargetDelete, nil
	})
}

// changeTargets changes the targets of an upstream, of which one has the URL. f gets a copy of them with its index, and
// returns what they become and what is recorded, or fault.Conflict or a validation error.
func (s *Service) changeTargets(ctx context.Context, actor *Actor, gatewayID, name, url string, m Match, f func(all []gateway.Target, at int) ([]gateway.Target, audit.Action, error)) (*NamedUpstream, error) {
	return s.changeUpstream(ctx, actor, gatewayID, name, m, func(_ *work, g *gateway.Gateway) (c upstreamChange, err error) {
		u, err := upstreamOf(g, name)
		if err != nil {
			return c, err
		}
		at, err := u.targetAt(url)
		if err != nil {
			return c, err
		}
		all, action, refused := f(slices.Clone(u.AllTargets()), at)
		if fault.CodeOf(refused) == fault.ValidationFailed {
			return c, refused
		}
		edit := &upstreamEdit{name: name}
		edit.reach = append(edit.reach, sure(func(g *gateway.Gateway) { g.Upstream.SetTargets(all) }))
		return upstreamChange{action: action, change: edit.apply, refused: refused, target: u.AllTargets()[at].URL}, nil
	})
}

// upstreamChange is a change of an upstream.
type upstreamChange struct {
	action  audit.Action
	change  func(*gateway.Gateway) error
	refused error  // fault.Conflict, if the ETag matches
	target  string // see NamedUpstream
}

// changeUpstream changes an upstream of a gateway as read says.
func (s *Service) changeUpstream(ctx context.Context, actor *Actor, gatewayID, name string, m Match, read func(w *work, g *gateway.Gateway) (upstreamChange, error)) (*NamedUpstream, error) {
	unlock, err := s.lockTable(ctx, actor, gatewayID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return inTx(ctx, s, actor, func(w *work) (*NamedUpstream, error) {
		before, err := s.gateway(ctx, w, actor, gatewayID)
		if err != nil {
			return nil, err
		}
		c, err := read(w, before)
		if err != nil {
			return nil, err
		}
		g := *before
		if c.refused == nil {
			if err = c.change(&g); err == nil {
				err = checkHeaderRules(&g)
			}
		}
		if err != nil {
			return nil, err
		}
		if err := cmp.Or(require(m, before.Version), c.refused); err != nil {
			return nil, err
		}
		if err := w.storeUpstreams(ctx, c.action, before, &g); err != nil {
			return nil, err
		}
		return &NamedUpstream{Gateway: &g, Upstream: g.UpstreamNamed(name), Created: c.action == audit.UpstreamCreate, Target: c.target}, nil
	})
}

// storeUpstreams stores g, whose upstreams differ from those of before, if a user can see a difference.
func (w *work) storeUpstreams(ctx context.Context, a audit.Action, before, g *gateway.Gateway) error {
	diff := gatewayDiff(before, g)
	if len(diff) == 0 {
		return nil
	}
	if err := w.roomForUpstreams(ctx, before, g); err != nil {
		return err
	}
	if err := w.mayGrow(ctx); err != nil {
		return err
	}
	g.Version = before.Version + 1
	if err := w.UpdateGateway(ctx, g); err != nil {
		return err
	}
	if err := w.audit(ctx, a, g.ID, g.ID, diff); err != nil {
		return err
	}
	if err := w.settingsChanged(ctx, g); err != nil {
		return err
	}
	switch a {
	case audit.TargetAdd, audit.TargetUpdate, audit.TargetDrain, audit.TargetDelete: // a deployment does not make it another service
		return nil
	}
	return w.canaryMeetsSettings(ctx, before, g)
}

// settingsChanged appends an entry about the settings of a gateway to the change log.
func (w *work) settingsChanged(ctx context.Context, g *gateway.Gateway) error {
	if g.NeedsUpstreams() || g.Requests.Restricts() {
		return w.changed(ctx, snapshot.UpstreamChange, g.ID)
	}
	return w.changed(ctx, snapshot.SettingsChange, g.ID)
}

// gatewayChanged appends entries about a gateway and its routes to the change log.
func (w *work) gatewayChanged(ctx context.Context, g *gateway.Gateway) error {
	if g.NeedsUpstreams() || g.Requests.Restricts() {
		if err := w.changed(ctx, snapshot.UpstreamChange, g.ID); err != nil {
			return err
		}
	}
	return w.changed(ctx, snapshot.GatewayChange, g.ID)
}

// checkUpstreamOf checks that g has the upstreams that a route and its split name. The error is a validation error of the
// fields "upstream" and "split".
func checkUpstreamOf(g *gateway.Gateway, name string, split gateway.Split) error {
	var bad error
	if g.UpstreamNamed(name) == nil {
		bad = unknownUpstream("upstream", name)
	}
	return fault.Join(bad, fault.Prefixed("split", g.CheckSplit(split)))
}

func unknownUpstream(field, name string) error {
	return fault.Invalid(field, "the gateway has no upstream with the name %s: create it first, or name another one", name)
}
