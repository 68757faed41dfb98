package moving

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/gateway"
)

// access is what a request needed in Kong to pass, from the least to the most.
type access uint8

const (
	public   access = iota
	keyed           // a key of key-auth
	withheld        // something that Keygate cannot check, or does not do
)

// reason says why something is not carried, and what to do.
type reason struct{ why, remedy string }

// observers are plugins that neither refuse nor change requests, with what to use instead of them.
func observers() map[string]string {
	const logs, metrics, traces = "use the access log (--access-log), the traffic report and keygate explain", "scrape /metrics", "set --otlp-endpoint"
	return map[string]string{
		"file-log": logs, "http-log": logs, "tcp-log": logs, "udp-log": logs, "syslog": logs, "loggly": logs, "kafka-log": logs, "confluent": logs,
		"prometheus": metrics, "statsd": metrics, "statsd-advanced": metrics, "datadog": metrics, "app-dynamics": traces,
		"zipkin": traces, "opentelemetry": traces,
		"correlation-id":        "use X-Request-Id, which every request has",
		"proxy-cache":           "cache in the service, or in front of Keygate",
		"proxy-cache-advanced":  "cache in the service, or in front of Keygate",
		"bot-detection":         "give callers keys: a User-Agent is the caller's choice",
		"response-ratelimiting": "give routes a cost with a header of the response (docs/costs.md), and plans a limit of its meter",
		"acme":                  "give the server certificates with --tls-cert and --tls-key",
		"upstream-timeout":      "set timeout of the upstream",
	}
}

// deciders are plugins that decide about requests, with why they are not carried and what to do without them.
func deciders() map[string]reason {
	token := reason{"who issues its tokens is not carried", "name the issuer (docs/tokens.md), then add the route with auth: token"}
	other := reason{"Keygate checks keys and JSON Web Tokens, and no other credential", "give the callers keys, then add the route"}
	code := reason{"Keygate runs no code of its users", "let the service do it, then add the route"}
	return map[string]reason{
		"jwt": token, "jwt-signer": token, "openid-connect": token, "oauth2": other, "oauth2-introspection": other, "saml": other, "vault-auth": other,
		"basic-auth": other, "hmac-auth": other, "ldap-auth": other, "ldap-auth-advanced": other, "mtls-auth": other, "header-cert-auth": other, "session": other,
		"key-auth-enc": {"its keys are encrypted in Kong", "give the callers keys, then add the route"},
		"opa":          {"Keygate asks no policy server", "use scopes of keys, then add the route"},
		"pre-function": code, "post-function": code, "aws-lambda": code, "azure-functions": code, "openwhisk": code, "filter-chain": code,
		"request-validator": {"Keygate does not check bodies yet", "let the service check them, then add the route"},
		"oas-validation":    {"Keygate does not check bodies yet", "let the service check them, then add the route"},
		"canary":            {"Keygate has canaries of its own", "add the route, and start one with keygate canary start"},
		"grpc-gateway":      {"Keygate does not translate between HTTP and gRPC", "let the service do it, then add the route"},
		"grpc-web":          {"Keygate does not translate between HTTP and gRPC", "let the service do it, then add the route"},
	}
}

// effective returns the plugin with the name that applies to a route, for a caller who is nobody or a consumer; nil if there
// is none. Of several, that of the narrowest scope applies, in Kong's order.
func (k *kong) effective(name string, r *route, c *consumer) *plugin {
	onService := scope{name: name, service: r.service}
	order := []scope{{name: name, route: r}, onService, {name: name}}
	if c != nil && len(k.ofCallers[c]) > 0 {
		var narrow, wide []scope
		for _, own := range order {
			own.consumer = c
			if own.route != nil || own.service != nil {
				narrow = append(narrow, own)
			} else {
				wide = append(wide, own)
			}
		}
		for _, g := range k.memberOf[c] {
			for _, own := range order {
				own.group = g
				if own.route != nil || own.service != nil {
					narrow = append(narrow, own)
				} else {
					wide = append(wide, own)
				}
			}
		}
		order = append(append(narrow, wide...), order...)
	}
	for _, s := range order {
		if p := k.byScope[s]; p != nil {
			return p
		}
	}
	return nil
}

// rank orders scopes as Kong does: the lowest applies.
func (p *plugin) rank() int {
	scope := ""
	for _, part := range []struct {
		has  bool
		name string
	}{{p.consumer != nil, "c"}, {p.group != nil, "g"}, {p.route != nil, "r"}, {p.service != nil && p.route == nil, "s"}} {
		if part.has {
			scope += part.name
		}
	}
	return slices.Index([]string{"cr", "cs", "gr", "gs", "c", "g", "r", "s", ""}, scope)
}

// examined is what is known of a route before the tables are made.
type examined struct {
	*route
	access    access // what its plugins ask for
	reason           // why the whole route is not carried; why is "" if it is
	keyAuth   *plugin
	acl       *plugin
	limit     *plugin           // rate-limiting of callers that have no plugin of their own
	cors      *plugin           // nil for none
	size      *plugin           // request-size-limiting
	restricts *plugin           // ip-restriction
	lists     addrlist.Lists    // of restricts
	answers   *plugin           // request-termination or redirect
	answer    *gateway.Handling // of answers: the gateway responds itself; nil for requests that are forwarded
	// transformers are the request-transformers and response-transformers, and the edits what they do.
	transformers        []*plugin
	requests, responses edits
	headers             map[string]string // of requests, that are set
	routePaths          []routePath
	condition           string // what it matches by, besides host, method and path
	dead                bool   // Kong does not serve it either, or not by HTTP
}

// routePath is a path of a route.
type routePath struct {
	matcher
	reason           // why this path is not carried
	closed  []string // paths that are closed, because another route would take them
	overBy  string   // that route
	base    string   // path of the service that the upstream has before the path of the request
	emitted bool

	stripped    stripping
	refusesRest bool // of the paths that it takes, some are closed, since they do not end with a segment
	shed        bool // the same are a 404
}

// stripping is how a service gets paths without what strip_path cuts off.
type stripping uint8

const (
	not        stripping = iota // strip_path: false, or of the path /
	byBase                      // the service's own path ends with the path, and the upstream's does not
	bySegments                  // strip_prefix
)

// judge sets what the plugins of a route ask for.
func (k *kong) judge(s *examined) {
	var lost []*plugin
	for _, name := range k.names {
		p := k.effective(name, s.route, nil)
		if p == nil {
			continue
		}
		switch name {
		case "key-auth":
			s.keyAuth = p
		case "acl":
			s.acl = p
		case "rate-limiting", "rate-limiting-advanced":
			if s.limit == nil || p.rank() < s.limit.rank() {
				s.limit = p
			}
		case "cors":
			s.cors = p
		case "request-size-limiting":
			s.size = p
		case "request-transformer", "request-transformer-advanced", "response-transformer", "response-transformer-advanced":
			if !isCarried(p) {
				lost = append(lost, p)
				continue
			}
			s.transformers = append(s.transformers, p)
		case "ip-restriction":
			lists, why := listsOf(p)
			if why != "" {
				lost = append(lost, p)
				continue
			}
			s.restricts, s.lists = p, lists
		case "request-termination", "redirect":
			h, why := answerOf(p)
			if why != "" {
				lost = append(lost, p)
			} else if s.answer == nil || p.name == "redirect" { // which comes first in Kong
				s.answers, s.answer = p, h
			}
		default:
			if _, ok := k.observers[name]; !ok {
				lost = append(lost, p)
			}
		}
	}
	badHeaders := s.transformed()
	switch {
	case len(lost) > 0:
		slices.SortStableFunc(lost, func(a, b *plugin) int { return cmp.Compare(a.line, b.line) })
		l := k.reasonOf(lost[0])
		s.access, s.reason = withheld, reason{"it has the plugin " + short(lost[0].name) + ": " + l.why, l.remedy}
	case badHeaders != "":
		s.access, s.reason = withheld, reason{badHeaders, letService + thenAdd}
	case s.acl != nil && s.keyAuth == nil:
		s.access, s.reason = withheld, reason{"it has the plugin acl without key-auth", "give its callers keys with scopes, then add the route"}
	case s.keyAuth != nil:
		s.access = keyed
		if why := keyNamesProblem(s.keyAuth); why != "" {
			s.access, s.reason = withheld, reason{"its key-auth is not carried: " + why, "name a header with the key, then add the route"}
		}
	}
}

// reasonOf returns why a plugin that decides about requests is not carried.
func (k *kong) reasonOf(p *plugin) reason {
	switch {
	case isRequestTransformer(p.name):
		return requestProblem(p)
	case p.name == "ip-restriction":
		_, why := listsOf(p)
		return reason{why, "add the route with allow_ips and deny_ips"}
	case isAnswer(p.name):
		_, why := answerOf(p)
		return reason{why, "nothing to do if the route is to stay closed; otherwise add it with respond or redirect"}
	}
	if l, ok := k.deciders[p.name]; ok {
		return l
	}
	return reason{"Keygate does not know what it does", "find out whether the route is safe without it, then add the route"}
}

// keyNames returns the headers in which key-auth finds keys.
func keyNames(p *plugin) []string {
	n := p.get("key_names")
	if n == nil || n.Kind != document.Sequence || len(n.Nodes) == 0 {
		return []string{"apikey"}
	}
	return textsOf(n)
}

// keyNamesProblem says why the headers of key-auth cannot be carried.
func keyNamesProblem(p *plugin) string {
	if n := p.get("key_in_header"); n != nil && n.Text == "false" {
		return "its keys are in no header"
	}
	if err := gateway.CheckKeyHeaders(keyNames(p)); err != nil {
		return fmt.Sprintf("key_names %s cannot be headers with keys in Keygate", short(strings.Join(keyNames(p), ", ")))
	}
	return ""
}

// isCarried reports whether a plugin of routes can be carried.
func isCarried(p *plugin) bool {
	why := "it is unknown"
	switch p.name {
	case "key-auth", "acl", "rate-limiting", "rate-limiting-advanced", "cors", "request-size-limiting":
		why = ""
	case "request-transformer", "request-transformer-advanced":
		why = requestProblem(p).why
	case "response-transformer", "response-transformer-advanced":
		why = ""
	case "ip-restriction":
		_, why = listsOf(p)
	case "request-termination", "redirect":
		_, why = answerOf(p)
	}
	return why == ""
}

// isEmpty reports whether a node has nothing in it, at any depth.
func isEmpty(n *document.Node) bool {
	switch n.Kind {
	case document.Null:
		return true
	case document.Sequence, document.Mapping:
		for i := range n.Nodes {
			if !isEmpty(&n.Nodes[i]) {
				return false
			}
		}
		return true
	}
	return false
}

// reportPlugins adds a line for each plugin that is not reported with what it became.
func (k *kong) reportPlugins() {
	for _, s := range k.states {
		for i := range s.routePaths {
			if s.routePaths[i].emitted {
				for _, p := range append([]*plugin{s.keyAuth, s.acl, s.cors, s.size, s.restricts, s.answers}, s.transformers...) {
					if p != nil {
						p.used = true
					}
				}
			}
		}
	}
	for _, p := range k.plugins {
		object := p.label()
		switch {
		case p.disabled:
			k.left(p.at, object, "it is disabled", "nothing to do")
			continue
		case p.dangling:
			k.left(p.at, object, "its consumer or group is not in the files", "nothing to do")
			continue
		}
		if len(p.odd) > 0 && p.name != "filter-chain" {
			k.left(p.at, object, "Keygate does not know its "+short(strings.Join(p.odd, ", ")), "look whether that matters")
		}
		switch remedy, harmless := k.observers[p.name]; {
		case p.consumer != nil || p.group != nil:
			k.reportOfCallers(p, harmless, remedy)
		case harmless:
			k.left(p.at, object, "Keygate has no such plugin", remedy)
		case !isCarried(p):
			k.left(p.at, object, k.reasonOf(p).why, "its routes are left out")
		case strings.HasPrefix(p.name, "rate-limiting"): // described with the limits
		case !p.used:
			k.left(p.at, object, "no route that is carried has it", "nothing to do")
		case p.name == "key-auth":
			k.reportKeyAuth(p)
		case p.name == "acl":
			k.changed(p.at, object, "groups become scopes of keys: keys of callers outside of them do not have the paths")
		case isTransformer(p.name):
			k.reportTransformer(p)
		case p.name == "ip-restriction":
			what := "the routes"
			if p.route == nil && p.service == nil {
				what = "the gateways, or of routes where others have none,"
			}
			k.reportLists(p, what)
		case isAnswer(p.name):
			k.carried(p.at, object)
		}
	}
}

// reportOfCallers adds the line of a plugin of consumers, but for limits, which are reported with their plans.
func (k *kong) reportOfCallers(p *plugin, harmless bool, remedy string) {
	switch {
	case strings.HasPrefix(p.name, "rate-limiting"):
	case harmless:
		k.left(p.at, p.label(), "Keygate has no such plugin", remedy)
	case p.name == "cors" || p.name == "request-size-limiting" || isTransformer(p.name):
		k.left(p.at, p.label(), "Keygate has it for all callers of a gateway alone", "look whether the callers need it")
	case p.used:
		k.reportLists(p, "the keys, beside those of routes, where Kong looked at these alone,")
	case p.name == "ip-restriction" && isCarried(p) && (p.route != nil || p.service != nil):
		k.left(p.at, p.label(), onSomeRoutes, "the keys of its consumers are left out")
	case p.name == "ip-restriction" && isCarried(p):
		k.left(p.at, p.label(), "no key that is carried has it", "nothing to do")
	case p.name == "request-termination":
		k.left(p.at, p.label(), "the keys of its consumers are left out", "nothing to do if they are to stay out")
	default:
		k.left(p.at, p.label(), k.reasonOf(p).why, "the keys of its consumers are left out")
	}
}

// barred returns the plugin that keeps the keys of a consumer from being carried, or nil.
func (k *kong) barred(c *consumer) *plugin {
	for _, p := range k.ofCallers[c] {
		switch _, harmless := k.observers[p.name]; {
		case p.name == "ip-restriction":
			if one, _, why := k.callerLists(c); why != "" {
				return one
			}
		case harmless, strings.HasPrefix(p.name, "rate-limiting"), p.name == "cors", p.name == "request-size-limiting", isTransformer(p.name):
		default:
			return p
		}
	}
	return nil
}

// reportKeyAuth adds the lines of a plugin key-auth that is carried.
func (k *kong) reportKeyAuth(p *plugin) {
	names := keyNames(p)
	if why := keyNamesProblem(p); why != "" {
		k.left(p.at, p.label(), why, "its routes are left out")
		return
	}
	quiet := true
	change := func(why string, args ...any) {
		quiet = false
		k.changed(p.at, p.label(), why, args...)
	}
	if n := p.get("key_in_query"); (n == nil || n.Text != "false") && !slices.Contains(names, "api_key") {
		change("a key as ?%s= is not read: callers send it in the header, or as ?api_key=", short(names[0]))
	}
	if n := p.get("key_in_body"); n != nil && n.Text == "true" {
		change("a key in the body is not read: callers send it in the header")
	}
	if n := p.get("hide_credentials"); n == nil || n.Text != "true" {
		change("the service no longer sees the key: it gets X-Keygate-Key-Owner and X-Keygate-Key-Id")
	}
	if n := p.get("run_on_preflight"); n != nil && n.Text == "false" {
		change("OPTIONS needs a key too (run_on_preflight): set cors of the gateway for preflights of browsers")
	}
	if n := p.get("anonymous"); n != nil && n.Text != "" {
		change("callers without a key were anonymous, and are refused now")
	}
	if slices.ContainsFunc(names, func(s string) bool { return strings.EqualFold(s, "authorization") }) {
		change("in Authorization, callers write Bearer before the key")
	}
	if quiet {
		k.carried(p.at, p.label())
	}
}
