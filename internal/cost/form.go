package cost

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Read reads the rules of a document, as they stand in a configuration file, an OpenAPI document or a request of the
// API, and validates them. null is no rules. The error is a validation error that names every invalid field, as in
// "[0].max"; document.WithPosition adds the positions in n.
func Read(n *document.Node) (Rules, error) {
	switch {
	case n.Kind == document.Null:
		return nil, nil
	case n.Kind != document.Sequence:
		return nil, mismatch(n, document.Sequence, "of costs, one for each meter")
	case len(n.Nodes) > MaxRules:
		return nil, tooManyRules()
	}
	rules := make(Rules, len(n.Nodes))
	var problems []error
	unread := map[string]bool{}
	for i := range n.Nodes {
		at := fmt.Sprintf("[%d]", i)
		r := formReader{unread: map[string]bool{}}
		r.readRule(&n.Nodes[i], &rules[i])
		problems = append(problems, fault.Prefixed(at, fault.Join(r.problems...)))
		for field := range r.unread {
			unread[strings.Trim(at+"."+field, ".")] = true
		}
	}
	// What could not be read is not invalid, too.
	invalid := fault.ProblemsOf(rules.Validate())
	invalid = slices.DeleteFunc(invalid, func(p fault.Problem) bool { return isUnread(unread, p.Field) })
	if err := fault.Join(append(problems, fault.InvalidAll(invalid, 0))...); err != nil {
		return nil, err
	}
	return rules, nil
}

// isUnread reports whether the field or one that it is in could not be read.
func isUnread(unread map[string]bool, field string) bool {
	for at := range unread {
		if field == at || strings.HasPrefix(field, at+".") {
			return true
		}
	}
	return false
}

// formReader reads one rule.
type formReader struct {
	problems []error
	unread   map[string]bool // fields that could not be read
}

func (r *formReader) fail(field string, err error) {
	r.problems = append(r.problems, fault.Prefixed(field, err))
	r.unread[field] = true
}

// members calls the functions for the members of a mapping that have their names. null is an absent member.
func (r *formReader) members(n *document.Node, at, what string, of map[string]func(m *document.Node, at string)) bool {
	if n.Kind != document.Mapping {
		r.fail(at, mismatch(n, document.Mapping, "with "+what))
		return false
	}
	for i := range n.Nodes {
		m := &n.Nodes[i]
		field := below(at, shown(m.Name))
		switch read := of[m.Name]; {
		case read == nil:
			r.problems = append(r.problems, fault.Invalid(field, "is not a field here: use %s", what))
		case m.Kind != document.Null:
			read(m, field)
		}
	}
	return true
}

func below(at, name string) string {
	if at == "" || name == "" {
		return at + name
	}
	return at + "." + name
}

// mismatch returns the error for a node that is not of the kind want.
func mismatch(n *document.Node, want document.Kind, more string) error {
	return fault.Invalid("", "must be %s, not %s", strings.TrimSpace(want.String()+" "+more), n.Kind)
}

func (r *formReader) text(to *string) func(*document.Node, string) {
	return func(n *document.Node, at string) {
		if n.Kind != document.String {
			r.fail(at, mismatch(n, document.String, ""))
			return
		}
		*to = strings.Clone(n.Text)
	}
}

func (r *formReader) count(to *int64) func(*document.Node, string) {
	return func(n *document.Node, at string) {
		if n.Kind != document.Number {
			r.fail(at, mismatch(n, document.Number, ""))
			return
		}
		var ok bool
		if *to, ok = document.Integer(n.Text); !ok {
			r.fail(at, fault.Invalid("", "must be a whole number from 0 to %d", int64(MaxUnits)))
		}
	}
}

func (r *formReader) weight(to *Weight) func(*document.Node, string) {
	return func(n *document.Node, at string) {
		if n.Kind != document.Number {
			r.fail(at, mismatch(n, document.Number, ""))
			return
		}
		var err error
		if *to, err = ParseWeight(n.Text); err != nil {
			r.fail(at, err)
		}
	}
}

func (r *formReader) readRule(n *document.Node, to *Rule) {
	const absent = -1
	to.Reserve, to.Max = absent, absent
	if !r.members(n, "", "meter, reserve, max, from or unknown", map[string]func(*document.Node, string){
		"meter":   r.text(&to.Meter),
		"reserve": r.count(&to.Reserve),
		"max":     r.count(&to.Max),
		"from":    func(m *document.Node, at string) { r.readFrom(m, at, &to.From) },
		"unknown": func(m *document.Node, at string) { r.readUnknown(m, at, &to.Unknown) },
	}) {
		return
	}
	for _, required := range []struct{ name, remedy string }{{"meter", "name what is counted, such as tokens"}, {"from", "give one of request, header and json"}} {
		if m := n.Member(required.name); m == nil || m.Kind == document.Null {
			r.fail(required.name, fault.Invalid("", "is required: %s", required.remedy))
		}
	}
	// A negative number is given, too: Validate reports it.
	given := func(name string) bool { m := n.Member(name); return m != nil && m.Kind != document.Null }
	price := to.From.Source == FromRequest
	switch {
	case given("max"):
	case price:
		to.Max = to.From.Price
	case r.unread["from"] || r.unread["from.request"]:
		r.unread["max"] = true
	default:
		r.fail("max", fault.Invalid("", "is required with header and json: give the most that one request may cost"))
	}
	if !given("reserve") {
		to.Reserve = to.defaultReserve()
	}
	if r.unread["max"] || r.unread["from.request"] { // nothing to compare with
		to.Max = MaxUnits
	}
	if r.unread["reserve"] {
		to.Reserve = 0
	}
}

func (r *formReader) readFrom(n *document.Node, at string, to *From) {
	var sources []Source
	source := func(s Source, read func(*document.Node, string)) func(*document.Node, string) {
		return func(m *document.Node, at string) {
			sources = append(sources, s)
			read(m, at)
		}
	}
	if !r.members(n, at, "request, header (with expose) or json (with by and prices)", map[string]func(*document.Node, string){
		"request": source(FromRequest, r.count(&to.Price)),
		"header":  source(FromHeader, r.text(&to.Header)),
		"json":    source(FromJSON, func(m *document.Node, at string) { to.JSON = r.readFields(m, at) }),
		"expose": func(m *document.Node, at string) {
			if m.Kind != document.Bool {
				r.fail(at, mismatch(m, document.Bool, ""))
			}
			to.Expose = m.Text == "true"
		},
		"by":     r.text(&to.By),
		"prices": func(m *document.Node, at string) { to.Prices = r.readPrices(m, at) },
	}) {
		return
	}
	if len(sources) != 1 {
		r.fail(at, badSource())
		return
	}
	to.Source = sources[0]
	r.need(n, at, to.Source == FromHeader, "header", "expose")
	r.need(n, at, to.Source == FromJSON, "json", "by", "prices")
	switch to.Source { // what is out of place was reported
	case FromHeader:
		to.By, to.Prices = "", nil
	case FromJSON:
		to.Expose = false
	default:
		to.Expose, to.By, to.Prices = false, "", nil
	}
}

// need reports the names that are given without what they need.
func (r *formReader) need(n *document.Node, at string, met bool, what string, names ...string) {
	for _, name := range names {
		if m := n.Member(name); !met && m != nil && m.Kind != document.Null {
			r.fail(below(at, name), fault.Invalid("", "needs %s: leave it out", what))
		}
	}
}

func (r *formReader) readFields(n *document.Node, at string) []Field {
	if n.Kind != document.Mapping {
		r.fail(at, mismatch(n, document.Mapping, "of fields to weights, as in {usage.total_tokens: 1}"))
		return nil
	}
	fields := make([]Field, len(n.Nodes))
	for i := range n.Nodes {
		m := &n.Nodes[i]
		fields[i].Name = strings.Clone(m.Name)
		r.weight(&fields[i].Weight)(m, below(at, shown(m.Name)))
	}
	return fields
}

func (r *formReader) readPrices(n *document.Node, at string) []Price {
	if n.Kind != document.Mapping {
		r.fail(at, mismatch(n, document.Mapping, "of values to fields with weights"))
		return nil
	}
	prices := make([]Price, len(n.Nodes))
	for i := range n.Nodes {
		m := &n.Nodes[i]
		prices[i] = Price{strings.Clone(m.Name), r.readFields(m, below(at, shown(m.Name)))}
	}
	return prices
}

func (r *formReader) readUnknown(n *document.Node, at string, to *Unknown) {
	switch {
	case n.Kind == document.Mapping && len(n.Nodes) == 1 && (n.Nodes[0].Name == ratelimit.BytesIn || n.Nodes[0].Name == ratelimit.BytesOut):
		to.Fallback = UnknownBytesIn
		if n.Nodes[0].Name == ratelimit.BytesOut {
			to.Fallback = UnknownBytesOut
		}
		r.weight(&to.Weight)(&n.Nodes[0], below(at, n.Nodes[0].Name))
	case n.Kind == document.String && n.Text == "max":
	case n.Kind == document.String && n.Text == "reserve":
		to.Fallback = UnknownReserve
	default:
		r.problems = append(r.problems, badUnknown())
		r.unread[at] = true
	}
}

// UnmarshalJSON reads what Read does.
func (rules *Rules) UnmarshalJSON(text []byte) error {
	n, err := document.Parse(text)
	if err != nil {
		return err
	}
	*rules, err = Read(n)
	return err
}

// MarshalJSON returns the JSON form of valid rules. Read turns it into equal rules, in the same order.
func (rules Rules) MarshalJSON() ([]byte, error) { return rules.AppendJSON(nil), nil }

// AppendJSON appends the JSON form of valid rules to b. Defaults are written out, but for unknown.
func (rules Rules) AppendJSON(b []byte) []byte {
	b = append(b, '[')
	for i := range rules {
		if i > 0 {
			b = append(b, ',')
		}
		b = rules[i].appendJSON(b)
	}
	return append(b, ']')
}

func (r *Rule) appendJSON(b []byte) []byte {
	b = appendString(append(b, `{"meter":`...), r.Meter)
	b = strconv.AppendInt(append(b, `,"reserve":`...), r.Reserve, 10)
	b = strconv.AppendInt(append(b, `,"max":`...), r.Max, 10)
	b = append(b, `,"from":{`...)
	f := &r.From
	switch f.Source {
	case FromRequest:
		b = strconv.AppendInt(append(b, `"request":`...), f.Price, 10)
	case FromHeader:
		if b = appendString(append(b, `"header":`...), f.Header); f.Expose {
			b = append(b, `,"expose":true`...)
		}
	case FromJSON:
		if b = appendFields(append(b, `"json":`...), f.JSON); f.By == "" {
			break
		}
		b = appendString(append(b, `,"by":`...), f.By)
		b = append(b, `,"prices":{`...)
		for i, p := range f.Prices {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendFields(append(appendString(b, p.Value), ':'), p.Fields)
		}
		b = append(b, '}')
	}
	b = append(b, '}')
	switch r.Unknown.Fallback {
	case UnknownReserve:
		b = append(b, `,"unknown":"reserve"`...)
	case UnknownBytesIn:
		b = append(r.Unknown.Weight.append(append(b, `,"unknown":{"bytes_in":`...)), '}')
	case UnknownBytesOut:
		b = append(r.Unknown.Weight.append(append(b, `,"unknown":{"bytes_out":`...)), '}')
	}
	return append(b, '}')
}

func appendFields(b []byte, fields []Field) []byte {
	b = append(b, '{')
	for i, f := range fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = f.Weight.append(append(appendString(b, f.Name), ':'))
	}
	return append(b, '}')
}

// appendString appends s, which is valid UTF-8, as a JSON string.
func appendString(b []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic("cost: " + err.Error()) // strings have a form
	}
	return append(b, text...)
}
