package snapshot

import "iter"

// routeTable finds routes by identifier. It is immutable; a change of one route copies one shard
// and the list of shards.
type routeTable struct {
	shards []map[string]*Route // a power of two, or none
	size   int
}

// A new table has about shardRoutes routes in a shard, and grows when it has maxShardRoutes.
const (
	shardRoutes    = 32
	maxShardRoutes = 256
)

// newRouteTable returns a table for n routes, to which the caller adds them.
func newRouteTable(n int) routeTable {
	shards := 1
	for shards*shardRoutes < n {
		shards *= 2
	}
	return routeTable{shards: make([]map[string]*Route, shards)}
}

// shard returns the index of the shard of a route. An identifier ends in random characters.
func (t *routeTable) shard(routeID string) int {
	h := uint32(2166136261)
	for i := max(0, len(routeID)-6); i < len(routeID); i++ {
		h = (h ^ uint32(routeID[i])) * 16777619 // FNV-1a
	}
	return int(h^h>>16) & (len(t.shards) - 1)
}

// add adds a route to a table that no one else uses yet.
func (t *routeTable) add(r *Route) {
	i := t.shard(r.ID)
	if t.shards[i] == nil {
		t.shards[i] = make(map[string]*Route)
	}
	t.shards[i][r.ID] = r
	t.size++
}

// find returns the route, or nil.
func (t *routeTable) find(routeID string) *Route {
	if t.size == 0 {
		return nil
	}
	return t.shards[t.shard(routeID)][routeID]
}

// with returns a table with the changed routes; nil removes one.
func (t *routeTable) with(changed map[string]*Route) routeTable {
	if t.size+len(changed) > maxShardRoutes*len(t.shards) {
		grown := newRouteTable(t.size + len(changed))
		for r := range t.all() {
			if _, ok := changed[r.ID]; !ok {
				grown.add(r)
			}
		}
		for _, r := range changed {
			if r != nil {
				grown.add(r)
			}
		}
		return grown
	}
	next := routeTable{shards: append([]map[string]*Route(nil), t.shards...), size: t.size}
	copied := map[int]bool{}
	for id, r := range changed {
		i := t.shard(id)
		if !copied[i] {
			own := make(map[string]*Route, len(next.shards[i])+1)
			for id, r := range next.shards[i] {
				own[id] = r
			}
			next.shards[i], copied[i] = own, true
		}
		if next.shards[i][id] != nil {
			next.size--
			delete(next.shards[i], id)
		}
		if r != nil {
			next.shards[i][id] = r
			next.size++
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
