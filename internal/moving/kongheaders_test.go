package moving_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/moving"
)

// steps are the lists of headers of a transformer, by action.
type steps map[string][]string

var transformations = []string{"remove", "rename", "replace", "add", "append"}

// config returns the steps as the configuration of a plugin.
func (s steps) config() string {
	var parts []string
	for _, action := range transformations {
		if len(s[action]) > 0 {
			parts = append(parts, action+": {headers: "+flow(s[action])+"}")
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// transform returns the headers of a message behind Kong, written after Kong's documentation: the steps come in the order of
// transformations. Those of responses look at the headers of the service.
func (s steps) transform(message map[string]string, isResponse bool) map[string]string {
	after := maps.Clone(message)
	has := func(name string) bool {
		if isResponse {
			return message[name] != ""
		}
		return after[name] != ""
	}
	for _, action := range transformations {
		for _, item := range s[action] {
			name, value, _ := strings.Cut(item, ": ")
			switch {
			case action == "remove":
				delete(after, name)
			case action == "rename" && has(name):
				was := after[name]
				if isResponse {
					was = message[name]
				}
				delete(after, name)
				after[value] = was
			case action == "replace" && has(name), action == "add" && !has(name):
				after[name] = value
			case action == "append" && after[name] == "":
				after[name] = value
			case action == "append":
				after[name] += ", " + value
			}
		}
	}
	return after
}

func drawSteps(t *rapid.T) steps {
	name := rapid.SampledFrom([]string{"X-A", "X-B", "X-C"})
	pair := rapid.Custom(func(t *rapid.T) string {
		return name.Draw(t, "name") + ": " + rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value")
	})
	s := steps{"remove": rapid.SliceOfN(name, 0, 2).Draw(t, "remove")}
	for _, action := range transformations[2:] {
		s[action] = rapid.SliceOfN(pair, 0, 2).Draw(t, action)
	}
	if from, to := name.Draw(t, "from"), name.Draw(t, "to"); from != to && rapid.IntRange(0, 5).Draw(t, "rename") == 0 {
		s["rename"] = []string{from + ": " + to}
	}
	return s
}

// messages returns messages with each set of the headers.
func messages() (list []map[string]string) {
	for bits := range 8 {
		m := map[string]string{}
		for i, name := range []string{"X-A", "X-B", "X-C"} {
			if bits&(1<<i) != 0 {
				m[name] = "own"
			}
		}
		list = append(list, m)
	}
	return list
}

// edited returns a message behind the rules of a gateway.
func edited(message, set map[string]string, rules ...*gateway.HeaderRules) map[string]string {
	after := maps.Clone(message)
	for _, r := range rules {
		if r != nil {
			for _, name := range r.Remove {
				delete(after, name)
			}
			maps.Copy(after, r.Set)
		}
	}
	maps.Copy(after, set)
	return after
}

// canBeSaid reports whether each header ends in the same way whether a message has it or not, or is kept, or is set where a message
// lacks it: what Keygate does, or nearly does.
func (s steps) canBeSaid(isResponse bool) bool {
	for _, name := range []string{"X-A", "X-B", "X-C"} {
		lacking, having := s.transform(map[string]string{}, isResponse)[name], s.transform(map[string]string{name: "own"}, isResponse)[name]
		if lacking != having && having != "own" || strings.Contains(lacking, ",") {
			return false
		}
	}
	return true
}

// Guarantee: edge.md, section 5: what a request-transformer does with headers that can be said exactly is done exactly, for every
// request; a header that is added replaces what a client sends; a route of which something else is asked is left out.
func TestRequestsAreTransformedAsInKong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSteps(t)
		files := filesOf(t, transformedDeck("request-transformer", s))
		if len(files) == 0 {
			if len(s["rename"]) == 0 && s.canBeSaid(false) {
				t.Fatalf("%s is not carried", s.config())
			}
			return
		}
		d, err := gateway.ParseDocument(files[0].Content)
		if err != nil {
			t.Fatal(err)
		}
		var rules *gateway.HeaderRules
		if h := d.Routes[0].Handling; h != nil {
			rules = h.RequestHeaders
		}
		checkTransformed(t, s, false, files[0], d.Gateway.UpstreamHeaders.Value, rules)
	})
}

// Guarantee: edge.md, section 5: what a response-transformer does with a header that can be said exactly is done exactly; a header
// that is added replaces that of the service; others are left as they are, and are in the report.
func TestResponsesAreTransformedAsInKong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSteps(t)
		deck, err := moving.ReadKong("kong.yaml", []byte(transformedDeck("response-transformer", s)))
		if err != nil {
			t.Fatal(err)
		}
		r, err := moving.Kong(deck)
		if err != nil || len(r.Files) != 1 {
			t.Fatalf("%s: got %v, %v, want a file", s.config(), r, err)
		}
		d, err := gateway.ParseDocument(r.Files[0].Content)
		if err != nil {
			t.Fatal(err)
		}
		left := strings.Contains(string(r.ReportText()), ", header X-")
		if left == (len(s["rename"]) == 0 && s.canBeSaid(true)) {
			t.Fatalf("%s: got the report\n%s", s.config(), r.ReportText())
		}
		var rules *gateway.HeaderRules
		if h := d.Routes[0].Handling; h != nil {
			rules = h.ResponseHeaders
		}
		if !left {
			checkTransformed(t, s, true, r.Files[0], nil, rules)
		}
	})
}

func transformedDeck(plugin string, s steps) string {
	return "_format_version: '3.0'\nservices:\n- {name: s, url: 'http://s.internal', routes: [{name: r, paths: [/], plugins: [{name: " + plugin + ", config: " + s.config() + "}]}]}\n"
}

// checkTransformed compares what Keygate does with every message with what Kong does.
func checkTransformed(t *rapid.T, s steps, isResponse bool, file moving.File, set map[string]string, rules *gateway.HeaderRules) {
	for _, message := range messages() {
		got, want := edited(message, set, rules), s.transform(message, isResponse)
		for _, name := range []string{"X-A", "X-B", "X-C"} {
			replaces := want[name] == "own" && got[name] == s.transform(map[string]string{}, isResponse)[name] // one that is added
			if got[name] != want[name] && !replaces {
				t.Fatalf("%s of %v: got %s: %q, want %q\n%s", s.config(), message, name, got[name], want[name], file.Content)
			}
		}
	}
}

// Guarantee: a gateway has the rules of transformers of everything, and otherwise routes have them; both transformers of requests are
// carried, the advanced one first, as in Kong.
func TestRulesOfSeveralTransformers(t *testing.T) {
	const deck = `_format_version: '3.0'
services:
- name: s
  url: http://s.internal
  routes: [{name: r, paths: [/r], strip_path: false}]
- name: o
  url: http://o.internal
  routes: [{name: o, paths: [/o], strip_path: false%s}]
plugins:
- {name: response-transformer, config: {remove: {headers: [X-A]}}}
- {name: request-transformer, config: {remove: {headers: [X-B, X-C]}, add: {headers: ['X-D: basic']}}}
- {name: request-transformer-advanced, config: {add: {headers: ['X-B: 1', 'X-D: advanced']}}}
`
	all := gatewayOf(t, fmt.Sprintf(deck, ""))
	if got := all.Gateway.RequestHeaders.Value.Names(); !slices.Equal(got, []string{"X-B", "X-C"}) {
		t.Errorf("the gateway removes %v of requests, want X-B and X-C", got)
	}
	if got := all.Gateway.ResponseHeaders.Value.Names(); !slices.Equal(got, []string{"X-A"}) {
		t.Errorf("the gateway removes %v of responses, want X-A", got)
	}
	if got := all.Gateway.UpstreamHeaders.Value; len(got) != 1 || got["X-D"] != "advanced" {
		t.Errorf("got the headers %v of the upstream, want that of the advanced transformer, which comes first", got)
	}
	some := gatewayOf(t, fmt.Sprintf(deck, ", plugins: [{name: response-transformer, config: {remove: {headers: [X-Z]}}}]"))
	if some.Gateway.RequestHeaders.Present || some.Gateway.ResponseHeaders.Present {
		t.Errorf("the gateway has rules, although its routes differ")
	}
	for _, r := range some.Routes {
		want := "X-A"
		if strings.HasPrefix(r.Path, "/o") {
			want = "X-Z"
		}
		if h := r.Handling; h == nil || !slices.Equal(h.ResponseHeaders.Names(), []string{want}) || !slices.Equal(h.RequestHeaders.Names(), []string{"X-B", "X-C"}) {
			t.Errorf("%s: got %+v, want that %s is removed of responses, and X-B and X-C of requests", r.Path, h, want)
		}
	}
}

func gatewayOf(t *testing.T, deck string) *gateway.Document {
	t.Helper()
	d, err := gateway.ParseDocument(filesOf(t, deck)[0].Content)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Guarantee: rules that a gateway would refuse are in the report, and never in a file: the import says which header it is about.
func TestRulesThatAreNotCarried(t *testing.T) {
	many := make([]string, gateway.MaxHeaderRules+1)
	for i := range many {
		many[i] = fmt.Sprintf("X-%d", i)
	}
	for plugin, want := range map[string]string{
		"request-transformer, config: {remove: {headers: [X-Forwarded-For]}}":                                "the header X-Forwarded-For is reserved",
		"request-transformer, config: {remove: {headers: " + flow(many) + "}}":                               "it removes 33 headers, and Keygate at most 32",
		"request-transformer, config: {remove: {headers: [Authorization]}}, enabled: true}, {name: key-auth": "it removes the header Authorization",
		"request-transformer, config: {http_method: POST}":                                                   "http_method: Keygate changes headers",
		"request-transformer, config: {replace: {uri: /x}}":                                                  "replace.uri: Keygate rewrites no paths",
		"request-transformer-advanced, config: {allow: {body: [a]}}":                                         "allow: Keygate changes headers",
		"request-transformer, config: {add: {headers: ['X-A: b', 'X_A: c']}}":                                "it is the same header as X-A in Keygate",
		"response-transformer, config: {add: {headers: ['X-A: a ${client_ip}']}}":                            "its value has ${, which begins a variable in Keygate",
		"response-transformer, config: {add: {headers: ['Set-Cookie: a=b']}}":                                "Keygate would set the cookie in place of those of the service",
		"response-transformer, config: {remove: {headers: [Content-Length]}}":                                "in response_headers it is reserved",
		"response-transformer, config: {remove: {headers: " + flow(many) + "}}":                              "must not have more than 32 headers",
		"response-transformer, config: {remove: {headers: [apikey]}}}, {name: key-auth":                      "sets it on requests, or it may hold the key",
		"response-transformer, config: {remove: {headers: [X-A]}, add: {headers: ['X-A: b']}}":               "what the header X-A gets depends on whether a message has it",
		"response-transformer": "it does nothing",
		"response-transformer-advanced, config: {transform: {functions: ['return function(a) return a end']}}":         "transform: not carried (Keygate changes headers",
		"response-transformer-advanced, config: {replace: {body: x, if_status: ['500']}}":                              "replace.body: not carried (Keygate changes headers",
		"response-transformer-advanced, config: {add: {headers: ['X-A: b'], if_status: ['500']}}":                      "it depends on the status (if_status)",
		"request-transformer, config: {append: {headers: ['X-A: b']}}":                                                 "it appends to the header X-A",
		"request-transformer, config: {replace: {headers: ['X-A: b']}}":                                                "if every message may have it, add the header too",
		"request-transformer, config: {replace: {headers: ['X-A: b']}, remove: {headers: [X-A]}, add: {headers: [Y]}}": "the header Y has no value",
	} {
		deck := "_format_version: '3.0'\nservices:\n- {name: s, url: 'http://s.internal', routes: [{name: r, paths: [/], plugins: [{name: " + plugin + "}]}]}\n"
		d, err := moving.ReadKong("kong.yaml", []byte(deck))
		if err != nil {
			t.Fatal(err)
		}
		r, err := moving.Kong(d)
		if err != nil {
			t.Fatalf("%.100s: %v", plugin, err)
		}
		if !strings.Contains(string(r.ReportText()), want) {
			t.Errorf("%.100s: got the report\n%s\nwant %q", plugin, r.ReportText(), want)
		}
		if isRequest := strings.HasPrefix(plugin, "request"); isRequest != (len(r.Files) == 0) {
			t.Errorf("%.100s: got %d files", plugin, len(r.Files))
		}
		for _, f := range r.Files {
			if doc, err := gateway.ParseDocument(f.Content); err != nil || doc.Gateway.ResponseHeaders.Present || doc.Routes[0].Handling.Value("response_headers") != nil {
				t.Errorf("%.100s: got %v, want a file without rules\n%s", plugin, err, f.Content)
			}
		}
	}
}
