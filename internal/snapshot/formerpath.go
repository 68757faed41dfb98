package snapshot

import (
	"slices"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/ratelimit"
)

// The access records of requests reach the sinks some milliseconds after the requests. So
// the former paths of routes that were removed or moved stay known for formerFor, at most
// maxFormer of them.
const (
	formerFor = 10 * time.Second
	maxFormer = 10_000
)

// formerPaths holds the paths that routes had until a short time ago. The zero value is
// empty. It is safe for concurrent use.
type formerPaths struct {
	mu    sync.Mutex
	paths map[string][]formerPath // by route ID, oldest first
	order []string                // the route ID of each path, oldest first
}

type formerPath struct {
	path  string
	until ratelimit.Instant
}

func (p *formerPath) known(now ratelimit.Instant) bool {
	return now.Mono-p.until.Mono <= int64(formerFor)
}

// add remembers the paths of the routes of changes that are removed or moved.
func (f *formerPaths) add(changes []routeChange, now ratelimit.Instant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range changes {
		if c.was == nil || c.now != nil && c.now.Path == c.was.Path {
			continue
		}
		if f.paths == nil {
			f.paths = map[string][]formerPath{}
		}
		routeID := c.was.ID()
		f.paths[routeID] = append(f.paths[routeID], formerPath{c.was.Path, now})
		f.order = append(f.order, routeID)
	}
	drop := 0
	for drop < len(f.order) && (len(f.order)-drop > maxFormer || !f.paths[f.order[drop]][0].known(now)) {
		id := f.order[drop]
		if f.paths[id] = f.paths[id][1:]; len(f.paths[id]) == 0 {
			delete(f.paths, id)
		}
		drop++
	}
	f.order = slices.Delete(f.order, 0, drop)
}

// at returns the former path of a route at a time before now (both in microseconds since 1970), or
// "" if the route had no former path then. last is the latest former path, or "".
func (f *formerPaths) at(routeID string, micros int64, now ratelimit.Instant) (path, last string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.paths[routeID] {
		p := &f.paths[routeID][i]
		if !p.known(now) {
			continue
		}
		if last = p.path; path == "" && micros < p.until.Wall/1000 {
			path = p.path
		}
	}
	return path, last
}

// RoutePath returns the path that a route had at a time (microseconds since 1970): the start of a
// request whose access record may still be on its way. Former paths are known for some seconds, as
// is the last path of a route that was removed. It returns "" if the route is unknown.
func (f *Follower) RoutePath(gatewayID, routeID string, micros int64) string {
	path, last := f.former.at(routeID, micros, f.cfg.Now())
	if path != "" {
		return path
	}
	if g := f.Current().GatewayByID(gatewayID); g != nil {
		if r := g.RouteByID(routeID); r != nil {
			return r.Path
		}
	}
	return last
}
