package moving

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// kong turns files of Kong into files of Keygate.
type kong struct {
	report
	decks     []*Deck
	observers map[string]string
	deciders  map[string]reason

	services  []*service
	routes    []*route
	upstreams []*upstream
	consumers []*consumer
	groups    []*group
	plugins   []*plugin

	names     []string                // of plugins
	byScope   map[scope]*plugin       // that are enabled
	ofCallers map[*consumer][]*plugin // those of a consumer and its groups, which are enabled
	members   map[*group][]*consumer  // of consumer groups
	memberOf  map[*consumer][]*group
	addresses map[*service]address
	unlocated map[*service]reason
	states    []*examined

	gateways []*gatewayTable
	plans    *planBuilder
}

// Kong turns files that ReadKong returned, which together describe one Kong, into configuration files and keys. The error is
// a validation error if the result would be beyond a bound.
func Kong(decks ...*Deck) (*Result, error) {
	k := &kong{decks: decks, observers: observers(), deciders: deciders(), byScope: map[scope]*plugin{}, ofCallers: map[*consumer][]*plugin{}, memberOf: map[*consumer][]*group{}, members: map[*group][]*consumer{}, addresses: map[*service]address{}, unlocated: map[*service]reason{}}
	if len(decks) > MaxFiles {
		return nil, fault.Invalid("", "at most %d files can be imported at once", MaxFiles)
	}
	if err := k.merge(); err != nil {
		return nil, err
	}
	for _, s := range k.services {
		a, l := k.locate(s)
		k.addresses[s] = a
		if l.why != "" {
			k.unlocated[s] = l
		}
	}
	for _, r := range k.routes {
		k.states = append(k.states, k.examine(r))
	}
	keys, err := k.build()
	if err != nil {
		return nil, err
	}
	list, err := k.files()
	if err != nil {
		return nil, err
	}
	k.reportRoutes()
	k.reportPlugins()
	for _, d := range k.decks {
		for _, o := range d.others {
			k.left(o.at, o.object, o.why, o.remedy)
		}
	}
	files := make([]string, len(decks))
	for i, d := range decks {
		files[i] = d.name
	}
	return &Result{Files: list, Keys: keys, Report: k.sorted(files), Origins: k.origins()}, nil
}

// origins returns where the routes of all gateways come from.
func (k *kong) origins() []Origin {
	list := []Origin{}
	for _, g := range k.gateways {
		for _, e := range g.entries {
			if e.of != nil && e.of.name+e.of.id != "" {
				list = append(list, Origin{Gateway: g.name, Path: e.pattern.String(), Methods: e.methods, Name: e.of.name, ID: e.of.id})
			}
		}
	}
	return list
}

// merge puts the objects of all files together, and resolves references between them.
func (k *kong) merge() error {
	for _, d := range k.decks {
		k.services = append(k.services, d.services...)
		for _, s := range d.services {
			k.routes = append(k.routes, s.routes...)
			k.plugins = append(k.plugins, s.plugins...)
		}
		k.routes = append(k.routes, d.routes...)
		k.upstreams = append(k.upstreams, d.upstreams...)
		k.consumers = append(k.consumers, d.consumers...)
		k.groups = append(k.groups, d.groups...)
		for _, c := range d.consumers {
			k.plugins = append(k.plugins, c.plugins...)
		}
		for _, g := range d.groups {
			k.plugins = append(k.plugins, g.plugins...)
		}
		k.plugins = append(k.plugins, d.plugins...)
	}
	for i, r := range k.routes {
		r.order = i
		k.plugins = append(k.plugins, r.plugins...)
		if r.service == nil {
			r.service = k.service(r.serviceRef)
		}
	}
	if err := k.unique(); err != nil {
		return err
	}
	for _, d := range k.decks {
		for _, t := range d.targets {
			for _, u := range k.upstreams {
				if u.is(t.upstreamRef) {
					u.targets = append(u.targets, t)
				}
			}
		}
		for _, key := range d.keys {
			if c := k.consumer(key.consumerRef); c != nil {
				c.keys = append(c.keys, key)
			} else {
				k.left(key.at, "key", "its consumer is not in the files", "nothing to do")
			}
		}
		for _, a := range d.acls {
			if c := k.consumer(a.consumerRef); c != nil {
				c.groups = append(c.groups, a.group)
			}
		}
	}
	for _, g := range k.groups {
		for _, c := range k.consumers {
			if slices.ContainsFunc(c.member, g.is) || slices.ContainsFunc(g.consumers, func(ref string) bool { return c.is(ref) || ref == c.customID && ref != "" }) {
				k.members[g] = append(k.members[g], c)
				k.memberOf[c] = append(k.memberOf[c], g)
			}
		}
	}
	for _, p := range k.plugins {
		if err := k.resolve(p); err != nil && !p.disabled {
			return err
		}
		if !p.dangling && !p.disabled {
			k.enable(p)
		}
	}
	slices.Sort(k.names)
	k.names = slices.Compact(k.names)
	return nil
}

// unique returns an error if two objects of a kind have the same name or identifier, since references would mean one alone.
func (k *kong) unique() error {
	seen := map[[3]string]at{}
	add := func(kind string, e *entity) error {
		for _, key := range [][3]string{{kind, "name", e.name}, {kind, "id", e.id}} {
			if first, twice := seen[key]; twice && key[2] != "" {
				return fault.Invalid("", "%s:%d: the %s %s has the same %s as the one of %s:%d: remove one, or give it another", e.file, e.line, kind, short(key[2]), key[1], first.file, first.line)
			}
			seen[key] = e.at
		}
		return nil
	}
	var problems []error
	for _, s := range k.services {
		problems = append(problems, add("service", &s.entity))
	}
	for _, r := range k.routes {
		problems = append(problems, add("route", &r.entity))
	}
	for _, u := range k.upstreams {
		problems = append(problems, add("upstream", &u.entity))
	}
	for _, c := range k.consumers {
		problems = append(problems, add("consumer", &c.entity))
	}
	for _, g := range k.groups {
		problems = append(problems, add("consumer group", &g.entity))
	}
	return fault.Join(problems...)
}

// scope is what a plugin applies to. The zero value but for the name is everything.
type scope struct {
	name     string
	route    *route
	service  *service // nil with a route
	consumer *consumer
	group    *group
}

// enable lets a plugin be found by its scope.
func (k *kong) enable(p *plugin) {
	k.names = append(k.names, p.name)
	s := scope{p.name, p.route, p.service, p.consumer, p.group}
	if s.route != nil {
		s.service = nil
	}
	if k.byScope[s] == nil {
		k.byScope[s] = p
	}
	if p.consumer != nil {
		k.ofCallers[p.consumer] = append(k.ofCallers[p.consumer], p)
	} else if p.group != nil {
		for _, c := range k.members[p.group] {
			k.ofCallers[c] = append(k.ofCallers[c], p)
		}
	}
}

// resolve finds the objects that a plugin refers to. A plugin of a route or service that is not there is an error, since it
// may be what the route or service under another name needs.
func (k *kong) resolve(p *plugin) error {
	missing := func(kind, ref string) error {
		p.dangling = true
		return fault.Invalid("", "%s:%d: the plugin %s is of the %s %s, which is not in the files: give the file that has it too, or remove the plugin", p.file, p.line, short(p.name), kind, short(ref))
	}
	if p.routeRef != "" {
		for _, r := range k.routes {
			if r.is(p.routeRef) {
				p.route = r
			}
		}
		if p.route == nil {
			return missing("route", p.routeRef)
		}
	}
	if p.serviceRef != "" {
		if p.service = k.service(p.serviceRef); p.service == nil {
			return missing("service", p.serviceRef)
		}
	}
	if p.consumerRef != "" {
		p.consumer = k.consumer(p.consumerRef)
		p.dangling = p.dangling || p.consumer == nil
	}
	if p.groupRef != "" {
		for _, g := range k.groups {
			if g.is(p.groupRef) {
				p.group = g
			}
		}
		p.dangling = p.dangling || p.group == nil
	}
	return nil
}

func (k *kong) service(ref string) *service {
	for _, s := range k.services {
		if s.is(ref) {
			return s
		}
	}
	return nil
}

func (k *kong) consumer(ref string) *consumer {
	for _, c := range k.consumers {
		if c.is(ref) || ref != "" && ref == c.customID {
			return c
		}
	}
	return nil
}

// deckOf returns the file of a route.
func (k *kong) deckOf(r *route) *Deck {
	for _, d := range k.decks {
		if d.name == r.file {
			return d
		}
	}
	return k.decks[0]
}

// examine returns what is known of a route alone.
func (k *kong) examine(r *route) *examined {
	s := &examined{route: r}
	k.judge(s)
	lose := func(why, remedy string) {
		if s.why == "" {
			s.reason = reason{why, remedy}
		}
	}
	isHTTP := len(r.protocols) == 0 || slices.ContainsFunc(r.protocols, func(p string) bool {
		return slices.Contains([]string{"http", "https", "grpc", "grpcs", "ws", "wss"}, p)
	})
	switch {
	case r.service != nil && r.service.disabled:
		s.dead = true
		s.reason = reason{"its service is disabled", "nothing to do"}
	case !isHTTP:
		s.dead = true
		s.reason = reason{"Keygate forwards HTTP and gRPC, and no " + short(strings.Join(r.protocols, ", ")), "connect to the service without a gateway"}
	case r.expression:
		s.condition = "by an expression"
		lose("it matches by an expression", "write it with paths, methods and hosts")
	case r.headers:
		s.condition = "by headers"
		lose("it matches by headers, and Keygate does not route by them", "give it a path of its own, or split requests by a header (docs/upstreams.md)")
	case r.snis:
		s.condition = "by SNI"
		lose("it matches by SNI, and Keygate does not route by it", "give it hosts")
	case len(r.odd) > 0:
		s.condition, s.access = "by something unknown", withheld
		lose("Keygate does not know its "+short(strings.Join(r.odd, ", ")), "look whether it matches by that, and add the route")
	case r.service != nil && slices.Contains(r.service.odd, "filter_chains"):
		s.access = withheld
		lose("its service has filter_chains, and Keygate runs no filters in WebAssembly", "let the service do what they do, then add the route")
	case r.service == nil && r.serviceRef != "":
		lose("its service "+short(r.serviceRef)+" is not in the files", "give the file with the service, too")
	case r.service == nil:
		if s.answer == nil {
			lose("it has no service", "add a route for what its plugins do")
		}
	case s.answer != nil: // the service gets no requests
	case k.unlocated[r.service].why != "":
		lose("its service is not carried: "+k.unlocated[r.service].why, k.unlocated[r.service].remedy)
	case k.addresses[r.service].upstream != nil && len(k.addresses[r.service].upstream.targets) == 0:
		lose("the upstream of its service has no targets", "add some")
	}
	k.readPaths(s)
	return s
}

// readPaths sets the paths of a route.
func (k *kong) readPaths(s *examined) {
	if s.expression {
		s.routePaths = []routePath{{matcher: hullOf("", s.line)}}
		return
	}
	if len(s.paths) == 0 {
		sp, _ := prefixMatcher("/", s.line)
		sp.text = ""
		s.routePaths = []routePath{{matcher: sp, base: k.pathOf(s)}}
		return
	}
	oldFormat := k.deckOf(s.route).version != "3.0"
	for _, p := range s.paths {
		var one routePath
		text, isRegex := strings.CutPrefix(p.text, "~")
		if oldFormat {
			text, isRegex = p.text, strings.Trim(p.text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_~/%") != ""
		}
		switch {
		case isReference(p.text):
			one = routePath{matcher: hullOf("", p.line), reason: reason{"the path is not in the file", "write it"}}
			one.text = p.text
		case isRegex:
			if one.matcher = regexMatcher(text, p.line); one.hull {
				one.reason = reason{"the regular expression is no path template", "add routes with templates such as /users/{id}"}
			}
		default:
			var problem string
			if one.matcher, problem = prefixMatcher(text, p.line); problem != "" {
				one.matcher = hullOf("", p.line)
				one.reason = reason{"its path " + short(text) + " is not one of Keygate: " + problem, "write another path"}
			}
		}
		one.text, one.line = p.text, p.line
		one.base = k.pathOf(s)
		if one.why == "" && !s.keepPath && s.answer == nil {
			one.strip()
		}
		s.routePaths = append(s.routePaths, one)
	}
}

// pathOf returns the path of the service of a route.
func (k *kong) pathOf(s *examined) string {
	if s.service == nil {
		return ""
	}
	return k.addresses[s.service].path
}

// strip sets how the service gets what it got from a route that strips its own path.
func (sp *routePath) strip() {
	switch rest, ok := strings.CutSuffix(sp.base, sp.prefix); {
	case sp.prefix == "/" && !sp.regex:
	case ok && !sp.regex && !strings.HasSuffix(sp.prefix, "/"):
		sp.base, sp.stripped = rest, byBase // the service has the path that was stripped
	case sp.ragged:
		sp.reason = reason{
			"what it strips from requests (strip_path) is what its regular expression matches, and Keygate cuts off whole segments of a path alone",
			"add the route with strip_prefix; or let the service take requests with the path, set strip_path: false and import again",
		}
	default:
		sp.stripped = bySegments
	}
}

// cutAt returns how many segments are cut off the paths of p for the service, or -1 if it would not get what it got.
func (sp *routePath) cutAt(p pattern) int {
	if sp.stripped == not {
		return 0
	}
	switch n, ok := sp.cut(p); {
	case !ok:
		return -1
	case sp.stripped == byBase:
		return 0
	default:
		return n
	}
}

// build makes the tables of routes. A route that acl restricts is left out if the scopes of keys cannot say so, and one whose headers
// cannot be removed; then the tables are made again.
func (k *kong) build() ([]Key, error) {
	for {
		if err := k.tabulate(); err != nil {
			return nil, err
		}
		if k.untaken() {
			continue
		}
		keys := &keyBuilder{kong: k}
		if conflict := keys.scopes(); conflict != nil {
			continue
		}
		k.plans = k.limits()
		return keys.build()
	}
}

// object is what the report calls a path of a route.
func (s *examined) object(i int) string {
	if len(s.routePaths) == 1 || i < 0 {
		return "route " + short(s.label())
	}
	return "route " + short(s.label()) + ", path " + short(s.routePaths[i].text)
}

// reportRoutes adds the lines of routes and services.
func (k *kong) reportRoutes() {
	counts := map[*service]*routeCounts{nil: {}}
	for _, s := range k.services {
		counts[s] = &routeCounts{}
	}
	shed := false
	for _, s := range k.states {
		n := counts[s.service]
		n.all++
		some := false
		for i := range s.routePaths {
			sp := &s.routePaths[i]
			some = some || sp.emitted
			if sp.emitted && sp.shed && !shed {
				shed = true
				name := short(cmp.Or(sp.prefix, strings.TrimPrefix(sp.text, "~")))
				k.changed(at{s.file, cmp.Or(sp.line, s.line)}, "prefixes", "%s is that path and all below it; the prefix of Kong took %s-old too, which is a 404 where no other route takes it. So it is with all prefixes", name, name)
			}
		}
		switch {
		case some && s.answer == nil:
			n.forwarded++
		case some:
			n.answered++
		}
		k.reportRoute(s)
	}
	for _, s := range k.services {
		k.reportService(s, counts[s])
	}
	used := map[*upstream]bool{}
	for s, n := range counts {
		if n.forwarded == 0 {
			continue
		}
		if s != nil && k.addresses[s].upstream != nil {
			used[k.addresses[s].upstream] = true
		}
	}
	for _, u := range k.upstreams {
		object := "upstream " + short(u.name)
		switch {
		case !used[u]:
			k.left(u.at, object, "no route that is carried uses it", "nothing to do")
		case len(u.odd) > 0:
			k.changed(u.at, object, "Keygate does not know its %s", short(strings.Join(u.odd, ", ")))
		case !k.has(u.at, object):
			k.carried(u.at, object)
		}
	}
}

// reportRoute adds the lines of a route: one if all of it has the same end, else one for each path.
func (k *kong) reportRoute(s *examined) {
	if s.why != "" {
		why := s.why
		if s.condition != "" {
			why += ", and other routes may get its requests"
		}
		k.left(s.at, s.object(-1), why+refused(s.closed()), s.remedy)
		return
	}
	for i := range s.routePaths {
		sp := &s.routePaths[i]
		p := at{s.file, cmp.Or(sp.line, s.line)}
		if len(s.routePaths) == 1 {
			p = s.at
		}
		switch {
		case sp.why != "":
			why := sp.why
			if sp.hull || sp.narrow {
				why += ", and other routes may get its requests"
			}
			k.left(p, s.object(i), why+refused(sp.closed, sp.overBy), sp.remedy)
		case !sp.emitted && len(sp.closed) > 0:
			k.left(p, s.object(i), "route "+short(sp.overBy)+" may take its requests, is not carried, and needs more", "if its requests may come here, remove that route from the file and import again")
		case !sp.emitted && len(s.hosts) > 0 && !slices.ContainsFunc(s.hosts, func(h textAt) bool { return hostProblem(h.text) == "" }):
			k.left(p, s.object(i), "none of its hosts can be that of a gateway", "make a gateway for each host that callers use")
		case !sp.emitted:
			k.left(p, s.object(i), "other routes take all of its requests", "nothing to do")
		default:
			k.reportPath(s, i, p)
		}
	}
}

// reportPath adds the lines of a path that is carried.
func (k *kong) reportPath(s *examined, i int, p at) {
	sp := &s.routePaths[i]
	before := len(k.lines)
	if sp.narrow {
		k.changed(p, s.object(i), "it matches any text where %s matched some", short(sp.text))
	}
	if len(sp.closed) > 0 {
		k.changed(p, s.object(i), "%s left out, where route %s may take requests that need more", closedPaths(sp.closed), short(sp.overBy))
	}
	if len(s.protocols) > 0 && !slices.ContainsFunc(s.protocols, func(p string) bool { return p == "http" || p == "grpc" || p == "ws" }) {
		k.changed(p, s.object(i), "it takes requests without TLS too, if the server listens for them")
	}
	if s.v1 && strings.HasSuffix(sp.prefix, "/") && sp.prefix != "/" && sp.stripped == bySegments {
		k.changed(p, s.object(i), "the rest of a path is behind a slash for the service, as with path_handling: v0; v1 put it right behind the service's own path")
	}
	if sp.stripped == bySegments && sp.base != "" && sp.hasExact() {
		k.changed(p, s.object(i), "for %s itself the service gets %s/, where Kong sent %s", short(sp.text), short(sp.base), short(sp.base))
	}
	if sp.refusesRest {
		k.changed(p, s.object(i), "strip_prefix cuts off whole segments, so paths such as %s-old are a 405 instead of going to another route", short(sp.text))
	}
	for _, m := range s.methods {
		if m.text == "TRACE" || m.text == "CONNECT" {
			k.changed(p, s.object(i), "%s is refused, as always", m.text)
		}
	}
	for _, h := range s.hosts {
		if problem := hostProblem(h.text); problem != "" {
			k.left(at{s.file, cmp.Or(h.line, s.line)}, "host "+short(h.text)+" of route "+short(s.label()), problem, "give the gateway its name with keygate gateways update --hostname, or make one for it")
		}
	}
	if len(k.lines) == before {
		k.carried(p, s.object(i))
	}
}

// hasExact reports whether the path matches what it strips, without a slash behind it.
func (sp *routePath) hasExact() bool {
	return slices.ContainsFunc(sp.main, func(p pattern) bool {
		return slices.ContainsFunc(sp.stems, func(stem pattern) bool { return stem.id() == p.id() })
	})
}

// closed returns the paths of a route that are closed, and the route that would take them.
func (s *examined) closed() (all []string, over string) {
	for i := range s.routePaths {
		all = append(all, s.routePaths[i].closed...)
		over = cmp.Or(over, s.routePaths[i].overBy)
	}
	return all, over
}

// refused says that the requests of closed paths, which the route over would take, are refused; "" for no paths.
func refused(closed []string, over string) string {
	if len(closed) == 0 {
		return ""
	}
	return fmt.Sprintf(", so %s refused with 405, which would otherwise go to route %s", closedPaths(closed), short(over))
}

// closedPaths returns the paths with a verb.
func closedPaths(paths []string) string {
	slices.Sort(paths)
	paths = slices.Compact(paths)
	isRest := func(p string) bool { return strings.Contains(p, "{rest}") } // of a prefix
	if plain := slices.DeleteFunc(slices.Clone(paths), isRest); len(plain) > 0 {
		paths = plain
	}
	if len(paths) == 1 {
		return paths[0] + " is"
	}
	if len(paths) > 4 {
		return fmt.Sprintf("%s and %d more paths are", strings.Join(paths[:3], ", "), len(paths)-3)
	}
	return strings.Join(paths[:len(paths)-1], ", ") + " and " + paths[len(paths)-1] + " are"
}

// hostProblem says why a host of a route cannot be the hostname of a gateway; "" if it can.
func hostProblem(h string) string {
	switch {
	case isReference(h):
		return "the name is not in the file"
	case strings.Contains(h, "*"):
		return "a gateway has one hostname, and no pattern"
	}
	if err := gateway.CheckHostname(h); err != nil {
		return "its gateway cannot have this hostname: " + strings.TrimPrefix(fault.ProblemsOf(err)[0].Message, "must ")
	}
	return ""
}
