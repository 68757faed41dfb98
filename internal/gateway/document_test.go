package gateway_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

func limit(t interface{ Fatal(...any) }, sustained, burst, daily, per string) ratelimit.Config {
	c, err := ratelimit.ParseConfig(sustained, burst, daily, per)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Guarantee: the example of the contract parses to its settings, and is encoded as it was.
func TestExampleOfTheContract(t *testing.T) {
	const text = `gateway:
  name: orders
  upstream_url: https://orders.internal
  global_rate_limit: {sustained: 6000/min}
routes:
  - path: /orders/{id}
    methods: [DELETE, GET]
    rate_limit: {sustained: 600/min, burst: 50/s, daily: 100000/day}
`
	d, err := gateway.ParseDocument([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := &gateway.Document{
		Gateway: gateway.Patch{
			Name:        gateway.Member[string]{Present: true, Value: "orders"},
			UpstreamURL: gateway.Member[string]{Present: true, Value: "https://orders.internal"},
			GlobalLimit: gateway.Member[ratelimit.Config]{Present: true, Value: limit(t, "6000/min", "", "", "")},
		},
		Routes: []gateway.RouteSpec{{
			Path: "/orders/{id}", Methods: []string{"DELETE", "GET"},
			RateLimit: limit(t, "600/min", "50/s", "100000/day", ""),
		}},
	}
	if !reflect.DeepEqual(d, want) {
		t.Errorf("got %+v, want %+v", d, want)
	}
	if got := string(d.Encode()); got != text {
		t.Errorf("got encoded:\n%s\nwant:\n%s", got, text)
	}
}

// Guarantee: an absent field, a null field and a field with a value are different, also in
// JSON.
func TestDocumentMembers(t *testing.T) {
	d, err := gateway.ParseDocument([]byte(`{"gateway": {"global_rate_limit": null, "name": "a"}, "routes": [
		{"path": "/", "methods": ["GET"], "auth": "none", "rate_limit": null},
		{"path": "/b/*", "methods": ["POST"], "rate_limit": {"burst": "5/s", "daily": null, "per": "key"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if g := d.Gateway; !g.GlobalLimit.Present || !g.GlobalLimit.Null || g.UpstreamURL.Present || g.Name.Null || g.Name.Value != "a" {
		t.Errorf("got %+v, want a null limit, no upstream URL and the name a", g)
	}
	if r := d.Routes; r[0].Auth != gateway.AuthNone || !r[0].RateLimit.IsZero() || r[1].RateLimit != limit(t, "", "5/s", "", "key") {
		t.Errorf("got %+v, want auth none without a limit, and a limit of 5/s per key", r)
	}
	d, err = gateway.ParseDocument([]byte("routes: []\n"))
	if err != nil || !d.Gateway.IsEmpty() || d.Routes == nil || len(d.Routes) != 0 {
		t.Errorf("got %+v, %v, want no settings and an empty list of routes", d, err)
	}
}

// Guarantee: an invalid configuration is rejected with the position and field of the problem.
func TestInvalidConfigurationsAreRejected(t *testing.T) {
	for _, c := range []struct{ text, position, field, message string }{
		{"", "1, column 1", "", "empty"},
		{"- a\n", "1, column 1", "", "must be a mapping"},
		{"gateway: {}\n", "1, column 1", "routes", "missing"},
		{"routes:\n", "1, column 8", "routes", "must be a list, not null"},
		{"routes: {}\n", "1, column 9", "routes", "must be a list"},
		{"routes: []\nrouts: []\n", "2, column 1", "routs", "is not a field"},
		{"routes: []\nroutes: []\n", "2, column 1", "", "is a duplicate"},
		{"gateway:\nroutes: []\n", "1, column 9", "gateway", "must be a mapping, not null"},
		{"gateway: {nam: x}\nroutes: []\n", "1, column 11", "gateway.nam", "is not a field"},
		{"gateway: {name: 7}\nroutes: []\n", "1, column 17", "gateway.name", "must be a string, not a number"},
		{"gateway: {name: null}\nroutes: []\n", "1, column 17", "gateway.name", "must be a string, not null"},
		{"gateway:\n  name: ''\nroutes: []\n", "2, column 9", "gateway.name", "1 to 255"},
		{"gateway:\n  upstream_url: ftp://x\nroutes: []\n", "2, column 17", "gateway.upstream_url", "must start with"},
		{"gateway:\n  global_rate_limit: {burst: 5/s}\nroutes: []\n", "2, column 22", "gateway.global_rate_limit.sustained", "required"},
		{"gateway:\n  global_rate_limit:\n    sustained: 5/s\n    daily: 5/day\nroutes: []\n", "4, column 12", "gateway.global_rate_limit.daily", "set the daily cap on routes"},
		{"routes:\n- path: /a\n", "2, column 3", "routes[0].methods", "missing"},
		{"routes:\n- methods: [GET]\n", "2, column 3", "routes[0].path", "missing"},
		{"routes:\n- x\n", "2, column 3", "routes[0]", "must be a mapping"},
		{"routes:\n- path: a\n  methods: [GET]\n", "2, column 9", "routes[0].path", "start with a slash"},
		{"routes:\n- path: /a\n  methods: GET\n", "3, column 12", "routes[0].methods", "must be a list"},
		{"routes:\n- path: /a\n  methods: [GET, 7]\n", "3, column 18", "routes[0].methods[1]", "must be a string"},
		{"routes:\n- path: /a\n  methods: [get]\n", "3, column 12", "routes[0].methods", "upper case"},
		{"routes:\n- path: /a\n  methods: []\n", "3, column 12", "routes[0].methods", "at least one"},
		{"routes:\n- path: /a\n  methods: [GET]\n  auth: open\n", "4, column 9", "routes[0].auth", "must be key"},
		{"routes:\n- path: /a\n  methods: [GET]\n  limit: {}\n", "4, column 3", "routes[0].limit", "is not a field"},
		{"routes:\n- path: /a\n  methods: [GET]\n  rate_limit: 5/s\n", "4, column 15", "routes[0].rate_limit", "must be a mapping"},
		{"routes:\n- path: /a\n  methods: [GET]\n  rate_limit: {}\n", "4, column 15", "routes[0].rate_limit", "at least one"},
		{"routes:\n- path: /a\n  methods: [GET]\n  rate_limit:\n    burst: 05/s\n", "5, column 12", "routes[0].rate_limit.burst", "is not a valid rate"},
		{"routes:\n- path: /a\n  methods: [GET]\n  rate_limit: {daily: 5/s}\n", "4, column 23", "routes[0].rate_limit.daily", "<count>/day"},
		{"routes:\n- path: /a\n  methods: [GET]\n  rate_limit: {burst: 5}\n", "4, column 23", "routes[0].rate_limit.burst", "must be a string, not a number"},
		{"routes:\n- path: /a\n  methods: [GET]\n  rate_limit: {bust: 5/s}\n", "4, column 16", "routes[0].rate_limit.bust", "is not a field"},
		{"routes:\n- path: /a/{x}\n  methods: [GET]\n- path: /a/{y}\n  methods: [GET, PUT]\n", "5, column 12", "routes[1].methods", "/a/{x}"},
		{"routes:\n- path: /a\n  methods: ['${env:M}']\n", "3, column 13", "routes[0].methods[0]", "${env:"},
		{"gateway:\n  upstream_url: http://${env:HOST}/\nroutes: []\n", "2, column 17", "gateway.upstream_url", "${env:"},
	} {
		_, err := gateway.ParseDocument([]byte(c.text))
		wantProblem(t, c.text, err, c.position, c.field, c.message)
	}
}

// Guarantee: all problems of a configuration are reported at once, in the order of the file, and
// the error's own message is the first problem.
func TestAllProblemsOfAConfiguration(t *testing.T) {
	_, err := gateway.ParseDocument([]byte(`gateway: {nam: x, upstream_url: ftp://x, global_rate_limit: {burst: 5/x, per: key}}
routes:
- {path: a, methods: [get]}
- {methods: [GET, 7], auth: open, rate_limit: {daily: 5, sustained: 5/s, bust: 1}}
- {path: "/b/{x}", methods: [GET]}
- {path: "/b/{y}", methods: [PUT, GET]}
- 5
extra: 1
`))
	want := []string{
		"1:11 gateway.nam", "1:33 gateway.upstream_url", "1:69 gateway.global_rate_limit.burst",
		"3:10 routes[0].path", "3:22 routes[0].methods",
		"4:3 routes[1].path", "4:19 routes[1].methods[1]", "4:29 routes[1].auth", "4:55 routes[1].rate_limit.daily", "4:74 routes[1].rate_limit.bust",
		"6:29 routes[3].methods", "7:3 routes[4]", "8:1 extra",
	}
	var got []string
	for _, p := range fault.ProblemsOf(err) {
		got = append(got, fmt.Sprintf("%d:%d %s", p.Line, p.Column, p.Field))
		if prefix := fmt.Sprintf("line %d, column %d: ", p.Line, p.Column); !strings.HasPrefix(p.Message, prefix) {
			t.Errorf("got message %q, want it to start with %q", p.Message, prefix)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got problems\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	wantProblem(t, "the first", err, "1, column 11", "gateway.nam", "is not a field")
}

// Guarantee: a mistake hides no other: not of the values beside it in a list, of the other methods of a route, or of
// the rest of a file with ${env:NAME}. A value that has a variable has no other mistake.
func TestMistakesHideNoOthers(t *testing.T) {
	const file = `gateway: {name: x, upstream_url: "${env:URL}", timeout: forever, hostname: "${env:HOST}"}
routes:
- {path: /a, methods: [GET, PUT, POST]}
- {path: /a, methods: [GET, 7, get, PUT]}
- {path: "${env:PATH}", methods: ["${env:M}"], auth: open}
- {path: /c, methods: []}
- {path: 5, methods: []}
`
	rest := []string{
		"1:57 gateway.timeout",
		"4:23 routes[1].methods", "4:23 routes[1].methods", "4:29 routes[1].methods[1]",
		"5:54 routes[2].auth", "6:23 routes[3].methods", "7:10 routes[4].path", "7:22 routes[4].methods",
	}
	variables := []string{"1:34 gateway.upstream_url", "1:76 gateway.hostname", "5:10 routes[2].path", "5:35 routes[2].methods[0]"}
	listed := func(err error) (out []string) {
		for _, p := range fault.ProblemsOf(err) {
			out = append(out, fmt.Sprintf("%d:%d %s", p.Line, p.Column, p.Field))
		}
		slices.Sort(out)
		return out
	}
	want := slices.Sorted(slices.Values(append(rest, variables...)))
	_, err := gateway.ParseDocument([]byte(file))
	if got := listed(err); !slices.Equal(got, want) {
		t.Errorf("parsed: got problems\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	_, err = gateway.ResolveEnv([]byte(file), func(string) (string, bool) { return "", false })
	if got := listed(gateway.AddMistakes([]byte(file), err)); !slices.Equal(got, want) {
		t.Errorf("resolved: got problems\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Guarantee: of many problems, the first 50 are reported, with the number of the others.
func TestProblemsOfAConfigurationAreBounded(t *testing.T) {
	for name, text := range map[string]string{
		"fields":    "routes: []\n" + manyLines(200, func(i int) string { return fmt.Sprintf("y%d: 1\n", i) }),
		"routes":    "routes:\n" + strings.Repeat("- 5\n", 200),
		"rows":      "routes:\n" + strings.Repeat("- {path: a, methods: [GET]}\n", 200),
		"methods":   "routes:\n- path: /a\n  methods:\n" + strings.Repeat("  - 5\n", 200),
		"variables": "routes:\n" + strings.Repeat("- ${env:A}\n", 200),
	} {
		_, err := gateway.ParseDocument([]byte(text))
		if got := len(fault.ProblemsOf(err)); got != fault.MaxProblems {
			t.Errorf("%s: got %d problems, want %d", name, got, fault.MaxProblems)
		}
		if got := fault.LeftOut(err); got < 200-fault.MaxProblems || got > 202-fault.MaxProblems {
			t.Errorf("%s: got %d problems left out, want %d or the few that follow from them", name, got, 200-fault.MaxProblems)
		}
	}
}

func manyLines(n int, line func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(line(i))
	}
	return b.String()
}

// wantProblem fails unless err is a validation error of the field, with the position and
// message.
func wantProblem(t *testing.T, text string, err error, position, field, message string) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.ValidationFailed {
		t.Errorf("%q: got %v, want a validation error", text, err)
		return
	}
	if !strings.HasPrefix(f.Message, "line "+position+": ") || !strings.Contains(f.Message, message) || f.Field != field {
		t.Errorf("%q: got %q of %q,\nwant %q of %q at line %s", text, f.Message, f.Field, message, field, position)
	}
}

func rates() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		count := rapid.Int64Range(1, ratelimit.MaxCount).Draw(t, "count")
		return fmt.Sprint(count, "/", rapid.SampledFrom([]string{"s", "sec", "second", "min", "minute", "h", "hour", "day"}).Draw(t, "unit"))
	})
}

func maybe(g *rapid.Generator[string]) *rapid.Generator[string] {
	return rapid.OneOf(rapid.Just(""), g)
}

func routeSpecs() *rapid.Generator[gateway.RouteSpec] {
	segment := rapid.StringMatching(`[A-Za-z0-9~!$&'()+,;=:@_-]{1,6}|\{[a-z #:"]{1,4}\}|v\{a\}\.\{b\}|%[2-3]0x|é`)
	return rapid.Custom(func(t *rapid.T) gateway.RouteSpec {
		r := gateway.RouteSpec{
			Path:    "/" + strings.Join(rapid.SliceOfN(segment, 0, 4).Draw(t, "segments"), "/"),
			Methods: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"GET", "PUT", "ON", "NO", "Y", "X-A_1", "NULL"}), 1, 3, rapid.ID).Draw(t, "methods"),
			Auth:    rapid.SampledFrom([]gateway.Auth{"", gateway.AuthToken, gateway.AuthNone}).Draw(t, "auth"),

			Upstream: rapid.SampledFrom([]string{"", "next", "1"}).Draw(t, "upstream"),
		}
		slices.Sort(r.Methods)
		r.Concurrency = rapid.SampledFrom([]ratelimit.Concurrency{{}, {Max: 3}, {Max: 1, Per: "key"}}).Draw(t, "concurrency")
		daily := rapid.SampledFrom([]string{"", "7/day"}).Draw(t, "daily")
		sustained, burst := maybe(rates()).Draw(t, "sustained"), maybe(rates()).Draw(t, "burst")
		if sustained+burst+daily != "" {
			r.RateLimit = limit(t, sustained, burst, daily, rapid.SampledFrom([]string{"", "key"}).Draw(t, "per"))
		}
		for i := range rapid.IntRange(0, 2).Draw(t, "costs") {
			r.Cost = append(r.Cost, rapid.SampledFrom([]cost.Rules{
				rulesOf(t, `[{meter: tokens, reserve: 20, max: 1000, from: {json: {"a|b.c": 1, "d?": -0.5}, by: model, prices: {"true": {a: 2}, "x, y: {}": {"1": 3}}}, unknown: {bytes_out: 0.25}}]`),
				rulesOf(t, `[{meter: tokens, max: 5, from: {header: "Null", expose: true}, unknown: reserve}]`),
				rulesOf(t, `[{meter: "1", from: {request: 3}}]`),
			}).Draw(t, "cost")[0])
			r.Cost[i].Meter = fmt.Sprintf("%d", i)
		}
		return r
	})
}

// Guarantee: the exported configuration of any gateway parses to the same configuration, and so does a route on one line.
func TestExportRoundTrip(t *testing.T) {
	pair := certificatetest.New(t, "client")
	rapid.Check(t, func(t *rapid.T) {
		g := drawGateway(t, pair)
		specs := rapid.SliceOfN(routeSpecs(), 0, 5).Draw(t, "routes")
		if gateway.CheckTable(specs) != nil {
			t.Skip("the drawn routes conflict")
		}
		routes := make([]gateway.Route, len(specs))
		for i, s := range specs {
			routes[i] = gateway.Route{Path: s.Path, Methods: s.Methods, RateLimit: s.RateLimit, Concurrency: s.Concurrency, Cost: s.Cost, Auth: s.Auth, Upstream: s.Upstream}
			wantLine(t, &s)
		}
		exported := gateway.Export(g, routes)
		text := exported.Encode()
		read, err := gateway.ParseDocument(text)
		if err != nil {
			t.Fatalf("got %v, want no error for\n%s", err, text)
		}
		if !reflect.DeepEqual(read, exported) {
			t.Fatalf("got %+v\nwant %+v\n%s", read, exported, text)
		}
		if again := read.Encode(); !bytes.Equal(again, text) {
			t.Fatalf("got encoded again:\n%s\nwant:\n%s", again, text)
		}
	})
}

// wantLine fails unless a route on one line parses to the same route.
func wantLine(t rapid.TB, r *gateway.RouteSpec) {
	t.Helper()
	text := "routes:\n- " + r.Line() + "\n"
	if read, err := gateway.ParseDocument([]byte(text)); err != nil || !reflect.DeepEqual(read.Routes, []gateway.RouteSpec{*r}) || strings.Count(text, "\n") != 2 {
		t.Fatalf("got %+v, %v; want %+v from\n%s", read, err, r, text)
	}
}

// FuzzParseDocument looks for a configuration that makes ParseDocument panic or return an
// error without a position, or that changes when it is encoded and parsed again.
func FuzzParseDocument(f *testing.F) {
	f.Add([]byte("gateway:\n  name: a\n  global_rate_limit: {sustained: 5/s}\nroutes:\n  - path: /a/{b}.json\n    methods: [GET]\n    rate_limit: {burst: 5/s, per: key}\n    auth: none\n"))
	f.Add([]byte(`{"gateway": {"global_rate_limit": null}, "routes": [{"path": "/*", "methods": ["A", "B"]}]}`))
	f.Add([]byte("routes:\n  - path: /a\n    methods: [GET]\n    cost:\n      - meter: tokens\n        max: 5\n        from:\n          json: {a.b: 1, \"c|d?\": -0.5}\n          by: model\n          prices: {x: {y: 1}}\n        unknown: {bytes_in: 1e-3}\n"))
	f.Add([]byte("x: &x {path: /, methods: [GET]}\nroutes: [*x, {<<: *x, path: /a}]\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		d, err := gateway.ParseDocument(content)
		if err != nil {
			var bad *fault.Error
			if !errors.As(err, &bad) || bad.Code != fault.ValidationFailed || !strings.HasPrefix(bad.Message, "line ") {
				t.Fatalf("got %v, want a validation error with a position", err)
			}
			return
		}
		again, err := gateway.ParseDocument(d.Encode())
		if err != nil || !reflect.DeepEqual(again, d) {
			t.Fatalf("%v: got %+v of\n%s\nwant %+v", err, again, d.Encode(), d)
		}
	})
}

// Guarantee: what is wrong with the cost of a route is said with its position and its field, all at once; a name with
// ${env:NAME} is refused, and so is a value by the server; null and [] are no cost.
func TestCostsOfFiles(t *testing.T) {
	parse := func(text string) (*gateway.Document, error) {
		return gateway.ParseDocument([]byte("routes:\n- path: /a\n  methods: [GET]\n  cost: " + text + "\n"))
	}
	d, err := parse("&c [{meter: tokens, max: 5, from: {header: X-Cost}}]\n- {path: /b, methods: [GET], cost: *c}")
	if err != nil || &d.Routes[0].Cost[0] != &d.Routes[1].Cost[0] || d.Routes[0].Cost[0].Reserve != 1 {
		t.Errorf("got %+v and %v, want two routes that share a cost", d, err)
	}
	for _, none := range []string{"null", "[]", "~"} {
		if d, err := parse(none); err != nil || d.Routes[0].Cost != nil {
			t.Errorf("%s: got %+v and %v, want no cost", none, d, err)
		}
	}
	for text, want := range map[string][]string{
		"[{meter: T, from: {request: 1}}, {meter: a, from: {header: X}}]": {
			"routes[0].cost[0].meter: line 4, column 18: must have 1 to 32 characters",
			"routes[0].cost[1].max: line 4, column 42: is required with header and json: give the most",
		},
		"{meter: a}": {"routes[0].cost: line 4, column 9: must be a list of costs, one for each meter, not "},
		"[{meter: bytes_in, from: {request: 1}}]":               {"routes[0].cost[0].meter: line 4, column 18: bytes_in is counted on every route"},
		`[{meter: a, max: 5, from: {json: {"${env:A}": 1}}}]`:   {"routes[0].cost[0].from.json.${env:A}: line 4, column 55: must not contain ${env:"},
		`[{meter: a, max: 5, from: {header: "${env:HEADER}"}}]`: {"routes[0].cost[0].from.header: line 4, column 44: ${env:…} is replaced by the keygate command"},
	} {
		_, err := parse(text)
		var got []string
		for _, p := range fault.ProblemsOf(err) {
			got = append(got, p.Field+": "+p.Message)
		}
		if len(got) != len(want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
			continue
		}
		for i := range want {
			if !strings.HasPrefix(got[i], want[i]) {
				t.Errorf("%s: got %q, want it to begin with %q", text, got[i], want[i])
			}
		}
	}
}
