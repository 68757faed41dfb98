package snapshot

import (
	"slices"
	"sync"
	"time"
)

// The access records of requests reach the sinks some milliseconds after the requests. So
// the paths of removed routes stay known for removedFor, at most maxRemoved of them.
const (
	removedFor = 10 * time.Second
	maxRemoved = 10_000
)

// removedRoutes holds the paths of routes that were removed a short time ago. The zero value
// is empty. It is safe for concurrent use.
type removedRoutes struct {
	mu    sync.Mutex
	paths map[string]removedRoute // by route ID
	order []string                // route IDs, oldest first
}

type removedRoute struct {
	path string
	at   int64 // nanoseconds of Instant.Mono
}

// add remembers the routes of old that now, its successor or nil, does not have.
func (r *removedRoutes) add(old, now *Gateway, mono int64) {
	if old == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, route := range old.routes {
		if now != nil && now.routes[id] != nil {
			continue
		}
		if _, again := r.paths[id]; again { // removed, restored by a rollback, and removed again
			continue
		}
		if r.paths == nil {
			r.paths = map[string]removedRoute{}
		}
		r.paths[id] = removedRoute{route.Path, mono}
		r.order = append(r.order, id)
	}
	drop := 0
	for drop < len(r.order) && (len(r.order)-drop > maxRemoved || mono-r.paths[r.order[drop]].at > int64(removedFor)) {
		delete(r.paths, r.order[drop])
		drop++
	}
	r.order = slices.Delete(r.order, 0, drop)
}

// path returns the path of a route, or "" if it was not removed within removedFor.
func (r *removedRoutes) path(routeID string, mono int64) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if found, ok := r.paths[routeID]; ok && mono-found.at <= int64(removedFor) {
		return found.path
	}
	return ""
}

// RoutePath returns the path of a route, also for some seconds after its removal: access
// records of its last requests may still be on their way. It returns "" if the route is
// unknown.
func (f *Follower) RoutePath(gatewayID, routeID string) string {
	if g := f.Current().GatewayByID(gatewayID); g != nil {
		if r := g.RouteByID(routeID); r != nil {
			return r.Path
		}
	}
	return f.removed.path(routeID, f.cfg.Now().Mono)
}
