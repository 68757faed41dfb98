package moving

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// files returns the configuration files.
func (k *kong) files() (list []File, err error) {
	used := map[string]bool{}
	for _, g := range k.gateways {
		k.settings(g)
		content := g.document.Encode()
		if len(g.document.Routes) > sharedFrom {
			content = share(content)
		}
		if err := check(content, g.label()); err != nil {
			return nil, err
		}
		name := "any-host" // before the others, so that a new server makes it its default gateway
		if g.host != "" {
			name = "host-" + slug(g.host, 90)
		}
		list = append(list, File{unique(used, name, 100) + ".yaml", content})
	}
	if len(k.plans.file.Plans) > 0 {
		list = append(list, File{unique(used, "plans", 100) + ".yaml", k.plans.file.Encode()})
	}
	return list, nil
}

// sharedFrom is how many routes a file has at most whose lists of methods are all written out. The memory that a file takes is
// bounded by its size, and lists are most of it.
const sharedFrom = 1_000

// share writes each list of methods once, with an anchor, and refers to it where it is the same.
func share(content []byte) []byte {
	const field = "    methods: "
	anchors := map[string]string{}
	var b bytes.Buffer
	for line := range bytes.Lines(content) {
		methods, isMethods := strings.CutPrefix(string(line), field)
		switch anchor := anchors[methods]; {
		case !isMethods:
			b.Write(line)
		case anchor == "":
			anchors[methods] = fmt.Sprintf("methods-%d", len(anchors)+1)
			b.WriteString(field + "&" + anchors[methods] + " " + methods)
		default:
			b.WriteString(field + "*" + anchor + "\n")
		}
	}
	return b.Bytes()
}

// check returns an error if a file is not valid, although each part of it was checked.
func check(content []byte, label string) error {
	if strings.Contains(string(content), document.EnvMark) {
		return nil // checked when the variables are known
	}
	_, err := gateway.ParseDocument(content)
	if err == nil {
		return nil
	}
	if problems := fault.ProblemsOf(err); problems != nil {
		return fault.Invalid("", "%s would not be valid: %s: %s", label, problems[0].Field, problems[0].Message)
	}
	return err
}

// settings sets the document of a gateway.
func (k *kong) settings(g *gatewayTable) {
	d := &g.document
	p := &d.Gateway
	p.Name = gateway.Member[string]{Present: true, Value: g.name}
	if g.host != "" {
		p.Hostname = gateway.Member[string]{Present: true, Value: g.host}
	}
	k.upstreamsOf(g)
	k.keyHeaders(g)
	k.corsOf(g)
	k.sizeOf(g)
	restricts := k.restrictGateway(g)
	hasHeaders := k.headersOf(g)
	d.Routes = d.Routes[:0]
	for _, e := range g.entries {
		slices.Sort(e.methods)
		r := gateway.RouteSpec{Path: e.pattern.String(), Methods: e.methods, Auth: gateway.AuthKey, RateLimit: e.limit, Upstream: gateway.StoredUpstreamName(g.upstreamOf(e))}
		if e.of != nil && e.of.access == public {
			r.Auth = gateway.AuthNone
		}
		r.Handling = e.handling(restricts)
		if e.forwards() && !hasHeaders {
			requests, responses := k.rulesOf(g, e.of)
			h := r.Handling.With("request_headers", &gateway.Handling{RequestHeaders: requests})
			r.Handling = h.With("response_headers", &gateway.Handling{ResponseHeaders: responses})
		}
		d.Routes = append(d.Routes, r)
	}
}

// restrictGateway sets the lists of addresses of a gateway, if Kong has them for everything. It returns their plugin, or nil.
func (k *kong) restrictGateway(g *gatewayTable) *plugin {
	routes := g.carriedRoutes()
	if len(routes) == 0 {
		return nil
	}
	p := routes[0].restricts
	if p == nil || p.route != nil || p.service != nil || slices.ContainsFunc(routes, func(s *examined) bool { return s.restricts != p }) {
		return nil
	}
	lists := routes[0].lists
	set := func(m *gateway.Member[[]string], list []string) {
		if len(list) > 0 {
			*m = gateway.Member[[]string]{Present: true, Value: list}
		}
	}
	set(&g.document.Gateway.AllowIPs, lists.Allow)
	set(&g.document.Gateway.DenyIPs, lists.Deny)
	return p
}

// handling returns what a route does with its requests. The lists of the plugin restricts are those of the gateway.
func (e *entry) handling(restricts *plugin) *gateway.Handling {
	if e.of == nil {
		return nil
	}
	h := gateway.Handling{}
	switch n := e.cut(); {
	case e.of.answer != nil:
		h.Redirect, h.Respond = e.of.answer.Redirect, e.of.answer.Respond
	case n > 0:
		h.StripPrefix = e.pattern[:n].String()
	}
	if e.of.restricts != restricts {
		h.AllowIPs, h.DenyIPs = e.of.lists.Allow, e.of.lists.Deny
	}
	return h.Stored()
}

// upstreamsOf sets the upstreams of a gateway: the first service is the default one.
func (k *kong) upstreamsOf(g *gatewayTable) {
	p := &g.document.Gateway
	slices.SortStableFunc(g.upstreams, func(a, b string) int {
		return cmp.Compare(slices.Index(k.services, g.variants[a].service), slices.Index(k.services, g.variants[b].service))
	})
	var list []gateway.UpstreamPatch
	for i, id := range g.upstreams {
		if i == 0 {
			g.names[id] = gateway.DefaultUpstream
		}
		u := k.patch(g.names[id], g.variants[id])
		targets := u.Targets.Value
		only := u.UpstreamOnly
		only.Targets = gateway.Member[[]gateway.Target]{}
		isPlain := !only.Balance.Present && !only.HashOn.Present && !only.Ejection.Present && !only.Retries.Present && !only.Health.Present
		if i == 0 && isPlain && len(targets) == 1 && !targets[0].Drain {
			p.UpstreamURL = gateway.Member[string]{Present: true, Value: targets[0].URL}
			p.Timeout, p.UpstreamConnectTimeout, p.UpstreamHost, p.UpstreamHeaders = u.Timeout, u.UpstreamConnectTimeout, u.UpstreamHost, u.UpstreamHeaders
			continue
		}
		list = append(list, u)
	}
	if g.closed && len(g.upstreams) == 0 {
		p.UpstreamURL = gateway.Member[string]{Present: true, Value: closedTarget}
	} else if g.closed {
		u := gateway.UpstreamPatch{Name: closedUpstream}
		u.Targets = gateway.Member[[]gateway.Target]{Present: true, Value: []gateway.Target{{URL: closedTarget}}}
		list = append(list, u)
	}
	if len(list) > 0 {
		p.Upstreams = gateway.Member[[]gateway.UpstreamPatch]{Present: true, Value: list}
	}
}

// carriedRoutes returns the routes of Kong that a gateway has.
func (g *gatewayTable) carriedRoutes() (list []*examined) {
	seen := map[*examined]bool{}
	for _, e := range g.entries {
		if e.of != nil && !seen[e.of] {
			seen[e.of] = true
			list = append(list, e.of)
		}
	}
	return list
}

// keyHeaders sets the headers with keys: those of all routes of the gateway.
func (k *kong) keyHeaders(g *gatewayTable) {
	names, unread := k.keyHeaderNames(g)
	for _, u := range unread {
		k.changed(u.at, u.label(), "keys in %s are not read, since %s has %d headers with keys already", short(u.header), g.label(), gateway.MaxKeyHeaders)
	}
	if !slices.Equal(names, gateway.DefaultKeyHeaders()) {
		g.document.Gateway.KeyHeaders = gateway.Member[[]string]{Present: true, Value: names}
	}
}

// unreadHeader is a header of a plugin key-auth in which keys are not read.
type unreadHeader struct {
	*plugin
	header string
}

// keyHeaderNames returns the headers with keys of a gateway, and those beyond the bound.
func (k *kong) keyHeaderNames(g *gatewayTable) (names []string, unread []unreadHeader) {
	for _, s := range g.carriedRoutes() {
		if s.access != keyed {
			continue
		}
		for _, n := range keyNames(s.keyAuth) {
			switch {
			case slices.ContainsFunc(names, func(o string) bool { return strings.EqualFold(o, n) }):
			case len(names) == gateway.MaxKeyHeaders:
				unread = append(unread, unreadHeader{s.keyAuth, n})
			default:
				names = append(names, n)
			}
		}
	}
	if len(names) == 0 || len(names) == 1 && strings.EqualFold(names[0], authorization) {
		return gateway.DefaultKeyHeaders(), unread
	}
	return names, unread
}

// corsOf sets what a gateway says to browsers, if all of its routes say the same.
func (k *kong) corsOf(g *gatewayTable) {
	var plugins []*plugin
	var lacks *examined
	for _, s := range g.carriedRoutes() {
		if s.cors == nil {
			lacks = s
		} else if !slices.Contains(plugins, s.cors) {
			plugins = append(plugins, s.cors)
		}
	}
	if len(plugins) == 0 {
		return
	}
	settings, why := corsFrom(plugins[0])
	for _, p := range plugins[1:] {
		if c, problem := corsFrom(p); why == "" && (problem != "" || fmt.Sprint(c) != fmt.Sprint(settings)) {
			why = cmp.Or(problem, "the routes of "+g.label()+" differ in it, and a gateway has one")
		}
	}
	if why == "" && lacks != nil {
		why = "route " + short(lacks.label()) + " of " + g.label() + " does not have it, and a gateway has it for all of its routes"
	}
	for _, p := range plugins {
		if why != "" {
			k.left(p.at, p.label(), why, "give the service a host of its own, or set cors of the gateway")
		} else {
			k.reportCORS(p)
		}
	}
	if why == "" {
		g.document.Gateway.CORS = gateway.Member[gateway.CORS]{Present: true, Value: settings}
	}
}

// textsOf returns the texts of what nodesOf returns.
func textsOf(n *document.Node) (texts []string) {
	for _, m := range nodesOf(n) {
		texts = append(texts, m.Text)
	}
	return texts
}

// corsFrom returns the settings of a plugin cors.
func corsFrom(p *plugin) (c gateway.CORS, problem string) {
	if n := p.get("preflight_continue"); n != nil && n.Text == "true" {
		return c, "its preflights go to the service (preflight_continue), and Keygate responds to them"
	}
	if c.Origins = textsOf(p.get("origins")); len(c.Origins) == 0 {
		c.Origins = []string{"*"}
	}
	c.Methods = slices.DeleteFunc(textsOf(p.get("methods")), func(m string) bool { return m == "TRACE" || m == "CONNECT" })
	if len(c.Methods) == 0 {
		c.Methods = gateway.EverydayMethods()
	}
	if c.Headers = textsOf(p.get("headers")); len(c.Headers) == 0 {
		c.Headers = []string{"*"}
	}
	if n := p.get("max_age"); n != nil {
		c.MaxAge, _ = strconv.Atoi(n.Text)
		c.MaxAge = min(max(c.MaxAge, 0), 86400)
	}
	if err := c.Validate(); err != nil {
		for _, bad := range fault.ProblemsOf(err) {
			if strings.HasPrefix(bad.Field, "origins") {
				return c, "an origin is a pattern, or is none"
			}
		}
		return c, fault.ProblemsOf(err)[0].Message
	}
	return c.Normal(), ""
}

// reportCORS adds the lines of a plugin cors that is carried.
func (k *kong) reportCORS(p *plugin) {
	quiet := true
	if n := p.get("credentials"); n != nil && n.Text == "true" {
		quiet = false
		k.changed(p.at, p.label(), "scripts send keys, and no cookies (credentials)")
	}
	if n := p.get("exposed_headers"); n != nil && !isEmpty(n) {
		quiet = false
		k.changed(p.at, p.label(), "scripts read the headers that the service exposes, and Keygate's own (exposed_headers)")
	}
	if quiet {
		k.carried(p.at, p.label())
	}
}

// sizeOf sets the largest body of a gateway, if all of its routes have one.
func (k *kong) sizeOf(g *gatewayTable) {
	routes := g.carriedRoutes()
	most := int64(0)
	var has, lacks *examined
	differ := false
	for _, s := range routes {
		if s.size == nil {
			lacks = s
			continue
		}
		n := bodySize(s.size)
		differ = differ || has != nil && n != bodySize(has.size)
		has, most = s, max(most, n)
	}
	for _, s := range routes {
		switch {
		case s.size == nil:
		case lacks != nil:
			k.left(s.size.at, s.size.label(), "route "+short(lacks.label())+" of "+g.label()+" does not have it, and a gateway has it for all of its routes", "set max_body_bytes of the gateway")
		case differ && bodySize(s.size) != most:
			k.changed(s.size.at, s.size.label(), "%s takes bodies of %d bytes, the most of its routes", g.label(), most)
		default:
			k.carried(s.size.at, s.size.label())
		}
	}
	if has != nil && lacks == nil && most > 0 {
		g.document.Gateway.MaxBodyBytes = gateway.Member[int64]{Present: true, Value: most}
	}
}

// bodySize returns the bytes that a plugin request-size-limiting allows.
func bodySize(p *plugin) int64 {
	n := int64(128)
	if m := p.get("allowed_payload_size"); m != nil {
		if c, ok := document.Integer(m.Text); ok && c > 0 {
			n = min(c, 1<<30)
		}
	}
	unit := "megabytes"
	if m := p.get("size_unit"); m != nil {
		unit = m.Text
	}
	switch unit {
	case "bytes":
		return n
	case "kilobytes":
		return n << 10
	}
	return n << 20
}
