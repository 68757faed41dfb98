package ratelimit

import "github.com/keygate/keygate/internal/fault"

// Scope says what a limit applies to. It is an index of the table scopes. The numbers are stored, so they
// never change.
type Scope uint8

// The scopes.
const (
	KeyScope Scope = iota
	RouteScope
	DailyScope
	GlobalScope
	AccountScope // an account's limit on the management API
	KeyDailyScope
	DefaultGlobalScope // of records only: the global limit of a gateway that sets none
	PlanScope          // a limit of a plan
	AnonymousScope     // each address on public routes
	SelfServiceScope   // what holders of keys do themselves
	ConcurrencyScope   // requests in flight, of a plan
	RouteConcurrencyScope
	KeyConcurrencyScope
	unknownScope // and all numbers beyond
)

// ReportedScopes is above every scope that Scope.Reported returns for limits of gateways.
const ReportedScopes = int(ConcurrencyScope) + 1

// scopeRow is all that is said of a scope.
type scopeRow struct {
	name     string // in the property limit_scope, in metrics and events
	item     string // name in the fields RateLimit and RateLimit-Policy, where it must be unique
	rank     int    // in lists of a gateway's limits
	reported Scope
	limit    string // in the property limit_name of limits that have no label

	// What the limit is called, except in the scope of the management API.
	exceeded string // in the message of a refusal
	usedUp   string // in the explanation of a recorded request

	// For the reference of errors, at the scope that is reported.
	meaning, remedy string
	management      bool // only the management API refuses with it
}

// scopes has a row for each scope. A new scope is a constant and a row here.
//
//nolint:gochecknoglobals // a table that is never written
var scopes = [...]scopeRow{
	KeyScope: {name: "key", item: `"key"`, exceeded: "the key's rate limit", usedUp: "the key's own limit", rank: 3, reported: KeyScope,
		meaning: "The rate limit of the key.", remedy: "Raise `rate_limit` of the key."},
	KeyDailyScope: {name: "key", item: `"key-daily"`, exceeded: "the key's daily limit", usedUp: "the key's own daily limit", rank: 4, reported: KeyScope},
	RouteScope: {name: "route", item: `"route"`, exceeded: "the route's rate limit", usedUp: "the route's limit", rank: 1, reported: RouteScope,
		meaning: "The rate limit of the route.", remedy: "Raise `rate_limit` of the route."},
	DailyScope: {name: "daily", item: `"daily"`, exceeded: "the route's daily limit", usedUp: "the route's daily limit", rank: 2, reported: DailyScope,
		meaning: "The daily cap of the route. It starts again at midnight UTC.", remedy: "Raise `daily` of the route."},
	GlobalScope: {name: "global", item: `"global"`, exceeded: "the gateway's rate limit", usedUp: "the gateway's global limit", rank: 0, reported: GlobalScope,
		meaning: "The rate limit of the whole gateway.", remedy: "Raise `global_rate_limit` of the gateway."},
	AccountScope: {name: "account", item: `"account"`, rank: 6, reported: AccountScope,
		meaning: "A limit of the management API: the calls of one key.", remedy: "Call less often.", management: true},
	DefaultGlobalScope: {name: "global", item: `"global"`, exceeded: "the gateway's rate limit", rank: 0, reported: GlobalScope,
		usedUp: "the gateway sets no limit, and the server's limit for such gateways (--default-global-limit)"},
	PlanScope: {name: "plan", item: `"plan"`, exceeded: "a limit of the plan", usedUp: "a limit of the plan", rank: 5, reported: PlanScope,
		meaning: "A limit of the plan of the key, of its owner or of the gateway. `limit_name` is the plan and the limit, as in `pro.per-minute`.", remedy: "Raise the limit in the plan, or give the owner or the key another plan."},
	AnonymousScope: {name: "anonymous", item: `"anonymous"`, exceeded: "the gateway's limit for requests without a key", usedUp: "the gateway's limit for each address on public routes",
		rank: 7, reported: AnonymousScope,
		meaning: "The limit of the gateway for each client address on public routes.", remedy: "Raise `anonymous_limit` of the gateway."},
	SelfServiceScope: {name: "self_service", item: `"self-service"`, exceeded: "the limit of self-service", usedUp: "the limit of what holders of keys may do themselves",
		rank: 8, reported: SelfServiceScope,
		meaning: "A limit of what holders of keys do themselves, at paths below `/.keygate/`: calls of a key in a second, rotations of a key in a day, or rotations at the same time.", remedy: "Wait as long as `Retry-After` says. An operator can rotate a key at any time."},
	ConcurrencyScope: {name: "concurrency", item: `"concurrency"`, exceeded: "a limit of requests in flight", usedUp: "a limit of requests in flight", rank: 9, reported: ConcurrencyScope,
		meaning: "As many requests are in flight as the limit allows: of the plan (`limit_name` is the plan and the limit), of the route (`route`) or of the key (`key`).", remedy: "Wait until some of them end, or raise `concurrency` of the plan's limit, of the route or of the key."},
	RouteConcurrencyScope: {name: "concurrency", item: `"route-concurrency"`, exceeded: "the route's limit of requests in flight", usedUp: "the route's limit of requests in flight",
		rank: 9, reported: ConcurrencyScope, limit: "route"},
	KeyConcurrencyScope: {name: "concurrency", item: `"key-concurrency"`, exceeded: "the key's limit of requests in flight", usedUp: "the key's own limit of requests in flight",
		rank: 9, reported: ConcurrencyScope, limit: "key"},
	unknownScope: {name: "unknown", exceeded: "a rate limit", usedUp: "a limit", rank: 10, reported: unknownScope},
}

// row returns the row of any number.
func (s Scope) row() *scopeRow { return &scopes[min(s, unknownScope)] }

// String returns the scope as in the property limit_scope. A key's own daily cap has the scope of the key.
func (s Scope) String() string { return s.row().name }

// Reported returns the scope under which s is counted and reported: a key's own daily cap
// counts as a limit of the key.
func (s Scope) Reported() Scope { return s.row().reported }

// Rank returns the position of limits with the scope in the list of its gateway's limits.
func (s Scope) Rank() int { return s.row().rank }

// Exceeded returns what a refusal calls the limit, such as "the key's rate limit".
func (s Scope) Exceeded() string { return s.row().exceeded }

// UsedUp returns what the explanation of a recorded request calls the limit, such as "the key's own limit".
func (s Scope) UsedUp() string { return s.row().usedUp }

// ScopeReference explains every value of limit_scope.
func ScopeReference() []fault.Explanation {
	var all []fault.Explanation
	for scope := range unknownScope {
		if s := scope.row(); s.reported == scope {
			all = append(all, fault.Explanation{Code: s.name, Data: !s.management, Management: s.management, Meaning: s.meaning, Remedy: s.remedy})
		}
	}
	return all
}
