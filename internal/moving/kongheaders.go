package moving

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// isRequestTransformer and isResponseTransformer report whether a plugin changes headers.
func isRequestTransformer(name string) bool {
	return name == "request-transformer" || name == "request-transformer-advanced"
}

func isResponseTransformer(name string) bool {
	return name == "response-transformer" || name == "response-transformer-advanced"
}

func isTransformer(name string) bool {
	return isRequestTransformer(name) || isResponseTransformer(name)
}

// edit is what Keygate does with a header.
type edit struct {
	name   string
	value  string // "" removes the header
	yields bool   // Kong sets it only on messages that lack it
}

// edits has the edit of each header, by its name in folded form.
type edits map[string]edit

// then adds what the next transformer does.
func (e edits) then(next edits) {
	for id, n := range next {
		if before, known := e[id]; known && n.yields {
			if before.value != "" {
				continue
			}
			n.yields = false
		}
		e[id] = n
	}
}

// rules returns the edits without those that set headers, if setElsewhere. It is nil if there are none.
func (e edits) rules(setElsewhere bool) *gateway.HeaderRules {
	r := &gateway.HeaderRules{Set: map[string]string{}}
	for _, id := range slices.Sorted(maps.Keys(e)) {
		switch one := e[id]; {
		case one.value == "":
			r.Remove = append(r.Remove, one.name)
		case !setElsewhere:
			r.Set[one.name] = one.value
		}
	}
	return r.Normal()
}

// set returns the headers that are set; nil for none.
func (e edits) set() map[string]string {
	var headers map[string]string
	for _, one := range e {
		if one.value != "" {
			if headers == nil {
				headers = map[string]string{}
			}
			headers[one.name] = one.value
		}
	}
	return headers
}

// problem says why Keygate does not take the edits of requests; "" if it does.
func (e edits) problem() string {
	if err := gateway.CheckUpstreamHeaders(e.set()); err != nil {
		bad := fault.ProblemsOf(err)[0]
		return "the header " + short(strings.TrimPrefix(bad.Field, "upstream_headers.")) + " " + bad.Message
	}
	for _, id := range slices.Sorted(maps.Keys(e)) {
		one := edits{id: e[id]}
		if err := one.rules(true).Check(); err != nil && id != authorization { // see untaken
			return "the header " + short(e[id].name) + " " + fault.ProblemsOf(err)[0].Message
		}
	}
	if n := len(e) - len(e.set()); n > gateway.MaxHeaderRules {
		return fmt.Sprintf("it removes %d headers, and Keygate at most %d", n, gateway.MaxHeaderRules)
	}
	return ""
}

const authorization = "authorization" // in folded form

// foldHeader returns the name in the form in which names are of the same header of Keygate.
func foldHeader(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// transform is what a transformer does, as far as Keygate can do it.
type transform struct {
	edits edits
	left  []untransformed
}

// untransformed is a part of a transformer that is not carried.
type untransformed struct {
	what string // such as "header X-A"
	reason
}

// finalState is how a header ends.
type finalState uint8

const (
	isAbsent finalState = iota
	isKept              // as it came
	isSet
	isMixed // of several values
)

// headerCase is what becomes of a header of messages that have it, or of messages that lack it.
type headerCase struct {
	came  bool
	state finalState
	value string // of isSet
}

// changedHeader is a header that a transformer names.
type changedHeader struct {
	name  string
	cases [2]headerCase
	reason
}

// transformation follows the headers through what a transformer does. Each step but the first one asks whether a message has the header:
// of requests as the steps before have left it, and of responses as it came.
type transformation struct {
	isResponse bool
	byName     map[string]*changedHeader // in lower case
	transform
}

func (t *transformation) header(name string) *changedHeader {
	id := strings.ToLower(name)
	if t.byName[id] == nil {
		t.byName[id] = &changedHeader{name: name, cases: [2]headerCase{{state: isAbsent}, {came: true, state: isKept}}}
	}
	return t.byName[id]
}

func (t *transformation) has(c *headerCase) bool {
	if t.isResponse {
		return c.came
	}
	return c.state != isAbsent
}

// transformOf returns what a transformer does. It is computed once for each plugin.
func transformOf(p *plugin) *transform {
	if p.transform == nil {
		t := &transformation{isResponse: isResponseTransformer(p.name), byName: map[string]*changedHeader{}}
		t.edits = edits{}
		t.follow(p)
		t.finish()
		p.transform = &t.transform
	}
	return p.transform
}

// What to do about a part of a transformer that is not carried.
const (
	letService = "let the service do it"
	thenAdd    = ", then add the route"
)

// actions returns what a transformer does, in this order.
func actions() []string { return []string{"remove", "rename", "replace", "add", "append"} }

// follow takes the steps of a transformer.
func (t *transformation) follow(p *plugin) {
	leave := func(what, why string) {
		t.left = append(t.left, untransformed{what, reason{why, letService}})
	}
	const headersAlone = "Keygate changes headers, and no queries, bodies or methods"
	for _, n := range p.config {
		for i := range n.Nodes {
			if m := &n.Nodes[i]; !isEmpty(m) && m.Name != "dots_in_keys" && !slices.Contains(actions(), m.Name) {
				leave(m.Name, headersAlone)
			}
		}
	}
	for _, action := range actions() {
		n := p.get(action)
		if n == nil || isEmpty(n) {
			continue
		}
		if n.Kind != document.Mapping {
			leave(action, "it is no mapping")
			continue
		}
		conditional := ""
		for i := range n.Nodes {
			switch m := &n.Nodes[i]; {
			case isEmpty(m) || m.Name == "headers":
			case m.Name == "uri":
				leave(action+"."+m.Name, "Keygate rewrites no paths, but cuts their beginning off (strip_prefix)")
			case m.Name == "if_status":
				conditional = "it depends on the status (if_status), and Keygate sets and removes headers of all responses"
			default:
				leave(action+"."+m.Name, headersAlone)
			}
		}
		if list := n.Member("headers"); list != nil {
			for _, text := range textsOf(list) {
				t.step(action, text, conditional)
			}
		}
	}
}

// step takes a step of a transformer for an item of a list, such as X-A: b.
func (t *transformation) step(action, text, conditional string) {
	name, value, hasValue := strings.Cut(text, ":")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	h := t.header(name)
	lose := func(why, remedy string) {
		if h.why == "" {
			h.reason = reason{why, remedy}
		}
	}
	if conditional != "" {
		lose(conditional, letService)
	}
	if !t.isResponse && strings.EqualFold(name, "host") && action != "remove" {
		lose("the header Host is host of an upstream in Keygate", "add the route to an upstream with its host")
	}
	switch action {
	case "remove":
		h.cases[0].state, h.cases[1].state = isAbsent, isAbsent
		return
	case "rename":
		if t.has(&h.cases[0]) || t.has(&h.cases[1]) {
			why := "it renames the header " + short(name) + " to " + short(value) + ", and Keygate sets and removes headers"
			lose(why, letService)
			if to := t.header(value); to.why == "" {
				to.reason = reason{why, letService}
			}
		}
		return
	}
	isVariable := deckEnv.MatchString(value)
	value = deckEnv.ReplaceAllString(value, "$${env:$1}")
	switch {
	case !hasValue:
		lose("the header "+short(name)+" has no value", "give it one")
	case value == "":
		return // Kong does nothing
	case strings.Contains(value, "$("), !isVariable && placeholder.MatchString(value), strings.HasPrefix(value, "{vault://"):
		lose("the value of the header "+short(name)+" is made for each request, or is not in the file", letService)
	}
	for i := range h.cases {
		c := &h.cases[i]
		switch has := t.has(c); {
		case action == "append" && c.state != isAbsent:
			c.state = isMixed
			lose("it appends to the header "+short(name)+", and Keygate replaces headers", letService)
		case action == "append", action == "replace" && has, action == "add" && !has:
			c.state, c.value = isSet, value
		}
	}
}

// finish sets the edits.
func (t *transformation) finish() {
	for _, id := range slices.Sorted(maps.Keys(t.byName)) {
		h := t.byName[id]
		one, l := h.edit(t.isResponse)
		folded := foldHeader(h.name)
		switch before, known := t.edits[folded]; {
		case l.why != "":
			t.left = append(t.left, untransformed{"header " + short(h.name), l})
		case one == nil:
		case known && before.value != "" && one.value != "":
			t.left = append(t.left, untransformed{"header " + short(h.name), reason{"it is the same header as " + short(before.name) + " in Keygate", "remove one of them"}})
		case known && one.value == "": // which the other one removes, too
		default:
			t.edits[folded] = *one
		}
	}
	if rules := t.edits.rules(false); t.isResponse && rules.Check() != nil { // each of them is valid
		t.left = append(t.left, untransformed{"headers", reason{fault.ProblemsOf(withoutVariables(rules).Check())[0].Message, letService}})
		clear(t.edits)
	}
}

// edit returns what Keygate does with the header, nil for nothing, or why it cannot do what Kong does.
func (h *changedHeader) edit(isResponse bool) (*edit, reason) {
	lacking, having := h.cases[0], h.cases[1]
	e := &edit{name: h.name}
	switch {
	case h.why != "":
		return nil, h.reason
	case lacking.state == isAbsent && having.state == isKept:
		return nil, reason{}
	case lacking.state == isAbsent && having.state == isAbsent:
	case lacking.state == isSet && having.state == isSet && lacking.value == having.value:
		e.value = lacking.value
	case lacking.state == isSet && having.state == isKept:
		e.value, e.yields = lacking.value, true
		if isResponse && strings.EqualFold(h.name, "set-cookie") {
			return nil, reason{"Keygate would set the cookie in place of those of the service", "let the service set the cookie"}
		}
	case lacking.state == isAbsent:
		return nil, reason{
			"it replaces the header " + short(h.name) + " where a message has it, and Keygate sets a header of every message",
			"if every message may have it, add the header too, with the same value, and import again",
		}
	default:
		return nil, reason{"what the header " + short(h.name) + " gets depends on whether a message has it", letService}
	}
	if isResponse {
		return e, e.responseProblem()
	}
	return e, reason{}
}

// responseProblem says why Keygate does not take an edit of responses.
func (e *edit) responseProblem() reason {
	if strings.Contains(deckVariable.ReplaceAllString(e.value, ""), "${") {
		return reason{"its value has ${, which begins a variable in Keygate", letService}
	}
	one := edits{foldHeader(e.name): *e}
	if err := withoutVariables(one.rules(false)).Check(); err != nil {
		bad := fault.ProblemsOf(err)[0]
		return reason{"in response_headers it " + bad.Message, letService}
	}
	return reason{}
}

// withoutVariables returns the rules with a text for each variable of the environment, so that they can be checked.
func withoutVariables(r *gateway.HeaderRules) *gateway.HeaderRules {
	n := r.Normal()
	if n != nil {
		for name, value := range n.Set {
			n.Set[name] = deckVariable.ReplaceAllString(value, "x")
		}
	}
	return n
}

// requestProblem says why a request-transformer is not carried: all of it, since the service may rely on each part.
func requestProblem(p *plugin) reason {
	t := transformOf(p)
	if len(t.left) > 0 {
		one := t.left[0]
		if !strings.HasPrefix(one.what, "header ") {
			one.why = one.what + ": " + one.why
		}
		if one.remedy == letService {
			one.remedy += thenAdd
		}
		return one.reason
	}
	return reason{t.edits.problem(), letService + thenAdd}
}

// transformed sets what the transformers of a route do.
func (s *examined) transformed() (why string) {
	s.requests, s.responses = edits{}, edits{}
	for _, p := range slices.Backward(s.transformers) { // of two, Kong begins with the advanced one
		to := s.requests
		if isResponseTransformer(p.name) {
			to = s.responses
		}
		to.then(transformOf(p).edits)
	}
	s.headers = s.requests.set()
	if withoutVariables(s.responses.rules(false)).Check() != nil {
		return "both of its response-transformers have too many headers"
	}
	return s.requests.problem()
}

// untaken leaves out the routes whose headers cannot be removed beside what else their gateways do, and reports whether there are any.
func (k *kong) untaken() (some bool) {
	for _, g := range k.gateways {
		g.withheld, _ = k.keyHeaderNames(g)
		g.setBy = map[string]*service{}
		for _, id := range g.upstreams {
			for name := range g.variants[id].headers {
				g.setBy[foldHeader(name)] = g.variants[id].service
			}
		}
		for _, s := range g.carriedRoutes() {
			for _, id := range slices.Sorted(maps.Keys(s.requests)) {
				switch by := g.setBy[id]; {
				case s.why != "" || s.answer != nil || s.requests[id].value != "" || g.withholds(id):
				case id == authorization:
					s.reason = reason{"it removes the header Authorization, and Keygate takes it from requests only where it may hold the key", "name Authorization in key_headers of the gateway, then add the route"}
					some = true
				case by != nil:
					s.reason = reason{
						"it removes the header " + short(s.requests[id].name) + ", which " + g.label() + " sets for service " + short(by.label()) + ", and headers with secret values are set or removed for a whole gateway",
						"give one of the services a host of its own, or add the route and set the header with request_headers",
					}
					some = true
				}
			}
		}
	}
	return some
}

// withholds reports whether no upstream gets a header, because it may hold the key.
func (g *gatewayTable) withholds(folded string) bool {
	return slices.ContainsFunc(g.withheld, func(name string) bool { return foldHeader(name) == folded })
}

// headersOf sets the rules for headers of a gateway, if Kong has the same for everything, and reports whether it did.
func (k *kong) headersOf(g *gatewayTable) bool {
	routes := slices.DeleteFunc(g.carriedRoutes(), func(s *examined) bool { return s.answer != nil })
	if len(routes) == 0 || len(routes[0].transformers) == 0 {
		return false
	}
	list := routes[0].transformers
	isOfOne := func(p *plugin) bool { return p.route != nil || p.service != nil }
	if slices.ContainsFunc(list, isOfOne) || slices.ContainsFunc(routes, func(s *examined) bool { return !slices.Equal(s.transformers, list) }) {
		return false
	}
	set := func(m *gateway.Member[*gateway.HeaderRules], rules *gateway.HeaderRules) {
		if rules != nil {
			*m = gateway.Member[*gateway.HeaderRules]{Present: true, Value: rules}
		}
	}
	requests, responses := k.rulesOf(g, routes[0])
	set(&g.document.Gateway.RequestHeaders, requests)
	set(&g.document.Gateway.ResponseHeaders, responses)
	return true
}

// rulesOf returns the rules for headers of a route. Headers of requests that are set are those of its upstream.
func (k *kong) rulesOf(g *gatewayTable, s *examined) (requests, responses *gateway.HeaderRules) {
	if len(s.transformers) == 0 {
		return nil, nil
	}
	of, back := maps.Clone(s.requests), maps.Clone(s.responses)
	maps.DeleteFunc(of, func(id string, _ edit) bool { return g.withholds(id) })
	for _, id := range slices.Sorted(maps.Keys(back)) {
		if !g.withholds(id) && g.setBy[id] == nil {
			continue
		}
		for _, p := range s.transformers {
			if _, has := transformOf(p).edits[id]; has && isResponseTransformer(p.name) {
				k.left(p.at, p.label()+", header "+short(back[id].name), g.label()+" sets it on requests, or it may hold the key, and such headers of responses are left alone", letService)
			}
		}
		delete(back, id)
	}
	return of.rules(true), back.rules(false)
}

// reportTransformer adds the lines of a transformer that is carried.
func (k *kong) reportTransformer(p *plugin) {
	t, object := transformOf(p), p.label()
	yields, sets := false, false
	for _, e := range t.edits {
		yields, sets = yields || e.yields, sets || e.value != ""
	}
	switch {
	case len(t.edits) == 0 && len(t.left) == 0:
		k.left(p.at, object, "it does nothing", "nothing to do")
	case isRequestTransformer(p.name) && yields:
		k.changed(p.at, object, "it sets the headers of upstreams: they replace what a client sends, and are secret")
	case isResponseTransformer(p.name) && sets:
		why := "responses of the gateway itself do not get the headers that it sets"
		if yields {
			why = "the headers that it adds replace those of the service; " + why
		}
		k.changed(p.at, object, "%s", why)
	case len(t.edits) > 0:
		k.carried(p.at, object)
	}
	for _, part := range t.left {
		k.left(p.at, object+", "+short(part.what), cmp.Or(part.why, "it is unknown"), part.remedy)
	}
}
