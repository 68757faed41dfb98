package moving

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
)

// window is a number of requests in a time.
type window struct {
	count   int64
	seconds int64
	name    string // such as minute
}

// rate returns the window as a rate; burst is not empty if the rate alone would have another capacity. ok is false if no
// rate says it.
func (w window) rate() (sustained, burst string, ok bool) {
	if w.count < 1 || w.count > ratelimit.MaxCount {
		return "", "", false
	}
	for _, unit := range []struct {
		seconds int64
		name    string
	}{{1, "s"}, {60, "min"}, {3600, "h"}, {86400, "day"}} {
		if unit.seconds == w.seconds {
			return fmt.Sprintf("%d/%s", w.count, unit.name), "", true
		}
		if unit.seconds%w.seconds == 0 && w.count*(unit.seconds/w.seconds) <= ratelimit.MaxCount {
			return fmt.Sprintf("%d/%s", w.count*(unit.seconds/w.seconds), unit.name), fmt.Sprintf("%d/s", w.count), true
		}
	}
	return "", "", false
}

// windowsOf returns the windows of a limit, from the shortest, and those that Keygate cannot count.
func windowsOf(p *plugin) (list []window, odd []string) {
	const month = 30 * 86400
	add := func(n *document.Node, seconds int64, name string) {
		c, ok := document.Integer(n.Text)
		w := window{c, seconds, name}
		if _, _, is := w.rate(); !ok || c < 1 || name == "year" || !is && name != "month" {
			odd = append(odd, name)
			return
		}
		list = append(list, w)
	}
	if p.name == "rate-limiting" {
		for _, unit := range []struct {
			name    string
			seconds int64
		}{{"second", 1}, {"minute", 60}, {"hour", 3600}, {"day", 86400}, {"month", month}, {"year", 365 * 86400}} {
			if n := p.get(unit.name); n != nil {
				add(n, unit.seconds, unit.name)
			}
		}
		return list, odd
	}
	limits, sizes := nodesOf(p.get("limit")), nodesOf(p.get("window_size"))
	for i, n := range limits {
		if i >= len(sizes) {
			break
		}
		seconds, _ := document.Integer(sizes[i].Text)
		names := map[int64]string{1: "second", 60: "minute", 3600: "hour", 86400: "day"}
		if seconds < 1 {
			odd = append(odd, sizes[i].Text+" s")
			continue
		}
		add(n, seconds, cmp.Or(names[seconds], fmt.Sprintf("%ds", seconds)))
	}
	slices.SortStableFunc(list, func(a, b window) int { return cmp.Compare(a.seconds, b.seconds) })
	return list, odd
}

// nodesOf returns the items of a list of a plugin's configuration; a single value is a list of one, and nil an empty one.
func nodesOf(n *document.Node) (all []*document.Node) {
	switch {
	case n == nil:
	case n.Kind == document.Sequence:
		for i := range n.Nodes {
			all = append(all, &n.Nodes[i])
		}
	default:
		all = []*document.Node{n}
	}
	return all
}

// subject is what a limit counts by.
func subject(p *plugin) string {
	field := "limit_by"
	if p.name == "rate-limiting-advanced" {
		field = "identifier"
	}
	if n := p.get(field); n != nil {
		return n.Text
	}
	return "consumer"
}

// planBuilder makes the plans.
type planBuilder struct {
	*kong
	file  plan.File
	of    map[*consumer]string // the plans of consumers, by name
	used  map[string]bool
	known map[string]string // names of plans by their content
}

// limits makes the plans and the limits of routes and gateways.
func (k *kong) limits() *planBuilder {
	b := &planBuilder{kong: k, of: map[*consumer]string{}, used: map[string]bool{}, known: map[string]string{}}
	for _, p := range k.plugins {
		if strings.HasPrefix(p.name, "rate-limiting") && !p.disabled && !p.dangling {
			b.describe(p)
		}
	}
	b.shared()
	if name := b.planFor("kong", nil); name != "" {
		for _, g := range k.gateways {
			g.document.Gateway.DefaultPlan = gateway.Member[string]{Present: true, Value: name}
		}
	}
	for _, c := range k.consumers {
		b.ofConsumer(c)
	}
	for _, p := range k.plugins {
		if strings.HasPrefix(p.name, "rate-limiting") && !p.disabled && !p.dangling && !k.has(p.at, p.label()) {
			k.carried(p.at, p.label())
		}
	}
	return b
}

// describe adds the lines of a limit that hold wherever it applies.
func (b *planBuilder) describe(p *plugin) {
	object := p.label()
	list, odd := windowsOf(p)
	if len(odd) > 0 {
		b.left(p.at, object+", "+short(strings.Join(odd, ", ")), "Keygate counts no such window", "set another limit")
	}
	switch by := subject(p); {
	case by == "header" || by == "consumer-group":
		b.left(p.at, object, "Keygate does not count by "+by, "set a limit of keys, owners or addresses")
		return
	case len(list) == 0:
		if len(odd) == 0 {
			b.left(p.at, object, "it has no limit", "nothing to do")
		}
		return
	case !b.isUsed(p):
		b.left(p.at, object, "no route that is carried has it", "nothing to do")
		return
	}
	if slices.ContainsFunc(list, func(w window) bool { return w.seconds < 86400 }) {
		b.changed(p.at, object, "a token bucket refills evenly, where Kong counted in windows")
	}
}

// isUsed reports whether a limit applies to a route that is carried.
func (b *planBuilder) isUsed(p *plugin) bool {
	for _, g := range b.gateways {
		for _, s := range g.carriedRoutes() {
			if p.consumer == nil && p.group == nil {
				if s.limit == p {
					return true
				}
			} else if s.access == keyed && (p.route == nil || p.route == s.route) && (p.service == nil || p.service == s.service) {
				return true
			}
		}
	}
	return false
}

// isOfCallers reports whether a limit counts each consumer or key on a route.
func isOfCallers(p *plugin, s *examined) bool {
	by := subject(p)
	return s.access == keyed && (by == "consumer" || by == "credential")
}

// shared sets the limits that do not count keys or owners: those of addresses, and of all callers together.
func (b *planBuilder) shared() {
	for _, g := range b.gateways {
		routes := g.carriedRoutes()
		done := map[*plugin]bool{}
		for _, s := range routes {
			p := s.limit
			if p == nil || done[p] || isOfCallers(p, s) {
				continue
			}
			by := subject(p)
			list, _ := windowsOf(p)
			if done[p] = true; len(list) == 0 || by == "header" || by == "consumer-group" {
				continue
			}
			ofAddress := by == "ip" || by == "consumer" || by == "credential"
			whole := !slices.ContainsFunc(routes, func(o *examined) bool { return o.limit != p || isOfCallers(p, o) })
			allPublic := !slices.ContainsFunc(routes, func(o *examined) bool { return o.access != public })
			c := config(b.choose(p, list, !ofAddress && !whole))
			switch {
			case c.IsZero():
			case whole && ofAddress && allPublic:
				g.document.Gateway.AnonymousLimit = gateway.Member[ratelimit.Config]{Present: true, Value: c}
			case whole && !ofAddress:
				g.document.Gateway.GlobalLimit = gateway.Member[ratelimit.Config]{Present: true, Value: c}
			default:
				if ofAddress {
					c.Per = "address"
				}
				b.onRoutes(g, p, c)
			}
		}
	}
}

// choose returns the one window that a limit of a route or gateway has: the longest that is a rate. A day may be a daily
// cap beside it.
func (b *planBuilder) choose(p *plugin, list []window, mayDaily bool) (w, daily *window) {
	for i := range list {
		one := &list[i]
		switch {
		case one.name == "month":
		case mayDaily && one.name == "day":
			daily = one
			continue
		case w == nil || one.seconds > w.seconds:
			w = one
		}
	}
	for i := range list {
		if one := &list[i]; one != w && one != daily {
			b.left(p.at, p.label()+", "+one.name, "such a limit has one window, and has the longest", "set another limit of the routes if this one matters more")
		}
	}
	return w, daily
}

// config returns a window and a daily cap, each of which may be nil, as a limit.
func config(w, daily *window) (c ratelimit.Config) {
	if w != nil {
		sustained, burst, _ := w.rate()
		c.Sustained, _ = ratelimit.ParseRate(sustained)
		if burst != "" {
			c.Burst, _ = ratelimit.ParseRate(burst)
		}
	}
	if daily != nil {
		c.Daily, _ = ratelimit.ParseRate(fmt.Sprintf("%d/day", daily.count))
	}
	return c
}

// onRoutes sets a limit of all routes of a gateway that a plugin applies to.
func (b *planBuilder) onRoutes(g *gatewayTable, p *plugin, c ratelimit.Config) {
	n := 0
	for _, e := range g.entries {
		if e.of != nil && e.of.limit == p && isOfCallers(p, e.of) == (c.Per == "key") {
			e.limit = c
			n++
		}
	}
	if n > 1 {
		b.changed(p.at, p.label(), "each path of its routes counts by itself, where Kong counted all together")
	}
}

// use is where a limit of callers applies.
type use struct {
	gateway *gatewayTable
	entries []*entry
}

// planFor makes the plan of callers: of all that have no other one, or of a consumer. It returns its name, "" for none.
func (b *planBuilder) planFor(name string, c *consumer) string {
	limits := map[*plugin][]use{}
	var order []*plugin
	total := 0 // entries that need a key
	for _, g := range b.gateways {
		for _, e := range g.entries {
			if e.of == nil || e.of.access != keyed {
				continue
			}
			total++
			p := b.limitFor(e.of, c)
			if p == nil || !isOfCallers(p, e.of) {
				continue
			}
			uses := limits[p]
			if uses == nil {
				order = append(order, p)
			}
			if len(uses) == 0 || uses[len(uses)-1].gateway != g {
				uses = append(uses, use{gateway: g})
			}
			last := &uses[len(uses)-1]
			last.entries = append(last.entries, e)
			limits[p] = uses
		}
	}
	one := plan.FilePlan{Plan: plan.Plan{TimeZone: plan.DefaultZone, AnchorDay: plan.DefaultAnchor}}
	names := map[string]bool{}
	for _, p := range order {
		b.addLimits(&one, names, p, limits[p], total, c)
	}
	if len(one.Limits) == 0 {
		return ""
	}
	content := plan.File{Plans: []plan.FilePlan{one}}
	key := string(content.Encode())
	if known := b.known[key]; known != "" {
		return known
	}
	one.Name = unique(b.used, cmp.Or(slug(name, 64), "kong"), 64)
	b.known[key] = one.Name
	b.file.Plans = append(b.file.Plans, one)
	return one.Name
}

// limitFor returns the limit that applies to a caller on a route.
func (b *planBuilder) limitFor(s *examined, c *consumer) (best *plugin) {
	for _, name := range []string{"rate-limiting", "rate-limiting-advanced"} {
		if p := b.effective(name, s.route, c); p != nil && (best == nil || p.rank() < best.rank()) {
			best = p
		}
	}
	return best
}

// addLimits adds the limits of a plugin to a plan, as far as they fit.
func (b *planBuilder) addLimits(one *plan.FilePlan, names map[string]bool, p *plugin, uses []use, total int, c *consumer) {
	list, _ := windowsOf(p)
	entries := 0
	for _, u := range uses {
		entries += len(u.entries)
	}
	everywhere := entries == total
	per := plan.PerOwner
	if c != nil || subject(p) == "credential" {
		per = plan.PerKey
	}
	if everywhere {
		uses = []use{{}}
	}
	fits := len(one.Limits)+len(list)*len(uses) <= plan.MaxLimits
	for i := range uses {
		fits = fits && (everywhere || len(b.paths(&uses[i])) <= plan.MaxRoutes)
	}
	if !fits {
		b.overflow(p, list, uses, c)
		return
	}
	if !everywhere && len(uses) > 1 {
		b.changed(p.at, p.label(), "each gateway counts by itself, where Kong counted all together")
	}
	label := "all"
	switch {
	case p.route != nil:
		label = p.route.label()
	case p.service != nil:
		label = p.service.label()
	case p.consumer != nil, p.group != nil:
		label = "own"
	}
	for _, w := range list {
		for i := range uses {
			l := plan.Limit{Per: per}
			l.Name = unique(names, cmp.Or(slug(label, 20), "limit")+"-"+w.name, 32)
			switch w.name {
			case "day":
				l.Quota = plan.Quota{Count: w.count, Unit: calendar.Day}
			case "month":
				l.Quota = plan.Quota{Count: w.count, Unit: calendar.Month}
			default:
				r := config(&w, nil)
				l.Sustained, l.Burst = ratelimit.UnitRate{Rate: r.Sustained}, ratelimit.UnitRate{Rate: r.Burst}
			}
			of := ""
			if !everywhere {
				of, l.Routes = uses[i].gateway.name, b.paths(&uses[i])
				if b.sharesPath(&uses[i]) {
					b.changed(p.at, p.label(), "it counts all methods of its paths, also those of other routes")
				}
			}
			one.Limits, one.Gateways = append(one.Limits, l), append(one.Gateways, of)
		}
	}
}

// paths returns the paths of a use; nil for all of the gateway that need a key.
func (b *planBuilder) paths(u *use) (list []string) {
	if u.gateway == nil {
		return nil
	}
	all := 0
	for _, e := range u.gateway.entries {
		if e.of != nil && e.of.access == keyed {
			all++
		}
	}
	if all == len(u.entries) {
		return nil
	}
	for _, e := range u.entries {
		if p := e.pattern.String(); !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

// sharesPath reports whether other routes have some of the paths of a use.
func (b *planBuilder) sharesPath(u *use) bool {
	own := map[*entry]bool{}
	paths := map[string]bool{}
	for _, e := range u.entries {
		own[e], paths[e.pattern.id()] = true, true
	}
	return slices.ContainsFunc(u.gateway.entries, func(e *entry) bool {
		return !own[e] && e.of != nil && e.of.access == keyed && paths[e.pattern.id()]
	})
}

// overflow sets the limits that do not fit into a plan on routes, for each key.
func (b *planBuilder) overflow(p *plugin, list []window, uses []use, c *consumer) {
	if c != nil {
		b.left(p.at, p.label(), fmt.Sprintf("the plan of consumer %s would have more than %d limits", short(c.label()), plan.MaxLimits), "give its keys a rate_limit")
		return
	}
	conf := config(b.choose(p, list, true))
	if conf.IsZero() {
		return
	}
	conf.Per = "key"
	b.changed(p.at, p.label(), "it counts each key, where Kong counted each consumer, since a plan has at most %d limits", plan.MaxLimits)
	for _, g := range b.gateways {
		b.onRoutes(g, p, conf)
	}
}

// ofConsumer makes the plan of a consumer that has limits of its own.
func (b *planBuilder) ofConsumer(c *consumer) {
	own := func(p *plugin) bool { return p != nil && (p.consumer != nil || p.group != nil) }
	name, several := "", false
	for _, g := range b.gateways {
		for _, s := range g.carriedRoutes() {
			if p := b.limitFor(s, c); s.access == keyed && own(p) {
				name = "kong-" + c.label()
				if p.group != nil {
					name = "kong-" + p.group.name
				}
				several = several || subject(p) != "credential" && len(c.keys) > 1
			}
		}
	}
	if name == "" {
		return
	}
	b.of[c] = b.planFor(name, c)
	if several {
		b.changed(c.at, "consumer "+short(c.label()), "its limits count each of its keys, where Kong counted them together")
	}
}
