package snapshot

import (
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Gateway is a compiled gateway. It is immutable.
type Gateway struct {
	ID        string
	AccountID string
	Upstream  Upstream
	// UUID and AccountUUID are the bytes that ID and AccountID encode, or zeros if they are
	// not valid identifiers.
	UUID, AccountUUID [16]byte
	// CORS is nil if CORS preflights are treated like any other request.
	CORS *CORS
	// MaxBodyBytes is the largest request body; 0 means no limit.
	MaxBodyBytes int64
	// EncodedSlashes is set if an encoded slash or backslash is a part of its segment.
	EncodedSlashes bool
	// KeyHeaders are the headers that may hold the key; nil means Authorization alone.
	KeyHeaders []KeyHeader
	// KeyMessage is the public message of a 401 for a key that is missing or not valid.
	KeyMessage string
	// Withheld are the client's headers that are not forwarded, because the gateway sets
	// them (Upstream.Headers) or they may hold the key. Authorization is not among them: see
	// ForwardsAuthorization.
	Withheld []string
	// ForwardsAuthorization is set if Authorization is not one of the key headers.
	ForwardsAuthorization bool

	hostname  string
	isDefault bool
	read      int64      // grows with the moment at which the record was read
	routes    routeTable // by identifier
	tree      *gateway.Tree[Node]
	global    ratelimit.Limit
}

// Route is a compiled route. It is immutable.
type Route struct {
	limits routeLimits // first: each request reads it

	Public  bool     // auth: none
	UUID    [16]byte // the bytes that ID encodes, or zeros if it is not valid
	ID      string
	Path    string   // the template as stored
	Methods []string // as stored

	config ratelimit.Config
}

// Node is a node of the route tree: the routes whose templates match the same paths.
type Node struct {
	// Allow is the value of the Allow header of a 405.
	Allow string
	// Public is set if all of its routes are public.
	Public  bool
	methods []operation
}

type operation struct {
	method string
	route  *Route
}

// Find returns the most specific node that matches path, or nil. path must be normalized by
// gateway.NormalizePath. Find does not allocate.
func (g *Gateway) Find(path string) *Node { return g.tree.Find(path) }

// Route returns the route for the method, or nil. HEAD uses the route of GET, unless a
// route lists HEAD.
func (n *Node) Route(method string) *Route {
	var get *Route
	for i := range n.methods {
		switch o := &n.methods[i]; o.method {
		case method:
			return o.route
		case "GET":
			get = o.route
		}
	}
	if method == "HEAD" {
		return get
	}
	return nil
}

// Global returns the gateway's global limit, its own or the default.
func (g *Gateway) Global() ratelimit.Limit { return g.global }

// AppendLimits appends the limits of the route for the key with the given bucket
// identifier. Callers without a key share the zero bucket. It allocates only for the first
// request of a key on a route with limits for each key.
func (r *Route) AppendLimits(dst []ratelimit.Limit, bucket [16]byte) []ratelimit.Limit {
	l := &r.limits
	switch {
	case l.bucket != nil:
		dst = append(dst, ratelimit.Limit{Scope: ratelimit.RouteScope, Params: l.params, Bucket: l.bucket})
	case l.buckets != nil:
		p, b := l.buckets.Bucket(bucket)
		dst = append(dst, ratelimit.Limit{Scope: ratelimit.RouteScope, Params: p, Bucket: b})
	}
	switch {
	case l.daily != nil:
		dst = append(dst, ratelimit.Limit{Scope: ratelimit.DailyScope, Daily: l.daily})
	case l.dailies != nil:
		dst = append(dst, ratelimit.Limit{Scope: ratelimit.DailyScope, Daily: l.dailies.Daily(bucket)})
	}
	return dst
}

// KeyHeader is a header that may hold the key.
type KeyHeader struct {
	Name string
	// Authorization is set for the header of that name, whose scheme Bearer holds the key.
	// Of any other header, the whole value is the key.
	Authorization bool
}

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
// Origin, or "" if it has none or it is not allowed.
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
