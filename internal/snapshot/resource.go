package snapshot

import (
	"strings"

	"github.com/keygate/keygate/internal/gateway"
)

// resourceSteps bounds the work of Unrouted: about a millisecond.
const resourceSteps = 20_000

// Unrouted returns those resources, written as in scopes, at or below which there is no route of
// the gateway, or, if gatewayID is "", of any gateway of the account. In doubt it assumes a route:
// for a gateway that is not in force, and beyond a bounded number of gateways and templates.
func (f *Follower) Unrouted(accountID, gatewayID string, resources []string) []string {
	s := f.Current()
	var gateways []*Gateway
	if gatewayID != "" {
		g := s.GatewayByID(gatewayID)
		if g == nil || g.AccountID != accountID {
			return nil
		}
		gateways = []*Gateway{g}
	} else {
		gateways = s.gatewaysOf(accountID)
	}
	steps := resourceSteps
	var unrouted []string
	for _, resource := range resources {
		path := "/" + gateway.NormalizePath(nil, resource)
		_, _, encoded := gateway.InspectRequestPath(path)
		if !reaches(gateways, path, encoded, &steps) {
			unrouted = append(unrouted, resource)
		}
	}
	return unrouted
}

// Unmatched returns those paths of a plan's limit that match no route of the gateway: the path of a route, or
// "/prefix/*" for every path at or below a prefix. In doubt it assumes a route: for a gateway that is not in force, and
// for paths that differ from that of a route in the names of parameters alone. Its cost does not depend on the number of
// routes.
func (f *Follower) Unmatched(accountID, gatewayID string, paths []string) []string {
	g := f.Current().GatewayByID(gatewayID)
	if g == nil || g.AccountID != accountID {
		return nil
	}
	var unmatched []string
	for _, path := range paths {
		template, err := gateway.ParseTemplate(path)
		if err != nil {
			continue
		}
		if matched := g.tree.Get(template) != nil || strings.HasSuffix(path, "/*") && g.tree.Continues(template); !matched {
			unmatched = append(unmatched, path)
		}
	}
	return unmatched
}

// reaches reports whether a route of the gateways lies at or below path. encoded is set if
// path has an encoded slash, which only some gateways allow.
func reaches(gateways []*Gateway, path string, encoded bool, steps *int) bool {
	for _, g := range gateways {
		if *steps--; (g.EncodedSlashes || !encoded) && g.tree.Reaches(path, steps) {
			return true
		}
	}
	return false
}

// gatewaysOf returns the gateways of an account, in no particular order.
func (s *Snapshot) gatewaysOf(accountID string) []*Gateway {
	s.indexAccounts.Do(func() {
		s.byAccount = map[string][]*Gateway{}
		for _, g := range s.gateways {
			s.byAccount[g.AccountID] = append(s.byAccount[g.AccountID], g)
		}
	})
	return s.byAccount[accountID]
}
