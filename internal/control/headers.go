package control

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// protectedHeaders returns the headers that no rule of g and of its routes may name. It is the one place that says so. claims are the
// headers that tokens of g's issuers set (claimHeaders), if they are known.
func protectedHeaders(g *gateway.Gateway, claims ...string) gateway.ProtectedHeaders {
	p := g.ProtectedHeaders()
	for _, name := range claims {
		p.Add(name, "is in claim_headers of an issuer of the gateway: only tokens set it")
	}
	return p
}

// claimHeaders returns the headers that tokens of g's issuers set.
func claimHeaders(ctx context.Context, tx IssuerReader, g *gateway.Gateway) (names []string, err error) {
	if len(g.Requests.Issuers) == 0 {
		return nil, nil
	}
	all, err := tx.IssuersNamed(ctx, g.AccountID, g.Requests.Issuers)
	for i := range all {
		names = slices.AppendSeq(names, maps.Keys(all[i].ClaimHeaders))
	}
	return names, err
}

// checkClaimHeaders checks that the rules of g name no header that tokens of its issuers set, unless neither differs from those of before,
// which is nil for a new gateway: an issuer may have got the header since.
func checkClaimHeaders(ctx context.Context, tx IssuerReader, before, g *gateway.Gateway) error {
	r := &g.Requests
	if r.RequestHeaders == nil && r.ResponseHeaders == nil || before != nil && slices.Equal(before.Requests.Issuers, r.Issuers) &&
		reflect.DeepEqual(before.Requests.RequestHeaders, r.RequestHeaders) && reflect.DeepEqual(before.Requests.ResponseHeaders, r.ResponseHeaders) {
		return nil
	}
	claims, err := claimHeaders(ctx, tx, g)
	if err != nil {
		return err
	}
	return protectedHeaders(g, claims...).CheckGateway(g)
}

// checkHeaderRules checks that the rules of g for headers name no protected header.
func checkHeaderRules(g *gateway.Gateway) error {
	if g.Requests.RequestHeaders == nil && g.Requests.ResponseHeaders == nil {
		return nil
	}
	return protectedHeaders(g).CheckGateway(g)
}

// checkHeadersOf checks that what a route of g does with headers names no protected header.
func checkHeadersOf(ctx context.Context, tx IssuerReader, g *gateway.Gateway, h *gateway.Handling) error {
	if !h.NamesHeaders() {
		return nil
	}
	claims, err := claimHeaders(ctx, tx, g)
	if err != nil {
		return err
	}
	return protectedHeaders(g, claims...).CheckHandling(h)
}

// checkHeaders checks that what the routes of d do with headers names no header that g protects, nor one of claims.
func (d *document) checkHeaders(g *gateway.Gateway, claims ...string) error {
	var protected gateway.ProtectedHeaders
	check := func(h *gateway.Handling) []fault.Problem {
		if !h.NamesHeaders() {
			return nil
		}
		if protected == nil {
			protected = protectedHeaders(g, claims...)
		}
		return fault.ProblemsOf(protected.CheckHandling(h))
	}
	var problems []error
	for i := range d.routes {
		r := &d.routes[i]
		for _, p := range check(r.Handling) {
			if d.kind == gateway.SpecDocument {
				field, within, _ := strings.Cut(p.Field, ".")
				problems = append(problems, fault.Invalid("paths", "%s of %s: in its x-keygate-%s, %s %s", strings.Join(r.Methods, ", "), r.Path, strings.ReplaceAll(field, "_", "-"), within, p.Message))
				continue
			}
			problems = append(problems, d.located(fault.Prefixed(gateway.RouteField(i), fault.Invalid(p.Field, "%s", p.Message))))
		}
	}
	for i := range d.restored {
		r := &d.restored[i]
		for _, p := range check(r.Handling) {
			problems = append(problems, fault.Invalid("number", "%s of the route %s of the revision %s", p.Field, r.Path, p.Message))
		}
	}
	return fault.Join(problems...)
}

// mayProtectOf is mayProtect for a change of an upstream.
func (s *Service) mayProtectOf(ctx context.Context, actor *Actor, gatewayID string, p *gateway.UpstreamPatch, edit *upstreamEdit) error {
	if len(p.UpstreamHeaders.Value) == 0 || onlyChecks(ctx) {
		return nil
	}
	return s.mayProtect(ctx, actor, gatewayID, edit.apply)
}

// mayProtect checks that no route of the gateway before names a header that only after protects, which is the gateway after a change. The
// error is fault.Conflict. It takes up to a second, so it is not a part of the transaction: what another node changes meanwhile is not
// noticed, and then the rule of the route has no effect.
func (s *Service) mayProtect(ctx context.Context, actor *Actor, gatewayID string, after func(g *gateway.Gateway) error) error {
	_, err := search(ctx, s, actor, func(tx ReadTx) (any, error) {
		before, err := s.gateway(ctx, tx, actor, gatewayID)
		if err != nil {
			return nil, nil // the transaction says it
		}
		g := *before
		if after(&g) != nil {
			return nil, nil // the transaction says it
		}
		added := protectedHeaders(&g)
		for name := range protectedHeaders(before) {
			delete(added, name)
		}
		if len(added) == 0 {
			return nil, nil
		}
		table, err := tx.RouteTable(ctx, gatewayID)
		if err != nil {
			return nil, err
		}
		for i := range table {
			r := &table[i]
			if problems := fault.ProblemsOf(added.CheckHandling(r.Handling)); problems != nil {
				return nil, fault.New(fault.Conflict, "the route %s (%s) has a rule for a header that would be protected: change %s of that route first, and of all others that name it", r.Path, r.ID, problems[0].Field)
			}
		}
		return nil, nil
	})
	return err
}
