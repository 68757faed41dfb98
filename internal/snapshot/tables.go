package snapshot

import (
	"encoding/binary"
	"iter"
	"slices"

	"github.com/keygate/keygate/internal/id"
)

// routeTable finds routes by identifier. It is immutable; a change of one route copies one shard
// and the list of shards.
type routeTable struct {
	shards [][]*Route // a power of two, or none
	size   int
}

// A new table has about shardRoutes routes in a shard, and grows when it has maxShardRoutes.
const (
	shardRoutes    = 16
	maxShardRoutes = 64
)

// newRouteTable returns a table for n routes, to which the caller adds them.
func newRouteTable(n int) routeTable {
	shards := 1
	for shards*shardRoutes < n {
		shards *= 2
	}
	return routeTable{shards: make([][]*Route, shards)}
}

// shard returns the index of the shard of a route. An identifier ends in random bytes.
func (t *routeTable) shard(u [16]byte) int {
	return int(binary.BigEndian.Uint32(u[12:])) & (len(t.shards) - 1)
}

// add adds a route to a table that no one else uses yet.
func (t *routeTable) add(r *Route) {
	i := t.shard(r.UUID)
	t.shards[i] = append(t.shards[i], r)
	t.size++
}

// find returns the route, or nil.
func (t *routeTable) find(routeID string) *Route {
	u, ok := id.Parse(id.Route, routeID)
	if !ok {
		return nil
	}
	return t.byUUID(u)
}

// byUUID returns the route whose identifier encodes u, or nil.
func (t *routeTable) byUUID(u [16]byte) *Route {
	if t.size == 0 {
		return nil
	}
	for _, r := range t.shards[t.shard(u)] {
		if r.UUID == u {
			return r
		}
	}
	return nil
}

// with returns a table with the changed routes; nil removes one.
func (t *routeTable) with(changed map[string]*Route) routeTable {
	if t.size+len(changed) > maxShardRoutes*len(t.shards) {
		return t.grown(changed)
	}
	next := routeTable{shards: slices.Clone(t.shards), size: t.size}
	copied := map[int]bool{}
	for routeID, r := range changed {
		u, ok := id.Parse(id.Route, routeID)
		if !ok {
			continue
		}
		i := t.shard(u)
		if !copied[i] {
			next.shards[i], copied[i] = slices.Clone(next.shards[i]), true
		}
		before := len(next.shards[i])
		next.shards[i] = slices.DeleteFunc(next.shards[i], func(r *Route) bool { return r.UUID == u })
		if r != nil {
			next.shards[i] = append(next.shards[i], r)
		}
		next.size += len(next.shards[i]) - before
	}
	return next
}

// grown is with for a table of more shards.
func (t *routeTable) grown(changed map[string]*Route) routeTable {
	gone := map[[16]byte]bool{}
	next := newRouteTable(t.size + len(changed))
	for routeID, r := range changed {
		if u, ok := id.Parse(id.Route, routeID); ok {
			gone[u] = true
		}
		if r != nil {
			next.add(r)
		}
	}
	for r := range t.all() {
		if !gone[r.UUID] {
			next.add(r)
		}
	}
	return next
}

// all returns the routes, in no particular order.
func (t *routeTable) all() iter.Seq[*Route] {
	return func(yield func(*Route) bool) {
		for _, shard := range t.shards {
			for _, r := range shard {
				if !yield(r) {
					return
				}
			}
		}
	}
}
