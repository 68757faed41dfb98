package control

import (
	"context"
	"errors"
	"slices"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/openapi"
)

// document is a validated spec, configuration file or old revision that is to be pushed.
type document struct {
	kind    gateway.DocumentKind
	content []byte
	routes  []gateway.RouteSpec

	// What follows is of the section "gateway" of a configuration file.
	edit      gatewayEdit
	section   gateway.Patch
	positions gateway.Positions

	// restored is the route table of an old revision, with limits. routes is then empty.
	restored []gateway.Route
	rollback bool

	// upstreams says where the routes name their upstreams, by their indexes.
	upstreams map[int]openapi.Reference
	splits    map[int]*openapi.SplitReference

	// checks has the checks of requests against an OpenAPI document, one for each of its operations.
	checks []documentCheck

	warnings func(upstreamURL string) []string

	// For a document from a repository: its commit, the commit's author, and what the push's
	// transaction does first.
	commit string
	author string
	within func(ctx context.Context, w *work) error
}

func (s *Service) readSpec(ctx context.Context, actor *Actor, content []byte) (*document, error) {
	spec, err := openapi.Parse(content)
	if err != nil {
		return nil, err
	}
	d := &document{kind: gateway.SpecDocument, content: content, routes: spec.Routes, upstreams: spec.Upstreams, splits: spec.Splits, checks: checksOf(spec), warnings: spec.Warnings}
	return d, d.findSplitKeys(ctx, s, actor)
}

// readConfiguration reads a configuration file. Its content is the file as received. If the file has
// secrets, the content has *** instead of them, because revisions are kept and shown.
func (s *Service) readConfiguration(ctx context.Context, actor *Actor, content []byte) (*document, error) {
	config, positions, err := gateway.LocateDocument(content)
	if err != nil {
		return nil, err
	}
	d := &document{kind: gateway.ConfigDocument, content: content, routes: config.Routes, section: config.Gateway, positions: positions}
	edit, err := s.readPatchOf(ctx, actor, Optional[string]{}, &config.Gateway, true)
	if err := fault.Join(d.located(fault.Prefixed("gateway", err)), d.findSplitKeys(ctx, s, actor)); err != nil {
		return nil, err
	}
	d.edit = *edit
	d.warnings = func(string) []string { return config.Warnings() }
	if config.Gateway.HasSecrets() {
		config.Gateway = config.Gateway.WithoutSecrets()
		d.section, d.content = config.Gateway, config.Encode()
	}
	return d, nil
}

// located adds positions in d to the problems of its settings.
func (d *document) located(err error) error { return d.positions.In(err) }

// locatedConflict returns a fault.Conflict about a setting of the gateway with the name and the position that it has in d.
func (d *document) locatedConflict(err error) error {
	var f *fault.Error
	if !errors.As(err, &f) || f.Field == "" {
		return err
	}
	field := "gateway." + f.Field
	return &fault.Error{Code: fault.Conflict, Field: field, Message: fault.MessageOf(d.located(fault.Invalid(field, "%s", f.Message)))}
}

// checkUpstreams checks that g has the upstreams that the routes of d and their splits name, and that the routes have no rules for headers
// that g protects, or that are claims. Errors have the positions of the names.
func (d *document) checkUpstreams(g *gateway.Gateway, claims ...string) error {
	var problems []error
	for i := range d.routes {
		if len(d.routes[i].Split) > 0 {
			problems = append(problems, d.inSplit(i, g.CheckSplit(d.routes[i].Split)))
		}
		name := d.routes[i].Upstream
		if g.UpstreamNamed(name) != nil {
			continue
		}
		if at, known := d.upstreams[i]; known {
			problem := unknownUpstream(at.Field, name)
			problems = append(problems, at.Invalid(at.Field, "%s", fault.MessageOf(problem)))
			continue
		}
		problems = append(problems, d.located(unknownUpstream(gateway.UpstreamOfRoute(i), name)))
	}
	missing := map[string]bool{}
	for i := range d.restored {
		r := &d.restored[i]
		for name := range namesOf(r) {
			if g.UpstreamNamed(name) == nil && !missing[name] {
				missing[name] = true
				problems = append(problems, fault.Invalid("number", "the route %s of the revision names the upstream %s, which the gateway does not have: create it first", r.Path, name))
			}
		}
	}
	return fault.Join(append(problems, d.checkHeaders(g, claims...))...)
}

// readRevision turns an old revision into a document. If it was a configuration file, a rollback
// restores its settings too.
func readRevision(rev *gateway.Revision) (*document, error) {
	d := &document{kind: rev.Kind, content: rev.Content, restored: rev.Routes, rollback: true}
	if err := checkRestored(rev.Routes); err != nil {
		return nil, err
	}
	if rev.Kind != gateway.ConfigDocument {
		if spec, err := openapi.Parse(rev.Content); err == nil { // otherwise an earlier version accepted it
			d.checks = checksOf(spec)
		}
		return d, nil
	}
	config, err := gateway.ParseDocument(rev.Content)
	if err != nil {
		return nil, err
	}
	d.section = config.Gateway
	return d, nil
}

// checkRestored checks the routes of an old revision against the bounds, which may have been
// different when it was pushed.
func checkRestored(routes []gateway.Route) error {
	specs := make([]gateway.RouteSpec, len(routes))
	for i := range routes {
		specs[i] = routes[i].Spec()
	}
	var problems []error
	for _, bad := range gateway.CheckTable(specs) {
		message := bad.Message
		if bad.Row < len(routes) && bad.Field == "path" {
			message = "the path " + routes[bad.Row].Path + " of the revision " + message
		}
		problems = append(problems, fault.Invalid("number", "%s", message))
	}
	return fault.Join(problems...)
}

// size returns the number of d's routes; 0 if d is nil.
func (d *document) size() int {
	if d == nil {
		return 0
	}
	return len(d.routes) + len(d.restored)
}

// routesField returns the field that an error about the number of d's routes names.
func (d *document) routesField() string {
	switch {
	case d.rollback:
		return "number"
	case d.kind == gateway.SpecDocument:
		return "paths"
	default:
		return "routes"
	}
}

// action returns the audit action for pushing d.
func (d *document) action() audit.Action {
	switch {
	case d.rollback:
		return audit.RevisionRestore
	case d.kind == gateway.SpecDocument:
		return audit.SpecPush
	default:
		return audit.ConfigPush
	}
}

// source returns the source that is recorded for the revision.
func (d *document) source(actor *Actor) gateway.Source {
	switch {
	case d.rollback:
		return gateway.Rollback
	case actor.Source == "":
		return gateway.API
	default:
		return actor.Source
	}
}

// table returns the routes that d describes, without identifiers.
func (d *document) table() []gateway.Route {
	if d.rollback {
		return d.restored
	}
	source := gateway.Config
	if d.kind == gateway.SpecDocument {
		source = gateway.Spec
	}
	table := make([]gateway.Route, len(d.routes))
	for i, r := range d.routes {
		table[i] = gateway.Route{Path: r.Path, Methods: sorted(r.Methods), RateLimit: r.RateLimit, Concurrency: r.Concurrency, Cost: r.Cost, Upstream: r.Upstream, Split: r.Split, Handling: r.Handling, Auth: r.Auth, Source: source}
	}
	return table
}

// inField returns err with field in place of the paths in a document that err names. The messages
// have the positions.
func inField(field string, err error) error {
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.ValidationFailed {
		return err
	}
	moved := *f
	moved.Field = field
	moved.Problems = slices.Clone(f.Problems)
	for i := range moved.Problems {
		moved.Problems[i].Field = field
	}
	return &moved
}
