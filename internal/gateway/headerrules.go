package gateway

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
)

// The names of the settings with a HeaderRules, of a gateway and of a route.
const (
	requestHeadersName  = "request_headers"
	responseHeadersName = "response_headers"
)

// HeaderRules says which headers of messages are set and removed (edge.md, section 2). A name that is set or removed is first taken from
// the message. Routes share it, so it must not be changed. Nil is no rule. The store and the API keep it as JSON, so the names are part
// of the stored form.
type HeaderRules struct {
	// Set has the values by name. A value may have variables: see ParseHeaderValue.
	Set    map[string]string `json:"set,omitempty"`
	Remove []string          `json:"remove,omitempty"`
}

// HeaderVariable is a variable in the value of a header.
type HeaderVariable string

// The variables. One that a request has no value for leaves the whole header out.
const (
	RequestIDVariable HeaderVariable = "request_id"
	KeyIDVariable     HeaderVariable = "key_id"
	OwnerVariable     HeaderVariable = "owner"
	SubjectVariable   HeaderVariable = "subject"
	ClientIPVariable  HeaderVariable = "client_ip"
	GatewayIDVariable HeaderVariable = "gateway_id"
)

// headerVariables lists the variables in the order of messages.
func headerVariables() []HeaderVariable {
	return []HeaderVariable{RequestIDVariable, KeyIDVariable, OwnerVariable, SubjectVariable, ClientIPVariable, GatewayIDVariable}
}

// HeaderPart is a part of the value of a header: a text, or a variable, whose Text is "".
type HeaderPart struct {
	Text     string
	Variable HeaderVariable
}

// ParseHeaderValue returns the parts of a value, in which ${name} is a variable. The error is a validation error without a field.
func ParseHeaderValue(value string) (parts []HeaderPart, err error) {
	for value != "" {
		text, rest, found := strings.Cut(value, "${")
		if text != "" {
			parts = append(parts, HeaderPart{Text: text})
		}
		if !found {
			return parts, nil
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed || !slices.Contains(headerVariables(), HeaderVariable(name)) {
			names := make([]string, 0, len(headerVariables()))
			for _, v := range headerVariables() {
				names = append(names, "${"+string(v)+"}")
			}
			return nil, fault.Invalid("", "has ${ without the name of a variable and }: the variables are %s", strings.Join(names, ", "))
		}
		parts = append(parts, HeaderPart{Variable: HeaderVariable(name)})
		value = after
	}
	return parts, nil
}

// IsEmpty reports whether h has no rule.
func (h *HeaderRules) IsEmpty() bool { return h == nil || len(h.Set) == 0 && len(h.Remove) == 0 }

// Normal returns h in the stored form, nil if it has no rule.
func (h *HeaderRules) Normal() *HeaderRules {
	if h.IsEmpty() {
		return nil
	}
	n := &HeaderRules{}
	if len(h.Set) > 0 {
		n.Set = maps.Clone(h.Set)
	}
	if len(h.Remove) > 0 {
		n.Remove = slices.Clone(h.Remove)
	}
	return n
}

// Over returns the rules that apply to a route with the rules h, which take the place of those of its gateway with the same names: the
// value by name in folded form, or "" for one that is removed.
func (h *HeaderRules) Over(gateway *HeaderRules) map[string]string {
	all := map[string]string{}
	for _, rules := range []*HeaderRules{gateway, h} {
		if rules == nil {
			continue
		}
		for _, name := range rules.Remove {
			all[foldHeader(name)] = ""
		}
		for name, value := range rules.Set {
			all[foldHeader(name)] = value
		}
	}
	return all
}

// Names returns the names that are set or removed, sorted.
func (h *HeaderRules) Names() []string {
	if h == nil {
		return nil
	}
	names := slices.AppendSeq(slices.Clone(h.Remove), maps.Keys(h.Set))
	slices.Sort(names)
	return names
}

// Check checks the rules by themselves. Errors are validation errors of set, of remove, or of fields of them.
func (h *HeaderRules) Check() error {
	if h == nil {
		return nil
	}
	if n := len(h.Set) + len(h.Remove); n > MaxHeaderRules {
		return fault.Invalid("", "must not have more than %d headers in set and remove together, not %d", MaxHeaderRules, n)
	}
	seen := map[string]bool{}
	problems := []error{checkRuleHeaders("set", h.Set, seen)}
	variables := 0
	for _, name := range sortedNames(h.Set) {
		parts, err := ParseHeaderValue(h.Set[name])
		if h.Set[name] == "" {
			err = fault.Invalid("", "must not be empty: name the header in remove to take it from messages")
		}
		problems = append(problems, fault.Prefixed("set."+name, err))
		for _, p := range parts {
			if p.Variable != "" {
				variables++
			}
		}
	}
	if variables > maxHeaderVariables {
		problems = append(problems, fault.Invalid("set", "must have at most %d variables in all values together, not %d", maxHeaderVariables, variables))
	}
	for i, name := range h.Remove {
		problems = append(problems, checkRuleName("remove", fmt.Sprintf("remove[%d]", i), name, seen))
	}
	return fault.Join(problems...)
}

// ProtectedHeaders are the headers that no rule and no respond of a gateway or of its routes may name, in folded form, beside those that
// no gateway's may (isRuleReserved), and what each of them is.
type ProtectedHeaders map[string]string

// ProtectedHeaders returns the headers that g itself protects: those that may hold the key, and those that it sets on the requests to its
// upstreams.
func (g *Gateway) ProtectedHeaders() ProtectedHeaders {
	p := ProtectedHeaders{}
	for u := range g.AllUpstreams {
		for name := range u.Headers {
			p.Add(name, "is in the upstream_headers of the gateway or of one of its upstreams, which take its place: leave it out here, or there")
		}
	}
	for _, name := range g.Requests.AllKeyHeaders() {
		p.Add(name, "may hold the key, by key_headers: no upstream gets it")
	}
	return p
}

// Add protects a header. what says in messages what it is, and what to do.
func (p ProtectedHeaders) Add(name, what string) { p[foldHeader(name)] = what }

// check checks the names of rules. The error is as from HeaderRules.Check.
func (p ProtectedHeaders) check(h *HeaderRules) error {
	if h == nil || len(p) == 0 {
		return nil
	}
	problems := []error{p.checkSet("set", h.Set)}
	for i, name := range h.Remove {
		if what := p[foldHeader(name)]; what != "" {
			problems = append(problems, fault.Invalid(fmt.Sprintf("remove[%d]", i), "%s", what))
		}
	}
	return fault.Join(problems...)
}

func (p ProtectedHeaders) checkSet(of string, set map[string]string) error {
	var problems []error
	for _, name := range sortedNames(set) {
		if what := p[foldHeader(name)]; what != "" {
			problems = append(problems, fault.Invalid(of+"."+name, "%s", what))
		}
	}
	return fault.Join(problems...)
}

// CheckGateway checks that the rules of g name no protected header. Errors are validation errors of fields of the settings.
func (p ProtectedHeaders) CheckGateway(g *Gateway) error {
	return fault.Join(
		fault.Prefixed(requestHeadersName, p.check(g.Requests.RequestHeaders)),
		fault.Prefixed(responseHeadersName, p.check(g.Requests.ResponseHeaders)))
}

// CheckHandling checks that what a route does with headers names no protected one. Errors are validation errors of fields of the route.
func (p ProtectedHeaders) CheckHandling(h *Handling) error {
	if h == nil || len(p) == 0 {
		return nil
	}
	var badRespond error
	if h.Respond != nil {
		badRespond = fault.Prefixed("respond", p.checkSet("headers", h.Respond.Headers))
	}
	return fault.Join(badRespond,
		fault.Prefixed(requestHeadersName, p.check(h.RequestHeaders)),
		fault.Prefixed(responseHeadersName, p.check(h.ResponseHeaders)))
}

// NamesHeaders reports whether h names headers that may be protected.
func (h *Handling) NamesHeaders() bool {
	return h != nil && (h.RequestHeaders != nil || h.ResponseHeaders != nil || h.Respond != nil && len(h.Respond.Headers) > 0)
}

// HeaderRulesFields returns the names of the settings with HeaderRules: those of requests, then those of responses.
func HeaderRulesFields() [2]string { return [2]string{requestHeadersName, responseHeadersName} }

// HeaderRules returns the rules of h in the order of HeaderRulesFields.
func (h *Handling) HeaderRules() [2]*HeaderRules {
	if h == nil {
		return [2]*HeaderRules{}
	}
	return [2]*HeaderRules{h.RequestHeaders, h.ResponseHeaders}
}

// requestHeadersField and responseHeadersField are the rules of a route.
func requestHeadersField() handlingField {
	f := headerRulesField(requestHeadersName, func(h *Handling) **HeaderRules { return &h.RequestHeaders })
	f.doc = "Headers that are set on the requests that upstreams get, and removed from them, beside those of the gateway: a rule of the route for a name takes the place of the gateway's."
	return f
}

func responseHeadersField() handlingField {
	f := headerRulesField(responseHeadersName, func(h *Handling) **HeaderRules { return &h.ResponseHeaders })
	f.doc = "Headers that are set on the responses of upstreams, and removed from them, beside those of the gateway: a rule of the route for a name takes the place of the gateway's."
	return f
}

func headerRulesField(name string, of func(h *Handling) **HeaderRules) handlingField {
	return handlingField{
		name:       name,
		mayBeEmpty: true,
		present:    func(h *Handling) bool { return !(*of(h)).IsEmpty() },
		value:      func(h *Handling) any { return *of(h) },
		copyTo:     func(to, from *Handling) { *of(to) = (*of(from)).Normal() },
		check:      func(h *Handling, _ string) error { return fault.Prefixed(name, (*of(h)).Check()) },
		part: func(h *Handling) part {
			return part{name, func(m *document.Node, at string) (err error) {
				rules, err := readHeaderRules(m, at)
				*of(h) = rules.Normal()
				return err
			}, headerRulesSchema()}
		},
	}
}

// headerRulesRow returns the row of a setting of a gateway with rules: those of its requests, or of its responses.
func headerRulesRow(name, flag, what string, member func(p *Patch) *Member[*HeaderRules], of func(g *Gateway) **HeaderRules) Setting {
	return Setting{
		Name: name, Kind: KindHeaderRules,
		Doc: Doc{
			File:   "Headers that are set on " + what + ", and removed from them: set has values by name, in which ${request_id}, ${key_id}, ${owner}, ${subject}, ${client_ip} and ${gateway_id} are variables, and remove has names. A route may have others. The values are shown to all who may read the gateway. null, the default, means none.",
			Update: "Headers that are set on " + what + ", and removed from them. A route may have rules of its own, which take the place of those with the same names. The values are not secret: secrets belong in upstream_headers. Replaces the whole object; null or {}, the default, means none.",
			Record: "Headers that are set on " + what + ", and removed from them. Absent if there are none.",
			Patch:  "replaced as a whole; default: none",
		},
		Record: Record{OmitEmpty: true},
		Flag:   Flag{Column: strings.ToUpper(strings.ReplaceAll(name, "_", " "))},
		Form:   Form{Group: "Headers"},
		Parts: []Part{{
			Name: "set", Kind: KindPairs,
			Flag: Flag{Name: flag, Usage: "header to set on " + what + ", as `NAME=VALUE`; may be repeated, and replaces all rules; an empty value removes them"},
			Form: Form{Label: "Set on " + what, Hint: "One “Name: value” in a line, at most 32. ${request_id}, ${key_id}, ${owner}, ${subject}, ${client_ip} and ${gateway_id} are variables. Everyone who may read the gateway sees the values.", Placeholder: "X-Real-IP: ${client_ip}"},
		}, {
			Name: "remove", Kind: KindList,
			Flag: Flag{Name: "remove-" + flag, Usage: "`name` of a header to remove from " + what + "; may be repeated, and replaces all rules"},
			Form: Form{Label: "Removed from " + what, Hint: "Names, separated by commas.", Placeholder: "X-Debug"},
		}},
		values: access[*HeaderRules]{
			file:   valueType[*HeaderRules]{readHeaderRules, encodeHeaderRules, headerRulesSchema()},
			member: member,
			get:    func(g *Gateway) *HeaderRules { return *of(g) },
			set:    func(g *Gateway, h *HeaderRules) { *of(g) = h.Normal() },
			check:  func(h *HeaderRules) error { return fault.Prefixed(name, h.Check()) },
		},
	}
}

func requestHeadersRow() Setting {
	return headerRulesRow(requestHeadersName, "request-header", "the requests that upstreams get",
		func(p *Patch) *Member[*HeaderRules] { return &p.RequestHeaders }, func(g *Gateway) **HeaderRules { return &g.Requests.RequestHeaders })
}

func responseHeadersRow() Setting {
	return headerRulesRow(responseHeadersName, "response-header", "the responses of upstreams",
		func(p *Patch) *Member[*HeaderRules] { return &p.ResponseHeaders }, func(g *Gateway) **HeaderRules { return &g.Requests.ResponseHeaders })
}

func (h *HeaderRules) parts() []part {
	return []part{
		{"set", func(m *document.Node, at string) (err error) {
			h.Set, err = readHeaders(m, at)
			return err
		}, orNull(ruleHeadersSchema("Values by name. ${request_id}, ${key_id}, ${owner}, ${subject}, ${client_ip} and ${gateway_id} are variables; a header with one that has no value is left out."))},
		{"remove", func(m *document.Node, at string) (err error) {
			h.Remove, err = m.ReadTexts(at)
			return err
		}, orNull(schema{"type": "array", "maxItems": MaxHeaderRules, "items": schema{"type": "string", "minLength": 1, "maxLength": maxHeaderName}, "description": "Names of headers that are removed."})},
	}
}

func headerRulesSchema() schema { return schemaOf((&HeaderRules{}).parts()) }

func readHeaderRules(n *document.Node, field string) (*HeaderRules, error) {
	h := &HeaderRules{}
	what := field[strings.LastIndexByte(field, '.')+1:]
	return h, readParts(n, field, what, h.parts())
}

func encodeHeaderRules(b *bytes.Buffer, h *HeaderRules) {
	if h.IsEmpty() {
		b.WriteString(" {}\n")
		return
	}
	b.WriteByte('\n')
	if len(h.Set) > 0 {
		b.WriteString("    set:\n")
		for _, name := range sortedNames(h.Set) {
			fmt.Fprintf(b, "      %s: %s\n", document.Scalar(name), document.Scalar(h.Set[name]))
		}
	}
	if len(h.Remove) > 0 {
		fmt.Fprintf(b, "    remove: %s\n", document.Flow(h.Remove))
	}
}
