package snapshot

import (
	"net/netip"
	"slices"
	"strings"
	"unique"

	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Route is a compiled route. It is immutable, and compact: a gateway may have 100,000.
type Route struct {
	limits  *routeLimits // nil if there are none
	methods unique.Handle[string]
	cost    *cost.Program // nil if requests cost nothing but themselves
	// upstream is the name of the upstream; the zero Handle for the default one.
	upstream unique.Handle[string]
	split    *Split    // nil for that of the gateway
	handling *Handling // nil for none

	UUID [16]byte // the bytes that the identifier encodes, or zeros if it is not valid
	Path string   // the template as stored
	auth auth
}

// auth is what a route requires, in a byte. The zero value is what the gateway says.
type auth uint8

const (
	authOfGateway auth = iota
	authKey
	authToken
	authAny
	authNone
	auths // their number
)

// compileAuth returns the compiled form of what a route or a gateway says; "" is authOfGateway.
func compileAuth(a gateway.Auth) auth {
	switch a {
	case "":
		return authOfGateway
	case gateway.AuthToken:
		return authToken
	case gateway.AuthAny:
		return authAny
	case gateway.AuthNone:
		return authNone
	default:
		return authKey
	}
}

// compileRoute returns the compiled form of a route. It shares no memory with s, whose strings may be parts of a page of
// routes.
func compileRoute(s *gateway.Route, shared *sharedParts) *Route {
	r := &Route{Path: strings.Clone(s.Path), methods: unique.Make(strings.Join(s.Methods, " ")), auth: compileAuth(s.Auth)}
	r.UUID, _ = id.Parse(id.Route, s.ID)
	if config := (limitConfig{s.RateLimit, s.Concurrency}); config != (limitConfig{}) {
		r.limits = &routeLimits{config: unique.Make(config)}
	}
	r.cost, r.split = shared.costs.of(s.Cost), compileSplit(s.Split, &shared.splits)
	r.handling = shared.handlings.of(s.Handling)
	if s.Upstream != "" && s.Upstream != gateway.DefaultUpstream {
		r.upstream = unique.Make(strings.Clone(s.Upstream))
	}
	return r
}

// AllowsAddress reports whether the lists of the route allow a client's address.
func (r *Route) AllowsAddress(client netip.Addr) bool {
	return r.handling == nil || r.handling.addresses.Allows(client)
}

// ID returns the route's identifier.
func (r *Route) ID() string { return id.Format(id.Route, r.UUID) }

// Methods returns the methods as stored.
func (r *Route) Methods() []string { return strings.Split(r.methods.Value(), " ") }

// Cost returns what a request costs beside itself, or nil if it costs nothing.
func (r *Route) Cost() *cost.Program { return r.cost }

// Handling returns what the route does with its requests beside forwarding them as they came; nil for nothing else.
func (r *Route) Handling() *Handling { return r.handling }

// lists reports whether the route has the method.
func (r *Route) lists(method string) bool {
	methods := r.methods.Value()
	if methods == method {
		return true
	}
	for len(methods) > len(method) {
		if methods[len(method)] == ' ' && methods[:len(method)] == method {
			return true
		}
		i := strings.IndexByte(methods, ' ')
		if i < 0 {
			return false
		}
		if methods = methods[i+1:]; methods == method {
			return true
		}
	}
	return false
}

// AddLimits adds the limits of the route, for the key with the given bucket identifier and the client's address, to c.
// Callers without a key share the zero bucket. It reports false if the account's memory for limits with per: key or
// per: address has no room for the key or address: then such a limit is left out. It allocates only for the first
// request of a key or address on a route with limits for each.
func (r *Route) AddLimits(c *ratelimit.Charge, bucket [16]byte, client clientip.Group) bool {
	l := r.limits
	fits := true
	switch {
	case l == nil:
		return true
	case l.bucket != nil:
		c.Add(ratelimit.Limit{Scope: ratelimit.RouteScope, Params: l.params, Bucket: l.bucket}, 1)
	case l.buckets != nil:
		p, b := l.bucketOf(bucket, client)
		if fits = b != nil; fits {
			c.Add(ratelimit.Limit{Scope: ratelimit.RouteScope, Params: p, Bucket: b}, 1)
		}
	}
	switch {
	case l.daily != nil:
		c.Add(ratelimit.Limit{Scope: ratelimit.DailyScope, Daily: l.daily}, 1)
	case l.dailies != nil:
		d := l.dailies.Daily(bucket)
		if d == nil {
			return false
		}
		c.Add(ratelimit.Limit{Scope: ratelimit.DailyScope, Daily: d}, 1)
	}
	if slots, ok := l.slotsOf(r, bucket); slots != nil {
		c.Add(ratelimit.Limit{Scope: ratelimit.RouteConcurrencyScope, Slots: slots, Most: l.most}, 1)
	} else if !ok {
		return false
	}
	return fits
}

// slotsOf returns the slots that count the requests to r, or those of a key, in flight; nil without such a limit. ok is false
// if there is no room for them.
func (l *routeLimits) slotsOf(r *Route, key [16]byte) (slots *ratelimit.Slots, ok bool) {
	switch {
	case l.slots != nil:
		slots = l.slots.Slots(r.UUID)
	case l.slotSet != nil:
		slots = l.slotSet.Slots(key)
	default:
		return nil, true
	}
	return slots, slots != nil
}

// bucketOf returns the bucket of a key, or that of an address.
func (l *routeLimits) bucketOf(key [16]byte, client clientip.Group) (*ratelimit.Params, *ratelimit.Bucket) {
	if l.byAddress {
		return l.buckets.Address(client)
	}
	return l.buckets.Bucket(key)
}

// Node is a node of the route tree: the routes whose templates match the same paths. It is
// immutable.
type Node struct {
	first *Route
	more  *nodeRoutes // nil if first is the only route
}

// nodeRoutes are the routes of a node that has several.
type nodeRoutes struct {
	routes []*Route
	allow  unique.Handle[string]
}

// newNode returns the node of routes, of which there must be one.
func newNode(routes []*Route) *Node {
	n := &Node{first: routes[0]}
	if len(routes) == 1 {
		return n
	}
	n.more = &nodeRoutes{routes: routes, allow: unique.Make(allowOf(routes))}
	return n
}

// all returns the routes of n, which may be nil.
func (n *Node) all() []*Route {
	switch {
	case n == nil:
		return nil
	case n.more == nil:
		return []*Route{n.first}
	default:
		return n.more.routes
	}
}

// Route returns the route for the method, or nil. HEAD uses the route of GET, unless a
// route lists HEAD.
func (n *Node) Route(method string) *Route {
	if n.more == nil {
		if n.first.lists(method) || method == "HEAD" && n.first.lists("GET") {
			return n.first
		}
		return nil
	}
	for _, r := range n.more.routes {
		if r.lists(method) {
			return r
		}
	}
	if method == "HEAD" {
		return n.Route("GET")
	}
	return nil
}

// PublicNode reports whether all of the routes of a node of g are public.
func (g *Gateway) PublicNode(n *Node) bool {
	if n.more == nil {
		return g.Public(n.first)
	}
	return !slices.ContainsFunc(n.more.routes, func(r *Route) bool { return !g.Public(r) })
}

// Allow returns the value of the Allow header of a 405.
func (n *Node) Allow() string {
	if n.more != nil {
		return n.more.allow.Value()
	}
	switch methods := n.first.methods.Value(); {
	case methods == "GET":
		return "GET, HEAD"
	case !strings.Contains(methods, " "):
		return methods
	default:
		return allowOf([]*Route{n.first})
	}
}

// allowOf returns the value of the Allow header for routes.
func allowOf(routes []*Route) string {
	var methods []string
	for _, r := range routes {
		for _, m := range r.Methods() {
			if methods = append(methods, m); m == "GET" {
				methods = append(methods, "HEAD")
			}
		}
	}
	slices.Sort(methods)
	return strings.Join(slices.Compact(methods), ", ")
}
