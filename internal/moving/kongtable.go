package moving

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// gatewayTable is a gateway with its routes.
type gatewayTable struct {
	name, host string // host is "" for the gateway of routes without hosts
	entries    []*entry
	upstreams  []string // ids of variants, in order
	names      map[string]string
	variants   map[string]*variant
	closed     bool // a path is closed

	withheld []string            // headers that no upstream gets, since they may hold the key
	setBy    map[string]*service // services to which a header is sent that their upstreams set, by its name in folded form

	document gateway.Document
}

// entry is a route of a gateway.
type entry struct {
	pattern pattern
	methods []string
	of      *examined // nil for a path that is closed
	which   int
	main    bool // not the rest of a prefix
	limit   ratelimit.Config
}

// forwards reports whether requests of the entry get to a service.
func (e *entry) forwards() bool { return e.of != nil && e.of.answer == nil }

// cut is how many segments are cut off the paths of requests.
func (e *entry) cut() int { return e.path().cutAt(e.pattern) }

// path is the path in Kong that the entry is of.
func (e *entry) path() *routePath { return &e.of.routePaths[e.which] }

// variant is the upstream that the entry needs.
func (e *entry) variant() *variant {
	return &variant{service: e.of.service, base: e.path().base, preserve: e.of.preserveHost, headers: e.of.headers}
}

// candidate is a path of a route of Kong that may take requests of a gateway.
type candidate struct {
	*examined
	which       int
	weight      int  // how many of host, method and path it matches by
	plain       bool // it has this host, and not a pattern of it
	conditional bool // it does not take all of the requests that its host, methods and paths match
}

func (c *candidate) path() *routePath { return &c.routePaths[c.which] }

// carried reports whether the path is carried.
func (c *candidate) carried() bool { return c.why == "" && c.path().why == "" }

// carriedAt reports whether the path is carried for the requests of a pattern.
func (c *candidate) carriedAt(p pattern) bool { return c.carried() && c.path().cutAt(p) >= 0 }

// before orders candidates as Kong does.
func (c *candidate) before(o *candidate) int {
	a, b := c.path(), o.path()
	negative := func(v bool) int {
		if v {
			return -1
		}
		return 0
	}
	priority := 0
	if a.regex && b.regex {
		priority = cmp.Compare(o.priority, c.priority)
	}
	return cmp.Or(
		cmp.Compare(o.weight, c.weight),
		cmp.Compare(negative(c.plain), negative(o.plain)),
		cmp.Compare(negative(a.regex), negative(b.regex)),
		priority,
		cmp.Compare(len(b.text), len(a.text)),
	)
}

// alike reports whether both match by the same things.
func (c *candidate) alike(o *candidate) bool {
	return (len(c.hosts) > 0) == (len(o.hosts) > 0) && (len(c.methods) > 0) == (len(o.methods) > 0) && (len(c.paths) > 0) == (len(o.paths) > 0)
}

// hostMatches reports whether a host of a route is a name, or a pattern of it.
func hostMatches(host, name string) (matches, plain bool) {
	host = strings.ToLower(host)
	switch {
	case host == name:
		return true, true
	case strings.HasPrefix(host, "*."):
		return strings.HasSuffix(name, host[1:]), false
	case strings.HasSuffix(host, ".*"):
		return strings.HasPrefix(name, host[:len(host)-1]), false
	}
	return false, false
}

// tabulate makes the tables of all gateways.
func (k *kong) tabulate() error {
	k.gateways = nil
	hosts := map[string]bool{}
	for _, s := range k.states {
		for i := range s.routePaths {
			sp := &s.routePaths[i]
			sp.closed, sp.overBy, sp.emitted, sp.refusesRest, sp.shed = nil, "", false, false, false
		}
		if s.dead {
			continue
		}
		for _, h := range s.hosts {
			if hostProblem(h.text) == "" {
				hosts[strings.ToLower(h.text)] = true
			}
		}
	}
	names := make([]string, 0, len(hosts)+1)
	for h := range hosts {
		names = append(names, h)
	}
	slices.Sort(names)
	names = append([]string{""}, names...)
	total := 0
	for _, host := range names {
		all := k.candidates(host)
		if total += len(all); total > maxRoutes {
			return fault.Invalid("", "the import would make more than %d routes, the most that an account may have: routes without hosts are routes of every host, so import the services of fewer hosts at a time", maxRoutes)
		}
		if err := checkTemplates(all); err != nil {
			return err
		}
		k.narrow(all)
	}
	for _, host := range names {
		g := &gatewayTable{host: host, name: cmp.Or(host, "kong"), names: map[string]string{}, variants: map[string]*variant{}}
		if err := k.table(g, host); err != nil {
			return err
		}
		g.closed = g.closed || len(g.upstreams) == 0
		k.gateways = append(k.gateways, g)
	}
	some := false
	for _, g := range k.gateways {
		for _, e := range g.entries {
			if e.of != nil {
				e.path().emitted, some = true, true
			}
		}
	}
	// If anything is carried, each host has a gateway, although it may have no routes, and so have all others: the gateway
	// that is made first gets the requests to hosts that have none.
	if !some {
		k.gateways = nil
	}
	return nil
}

// candidates returns what may take requests of a gateway, in the order in which Kong looks.
func (k *kong) candidates(host string) (all []*candidate) {
	for _, s := range k.states {
		if s.dead {
			continue
		}
		weight, plain, elsewhere := 0, false, false
		if len(s.hosts) > 0 {
			weight++
			matches := false
			for _, h := range s.hosts {
				m, p := hostMatches(h.text, host)
				matches, plain = matches || m, plain || m && p
				elsewhere = elsewhere || hostProblem(h.text) != ""
			}
			switch {
			case host != "" && !matches && !slices.ContainsFunc(s.hosts, func(h textAt) bool { return isReference(h.text) }):
				continue
			case host != "" && !matches:
				elsewhere = true
			case host != "":
				elsewhere = false
			case !elsewhere:
				continue
			}
		}
		if len(s.methods) > 0 {
			weight++
		}
		if len(s.paths) > 0 {
			weight++
		}
		if s.condition != "" {
			weight++
		}
		for i := range s.routePaths {
			c := &candidate{examined: s, which: i, weight: weight, plain: plain}
			c.conditional = s.condition != "" || elsewhere || s.routePaths[i].hull
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b *candidate) int { return cmp.Or(a.before(b), cmp.Compare(a.order, b.order)) })
	return all
}

// index finds the candidates that cover a pattern.
type index struct {
	byPrefix  map[string][]int // candidates, by their prefix
	lengths   []int            // of prefixes
	templates []int
	all       []*candidate
}

func newIndex(all []*candidate) *index {
	x := &index{byPrefix: map[string][]int{}, all: all}
	for i, c := range all {
		if p := c.path().prefix; p != "" {
			if x.byPrefix[p] == nil && !slices.Contains(x.lengths, len(p)) {
				x.lengths = append(x.lengths, len(p))
			}
			x.byPrefix[p] = append(x.byPrefix[p], i)
		} else {
			x.templates = append(x.templates, i)
		}
	}
	return x
}

// covering returns the candidates that cover a pattern, in order.
func (x *index) covering(p pattern) []*candidate {
	var found []int
	stem := p.stem()
	for _, n := range x.lengths {
		if n <= len(stem) {
			found = append(found, x.byPrefix[stem[:n]]...)
		}
	}
	for _, i := range x.templates {
		if x.all[i].path().covers(p) {
			found = append(found, i)
		}
	}
	slices.Sort(found)
	list := make([]*candidate, len(found))
	for i, n := range found {
		list[i] = x.all[n]
	}
	return list
}

// needsMore reports whether a caller of s may use o, and not s.
func (s *examined) needsMore(o *examined) bool {
	if !s.lists.IsZero() && !s.lists.Equal(o.lists) || s.answer != nil && s.answer != o.answer {
		return true
	}
	if s.access != keyed || o.access != keyed || s.acl == o.acl || s.acl == nil {
		return s.access > o.access
	}
	for _, names := range [][]string{{"allow", "whitelist"}, {"deny", "blacklist"}} {
		var lists [2][]string
		for i, p := range []*plugin{s.acl, o.acl} {
			if p != nil {
				lists[i] = append(textsOf(p.get(names[0])), textsOf(p.get(names[1]))...)
				slices.Sort(lists[i])
			}
		}
		if !slices.Equal(lists[0], lists[1]) {
			return true
		}
	}
	return false
}

// ending is what becomes of the requests of a pattern and method.
type ending struct {
	at     pattern
	winner *candidate   // nil if no route takes them
	by     *candidate   // may take them instead, and needs more than the winner; nil for none
	others []*candidate // that may take them instead
}

// open reports whether the requests are carried.
func (o ending) open() bool { return o.winner != nil && o.winner.carriedAt(o.at) && o.by == nil }

// same reports whether both mean the same route of Kong, carried or not.
func (o ending) same(other ending) bool {
	if o.open() != other.open() {
		return false
	}
	if !o.open() {
		return true
	}
	a, b := o.winner, other.winner
	return a.examined == b.examined && a.path().base == b.path().base && a.path().cutAt(o.at) == b.path().cutAt(other.at)
}

// decide returns what becomes of the requests with a method of a pattern that the candidates cover.
func decide(p pattern, list []*candidate, method string) (o ending) {
	o.at = p
	var others []*candidate // that may take the requests instead of the winner
	for _, c := range list {
		switch {
		case o.winner != nil && c.weight < o.winner.weight:
			// Kong looks at it only if no other one matches.
		case !c.hasMethod(method):
		case c.conditional: // also behind the winner: what else orders them is not known of the requests that it matches
			others = append(others, c)
		case o.winner == nil:
			o.winner = c
		case c.before(o.winner) != 0:
			// The flavors of Kong's router do not agree on the order of routes that match by different things.
			if !c.alike(o.winner) {
				others = append(others, c)
			}
		case c.needsMore(o.winner.examined) && !o.winner.needsMore(c.examined) || o.winner.carriedAt(p) && !c.carriedAt(p) && c.access >= o.winner.access:
			// Of routes that nothing but their age orders, the one that needs most decides, since their age is not known.
			others = append(others, o.winner)
			o.winner = c
		default:
			others = append(others, c)
		}
	}
	o.others = others
	for _, c := range others {
		if o.winner != nil && c.needsMore(o.winner.examined) && (o.by == nil || c.access > o.by.access) {
			o.by = c
		}
	}
	return o
}

func (s *examined) hasMethod(method string) bool {
	return len(s.methods) == 0 || slices.ContainsFunc(s.methods, func(m textAt) bool { return m.text == method })
}

// checkTemplates returns an error if there are too many regular expressions, which are compared with everything else.
func checkTemplates(all []*candidate) error {
	n := 0
	for _, c := range all {
		if c.path().isTemplate() {
			n++
		}
	}
	if n > maxTemplates {
		return fault.Invalid("", "more than %d paths of a host are regular expressions, the most that are compared with one another: import fewer routes at a time", maxTemplates)
	}
	return nil
}

// patterns returns the patterns of the candidates, each once, and those of the paths that two of them match.
func patterns(all []*candidate) (list []pattern, err error) {
	seen := map[string]bool{}
	add := func(p pattern) {
		if id := p.id(); !seen[id] {
			seen[id] = true
			list = append(list, p)
		}
	}
	templates := false
	for _, c := range all {
		for _, p := range c.path().patterns() {
			add(p)
		}
		templates = templates || c.path().isTemplate()
	}
	most := maxPatterns
	if templates {
		most = maxCompared
	}
	// Where two templates meet, each of their routes may be the one that Kong takes.
	for i := 0; templates && i < len(list) && len(list) <= most; i++ {
		for j := range i {
			if both, meet := list[i].and(list[j]); meet && !list[i].covers(list[j]) && !list[j].covers(list[i]) {
				add(both)
			}
		}
	}
	if len(list) > most {
		return nil, fault.Invalid("", "the routes of a host have too many different paths, more than %d, or %d with regular expressions: import fewer routes at a time", maxPatterns, maxCompared)
	}
	return list, nil
}

// row is a pattern with what becomes of its requests, by their methods.
type row struct {
	pattern pattern
	main    bool     // it is what a reader expects of a route that takes its requests
	endings []ending // by the method
	above   []int    // rows whose patterns cover this one
}

// table makes the routes of a gateway.
func (k *kong) table(g *gatewayTable, host string) error {
	all := k.candidates(host)
	k.narrow(all) // which makes some of them conditional
	list, err := patterns(all)
	if err != nil {
		return err
	}
	methods := methodsOf(all)
	x := newIndex(all)
	rows := make([]*row, len(list))
	for i, p := range list {
		rows[i] = &row{pattern: p, endings: make([]ending, len(methods))}
		covering := x.covering(p)
		for m := range methods {
			o := decide(p, covering, methods[m])
			rows[i].endings[m] = o
			rows[i].main = rows[i].main || o.winner != nil && o.winner.path().expects(p)
		}
	}
	slices.SortStableFunc(rows, func(a, b *row) int { return cmp.Compare(len(a.pattern), len(b.pattern)) })
	linkRows(rows)
	for i, r := range rows {
		if !r.main && r.redundant(rows) {
			r.noteShed(rows)
			continue
		}
		g.add(rows, i, methods)
	}
	slices.SortStableFunc(g.entries, func(a, b *entry) int { return cmp.Compare(a.pattern.String(), b.pattern.String()) })
	return g.nameUpstreams()
}

// linkRows sets the rows above each row.
func linkRows(rows []*row) {
	byID := map[string]int{}
	var templates []int
	for i, r := range rows {
		byID[r.pattern.id()] = i
		if !r.pattern.isSimple() {
			templates = append(templates, i)
		}
	}
	for i, r := range rows {
		seen := map[int]bool{i: true}
		add := func(j int) {
			if !seen[j] && rows[j].pattern.covers(r.pattern) {
				seen[j] = true
				r.above = append(r.above, j)
			}
		}
		look := func(p pattern) {
			if j, ok := byID[p.id()]; ok {
				add(j)
			}
		}
		for n, s := range r.pattern {
			look(with(r.pattern[:n], piece{kind: wildPiece}))
			for size := range s.pre {
				text := piece{kind: textPiece, pre: s.pre[:size+1]}
				if look(with(r.pattern[:n], text, piece{kind: wildPiece})); n == len(r.pattern)-1 {
					look(with(r.pattern[:n], text))
				}
			}
		}
		for _, j := range templates {
			add(j)
		}
	}
}

// Indexes of methods in what methodsOf returns.
const (
	getIndex  = 0
	headIndex = 5
)

// closesHead reports whether HEAD must not take the route of GET, which it does if no route has it.
func (r *row) closesHead() bool {
	get, head := r.endings[getIndex], r.endings[headIndex]
	return get.open() && !head.open() && (head.winner != nil || slices.ContainsFunc(head.others, func(c *candidate) bool { return c.needsMore(get.winner.examined) }))
}

// isSimple reports whether p is one of the patterns of a prefix: literals, perhaps a text with a parameter, perhaps a wildcard.
func (p pattern) isSimple() bool {
	for i, s := range p {
		switch {
		case s.kind == paramPiece, s.kind == textPiece && i < len(p)-1 && p[i+1].kind != wildPiece:
			return false
		}
	}
	return true
}

// redundant reports whether the requests of a row have the same end without it.
func (r *row) redundant(rows []*row) bool {
	for _, j := range r.above {
		if !slices.ContainsFunc(rows[j].endings, ending.open) {
			continue // no route
		}
		if rows[j].closesHead() != r.closesHead() {
			return false
		}
		for m := range r.endings {
			if o := rows[j].endings[m]; (o.open() || r.endings[m].open()) && !o.same(r.endings[m]) {
				return false
			}
		}
	}
	// Without a row above, the requests of the rest of a prefix are a 404.
	return true
}

// noteShed notes at the winners of a row which is left out that its requests are a 404, if they are.
func (r *row) noteShed(rows []*row) {
	for _, j := range r.above {
		if slices.ContainsFunc(rows[j].endings, ending.open) {
			return // the row above takes them
		}
	}
	for _, o := range r.endings {
		if o.winner != nil && o.winner.carried() {
			o.winner.path().shed = true
		}
	}
}

// add adds the routes of a row.
func (g *gatewayTable) add(rows []*row, i int, methods []string) {
	r := rows[i]
	first := len(g.entries)
	for m, method := range methods {
		o := r.endings[m]
		if !o.open() {
			if o.by != nil && o.winner != nil && o.winner.carriedAt(o.at) {
				o.noteClosed(g.host+r.pattern.String(), o.by)
			}
			continue
		}
		g.put(first, &entry{pattern: r.pattern, methods: []string{method}, of: o.winner.examined, which: o.winner.which, main: r.main})
	}
	if len(g.entries) > first {
		// A route of GET takes HEAD, unless another one has it.
		if r.closesHead() {
			head := r.endings[headIndex]
			if g.close(r, "HEAD"); head.by == nil {
				head.noteClosed("HEAD of "+g.host+r.pattern.String(), r.endings[getIndex].winner)
			}
		}
		return
	}
	// Nothing of the path is carried: it is closed if another route would take its requests.
	for _, j := range r.above {
		for m := range methods {
			if rows[j].endings[m].open() {
				g.close(r, closedMethod)
				for n := range methods {
					if r.endings[n].by == nil {
						r.endings[n].noteClosed(g.host+r.pattern.String(), rows[j].endings[m].winner)
					}
				}
				return
			}
		}
	}
}

// noteClosed notes at the path of the winner that requests are refused because of another route.
func (o ending) noteClosed(what string, because *candidate) {
	switch {
	case o.winner == nil:
	case o.winner.carried() && !o.winner.carriedAt(o.at):
		o.winner.path().refusesRest = true
	default:
		sp := o.winner.path()
		sp.closed = append(sp.closed, what)
		sp.overBy = because.label()
	}
}

// closedMethod is the only method of a path that is closed. No client sends it, and the upstream of the route does not exist.
const (
	closedMethod   = "CLOSED"
	closedUpstream = "closed"
	closedTarget   = "http://closed.invalid"
)

func (g *gatewayTable) close(r *row, method string) {
	g.closed = true
	g.entries = append(g.entries, &entry{pattern: r.pattern, methods: []string{method}, main: r.main})
}

// put adds an entry to those from first on, or its method to one that is like it.
func (g *gatewayTable) put(first int, e *entry) {
	for _, same := range g.entries[first:] {
		if same.of == e.of && same.path().base == e.path().base && same.cut() == e.cut() {
			same.methods = append(same.methods, e.methods...)
			return
		}
	}
	g.entries = append(g.entries, e)
}

// methodsOf returns the methods that a table distinguishes.
func methodsOf(all []*candidate) []string {
	methods := gateway.EverydayMethods()
	for _, c := range all {
		for _, m := range c.methods {
			if !slices.Contains(methods, m.text) && gateway.CheckMethods([]string{m.text}) == nil && m.text != closedMethod {
				methods = append(methods, m.text)
			}
		}
	}
	return methods[:min(len(methods), gateway.MaxMethods-1)]
}

// narrow makes a regular expression that matches less than its template conditional, where another route may take what it
// does not match, or where the rest would be public.
func (k *kong) narrow(all []*candidate) {
	for _, c := range all {
		sp := c.path()
		if !sp.narrow || sp.hull || c.conditional {
			continue
		}
		if c.access == public && sp.why == "" && c.why == "" {
			sp.reason = reason{"a template would make more paths public than the regular expression does", "add routes with templates such as /users/{id}"}
		}
		for _, o := range all {
			if o.examined == c.examined && o.which == c.which {
				continue
			}
			for _, p := range o.path().patterns() {
				if slices.ContainsFunc(sp.patterns(), p.meets) && sp.why == "" {
					sp.reason = reason{"a template would take requests that route " + short(o.label()) + " takes, which the regular expression does not match", "add routes with templates such as /users/{id}"}
				}
			}
		}
		if sp.why != "" {
			c.conditional = true
		}
	}
}

// nameUpstreams gives the upstreams of a gateway their names.
func (g *gatewayTable) nameUpstreams() error {
	used := map[string]bool{gateway.DefaultUpstream: true, closedUpstream: true}
	for _, e := range g.entries {
		if !e.forwards() {
			continue
		}
		v := e.variant()
		id := v.id()
		if g.variants[id] == nil {
			g.variants[id] = v
			g.upstreams = append(g.upstreams, id)
			g.names[id] = unique(used, cmp.Or(slug(v.service.label(), 64), "service"), 64)
		}
	}
	if len(g.upstreams)+2 > gateway.MaxUpstreams {
		return fault.Invalid("", "%s would have %d upstreams, and a gateway has at most %d: give services hosts of their own, or import fewer at a time", g.label(), len(g.upstreams), gateway.MaxUpstreams-2)
	}
	return nil
}

// label is what messages call the gateway.
func (g *gatewayTable) label() string {
	if g.host == "" {
		return "the gateway of the services without hosts"
	}
	return fmt.Sprintf("the gateway of %s", g.host)
}

// upstreamOf returns the name of the upstream of an entry.
func (g *gatewayTable) upstreamOf(e *entry) string {
	switch {
	case e.of != nil && e.of.answer != nil, len(g.upstreams) == 0:
		return gateway.DefaultUpstream
	case e.of == nil:
		return closedUpstream
	}
	return g.names[e.variant().id()]
}
