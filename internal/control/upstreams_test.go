package control_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// upstreamPatch describes an upstream with the targets.
func upstreamPatch(name string, urls ...string) gateway.UpstreamPatch {
	p := gateway.UpstreamPatch{Name: name}
	if len(urls) > 0 {
		p.Targets = value(targetsAt(urls...))
	}
	return p
}

func targetsAt(urls ...string) []gateway.Target {
	list := make([]gateway.Target, len(urls))
	for i, url := range urls {
		list[i].URL = url
	}
	return list
}

// upstreams changes the upstreams of one gateway, whose default one has the target https://orders.internal/base.
type upstreams struct {
	*harness
	caller *control.Actor
	id     string
}

func newUpstreams(t *testing.T) *upstreams {
	t.Helper()
	h := newHarness(t)
	c := h.caller("acme", "admin")
	return &upstreams{h, c, h.gateway(c).ID}
}

func (u *upstreams) now() *gateway.Gateway {
	u.tb.Helper()
	return must[*gateway.Gateway](u.harness)(u.Gateway(ctx(), u.caller, u.id))
}

func (u *upstreams) put(p gateway.UpstreamPatch) *control.NamedUpstream {
	u.tb.Helper()
	return must[*control.NamedUpstream](u.harness)(u.PutUpstream(ctx(), u.caller, u.id, p, nil))
}

func (u *upstreams) add(name, url string) error {
	return second(u.AddTarget(ctx(), u.caller, u.id, name, control.NewTarget{Target: gateway.Target{URL: url}}, nil))
}

// wantRefused fails unless the result of a call is an error with the code and field, and the call changed nothing.
func (u *upstreams) wantRefused(call func() error, code fault.Code, field string) {
	u.tb.Helper()
	u.wantNoRecords(u.caller.Account.ID, func() { u.wantCode(call(), code, field) })
}

// wantDiff runs a call, and fails unless it wrote one audit record with the action, about the gateway, and the diff, and a
// change of the gateway of the kind.
func (u *upstreams) wantDiff(call func() error, action, kind string, diff map[string]string) {
	u.tb.Helper()
	u.wantRecords(u.caller.Account.ID, func() { u.must(call()) }, []string{action + " " + u.id}, nil, []string{kind + " " + u.id})
	got := map[string]string{}
	last := u.newest(u.caller.Account.ID, 1, 0).audits[0]
	for path, values := range last.Diff {
		got[path] = fmt.Sprint(values[0], " -> ", values[1])
	}
	if !maps.Equal(got, diff) {
		u.tb.Errorf("%s: got the diff %q; want %q", action, got, diff)
	}
}

// Guarantee: targets.md 1, each change of an upstream and of a target is recorded with the gateway as its target, and with
// what has changed; a change of a gateway that needs it has the kind that older nodes refuse.
func TestChangesOfUpstreamsAreRecorded(t *testing.T) {
	u := newUpstreams(t)
	next := upstreamPatch("next", "https://10.0.0.1")
	next.Balance, next.UpstreamHeaders, next.Ejection = value("round_robin"), value(map[string]string{"X-Token": "s3cret"}), value(gateway.Ejection{Off: true})
	const added = "<nil> -> map[backup:false drain:false resolve:none weight:1]"
	u.wantDiff(func() error { return second(u.PutUpstream(ctx(), u.caller, u.id, next, nil)) }, "upstream.create", "upstream", map[string]string{
		"upstreams.next.targets.https://10.0.0.1": added, "upstreams.next.balance": "<nil> -> round_robin", "upstreams.next.headers": "<nil> -> map[X-Token:***]",
		"upstreams.next.ejection": "<nil> -> false",
	})
	patch := gateway.UpstreamPatch{Name: "next"}
	patch.Timeout, patch.UpstreamHeaders, patch.Balance = value("5s"), value(map[string]string{"X-Token": "other"}), null[string]()
	u.wantDiff(func() error { return second(u.PatchUpstream(ctx(), u.caller, u.id, patch, nil)) }, "upstream.update", "upstream", map[string]string{
		"upstreams.next.timeout": "<nil> -> 5s", "upstreams.next.headers": "map[X-Token:***] -> map[X-Token:***]", "upstreams.next.balance": "round_robin -> least_requests",
	})
	u.wantDiff(func() error { return u.add("default", "https://10.0.0.2") }, "target.add", "upstream", map[string]string{"upstreams.default.targets.https://10.0.0.2": added})
	change := func(p control.TargetPatch) func() error {
		return func() error {
			return second(u.PatchTarget(ctx(), u.caller, u.id, "default", "https://10.0.0.2/", p, nil))
		}
	}
	u.wantDiff(change(control.TargetPatch{Weight: value(5), Backup: value(true)}), "target.update", "upstream", map[string]string{
		"upstreams.default.targets.https://10.0.0.2.weight": "1 -> 5", "upstreams.default.targets.https://10.0.0.2.backup": "false -> true",
	})
	u.wantDiff(change(control.TargetPatch{Drain: value(true), Backup: null[bool]()}), "target.drain", "upstream", map[string]string{
		"upstreams.default.targets.https://10.0.0.2.drain": "false -> true", "upstreams.default.targets.https://10.0.0.2.backup": "true -> false",
	})
	u.wantDiff(change(control.TargetPatch{Drain: value(true), Weight: value(7)}), "target.update", "upstream", map[string]string{
		"upstreams.default.targets.https://10.0.0.2.weight": "5 -> 7",
	})
	u.wantDiff(change(control.TargetPatch{Drain: value(false), Weight: null[int]()}), "target.update", "upstream", map[string]string{
		"upstreams.default.targets.https://10.0.0.2.drain": "true -> false", "upstreams.default.targets.https://10.0.0.2.weight": "7 -> 1",
	})
	u.wantDiff(change(control.TargetPatch{Resolve: value(gateway.ResolveA)}), "target.update", "upstream", map[string]string{
		"upstreams.default.targets.https://10.0.0.2.resolve": "none -> a",
	})
	u.wantDiff(change(control.TargetPatch{Resolve: null[gateway.Resolve]()}), "target.update", "upstream", map[string]string{
		"upstreams.default.targets.https://10.0.0.2.resolve": "a -> none",
	})
	refresh := gateway.UpstreamPatch{Name: "next"}
	refresh.Refresh = value("5s")
	u.wantDiff(func() error { return second(u.PatchUpstream(ctx(), u.caller, u.id, refresh, nil)) }, "upstream.update", "upstream", map[string]string{
		"upstreams.next.refresh": "10s -> 5s",
	})
	refresh.Refresh = null[string]()
	u.wantDiff(func() error { return second(u.PatchUpstream(ctx(), u.caller, u.id, refresh, nil)) }, "upstream.update", "upstream", map[string]string{
		"upstreams.next.refresh": "5s -> 10s",
	})
	u.wantNoRecords(u.caller.Account.ID, func() { u.must(change(control.TargetPatch{Drain: value(false)})()) })
	u.wantNoRecords(u.caller.Account.ID, func() {
		u.must(second(u.PatchUpstream(ctx(), u.caller, u.id, gateway.UpstreamPatch{Name: "next"}, nil)))
	})
	u.wantDiff(func() error { return second(u.DeleteUpstream(ctx(), u.caller, u.id, "next", nil)) }, "upstream.delete", "upstream", map[string]string{
		"upstreams.next.targets.https://10.0.0.1": "map[backup:false drain:false resolve:none weight:1] -> <nil>", "upstreams.next.timeout": "5s -> <nil>",
		"upstreams.next.headers": "map[X-Token:***] -> <nil>", "upstreams.next.ejection": "false -> <nil>",
	})
	// The last change leaves a gateway that earlier versions understand.
	u.wantDiff(func() error {
		return second(u.DeleteTarget(ctx(), u.caller, u.id, "default", "https://orders.internal/base", nil))
	}, "target.delete", "settings", map[string]string{
		"upstream_url": "https://orders.internal/base -> https://10.0.0.2", "upstreams.default.targets.https://orders.internal/base": "map[backup:false drain:false resolve:none weight:1] -> <nil>",
	})
	u.wantDiff(func() error {
		p := upstreamPatch("default", "https://a")
		p.UpstreamHost = value("preserve")
		return second(u.PutUpstream(ctx(), u.caller, u.id, p, nil))
	}, "upstream.update", "settings", map[string]string{"upstream_url": "https://10.0.0.2 -> https://a", "upstream_host": "target -> preserve"})
}

// Guarantee: targets.md 1, what is not there is 404, and what the state forbids 409; before a 409 comes the 412 of another
// ETag.
func TestUpstreamsThatAreMissingOrInUse(t *testing.T) {
	u := newUpstreams(t)
	u.put(upstreamPatch("next", "https://a", "https://b"))
	const first = "https://orders.internal/base"
	weight := control.TargetPatch{Weight: value(2)}
	for name, call := range map[string]func() error{
		"get":         func() error { return second(u.Upstream(ctx(), u.caller, u.id, "gone")) },
		"get nothing": func() error { return second(u.Upstream(ctx(), u.caller, u.id, "")) },
		"patch": func() error {
			return second(u.PatchUpstream(ctx(), u.caller, u.id, upstreamPatch("gone", "https://a"), nil))
		},
		"delete":       func() error { return second(u.DeleteUpstream(ctx(), u.caller, u.id, "gone", nil)) },
		"add":          func() error { return u.add("gone", "https://a") },
		"a target":     func() error { return second(u.PatchTarget(ctx(), u.caller, u.id, "next", "https://c", weight, nil)) },
		"of another":   func() error { return second(u.PatchTarget(ctx(), u.caller, u.id, "next", first, weight, nil)) },
		"no URL":       func() error { return second(u.DeleteTarget(ctx(), u.caller, u.id, "next", "", nil)) },
		"its upstream": func() error { return second(u.DeleteTarget(ctx(), u.caller, u.id, "gone", "https://a", nil)) },
		"the gateway": func() error {
			return second(u.PutUpstream(ctx(), u.caller, "gw_x", upstreamPatch("a", "https://a"), nil))
		},
	} {
		u.wantRefused(call, fault.NotFound, "")
		if t.Failed() {
			t.Fatal(name)
		}
	}
	route := must[*gateway.Route](u.harness)(u.CreateRoute(ctx(), u.caller, u.id, gateway.RouteSpec{Path: "/search", Methods: []string{"GET"}, Upstream: "next"}))
	for name, call := range map[string]func(m control.Match) error{
		"the default one": func(m control.Match) error { return second(u.DeleteUpstream(ctx(), u.caller, u.id, "default", m)) },
		"in use":          func(m control.Match) error { return second(u.DeleteUpstream(ctx(), u.caller, u.id, "next", m)) },
		"there already": func(m control.Match) error {
			return second(u.AddTarget(ctx(), u.caller, u.id, "next", control.NewTarget{Target: gateway.Target{URL: "https://B:443/"}}, m))
		},
		"the last": func(m control.Match) error { return second(u.DeleteTarget(ctx(), u.caller, u.id, "default", first, m)) },
	} {
		u.wantRefused(func() error { return call(nil) }, fault.Conflict, "")
		u.wantRefused(func() error { return call(func(int64) bool { return false }) }, fault.PreconditionFailed, "")
		if t.Failed() {
			t.Fatal(name)
		}
	}
	if err := second(u.DeleteUpstream(ctx(), u.caller, u.id, "next", nil)); !strings.Contains(err.Error(), "/search ("+route.ID+")") {
		t.Errorf("got %v; want the route that names the upstream", err)
	}
	u.must(second(u.UpdateRoute(ctx(), u.caller, u.id, route.ID, control.RoutePatch{Upstream: null[string]()}, nil)))
	u.must(second(u.DeleteUpstream(ctx(), u.caller, u.id, "next", nil)))

	u.must(u.add("default", "https://b"))
	move := gateway.Patch{UpstreamURL: value("https://c")}
	u.wantRefused(func() error { return second(u.UpdateGateway(ctx(), u.caller, u.id, move, nil)) }, fault.Conflict, "upstream_url")
	u.wantRefused(func() error {
		return second(u.UpdateGateway(ctx(), u.caller, u.id, move, func(int64) bool { return false }))
	}, fault.PreconditionFailed, "")
	file := func(m control.Match) error {
		return second(u.PushConfiguration(ctx(), u.caller, u.id, []byte("gateway: {upstream_url: https://c}\nroutes: []\n"), false, m))
	}
	u.wantRefused(func() error { return file(nil) }, fault.Conflict, "gateway.upstream_url")
	if err := file(nil); !strings.Contains(err.Error(), "line 1, column 25") {
		t.Errorf("got %v; want the line", err)
	}
	u.wantRefused(func() error { return file(func(int64) bool { return false }) }, fault.PreconditionFailed, "")
	same := gateway.Patch{UpstreamURL: value(first), Timeout: value("7s")}
	u.must(second(u.UpdateGateway(ctx(), u.caller, u.id, same, nil)))
}

// Guarantee: targets.md 1, PUT gives settings that it does not have their defaults, but keeps the targets in force, and PATCH
// keeps the settings. An upstream without targets, and a wrong value, are 422 with the field.
func TestPutReplacesAndPatchChanges(t *testing.T) {
	u := newUpstreams(t)
	full := upstreamPatch("next", "https://a", "https://b")
	full.Timeout, full.UpstreamMaxConnections, full.Balance, full.HashOn = value("5s"), value(int64(7)), value("hash"), value("principal")
	full.UpstreamHeaders = value(map[string]string{"X-Token": "s3cret"})
	full.Retries = value(gateway.Retries{Attempts: 3, BudgetPercent: 10, On: []string{"connect"}})
	if got := u.put(full); !got.Created || got.Timeout != "5s" || len(got.Headers) != 1 || string(got.Headers["X-Token"]) == "s3cret" || got.Retries.Attempts != 3 {
		t.Errorf("got %+v", got)
	}
	patch := gateway.UpstreamPatch{Name: "next"}
	patch.Balance = value("round_robin")
	got := must[*control.NamedUpstream](u.harness)(u.PatchUpstream(ctx(), u.caller, u.id, patch, nil))
	if got.Created || got.Timeout != "5s" || got.Balance.Policy != gateway.RoundRobin || got.Balance.HashOn != "" || len(got.Headers) != 1 {
		t.Errorf("after PATCH got %+v; want another balance, without hash_on", got)
	}
	if got := u.put(gateway.UpstreamPatch{Name: "next"}); got.Created || got.Timeout != "" || got.MaxConnections != 0 || got.Headers != nil || got.Retries != nil || got.Balance.Policy != "" || len(got.Targets) != 2 {
		t.Errorf("after PUT got %+v; want the targets alone", got)
	}
	u.must(second(u.UpdateGateway(ctx(), u.caller, u.id, gateway.Patch{Timeout: value("9s"), UpstreamHost: value("preserve")}, nil)))
	u.put(upstreamPatch("default"))
	if g := u.now(); g.Timeout != gateway.DefaultTimeout || g.Upstream.Host != "" || g.Upstream.URL != "https://orders.internal/base" || g.Upstream.Timeout != "" {
		t.Errorf("after PUT of the default one got %+v", g)
	}
	with := func(set func(p *gateway.UpstreamPatch)) func() error {
		p := upstreamPatch("more", "https://a")
		set(&p)
		return func() error { return second(u.PutUpstream(ctx(), u.caller, u.id, p, nil)) }
	}
	for field, set := range map[string]func(p *gateway.UpstreamPatch){
		"name":           func(p *gateway.UpstreamPatch) { p.Name = "A" },
		"targets":        func(p *gateway.UpstreamPatch) { p.Targets = control.Optional[[]gateway.Target]{} },
		"targets[0].url": func(p *gateway.UpstreamPatch) { p.Targets = value(targetsAt("ftp://a")) },
		"hash_on":        func(p *gateway.UpstreamPatch) { p.Balance = value("hash") },
		"timeout":        func(p *gateway.UpstreamPatch) { p.Timeout = value("2h") },
		"headers.Host":   func(p *gateway.UpstreamPatch) { p.UpstreamHeaders = value(map[string]string{"Host": "a"}) },
		"headers.X-A":    func(p *gateway.UpstreamPatch) { p.UpstreamHeaders = value(map[string]string{"X-A": "***"}) },
		"ca":             func(p *gateway.UpstreamPatch) { p.UpstreamCA = value("x") },
		"client_key":     func(p *gateway.UpstreamPatch) { p.UpstreamClientKey = value("x") },
		"host":           func(p *gateway.UpstreamPatch) { p.UpstreamHost = value("a b") },
		"ejection.base": func(p *gateway.UpstreamPatch) {
			p.Ejection = value(gateway.Ejection{Failures: 1, On: []string{"reset"}, Max: "1s"})
		},
		"retries.attempts":   func(p *gateway.UpstreamPatch) { p.Retries = value(gateway.Retries{Attempts: -1}) },
		"max_connection_age": func(p *gateway.UpstreamPatch) { p.UpstreamMaxConnectionAge = value("1ms") },
	} {
		u.wantRefused(with(set), fault.ValidationFailed, field)
	}
	u.wantRefused(func() error { return u.add("next", "http://c") }, fault.ValidationFailed, "url")
	u.wantRefused(func() error { return u.add("next", "c") }, fault.ValidationFailed, "url")
	u.wantRefused(func() error {
		return second(u.PatchTarget(ctx(), u.caller, u.id, "next", "https://a", control.TargetPatch{Weight: value(0)}, nil))
	}, fault.ValidationFailed, "weight")
}

// Guarantee: targets.md 1, a gateway is created with upstream_url or an upstream default, and with others.
func TestGatewayIsCreatedWithUpstreams(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	create := func(url string, list ...gateway.UpstreamPatch) (*gateway.Gateway, error) {
		p := gateway.Patch{Name: value("orders"), Upstreams: value(list)}
		if url != "" {
			p.UpstreamURL = value(url)
		}
		return h.CreateGateway(ctx(), c, p, "")
	}
	several := upstreamPatch("default", "https://a", "https://b")
	several.Timeout = value("5s")
	for _, tc := range []struct {
		url   string
		list  []gateway.UpstreamPatch
		field string
	}{
		{"", nil, "upstream_url"},
		{"", []gateway.UpstreamPatch{upstreamPatch("next", "https://a")}, "upstream_url"},
		{"https://a", []gateway.UpstreamPatch{several}, "upstreams"},
		{"https://a", []gateway.UpstreamPatch{upstreamPatch("next")}, "upstreams[0].targets"},
		{"https://a", []gateway.UpstreamPatch{upstreamPatch("next", "https://a"), upstreamPatch("next", "https://a")}, "upstreams[1].name"},
		{"", []gateway.UpstreamPatch{upstreamPatch("default")}, "upstreams[0].targets"},
		{"", []gateway.UpstreamPatch{several, upstreamPatch("b", "https://a", "http://b")}, "upstreams[1].targets[1].url"},
	} {
		_, err := create(tc.url, tc.list...)
		h.wantCode(err, fault.ValidationFailed, tc.field)
	}
	twice := gateway.Patch{Name: value("orders"), Timeout: value("4s"), Upstreams: value([]gateway.UpstreamPatch{several})}
	_, err := h.CreateGateway(ctx(), c, twice, "")
	h.wantCode(err, fault.ValidationFailed, "upstreams[0].timeout")

	g := must[*gateway.Gateway](h)(create("", upstreamPatch("next", "https://n"), several, upstreamPatch("blue", "https://c")))
	if g.Upstream.URL != "https://a" || g.Timeout != "5s" || len(g.Upstream.Targets) != 2 || len(g.Others) != 2 || g.Others[0].Name != "blue" || g.Others[1].Name != "next" {
		t.Errorf("got %+v", g)
	}
	plain := must[*gateway.Gateway](h)(create("", upstreamPatch("default", "https://a")))
	if plain.NeedsUpstreams() {
		t.Errorf("got %+v; want what upstream_url alone makes", plain)
	}
	doc := "openapi: 3.1.0\ninfo: {title: t, version: '1'}\npaths:\n  /a:\n    x-keygate-upstream: next\n    get: {}\n"
	_, err = h.CreateGateway(ctx(), c, newGateway("https://a"), doc)
	h.wantCode(err, fault.ValidationFailed, "spec")
	if !strings.Contains(err.Error(), "line 5, column 25") {
		t.Errorf("got %v; want the line of the name", err)
	}
	p := newGateway("https://a")
	p.Upstreams = value([]gateway.UpstreamPatch{upstreamPatch("next", "https://n")})
	g = must[*gateway.Gateway](h)(h.CreateGateway(ctx(), c, p, doc))
	if r := must[[]gateway.Route](h)(h.Routes(ctx(), c, g.ID, control.Page{Limit: 5})); len(r) != 1 || r[0].Upstream != "next" {
		t.Errorf("got the routes %+v", r)
	}
}

// Guarantee: a gateway has at most 64 upstreams, an upstream 256 targets, and an account a bounded number of targets, in
// whatever way they are given.
func TestUpstreamsAreBounded(t *testing.T) {
	u := newUpstreams(t)
	var list []gateway.UpstreamPatch
	for i := range gateway.MaxUpstreams - 1 {
		list = append(list, upstreamPatch(fmt.Sprintf("u%d", i), "https://a"))
	}
	p := newGateway("https://a")
	p.Upstreams = value(list)
	full := must[*gateway.Gateway](u.harness)(u.CreateGateway(ctx(), u.caller, p, ""))
	u.wantRefused(func() error {
		return second(u.PutUpstream(ctx(), u.caller, full.ID, upstreamPatch("one-more", "https://a"), nil))
	}, fault.Conflict, "")
	u.wantRefused(func() error {
		return second(u.PutUpstream(ctx(), u.caller, full.ID, upstreamPatch("one-more"), nil))
	}, fault.ValidationFailed, "targets")
	u.must(second(u.PutUpstream(ctx(), u.caller, full.ID, upstreamPatch("u1", "https://b"), nil)))
	p.Upstreams = value(append(list, upstreamPatch("one-more", "https://a")))
	_, err := u.CreateGateway(ctx(), u.caller, p, "")
	u.wantCode(err, fault.ValidationFailed, "upstreams")

	var urls []string
	for i := range gateway.MaxTargets {
		urls = append(urls, fmt.Sprintf("https://t%d", i))
	}
	u.put(upstreamPatch("many", urls...))
	u.wantRefused(func() error { return u.add("many", "https://one-more") }, fault.Conflict, "")
	u.wantRefused(func() error { return u.add("many", "http://one-more") }, fault.ValidationFailed, "url")
	u.wantRefused(func() error {
		return second(u.PutUpstream(ctx(), u.caller, u.id, upstreamPatch("many", append(urls, "https://one-more")...), nil))
	}, fault.ValidationFailed, "targets")

	have := gateway.MaxTargets + 1 + gateway.MaxUpstreams
	u.bounds.Targets = have + 1
	u.serve(u.db)
	u.must(u.add("default", "https://b"))
	u.wantRefused(func() error { return u.add("default", "https://c") }, fault.Conflict, "")
	u.wantRefused(func() error {
		return second(u.PutUpstream(ctx(), u.caller, u.id, upstreamPatch("next", "https://a"), nil))
	}, fault.Conflict, "")
	u.wantRefused(func() error { return second(u.CreateGateway(ctx(), u.caller, newGateway("https://a"), "")) }, fault.Conflict, "")
	u.wantRefused(func() error {
		return second(u.PushConfiguration(ctx(), u.caller, full.ID, []byte("gateway: {upstreams: [{name: default, targets: [{url: https://a}, {url: https://b}]}, "+entries(list)+"]}\nroutes: []\n"), false, nil))
	}, fault.Conflict, "")
	u.must(second(u.DeleteUpstream(ctx(), u.caller, u.id, "many", nil)))
	u.must(u.add("default", "https://c"))
}

// Guarantee: all upstreams of a gateway take at most 1 MiB, in whatever way they are given; one that takes more already, from a
// version before the limit, can change if it does not grow.
func TestUpstreamsAreBoundedInBytes(t *testing.T) {
	u := newUpstreams(t)
	var urls, longer []string
	for i := range gateway.MaxTargets {
		urls = append(urls, fmt.Sprintf("https://t%d/%s", i, strings.Repeat("a", 1900)))
		longer = append(longer, urls[i]+strings.Repeat("b", 120))
	}
	u.put(upstreamPatch("a", urls...))
	u.put(upstreamPatch("b", urls...))
	u.wantRefused(func() error { return second(u.PutUpstream(ctx(), u.caller, u.id, upstreamPatch("c", urls...), nil)) }, fault.Conflict, "")
	u.put(upstreamPatch("c", urls[:20]...))
	u.wantRefused(func() error {
		return second(u.PatchUpstream(ctx(), u.caller, u.id, upstreamPatch("b", longer...), nil))
	}, fault.Conflict, "")
	u.wantRefused(func() error {
		return second(u.PatchUpstream(ctx(), u.caller, u.id, upstreamPatch("b", longer...), func(int64) bool { return false }))
	}, fault.PreconditionFailed, "")
	pair := certificatetest.New(t, "ca")
	big := value(strings.Repeat(string(pair.Cert), (60<<10)/len(pair.Cert)))
	u.must(second(u.UpdateGateway(ctx(), u.caller, u.id, gateway.Patch{UpstreamCA: value(string(pair.Cert))}, nil)))
	for {
		size := len(u.now().UpstreamNamed("c").Targets)
		if err := u.add("c", longer[size]); err != nil {
			u.wantCode(err, fault.Conflict, "")
			break
		}
	}
	u.wantRefused(func() error {
		return second(u.UpdateGateway(ctx(), u.caller, u.id, gateway.Patch{UpstreamCA: big}, nil))
	}, fault.Conflict, "")

	// In a list that is given as a whole, it is an error of the list.
	list := []gateway.UpstreamPatch{upstreamPatch("default", urls...), upstreamPatch("a", urls...), upstreamPatch("b", urls...)}
	p := gateway.Patch{Name: value("large"), Upstreams: value(list)}
	_, err := u.CreateGateway(ctx(), u.caller, p, "")
	u.wantCode(err, fault.ValidationFailed, "upstreams")
	file := gateway.Document{Gateway: gateway.Patch{Upstreams: value(list)}}
	u.wantRefused(func() error {
		return second(u.PushConfiguration(ctx(), u.caller, u.id, file.Encode(), false, nil))
	}, fault.ValidationFailed, "gateway.upstreams")

	large := u.now()
	for _, name := range []string{"x", "y"} {
		more := *large.UpstreamNamed("a")
		more.Name = name
		large.PutUpstream(more)
	}
	before := *large
	before.RemoveUpstream("y")
	if err := before.CheckUpstreamBytes(large); err != nil {
		t.Errorf("got %v for upstreams that become smaller", err)
	}
	if err := large.CheckUpstreamBytes(&before); err == nil {
		t.Error("upstreams that are too large may grow")
	}
}

// Guarantee: an audit record, and the result of a push, has at most 32 targets by themselves: if more of a gateway change, it
// has the lists of each upstream, or of all if there are more than 32. The values are bounded as others are.
func TestDiffsOfManyTargetsAreBounded(t *testing.T) {
	u := newUpstreams(t)
	targets := func(from, to int) (urls []string) {
		for i := from; i < to; i++ {
			urls = append(urls, fmt.Sprintf("https://t%d", i))
		}
		return urls
	}
	// paths returns those of the newest audit record, and the size of its largest value.
	paths := func() ([]string, int) {
		diff := u.newest(u.caller.Account.ID, 1, 0).audits[0].Diff
		largest := 0
		for _, values := range diff {
			for _, v := range values {
				b, err := json.Marshal(v)
				u.must(err)
				largest = max(largest, len(b))
			}
		}
		return slices.Sorted(maps.Keys(diff)), largest
	}
	u.put(upstreamPatch("next", targets(0, 32)...))
	if got, _ := paths(); len(got) != 32 || got[0] != "upstreams.next.targets.https://t0" {
		t.Errorf("32 targets: got the paths %q", got)
	}
	u.put(upstreamPatch("next", targets(16, 49)...))
	if got, _ := paths(); !slices.Equal(got, []string{"upstreams.next.targets"}) {
		t.Errorf("33 targets: got the paths %q", got)
	}
	values := u.newest(u.caller.Account.ID, 1, 0).audits[0].Diff["upstreams.next.targets"]
	if list, ok := values[0].([]any); !ok || len(list) != 32 || fmt.Sprint(list[0]) != "map[backup:false drain:false resolve:none url:https://t0 weight:1]" {
		t.Errorf("33 targets: got the value %v; want the 32 targets of before", values[0])
	}
	reversed := targets(16, 49)
	slices.Reverse(reversed)
	u.put(upstreamPatch("next", reversed...))
	if got, _ := paths(); !slices.Equal(got, []string{"upstreams.next.targets"}) {
		t.Errorf("33 targets in another order: got the paths %q", got)
	}
	push := func(n, each int) *control.PushResult {
		list := []gateway.UpstreamPatch{upstreamPatch("default", "https://orders.internal/base")}
		for i := range n {
			list = append(list, upstreamPatch(fmt.Sprintf("u%02d", i), targets(i, i+each)...))
		}
		file := gateway.Document{Gateway: gateway.Patch{Upstreams: value(list)}}
		return must[*control.PushResult](u.harness)(u.PushConfiguration(ctx(), u.caller, u.id, file.Encode(), false, nil))
	}
	for _, tc := range []struct{ upstreams, targets, paths int }{{31, 200, 32}, {63, 150, 1}} {
		got := push(tc.upstreams, tc.targets)
		ofUpstreams := func(path string) bool { return strings.HasPrefix(path, "upstreams") }
		all, largest := paths()
		all = slices.DeleteFunc(all, func(path string) bool {
			return !ofUpstreams(path) || strings.HasSuffix(path, ".ejection") || strings.HasSuffix(path, ".retries")
		})
		if len(all) != tc.paths || largest > audit.MaxDiffValue {
			t.Errorf("%+v: got the paths %q with values of up to %d bytes", tc, all, largest)
		}
		for _, c := range got.Settings {
			if b, err := json.Marshal(c); err != nil || len(b) > 3*audit.MaxDiffValue {
				t.Errorf("%+v: the setting %s of the result has %d bytes", tc, c.Field, len(b))
			}
		}
		if !slices.ContainsFunc(got.Settings, func(c control.SettingChange) bool { return c.Field == all[0] }) || len(got.Settings) > 64 {
			t.Errorf("%+v: got %d settings; want those of the audit record", tc, len(got.Settings))
		}
	}
}

// entries returns a part of the list of upstreams in a file that keeps their targets.
func entries(list []gateway.UpstreamPatch) string {
	names := make([]string, len(list))
	for i := range list {
		names[i] = "{name: " + list[i].Name + "}"
	}
	return strings.Join(names, ", ")
}

// Guarantee: a list of upstreams has the default one first and then the others by their names, in pages.
func TestListOfUpstreams(t *testing.T) {
	u := newUpstreams(t)
	for _, name := range []string{"b", "zz", "a"} {
		u.put(upstreamPatch(name, "https://a"))
	}
	var names []string
	for after := ""; ; {
		page := must[[]control.NamedUpstream](u.harness)(u.Upstreams(ctx(), u.caller, u.id, control.Page{Limit: 3, After: after}))
		for _, one := range page {
			names = append(names, one.FullName())
		}
		if len(page) < 3 {
			break
		}
		after = names[len(names)-1]
	}
	if want := []string{"default", "a", "b", "zz"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}

// Guarantee: the upstream of a route is one of the gateway, in the API and in documents; a push and a rollback change it, and
// say so.
func TestRoutesNameUpstreams(t *testing.T) {
	u := newUpstreams(t)
	u.put(upstreamPatch("next", "https://a"))
	spec := gateway.RouteSpec{Path: "/a", Methods: []string{"GET"}, Upstream: "gone"}
	u.wantRefused(func() error { return second(u.CreateRoute(ctx(), u.caller, u.id, spec)) }, fault.ValidationFailed, "upstream")
	spec.Upstream = "A"
	u.wantRefused(func() error { return second(u.CreateRoute(ctx(), u.caller, u.id, spec)) }, fault.ValidationFailed, "upstream")
	spec.Upstream = "default"
	r := must[*gateway.Route](u.harness)(u.CreateRoute(ctx(), u.caller, u.id, spec))
	if r.Upstream != "" {
		t.Errorf("got the upstream %q, want that of routes that name none", r.Upstream)
	}
	u.wantRefused(func() error {
		return second(u.UpdateRoute(ctx(), u.caller, u.id, r.ID, control.RoutePatch{Upstream: value("gone")}, nil))
	}, fault.ValidationFailed, "upstream")
	if r = must[*gateway.Route](u.harness)(u.UpdateRoute(ctx(), u.caller, u.id, r.ID, control.RoutePatch{Upstream: value("next")}, nil)); r.Upstream != "next" {
		t.Errorf("got the upstream %q, want next", r.Upstream)
	}

	push := func(text string) (*control.PushResult, error) {
		return u.PushConfiguration(ctx(), u.caller, u.id, []byte(text), false, nil)
	}
	_, err := push("routes:\n- path: /a\n  methods: [GET]\n- path: /b\n  methods: [GET]\n  upstream: gone\n")
	u.wantCode(err, fault.ValidationFailed, "routes[1].upstream")
	if !strings.Contains(fault.MessageOf(err), "line 6, column 13: the gateway has no upstream with the name gone") {
		t.Errorf("got %v; want the line of the name", err)
	}
	_, err = push("gateway: {upstreams: []}\nroutes:\n- {path: /a, methods: [GET], upstream: next}\n")
	u.wantCode(err, fault.ValidationFailed, "routes[0].upstream")
	got := must[*control.PushResult](u.harness)(push("routes:\n- {path: /a, methods: [GET]}\n"))
	if len(got.Changed) != 1 || fmt.Sprint(got.Changed[0].Changes) != "[{upstream next default}]" {
		t.Errorf("got %+v; want a change of the upstream", got)
	}
	must[*control.PushResult](u.harness)(push("gateway: {upstreams: [{name: blue, targets: [{url: https://b}]}]}\nroutes:\n- {path: /a, methods: [GET], upstream: blue}\n"))
	must[*control.PushResult](u.harness)(push("gateway: {upstreams: []}\nroutes:\n- {path: /a, methods: [GET]}\n"))
	if compared := must[*control.PushResult](u.harness)(u.CompareRevisions(ctx(), u.caller, u.id, 2, 3)); len(compared.Changed) != 1 || len(compared.Settings) != 1 || compared.Settings[0].Field != "upstreams.blue" {
		t.Errorf("got %+v; want the upstream of the route and of the gateway", compared)
	}
	// Revision 2 has its upstream in its file.
	got = must[*control.PushResult](u.harness)(u.Rollback(ctx(), u.caller, u.id, 2, false, nil))
	if g := u.now(); len(g.Others) != 1 || g.Others[0].URL != "https://b" || len(got.Changed) != 1 {
		t.Errorf("got %+v and the upstreams %+v", got, g.Others)
	}
	document := "openapi: 3.1.0\ninfo: {title: t, version: '1'}\npaths:\n  /a:\n    get: {x-keygate-upstream: %s}\n"
	_, err = u.PushSpec(ctx(), u.caller, u.id, fmt.Appendf(nil, document, "gone"), false, nil)
	u.wantCode(err, fault.ValidationFailed, "paths./a.get.x-keygate-upstream")
	if !strings.Contains(fault.MessageOf(err), "line 5, column 31") {
		t.Errorf("got %v; want the line of the name", err)
	}
	must[*control.PushResult](u.harness)(u.PushSpec(ctx(), u.caller, u.id, fmt.Appendf(nil, document, "blue"), false, nil))
	must[*control.PushResult](u.harness)(push("gateway: {upstreams: []}\nroutes: []\n"))
	_, err = u.Rollback(ctx(), u.caller, u.id, 5, false, nil)
	u.wantCode(err, fault.ValidationFailed, "number")
	if !strings.Contains(fault.MessageOf(err), "the route /a of the revision names the upstream blue") {
		t.Errorf("got %v; want the route and the upstream", err)
	}
}

// Guarantee: targets.md 1, a file's upstreams are all there are, one without the list keeps them, an entry keeps what it
// does not have, and an export, applied again, changes nothing.
func TestUpstreamsOfAFile(t *testing.T) {
	u := newUpstreams(t)
	apply := func(text string) *control.PushResult {
		t.Helper()
		return must[*control.PushResult](u.harness)(u.PushConfiguration(ctx(), u.caller, u.id, []byte(text), false, nil))
	}
	got := apply(`gateway:
  upstreams:
    - name: default
      targets: [{url: https://a, weight: 2}, {url: https://b}]
      balance: hash
      hash_on: header:X-Session
    - name: next
      targets: [{url: https://n}]
      timeout: 5s
      headers: {X-Token: s3cret}
routes: []
`)
	if len(got.Settings) == 0 || got.Settings[len(got.Settings)-1].Field != "upstreams.next.timeout" {
		t.Errorf("got the settings %+v", got.Settings)
	}
	g := u.now()
	if g.Upstream.URL != "https://a" || len(g.Upstream.Targets) != 2 || g.Upstream.Balance.HashOn != "header:X-Session" || len(g.Others) != 1 || g.Others[0].Timeout != "5s" {
		t.Fatalf("got %+v", g)
	}
	export := string(must[[]byte](u.harness)(u.Configuration(ctx(), u.caller, u.id)))
	if !strings.Contains(export, `X-Token: "***"`) || strings.Contains(export, "upstream_url") {
		t.Errorf("got the export\n%s", export)
	}
	u.wantNoRecords(u.caller.Account.ID, func() { apply(export) })
	u.wantNoRecords(u.caller.Account.ID, func() { apply("routes: []\n") })
	apply("gateway: {upstreams: [{name: next, balance: round_robin}]}\nroutes: []\n")
	if g = u.now(); g.Others[0].URL != "https://n" || g.Others[0].Timeout != "5s" || len(g.Others[0].Headers) != 1 || len(g.Upstream.Targets) != 2 {
		t.Errorf("got %+v; want the other settings as they were", g)
	}
	if revision := must[*gateway.Revision](u.harness)(u.Revision(ctx(), u.caller, u.id, 1)); strings.Contains(string(revision.Content), "s3cret") {
		t.Errorf("the revision has the secret:\n%s", revision.Content)
	}
	// The default upstream stays even if the list does not have it.
	apply("gateway: {upstreams: null}\nroutes: []\n")
	if g = u.now(); len(g.Others) != 0 || len(g.Upstream.Targets) != 2 {
		t.Errorf("got %+v; want the default upstream alone", g)
	}
	for text, want := range map[string]string{
		"gateway: {upstream_url: https://a, upstreams: [{name: default}]}\nroutes: []\n":                   "gateway.upstreams",
		"gateway: {upstream_host: preserve, upstreams: [{name: default, host: target}]}\nroutes: []\n":     "gateway.upstreams[0].host",
		"gateway: {upstreams: [{name: new}]}\nroutes: []\n":                                                "gateway.upstreams[0].targets",
		"gateway: {upstreams: [{name: new, targets: [{url: http://a}], balance: hash}]}\nroutes: []\n":     "gateway.upstreams[0].hash_on",
		"gateway: {upstreams: [{name: new, targets: [{url: http://a}], headers: {A: '***'}}]}\nroutes: []": "gateway.upstreams[0].headers.A",
	} {
		_, err := u.PushConfiguration(ctx(), u.caller, u.id, []byte(text), false, nil)
		u.wantCode(err, fault.ValidationFailed, want)
		if !strings.Contains(fault.MessageOf(err), "line 1, column ") {
			t.Errorf("%s: got %v; want the position", text, err)
		}
	}
	_, err := u.PushConfiguration(ctx(), u.caller, u.id, []byte("gateway: {upstream_url: https://c}\nroutes: []\n"), false, nil)
	u.wantCode(err, fault.Conflict, "gateway.upstream_url")
}
