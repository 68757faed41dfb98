package control

import (
	"context"
	"slices"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
)

// Routes lists a gateway's routes, newest first.
func (s *Service) Routes(ctx context.Context, c *Caller, gatewayID string, p Page) ([]gateway.Route, error) {
	return read(ctx, s, func(tx ReadTx) ([]gateway.Route, error) {
		if _, err := tx.Gateway(ctx, c.Account.ID, gatewayID); err != nil {
			return nil, err
		}
		return tx.Routes(ctx, gatewayID, p)
	})
}

// Route returns one route.
func (s *Service) Route(ctx context.Context, c *Caller, gatewayID, routeID string) (*gateway.Route, error) {
	return read(ctx, s, func(tx ReadTx) (*gateway.Route, error) {
		return route(ctx, tx, c, gatewayID, routeID)
	})
}

func route(ctx context.Context, tx ReadTx, c *Caller, gatewayID, routeID string) (*gateway.Route, error) {
	if _, err := tx.Gateway(ctx, c.Account.ID, gatewayID); err != nil {
		return nil, err
	}
	return tx.Route(ctx, gatewayID, routeID)
}

// CreateRoute adds a route to the gateway. If another route already has one of its methods for the same
// pattern, the error is fault.ValidationFailed.
func (s *Service) CreateRoute(ctx context.Context, c *Caller, gatewayID string, in gateway.RouteSpec) (*gateway.Route, error) {
	if err := checkRoute(&in); err != nil {
		return nil, err
	}
	return inTx(ctx, s, c, func(w *work) (*gateway.Route, error) {
		if _, err := w.Gateway(ctx, c.Account.ID, gatewayID); err != nil {
			return nil, err
		}
		table, err := w.RouteTable(ctx, gatewayID)
		if err != nil {
			return nil, err
		}
		if err := ofRoute(gateway.CheckTable(append(specsOf(table), in))); err != nil {
			return nil, err
		}
		r := &gateway.Route{
			ID: id.New(id.Route), GatewayID: gatewayID, Path: in.Path, Methods: in.Methods,
			RateLimit: in.RateLimit, LimitByAPI: !in.RateLimit.IsZero(), Auth: in.Auth,
			Source: gateway.API, CreatedAt: w.now, Version: 1,
		}
		if err := w.InsertRoutes(ctx, []gateway.Route{*r}); err != nil {
			return nil, err
		}
		if err := w.audit(ctx, audit.RouteCreate, r.ID, gatewayID, routeDiff(nil, r)); err != nil {
			return nil, err
		}
		return r, w.changed(ctx, snapshot.GatewayChange, gatewayID)
	})
}

// checkRoute validates one route and brings it into the stored form.
func checkRoute(in *gateway.RouteSpec) error {
	in.Methods = slices.Clone(in.Methods)
	if err := ofRoute(gateway.CheckTable([]gateway.RouteSpec{*in})); err != nil {
		return err
	}
	slices.Sort(in.Methods)
	switch in.Auth {
	case "":
		in.Auth = gateway.AuthKey
	case gateway.AuthKey, gateway.AuthNone:
	default:
		return fault.Invalid("auth", "must be key or none")
	}
	if in.RateLimit.IsZero() {
		return nil
	}
	return fault.Prefixed("rate_limit", in.RateLimit.Validate())
}

// ofRoute removes the index of the route from an error of gateway.CheckTable.
func ofRoute(err error) error {
	if _, bad, ok := gateway.TableRow(err); ok {
		return bad
	}
	return err
}

func specsOf(routes []gateway.Route) []gateway.RouteSpec {
	specs := make([]gateway.RouteSpec, 0, len(routes)+1)
	for _, r := range routes {
		specs = append(specs, gateway.RouteSpec{Path: r.Path, Methods: r.Methods, RateLimit: r.RateLimit, Auth: r.Auth})
	}
	return specs
}

// UpdateRouteLimit changes the fields in p of a route's limit. A limit without fields is
// removed. A spec push keeps the limit that is set here, unless the spec has one.
func (s *Service) UpdateRouteLimit(ctx context.Context, c *Caller, gatewayID, routeID string, p LimitPatch, m Match) (*gateway.Route, error) {
	edit, err := p.read()
	if err != nil {
		return nil, err
	}
	return inTx(ctx, s, c, func(w *work) (*gateway.Route, error) {
		before, err := route(ctx, w, c, gatewayID, routeID)
		if err != nil {
			return nil, err
		}
		r := *before
		if r.RateLimit, err = edit(before.RateLimit); err != nil {
			return nil, err
		}
		if err := require(m, before.Version); err != nil {
			return nil, err
		}
		if r.RateLimit == before.RateLimit {
			return before, w.claimLimit(ctx, before, p)
		}
		r.LimitByAPI, r.Version = true, before.Version+1
		if err := w.UpdateRoutes(ctx, []gateway.Route{r}); err != nil {
			return nil, err
		}
		if err := w.audit(ctx, audit.RouteUpdate, r.ID, gatewayID, routeDiff(before, &r)); err != nil {
			return nil, err
		}
		return &r, w.changed(ctx, snapshot.GatewayChange, gatewayID)
	})
}

// claimLimit records that a limit from a document was set to the same values through the API, so that
// a later document without it leaves it alone. No user can see the difference.
func (w *work) claimLimit(ctx context.Context, r *gateway.Route, p LimitPatch) error {
	if r.LimitByAPI || r.RateLimit.IsZero() || p.RateLimit.Value == (RateLimitPatch{}) {
		return nil
	}
	claimed := *r
	claimed.LimitByAPI = true
	return w.UpdateRoutes(ctx, []gateway.Route{claimed})
}

// read validates each field and returns a function that applies p to a limit.
func (p LimitPatch) read() (func(ratelimit.Config) (ratelimit.Config, error), error) {
	if !p.RateLimit.Present {
		return nil, fault.Invalid("rate_limit", "is required: give the fields to change, or null for no limit")
	}
	if p.RateLimit.Null {
		return func(ratelimit.Config) (ratelimit.Config, error) { return ratelimit.Config{}, nil }, nil
	}
	var edit ratelimit.Config
	members := p.RateLimit.Value
	for _, m := range []struct {
		name   string
		member *Optional[string]
		to     *ratelimit.Rate
	}{
		{"sustained", &members.Sustained, &edit.Sustained},
		{"burst", &members.Burst, &edit.Burst},
		{"daily", &members.Daily, &edit.Daily},
	} {
		if !m.member.Present || m.member.Null {
			continue
		}
		rate, err := ratelimit.ParseRate(m.member.Value)
		if err != nil {
			return nil, fault.Prefixed("rate_limit."+m.name, err)
		}
		*m.to = rate
	}
	if members.Per.Present && !members.Per.Null {
		if edit.Per = members.Per.Value; edit.Per != ratelimit.PerKey {
			return nil, fault.Invalid("rate_limit.per", `must be "key", or null for one limit that all callers share`)
		}
	}
	if !edit.Daily.IsZero() {
		if err := (ratelimit.Config{Daily: edit.Daily}).Validate(); err != nil {
			return nil, fault.Prefixed("rate_limit", err)
		}
	}
	return func(c ratelimit.Config) (ratelimit.Config, error) {
		set(&c.Sustained, members.Sustained.Present, edit.Sustained)
		set(&c.Burst, members.Burst.Present, edit.Burst)
		set(&c.Daily, members.Daily.Present, edit.Daily)
		set(&c.Per, members.Per.Present, edit.Per)
		if !c.HasBucket() && c.Daily.IsZero() && edit.Per == "" {
			c.Per = "" // there is nothing left to count per key
		}
		if c.IsZero() {
			return c, nil
		}
		return c, fault.Prefixed("rate_limit", c.Validate())
	}, nil
}

func set[T any](to *T, present bool, value T) {
	if present {
		*to = value
	}
}

// DeleteRoute deletes a route and returns it as it was.
func (s *Service) DeleteRoute(ctx context.Context, c *Caller, gatewayID, routeID string, m Match) (*gateway.Route, error) {
	return inTx(ctx, s, c, func(w *work) (*gateway.Route, error) {
		r, err := route(ctx, w, c, gatewayID, routeID)
		if err != nil {
			return nil, err
		}
		if err := require(m, r.Version); err != nil {
			return nil, err
		}
		if err := w.DeleteRoutes(ctx, gatewayID, []string{r.ID}); err != nil {
			return nil, err
		}
		if err := w.audit(ctx, audit.RouteDelete, r.ID, gatewayID, routeDiff(r, nil)); err != nil {
			return nil, err
		}
		return r, w.changed(ctx, snapshot.GatewayChange, gatewayID)
	})
}
