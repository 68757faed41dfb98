// Package gateway defines gateways, their routes and the revisions of their route
// tables, and validates what users write about them (specification, Gateway, Route;
// contract, 3.3, 4.1, 4.2 and 5).
package gateway

import (
	"cmp"
	"time"

	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/ratelimit"
)

// DefaultTimeout is the timeout for the upstream's response header of a gateway that
// sets none.
const DefaultTimeout = "60s"

// Gateway is the stored record of a gateway. Empty strings, zero values and nil mean
// that a setting is absent.
type Gateway struct {
	ID          string
	AccountID   string
	Name        string
	SharesName  bool       // another gateway of the account may have the name
	Upstream    Upstream   // DefaultUpstream
	Others      []Upstream // the named ones, by name
	Hostname    string     // lower case; DefaultHostname unless HostGiven
	HostGiven   bool
	GlobalLimit ratelimit.Config // Sustained and Burst only
	Timeout     string           // a Go duration as given

	// DefaultPlanID is the plan of keys that have none, and whose owner has none; "" for none.
	DefaultPlanID string
	// DefaultPlan is the name of that plan, in gateways that package control shows or changes. It is not stored.
	DefaultPlan string

	// Default is set for the gateway that requests for unknown hosts reach. At most one gateway has
	// it set, and it belongs to the account default.
	Default bool

	CORS         *CORS
	MaxBodyBytes int64
	Requests     Requests
	Revision     int64 // number of the current revision; 0 before the first
	CreatedAt    time.Time

	// Canary is the share of the canary of the gateway that has not ended; nil without one.
	Canary *CanaryShare

	// Version grows with every change by a management call. It is the ETag.
	Version int64
}

// CORS says which web pages of other origins may call a gateway.
type CORS struct {
	Origins []string `json:"origins"`
	Methods []string `json:"methods"`
	Headers []string `json:"headers"`
	MaxAge  int      `json:"max_age"` // seconds
}

// Source is where a route or a revision came from.
type Source string

// The sources of routes (API, Spec, Config) and of revisions (CLI, API,
// Dashboard, Repository, Rollback).
const (
	API        Source = "api"
	Spec       Source = "spec"
	Config     Source = "config"
	CLI        Source = "cli"
	Dashboard  Source = "dashboard"
	Repository Source = "repository"
	Rollback   Source = "rollback"
)

// Auth says what a route requires of a request.
type Auth string

// The kinds of authentication.
const (
	AuthKey   Auth = "key"
	AuthToken Auth = "token" // of one of the gateway's issuers
	AuthAny   Auth = "any"   // a key or a token
	AuthNone  Auth = "none"  // nothing: a public route

	// DefaultAuth is that of a gateway that sets none.
	DefaultAuth = AuthKey
)

// Auths returns the kinds of authentication, the default first.
func Auths() []Auth { return []Auth{AuthKey, AuthToken, AuthAny, AuthNone} }

// authNames returns the names of Auths.
func authNames() []string {
	names := make([]string, len(Auths()))
	for i, a := range Auths() {
		names[i] = string(a)
	}
	return names
}

// TakesTokens reports whether requests may have a token.
func (a Auth) TakesTokens() bool { return a == AuthToken || a == AuthAny }

// AuthOf returns what a route of g requires that says auth, which may be "".
func (g *Gateway) AuthOf(auth Auth) Auth { return cmp.Or(auth, g.Requests.DefaultAuth, DefaultAuth) }

// AuthInForce returns r with what it requires, which may be what g says.
func (g *Gateway) AuthInForce(r Route) Route {
	r.Auth, r.AuthOfGateway = g.AuthOf(r.Auth), r.Auth == ""
	return r
}

// Route is the stored record of a route.
type Route struct {
	ID        string
	GatewayID string
	Path      string   // a template, which may end in /*
	Methods   []string // upper case, sorted, without duplicates
	RateLimit ratelimit.Config
	// LimitByAPI is set if RateLimit was set through the API. A spec push then keeps it
	// unless the spec has a limit.
	LimitByAPI bool
	Cost       cost.Rules // what a request costs, by meter
	CostByAPI  bool       // as LimitByAPI, of Cost
	// Concurrency bounds the requests in flight. ConcurrencyByAPI is LimitByAPI of it.
	Concurrency      ratelimit.Concurrency
	ConcurrencyByAPI bool
	Upstream         string // by name; "" for DefaultUpstream
	Split            Split  // nil for that of the gateway
	Handling         *Handling
	Auth             Auth // "" for that of the gateway
	AuthOfGateway    bool // Auth is that of the gateway: what calls return, and nothing that is stored
	Source           Source
	CreatedAt        time.Time
	Version          int64 // the ETag
}

// RouteSpec is a route as a document or a user describes it, without an identifier.
type RouteSpec struct {
	Path        string
	Methods     []string
	RateLimit   ratelimit.Config
	Cost        cost.Rules
	Concurrency ratelimit.Concurrency
	Upstream    string // by name; "" for DefaultUpstream
	Split       Split  // nil for that of the gateway
	Handling    *Handling
	Auth        Auth // "" for that of the gateway
}

// Spec returns the route without its identifier.
func (r *Route) Spec() RouteSpec {
	return RouteSpec{Path: r.Path, Methods: r.Methods, RateLimit: r.RateLimit, Cost: r.Cost, Concurrency: r.Concurrency, Upstream: r.Upstream, Split: r.Split, Handling: r.Handling, Auth: r.Auth}
}

// DocumentKind is the kind of document that a revision came from.
type DocumentKind string

// The kinds of documents.
const (
	SpecDocument   DocumentKind = "spec"
	ConfigDocument DocumentKind = "config"
)

// Revision is the stored record of a push: the document as received, and the resulting route table
// with its limits, which a rollback restores.
type Revision struct {
	ID        string
	GatewayID string
	Number    int64 // from 1, without gaps, for each gateway
	Source    Source
	Kind      DocumentKind
	Author    string
	Commit    string
	CreatedAt time.Time
	Added     int
	Removed   int
	Changed   int

	// Content and Routes are set when one revision is read, and empty in lists.
	Content []byte
	Routes  []Route
}
