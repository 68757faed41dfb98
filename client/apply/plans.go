package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/plan"
)

// planSet is what applying a set does to plans. Gateways name plans, and limits of plans name gateways: so a plan comes
// before all gateways, without the limits of those that do not exist yet, and these limits come after the gateways. A
// plan that is in force is never without a limit of a gateway that exists.
type planSet struct {
	early   []*Difference // before the gateways: one for each plan of the file
	late    []*Difference // after the gateways
	deleted []*Difference // after everything else

	made   map[string]bool // the names of the plans that do not exist yet
	others []client.Plan   // that the file does not name
}

// planStep is how to carry out a difference of a plan.
type planStep struct {
	want     *plan.FilePlan
	limits   []client.PlanLimitInput // all limits after the step
	gateways []*Difference           // for each of limits the creation of its gateway; nil for one that exists
	inSet    []string                // the identifiers of the gateways in the set that limits name
	names    map[string]string       // of gateways, by their identifiers
	first    *Difference             // the step before this one; nil if this is the first
}

// comes reports whether a setting names a plan that does not exist yet.
func (s *planSet) comes(name gateway.Member[string]) bool {
	return name.Present && !name.Null && s.made[name.Value]
}

// comparePlans compares the plans of the account with the file of plans of a set. all are the gateways of the account.
func (a *Applier) comparePlans(ctx context.Context, set *Set, all []client.Gateway, gateways []*Difference) (*planSet, error) {
	s := &planSet{made: map[string]bool{}}
	if set.Plans == nil {
		return s, nil
	}
	present, err := a.plans(ctx)
	if err != nil {
		return nil, err
	}
	byName := map[string]*client.Plan{}
	for i := range present {
		byName[present[i].Name] = &present[i]
	}
	e := &Errors{Files: len(set.Files) + 1}
	known := newGatewayNames(all, gateways)
	for i := range set.Plans.plans.Plans {
		want := &set.Plans.plans.Plans[i]
		first, second, err := known.steps(set.Plans, i)
		if err != nil {
			e.add(set.Plans, err)
			continue
		}
		d := newPlanDifference(set.Plans, want, first)
		d.Warnings = known.unmatched(want)
		if err := a.lookAtPlan(ctx, d, byName[want.Name]); err != nil {
			return nil, err
		}
		if s.made[want.Name] = d.Action == Create; d.Action != Keep || second == nil {
			s.early = append(s.early, d)
		}
		if second != nil {
			later := newPlanDifference(set.Plans, want, second)
			later.Action, later.PlanID, later.plan.first = Update, d.PlanID, d
			later.Plan = limitChanges(viewsOf(first.limits, known.names), wantedLimits(want, nil))
			later.hide()
			s.late = append(s.late, later)
		}
		delete(byName, want.Name)
	}
	if set.Dir != "" {
		for i := range present {
			if byName[present[i].Name] != nil {
				s.others = append(s.others, present[i])
			}
		}
	}
	return s, e.err()
}

// plans lists the plans of the account, newest first.
func (a *Applier) plans(ctx context.Context) (all []client.Plan, err error) {
	for p, err := range a.cfg.Client.Plans(ctx, client.PlanFilter{}) {
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func newPlanDifference(f *File, want *plan.FilePlan, step *planStep) *Difference {
	return &Difference{
		file: f, File: f.Name, Kind: Plan, Action: Create, Name: want.Name, Gateway: []client.SettingChange{}, Push: noRoutes(), plan: step,
	}
}

// lookAtPlan sets what d changes. present is the plan in the list of all, or nil if there is none.
func (a *Applier) lookAtPlan(ctx context.Context, d *Difference, present *client.Plan) error {
	if present != nil {
		if d.PlanID, d.Action, d.Plan = present.PlanID, Keep, d.plan.changes(present); len(d.Plan) == 0 {
			return nil
		}
		// The list has no ETags.
		_, err := client.WhileBusy(ctx, a.cfg.Busy, func() (_ *client.Plan, err error) {
			present, d.etag, err = a.cfg.Client.PlanWithETag(ctx, present.PlanID)
			return present, err
		})
		if err != nil {
			return err
		}
		d.Action = Update
	}
	if d.Plan = d.plan.changes(present); d.Action == Update && len(d.Plan) == 0 {
		d.Action = Keep
	}
	d.hide()
	if d.Action == Update && a.cfg.Effect {
		return a.tryPlan(ctx, d)
	}
	return nil
}

// tryPlan sets the effect of the update of a plan.
func (a *Applier) tryPlan(ctx context.Context, d *Difference) error {
	tried, err := client.WhileBusy(ctx, a.cfg.Busy, func() (*client.Plan, error) {
		return a.cfg.Client.TryPlan(ctx, d.PlanID, d.patch(), client.IfMatch(d.etag), client.WithEffect())
	})
	if err == nil {
		d.PlanEffect = tried.Effect
	}
	return err
}

// planChanged returns an error if the update d would change something else now than when Compare returned it.
func (a *Applier) planChanged(ctx context.Context, d *Difference) error {
	if d.Late() {
		return nil // Apply compares it with the plan that the first step left
	}
	_, etag, err := a.cfg.Client.PlanWithETag(ctx, d.PlanID)
	if err == nil && etag != d.etag {
		err = changedMeanwhile(d)
	}
	return err
}

// changes returns what the step changes about a plan; nil stands for a plan that does not exist.
func (s *planStep) changes(p *client.Plan) (changes []client.SettingChange) {
	before := client.Plan{TimeZone: plan.DefaultZone, AnchorDay: plan.DefaultAnchor}
	if p != nil {
		before = *p
	}
	for _, field := range []client.SettingChange{
		{Field: "title", Before: textOrNil(before.Title), After: textOrNil(&s.want.Title)},
		{Field: "time_zone", Before: before.TimeZone, After: s.want.TimeZone},
		{Field: "anchor_day", Before: before.AnchorDay, After: int64(s.want.AnchorDay)},
	} {
		if field.Before != field.After {
			changes = append(changes, field)
		}
	}
	return append(changes, limitChanges(viewsOf(LimitInputs(before.Limits), s.names), wantedLimits(s.want, s.gateways))...)
}

func textOrNil(s *string) any {
	if s == nil || *s == "" {
		return nil
	}
	return *s
}

// gatewayNames finds the gateways of limits by their names.
type gatewayNames struct {
	byName map[string][]client.Gateway
	inSet  map[string]*Difference // the gateways that have a file in the set
	names  map[string]string      // by identifiers
}

func newGatewayNames(all []client.Gateway, differences []*Difference) *gatewayNames {
	n := &gatewayNames{byName: gatewaysByName(all), inSet: map[string]*Difference{}, names: map[string]string{}}
	for _, g := range all {
		n.names[g.GatewayID] = g.Name
	}
	for _, d := range differences {
		n.inSet[d.file.GatewayName()] = d
	}
	return n
}

// steps returns the first step of a plan, and the second, which is nil if the gateways of all limits exist.
func (n *gatewayNames) steps(f *File, index int) (first, second *planStep, err error) {
	want := &f.plans.Plans[index]
	first = &planStep{want: want, names: n.names, gateways: make([]*Difference, len(want.Limits))}
	var all []client.PlanLimitInput
	var problems document.Problems
	for i, name := range want.Gateways {
		l := PlanLimit(&want.Limits[i], "")
		d := n.inSet[name]
		switch found := n.byName[name]; {
		case name == "":
		case len(found) == 1:
			l.GatewayID = &found[0].GatewayID
			if d != nil {
				first.inSet = append(first.inSet, found[0].GatewayID)
			}
		case len(found) > 1:
			return nil, nil, &AmbiguousError{name, found}
		case d != nil:
			first.gateways[i] = d
		default:
			problems.Add(f.invalid(fmt.Sprintf("plans[%d].limits[%d].gateway", index, i), "there is no gateway %s: create it first, or give it a file in the directory", name))
		}
		if all = append(all, l); first.gateways[i] == nil {
			first.limits = append(first.limits, l)
		}
	}
	if len(first.limits) < len(all) {
		second = &planStep{want: want, names: n.names, limits: all, gateways: first.gateways, inSet: first.inSet}
	}
	return first, second, problems.Err()
}

// invalid returns a validation error with the position of a field of the file.
func (f *File) invalid(field, format string, args ...any) error {
	root, err := document.Parse(f.content)
	if err != nil { // it was parsed before
		return fault.Invalid(field, format, args...)
	}
	return document.WithPosition(fault.Invalid(field, format, args...), root, "")
}

// unmatched returns a warning for each path of a limit that no route in the file of its gateway matches. The server warns
// of gateways that have no file in the set.
func (n *gatewayNames) unmatched(want *plan.FilePlan) []string {
	warnings := []string{}
	for i := range want.Limits {
		d := n.inSet[want.Gateways[i]]
		if d == nil || want.Gateways[i] == "" {
			continue
		}
		for _, path := range want.Limits[i].Routes {
			one := plan.Limit{Routes: []string{path}}
			if !slices.ContainsFunc(d.file.config.Routes, func(r gateway.RouteSpec) bool { return one.Covers("", r.Path) }) {
				warnings = append(warnings, fmt.Sprintf("the gateway %s has no route %s in %s, so the limit %s of the plan %s does not apply to it", d.Name, path, d.File, want.Limits[i].Name, want.Name))
			}
		}
	}
	return warnings
}

// applyPlan carries out a difference of a plan.
func (a *Applier) applyPlan(ctx context.Context, d *Difference) error {
	changed, err := client.WhileBusy(ctx, a.cfg.Busy, func() (*client.Plan, error) {
		switch {
		case d.Action == Delete:
			return a.cfg.Client.DeletePlan(ctx, d.PlanID, client.IfMatch(d.etag))
		case d.Action == Create:
			return a.cfg.Client.CreatePlan(ctx, d.plan.creation())
		case d.Late():
			return a.addLateLimits(ctx, d)
		}
		return a.cfg.Client.UpdatePlan(ctx, d.PlanID, d.patch(), client.IfMatch(d.etag))
	})
	if err != nil || d.Action == Delete {
		return err
	}
	if d.PlanID = changed.PlanID; changed.Warnings != nil {
		for _, w := range *changed.Warnings {
			// The routes of a gateway in the set are not there yet: see unmatched.
			if !slices.ContainsFunc(d.plan.inSet, func(id string) bool { return strings.Contains(w, id) }) {
				d.Warnings = append(d.Warnings, w)
			}
		}
	}
	return nil
}

// creation returns the plan to create.
func (s *planStep) creation() client.CreatePlanRequest {
	limits, day := slices.Concat([]client.PlanLimitInput{}, s.limits), int64(s.want.AnchorDay)
	in := client.CreatePlanRequest{Name: s.want.Name, Limits: &limits, TimeZone: &s.want.TimeZone, AnchorDay: &day}
	if s.want.Title != "" {
		in.Title = &s.want.Title
	}
	return in
}

// patch returns the fields that d changes.
func (d *Difference) patch() (p client.PlanPatch) {
	for _, c := range d.Plan {
		switch c.Field {
		case "title":
			if p.Title = client.Clear[string](); d.plan.want.Title != "" {
				p.Title = client.Set(d.plan.want.Title)
			}
		case "time_zone":
			p.TimeZone = client.Set(d.plan.want.TimeZone)
		case "anchor_day":
			p.AnchorDay = client.Set(int64(d.plan.want.AnchorDay))
		default:
			p.Limits = client.Set(slices.Concat([]client.PlanLimitInput{}, d.plan.limits))
		}
	}
	return p
}

// addLateLimits adds the limits of gateways that were created since the first step. It fails if the plan is not as that
// step left it.
func (a *Applier) addLateLimits(ctx context.Context, d *Difference) (*client.Plan, error) {
	d.PlanID = d.plan.first.PlanID
	p, etag, err := a.cfg.Client.PlanWithETag(ctx, d.PlanID)
	if err != nil {
		return nil, err
	}
	if len(d.plan.first.plan.changes(p)) > 0 {
		return nil, fault.New(fault.PreconditionFailed, "%s was changed meanwhile: run the command again", d.Label())
	}
	limits := slices.Clone(d.plan.limits)
	for i, of := range d.plan.gateways {
		if of != nil {
			limits[i].GatewayID = &of.GatewayID
			d.plan.inSet = append(d.plan.inSet, of.GatewayID)
		}
	}
	return a.cfg.Client.UpdatePlan(ctx, d.PlanID, client.PlanPatch{Limits: client.Set(limits)}, client.IfMatch(etag))
}

// prune sets the deletions of the plans that the file does not name. A plan that is in use after the set is applied is
// an error.
func (s *planSet) prune(ctx context.Context, a *Applier, differences, deletions []*Difference) error {
	if len(s.others) == 0 {
		return nil
	}
	inUse, err := a.defaultPlans(ctx, differences, deletions)
	if err != nil {
		return err
	}
	for i := range s.others {
		p, etag, err := a.cfg.Client.PlanWithETag(ctx, s.others[i].PlanID)
		if client.IsNotFound(err) {
			continue // it was deleted meanwhile
		}
		if err != nil {
			return err
		}
		d := &Difference{
			Kind: Plan, Action: Delete, PlanID: p.PlanID, Name: p.Name, Gateway: []client.SettingChange{}, Push: noRoutes(), etag: etag, plan: &planStep{},
		}
		user := inUse[p.Name]
		if user == "" {
			if user, err = a.userOf(ctx, p.PlanID); err != nil {
				return err
			}
		}
		if user != "" {
			return fault.New(fault.Conflict, "--prune would delete %s, but %s has it: give it another plan first, or name the plan in the file", d.Label(), user)
		}
		s.deleted = append(s.deleted, d)
	}
	slices.SortStableFunc(s.deleted, func(x, y *Difference) int { return strings.Compare(x.Name, y.Name) })
	return a.mayDelete(ctx, s.deleted)
}

// defaultPlans returns what has a plan as its default once the set is applied, by the names of the plans.
func (a *Applier) defaultPlans(ctx context.Context, differences, deletions []*Difference) (map[string]string, error) {
	inUse, settled := map[string]string{}, map[string]bool{}
	for _, d := range deletions {
		settled[d.GatewayID] = true
	}
	for _, d := range differences {
		if name := d.file.config.Gateway.DefaultPlan; name.Present {
			inUse[name.Value], settled[d.GatewayID] = d.Label(), true
		}
	}
	all, err := a.gateways(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if g := &all[i]; g.DefaultPlan != nil && !settled[g.GatewayID] {
			inUse[*g.DefaultPlan] = label(g.Name, g.GatewayID)
		}
	}
	account, err := a.cfg.Client.Account(ctx)
	if err == nil && account.DefaultPlan != nil {
		inUse[*account.DefaultPlan] = "the account"
	}
	delete(inUse, "") // of null
	return inUse, err
}

// userOf returns an owner or a key that has a plan, "" if there is none. Revoked keys do not count.
func (a *Applier) userOf(ctx context.Context, planID string) (string, error) {
	one := client.ListOptions{PageSize: 1}
	for o, err := range a.cfg.Client.OwnersOfPlan(ctx, planID, one) {
		return "owner " + o.ExternalID, err
	}
	for _, state := range []string{"active", "expired"} {
		for k, err := range a.cfg.Client.Keys(ctx, client.KeyFilter{ListOptions: one, PlanID: planID, State: state}) {
			return "key " + k.Name + " (" + k.KeyID + ")", err
		}
	}
	return "", nil
}

// tried returns the file for a dry run. A plan and issuers that do not exist yet are left out of it.
func (d *Difference) tried() []byte {
	c := *d.file.config
	switch {
	case len(d.coming) > 0:
		c.Gateway.Issuers = gateway.Member[[]string]{Present: true, Value: d.withoutComing()}
		if d.comes {
			c.Gateway.DefaultPlan = gateway.Member[string]{Present: true, Null: true}
		}
		return c.Encode()
	case !d.comes:
		return d.file.content
	}
	if root, err := document.Parse(d.file.content); err == nil {
		content, ok := document.ReplaceScalar(d.file.content, root.Member("gateway").Member("default_plan"), "null")
		if c, err := gateway.ParseDocument(content); ok && err == nil && c.Gateway.DefaultPlan.Null {
			return content
		}
	}
	// It is written in a way in which it cannot be replaced.
	c.Gateway.DefaultPlan = gateway.Member[string]{Present: true, Null: true}
	return c.Encode()
}

// addDefaultPlan adds the default plan, which tried left out, to the changes.
func (d *Difference) addDefaultPlan() {
	d.addSetting(client.SettingChange{Field: "default_plan", After: d.file.config.Gateway.DefaultPlan.Value})
}

// addSetting adds a change of a setting, in place of what the server said of the file without it.
func (d *Difference) addSetting(change client.SettingChange) {
	d.Gateway = slices.DeleteFunc(d.Gateway, func(c client.SettingChange) bool {
		if c.Field == change.Field {
			change.Before = c.Before
		}
		return c.Field == change.Field
	})
	d.Gateway = append(d.Gateway, change)
}
