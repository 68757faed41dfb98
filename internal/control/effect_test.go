package control_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/traffic"
)

// effects describes the routes of an effect: path, changes, requests, keys, refused before and after.
func effects(e *control.Effect) (out []string) {
	for _, r := range e.Routes {
		line := r.Path
		for _, c := range r.Changes {
			line += " " + string(c)
		}
		most := ""
		if r.AtMost {
			most = "<="
		}
		out = append(out, line+" "+numbers(r.Requests, r.Keys, r.RefusedBefore)+" "+most+numbers(r.Refused))
	}
	slices.Sort(out)
	return out
}

func numbers(list ...int64) string {
	var parts []string
	for _, n := range list {
		parts = append(parts, strconv.FormatInt(n, 10))
	}
	return strings.Join(parts, "/")
}

// Guarantee: a dry run reports what the push would have done to the requests of the last 24 hours: on
// removed routes that no other route takes over, with methods that are no longer accepted, without a
// key where one is required now, and beyond another limit; and which routes another upstream would get. The requests of each route are as in the
// traffic report. Routes whose requests are served as before are not listed.
func TestEffectOfPush(t *testing.T) {
	h := newHarness(t)
	c := h.caller("a", "admin")
	g := h.gateway(c)
	before := `
gateway: {name: orders}
routes:
- {path: /gone, methods: [GET]}
- {path: /wild/a, methods: [GET]}
- {path: "/wild/{x}/b", methods: [GET]}
- {path: /less, methods: [GET, DELETE]}
- {path: /more, methods: [GET]}
- {path: /open, methods: [GET], auth: none}
- {path: /close, methods: [GET]}
- {path: /limit, methods: [GET], rate_limit: {sustained: 5/day}}
- {path: /each, methods: [GET]}
- {path: "/same/{id}", methods: [GET]}
- {path: /unused, methods: [GET]}
- {path: /moved, methods: [GET]}
`
	after := `
gateway: {name: orders, upstreams: [{name: next, targets: [{url: https://next.internal}]}]}
routes:
- {path: /wild/*, methods: [GET]}
- {path: /less, methods: [GET]}
- {path: /more, methods: [GET, POST]}
- {path: /open, methods: [GET]}
- {path: /close, methods: [GET], auth: none}
- {path: /limit, methods: [GET], rate_limit: {sustained: 2/day}}
- {path: /each, methods: [GET], rate_limit: {daily: 2/day, per: key}}
- {path: "/same/{id}", methods: [GET]}
- {path: /same/me, methods: [GET]}
- {path: /moved, methods: [GET], upstream: next}
`
	must[*control.PushResult](h)(h.PushConfiguration(ctx(), c, g.ID, []byte(before), false, nil))
	keys := []string{"", "", ""}
	for i := range keys {
		keys[i] = must[*control.NewKey](h)(h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "admin"})).ID
	}
	p := h.withPlane(c.Account.ID, g.ID, nil)
	for _, r := range h.routes(c, g.ID) {
		for i := range 6 {
			key := keys[i%3]
			p.method = accesslog.GET
			switch r.Path {
			case "/unused":
				continue
			case "/open":
				key = ""
			case "/less":
				if i > 3 {
					p.method = accesslog.DELETE
				}
			}
			p.end(r.ID, key, accesslog.Forwarded, 200)
		}
	}
	r := must[*control.PushResult](h)(h.PushConfiguration(ctx(), c, g.ID, []byte(after), true, nil))
	e := must[*control.Effect](h)(h.Effect(ctx(), c, r))
	want := []string{
		"/close auth 6/3/0 0", "/each rate_limit 6/3/0 0", "/gone removed 6/3/0 6", "/less methods 6/3/0 2",
		"/limit rate_limit 6/3/1 4", "/moved upstream 6/3/0 0", "/open auth 6/0/0 <=6",
	}
	if got := effects(e); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if e.Requests != 42 || e.Keys != 3 || e.Refused != 18 || e.RefusedBefore != 1 || !e.AtMost || e.LeftOut != 0 {
		t.Errorf("got the sums %+v, want 42 requests of 3 keys, at most 18 refused, 1 before", e)
	}
	if last := r.Warnings[len(r.Warnings)-1]; !strings.Contains(last, "/same/me of /same/{id}") {
		t.Errorf("got the warnings %q, want one that /same/me takes requests", r.Warnings)
	}
	rows := must[[]traffic.Row](h)(h.Traffic(ctx(), c, traffic.Query{Interval: traffic.Day, Group: traffic.ByRoute, RouteID: e.Routes[0].RouteID}))
	if got := rows[len(rows)-1].Requests; got != e.Routes[0].Requests {
		t.Errorf("got %d requests of %s, want %d as in the traffic report", e.Routes[0].Requests, e.Routes[0].Path, got)
	}
}

// Guarantee: a dry run lists the routes whose requests another split would decide about: one of their own, or that of the gateway
// if they have none.
func TestEffectOfSplits(t *testing.T) {
	h := newHarness(t)
	c := h.caller("a", "admin")
	g := h.gateway(c)
	file := func(split, own string) []byte {
		return []byte("gateway: {name: orders, split: " + split + ", upstreams: [{name: next, targets: [{url: https://next.internal}]}]}\nroutes:\n" +
			"- {path: /a, methods: [GET]}\n- {path: /none, methods: [GET], split: []}\n- {path: /own, methods: [GET], split: " + own + "}\n")
	}
	five, ten := "[{upstream: next, weight: 5}]", "[{upstream: next, weight: 10}]"
	must[*control.PushResult](h)(h.PushConfiguration(ctx(), c, g.ID, file(five, five), false, nil))
	p := h.withPlane(c.Account.ID, g.ID, nil)
	for _, r := range h.routes(c, g.ID) {
		p.end(r.ID, "", accesslog.Forwarded, 200)
	}
	for _, c2 := range []struct {
		split, own string
		want       []string
	}{
		{five, five, []string{}},
		{ten, five, []string{"/a split 1/0/0 0"}},
		{five, ten, []string{"/own split 1/0/0 0"}},
		{"null", "null", []string{"/a split 1/0/0 0", "/own split 1/0/0 0"}},
		{five, "null", []string{}}, // the same for its requests
	} {
		r := must[*control.PushResult](h)(h.PushConfiguration(ctx(), c, g.ID, file(c2.split, c2.own), true, nil))
		if got := effects(must[*control.Effect](h)(h.Effect(ctx(), c, r))); !slices.Equal(got, c2.want) {
			t.Errorf("split %s, of the route %s: got %q, want %q", c2.split, c2.own, got, c2.want)
		}
	}
}

// Guarantee: a dry run of a file in which default_auth alone is another one lists the routes that say nothing themselves. Their
// requests are refused, at most, unless the credential that they have is taken still.
func TestEffectOfDefaultAuth(t *testing.T) {
	h := newHarness(t)
	c := h.caller("a", "admin")
	h.issuer(c, "login", login("a"))
	g := h.gateway(c)
	file := func(auth string) []byte {
		return []byte("gateway: {name: orders, issuers: [login], default_auth: " + auth + "}\nroutes:\n- {path: /a, methods: [GET]}\n- {path: /own, methods: [GET], auth: key}\n")
	}
	p := h.withPlane(c.Account.ID, g.ID, nil)
	first := true
	for _, step := range []struct {
		before, after string
		want          []string
	}{
		{"key", "key", []string{}},
		{"key", "null", []string{}},
		{"key", "any", []string{"/a auth 1/0/0 0"}},
		{"key", "none", []string{"/a auth 1/0/0 0"}},
		{"key", "token", []string{"/a auth 1/0/0 <=1"}},
		{"any", "key", []string{"/a auth 1/0/0 <=1"}},
		{"none", "any", []string{"/a auth 1/0/0 <=1"}},
	} {
		must[*control.PushResult](h)(h.PushConfiguration(ctx(), c, g.ID, file(step.before), false, nil))
		if first {
			first = false
			for _, r := range h.routes(c, g.ID) {
				p.end(r.ID, "", accesslog.Forwarded, 200)
			}
		}
		r := must[*control.PushResult](h)(h.PushConfiguration(ctx(), c, g.ID, file(step.after), true, nil))
		if got := effects(must[*control.Effect](h)(h.Effect(ctx(), c, r))); !slices.Equal(got, step.want) {
			t.Errorf("default_auth %s to %s: got %q, want %q", step.before, step.after, got, step.want)
		}
	}
}

// Guarantee: a dry run lists the routes whose lists of addresses or rules for headers change, those of the gateway included. Which
// addresses requests came from is not recorded: all requests of a route count as refused where some address is refused now, as an upper
// bound, or exactly where all are. Nothing is listed if the same addresses and headers come of it.
func TestEffectOfAddressesAndHeaders(t *testing.T) {
	h := newHarness(t)
	c := h.caller("a", "admin")
	g := h.gateway(c)
	file := func(settings, own string) []byte {
		return []byte("gateway: {name: orders" + settings + "}\nroutes:\n- {path: /a, methods: [GET]}\n- {path: /own, methods: [GET]" + own + "}\n")
	}
	before, beforeOwn := ", allow_ips: [10.0.0.0/8], request_headers: {remove: [X-A]}", ", deny_ips: [10.1.0.0/16], response_headers: {set: {X-B: b}}"
	must[*control.PushResult](h)(h.PushConfiguration(ctx(), c, g.ID, file(before, beforeOwn), false, nil))
	p := h.withPlane(c.Account.ID, g.ID, nil)
	for _, r := range h.routes(c, g.ID) {
		p.end(r.ID, "", accesslog.Forwarded, 200)
	}
	const headers, ownHeaders = ", request_headers: {remove: [X-A]}", ", response_headers: {set: {X-B: b}}"
	for _, change := range []struct {
		settings, own string
		want          []string
		warns         bool
	}{
		{before, beforeOwn, []string{}, false},
		{", allow_ips: [10.2.0.0/16]" + headers, beforeOwn, []string{"/a allow_ips 1/0/0 <=1", "/own allow_ips 1/0/0 <=1"}, true},
		{", allow_ips: [10.0.0.0/8, 192.0.2.0/24]" + headers, beforeOwn, []string{"/a allow_ips 1/0/0 0", "/own allow_ips 1/0/0 0"}, false},
		{", allow_ips: [10.1.0.0/16]" + headers, beforeOwn, []string{"/a allow_ips 1/0/0 <=1", "/own allow_ips 1/0/0 1"}, true},
		{before, ", deny_ips: [10.1.0.0/16, 10.2.0.0/16]" + ownHeaders, []string{"/own deny_ips 1/0/0 <=1"}, true},
		{before, ownHeaders, []string{"/own deny_ips 1/0/0 0"}, false},
		{", allow_ips: [10.0.0.0/9, 10.128.0.0/9]" + headers, beforeOwn, []string{}, false},
		{", allow_ips: [10.0.0.0/8], request_headers: {remove: [X-C]}", beforeOwn, []string{"/a request_headers 1/0/0 0", "/own request_headers 1/0/0 0"}, false},
		{", allow_ips: [10.0.0.0/8], request_headers: {set: {X-A: a}}", beforeOwn + ", request_headers: {remove: [X_A]}", []string{"/a request_headers 1/0/0 0"}, false},
		{before, beforeOwn + ", request_headers: {remove: [x-a]}", []string{}, false},
		{before, ", deny_ips: [10.1.0.0/16], response_headers: {remove: [X-B]}", []string{"/own response_headers 1/0/0 0"}, false},
	} {
		r := must[*control.PushResult](h)(h.PushConfiguration(ctx(), c, g.ID, file(change.settings, change.own), true, nil))
		if got := effects(must[*control.Effect](h)(h.Effect(ctx(), c, r))); !slices.Equal(got, change.want) {
			t.Errorf("%s, of the route %s: got %q, want %q", change.settings, change.own, got, change.want)
		}
		if warns := slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "recorded counts have no addresses") }); warns != change.warns {
			t.Errorf("%s, of the route %s: got the warnings %q", change.settings, change.own, r.Warnings)
		}
	}
}

// Guarantee: a lower global limit is replayed with what the limits of the routes admit, and only routes
// with more refusals than before are listed. A push has no effect, only a dry run.
func TestEffectOfGlobalLimit(t *testing.T) {
	h := newHarness(t)
	c := h.caller("a", "admin")
	g := h.gateway(c)
	file := func(global string) []byte {
		return []byte("gateway: {name: orders" + global + "}\nroutes:\n- {path: /a, methods: [GET], rate_limit: {sustained: 2/day}}\n- {path: /b, methods: [GET]}\n")
	}
	done := must[*control.PushResult](h)(h.PushConfiguration(ctx(), c, g.ID, file(""), false, nil))
	_, err := h.Effect(ctx(), c, done)
	h.wantCode(err, fault.ValidationFailed, "effect")
	p := h.withPlane(c.Account.ID, g.ID, nil)
	for _, r := range h.routes(c, g.ID) {
		for range 5 {
			p.end(r.ID, "", accesslog.Forwarded, 200)
		}
	}
	for global, want := range map[string]int64{"": 0, ", global_rate_limit: {sustained: 4/day}": 3, ", global_rate_limit: {sustained: 100/day}": 0} {
		r := must[*control.PushResult](h)(h.PushConfiguration(ctx(), c, g.ID, file(global), true, nil))
		e := must[*control.Effect](h)(h.Effect(ctx(), c, r))
		if want == 0 && len(e.Routes) > 0 || want > 0 && (e.Refused != want || e.RefusedBefore != 0 || e.Routes[0].Changes[0] != control.EffectGlobal) {
			t.Errorf("%q: got %+v, want %d refused", global, e, want)
		}
	}
}
