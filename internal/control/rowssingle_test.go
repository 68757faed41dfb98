package control_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/webhook"
)

// single carries out the operations on one record, which is at its bounds where it has some.
func (h *rowHarness) single() {
	h.upstreams()
	h.canaries()
	h.routesOfOne()
	h.grants()
	h.endpoint()
	h.otherAccount()
}

// manyTargets returns URLs of targets, other ones for each number of an upstream.
func manyTargets(upstream int) (urls []string) {
	for i := range gateway.MaxTargets {
		urls = append(urls, fmt.Sprintf("https://10.%d.%d.%d/%s", upstream, i/250, i%250, strings.Repeat("p", 20)))
	}
	return urls
}

// upstreams changes the upstreams of a gateway with about as many targets as an account may have.
func (h *rowHarness) upstreams() {
	g := must[*gateway.Gateway](h.harness)(h.CreateGateway(ctx(), h.caller, newGateway("https://h"), string(spec("/a"))))
	put := func(name string, targets int) func() error {
		return func() error {
			return second(h.PutUpstream(ctx(), h.caller, g.ID, upstreamPatch(name, manyTargets(targets)...), nil))
		}
	}
	for i := range 38 {
		h.do("create upstream", put(fmt.Sprint("u", i), i))
	}
	at := manyTargets(0)[3]
	h.do("delete target", func() error { return second(h.DeleteTarget(ctx(), h.caller, g.ID, "u0", at, nil)) })
	h.do("add target", func() error {
		return second(h.AddTarget(ctx(), h.caller, g.ID, "u0", control.NewTarget{Target: gateway.Target{URL: at}}, nil))
	})
	for _, drain := range []bool{true, false} {
		h.do("drain target", func() error {
			return second(h.PatchTarget(ctx(), h.caller, g.ID, "u0", at, control.TargetPatch{Drain: value(drain)}, nil))
		})
	}
	h.do("change upstream", func() error {
		p := upstreamPatch("u0")
		p.UpstreamHeaders, p.UpstreamHost = value(map[string]string{"X-Token": strings.Repeat("t", 4000)}), value("name.example")
		return second(h.PatchUpstream(ctx(), h.caller, g.ID, p, nil))
	})
	h.do("replace upstream", put("u0", 60))
	var cors gateway.CORS
	for i := range 100 {
		label := strings.Repeat("a", 60)
		cors.Origins = append(cors.Origins, fmt.Sprintf("https://%s.%s.%s.x%d", label, label, label, i))
	}
	h.do("change gateway", func() error {
		return second(h.UpdateGateway(ctx(), h.caller, g.ID, gateway.Patch{CORS: value(cors)}, nil))
	})
	h.do("push a configuration", func() error {
		return second(h.PushConfiguration(ctx(), h.caller, g.ID, []byte("gateway: {upstreams: []}\nroutes: []\n"), false, nil))
	})
	h.must(put("u0", 0)())
	h.do("delete upstream", func() error { return second(h.DeleteUpstream(ctx(), h.caller, g.ID, "u0", nil)) })
}

// canaries starts canaries of as many routes as one may have.
func (h *rowHarness) canaries() {
	g := must[*gateway.Gateway](h.harness)(h.CreateGateway(ctx(), h.caller, newGateway("https://h"), ""))
	h.must(second(h.PutUpstream(ctx(), h.caller, g.ID, upstreamPatch("next", "https://n"), nil)))
	h.must(h.engine.Update(ctx(), func(tx control.Tx) error {
		var routes []gateway.Route
		for i := range canary.MaxRoutes {
			routes = append(routes, gateway.Route{ID: id.New(id.Route), GatewayID: g.ID, Path: fmt.Sprint("/", i), Methods: []string{"GET"}, Auth: gateway.AuthKey, Source: gateway.API, CreatedAt: h.clock.now(), Version: 1})
		}
		return tx.InsertRoutes(ctx(), routes)
	}))
	var c *control.StartedCanary
	start := func(upstream string) func() error {
		return func() (err error) {
			c, err = h.StartCanary(ctx(), h.caller, g.ID, control.CanaryInput{Upstream: upstream, Steps: []gateway.Percent{1_00, 5_00}, WhenDone: "promote"})
			return err
		}
	}
	h.do("start canary", start("next"))
	h.do("pause canary", func() error { return second(h.PauseCanary(ctx(), h.caller, g.ID, c.ID, nil)) })
	h.do("resume canary", func() error { return second(h.ResumeCanary(ctx(), h.caller, g.ID, c.ID, nil)) })
	h.do("abort canary", func() error { return second(h.AbortCanary(ctx(), h.caller, g.ID, c.ID, nil)) })
	h.do("start canary", start("next"))
	for i, d := range []canary.Decision{{Action: canary.Wait}, {Action: canary.Advance}, {Action: canary.Advance}} {
		h.do([]string{"count for a canary", "advance canary", "promote canary"}[i], func() error {
			return h.JudgeCanary(ctx(), c.ID, max(1, i), canary.Lead{}, canary.Progress{}, canary.Ran{For: time.Minute, Until: h.clock.now()}, d)
		})
	}
	h.must(second(h.PutUpstream(ctx(), h.caller, g.ID, upstreamPatch("last", "https://l"), nil)))
	h.do("start canary", start("last"))
	h.do("promote canary by a call", func() error { return second(h.PromoteCanary(ctx(), h.caller, g.ID, c.ID, nil)) })
}

// routesOfOne changes a route, and the repository, of a gateway with many routes.
func (h *rowHarness) routesOfOne() {
	g := must[*gateway.Gateway](h.harness)(h.CreateGateway(ctx(), h.caller, newGateway("https://h"), string(spec(manyPaths(20_000)...))))
	var r *gateway.Route
	h.do("create route", func() (err error) {
		r, err = h.CreateRoute(ctx(), h.caller, g.ID, gateway.RouteSpec{Path: "/one", Methods: []string{"GET"}})
		return err
	})
	h.do("change route", func() error {
		return second(h.UpdateRoute(ctx(), h.caller, g.ID, r.ID, control.RoutePatch{Path: value("/two")}, nil))
	})
	h.do("change the limit of a route", func() error {
		return second(h.UpdateRouteLimit(ctx(), h.caller, g.ID, r.ID, control.LimitPatch{RateLimit: value(control.RateLimitPatch{Sustained: value("1/s")})}, nil))
	})
	h.do("delete route", func() error { return second(h.DeleteRoute(ctx(), h.caller, g.ID, r.ID, nil)) })
	h.do("connect repository", func() error {
		return second(h.PutRepository(ctx(), h.caller, g.ID, control.RepositoryInput{
			URL: "https://example.com/r.git", Branch: "main", Path: "a.yaml", Kind: "config", NewHookSecret: true}, nil))
	})
	h.do("sync repository", func() error { return second(h.SyncRepository(ctx(), h.caller, g.ID, nil)) })
	h.do("delete repository", func() error { return second(h.DeleteRepository(ctx(), h.caller, g.ID, nil)) })
	h.do("try", func() error { return h.RecordTry(ctx(), h.caller, g.ID, "GET", "/"+strings.Repeat("a", 8000)) })
	h.do("delete gateway with many routes", func() error { return second(h.DeleteGateway(ctx(), h.caller, g.ID, nil)) })
	h.do("finish the deletion of gateways", func() error { return h.FinishDeletions(ctx()) })
}

// grants changes the largest key and owner, and grants units of quotas: of a new one, and until no more may be granted.
func (h *rowHarness) grants() {
	metadata := map[string]string{}
	var scopes []string
	var limits []plan.LimitInput
	for i := range 16 {
		metadata[fmt.Sprint(strings.Repeat("m", 60), i)] = strings.Repeat("v", 255)
		scopes = append(scopes, fmt.Sprint("read:", strings.Repeat("s", 200), i))
	}
	for i := range plan.MaxLimits {
		limits = append(limits, plan.LimitInput{Name: fmt.Sprint("l", i), Quota: "1000/day", Per: "owner"})
	}
	p := must[*control.ChangedPlan](h.harness)(h.CreatePlan(ctx(), h.caller, control.PlanInput{Name: "eight", Limits: limits}))
	var k *control.NewKey
	h.do("create the largest key", func() (err error) {
		k, err = h.CreateKey(ctx(), h.caller, control.KeyInput{Name: strings.Repeat("n", 255), Scope: strings.Join(scopes, " "), Metadata: metadata})
		return err
	})
	h.do("rotate key without overlap", func() error { return second(h.RotateKey(ctx(), h.caller, k.ID, 0, "", nil)) })
	var o *owner.Owner
	for range 4 {
		h.do("create the largest owner", func() (err error) {
			o, err = h.CreateOwner(ctx(), h.caller, control.OwnerInput{ExternalID: id.New(id.Owner), Plan: control.ChoosePlan(p.ID, ""), Metadata: metadata})
			return err
		})
		h.do("grant units of a new quota", func() error {
			return second(h.GrantToOwner(ctx(), h.caller, o.ID, control.GrantInput{Limit: "l0", Units: 1}))
		})
	}
	for range plan.MaxGrants - 1 {
		h.do("grant units", func() error {
			return second(h.GrantToOwner(ctx(), h.caller, o.ID, control.GrantInput{Limit: "l0", Units: 1, Reason: strings.Repeat("r", 200)}))
		})
	}
	h.do("change owner", func() error {
		return second(h.UpdateOwner(ctx(), h.caller, o.ID, control.OwnerPatch{TimeZone: value("Europe/Berlin")}, nil))
	})
}

// endpoint changes an endpoint, and makes one session more than a key may have.
func (h *rowHarness) endpoint() {
	last := len(h.hooks) - 1
	h.must(second(h.DeleteWebhook(ctx(), h.caller, h.hooks[last], nil)))
	h.hooks = h.hooks[:last]
	var events []string
	for _, e := range webhook.EventTypes() {
		events = append(events, string(e))
	}
	var w *control.NewWebhook
	h.do("create webhook", func() (err error) {
		w, err = h.CreateWebhook(ctx(), h.caller, control.WebhookInput{URL: "https://h.example/x", Events: events, Secret: "auto"})
		return err
	})
	h.do("rotate the secret of a webhook", func() error { return second(h.RotateWebhookSecret(ctx(), h.caller, w.ID, 24, nil)) })
	h.do("test webhook", func() error { return second(h.TestWebhook(ctx(), h.caller, w.ID)) })
	h.do("change webhook", func() error {
		return second(h.UpdateWebhook(ctx(), h.caller, w.ID, control.WebhookPatch{URL: value("https://h.example/y")}, nil))
	})
	for range 101 {
		h.do("sign in", func() error {
			_, _, err := h.SignIn(ctx(), h.caller)
			return err
		})
	}
}

// otherAccount creates an account, and gives it hosts.
func (h *rowHarness) otherAccount() {
	var hosts []string
	for i := range 16 {
		hosts = append(hosts, fmt.Sprint("h", i, ".example.com"))
	}
	var a *control.NewAccount
	h.do("create account", func() (err error) {
		a, err = h.AddAccount(ctx(), h.operator, control.AccountInput{Name: "n", Tier: "scale"})
		return err
	})
	h.do("change account", func() error {
		return second(h.UpdateAccount(ctx(), h.operator, a.ID, control.AccountPatch{Hosts: value(hosts), Name: value("m")}, nil))
	})
}
