package control

import (
	"cmp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
)

// delta is the difference between two route tables. Routes are the same before and after if their
// paths and methods are equal (contract, section 5); such a route keeps its identifier.
type delta struct {
	added     []gateway.Route
	removed   []gateway.Route
	changed   []gateway.Route  // with the new limit, authentication, upstream, split or handling
	replaced  []*gateway.Route // what changed was before
	unchanged int
	table     []gateway.Route // the new table, in the document's order
	costs     costComparer

	authBefore, authAfter gateway.Auth // of routes that do not say it
}

func (d *delta) isEmpty() bool { return len(d.added)+len(d.removed)+len(d.changed) == 0 }

// yieldEvery is the number of routes after which a long comparison lets other goroutines run.
const yieldEvery = 256

// deltaOf compares the current routes with the routes of doc. A limit that was set through the API
// stays if doc is a spec without a limit for the route, and so do a cost and a bound of requests in flight. The gateway is
// before, and will be after.
func deltaOf(current []gateway.Route, doc *document, before, after *gateway.Gateway, now time.Time) delta {
	remaining := make(map[string]*gateway.Route, len(current))
	for i := range current {
		remaining[routeKey(&current[i])] = &current[i]
	}
	d := delta{authBefore: before.AuthOf(""), authAfter: after.AuthOf("")}
	for i, r := range doc.table() {
		if i%yieldEvery == 0 {
			runtime.Gosched()
		}
		key := routeKey(&r)
		was := remaining[key]
		delete(remaining, key)
		if was == nil {
			r.ID, r.GatewayID, r.CreatedAt, r.Version = id.NewAt(id.Route, now), after.ID, now, 1
			d.added = append(d.added, r)
		} else {
			var keep kept
			if doc.kind == gateway.SpecDocument && !doc.rollback {
				keep = kept{
					limit: was.LimitByAPI && r.RateLimit.IsZero(), cost: was.CostByAPI && len(r.Cost) == 0,
					concurrency: was.ConcurrencyByAPI && r.Concurrency.IsZero(),
				}
			}
			r = d.update(was, r, keep)
		}
		d.table = append(d.table, r)
	}
	for i := range current {
		if remaining[routeKey(&current[i])] != nil {
			d.removed = append(d.removed, current[i])
		}
	}
	return d
}

// kept says what of a route stays as it was set through the API.
type kept struct{ limit, cost, concurrency bool }

// update adds a route that exists before and after to d, and returns its new state.
func (d *delta) update(was *gateway.Route, r gateway.Route, keep kept) gateway.Route {
	before := *was
	after := before
	after.Auth, after.Source, after.Upstream, after.Split, after.Handling = r.Auth, r.Source, r.Upstream, r.Split, r.Handling
	if !keep.limit {
		after.RateLimit, after.LimitByAPI = r.RateLimit, r.LimitByAPI
	}
	if !keep.concurrency {
		after.Concurrency, after.ConcurrencyByAPI = r.Concurrency, r.ConcurrencyByAPI
	}
	costs := false
	if !keep.cost {
		if costs = !d.costs.same(before.Cost, r.Cost); costs {
			after.Cost = r.Cost
		}
		after.CostByAPI = r.CostByAPI
	}
	switch {
	case costs || after.RateLimit != before.RateLimit || after.Concurrency != before.Concurrency || d.changesAuth(was, &r) || after.Upstream != before.Upstream || !after.Split.Equal(before.Split) || !after.Handling.Equal(before.Handling):
		after.Version++
		d.changed, d.replaced = append(d.changed, after), append(d.replaced, was)
	case after.Source != before.Source || after.Auth != before.Auth || after.LimitByAPI != before.LimitByAPI || after.CostByAPI != before.CostByAPI || after.ConcurrencyByAPI != before.ConcurrencyByAPI:
		// For its callers the route is unchanged: it only comes from another kind of document now, or
		// leaves out what the gateway says.
		after.Version++
		d.unchanged++
	default:
		d.unchanged++
	}
	return after
}

// changesAuth reports whether a route says another thing about its callers than before. That it leaves out what the gateway
// says anyway is no change, since earlier versions have stored "key" for that; that it says so is one, because it then keeps
// it whatever becomes of the gateway.
func (d *delta) changesAuth(before, after *gateway.Route) bool {
	was, is := d.auths(before, after)
	return before.Auth != after.Auth && (was != is || after.Auth != "")
}

// auths returns what a route required before, and what it requires after.
func (d *delta) auths(before, after *gateway.Route) (was, is gateway.Auth) {
	return cmp.Or(before.Auth, d.authBefore), cmp.Or(after.Auth, d.authAfter)
}

// routeKey returns a key that is equal for routes with the same path and methods.
func routeKey(r *gateway.Route) string { return r.Path + "\x00" + strings.Join(r.Methods, ",") }

func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

// changes returns the routes that changed, each with what changed about it.
func (d *delta) changes() []RouteChange {
	list := routeChanges(d.changed, true)
	shown := shownCosts{}
	for i := range list {
		before, after := d.replaced[i], &d.changed[i]
		if before.RateLimit != after.RateLimit {
			list[i].Changes = append(list[i].Changes, SettingChange{"rate_limit", limitOrNil(before.RateLimit), limitOrNil(after.RateLimit)})
		}
		if before.Concurrency != after.Concurrency {
			list[i].Changes = append(list[i].Changes, SettingChange{"concurrency", concurrencyOrNil(before.Concurrency), concurrencyOrNil(after.Concurrency)})
		}
		if !d.costs.same(before.Cost, after.Cost) {
			list[i].Changes = append(list[i].Changes, SettingChange{"cost", shown.of(before.Cost), shown.of(after.Cost)})
		}
		if d.changesAuth(before, after) {
			was, is := d.auths(before, after)
			if was == is {
				was = "" // the gateway has said it
			}
			list[i].Changes = append(list[i].Changes, SettingChange{"auth", orNil(string(was)), string(is)})
		}
		if before.Upstream != after.Upstream {
			list[i].Changes = append(list[i].Changes, SettingChange{"upstream", upstreamName(before), upstreamName(after)})
		}
		if !before.Split.Equal(after.Split) {
			list[i].Changes = append(list[i].Changes, SettingChange{"split", routeSplitOrNil(before.Split), routeSplitOrNil(after.Split)})
		}
		for _, name := range before.Handling.Differs(after.Handling) {
			list[i].Changes = append(list[i].Changes, SettingChange{name, before.Handling.Value(name), after.Handling.Value(name)})
		}
	}
	return list
}

// routeChanges converts routes for a PushResult. Routes that a dry run would add have no
// permanent identifier yet, so it is left out unless withID is set.
func routeChanges(routes []gateway.Route, withID bool) []RouteChange {
	list := make([]RouteChange, len(routes))
	for i, r := range routes {
		list[i] = RouteChange{Path: r.Path, Methods: r.Methods}
		if withID {
			list[i].RouteID = r.ID
		}
	}
	return list
}
