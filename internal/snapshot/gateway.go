package snapshot

import (
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/token"
	"github.com/keygate/keygate/internal/validation"
)

// Settings are what forwarding needs of a gateway. They are immutable. A request keeps them to its end, which
// may be hours away, while the gateway has other ones by then. So nothing is reachable from them that is as
// large as its routes.
type Settings struct {
	ID        string
	AccountID string
	// Upstream is the default one. It may be nil only if OutOfService is set.
	Upstream *Upstream
	Requests
	// UUID and AccountUUID are the bytes that ID and AccountID encode, or zeros if they are
	// not valid identifiers.
	UUID, AccountUUID [16]byte
	// MaxBodyBytes is the largest request body; 0 means no limit.
	MaxBodyBytes int64

	others map[string]*Upstream // by name
	split  *Split               // of routes that have none; nil for none
	canary *Canary              // that has not ended; nil without one
	auth   auth                 // of routes that do not say it; never authOfGateway
}

// authOf returns what a route of the gateway requires.
func (s *Settings) authOf(r *Route) auth {
	if r.auth == authOfGateway {
		return s.auth
	}
	return r.auth
}

// Public reports whether a route of the gateway requires no credential.
func (s *Settings) Public(r *Route) bool { return s.authOf(r) == authNone }

// Takes reports whether a request to a route of the gateway may have a key, or a token: neither if the route is public.
func (s *Settings) Takes(r *Route) (keys, tokens bool) {
	a := s.authOf(r)
	return a == authKey || a == authAny, a == authToken || a == authAny
}

// Gateway is a compiled gateway: its settings and its routes. It is immutable.
type Gateway struct {
	*Settings
	// CORS is nil if CORS preflights are treated like any other request.
	CORS *CORS
	// OutOfService is set if the gateway cannot be compiled and this node is one of several (Shared).
	OutOfService bool
	// document is what requests are held against; nil for nothing. validate is the mode of routes that have none.
	document *validation.Document
	validate gateway.ValidateMode
	// LacksIssuer is set if the gateway names an issuer that this node cannot use. It takes no requests then.
	LacksIssuer bool

	issuerNames []string        // as configured
	issuers     []*token.Issuer // of those names; set when the gateway is published
	hostname    string
	isDefault   bool
	read        int64      // grows with the moment at which the record was read
	routes      routeTable // by identifier
	authCounts  [auths]int // number of routes that say each
	fallbacks   int        // number of routes with a split that falls back
	tree        *gateway.Tree[Node]
	global      ratelimit.Limit

	defaultPlan *planSlot // nil without one

	// The limit for each address on public routes; nil without one. anonymous follows from the other when the gateway is
	// published.
	anonymousParams *ratelimit.Params
	anonymous       *ratelimit.Buckets

	holders *ratelimit.Buckets // of the account; nil without self-service
}

// Bounds of a search for a route, in steps of some 50 ns at worst. A search in a real table
// takes some ten; only a table that is designed to be slow reaches a bound.
const (
	// openSteps bounds the search before a key was accepted, to 0.4 ms or less.
	openSteps = 4_000
	// keySteps bounds any search, to 2 ms or less: whoever has a key and made the table must not take a processor
	// with a few requests.
	keySteps = 20_000
)

// Find returns the most specific node that matches path, or nil. path must be normalized by
// gateway.NormalizePath. ok is false if the search takes too much work, which only happens in a
// table that is designed for it. Find does not allocate.
func (g *Gateway) Find(path string) (n *Node, ok bool) { return g.tree.Search(path, keySteps) }

// FindOpen is Find for a request whose key is not accepted yet. It allows only a small fraction of
// the work.
func (g *Gateway) FindOpen(path string) (n *Node, ok bool) { return g.tree.Search(path, openSteps) }

// Checks returns what the requests of a route are held against.
func (g *Gateway) Checks(r *Route) validation.Target {
	if g.document == nil {
		return validation.Target{}
	}
	mode := g.validate
	if r.handling != nil && r.handling.validate != "" {
		mode = r.handling.validate
	}
	if !mode.Looks() {
		return validation.Target{}
	}
	return validation.Target{Document: g.document, Path: r.Path, Enforce: mode == gateway.ValidateEnforce}
}

// HasPublic reports whether any route is public.
func (g *Gateway) HasPublic() bool { return g.requires(authNone) }

// TakesTokens reports whether any route takes tokens.
func (g *Gateway) TakesTokens() bool { return g.requires(authToken) || g.requires(authAny) }

// requires reports whether any route requires a.
func (g *Gateway) requires(a auth) bool {
	return g.authCounts[a] > 0 || g.auth == a && g.authCounts[authOfGateway] > 0
}

// AddLimit adds the gateway's global limit, its own or the default, to c.
func (g *Gateway) AddLimit(c *ratelimit.Charge) { c.Add(g.global, 1) }

// CORS is a gateway's compiled CORS configuration.
type CORS struct {
	Methods string // the value of Access-Control-Allow-Methods, or ""
	Headers string // the value of Access-Control-Allow-Headers, or ""
	MaxAge  string // the value of Access-Control-Max-Age, or ""
	// Any is set if every origin is allowed, so that no response depends on the origin.
	Any     bool
	origins map[string]bool
}

// AllowOrigin returns the value of Access-Control-Allow-Origin for a request with the given
// Origin, or "" if the request has no Origin or it is not allowed.
func (c *CORS) AllowOrigin(origin string) string {
	switch {
	case origin == "":
		return ""
	case c.Any:
		return "*"
	case c.origins[origin]:
		return origin
	default:
		return ""
	}
}

// Hostname returns the gateway's hostname.
func (g *Gateway) Hostname() string { return g.hostname }

// RouteByID returns the route, or nil.
func (g *Gateway) RouteByID(routeID string) *Route { return g.routes.find(routeID) }
