package snapshot

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// yieldEvery is the number of routes after which a long compilation lets other goroutines run:
// about 0.1 ms.
const yieldEvery = 256

// compile returns the compiled form of a stored gateway and its routes, without the state
// of limits: see publish. The error names the part that cannot be used. Management validates
// records before it stores them, so the cause is a different secret key or a damaged store. read is
// the moment at which the records were read: see nextRead.
func (f *Follower) compile(g *gateway.Gateway, routes []gateway.Route, read int64) (*Gateway, error) {
	c, err := f.compileSettings(g, read)
	if err != nil {
		return nil, err
	}
	if err := c.compileRoutes(routes, &f.shared); err != nil {
		return nil, fmt.Errorf("compile gateway %s: %w", g.ID, err)
	}
	return c, nil
}

// compileSettings returns the compiled form of a gateway without its routes.
func (f *Follower) compileSettings(g *gateway.Gateway, read int64) (*Gateway, error) {
	c := &Gateway{
		Settings: &Settings{ID: g.ID, AccountID: g.AccountID, MaxBodyBytes: g.MaxBodyBytes}, CORS: compileCORS(g.CORS),
		hostname: strings.ToLower(g.Hostname), isDefault: g.Default, read: read, defaultPlan: f.plans.slot(g.DefaultPlanID), issuerNames: g.Requests.Issuers,
	}
	if !g.HostGiven {
		c.hostname = gateway.DefaultHostname(g.ID, f.cfg.GatewayDomain)
	}
	c.UUID, _ = id.Parse(id.Gateway, g.ID)
	c.AccountUUID, _ = id.Parse(id.Account, g.AccountID)
	c.compileRequests(&g.Requests)
	if err := c.compileAddresses(&g.Requests); err != nil {
		return nil, err
	}
	if err := f.compileUpstreams(c.Settings, g); err != nil {
		return nil, fmt.Errorf("compile gateway %s: %w", g.ID, err)
	}
	params := f.defaultGlobal
	if c.global.Default = !g.GlobalLimit.HasBucket(); !c.global.Default {
		params = ratelimit.Compile(g.GlobalLimit)
	}
	c.global.Scope, c.global.Params = ratelimit.GlobalScope, &params
	c.split, c.canary = compileSplit(g.Requests.Split, &f.shared.splits), compileCanary(g.Canary)
	c.compileAnonymous(g.Requests.AnonymousLimit)
	c.document, c.validate = f.cfg.Documents.Of(g), g.Requests.Validate.Shared()
	return c, nil
}

// nextRead returns a number that grows with each read of a gateway. It is taken before the read: if
// two records were read, the record with the greater number is not the older one.
func (f *Follower) nextRead() int64 { return f.reads.Add(1) }

// compileRoutes builds the route tree.
func (g *Gateway) compileRoutes(routes []gateway.Route, shared *sharedParts) error {
	defer shared.forget()
	templates, compiled := make([]gateway.Template, len(routes)), make([]*Route, len(routes))
	for i := range routes {
		if i%yieldEvery == 0 {
			runtime.Gosched()
		}
		compiled[i] = compileRoute(&routes[i], shared)
		var err error
		if templates[i], err = gateway.ParseTemplate(compiled[i].Path); err != nil {
			return fmt.Errorf("route %s: %w", routes[i].ID, err)
		}
	}
	tree := gateway.NewTreeBuilder[Node]()
	var several []*Node
	g.routes = newRouteTable(len(routes))
	for i, r := range compiled {
		if i%yieldEvery == 0 {
			runtime.Gosched()
		}
		g.routes.add(r)
		g.count(nil, r)
		n := tree.Get(templates[i])
		if n == nil {
			tree.Put(templates[i], &Node{first: r})
			continue
		}
		if n.more == nil {
			n.more = &nodeRoutes{routes: []*Route{n.first}}
			several = append(several, n)
		}
		n.more.routes = append(n.more.routes, r)
	}
	for _, n := range several {
		*n = *newNode(n.more.routes)
	}
	g.tree = tree.Tree()
	return nil
}

// count counts the routes by what they say of auth, and those with a split that falls back, when was, which may be nil,
// becomes now, which may be nil.
func (g *Gateway) count(was, now *Route) {
	add := func(r *Route, n int) {
		if r != nil {
			g.authCounts[r.auth] += n
		}
		if r != nil && r.split.hasFallback() {
			g.fallbacks += n
		}
	}
	add(was, -1)
	add(now, 1)
}

func compileCORS(c *gateway.CORS) *CORS {
	if c == nil {
		return nil
	}
	out := &CORS{Methods: strings.Join(c.Methods, ", "), Headers: corsHeaders(c.Headers), origins: make(map[string]bool, len(c.Origins))}
	if c.MaxAge > 0 {
		out.MaxAge = strconv.Itoa(c.MaxAge)
	}
	for _, o := range c.Origins {
		out.Any = out.Any || o == "*"
		out.origins[o] = true
	}
	return out
}

// corsHeaders returns the value of Access-Control-Allow-Headers. To browsers, * does not stand for
// Authorization (Fetch Standard), which is how most callers send their key.
func corsHeaders(headers []string) string {
	all := strings.Join(headers, ", ")
	if slices.Contains(headers, "*") && !slices.ContainsFunc(headers, func(h string) bool { return strings.EqualFold(h, "Authorization") }) {
		all += ", Authorization"
	}
	return all
}
