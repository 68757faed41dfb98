package control

import (
	"context"
	"fmt"
	"strings"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/plan"
)

const (
	plansAtOnce    = 500
	namedUnmatched = 5 // paths that a warning names
)

// unmatchedWarnings returns a warning that names the paths in limits of the account's plans that match no route of a
// table, which is to be that of the gateway. There is none if all match.
func unmatchedWarnings(ctx context.Context, tx PlanReader, actor *Actor, gatewayID string, table []gateway.Route) ([]string, error) {
	var w wantedRoutes
	for after := ""; ; {
		plans, err := tx.Plans(ctx, actor.Account.ID, PlanFilter{}, Page{Limit: plansAtOnce, After: after})
		if err != nil {
			return nil, err
		}
		for i := range plans {
			w.want(gatewayID, &plans[i])
		}
		if len(plans) < plansAtOnce {
			break
		}
		after = plans[len(plans)-1].ID
	}
	w.find(table)
	return w.warnings(), nil
}

// wantedRoutes are the paths in limits of plans for which no route was found yet. Its size is bounded by that of the
// account's configuration.
type wantedRoutes struct {
	order []wantedRoute
	exact map[string]bool // as plan.Nameless returns them
	below map[string]bool // "/prefix" for "/prefix/*"
}

type wantedRoute struct{ plan, limit, path string }

// want adds the paths in p's limits that concern the gateway.
func (w *wantedRoutes) want(gatewayID string, p *plan.Plan) {
	for i := range p.Limits {
		l := &p.Limits[i]
		if l.GatewayID != gatewayID {
			continue
		}
		for _, path := range l.Routes {
			if w.exact == nil {
				w.exact, w.below = map[string]bool{}, map[string]bool{}
			}
			w.order = append(w.order, wantedRoute{p.Name, l.Name, path})
			nameless := plan.Nameless(path)
			if prefix, ok := strings.CutSuffix(nameless, "/*"); ok {
				w.below[prefix] = true
			} else {
				w.exact[nameless] = true
			}
		}
	}
}

// find removes the paths that match a route of table, as plan.Limit.Covers says.
func (w *wantedRoutes) find(table []gateway.Route) {
	for i := 0; i < len(table) && len(w.exact)+len(w.below) > 0; i++ {
		path := plan.Nameless(table[i].Path)
		delete(w.exact, path)
		delete(w.below, path)
		for at := 0; at < len(path) && len(w.below) > 0; at++ {
			if path[at] == '/' {
				delete(w.below, path[:at])
			}
		}
	}
}

func (w *wantedRoutes) warnings() []string {
	var named []string
	unmatched := 0
	for _, r := range w.order {
		nameless := plan.Nameless(r.path)
		prefix, wild := strings.CutSuffix(nameless, "/*")
		if wild && !w.below[prefix] || !wild && !w.exact[nameless] {
			continue
		}
		if unmatched++; unmatched <= namedUnmatched {
			named = append(named, fmt.Sprintf("%s of the limit %s.%s", r.path, r.plan, r.limit))
		}
	}
	if unmatched == 0 {
		return nil
	}
	if more := unmatched - len(named); more > 0 {
		named = append(named, fmt.Sprintf("%d more", more))
	}
	return []string{"no route of the gateway matches these routes of plans, whose limits do not apply to it then: " + strings.Join(named, ", ")}
}
