package control

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/traffic"
)

// MaxEffectRoutes is how many routes an Effect lists. Its sums have all of them.
const MaxEffectRoutes = 1000

// Effect is what a push would have done to the requests of the last 24 hours (contract, section 5).
// Its sums are over all routes whose requests the push concerns.
type Effect struct {
	Since         time.Time // whole minutes; requests from then on count
	Requests      int64
	Keys          int64 // distinct ones
	Refused       int64
	RefusedBefore int64
	AtMost        bool          // Refused is an upper bound
	Routes        []RouteEffect // at most MaxEffectRoutes; the routes with the most additional refusals come first
	LeftOut       int           // number of routes beyond them
}

// RouteEffect is the effect of a push on the requests of a route that is in force.
type RouteEffect struct {
	RouteID  string
	Path     string
	Methods  []string
	Changes  []EffectChange
	Requests int64 // as in the traffic report
	Keys     int64 // distinct ones
	// Refused is how many of the requests would be refused: by a limit of the new configuration, in
	// a replay, or because there is no route or the key is missing. RefusedBefore is how many the
	// limits in force refuse in a replay.
	Refused, RefusedBefore int64
	// AtMost is set if the recorded counts do not tell which requests would be refused: Refused is
	// then an upper bound.
	AtMost bool
}

// EffectChange is what changes for the requests of a route.
type EffectChange string

// The changes. Beside these, there is one for each of gateway.HandlingFields, with its name: for another one of the route, or for
// another list of addresses, other rules for headers or another mode of checking requests of the gateway.
const (
	EffectRemoved     EffectChange = "removed"           // no other route takes its requests over
	EffectMethods     EffectChange = "methods"           // some of its methods are no longer accepted
	EffectAuth        EffectChange = "auth"              // a key is required now, or no longer
	EffectLimit       EffectChange = "rate_limit"        // another limit of a route
	EffectCost        EffectChange = "cost"              // another cost; what limits of plans then refuse is not counted
	EffectConcurrency EffectChange = "concurrency"       // another bound of requests in flight; what it refuses is not counted
	EffectUpstream    EffectChange = "upstream"          // another upstream
	EffectSplit       EffectChange = "split"             // another split, of the route or of the gateway
	EffectGlobal      EffectChange = "global_rate_limit" // another global limit of the gateway
)

// Effect returns what the push of which r is the dry run would have done to the requests of the last 24
// hours, and adds a warning to r if the Effect is not complete. The error is fault.ValidationFailed
// with the field effect if that takes too much memory.
func (s *Service) Effect(ctx context.Context, actor *Actor, r *PushResult) (*Effect, error) {
	p := r.push
	if p == nil {
		return nil, fault.Invalid("effect", "needs dry_run=true")
	}
	e, err := s.effectOf(p)
	if err != nil {
		return nil, err
	}
	if e.change.Buckets, err = read(ctx, s, actor, func(tx ReadTx) (map[[16]byte][16]byte, error) { return sharedBuckets(ctx, tx, actor) }); err != nil {
		return nil, err
	}
	if err := s.complete(ctx, actor, s.cfg.Sources.Traffic); err != nil {
		return nil, err
	}
	counted, err := s.cfg.Sources.Traffic.Effect(ctx, actor.Account.ID, e.change)
	if err != nil {
		return nil, err
	}
	out, warnings := e.result(counted)
	r.Warnings = append(r.Warnings, warnings...)
	if before, after := p.before.DefaultPlan, p.after.DefaultPlan; before != after {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the default plan changes from %s to %s: the effect does not count what limits of plans would refuse because of it",
			cmp.Or(before, "none"), cmp.Or(after, "none")))
	}
	return out, nil
}

// effect is a pushChange in the form that package traffic replays.
type effect struct {
	change traffic.Change
	routes []effectRoute // parallel to change.Routes
}

// effectRoute is what a push does to the requests of a route.
type effectRoute struct {
	*gateway.Route
	changes     []EffectChange
	atMost      bool
	cost        bool   // other units are counted
	concurrency bool   // another bound of requests in flight
	lists       bool   // of addresses that were allowed, some are not
	taker       string // path of a more specific added route that would take some of the requests
}

// destination is the routes of the new table whose templates match the same paths.
type destination struct {
	routes []int // in the new table
	kept   bool  // routes of the table in force match these paths too
}

// method returns the index of the route for a method, or -1.
func (d *destination) method(table []gateway.Route, method string) int {
	for _, i := range d.routes {
		if slices.Contains(table[i].Methods, method) {
			return i
		}
	}
	if method == "HEAD" {
		return d.method(table, "GET")
	}
	return -1
}

// The bounds of the search for templates that match paths of removed routes, in steps of gateway.Tree.
const (
	effectStepsEach = 10_000
	effectStepsAll  = 50_000_000
)

// effectOf finds what becomes of the requests of each route of the table in force.
func (s *Service) effectOf(p *pushChange) (*effect, error) {
	b := &effectBuilder{pushChange: p, effect: &effect{}, steps: effectStepsAll, after: map[int]int32{}, lists: map[[2]*gateway.Handling]listsChange{}}
	old, next := &p.before.Requests, &p.after.Requests
	b.handling = !old.Addresses().Equal(next.Addresses()) || !reflect.DeepEqual(old.RequestHeaders, next.RequestHeaders) || !reflect.DeepEqual(old.ResponseHeaders, next.ResponseHeaders) ||
		old.Validate != next.Validate
	b.change.Gateway, _ = id.Parse(id.Gateway, p.before.ID)
	b.change.Global[traffic.Before], b.change.Global[traffic.After] = s.globalLimit(p.before), s.globalLimit(&p.after)
	b.global = b.change.Global[traffic.Before] != b.change.Global[traffic.After]
	if err := b.index(); err != nil {
		return nil, err
	}
	for i := range p.current {
		b.add(&p.current[i])
	}
	return b.effect, nil
}

// globalLimit returns the global limit in use for a gateway.
func (s *Service) globalLimit(g *gateway.Gateway) ratelimit.Config {
	if g.GlobalLimit.IsZero() {
		return ratelimit.Config{Sustained: s.cfg.DefaultGlobalLimit}
	}
	return g.GlobalLimit
}

type effectBuilder struct {
	*pushChange
	*effect
	global bool
	steps  int // left
	byID   map[string]int
	tree   *gateway.Tree[destination] // of the new table
	taken  map[string]string          // by pattern of the table in force: an added path that takes some of its requests
	after  map[int]int32              // by route of the new table: the index of its limit
	costs  costComparer

	// handling is set if the gateway's lists of addresses, rules for headers or mode of checking requests change.
	handling bool
	lists    map[[2]*gateway.Handling]listsChange // of routes before and after
}

// listsChange is what changes with the lists of addresses of a gateway and a route.
type listsChange struct {
	narrower bool // of the addresses that were allowed, some are not
	none     bool // none of them is
	differs  bool
}

// index builds the trees and finds the routes from which added routes take requests.
func (b *effectBuilder) index() error {
	b.byID, b.taken = make(map[string]int, len(b.delta.table)), map[string]string{}
	old, next := gateway.NewTreeBuilder[string](), gateway.NewTreeBuilder[destination]()
	patterns := make(map[string]bool, len(b.current))
	for i := range b.current {
		t, err := gateway.ParseTemplate(b.current[i].Path)
		if err != nil {
			return fmt.Errorf("route %s: %w", b.current[i].ID, err)
		}
		if !patterns[t.Pattern()] {
			patterns[t.Pattern()] = true
			old.Put(t, new(t.Pattern()))
		}
	}
	var added []gateway.Template
	for i := range b.delta.table {
		r := &b.delta.table[i]
		b.byID[r.ID] = i
		t, err := gateway.ParseTemplate(r.Path)
		if err != nil {
			return fmt.Errorf("route %s: %w", r.Path, err)
		}
		d := next.Get(t)
		if d == nil {
			d = &destination{kept: patterns[t.Pattern()]}
			next.Put(t, d)
			if !d.kept {
				added = append(added, t)
			}
		}
		d.routes = append(d.routes, i)
	}
	b.tree = next.Tree()
	before := old.Tree()
	for i := range added {
		each := min(effectStepsEach, b.steps)
		b.steps -= each
		before.Meets(added[i], &each, func(pattern *string, closer bool) bool {
			if !closer {
				b.taken[*pattern] = added[i].String()
			}
			return false
		})
		b.steps += each
	}
	return nil
}

// add adds a route in force, if the push concerns its requests.
func (b *effectBuilder) add(r *gateway.Route) {
	t, err := gateway.ParseTemplate(r.Path)
	if err != nil {
		return
	}
	e := effectRoute{Route: r, taker: b.taken[t.Pattern()]}
	e.atMost = e.taker != ""
	change := traffic.ChangedRoute{}
	change.ID, _ = id.Parse(id.Route, r.ID)
	var to []int
	if i, stays := b.byID[r.ID]; stays {
		to = []int{i}
	} else {
		to = b.destinations(r, &t, &e, &change)
	}
	b.compare(to, &e, &change)
	if len(change.LostMethods) > 0 && (limitedAfter(b.delta.table, to) || b.global) {
		e.atMost = true // it is not recorded which of the requests that come to a limit have these methods
	}
	if len(e.changes) == 0 && !b.global && e.taker == "" {
		return
	}
	if len(e.changes) > 0 || b.global {
		if isReplayed(r.RateLimit) {
			change.Limits[traffic.Before] = []int32{b.limit(r.RateLimit)}
		}
		for _, i := range to {
			if limit := b.delta.table[i].RateLimit; !change.Lost && isReplayed(limit) {
				change.Limits[traffic.After] = append(change.Limits[traffic.After], b.limitOf(i, limit))
			}
		}
	}
	b.change.Routes = append(b.change.Routes, change)
	b.effect.routes = append(b.effect.routes, e)
}

// limitedAfter reports whether one of the routes of a table has a limit.
func limitedAfter(table []gateway.Route, of []int) bool {
	return slices.ContainsFunc(of, func(i int) bool { return isReplayed(table[i].RateLimit) })
}

// isReplayed reports whether there is a limit that a replay can count. The recorded counts have no addresses.
func isReplayed(limit ratelimit.Config) bool {
	return !limit.IsZero() && limit.Per != ratelimit.PerAddress
}

// destinations returns the routes of the new table to which the requests of a removed route would come.
func (b *effectBuilder) destinations(r *gateway.Route, t *gateway.Template, e *effectRoute, change *traffic.ChangedRoute) (to []int) {
	d := b.tree.Find(t.Instance())
	if !t.IsLiteral() {
		each := min(effectStepsEach, b.steps)
		b.steps -= each
		// Requests for which a kept template is more specific were never this route's.
		e.atMost = e.atMost || b.tree.Meets(*t, &each, func(other *destination, closer bool) bool {
			return other != d && !(closer && other.kept)
		})
		b.steps += each
	}
	missing := 0
	var lost []string
	for _, method := range r.Methods {
		i := -1
		if d != nil {
			i = d.method(b.delta.table, method)
		}
		if i < 0 {
			missing++
			lost = append(lost, method)
			if method == "GET" && !slices.Contains(r.Methods, "HEAD") && (d == nil || d.method(b.delta.table, "HEAD") < 0) {
				lost = append(lost, "HEAD") // which uses the route of GET
			}
		} else if !slices.Contains(to, i) {
			to = append(to, i)
		}
	}
	switch {
	case missing == len(r.Methods):
		e.changes, change.Lost = append(e.changes, EffectRemoved), true
	case missing > 0:
		e.changes = append(e.changes, EffectMethods)
		for _, method := range lost {
			known := accesslog.MethodOf(method)
			e.atMost = e.atMost || known == accesslog.OtherMethod // all of these are counted together
			change.LostMethods = append(change.LostMethods, traffic.MethodID(known))
		}
	}
	e.atMost = e.atMost || len(to) > 1
	return to
}

// compare adds what changes for the requests of a route that would come to the routes in to.
func (b *effectBuilder) compare(to []int, e *effectRoute, change *traffic.ChangedRoute) {
	auth, limit, keyless := false, false, len(to) > 0
	authBefore := b.before.AuthOf(e.Auth)
	upstream := slices.ContainsFunc(to, func(i int) bool { return b.delta.table[i].Upstream != e.Upstream })
	split := slices.ContainsFunc(to, func(i int) bool {
		return !b.pushChange.after.SplitOf(b.delta.table[i].Split).Equal(b.before.SplitOf(e.Split))
	})
	if len(to) > 0 {
		e.cost = slices.ContainsFunc(to, func(i int) bool { return !b.costs.same(b.delta.table[i].Cost, e.Cost) })
		e.concurrency = slices.ContainsFunc(to, func(i int) bool { return b.delta.table[i].Concurrency != e.Concurrency })
	}
	for _, i := range to {
		r := &b.delta.table[i]
		authAfter := b.pushChange.after.AuthOf(r.Auth)
		keyless = keyless && authAfter == gateway.AuthNone
		limit = limit || r.RateLimit != e.RateLimit || r.ID != e.ID && !r.RateLimit.IsZero()
		if authAfter == authBefore {
			continue
		}
		auth = true
		// Whether a request to a public route has a key, and which credential one to a route with any has, is not recorded.
		// Those of a credential that is not taken any more are refused.
		if authAfter != gateway.AuthNone && (authAfter != gateway.AuthAny || authBefore == gateway.AuthNone) {
			change.Lost, e.atMost = true, true
		}
	}
	change.Keyless = keyless
	if auth {
		e.changes = append(e.changes, EffectAuth)
	}
	if limit {
		e.changes = append(e.changes, EffectLimit)
	}
	if e.cost {
		e.changes = append(e.changes, EffectCost)
	}
	if e.concurrency {
		e.changes = append(e.changes, EffectConcurrency)
	}
	if upstream {
		e.changes = append(e.changes, EffectUpstream)
	}
	if split {
		e.changes = append(e.changes, EffectSplit)
	}
	b.compareHandling(to, e, change)
}

// compareHandling adds what changes of what routes do with their requests. Of the lists of addresses and the rules for headers, those
// of the gateway apply too, and its mode of checking requests to routes without one.
func (b *effectBuilder) compareHandling(to []int, e *effectRoute, change *traffic.ChangedRoute) {
	changed := map[string]bool{}
	for _, i := range to {
		after := b.delta.table[i].Handling
		if !b.handling && after.Equal(e.Handling) {
			continue
		}
		for _, field := range after.Differs(e.Handling) {
			changed[field] = true
		}
		old, next := &b.before.Requests, &b.pushChange.after.Requests
		lists := b.compareLists(e.Handling, after)
		if lists.narrower {
			// The recorded counts have no addresses.
			change.Lost, e.lists, e.atMost = true, true, e.atMost || !lists.none
		}
		changed[addrlist.AllowField] = lists.differs && (changed[addrlist.AllowField] || !slices.Equal(old.AllowIPs, next.AllowIPs))
		changed[addrlist.DenyField] = lists.differs && (changed[addrlist.DenyField] || !slices.Equal(old.DenyIPs, next.DenyIPs))
		was, is := e.Handling.HeaderRules(), after.HeaderRules()
		for n, of := range [2][2]*gateway.HeaderRules{{old.RequestHeaders, next.RequestHeaders}, {old.ResponseHeaders, next.ResponseHeaders}} {
			changed[gateway.HeaderRulesFields()[n]] = !maps.Equal(was[n].Over(of[0]), is[n].Over(of[1]))
		}
		changed["validate"] = old.ModeOf(e.Handling) != next.ModeOf(after) // what enforce would refuse is a warning of the dry run
	}
	for _, field := range gateway.HandlingFields() {
		if changed[field] {
			e.changes = append(e.changes, EffectChange(field))
		}
	}
}

// compareLists returns what changes with the lists of addresses for requests of a route.
func (b *effectBuilder) compareLists(before, after *gateway.Handling) listsChange {
	of := [2]*gateway.Handling{before, after}
	c, known := b.lists[of]
	if known {
		return c
	}
	var lists [2][]*addrlist.List
	for side, g := range []*gateway.Gateway{b.before, &b.pushChange.after} {
		lists[side] = []*addrlist.List{addrlist.CompileStrict(g.Requests.Addresses())}
		if h := of[side]; h != nil {
			lists[side] = append(lists[side], addrlist.CompileStrict(h.Addresses()))
		}
	}
	c.narrower, c.none = addrlist.Narrows(lists[0], lists[1])
	wider, _ := addrlist.Narrows(lists[1], lists[0])
	c.differs = c.narrower || wider
	b.lists[of] = c
	return c
}

// limit adds a limit, and returns its index.
func (b *effectBuilder) limit(c ratelimit.Config) int32 {
	b.change.Limits = append(b.change.Limits, c)
	return int32(len(b.change.Limits) - 1)
}

// limitOf returns the index of the limit of a route of the new table.
func (b *effectBuilder) limitOf(i int, c ratelimit.Config) int32 {
	n, known := b.after[i]
	if !known {
		n = b.limit(c)
		b.after[i] = n
	}
	return n
}

// result returns the Effect, and the warnings about what it does not tell.
func (e *effect) result(counted *traffic.Effect) (*Effect, []string) {
	out := &Effect{Since: counted.Since, Routes: []RouteEffect{}}
	listed := make([]bool, len(e.routes))
	var taken, costly, bounded, narrowed []string
	for i := range e.routes {
		r, n := &e.routes[i], &counted.Routes[i]
		if n.Requests == 0 {
			continue
		}
		if r.taker != "" {
			taken = append(taken, r.taker+" of "+r.Path)
		}
		changes := r.changes
		if n.Refused[traffic.After] != n.Refused[traffic.Before] && len(changes) == 0 {
			changes = []EffectChange{EffectGlobal}
		}
		if len(changes) == 0 {
			continue
		}
		listed[i] = true
		if r.cost {
			costly = append(costly, r.Path)
		}
		if r.concurrency {
			bounded = append(bounded, r.Path)
		}
		if r.lists && r.atMost {
			narrowed = append(narrowed, r.Path)
		}
		one := RouteEffect{
			RouteID: r.ID, Path: r.Path, Methods: r.Methods, Changes: changes, Requests: n.Requests, Keys: n.Keys,
			Refused: n.Refused[traffic.After], RefusedBefore: n.Refused[traffic.Before], AtMost: r.atMost || n.Unknown > 0,
		}
		out.Requests += one.Requests
		out.Refused += one.Refused
		out.RefusedBefore += one.RefusedBefore
		out.AtMost = out.AtMost || one.AtMost && one.Refused > 0
		out.Routes = append(out.Routes, one)
	}
	out.Keys = counted.Keys(func(route int) bool { return listed[route] })
	slices.SortFunc(out.Routes, func(a, b RouteEffect) int {
		return cmp.Or(cmp.Compare(b.Refused-b.RefusedBefore, a.Refused-a.RefusedBefore), cmp.Compare(b.Requests, a.Requests),
			cmp.Compare(a.Path, b.Path), slices.Compare(a.Methods, b.Methods))
	})
	out.LeftOut = max(0, len(out.Routes)-MaxEffectRoutes)
	out.Routes = out.Routes[:min(len(out.Routes), MaxEffectRoutes)]
	return out, slices.Concat(takenWarning(taken), costWarning(costly), concurrencyWarning(bounded), listsWarning(narrowed))
}

// costWarning returns a warning if the costs of routes with requests change.
func costWarning(paths []string) []string {
	if len(paths) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("the cost of %s that had requests changes (%s): the effect does not count what limits of plans would refuse because of it, since the recorded counts have no costs",
		numberOfRoutes(len(paths)), someOf(paths))}
}

// concurrencyWarning returns a warning if the bounds of requests in flight of routes with requests change.
func concurrencyWarning(paths []string) []string {
	if len(paths) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("the concurrency of %s that had requests changes (%s): the effect does not count what it would refuse, since it is not recorded how long requests took",
		numberOfRoutes(len(paths)), someOf(paths))}
}

// listsWarning returns a warning if addresses may no longer use routes with requests.
func listsWarning(paths []string) []string {
	if len(paths) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("some addresses may no longer use %s that had requests (%s): refused counts all requests of such a route, since the recorded counts have no addresses",
		numberOfRoutes(len(paths)), someOf(paths))}
}

func numberOfRoutes(n int) string {
	if n == 1 {
		return "1 route"
	}
	return fmt.Sprintf("%d routes", n)
}

// someOf returns the first three of paths, in order.
func someOf(paths []string) string {
	paths = slices.Compact(slices.Sorted(slices.Values(paths)))
	return strings.Join(paths[:min(3, len(paths))], ", ")
}

// takenWarning returns a warning if added routes take requests from routes in force.
func takenWarning(taken []string) []string {
	if len(taken) == 0 {
		return nil
	}
	slices.Sort(taken)
	return []string{fmt.Sprintf("added routes are more specific than %s that had requests, and take some of them (%s): the effect counts these requests with the routes that they used",
		numberOfRoutes(len(taken)), strings.Join(taken[:min(3, len(taken))], ", "))}
}
