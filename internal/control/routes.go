package control

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
)

// Routes lists a gateway's routes, newest first.
func (s *Service) Routes(ctx context.Context, actor *Actor, gatewayID string, p Page) ([]gateway.Route, error) {
	return readOf(ctx, s, actor, gatewayID, func(tx ReadTx, g *gateway.Gateway) ([]gateway.Route, error) {
		routes, err := tx.Routes(ctx, gatewayID, p)
		return authInForce(g, routes), err
	})
}

// authInForce sets what each of the routes requires, which may be what g says, and returns them.
func authInForce(g *gateway.Gateway, routes []gateway.Route) []gateway.Route {
	for i := range routes {
		routes[i] = g.AuthInForce(routes[i])
	}
	return routes
}

// RouteFilter selects routes; "" does not filter.
type RouteFilter struct {
	Query  string // a part of the path, whatever its case
	Method string // one of the methods
}

// matches reports whether f selects r.
func (f *RouteFilter) matches(r *gateway.Route) bool {
	return (f.Method == "" || slices.Contains(r.Methods, f.Method)) &&
		(f.Query == "" || strings.Contains(strings.ToLower(r.Path), strings.ToLower(f.Query)))
}

// SearchRoutes lists the routes that f selects. Its time grows with the number of routes of the gateway.
func (s *Service) SearchRoutes(ctx context.Context, actor *Actor, gatewayID string, f RouteFilter, p Page) ([]gateway.Route, error) {
	return search(ctx, s, actor, func(tx ReadTx) ([]gateway.Route, error) {
		g, err := tx.Gateway(ctx, actor.Account.ID, gatewayID)
		if err != nil {
			return nil, err
		}
		routes, err := selectPage(p, func(p Page) ([]gateway.Route, error) { return tx.Routes(ctx, gatewayID, p) },
			f.matches, func(r *gateway.Route) string { return r.ID })
		return authInForce(g, routes), err
	})
}

// selectFrom is how many records selectPage reads at a time.
const selectFrom = 2000

// selectPage returns page p of the records of a list that match. It reads the list from p.After on until the page
// is full.
func selectPage[T any](p Page, list func(Page) ([]T, error), matches func(*T) bool, id func(*T) string) ([]T, error) {
	var found []T
	for at := (Page{Limit: selectFrom, After: p.After}); ; {
		records, err := list(at)
		if err != nil {
			return nil, err
		}
		for i := range records {
			if !matches(&records[i]) {
				continue
			}
			if found = append(found, records[i]); len(found) == p.Limit {
				return found, nil
			}
		}
		if len(records) < selectFrom {
			return found, nil
		}
		at.After = id(&records[len(records)-1])
	}
}

// Route returns one route.
func (s *Service) Route(ctx context.Context, actor *Actor, gatewayID, routeID string) (*gateway.Route, error) {
	return read(ctx, s, actor, func(tx ReadTx) (*gateway.Route, error) {
		g, r, err := route(ctx, tx, actor, gatewayID, routeID)
		if err != nil {
			return nil, err
		}
		return inForce(g, r), nil
	})
}

// inForce returns r with what it requires, which may be what g says.
func inForce(g *gateway.Gateway, r *gateway.Route) *gateway.Route {
	shown := g.AuthInForce(*r)
	return &shown
}

// route returns a gateway and one of its routes, as they are stored.
func route(ctx context.Context, tx ReadTx, actor *Actor, gatewayID, routeID string) (*gateway.Gateway, *gateway.Route, error) {
	g, err := tx.Gateway(ctx, actor.Account.ID, gatewayID)
	if err != nil {
		return nil, nil, err
	}
	r, err := tx.Route(ctx, gatewayID, routeID)
	return g, r, err
}

// CreateRoute adds a route to the gateway. If another route already has one of its methods for the same
// pattern, the error is fault.ValidationFailed.
func (s *Service) CreateRoute(ctx context.Context, actor *Actor, gatewayID string, in gateway.RouteSpec) (*gateway.Route, error) {
	err := checkRoute(&in)
	if err = fault.Join(err, fault.Prefixed("split", s.findSplitKeys(ctx, actor, &in.Split))); err != nil || onlyChecks(ctx) {
		return nil, cmp.Or(fault.Join(err, s.misfit(ctx, actor, gatewayID, "", err, RoutePatch{Path: given(in.Path), Methods: given(in.Methods)}), s.checkUpstreamOf(ctx, actor, gatewayID, in.Upstream, in.Split, in.Handling)), errOnlyChecked)
	}
	check := func(tx ReadTx) error { return fits(ctx, tx, gatewayID, nil, in) }
	return beside(ctx, s, actor, gatewayID, check, func(w *work, bad func() (error, error)) (*gateway.Route, error) {
		g, err := w.Gateway(ctx, actor.Account.ID, gatewayID)
		if err != nil {
			return nil, err
		}
		misfit, err := bad()
		if err := cmp.Or(err, fault.Join(misfit, checkUpstreamOf(g, in.Upstream, in.Split), checkHeadersOf(ctx, w, g, in.Handling))); err != nil {
			return nil, err
		}
		if err := s.roomFor(ctx, w, actor, 1, "path"); err != nil {
			return nil, err
		}
		if err := w.mayGrow(ctx); err != nil {
			return nil, err
		}
		r := &gateway.Route{
			ID: id.NewAt(id.Route, w.now), GatewayID: gatewayID, Path: in.Path, Methods: in.Methods,
			RateLimit: in.RateLimit, LimitByAPI: !in.RateLimit.IsZero(), Concurrency: in.Concurrency, ConcurrencyByAPI: !in.Concurrency.IsZero(), Cost: in.Cost, CostByAPI: len(in.Cost) > 0, Upstream: in.Upstream, Split: in.Split, Handling: in.Handling.Stored(), Auth: in.Auth,
			Source: gateway.API, CreatedAt: w.now, Version: 1,
		}
		if err := w.InsertRoutes(ctx, []gateway.Route{*r}); err != nil {
			return nil, err
		}
		if err := w.audit(ctx, audit.RouteCreate, r.ID, gatewayID, routeDiff(nil, r)); err != nil {
			return nil, err
		}
		return inForce(g, r), w.routeChanged(ctx, r)
	})
}

// checkRoute validates one route and brings it into the stored form.
func checkRoute(in *gateway.RouteSpec) error {
	in.Methods = sorted(in.Methods)
	var badAuth, badLimit, badConcurrency error
	if in.Auth != "" && !slices.Contains(gateway.Auths(), in.Auth) {
		badAuth = fault.Invalid("auth", "must be key, token, any or none")
	}
	if !in.RateLimit.IsZero() {
		badLimit = fault.Prefixed("rate_limit", in.RateLimit.Validate())
	}
	if !in.Concurrency.IsZero() {
		badConcurrency = fault.Prefixed("concurrency", in.Concurrency.Validate())
	}
	if len(in.Cost) == 0 {
		in.Cost = nil
	}
	badCost := fault.Prefixed("cost", in.Cost.Validate())
	var badUpstream error
	if in.Upstream = gateway.StoredUpstreamName(in.Upstream); in.Upstream != "" && gateway.CheckUpstreamName(in.Upstream) != nil {
		badUpstream = fault.Invalid("upstream", "is not the name of an upstream, which has 1 to 64 characters of a-z, 0-9, - and _")
	}
	badSplit := fault.Prefixed("split", in.Split.Check())
	return fault.Join(ofRoute(gateway.CheckTable([]gateway.RouteSpec{*in})), adviceOn(in), badLimit, badConcurrency, badCost, badUpstream, badSplit, badAuth)
}

// adviceOn refuses what is certainly a mistake in one route, and would be a warning about a document. What may be
// meant is a warning here too: gateway.RouteWarnings.
func adviceOn(in *gateway.RouteSpec) error {
	var problems []error
	if advice := gateway.PathAdvice(in.Path); advice != "" {
		problems = append(problems, fault.Invalid("path", "%s", advice))
	}
	for _, m := range in.Methods {
		if advice := gateway.MethodAdvice(m); advice != "" {
			problems = append(problems, fault.Invalid("methods", "%s", advice))
		}
	}
	return fault.Join(problems...)
}

// given returns the Optional of a value.
func given[T any](v T) Optional[T] { return Optional[T]{Present: true, Value: v} }

// misfit returns the conflicts of a route's path and methods with the other routes of its gateway,
// for a call that fails anyway, because of invalid or for another reason. If invalid says that they
// are wrong in themselves, nothing is compared. A new route has no identifier.
func (s *Service) misfit(ctx context.Context, actor *Actor, gatewayID, routeID string, invalid error, p RoutePatch) error {
	for _, bad := range fault.ProblemsOf(invalid) {
		if bad.Field == "path" || bad.Field == "methods" {
			return nil
		}
	}
	if !p.Path.Present && !p.Methods.Present {
		return nil
	}
	// This only adds to the known error, so other errors, such as a missing gateway, are ignored.
	bad, err := readOf(ctx, s, actor, gatewayID, func(tx ReadTx, _ *gateway.Gateway) (error, error) {
		in, before := gateway.RouteSpec{Path: p.Path.Value, Methods: sorted(p.Methods.Value)}, (*gateway.Route)(nil)
		if routeID != "" {
			var err error
			if before, err = tx.Route(ctx, gatewayID, routeID); err != nil {
				return nil, err
			}
			set(&in.Path, !p.Path.Present, before.Path)
			set(&in.Methods, !p.Methods.Present, before.Methods)
		}
		return fits(ctx, tx, gatewayID, before, in), nil
	})
	if err != nil || fault.CodeOf(bad) != fault.ValidationFailed {
		return nil
	}
	return bad
}

// checkUpstreamOf checks that a gateway has the upstreams that a route and its split name, and that what the route does names no header that
// the gateway protects, for a call that fails anyway. Other errors are ignored, and so is a name that no upstream has, which is an error of
// its own.
func (s *Service) checkUpstreamOf(ctx context.Context, actor *Actor, gatewayID, name string, split gateway.Split, h *gateway.Handling) error {
	if name != "" && gateway.CheckUpstreamName(name) != nil {
		name = ""
	}
	if split.Check() != nil {
		split = nil
	}
	if name == "" && len(split) == 0 && !h.NamesHeaders() {
		return nil
	}
	bad, err := readOf(ctx, s, actor, gatewayID, func(tx ReadTx, g *gateway.Gateway) (error, error) {
		return fault.Join(checkUpstreamOf(g, name, split), checkHeadersOf(ctx, tx, g, h)), nil
	})
	if err != nil {
		return nil
	}
	return bad
}

// ofRoute returns what gateway.CheckTable found wrong with a route as one error.
func ofRoute(problems []gateway.RowProblem) error {
	all := make([]error, len(problems))
	for i, p := range problems {
		all[i] = fault.Invalid(p.Field, "%s", p.Message)
	}
	return fault.Join(all...)
}

// beside changes one route in a transaction, f, under the lock of the table. check compares the route with the other
// routes of its gateway. That takes a second for 100,000 routes, so it runs before the transaction, for which all
// other changes wait. f gets its result from bad, which returns nothing if check is nil. If another call changes the
// routes between check and the transaction, beside starts over; in its last try, check runs in the transaction.
func beside[T any](ctx context.Context, s *Service, actor *Actor, gatewayID string, check func(tx ReadTx) error, f func(w *work, bad func() (found, err error)) (T, error)) (result T, err error) {
	unlock, err := s.lockTable(ctx, actor, gatewayID)
	if err != nil {
		return result, err
	}
	defer unlock()
	for attempt := 1; ; attempt++ {
		var known *compared
		if check != nil {
			known = s.compare(ctx, actor, gatewayID, check)
		}
		result, err := inTx(ctx, s, actor, func(w *work) (T, error) {
			return f(w, func() (found, err error) {
				if check == nil {
					return nil, nil
				}
				if known != nil {
					switch version, err := w.TableVersion(ctx, gatewayID); {
					case err != nil:
						return nil, err
					case version == known.version:
						return known.found, nil
					case attempt < pushAttempts:
						return nil, errChangedMeanwhile
					}
				}
				return invalidOr(check(w))
			})
		})
		if !errors.Is(err, errChangedMeanwhile) || attempt == pushAttempts {
			return result, err
		}
	}
}

// compared is the result of comparing a route with the other routes.
type compared struct {
	version TableVersion // of the others
	found   error        // fault.ValidationFailed, or nil
}

// compare compares a route with the other routes of its gateway. If it cannot, it returns nil, and the
// transaction will return the reason.
func (s *Service) compare(ctx context.Context, actor *Actor, gatewayID string, check func(tx ReadTx) error) *compared {
	known, err := search(ctx, s, actor, func(tx ReadTx) (*compared, error) {
		if _, err := tx.Gateway(ctx, actor.Account.ID, gatewayID); err != nil {
			return nil, err
		}
		version, err := tx.TableVersion(ctx, gatewayID)
		if err != nil {
			return nil, err
		}
		found, err := invalidOr(check(tx))
		return &compared{version, found}, err
	})
	if err != nil {
		return nil
	}
	return known
}

// invalidOr returns err as found if it says that the input is invalid.
func invalidOr(err error) (found, _ error) {
	if fault.CodeOf(err) == fault.ValidationFailed {
		return err, nil
	}
	return nil, err
}

// fits checks a valid route against the other routes of the gateway. before is the route as it
// was, or nil if it is new.
func fits(ctx context.Context, tx RouteReader, gatewayID string, before *gateway.Route, in gateway.RouteSpec) error {
	table, err := tx.RouteTable(ctx, gatewayID)
	if err != nil {
		return err
	}
	path := ""
	specs := make([]gateway.RouteSpec, 0, len(table)+1)
	for i := range table {
		if before != nil && table[i].ID == before.ID {
			path = before.Path
			continue
		}
		specs = append(specs, table[i].Spec())
	}
	return ofRoute(gateway.CheckRoute(specs, in, path))
}

// roomFor checks that the actor's account may have so many more routes. The error is a validation
// error of the field.
func (s *Service) roomFor(ctx context.Context, tx RouteReader, actor *Actor, more int, field string) error {
	if more <= 0 {
		return nil
	}
	most := cmp.Or(s.cfg.MaxAccountRoutes, gateway.MaxAccountRoutes)
	have, err := tx.CountRoutes(ctx, actor.Account.ID)
	if err != nil || have+more <= most {
		return err
	}
	return fault.Invalid(field, "the account would have %d routes, and may have at most %d in all its gateways: fold routes with parameters or /*, or delete routes or gateways that are no longer used", have+more, most)
}

// DeleteRoute deletes a route and returns it as it was.
func (s *Service) DeleteRoute(ctx context.Context, actor *Actor, gatewayID, routeID string, m Match) (*gateway.Route, error) {
	unlock, err := s.lockTable(ctx, actor, gatewayID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return inTx(ctx, s, actor, func(w *work) (*gateway.Route, error) {
		g, r, err := route(ctx, w, actor, gatewayID, routeID)
		if err != nil {
			return nil, err
		}
		if err := require(m, r.Version); err != nil {
			return nil, err
		}
		return inForce(g, r), w.besideCanary(ctx, r, "deleted", func() error {
			if err := w.DeleteRoutes(ctx, gatewayID, []string{r.ID}); err != nil {
				return err
			}
			if err := w.audit(ctx, audit.RouteDelete, r.ID, gatewayID, routeDiff(r, nil)); err != nil {
				return err
			}
			return w.routeChanged(ctx, r)
		})
	})
}
