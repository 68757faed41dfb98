package control

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// committedAs returns the kind of the document that the routes of a canary come from: that of the gateway's repository, or that of the
// last push. It is "" for routes that were made one by one, of a gateway without a repository.
func (w *work) committedAs(ctx context.Context, g *gateway.Gateway, routes []gateway.Route) (gateway.DocumentKind, error) {
	switch repository, err := w.RepositoryOf(ctx, g.ID); {
	case err == nil:
		return repository.Kind, nil
	case fault.CodeOf(err) != fault.NotFound:
		return "", err
	}
	i := slices.IndexFunc(routes, func(r gateway.Route) bool { return r.Source != gateway.API })
	switch {
	case i < 0:
		return "", nil
	case routes[i].Source == gateway.Spec:
		return gateway.SpecDocument, nil
	default:
		return gateway.ConfigDocument, nil
	}
}

// holdForCommit holds a canary at 100 % until a push gives its routes its upstream.
func (w *work) holdForCommit(ctx context.Context, g *gateway.Gateway, c *canary.Canary, routes []gateway.Route, why string) error {
	before := *c
	if err := w.awaitCommit(ctx, g, c, routes, why); err != nil {
		return err
	}
	if err := w.storeCanary(ctx, g, &before, c, audit.CanaryPromote); err != nil {
		return err
	}
	return w.raiseCanary(ctx, event.CanaryAdvanced, c, c.Weight())
}

// awaitCommit makes c a canary that is held at 100 %, with the lines to commit.
func (w *work) awaitCommit(ctx context.Context, g *gateway.Gateway, c *canary.Canary, routes []gateway.Route, why string) error {
	kind, err := w.committedAs(ctx, g, routes)
	if err != nil {
		return err
	}
	c.State, c.Number, c.Since = canary.Held, c.Number+1, w.now
	c.Lines = linesOf(routes, c.Plan.Upstream, kind)
	what := "a repository or a file: replace their entries there by the lines"
	if kind == gateway.SpecDocument {
		what = fmt.Sprintf("an OpenAPI document: give each of their operations x-keygate-upstream: %s there", c.Plan.Upstream)
	}
	if more := len(routes) - len(c.Lines); more > 0 {
		what += fmt.Sprintf(", and %d more of its routes the upstream %s", more, c.Plan.Upstream)
	}
	c.Explanation = fmt.Sprintf("%s; all callers go to %s. The routes come from %s, and push it; that ends the canary", why, c.Plan.Upstream, what)
	return nil
}

// linesOf returns what a document of a kind says of routes that have the upstream, as many lines as canary.MaxLines allows: the entries
// of a configuration file, which change nothing else of the routes, or what to add to the operations of an OpenAPI document.
func linesOf(routes []gateway.Route, upstream string, kind gateway.DocumentKind) (lines []string) {
	size := 0
	for i := range routes {
		spec := routes[i].Spec()
		spec.Upstream = gateway.StoredUpstreamName(upstream)
		line := spec.Line()
		if kind == gateway.SpecDocument {
			line = fmt.Sprintf("%s %s: x-keygate-upstream: %s", strings.Join(spec.Methods, ", "), spec.Path, upstream)
		}
		if size += len(line); size > canary.MaxLines && i > 0 {
			break
		}
		lines = append(lines, line)
	}
	return lines
}
