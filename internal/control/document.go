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
	edit    gatewayEdit // from the section "gateway" of a configuration file

	// restored is the route table of an old revision, with limits. routes is then empty.
	restored []gateway.Route
	rollback bool

	warnings func(upstreamURL string) []string

	// Of a document from a repository: its commit, who wrote that, and what else the push's
	// transaction does first.
	commit string
	author string
	within func(ctx context.Context, w *work) error
}

func readSpec(content []byte) (*document, error) {
	spec, err := openapi.Parse(content)
	if err != nil {
		return nil, err
	}
	return &document{kind: gateway.SpecDocument, content: content, routes: spec.Routes, warnings: spec.Warnings}, nil
}

func (s *Service) readConfiguration(c *Caller, content []byte) (*document, error) {
	config, err := gateway.ParseDocument(content)
	if err != nil {
		return nil, err
	}
	edit, err := s.readSection(c, config.Gateway)
	if err != nil {
		return nil, err
	}
	return &document{kind: gateway.ConfigDocument, content: content, routes: config.Routes, edit: *edit}, nil
}

// readRevision turns an old revision into a document. If it was a configuration file, the settings
// of its section "gateway" are restored too.
func (s *Service) readRevision(c *Caller, rev *gateway.Revision) (*document, error) {
	d := &document{kind: rev.Kind, content: rev.Content, restored: rev.Routes, rollback: true}
	if err := checkRestored(rev.Routes); err != nil {
		return nil, err
	}
	if rev.Kind != gateway.ConfigDocument {
		return d, nil
	}
	config, err := s.readConfiguration(c, rev.Content)
	if err != nil {
		return nil, err
	}
	d.edit = config.edit
	return d, nil
}

// checkRestored checks the routes of an old revision against the bounds, which may not have held
// when it was pushed.
func checkRestored(routes []gateway.Route) error {
	specs := make([]gateway.RouteSpec, len(routes))
	for i := range routes {
		specs[i] = specOf(&routes[i])
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

// readSection turns the section "gateway" of a configuration file into an edit. Errors name the
// field as "gateway.name".
func (s *Service) readSection(c *Caller, section gateway.Section) (*gatewayEdit, error) {
	edit, err := s.readPatch(c, GatewayPatch{
		Name:        fromMember(section.Name),
		GlobalLimit: fromMember(section.GlobalLimit),
		Upstream:    UpstreamPatch{URL: fromMember(section.UpstreamURL)},
	})
	return edit, fault.Prefixed("gateway", err)
}

func fromMember[T any](m gateway.Member[T]) Optional[T] {
	return Optional[T]{Present: m.Present, Null: m.Null, Value: m.Value}
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
func (d *document) source(c *Caller) gateway.Source {
	switch {
	case d.rollback:
		return gateway.Rollback
	case c.Source == "":
		return gateway.API
	default:
		return c.Source
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
		if r.Auth == "" {
			r.Auth = gateway.AuthKey
		}
		table[i] = gateway.Route{Path: r.Path, Methods: sorted(r.Methods), RateLimit: r.RateLimit, Auth: r.Auth, Source: source}
	}
	return table
}

// inField returns err with field in place of the paths in a document that it names. The
// messages have the positions.
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
