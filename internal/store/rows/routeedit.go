package rows

import (
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// Page is a page of routes that is being changed.
type Page struct {
	N      int64 // its row; 0 for a new page
	First  string
	Next   string // the first identifier of the next page; "" for the last page
	Routes []gateway.Route
}

// Edit returns the routes of a page with one change, whose number is i.
type Edit func(page []gateway.Route, i int) ([]gateway.Route, error)

// editPages calls edit for each of the routes with the page that it belongs to, in the order of their
// identifiers. load returns the page that a route belongs to, and put stores a changed page. grown is
// the number of routes by which the table grows, and bytes the number of gateway.RouteBytes. All pages are read before one is
// stored, so that the reads of a transaction come before its writes.
func editPages(ids []string, load func(routeID string) (Page, error), edit Edit, put func(Page) error) (grown int, bytes int64, err error) {
	order := make([]int, len(ids))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return strings.Compare(ids[a], ids[b]) })
	var changed []Page
	for len(order) > 0 {
		p, err := load(ids[order[0]])
		if err != nil {
			return 0, 0, err
		}
		before, size := len(p.Routes), gateway.RouteBytes(p.Routes)
		for len(order) > 0 && (p.Next == "" || ids[order[0]] < p.Next) {
			if p.Routes, err = edit(p.Routes, order[0]); err != nil {
				return 0, 0, err
			}
			order = order[1:]
		}
		grown, bytes = grown+len(p.Routes)-before, bytes+gateway.RouteBytes(p.Routes)-size
		changed = append(changed, p)
	}
	for _, p := range changed {
		if err := put(p); err != nil {
			return 0, 0, err
		}
	}
	return grown, bytes, nil
}

// findRoute returns where a route is in a page, or would be.
func findRoute(page []gateway.Route, routeID string) (int, bool) {
	return slices.BinarySearchFunc(page, routeID, func(r gateway.Route, id string) int { return strings.Compare(r.ID, id) })
}

// inserting adds the routes of a list. A route that exists already is a fault.Conflict.
func inserting(list []gateway.Route) Edit {
	return func(page []gateway.Route, i int) ([]gateway.Route, error) {
		at, found := findRoute(page, list[i].ID)
		if found {
			return nil, &fault.Error{Code: fault.Conflict, Message: ConflictMessage("")}
		}
		return slices.Insert(page, at, list[i]), nil
	}
}

// replacing replaces the routes of a list, except for the time of their creation.
func replacing(list []gateway.Route) Edit {
	return func(page []gateway.Route, i int) ([]gateway.Route, error) {
		at, found := findRoute(page, list[i].ID)
		if !found {
			return nil, fault.Missing("route")
		}
		created := page[at].CreatedAt
		page[at] = list[i]
		page[at].CreatedAt = created
		return page, nil
	}
}

// deleting removes routes.
func deleting(ids []string) Edit {
	return func(page []gateway.Route, i int) ([]gateway.Route, error) {
		at, found := findRoute(page, ids[i])
		if !found {
			return nil, fault.Missing("route")
		}
		return slices.Delete(page, at, at+1), nil
	}
}

// routeIDs returns the identifiers of routes.
func routeIDs(routes []gateway.Route) []string {
	ids := make([]string, len(routes))
	for i := range routes {
		ids[i] = routes[i].ID
	}
	return ids
}

// byGateway divides routes by their gateway, in the order in which the gateways occur first.
func byGateway(routes []gateway.Route) [][]gateway.Route {
	at := map[string]int{}
	var groups [][]gateway.Route
	for i := range routes {
		g, known := at[routes[i].GatewayID]
		if !known {
			g = len(groups)
			at[routes[i].GatewayID] = g
			groups = append(groups, nil)
		}
		groups[g] = append(groups[g], routes[i])
	}
	return groups
}

// pageOf returns the routes of a page below after, from the last to the first, and at most limit.
func pageOf(list, page []gateway.Route, after string, limit int) []gateway.Route {
	for i := range slices.Backward(page) {
		if page[i].ID < after && len(list) < limit {
			list = append(list, page[i])
		}
	}
	return list
}
