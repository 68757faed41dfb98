package snapshot

import (
	"strings"

	"github.com/keygate/keygate/internal/gateway"
)

// nearestRoutes is how many routes Nearest returns at most.
const nearestRoutes = 3

// Nearest returns the routes of a gateway that come nearest to a request for which it has none, and why they do not
// match, the nearest first. known is false if the gateway is not in force, or not the account's. In a gateway of more
// than looks routes it compares so many of them, and those that the tree finds within some steps for each.
func (f *Follower) Nearest(accountID, gatewayID, method, path string, looks int) (near []gateway.NearRoute, hostname string, known bool) {
	g := f.Current().GatewayByID(gatewayID)
	if g == nil || g.AccountID != accountID {
		return nil, "", false
	}
	path = gateway.NormalizePath(nil, path)
	n := gateway.NewNearness(method, path)
	slashed := path + "/"
	if strings.HasSuffix(path, "/") {
		slashed = path[:len(path)-1]
	}
	for _, other := range []string{path, slashed, strings.ToLower(path)} {
		node, _ := g.tree.Search(other, 4*looks)
		for _, r := range node.all() {
			n.Look(r.Path, r.methods.Value())
		}
	}
	for _, shard := range g.routes.shards {
		for _, r := range shard {
			if looks == 0 {
				return n.Nearest(nearestRoutes), g.hostname, true
			}
			looks--
			n.Look(r.Path, r.methods.Value())
		}
	}
	return n.Nearest(nearestRoutes), g.hostname, true
}
