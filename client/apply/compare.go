package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// Config configures an Applier.
type Config struct {
	Client *client.Client // required
	// Gateway is the identifier of the gateway that a single file is for, whatever gateway the file names.
	// It is required if the file names none, and not allowed for a directory.
	Gateway string
	// Prune deletes the gateways that were applied from files before and that no file names. Only for a directory
	// that has a file for every gateway.
	Prune bool
	// Effect also asks what the differences would have done to the requests of the last 24 hours.
	Effect bool
	// Busy, if not nil, is called when the server is busy, before each pause.
	Busy func(*client.Error)
}

// Applier compares gateways with files, and applies the differences.
type Applier struct{ cfg Config }

// New returns an Applier.
func New(cfg Config) *Applier { return &Applier{cfg} }

// Action is what applying files does to a gateway.
type Action string

// The actions.
const (
	Create Action = "create"
	Update Action = "update"
	Delete Action = "delete"
	Keep   Action = "none"
)

// Kind is what a difference is about.
type Kind string

// The kinds.
const (
	Gateway Kind = "gateway"
	Plan    Kind = "plan"
	Issuer  Kind = "issuer"
)

// Difference is what applying files does, or has done, to one gateway, plan or issuer. Values of environment variables are
// hidden.
type Difference struct {
	File      string `json:"file,omitempty"` // "" for what is deleted
	Kind      Kind   `json:"kind"`
	Action    Action `json:"action"`
	GatewayID string `json:"gateway_id,omitempty"` // "" for a gateway that does not exist yet
	PlanID    string `json:"plan_id,omitempty"`    // "" for a plan that does not exist yet
	IssuerID  string `json:"issuer_id,omitempty"`  // "" for an issuer that does not exist yet
	Name      string `json:"name"`
	*client.Push
	Gateway []client.SettingChange `json:"gateway"`        // never nil; in a Push it may be
	Plan    []client.SettingChange `json:"plan,omitempty"` // what a plan has, with a field for each limit

	// Issuer is what an issuer has; keys and certificates as their digests.
	Issuer []client.SettingChange `json:"issuer,omitempty"`

	// PlanEffect is what the update of a plan would have done to the requests of the last 24 hours; only if the Config asks.
	PlanEffect *client.PlanEffect `json:"plan_effect,omitempty"`

	file   *File  // nil for what is deleted
	etag   string // of the gateway, plan or issuer; "" if it does not exist yet
	plan   *planStep
	issuer *issuerStep

	coming []string // issuers of the file that do not exist before the set is applied
	comes  bool     // whether the default plan of the file is one that does not exist before the set is applied
}

// Label names the gateway, plan or issuer in messages.
func (d *Difference) Label() string {
	switch {
	case d.Kind == Plan:
		return namedLabel("plan", d.Name, d.PlanID)
	case d.Kind == Issuer:
		return namedLabel("issuer", d.Name, d.IssuerID)
	case d.GatewayID == "":
		return "gateway " + d.Name
	}
	return label(d.Name, d.GatewayID)
}

func label(name, id string) string {
	if name == "" || name == id {
		return "gateway " + id
	}
	return "gateway " + name + " (" + id + ")"
}

// namedLabel is the label of a plan or an issuer.
func namedLabel(what, name, id string) string {
	if id == "" {
		return what + " " + name
	}
	return what + " " + name + " (" + id + ")"
}

// Late reports whether d adds to a plan, which an earlier difference creates or changes, the limits of gateways that come
// in between.
func (d *Difference) Late() bool { return d.plan != nil && d.plan.first != nil }

// Again reports whether an earlier difference changes the same plan.
func (d *Difference) Again() bool { return d.Late() && d.plan.first.Action != Keep }

// Compare returns what applying the set would change, in the order in which it can be applied; for what
// would not change, the action is Keep. Issuers and plans come first, so that gateways can have them; limits of gateways that
// do not exist yet come after their gateways, see Late. Deletions come last, those of plans and issuers after those of gateways. It
// changes nothing. If the server refuses some of the files, the error is an *Errors; if a call fails for another reason,
// it is a *FileError.
func (a *Applier) Compare(ctx context.Context, set *Set) ([]*Difference, error) {
	all, differences, err := a.find(ctx, set)
	if err != nil {
		return nil, err
	}
	if differences, err = order(differences, all); err != nil {
		return nil, err
	}
	issuers, err := a.compareIssuers(ctx, set)
	if err != nil {
		return nil, err
	}
	plans, err := a.comparePlans(ctx, set, all, differences)
	if err != nil {
		return nil, err
	}
	if err := a.lookAtAll(ctx, differences, plans, issuers); err != nil {
		return nil, err
	}
	var deletions []*Difference
	if a.cfg.Prune {
		if deletions, err = a.deletions(ctx, differences, all); err != nil {
			return nil, err
		}
		if err := plans.prune(ctx, a, differences, deletions); err != nil {
			return nil, err
		}
		if err := issuers.prune(ctx, a, differences, deletions); err != nil {
			return nil, err
		}
	}
	return slices.Concat(issuers.early, plans.early, differences, plans.late, deletions, plans.deleted, issuers.deleted), nil
}

// lookAtAll asks the server what each of the differences changes.
func (a *Applier) lookAtAll(ctx context.Context, differences []*Difference, plans *planSet, issuers *issuerSet) error {
	e := &Errors{Files: len(differences)}
	for _, d := range differences {
		d.comes = plans.comes(d.file.config.Gateway.DefaultPlan)
		err := issuers.check(d)
		if err == nil {
			err = d.explain(a.look(ctx, d))
		}
		if err != nil && !isAboutFile(err) {
			return &FileError{d.File, d.file.Secrets, err}
		}
		if err != nil {
			e.add(d.file, err)
		}
	}
	return e.err()
}

// find returns an update for each file of a gateway that exists, and a creation for the others. all are the gateways
// of the account, if it had to list them.
func (a *Applier) find(ctx context.Context, set *Set) (all []client.Gateway, found []*Difference, err error) {
	if a.cfg.Gateway != "" {
		return nil, []*Difference{newDifference(set.Files[0], &client.Gateway{GatewayID: a.cfg.Gateway})}, nil
	}
	if all, err = a.gateways(ctx); err != nil {
		return nil, nil, err
	}
	byName := gatewaysByName(all)
	e := &Errors{Files: len(set.Files)}
	for _, f := range set.Files {
		switch name := f.GatewayName(); len(byName[name]) {
		case 0:
			found = append(found, newDifference(f, nil))
		case 1:
			found = append(found, newDifference(f, &byName[name][0]))
		default:
			e.add(f, &AmbiguousError{name, byName[name]})
		}
	}
	return all, found, e.err()
}

// gateways lists the gateways of the account.
func (a *Applier) gateways(ctx context.Context) (all []client.Gateway, err error) {
	for g, err := range a.cfg.Client.Gateways(ctx, client.ListOptions{}) {
		if err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	return all, nil
}

func gatewaysByName(all []client.Gateway) map[string][]client.Gateway {
	byName := map[string][]client.Gateway{}
	for _, g := range all {
		byName[g.Name] = append(byName[g.Name], g)
	}
	return byName
}

// newDifference returns the difference for a file, before it was compared. g is nil if its gateway does not
// exist yet.
func newDifference(f *File, g *client.Gateway) *Difference {
	if g == nil {
		return &Difference{file: f, File: f.Name, Kind: Gateway, Action: Create, Name: f.GatewayName()}
	}
	return &Difference{file: f, File: f.Name, Kind: Gateway, Action: Update, GatewayID: g.GatewayID, Name: g.Name}
}

// look asks the server what d changes. A gateway that does not change takes one call.
func (a *Applier) look(ctx context.Context, d *Difference) error {
	if d.Action == Create {
		return a.lookNew(ctx, d)
	}
	if d.Name != "" {
		if err := a.tryPush(ctx, d); err != nil || d.Action == Keep {
			return err
		}
	}
	_, err := client.WhileBusy(ctx, a.cfg.Busy, func() (_ *client.Gateway, err error) {
		g, etag, err := a.cfg.Client.GatewayWithETag(ctx, d.GatewayID)
		if err == nil {
			d.Name, d.etag = g.Name, etag
		}
		return g, err
	})
	if err != nil {
		return err
	}
	return a.tryPush(ctx, d, client.IfMatch(d.etag))
}

// tryPush has the server try the push of d.
func (a *Applier) tryPush(ctx context.Context, d *Difference, options ...client.Option) error {
	if a.cfg.Effect {
		options = append(options, client.WithEffect())
	}
	push, err := client.WhileBusy(ctx, a.cfg.Busy, func() (*client.Push, error) {
		return a.cfg.Client.PushConfig(ctx, d.GatewayID, d.tried(), true, options...)
	})
	if err != nil {
		return err
	}
	if d.comes && a.cfg.Effect {
		push.Warnings = append(push.Warnings, fmt.Sprintf("the plan %s becomes the default plan: the effect does not count what its limits would refuse, see keygate limits simulate", d.file.config.Gateway.DefaultPlan.Value))
	}
	if d.set(push); len(d.Gateway)+len(d.Added)+len(d.Removed)+len(d.Changed) == 0 {
		d.Action = Keep
	} else {
		d.Action = Update
	}
	return nil
}

// lookNew asks the server what creating d's gateway would create.
func (a *Applier) lookNew(ctx context.Context, d *Difference) error {
	section := &d.file.config.Gateway
	if !section.UpstreamURL.Present && !slices.ContainsFunc(section.Upstreams.Value, func(u gateway.UpstreamPatch) bool { return u.Name == gateway.DefaultUpstream }) {
		return d.file.at("gateway").Invalid("gateway.upstream_url", "is missing: there is no gateway %s, and a new one needs it, or the upstream %s in upstreams", section.Name.Value, gateway.DefaultUpstream)
	}
	push, err := client.WhileBusy(ctx, a.cfg.Busy, func() (*client.Push, error) {
		return a.cfg.Client.PreviewGatewayFromConfig(ctx, d.tried())
	})
	if err == nil {
		d.set(push)
	}
	return err
}

// set sets what a push of d changes, with secrets hidden.
func (d *Difference) set(p *client.Push) {
	d.Push, d.Gateway = p, []client.SettingChange{}
	if p.Gateway != nil {
		d.Gateway = *p.Gateway
	}
	if d.comes {
		d.addDefaultPlan()
	}
	if len(d.coming) > 0 {
		d.addIssuers()
	}
	d.hide()
}

// Changed returns an error if d would change something else now than when Compare returned it.
func (a *Applier) Changed(ctx context.Context, d *Difference) error {
	if d.Action != Update {
		return nil
	}
	if d.Kind == Plan {
		return a.planChanged(ctx, d)
	}
	if d.Kind == Issuer {
		return a.issuerChanged(ctx, d)
	}
	now := &Difference{file: d.file, File: d.File, Kind: d.Kind, Action: d.Action, GatewayID: d.GatewayID, coming: d.coming, comes: d.comes}
	if err := a.look(ctx, now); err != nil {
		return err
	}
	if !reflect.DeepEqual(now, d) {
		return changedMeanwhile(d)
	}
	return nil
}

func changedMeanwhile(d *Difference) error {
	return fault.New(fault.PreconditionFailed, "%s was changed while the question was open, and nothing was applied: run the command again", d.Label())
}

// deletions returns the deletion of each gateway that was applied from a file before and has no difference.
// all are the gateways of the account.
func (a *Applier) deletions(ctx context.Context, differences []*Difference, all []client.Gateway) (deletions []*Difference, err error) {
	kept := map[string]bool{}
	for _, d := range differences {
		kept[d.GatewayID] = true
	}
	for i := range all {
		g := &all[i]
		if kept[g.GatewayID] || g.Revision == nil {
			continue
		}
		d, err := client.WhileBusy(ctx, a.cfg.Busy, func() (*Difference, error) { return a.deletion(ctx, g.GatewayID) })
		if client.IsNotFound(err) {
			continue // it was deleted meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("find out whether %s was applied from a file: %w", label(g.Name, g.GatewayID), err)
		}
		if d != nil {
			deletions = append(deletions, d)
		}
	}
	slices.SortStableFunc(deletions, func(x, y *Difference) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.GatewayID, y.GatewayID))
	})
	return deletions, a.mayDelete(ctx, deletions)
}

// deletion returns the deletion of a gateway, or nil if it is not to be deleted.
func (a *Applier) deletion(ctx context.Context, id string) (*Difference, error) {
	revision, err := a.fromFile(ctx, id)
	if err != nil || revision == 0 {
		return nil, err
	}
	g, etag, err := a.cfg.Client.GatewayWithETag(ctx, id)
	if err != nil {
		return nil, err
	}
	if g.Revision == nil || *g.Revision != revision {
		return nil, fault.New(fault.PreconditionFailed, "%s was changed meanwhile: run the command again", label(g.Name, id))
	}
	return &Difference{
		Kind: Gateway, Action: Delete, GatewayID: id, Name: g.Name, Gateway: []client.SettingChange{}, etag: etag, Push: noRoutes(),
	}, nil
}

// noRoutes returns a push that changes nothing.
func noRoutes() *client.Push {
	return &client.Push{Added: []client.RouteChange{}, Removed: []client.RouteChange{}, Changed: []client.RouteChange{}, Warnings: []string{}}
}

// fromFile returns the number of a gateway's newest revision if the gateway was applied from a file, else 0. Such
// a gateway has no repository, and its newest revision that is not a rollback came from a configuration file on
// the command line, not from an OpenAPI document or a repository.
func (a *Applier) fromFile(ctx context.Context, id string) (newest int64, err error) {
	for r, err := range a.cfg.Client.Revisions(ctx, id, client.ListOptions{PageSize: 10}) {
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
		_, err := a.cfg.Client.Do(ctx, &client.Request{Method: http.MethodGet, Path: "/v1/gateways/" + id + "/repository"})
		if client.IsNotFound(err) {
			return newest, nil
		}
		return 0, err
	}
	return 0, nil
}

// mayDelete checks that the key may delete what list has, before anything is applied.
func (a *Applier) mayDelete(ctx context.Context, list []*Difference) error {
	if len(list) == 0 {
		return nil
	}
	account, err := client.WhileBusy(ctx, a.cfg.Busy, func() (*client.CallingAccount, error) { return a.cfg.Client.Account(ctx) })
	if err != nil {
		return err
	}
	scopes, err := apikey.ParseScopes(account.Scope())
	if err != nil {
		return nil //nolint:nilerr // a newer server has other scopes, and checks them itself
	}
	for _, d := range list {
		resource := string(d.Kind) + "s"
		if !scopes.Allows(http.MethodDelete, "/"+resource+"/"+d.GatewayID+d.PlanID+d.IssuerID) {
			return fault.Denied("--prune would delete %s, for which a key needs the scope admin or admin:%s; this one has %s", d.Label(), resource, account.Scope())
		}
	}
	return nil
}

// Apply carries out a difference. It fails if the gateway, plan or issuer was changed since Compare. For an update of a gateway
// it sets the push that was made, for a creation the identifier and the revision.
func (a *Applier) Apply(ctx context.Context, d *Difference) error {
	var err error
	switch {
	case d.Action == Keep:
	case d.Kind == Plan:
		err = a.applyPlan(ctx, d)
	case d.Kind == Issuer:
		err = a.applyIssuer(ctx, d)
	case d.Action == Create: // with everything in it or not at all
		var g *client.Gateway
		g, err = client.WhileBusy(ctx, a.cfg.Busy, func() (*client.Gateway, error) {
			return a.cfg.Client.CreateGatewayFromConfig(ctx, d.file.content)
		})
		if err == nil {
			d.GatewayID, d.Revision = g.GatewayID, g.Revision
		}
	case d.Action == Delete:
		_, err = client.WhileBusy(ctx, a.cfg.Busy, func() (*client.Gateway, error) {
			return a.cfg.Client.DeleteGateway(ctx, d.GatewayID, client.IfMatch(d.etag))
		})
	case d.Action == Update:
		var push *client.Push
		push, err = client.WhileBusy(ctx, a.cfg.Busy, func() (*client.Push, error) {
			return a.cfg.Client.PushConfig(ctx, d.GatewayID, d.file.content, false, client.IfMatch(d.etag))
		})
		if err == nil {
			d.Push = push
			d.hide()
		}
	}
	if err != nil && d.file != nil {
		err = &FileError{d.File, d.file.Secrets, d.explain(err)}
	} else {
		err = d.explain(err)
	}
	return err
}

// explain returns err, or what to do if err says that the gateway or plan was changed since Compare.
func (d *Difference) explain(err error) error {
	var refused *client.Error
	if errors.As(err, &refused) && refused.Status == http.StatusPreconditionFailed {
		return fault.New(fault.PreconditionFailed, "%s was changed meanwhile: run the command again", d.Label())
	}
	return err
}

// hide replaces the values of environment variables in what is shown.
func (d *Difference) hide() {
	if d.file == nil || len(d.file.Secrets) == 0 {
		return
	}
	hide := d.file.Secrets.Hide
	d.Name = hide(d.Name)
	hideChanges(d.Gateway, hide)
	hideChanges(d.Plan, hide)
	hideChanges(d.Issuer, hide)
	for _, routes := range [][]client.RouteChange{d.Added, d.Removed, d.Push.Changed} {
		for i := range routes {
			if routes[i].Path = hide(routes[i].Path); routes[i].Changes != nil {
				hideChanges(*routes[i].Changes, hide)
			}
		}
	}
	for i := range d.Warnings {
		d.Warnings[i] = hide(d.Warnings[i])
	}
}

// hideChanges applies hide to the values of changes.
func hideChanges(changes []client.SettingChange, hide func(string) string) {
	for i := range changes {
		changes[i].Field = hide(changes[i].Field) // which may have the URL of a target
		changes[i].Before, changes[i].After = hideIn(changes[i].Before, hide), hideIn(changes[i].After, hide)
	}
}

// hideIn returns a JSON value with hide applied to all of its strings.
func hideIn(value any, hide func(string) string) any {
	switch v := value.(type) {
	case string:
		return hide(v)
	case []any:
		for i := range v {
			v[i] = hideIn(v[i], hide)
		}
	case map[string]any:
		for name := range v {
			v[name] = hideIn(v[name], hide)
		}
	}
	return value
}
