package snapshot

import (
	"strings"

	"github.com/keygate/keygate/internal/gateway"
)

// Bounds of Nearest.
const (
	nearestRoutes = 3     // that it returns
	nearestLooks  = 2_000 // routes of a gateway that it compares, in addition to those that the tree finds
)

// Nearest returns the routes of a gateway that come nearest to a request for which it has none, and why they do not
// match, the nearest first. known is false if the gateway is not in force, or not the account's. In a gateway of very
// many routes it compares a part of them.
func (f *Follower) Nearest(accountID, gatewayID, method, path string) (near []gateway.NearRoute, hostname string, known bool) {
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
		node, _ := g.Find(other)
		for _, r := range node.all() {
			n.Look(r.Path, r.Methods())
		}
	}
	looks := 0
	for _, shard := range g.routes.shards {
		for _, r := range shard {
			if looks++; looks > nearestLooks {
				break
			}
			n.Look(r.Path, r.Methods())
		}
	}
	return n.Nearest(nearestRoutes), g.hostname, true
}
