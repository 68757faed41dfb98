package control

import (
	"slices"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
)

// delta is what a document changes about a route table. A route is the same
// before and after if its path and methods are (contract, section 5); then it
// keeps its identity.
type delta struct {
	added     []gateway.Route
	removed   []gateway.Route
	changed   []gateway.Route // as they become: another limit or authentication
	unchanged int
	// moved are unchanged but for the kind of document that they stand in,
	// which is no difference to anyone who calls them.
	moved []gateway.Route
	table []gateway.Route // all that stand afterwards, in the document's order
}

func (d *delta) isEmpty() bool { return len(d.added)+len(d.removed)+len(d.changed) == 0 }

// deltaOf compares the routes in force with those of doc. A spec that
// carries no limit for a route leaves it the one that was set through the API.
func deltaOf(current []gateway.Route, doc *document, gatewayID string, now time.Time) delta {
	standing := make(map[string]*gateway.Route, len(current))
	for i := range current {
		standing[routeKey(&current[i])] = &current[i]
	}
	var d delta
	for _, r := range doc.table() {
		key := routeKey(&r)
		before := standing[key]
		delete(standing, key)
		if before == nil {
			r.ID, r.GatewayID, r.CreatedAt, r.Version = id.New(id.Route), gatewayID, now, 1
			d.added = append(d.added, r)
		} else {
			keepsLimit := doc.kind == gateway.SpecDocument && !doc.rollback && before.LimitByAPI && r.RateLimit.IsZero()
			r = d.place(*before, r, keepsLimit)
		}
		d.table = append(d.table, r)
	}
	for i := range current {
		if standing[routeKey(&current[i])] != nil {
			d.removed = append(d.removed, current[i])
		}
	}
	return d
}

// place puts into d what becomes of a route that stands before and after.
func (d *delta) place(before, r gateway.Route, keepsLimit bool) gateway.Route {
	after := before
	after.Auth, after.Source = r.Auth, r.Source
	if !keepsLimit {
		after.RateLimit, after.LimitByAPI = r.RateLimit, r.LimitByAPI
	}
	switch {
	case after.RateLimit != before.RateLimit || after.Auth != before.Auth:
		after.Version++
		d.changed = append(d.changed, after)
	case after.Source != before.Source || after.LimitByAPI != before.LimitByAPI:
		after.Version++
		d.moved = append(d.moved, after)
		d.unchanged++
	default:
		d.unchanged++
	}
	return after
}

// routeKey is equal for routes that are the same before and after a push.
func routeKey(r *gateway.Route) string { return r.Path + "\x00" + strings.Join(r.Methods, ",") }

func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

// routeChanges shows routes as the difference of a push does. The added ones of a dry
// run have no identity that would last.
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
