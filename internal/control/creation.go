package control

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
)

// NewGateway is what a gateway is created from: settings, and at most one document.
type NewGateway struct {
	Settings gateway.Patch // applied to the defaults
	// DefaultPlanID is the identifier of a plan, in place of Settings.DefaultPlan.
	DefaultPlanID Optional[string]
	Spec          string // an OpenAPI document; "" for none
	Config        string // a configuration file, whose settings are applied after Settings; "" for none
	// AllowDuplicate allows a name that another gateway of the account has.
	AllowDuplicate bool
}

// CreateGatewayFrom creates a gateway. A document becomes revision 1, without an event; if it is invalid,
// nothing is created. A hostname that is in use is fault.Conflict, and so is a name that another gateway of the
// account has, unless in allows it. If the gateway becomes the default
// gateway, the former default gateway stops being it in the same transaction. Errors of the file name the
// field as "config.gateway.name", errors of a spec as "spec".
func (s *Service) CreateGatewayFrom(ctx context.Context, actor *Actor, in NewGateway) (*gateway.Gateway, error) {
	n, err := s.readCreation(ctx, actor, in)
	if err != nil {
		return nil, err
	}
	if onlyChecks(ctx) {
		return nil, errOnlyChecked
	}
	var prepared Prepared
	if n.doc != nil {
		if prepared, err = s.prepareFirst(ctx, actor, n); err != nil {
			return nil, err
		}
	}
	g, err := s.insertGateway(ctx, actor, n, prepared)
	if err != nil && prepared != nil {
		if bad := s.cfg.Store.Discard(ctx, prepared); bad != nil {
			s.cfg.Log.WarnContext(ctx, "could not remove the routes of a gateway that was not created; they are removed later", "error", bad)
		}
	}
	return g, err
}

// PreviewGateway returns what CreateGatewayFrom would create: the settings that differ from the defaults, and
// the routes. It fails if CreateGatewayFrom would, and changes nothing.
func (s *Service) PreviewGateway(ctx context.Context, actor *Actor, in NewGateway) (*PushResult, error) {
	n, err := s.readCreation(ctx, actor, in)
	if err != nil {
		return nil, err
	}
	if onlyChecks(ctx) {
		return nil, errOnlyChecked
	}
	if n.doc != nil {
		release, err := s.heavy(ctx, len(n.doc.content))
		if err != nil {
			return nil, err
		}
		defer release()
	}
	return read(ctx, s, actor, func(tx ReadTx) (*PushResult, error) {
		g, err := s.newGateway(ctx, tx, actor, n)
		if err != nil {
			return nil, err
		}
		warnings, err := checkHostname(ctx, tx, "", g, "hostname")
		if err != nil {
			return nil, err
		}
		blank := n.blank(actor, g.CreatedAt)
		s.setHostname(blank)
		r := &PushResult{Added: []RouteChange{}, Removed: []RouteChange{}, Changed: []RouteChange{}, Warnings: slices.Concat([]string{}, warnings), Settings: settingChanges(blank, g)}
		for i := range r.Settings {
			r.Settings[i].Before = nil
		}
		if n.doc != nil {
			d := deltaOf(nil, n.doc, g, g, g.CreatedAt)
			r.Added = routeChanges(d.added, false)
			r.Warnings = append(r.Warnings, n.doc.uncheckedWarnings(g)...)
			if n.doc.warnings != nil {
				r.Warnings = append(r.Warnings, n.doc.warnings(g.Upstream.URL)...)
			}
		}
		return r, nil
	})
}

// creation is a NewGateway whose parts were each checked by themselves.
type creation struct {
	id         string
	edits      []*gatewayEdit // in this order
	doc        *document      // nil for none
	sharesName bool
}

// readCreation checks in, with all settings that do not depend on the store.
func (s *Service) readCreation(ctx context.Context, actor *Actor, in NewGateway) (*creation, error) {
	if err := actor.check(); err != nil {
		return nil, err
	}
	n := &creation{id: id.NewAt(id.Gateway, s.now()), sharesName: in.AllowDuplicate}
	if in.Spec != "" && in.Config != "" {
		return nil, fault.Invalid("config", "cannot be given together with spec: give one of them")
	}
	if err := s.readDocument(ctx, actor, in, n); err != nil && fault.ProblemsOf(err) == nil {
		return nil, err
	} else if problems := fault.Join(s.readSettings(ctx, actor, in, n), err); problems != nil {
		return nil, problems
	}
	// Secrets and settings that depend on each other.
	g := n.blank(actor, s.now())
	if err := n.apply(g); err != nil || n.doc == nil {
		return n, err
	}
	if n.doc.kind == gateway.SpecDocument {
		return n, inField("spec", n.doc.checkUpstreams(g))
	}
	return n, fault.Prefixed("config", n.doc.checkUpstreams(g))
}

// readDocument reads the document of in, if there is one.
func (s *Service) readDocument(ctx context.Context, actor *Actor, in NewGateway, n *creation) error {
	content := in.Spec + in.Config
	if content == "" {
		return nil
	}
	release, err := s.heavy(ctx, len(content))
	if err != nil {
		return err
	}
	defer release()
	if in.Spec != "" {
		n.doc, err = s.readSpec(ctx, actor, []byte(content))
		return inField("spec", err)
	}
	n.doc, err = s.readConfiguration(ctx, actor, []byte(content))
	return fault.Prefixed("config", err)
}

// readSettings reads the settings of in, after its document. The name and the upstream URL are required,
// in one of them.
func (s *Service) readSettings(ctx context.Context, actor *Actor, in NewGateway, n *creation) error {
	settings := in.Settings
	section := &gateway.Patch{}
	if n.doc != nil {
		section = &n.doc.section
	}
	var problems []error
	for _, required := range []struct {
		field  string
		given  *Optional[string]
		inFile bool
	}{{"name", &settings.Name, section.Name.Present}, {"upstream_url", &settings.UpstreamURL, section.UpstreamURL.Present || hasDefault(&settings) || hasDefault(section)}} {
		switch {
		case required.given.Present || required.inFile:
		case in.Config == "":
			required.given.Present = true // and then checked
		case n.doc != nil:
			problems = append(problems, fault.Invalid(required.field, "is required: give it here, or as gateway.%s in config", required.field))
		}
	}
	edit, err := s.readPatchOf(ctx, actor, in.DefaultPlanID, &settings, false)
	n.edits = []*gatewayEdit{edit}
	if n.doc != nil && n.doc.kind == gateway.ConfigDocument {
		n.edits = append(n.edits, &n.doc.edit)
	}
	return fault.Join(append(problems, err)...)
}

// hasDefault reports whether p describes the default upstream, and thus upstream_url.
func hasDefault(p *gateway.Patch) bool {
	return slices.ContainsFunc(p.Upstreams.Value, isDefaultEntry)
}

// blank returns a gateway of the actor's account with all settings at their defaults.
func (n *creation) blank(actor *Actor, now time.Time) *gateway.Gateway {
	return &gateway.Gateway{ID: n.id, AccountID: actor.Account.ID, Timeout: gateway.DefaultTimeout, CreatedAt: now, Version: 1}
}

// apply applies the settings to g.
func (n *creation) apply(g *gateway.Gateway) error {
	if err := n.edits[0].apply(g); err != nil || len(n.edits) == 1 {
		return err
	}
	return fault.Prefixed("config", n.doc.located(fault.Prefixed("gateway", n.edits[1].apply(g))))
}

// inFile returns an error of default_plan as one of the configuration file, if that is where it is set.
func (n *creation) inFile(err error) error {
	if n.doc == nil || !n.doc.section.DefaultPlan.Present {
		return err
	}
	return fault.Prefixed("config", n.doc.located(fault.Prefixed("gateway", err)))
}

// documentField returns the field that has the document.
func (n *creation) documentField() string {
	if n.doc != nil && n.doc.kind == gateway.ConfigDocument {
		return "config"
	}
	return "spec"
}

// newGateway returns the gateway that n creates, if the account has room for it.
func (s *Service) newGateway(ctx context.Context, tx ReadTx, actor *Actor, n *creation) (*gateway.Gateway, error) {
	if err := s.roomForGateway(ctx, tx, actor); err != nil {
		return nil, err
	}
	if n.doc != nil {
		if err := s.roomFor(ctx, tx, actor, n.doc.size(), n.documentField()); err != nil {
			return nil, err
		}
	}
	g := n.blank(actor, s.now())
	var err error
	if g.Default, err = isFirst(ctx, tx, actor); err != nil {
		return nil, err
	}
	if err := n.apply(g); err != nil {
		return nil, err
	}
	if err := setDefaultPlan(ctx, tx, "", g); err != nil {
		return nil, n.inFile(err)
	}
	if err := checkIssuers(ctx, tx, nil, g); err != nil {
		return nil, n.inFile(err)
	}
	if n.doc != nil && len(g.Requests.Issuers) > 0 {
		claims, err := claimHeaders(ctx, tx, g)
		if err != nil {
			return nil, err
		}
		if err := n.doc.checkHeaders(g, claims...); err != nil {
			return nil, fault.Prefixed(n.documentField(), err)
		}
	}
	if err := roomForUpstreams(ctx, tx, &s.cfg.Bounds, nil, g); err != nil {
		return nil, err
	}
	if n.doc != nil {
		if err := n.doc.chooseChecks(ctx, tx, &s.cfg.Bounds, g); err != nil {
			return nil, err
		}
	}
	s.setHostname(g)
	g.SharesName = n.sharesName
	return g, checkName(ctx, tx, "", g, "name")
}

// prepareFirst has the store encode the first revision of a gateway that is about to be created.
func (s *Service) prepareFirst(ctx context.Context, actor *Actor, n *creation) (Prepared, error) {
	author, err := read(ctx, s, actor, func(tx ReadTx) (string, error) {
		if err := s.roomFor(ctx, tx, actor, n.doc.size(), n.documentField()); err != nil {
			return "", err
		}
		if err := s.roomForRevision(ctx, tx, actor); err != nil {
			return "", err
		}
		return authorOf(ctx, tx, actor)
	})
	if err != nil {
		return nil, err
	}
	release, err := s.heavy(ctx, len(n.doc.content))
	if err != nil {
		return nil, err
	}
	defer release()
	p := &pushChange{doc: n.doc, after: gateway.Gateway{ID: n.id, Revision: 1}, source: n.doc.source(actor), author: author, now: s.now()}
	p.delta = deltaOf(nil, n.doc, &p.after, &p.after, p.now)
	return s.cfg.Store.Prepare(ctx, p.revision())
}

// insertGateway runs the transaction of CreateGatewayFrom. revision is nil for a gateway without a document.
func (s *Service) insertGateway(ctx context.Context, actor *Actor, n *creation, revision Prepared) (*gateway.Gateway, error) {
	return inTx(ctx, s, actor, func(w *work) (*gateway.Gateway, error) {
		g, err := s.newGateway(ctx, w, actor, n)
		if err != nil {
			return nil, err
		}
		if g.Default {
			if err := w.clearDefault(ctx); err != nil {
				return nil, err
			}
		}
		if err := w.mayGrow(ctx); err != nil {
			return nil, err
		}
		if revision != nil {
			g.Revision = 1
		}
		if err := w.InsertGateway(ctx, g); err != nil {
			return nil, err
		}
		if err := w.meetCertificate(ctx, nil, g); err != nil {
			return nil, err
		}
		if revision != nil {
			if err := w.InsertPrepared(ctx, revision); err != nil {
				return nil, err
			}
		}
		if err := w.audit(ctx, audit.GatewayCreate, g.ID, g.ID, gatewayDiff(nil, g)); err != nil {
			return nil, err
		}
		return g, w.gatewayChanged(ctx, g)
	})
}

// checkName checks that g may get its name, if it did not have it before: unless g shares its name, no other
// gateway of the account may have it. Otherwise the error is fault.Conflict.
func checkName(ctx context.Context, tx GatewayReader, before string, g *gateway.Gateway, field string) error {
	if g.Name == before || g.SharesName {
		return nil
	}
	other, err := tx.GatewayNamed(ctx, g.AccountID, g.Name, g.ID)
	if err != nil || other == "" {
		return err
	}
	return &fault.Error{
		Code: fault.Conflict, Field: field,
		Message: fmt.Sprintf("the gateway %s already has the name %q: choose another one, or set allow_duplicate to have it twice", other, g.Name),
	}
}

// checkHostname checks that g may get its hostname, if it did not have it before. If another account has
// it, the error is fault.Conflict. If another gateway of the account has it, that gateway may give it up
// first, so checkHostname only returns a warning. The transaction that sets the hostname refuses it.
func checkHostname(ctx context.Context, tx GatewayReader, before string, g *gateway.Gateway, field string) ([]string, error) {
	if g.Hostname == before {
		return nil, nil
	}
	switch owner, err := tx.HostnameOwner(ctx, g.Hostname); {
	case err != nil || owner == "":
		return nil, err
	case owner == g.AccountID:
		return []string{"another gateway of this account has the hostname " + g.Hostname + ": it must give it up first"}, nil
	default:
		return nil, &fault.Error{Code: fault.Conflict, Field: field, Message: "another record already has this hostname: choose a different one"}
	}
}
