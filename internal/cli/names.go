package cli

import (
	"context"
	"strings"

	"github.com/keygate/keygate/client"
)

// names looks up the names of identifiers on the server, once each, for output that
// people read. An identifier has no name if the key may not read the record or if
// the record was deleted.
type names struct {
	ctx      context.Context //nolint:containedctx // it lives for one command
	api      *client.Client
	gateways map[string]string
	routes   map[string]string
	listed   map[string]bool // gateways whose routes were listed
	keys     map[string]string
	owners   map[string]string
}

func (a *app) namesOf(ctx context.Context, api *client.Client) *names {
	return &names{ctx: ctx, api: api, routes: map[string]string{}, listed: map[string]bool{}, keys: map[string]string{}, owners: map[string]string{}}
}

func (n *names) gateway(id string) string {
	if id == "" {
		return ""
	}
	n.listGateways()
	return n.gateways[id]
}

func (n *names) listGateways() {
	if n.gateways != nil {
		return
	}
	n.gateways = map[string]string{}
	for g, err := range n.api.Gateways(n.ctx, client.ListOptions{}) {
		if err != nil {
			return
		}
		n.gateways[g.GatewayID] = g.Name
	}
}

// route returns a route's methods and path. gatewayID may be "".
func (n *names) route(gatewayID, id string) string {
	if id == "" {
		return ""
	}
	if gatewayID != "" {
		n.listRoutes(gatewayID)
		return n.routes[id]
	}
	n.listGateways()
	for g := range n.gateways {
		if name, known := n.routes[id]; known {
			return name
		}
		n.listRoutes(g)
	}
	return n.routes[id]
}

func (n *names) listRoutes(gatewayID string) {
	if n.listed[gatewayID] {
		return
	}
	n.listed[gatewayID] = true
	for r, err := range n.api.Routes(n.ctx, gatewayID, client.ListOptions{}) {
		if err != nil {
			return
		}
		n.routes[r.RouteID] = strings.Join(r.Methods, ",") + " " + r.Path
	}
}

// maxKeys is how many names of keys, and of owners, are looked up. Each takes a call.
const maxKeys = 50

// key returns a key's name and owner.
func (n *names) key(id string) string {
	name, known := n.keys[id]
	if known || id == "" || len(n.keys) >= maxKeys {
		return name
	}
	if k, err := n.api.Key(n.ctx, id); err == nil {
		if name = k.Name; str(k.Owner) != "" {
			name += ", " + *k.Owner
		}
	}
	n.keys[id] = name
	return name
}

// owner returns an owner's external ID.
func (n *names) owner(id string) string {
	name, known := n.owners[id]
	if known || id == "" || len(n.owners) >= maxKeys {
		return name
	}
	if o, err := n.api.Owner(n.ctx, id); err == nil {
		name = "owner " + o.ExternalID
	}
	n.owners[id] = name
	return name
}
