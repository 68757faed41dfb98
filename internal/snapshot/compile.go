package snapshot

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// compile returns the compiled form of a stored gateway and its routes, without the state
// of limits: see adoptLimits. The error says what cannot be used. Management validates
// records before it stores them, so the cause is a different secret key or a damaged store.
func (f *Follower) compile(g *gateway.Gateway, routes []gateway.Route, publicOnly bool) (*Gateway, error) {
	c := &Gateway{ID: g.ID, AccountID: g.AccountID, MaxBodyBytes: g.MaxBodyBytes, hostname: strings.ToLower(g.Hostname), CORS: compileCORS(g.CORS)}
	if !g.HostGiven {
		c.hostname = gateway.DefaultHostname(g.ID, f.cfg.GatewayDomain)
	}
	c.UUID, _ = id.Parse(id.Gateway, g.ID)
	c.AccountUUID, _ = id.Parse(id.Account, g.AccountID)
	var err error
	if c.Upstream, err = f.compileUpstream(g); err != nil {
		return nil, fmt.Errorf("compile gateway %s: %w", g.ID, err)
	}
	c.Upstream.PublicOnly = publicOnly
	c.compileRequests(&g.Requests)
	params := f.defaultGlobal
	if c.global.Default = !g.GlobalLimit.HasBucket(); !c.global.Default {
		params = ratelimit.Compile(g.GlobalLimit)
	}
	c.global.Scope, c.global.Params = ratelimit.GlobalScope, &params
	if err := c.compileRoutes(routes); err != nil {
		return nil, fmt.Errorf("compile gateway %s: %w", g.ID, err)
	}
	return c, nil
}

// compileRequests sets what follows from the settings of requests and from
// Upstream.Headers.
func (g *Gateway) compileRequests(r *gateway.Requests) {
	g.EncodedSlashes = r.AllowEncodedSlashes
	for i := range g.Upstream.Headers {
		g.Withheld = append(g.Withheld, g.Upstream.Headers[i].Name)
	}
	headers := r.AllKeyHeaders()
	g.ForwardsAuthorization = !gateway.HasAuthorization(headers)
	ways := make([]string, len(headers))
	for i, name := range headers {
		isAuthorization := strings.EqualFold(name, gateway.Authorization)
		if ways[i] = "in the header " + name; isAuthorization {
			ways[i] = "as Authorization: Bearer <key>"
		} else {
			g.Withheld = append(g.Withheld, name)
		}
		g.KeyHeaders = append(g.KeyHeaders, KeyHeader{Name: name, Authorization: isAuthorization})
	}
	if len(headers) == 1 && !g.ForwardsAuthorization {
		g.KeyHeaders = nil
	}
	g.KeyMessage = "the key is missing or not valid: send it " + strings.Join(ways, " or ")
}

// compileRoutes builds the route tree.
func (g *Gateway) compileRoutes(routes []gateway.Route) error {
	g.routes = make(map[string]*Route, len(routes))
	templates := make([]gateway.Template, len(routes))
	for i := range routes {
		var err error
		if templates[i], err = gateway.ParseTemplate(routes[i].Path); err != nil {
			return fmt.Errorf("route %s: %w", routes[i].ID, err)
		}
	}
	tree := gateway.NewTreeBuilder[Node]()
	var nodes []*Node
	for i := range routes {
		s := &routes[i]
		r := &Route{ID: s.ID, Path: s.Path, Methods: s.Methods, Public: s.Auth == gateway.AuthNone, config: s.RateLimit}
		r.UUID, _ = id.Parse(id.Route, s.ID)
		g.routes[r.ID] = r
		n := tree.Get(templates[i])
		if n == nil {
			n = &Node{Public: true}
			nodes = append(nodes, n)
			tree.Put(templates[i], n)
		}
		n.Public = n.Public && r.Public
		for _, m := range r.Methods {
			n.methods = append(n.methods, operation{internMethod(m), r})
		}
	}
	for _, n := range nodes {
		n.compileAllow()
	}
	g.tree = tree.Tree()
	return nil
}

// internMethod returns one shared string for a common method, so that comparisons use bytes
// that are in the processor's cache.
func internMethod(method string) string {
	for _, m := range [...]string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"} {
		if m == method {
			return m
		}
	}
	return method
}

func (n *Node) compileAllow() {
	var methods []string
	for _, o := range n.methods {
		methods = append(methods, o.method)
		if o.method == "GET" {
			methods = append(methods, "HEAD")
		}
	}
	slices.Sort(methods)
	n.Allow = strings.Join(slices.Compact(methods), ", ")
}

func compileCORS(c *gateway.CORS) *CORS {
	if c == nil {
		return nil
	}
	out := &CORS{Methods: strings.Join(c.Methods, ", "), Headers: strings.Join(c.Headers, ", "), origins: make(map[string]bool, len(c.Origins))}
	if c.MaxAge > 0 {
		out.MaxAge = strconv.Itoa(c.MaxAge)
	}
	for _, o := range c.Origins {
		out.Any = out.Any || o == "*"
		out.origins[o] = true
	}
	return out
}
