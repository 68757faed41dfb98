package snapshot

import (
	"net/url"
	"time"
	"unique"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Gateway is a compiled gateway. It is immutable.
type Gateway struct {
	ID        string
	AccountID string
	Upstream  Upstream
	// UUID and AccountUUID are what is behind ID and AccountID; zeros if they
	// are no identifiers.
	UUID, AccountUUID [16]byte
	// CORS is nil if preflights are treated like any request.
	CORS *CORS
	// MaxBodyBytes is the largest request body; 0 is no bound.
	MaxBodyBytes int64

	hostname string
	routes   map[string]*Route // by identifier
	tree     *gateway.Tree
	nodes    []Node // by the tree's numbers
	global   ratelimit.Limit
}

// Upstream is where a gateway forwards to.
type Upstream struct {
	URL     string   // as stored
	Base    *url.URL // URL parsed; not to be changed
	CA      string   // PEM that replaces the system's roots, or ""
	Timeout time.Duration
	// Client is the certificate that tells the upstream who calls, with those of its
	// issuers, and its opened private key, both in PEM; the zero Handle for none.
	Client unique.Handle[[2]string]
	// Bounds on connections; zero values for those of the server.
	ConnectTimeout time.Duration
	IdleTimeout    time.Duration
	MaxConns       int

	Headers []Header // set on every forwarded request; opened, sorted by name
	// PublicOnly tells that the gateway's account may reach public addresses
	// alone (contract, 4.6).
	PublicOnly bool
}

// Header is one field that is set on forwarded requests.
type Header struct{ Name, Value string }

// Route is a compiled route. It is immutable.
type Route struct {
	limits routeLimits // first: each request reads it

	Public  bool     // auth: none
	UUID    [16]byte // what is behind ID; zeros if that is no identifier
	ID      string
	Path    string   // the template as stored
	Methods []string // as stored

	config ratelimit.Config
}

// Node is the routes whose templates match the same paths.
type Node struct {
	// Allow is the value of the field Allow of a 405.
	Allow string
	// Public tells that all of its routes are public.
	Public  bool
	methods []operation
}

type operation struct {
	method string
	route  *Route
}

// Find returns the most specific place that matches a path in the form of
// gateway.NormalizePath, or nil. It does not allocate.
func (g *Gateway) Find(path string) *Node {
	if i := g.tree.Find(path); i >= 0 {
		return &g.nodes[i]
	}
	return nil
}

// Route returns the route that lists the method, or nil. HEAD goes where GET
// goes, unless a route lists it.
func (p *Node) Route(method string) *Route {
	var get *Route
	for i := range p.methods {
		switch o := &p.methods[i]; o.method {
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

// AppendLimits appends the limits of the route for the key whose bucket is
// named bucket; all callers without a key share the zero bucket. It allocates only
// for the first request of a key where the route limits each key by itself.
func (r *Route) AppendLimits(dst []ratelimit.Limit, now ratelimit.Instant, bucket [16]byte) []ratelimit.Limit {
	l := &r.limits
	switch {
	case l.bucket != nil:
		dst = append(dst, ratelimit.Limit{Scope: ratelimit.RouteScope, Params: l.params, Bucket: l.bucket})
	case l.buckets != nil:
		p, b := l.buckets.Bucket(now, bucket)
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

// CORS is a compiled answer to browsers of other origins.
type CORS struct {
	Methods string // the value of Access-Control-Allow-Methods, or ""
	Headers string // the value of Access-Control-Allow-Headers, or ""
	MaxAge  string // the value of Access-Control-Max-Age, or ""
	// Any tells that every origin is allowed, so that no answer depends on it.
	Any     bool
	origins map[string]bool
}

// AllowOrigin returns the value of Access-Control-Allow-Origin for a request
// with the given Origin, or "" if there is none or it is not allowed.
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

// Hostname returns the name that the gateway was given.
func (g *Gateway) Hostname() string { return g.hostname }

// RouteByID returns the route, or nil.
func (g *Gateway) RouteByID(routeID string) *Route { return g.routes[routeID] }
