package control_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// canaries starts canaries of one gateway, which has the upstreams default and next and two routes.
type canaries struct {
	*upstreams
	routes []string
}

func newCanaries(t *testing.T) *canaries {
	t.Helper()
	u := newUpstreams(t)
	u.put(upstreamPatch("next", "https://next.internal"))
	return &canaries{u, []string{u.route(u.caller, u.id, "/a", "GET", "POST").ID, u.route(u.caller, u.id, "/b/{id}", "GET").ID}}
}

func (c *canaries) start(edit func(*control.CanaryInput)) *control.StartedCanary {
	c.tb.Helper()
	return must[*control.StartedCanary](c.harness)(c.tryStart(edit))
}

func (c *canaries) tryStart(edit func(*control.CanaryInput)) (*control.StartedCanary, error) {
	in := control.CanaryInput{Upstream: "next", Steps: []gateway.Percent{1_00, 25_50}}
	if edit != nil {
		edit(&in)
	}
	return c.StartCanary(ctx(), c.caller, c.id, in)
}

// of returns the canary as it is stored.
func (c *canaries) of(canaryID string) *canary.Canary {
	c.tb.Helper()
	return must[*canary.Canary](c.harness)(c.Canary(ctx(), c.caller, c.id, canaryID))
}

// judge has the leader decide about a canary after its present step ran for a time.
func (c *canaries) judge(canaryID string, d canary.Decision) {
	c.tb.Helper()
	c.must(c.tryJudge(canaryID, d))
}

func (c *canaries) tryJudge(canaryID string, d canary.Decision) error {
	now := c.of(canaryID)
	p := canary.Progress{Next: canary.Figures{Requests: 100, Bad: 1}, Other: canary.Figures{Requests: 900}}
	return c.JudgeCanary(ctx(), canaryID, now.Number, canary.Lead{}, p, c.ran(10*time.Minute), d)
}

// ran is that a step has run for a time until now.
func (c *canaries) ran(d time.Duration) canary.Ran { return canary.Ran{For: d, Until: c.clock.now()} }

// wantShare fails unless the gateway has this share of a canary, as "weight step counts", or none for "".
func (c *canaries) wantShare(want string) {
	c.tb.Helper()
	got := ""
	if s := c.now().Canary; s != nil {
		got = fmt.Sprint(s.Weight, " ", s.Step, " ", s.Counts)
	}
	if got != want {
		c.tb.Errorf("got the share %q; want %q", got, want)
	}
}

// wantState fails unless a canary is in a state, with an explanation that has the words.
func (c *canaries) wantState(canaryID string, s canary.State, words string) {
	c.tb.Helper()
	if got := c.of(canaryID); got.State != s || !strings.Contains(got.Explanation, words) {
		c.tb.Errorf("got a canary that is %s (%s); want one that is %s (%s)", got.State, got.Explanation, s, words)
	}
}

// upstreamsOf returns the upstreams of the routes.
func (c *canaries) upstreamsOf(routeIDs ...string) string {
	c.tb.Helper()
	var names []string
	for _, routeID := range routeIDs {
		names = append(names, must[*gateway.Route](c.harness)(c.Route(ctx(), c.caller, c.id, routeID)).Upstream)
	}
	return strings.Join(names, " ")
}

// wantCalls runs f, and fails unless it wrote these audit actions and events, and leaves the ETag of the gateway.
func (c *canaries) wantCalls(f func(), audits, events []string) {
	c.tb.Helper()
	before, version := c.logs(c.caller.Account.ID), c.now().Version
	f()
	after := c.logs(c.caller.Account.ID)
	var gotAudits, gotEvents []string
	for _, a := range after.audits[len(before.audits):] {
		gotAudits = append(gotAudits, string(a.Action))
	}
	for _, e := range after.events[len(before.events):] {
		gotEvents = append(gotEvents, string(e.Type))
		if data := dataOf(e); data["gateway_id"] != c.id || data["upstream"] != "next" || data["explanation"] == "" || data["canary_id"] == "" {
			c.tb.Errorf("the event %s has the data %v", e.Type, data)
		}
	}
	if !slices.Equal(gotAudits, audits) || !slices.Equal(gotEvents, events) {
		c.tb.Errorf("got the audit records %q and the events %q; want %q and %q", gotAudits, gotEvents, audits, events)
	}
	if now := c.now().Version; now != version {
		c.tb.Errorf("the version of the gateway went from %d to %d", version, now)
	}
}

// Guarantee: a canary begins with its first step, goes on as the leader says, and ends promoted: its routes have its upstream,
// and the gateway has no share any more. Each change is acknowledged, in the audit log and an event, and leaves the ETag of the
// gateway; what the step has counted is stored.
func TestCanaryIsPromoted(t *testing.T) {
	c := newCanaries(t)
	var id string
	c.wantCalls(func() {
		started := c.start(func(in *control.CanaryInput) { in.WhenDone = "promote" })
		id = started.ID
		want := canary.Plan{Upstream: "next", Other: "default", Routes: c.routes, Steps: []gateway.Percent{1_00, 25_50}, Hold: "10m", MoreThan: new(1.0), MinRequests: 1000, Promote: true}
		if got := started.Plan; fmt.Sprint(got.Routes, got.Steps, got.Hold, *got.MoreThan, got.MinRequests, got.Other) != fmt.Sprint(want.Routes, want.Steps, want.Hold, *want.MoreThan, want.MinRequests, want.Other) || started.Warnings != nil {
			t.Errorf("got the canary %+v; want the plan %+v", started, want)
		}
	}, []string{"canary.start"}, nil)
	c.wantShare("1 1 true")
	c.clock.advance(10 * time.Minute)
	c.wantCalls(func() { c.judge(id, canary.Decision{Action: canary.Wait, Explanation: "1 of 100 failed"}) }, nil, nil)
	c.wantState(id, canary.Running, "1 of 100 failed")
	c.wantCalls(func() { c.judge(id, canary.Decision{Action: canary.Advance, Explanation: "1 of 100 failed on next"}) }, []string{"canary.advance"}, []string{"canary.advanced"})
	c.wantShare("25.5 2 true")
	c.wantState(id, canary.Running, "25.5 % of the callers go to next. At 1 %: 1 of 100 failed on next")
	now := c.of(id)
	if now.Step != 1 || now.Ran != 0 || !now.Since.Equal(c.clock.now()) || len(now.Progress) != 2 || now.Progress[0].Next.Requests != 100 || now.Progress[1].Weight != 25_50 {
		t.Errorf("got %+v, want the second step", now)
	}
	c.wantCalls(func() { c.judge(id, canary.Decision{Action: canary.Advance, Explanation: "0 of 100 failed"}) },
		[]string{"route.update", "route.update", "canary.promote"}, []string{"canary.promoted"})
	c.wantShare("")
	c.wantState(id, canary.Promoted, "2 routes have the upstream next now")
	if got := c.upstreamsOf(c.routes...); got != "next next" {
		t.Errorf("the routes have the upstreams %q, want next", got)
	}
	last := c.newest(c.caller.Account.ID, 1, 0).audits[0]
	if last.ActorKeyID != "" || last.Diff["actor"][1] != "canary" || !c.of(id).EndedAt.Equal(c.clock.now()) {
		t.Errorf("got the audit record %+v, want one of the actor canary", last)
	}
}

// Guarantee: an abort sends all callers back, and the explanation of the leader is kept and in the event; a pause keeps the
// share, counts nothing, and its time stands still until it is resumed.
func TestCanaryIsAbortedAndPaused(t *testing.T) {
	c := newCanaries(t)
	id := c.start(nil).ID
	c.clock.advance(90 * time.Second)
	c.wantCalls(func() { c.must(second(c.PauseCanary(ctx(), c.caller, c.id, id, nil))) }, []string{"canary.pause"}, []string{"canary.paused"})
	c.wantShare("1 1 false")
	c.clock.advance(time.Hour)
	c.wantCalls(func() { c.must(second(c.ResumeCanary(ctx(), c.caller, c.id, id, nil))) }, []string{"canary.resume"}, nil)
	c.wantShare("1 2 true")
	if now := c.of(id); now.Ran != 90*time.Second || !now.Since.Equal(c.clock.now()) || now.Step != 0 {
		t.Errorf("got a step that ran for %s before %s; want 1m30s before %s", now.Ran, now.Since, c.clock.now())
	}
	c.wantCalls(func() {
		c.judge(id, canary.Decision{Action: canary.Pause, Reason: "too_few_requests", Explanation: "3 requests in 24 h"})
	}, []string{"canary.pause"}, []string{"canary.paused"})
	c.wantState(id, canary.Paused, "too_few_requests: 3 requests in 24 h")
	c.must(second(c.ResumeCanary(ctx(), c.caller, c.id, id, nil)))
	const why = "18 of 290 failed on next (6.2 %), 31 of 28,710 on default (0.1 %): at least 2.0 points more; allowed 1.0"
	c.wantCalls(func() { c.judge(id, canary.Decision{Action: canary.Abort, Reason: "errors", Explanation: why}) }, []string{"canary.abort"}, []string{"canary.aborted"})
	c.wantShare("")
	c.wantState(id, canary.Aborted, why)
	if data := dataOf(c.newest(c.caller.Account.ID, 1, 1).events[0]); data["explanation"] != why || data["weight"] != 1.0 || data["step"] != 1.0 {
		t.Errorf("got the event %v", data)
	}
	if got := c.upstreamsOf(c.routes...); got != " " {
		t.Errorf("the routes have the upstreams %q, want default", got)
	}
	again := c.start(nil)
	c.wantCalls(func() { c.must(second(c.AbortCanary(ctx(), c.caller, c.id, again.ID, nil))) }, []string{"canary.abort"}, []string{"canary.aborted"})
}

// Guarantee: callers are left out for what happened before the first of canaries that followed each other within an hour, not for
// what a canary did to them.
func TestCallersAreJudgedByTheTimeBeforeCanaries(t *testing.T) {
	c := newCanaries(t)
	first := c.start(nil)
	c.must(second(c.AbortCanary(ctx(), c.caller, c.id, first.ID, nil)))
	for range 2 {
		c.clock.advance(50 * time.Minute)
		again := c.start(nil)
		if !again.Plan.Before.Equal(first.CreatedAt) {
			t.Errorf("got a canary whose callers are judged by the time before %s, want before %s", again.Plan.Before, first.CreatedAt)
		}
		c.must(second(c.AbortCanary(ctx(), c.caller, c.id, again.ID, nil)))
	}
	c.clock.advance(2 * time.Hour)
	if later := c.start(nil); !later.Plan.Before.Equal(later.CreatedAt) {
		t.Errorf("got a canary whose callers are judged by the time before %s, want before %s", later.Plan.Before, later.CreatedAt)
	}
}

// Guarantee: a step that was paused after 24 hours begins its time anew when it is resumed, so that it is not paused again at once.
func TestResumeAfterADay(t *testing.T) {
	c := newCanaries(t)
	id := c.start(nil).ID
	c.must(c.JudgeCanary(ctx(), id, 1, canary.Lead{}, canary.Progress{}, c.ran(24*time.Hour), canary.Decision{Action: canary.Pause, Reason: "too_few_requests"}))
	if now := must[*canary.Canary](c.harness)(c.ResumeCanary(ctx(), c.caller, c.id, id, nil)); now.Ran != 0 {
		t.Errorf("the step ran for %s, want nothing", now.Ran)
	}
}

// Guarantee: with when_done hold, a canary is held at its last weight, and then promoted by hand.
func TestCanaryIsHeld(t *testing.T) {
	c := newCanaries(t)
	id := c.start(func(in *control.CanaryInput) { in.Steps = []gateway.Percent{50_00} }).ID
	c.wantCalls(func() { c.judge(id, canary.Decision{Action: canary.Advance, Explanation: "0 of 100 failed"}) }, []string{"canary.advance"}, []string{"canary.advanced"})
	c.wantShare("50 2 false")
	c.wantState(id, canary.Held, "held at 50 % after the last step: 0 of 100 failed")
	c.wantCalls(func() { c.must(second(c.PromoteCanary(ctx(), c.caller, c.id, id, nil))) }, []string{"route.update", "route.update", "canary.promote"}, []string{"canary.promoted"})
	c.wantState(id, canary.Promoted, "by hand")
}

// Guarantee: a canary of routes that come from a file, or of a gateway with a repository, is held at 100 % with the lines to
// commit instead of promoted. The push of these lines ends it as promoted.
func TestCanaryOfAFileWaitsForItsLines(t *testing.T) {
	for _, repository := range []bool{false, true} {
		c := newCanaries(t)
		if repository {
			c.must(second(c.PutRepository(ctx(), c.caller, c.id, input(func(in *control.RepositoryInput) { in.Kind = "config" }), nil)))
		} else {
			c.configure(c.caller, c.id, "gateway: {name: of a file}\nroutes:\n- {path: /a, methods: [GET, POST], auth: none, rate_limit: {sustained: 5/s}, concurrency: {max: 3}, cost: [{meter: tokens, from: {request: 3}}]}\n- {path: '/b/{id}', methods: [GET], split: []}\n")
		}
		id := c.start(nil).ID
		c.wantCalls(func() { c.must(second(c.PromoteCanary(ctx(), c.caller, c.id, id, nil))) }, []string{"canary.promote"}, []string{"canary.advanced"})
		c.wantShare("100 2 false")
		c.wantState(id, canary.Held, "replace their entries there by the lines, and push it")
		want := []string{`{path: /a, methods: [GET, POST], rate_limit: {sustained: 5/s}, concurrency: {max: 3}, cost: [{"meter":"tokens","reserve":3,"max":3,"from":{"request":3}}], upstream: next, auth: none}`, `{path: "/b/{id}", methods: [GET], upstream: next, split: []}`}
		if repository {
			want = []string{`{path: /a, methods: [GET, POST], upstream: next}`, `{path: "/b/{id}", methods: [GET], upstream: next}`}
		}
		if got := c.of(id).Lines; !slices.Equal(got, want) {
			t.Fatalf("got the lines %q, want %q", got, want)
		}
		c.wantRefused(func() error { return second(c.PromoteCanary(ctx(), c.caller, c.id, id, nil)) }, fault.Conflict, "")
		doc := "routes:\n- " + strings.Join(c.of(id).Lines, "\n- ") + "\n"
		dry := must[*control.PushResult](c.harness)(c.PushConfiguration(ctx(), c.caller, c.id, []byte(doc), true, nil))
		if !strings.Contains(strings.Join(dry.Warnings, "\n"), "the push ends the canary "+id+" as promoted") {
			t.Errorf("got the warnings %q", dry.Warnings)
		}
		for _, r := range dry.Changed {
			if len(r.Changes) != 1 || r.Changes[0].Field != "upstream" {
				t.Errorf("the lines change %+v of %s, want nothing but the upstream", r.Changes, r.Path)
			}
		}
		c.configure(c.caller, c.id, doc)
		c.wantShare("")
		c.wantState(id, canary.Promoted, "with revision")
		if last := c.newest(c.caller.Account.ID, 1, 1); last.audits[0].Action != audit.CanaryPromote || last.events[0].Type != "canary.promoted" {
			t.Errorf("got %s and %s", last.audits[0].Action, last.events[0].Type)
		}
	}
}

// Guarantee: a canary of routes that come from an OpenAPI document shows what to add to their operations; the push with that ends it,
// and changes nothing else.
func TestCanaryOfADocumentWaitsForItsLines(t *testing.T) {
	const with = "openapi: 3.1.0\ninfo: {title: x, version: '1'}\nservers: [{url: /v1}]\npaths:\n  /a:\n    get: {x-keygate-auth: none, x-keygate-upstream: next}\n    post: {x-keygate-rate-limit: {sustained: 5/s}, x-keygate-upstream: next}\n"
	c := newCanaries(t)
	c.must(second(c.PushSpec(ctx(), c.caller, c.id, []byte(strings.ReplaceAll(with, ", x-keygate-upstream: next", "")), false, nil)))
	id := c.start(nil).ID
	c.must(second(c.PromoteCanary(ctx(), c.caller, c.id, id, nil)))
	c.wantState(id, canary.Held, "The routes come from an OpenAPI document: give each of their operations x-keygate-upstream: next there, and push it")
	if got := c.of(id).Lines; !slices.Equal(got, []string{"GET /v1/a: x-keygate-upstream: next", "POST /v1/a: x-keygate-upstream: next"}) {
		t.Errorf("got the lines %q", got)
	}
	pushed := must[*control.PushResult](c.harness)(c.PushSpec(ctx(), c.caller, c.id, []byte(with), false, nil))
	if len(pushed.Changed) != 2 || len(pushed.Changed[0].Changes) != 1 || len(pushed.Changed[1].Changes) != 1 {
		t.Errorf("the push changed %+v, want the upstream of two routes", pushed.Changed)
	}
	c.wantState(id, canary.Promoted, "with revision 2")
}

// Guarantee: the lines of a canary are bounded; the explanation says how many routes have none.
func TestLinesOfCanariesAreBounded(t *testing.T) {
	c := newCanaries(t)
	doc, long := "routes:\n", strings.Repeat("x", gateway.MaxTemplate-4)
	for i := range 100 {
		doc += fmt.Sprintf("- {path: /%03d%s, methods: [GET]}\n", i, long)
	}
	c.configure(c.caller, c.id, doc)
	id := c.start(nil).ID
	c.must(second(c.PromoteCanary(ctx(), c.caller, c.id, id, nil)))
	lines := c.of(id).Lines
	if size := len(strings.Join(lines, "")); size > canary.MaxLines || size < canary.MaxLines-2*gateway.MaxTemplate {
		t.Errorf("got %d bytes of lines, want up to %d", size, canary.MaxLines)
	}
	c.wantState(id, canary.Held, fmt.Sprintf("by the lines, and %d more of its routes the upstream next", 100-len(lines)))
}

// Guarantee: the routes of a canary at 100 % may get its upstream in several pushes. One that is paused there keeps all callers, and is
// held again when it is resumed, with the lines that are left.
func TestLinesInSeveralPushes(t *testing.T) {
	const doc = "routes:\n- {path: /a, methods: [GET, POST], upstream: next}\n- {path: '/b/{id}', methods: [GET]}\n- {path: /c, methods: [GET]}\n"
	c := newCanaries(t)
	c.configure(c.caller, c.id, strings.Replace(doc, ", upstream: next", "", 1))
	id := c.start(nil).ID
	c.must(second(c.PromoteCanary(ctx(), c.caller, c.id, id, nil)))
	c.configure(c.caller, c.id, doc)
	c.wantState(id, canary.Held, "all callers go to next")
	split := strings.Replace(doc, "/c, methods: [GET]", "/c, methods: [GET], split: [{upstream: next, weight: 5}]", 1)
	c.configure(c.caller, c.id, split)
	c.wantState(id, canary.Paused, "revision 3 changes the route /c")
	c.wantShare("100 2 false")
	c.must(second(c.ResumeCanary(ctx(), c.caller, c.id, id, nil)))
	c.wantState(id, canary.Held, "resumed, without 2 of its routes")
	c.wantShare("100 3 false")
	if got := c.of(id).Lines; !slices.Equal(got, []string{`{path: "/b/{id}", methods: [GET], upstream: next}`}) {
		t.Errorf("got the lines %q, want that of the route that is left", got)
	}
	c.configure(c.caller, c.id, strings.Replace(split, "[GET]}", "[GET], upstream: next}", 1))
	c.wantState(id, canary.Promoted, "with revision 4")
}

// Guarantee: a change of a canary's routes or upstreams pauses it, whoever makes it, and says why, also while it is held; a change
// of anything else leaves it as it is.
func TestChangesPauseCanaries(t *testing.T) {
	const kept = "routes:\n- {path: /a, methods: [GET, POST]}\n- {path: '/b/{id}', methods: [GET]}\n"
	config := func(doc string) func(c *canaries) error {
		return func(c *canaries) error {
			return second(c.PushConfiguration(ctx(), c.caller, c.id, []byte(doc), false, nil))
		}
	}
	for name, test := range map[string]struct {
		change func(c *canaries) error
		why    string // "" if the canary runs on
	}{
		"a push that changes nothing": {config(kept), ""},
		"a push of another route":     {config(kept + "- {path: /c, methods: [GET]}\n"), ""},
		"a push of a limit":           {config(strings.Replace(kept, "[GET, POST]", "[GET, POST], rate_limit: {sustained: 5/s}", 1)), "revision 2 changes the route /a: resume the canary to go on, or abort it"},
		"a push that removes routes":  {config("routes:\n- {path: /c, methods: [GET]}\n"), "revision 2 changes 2 routes"},
		"a push of a split":           {config(kept + "gateway: {split: [{upstream: next, weight: 5}]}\n"), "revision 2 changes the split of the gateway"},
		"a push of the URL":           {config(kept + "gateway: {upstream_url: 'https://other.internal'}\n"), "revision 2 changes the upstream default"},
		"a push of the name":          {config(kept + "gateway: {name: renamed}\n"), ""},
		"a push of an upstream":       {config(kept + "gateway: {upstreams: [{name: next, targets: [{url: 'https://elsewhere.internal'}]}]}\n"), "revision 2 changes the upstream next"},
		"a push of the same upstream": {config(kept + "gateway: {upstreams: [{name: next, targets: [{url: 'https://next.internal'}]}]}\n"), ""},
		"a push of a third upstream":  {config(kept + "gateway: {upstreams: [{name: next}, {name: third, targets: [{url: 'https://third.internal'}]}]}\n"), ""},
		"a rollback":                  {func(c *canaries) error { return second(c.Rollback(ctx(), c.caller, c.id, 1, false, nil)) }, ""},
		"a route is updated": {func(c *canaries) error {
			return second(c.UpdateRoute(ctx(), c.caller, c.id, c.routes[0], control.RoutePatch{Upstream: value("next")}, nil))
		}, "the route /a was changed"},
		"a route is updated to itself": {func(c *canaries) error {
			return second(c.UpdateRoute(ctx(), c.caller, c.id, c.routes[0], control.RoutePatch{Upstream: value("default")}, nil))
		}, ""},
		"a route is deleted": {func(c *canaries) error { return second(c.DeleteRoute(ctx(), c.caller, c.id, c.routes[1], nil)) }, "the route /b/{id} was deleted"},
		"a route is created": {func(c *canaries) error { return second(c.CreateRoute(ctx(), c.caller, c.id, routeSpec("/new", "GET"))) }, ""},
		"a target is added":  {func(c *canaries) error { return c.add("next", "https://second.internal") }, ""},
		"the upstream is replaced": {func(c *canaries) error {
			return second(c.PutUpstream(ctx(), c.caller, c.id, upstreamPatch("next", "https://x.internal"), nil))
		}, "the upstream next was changed"},
		"a third upstream is created": {func(c *canaries) error {
			return second(c.PutUpstream(ctx(), c.caller, c.id, upstreamPatch("third", "https://x.internal"), nil))
		}, ""},
		"the gateway's URL is changed": {func(c *canaries) error {
			return second(c.UpdateGateway(ctx(), c.caller, c.id, gateway.Patch{UpstreamURL: value("https://x.internal")}, nil))
		}, "the upstream default was changed"},
		"the gateway's name is changed": {func(c *canaries) error {
			return second(c.UpdateGateway(ctx(), c.caller, c.id, gateway.Patch{Name: value("x")}, nil))
		}, ""},
	} {
		for _, of := range []struct {
			state canary.State
			share string
			begin func(c *canaries, id string)
		}{
			{canary.Running, "25.5 1", func(*canaries, string) {}},
			{canary.Held, "25.5 2", func(c *canaries, id string) { c.judge(id, canary.Decision{Action: canary.Advance}) }},
			{canary.Held, "100 2", func(c *canaries, id string) { c.must(second(c.PromoteCanary(ctx(), c.caller, c.id, id, nil))) }},
		} {
			t.Run(fmt.Sprint(name, " ", of.state, " ", of.share), func(t *testing.T) {
				c := newCanaries(t)
				c.configure(c.caller, c.id, kept+"gateway: {name: of a file}\n")
				id := c.start(func(in *control.CanaryInput) { in.Steps = []gateway.Percent{25_50} }).ID
				of.begin(c, id)
				c.must(test.change(c))
				if test.why == "" {
					c.wantState(id, of.state, "")
					c.wantShare(fmt.Sprint(of.share, " ", of.state == canary.Running))
					return
				}
				c.wantState(id, canary.Paused, test.why)
				c.wantShare(of.share + " false")
				events := c.newest(c.caller.Account.ID, 1, 3).events
				if !strings.Contains(fmt.Sprint(events[0].Type, events[len(events)-1].Type), "canary.paused") {
					t.Errorf("got the events %v, want canary.paused", events)
				}
			})
		}
	}
}

// Guarantee: a canary that was paused while it was held after its last step begins that step again when it is resumed.
func TestHeldCanaryIsJudgedAgain(t *testing.T) {
	c := newCanaries(t)
	id := c.start(func(in *control.CanaryInput) { in.Steps = []gateway.Percent{25_50} }).ID
	c.judge(id, canary.Decision{Action: canary.Advance})
	c.must(second(c.UpdateRoute(ctx(), c.caller, c.id, c.routes[0], control.RoutePatch{RateLimit: value(control.RateLimitPatch{Sustained: value("5/s")})}, nil)))
	c.wantState(id, canary.Paused, "the route /a was changed")
	c.clock.advance(time.Hour)
	now := must[*canary.Canary](c.harness)(c.ResumeCanary(ctx(), c.caller, c.id, id, nil))
	if now.Step != 0 || now.Ran != 0 || !now.Since.Equal(c.clock.now()) {
		t.Errorf("got %+v, want its last step from now on", now)
	}
	c.wantShare("25.5 3 true")
	c.judge(id, canary.Decision{Action: canary.Advance})
	c.wantState(id, canary.Held, "held at 25.5 % after the last step")
}

// Guarantee: a canary that is resumed goes on without the routes that are gone or have another upstream, and cannot if none is
// left.
func TestResumeWithoutRoutes(t *testing.T) {
	c := newCanaries(t)
	id := c.start(nil).ID
	c.must(second(c.DeleteRoute(ctx(), c.caller, c.id, c.routes[0], nil)))
	now := must[*canary.Canary](c.harness)(c.ResumeCanary(ctx(), c.caller, c.id, id, nil))
	if !slices.Equal(now.Plan.Routes, c.routes[1:]) || !strings.Contains(now.Explanation, "without 1 of its routes") || !slices.Equal(c.now().Canary.Routes, c.routes[1:]) {
		t.Errorf("got %+v, want the canary without the route that was deleted", now)
	}
	c.must(second(c.UpdateRoute(ctx(), c.caller, c.id, c.routes[1], control.RoutePatch{Upstream: value("next")}, nil)))
	c.wantRefused(func() error { return second(c.ResumeCanary(ctx(), c.caller, c.id, id, nil)) }, fault.Conflict, "")
	c.wantRefused(func() error { return second(c.PromoteCanary(ctx(), c.caller, c.id, id, nil)) }, fault.Conflict, "")
}

// Guarantee: while a gateway has a canary, its upstream cannot be removed, and neither its routes nor the gateway get a split.
func TestCanaryKeepsItsUpstream(t *testing.T) {
	c := newCanaries(t)
	id := c.start(nil).ID
	split := gateway.Split{{Upstream: "next", Weight: new(gateway.Percent(5_00))}}
	const without = "gateway: {upstreams: [{name: default}]}\nroutes: []\n"
	for _, state := range []canary.State{canary.Running, canary.Paused} {
		c.wantRefused(func() error { return second(c.DeleteUpstream(ctx(), c.caller, c.id, "next", nil)) }, fault.Conflict, "")
		c.wantRefused(func() error {
			return second(c.UpdateRoute(ctx(), c.caller, c.id, c.routes[0], control.RoutePatch{Split: value(split)}, nil))
		}, fault.Conflict, "")
		c.wantRefused(func() error {
			return second(c.UpdateGateway(ctx(), c.caller, c.id, gateway.Patch{Split: value(split)}, nil))
		}, fault.Conflict, "")
		c.wantRefused(func() error {
			return second(c.UpdateGateway(ctx(), c.caller, c.id, gateway.Patch{Upstreams: value([]gateway.UpstreamPatch{{Name: "default"}})}, nil))
		}, fault.ValidationFailed, "upstreams")
		for _, dry := range []bool{true, false} {
			c.wantRefused(func() error { return second(c.PushConfiguration(ctx(), c.caller, c.id, []byte(without), dry, nil)) }, fault.ValidationFailed, "gateway.upstreams")
		}
		if state == canary.Running {
			c.must(second(c.PauseCanary(ctx(), c.caller, c.id, id, nil)))
		}
	}
	c.must(second(c.AbortCanary(ctx(), c.caller, c.id, id, nil)))
	c.must(second(c.DeleteUpstream(ctx(), c.caller, c.id, "next", nil)))
}

// Guarantee: input that is wrong is refused with its field, all of it at once, and nothing is stored.
func TestInvalidCanaries(t *testing.T) {
	c := newCanaries(t)
	onNext, err := c.CreateRoute(ctx(), c.caller, c.id, gateway.RouteSpec{Path: "/n", Methods: []string{"GET"}, Upstream: "next"})
	c.must(err)
	c.put(upstreamPatch("third", "https://third.internal"))
	onThird, err := c.CreateRoute(ctx(), c.caller, c.id, gateway.RouteSpec{Path: "/t", Methods: []string{"GET"}, Upstream: "third"})
	c.must(err)
	onNone, err := c.CreateRoute(ctx(), c.caller, c.id, gateway.RouteSpec{Path: "/gone", Methods: []string{"GET"}, Handling: &gateway.Handling{Respond: &gateway.Respond{Status: 410}}})
	c.must(err)
	percents := func(texts ...string) (list []gateway.Percent) {
		for _, s := range texts {
			list = append(list, gateway.ParsePercent(s))
		}
		return list
	}
	for name, test := range map[string]struct {
		edit   func(*control.CanaryInput)
		fields string
	}{
		"no upstream":          {func(in *control.CanaryInput) { in.Upstream = "" }, "upstream"},
		"an unknown upstream":  {func(in *control.CanaryInput) { in.Upstream, in.Routes = "none", c.routes }, "upstream"},
		"two that are wrong":   {func(in *control.CanaryInput) { in.Upstream, in.Hold = "none", "x" }, "hold upstream"},
		"its own upstream":     {func(in *control.CanaryInput) { in.Upstream, in.Routes = "default", c.routes }, "routes[0] routes[1]"},
		"two upstreams":        {nil, "routes"},
		"no routes":            {func(in *control.CanaryInput) { in.Routes = []string{} }, "routes"},
		"too many routes":      {func(in *control.CanaryInput) { in.Routes = make([]string, 1001) }, "routes"},
		"an unknown route":     {func(in *control.CanaryInput) { in.Routes = []string{c.routes[0], "rt_x"} }, "routes[1]"},
		"a route twice":        {func(in *control.CanaryInput) { in.Routes = []string{c.routes[0], c.routes[0]} }, "routes[1]"},
		"a route of next":      {func(in *control.CanaryInput) { in.Routes = []string{onNext.ID} }, "routes[0]"},
		"a route of none":      {func(in *control.CanaryInput) { in.Routes = []string{c.routes[0], onNone.ID} }, "routes[1]"},
		"routes of two":        {func(in *control.CanaryInput) { in.Routes = []string{c.routes[0], onThird.ID} }, "routes"},
		"steps that are none":  {func(in *control.CanaryInput) { in.Steps = percents(); in.Steps = []gateway.Percent{} }, "steps"},
		"21 steps":             {func(in *control.CanaryInput) { in.Steps = make([]gateway.Percent, 21) }, "steps"},
		"steps":                {func(in *control.CanaryInput) { in.Steps = percents("0", "5", "5", "1.234", "100") }, "steps[0] steps[2] steps[3] steps[4]"},
		"a short hold":         {func(in *control.CanaryInput) { in.Hold = "59s" }, "hold"},
		"a long hold":          {func(in *control.CanaryInput) { in.Hold = "24h1s" }, "hold"},
		"no duration":          {func(in *control.CanaryInput) { in.Hold = "ten" }, "hold"},
		"nothing to abort for": {func(in *control.CanaryInput) { in.Abort = &control.CanaryAbort{} }, "abort"},
		"points":               {func(in *control.CanaryInput) { in.Abort = &control.CanaryAbort{Errors: new(100.5), Latency: new(1.0)} }, "abort.errors.more_than abort.latency.p95_ratio"},
		"few requests":         {func(in *control.CanaryInput) { in.MinRequests = new(int64(0)) }, "min_requests"},
		"another end":          {func(in *control.CanaryInput) { in.WhenDone = "stop" }, "when_done"},
		"several":              {func(in *control.CanaryInput) { in.Hold, in.WhenDone, in.Steps = "x", "x", percents("101") }, "steps[0] hold when_done"},
	} {
		c.wantRefused(func() error {
			_, err := c.tryStart(test.edit)
			var fields []string
			for _, p := range fault.ProblemsOf(err) {
				fields = append(fields, p.Field)
			}
			if got := strings.Join(fields, " "); got != test.fields {
				t.Errorf("%s: got problems with %q (%v); want %q", name, got, err, test.fields)
			}
			return err
		}, fault.ValidationFailed, "")
	}
}

// Guarantee: a canary of all routes leaves out those that reach no upstream.
func TestCanaryOfAllRoutes(t *testing.T) {
	c := newCanaries(t)
	for path, handling := range map[string]gateway.Handling{
		"/old": {Redirect: &gateway.Redirect{To: "/a", Status: 308}}, "/gone": {Respond: &gateway.Respond{Status: 410}},
	} {
		c.must(second(c.CreateRoute(ctx(), c.caller, c.id, gateway.RouteSpec{Path: path, Methods: []string{"GET"}, Handling: &handling})))
	}
	if got := c.start(nil).Plan.Routes; !slices.Equal(got, c.routes) {
		t.Errorf("got the routes %q, want %q", got, c.routes)
	}
}

// Guarantee: a gateway has one canary that has not ended, and an account 100; a route with a split has none.
func TestRoomForCanaries(t *testing.T) {
	c := newCanaries(t)
	split := gateway.Split{{Upstream: "next", Weight: new(gateway.Percent(5_00))}}
	c.must(second(c.UpdateRoute(ctx(), c.caller, c.id, c.routes[0], control.RoutePatch{Split: value(split)}, nil)))
	c.wantRefused(func() error { return second(c.tryStart(nil)) }, fault.Conflict, "")
	one := c.start(func(in *control.CanaryInput) { in.Routes = c.routes[1:] })
	c.wantRefused(func() error { return second(c.tryStart(func(in *control.CanaryInput) { in.Routes = c.routes[1:] })) }, fault.Conflict, "")
	c.must(second(c.PauseCanary(ctx(), c.caller, c.id, one.ID, nil)))
	c.wantRefused(func() error { return second(c.tryStart(func(in *control.CanaryInput) { in.Routes = c.routes[1:] })) }, fault.Conflict, "")
	c.must(second(c.AbortCanary(ctx(), c.caller, c.id, one.ID, nil)))
	c.must(c.db.Update(ctx(), func(tx control.Tx) error {
		for range 100 {
			if err := tx.InsertCanary(ctx(), &canary.Canary{ID: "can_" + fmt.Sprint(c.clock.now().UnixNano()), AccountID: c.caller.Account.ID, GatewayID: c.id, State: canary.Held, Version: 1}); err != nil {
				return err
			}
			c.clock.advance(time.Nanosecond)
		}
		return nil
	}))
	c.wantRefused(func() error { return second(c.tryStart(func(in *control.CanaryInput) { in.Routes = c.routes[1:] })) }, fault.Conflict, "")
}

// Guarantee: no more than 1,000 canaries of all accounts run at once.
func TestRoomToRun(t *testing.T) {
	c := newCanaries(t)
	id := c.start(nil).ID
	c.must(second(c.PauseCanary(ctx(), c.caller, c.id, id, nil)))
	c.must(c.db.Update(ctx(), func(tx control.Tx) error {
		for i := range canary.MaxRunning {
			if err := tx.InsertCanary(ctx(), &canary.Canary{ID: fmt.Sprintf("can_%d", i), AccountID: "acct_x", GatewayID: c.id, State: canary.Running, Version: 1}); err != nil {
				return err
			}
		}
		return nil
	}))
	c.wantRefused(func() error { return second(c.ResumeCanary(ctx(), c.caller, c.id, id, nil)) }, fault.Conflict, "")
	c.must(second(c.AbortCanary(ctx(), c.caller, c.id, id, nil)))
	c.wantRefused(func() error { return second(c.tryStart(nil)) }, fault.Conflict, "")
}

// Guarantee: of the canaries that have ended, the newest 100 of a gateway are kept.
func TestEndedCanariesAreTrimmed(t *testing.T) {
	c := newCanaries(t)
	for range canary.EndedOfGateway + 3 {
		c.clock.advance(time.Second)
		c.must(second(c.AbortCanary(ctx(), c.caller, c.id, c.start(nil).ID, nil)))
	}
	last := c.start(nil)
	list := must[[]canary.Canary](c.harness)(c.Canaries(ctx(), c.caller, c.id, control.Page{Limit: 1000}))
	if len(list) != canary.EndedOfGateway+1 || list[0].ID != last.ID {
		t.Errorf("got %d canaries, want %d", len(list), canary.EndedOfGateway+1)
	}
}

// Guarantee: a canary is changed only in a state that allows it, with a matching ETag, and by its own account.
func TestCallsInOtherStates(t *testing.T) {
	c := newCanaries(t)
	id := c.start(nil).ID
	other := c.harness.caller("other", "admin")
	calls := map[string]func(a *control.Actor, m control.Match) error{
		"pause":   func(a *control.Actor, m control.Match) error { return second(c.PauseCanary(ctx(), a, c.id, id, m)) },
		"resume":  func(a *control.Actor, m control.Match) error { return second(c.ResumeCanary(ctx(), a, c.id, id, m)) },
		"promote": func(a *control.Actor, m control.Match) error { return second(c.PromoteCanary(ctx(), a, c.id, id, m)) },
		"abort":   func(a *control.Actor, m control.Match) error { return second(c.AbortCanary(ctx(), a, c.id, id, m)) },
	}
	stale := func(version int64) bool { return version == 99 }
	refuse := func(names ...string) {
		c.tb.Helper()
		for _, name := range names {
			c.wantRefused(func() error { return calls[name](c.caller, nil) }, fault.Conflict, "")
		}
	}
	for _, call := range calls {
		c.wantRefused(func() error { return call(other, nil) }, fault.NotFound, "")
		c.wantRefused(func() error { return call(c.caller, stale) }, fault.PreconditionFailed, "")
	}
	c.wantCode(second(c.Canary(ctx(), other, c.id, id)), fault.NotFound, "")
	c.wantCode(second(c.Canaries(ctx(), other, c.id, control.Page{Limit: 1})), fault.NotFound, "")
	c.wantCode(second(c.StartCanary(ctx(), other, c.id, control.CanaryInput{Upstream: "next"})), fault.NotFound, "")
	refuse("resume")
	c.must(calls["pause"](c.caller, nil))
	refuse("pause")
	c.must(calls["abort"](c.caller, nil))
	refuse("pause", "resume", "promote", "abort")
}

// Guarantee: who does not lead any more, and who judges a step that does not run any more, changes nothing.
func TestOnlyTheLeaderJudges(t *testing.T) {
	c := newCanaries(t)
	id := c.start(nil).ID
	for _, action := range []canary.Action{canary.Wait, canary.Advance, canary.Abort, canary.Pause} {
		d := canary.Decision{Action: action, Explanation: "x"}
		c.wantRefused(func() error {
			return c.JudgeCanary(ctx(), id, 1, canary.Lead{Claimant: "other", Epoch: 1}, canary.Progress{}, c.ran(time.Minute), d)
		}, fault.Conflict, "")
		c.wantRefused(func() error {
			return c.JudgeCanary(ctx(), id, 2, canary.Lead{}, canary.Progress{}, c.ran(time.Minute), d)
		}, fault.Conflict, "")
		c.wantRefused(func() error {
			return c.JudgeCanary(ctx(), "can_x", 1, canary.Lead{}, canary.Progress{}, c.ran(time.Minute), d)
		}, fault.NotFound, "")
	}
	running := must[[]canary.Canary](c.harness)(c.RunningCanaries(ctx(), "", 10))
	if len(running) != 1 || running[0].ID != id || running[0].Explanation == "x" {
		t.Errorf("got %+v, want the canary as it was", running)
	}
	c.must(second(c.PauseCanary(ctx(), c.caller, c.id, id, nil)))
	c.wantRefused(func() error { return c.tryJudge(id, canary.Decision{Action: canary.Abort}) }, fault.Conflict, "")
	if running := must[[]canary.Canary](c.harness)(c.RunningCanaries(ctx(), "", 10)); len(running) != 0 {
		t.Errorf("got %+v, want none", running)
	}
}

// Guarantee: a canary of many routes is promoted in one transaction, and one of a gateway that is deleted is gone.
func TestCanaryOfManyRoutes(t *testing.T) {
	c := newCanaries(t)
	for i := range 100 {
		c.route(c.caller, c.id, fmt.Sprintf("/many/%d", i), "GET")
	}
	id := c.start(func(in *control.CanaryInput) { in.WhenDone, in.Steps = "promote", []gateway.Percent{5_00} }).ID
	c.judge(id, canary.Decision{Action: canary.Advance})
	c.wantState(id, canary.Promoted, "102 routes")
	for _, r := range c.harness.routes(c.caller, c.id) {
		if r.Upstream != "next" {
			t.Fatalf("the route %s has the upstream %q", r.Path, r.Upstream)
		}
	}
	c.start(func(in *control.CanaryInput) { in.Upstream = "default" })
	c.must(second(c.DeleteGateway(ctx(), c.caller, c.id, nil)))
	c.must(c.db.View(ctx(), func(tx control.ReadTx) error {
		list, err := tx.Canaries(ctx(), c.id, control.Page{Limit: 1})
		if len(list) > 0 {
			t.Errorf("the canary of a deleted gateway is left: %+v", list)
		}
		return err
	}))
}
