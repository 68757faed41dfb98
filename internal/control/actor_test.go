package control_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/requestlog"
	"github.com/keygate/keygate/internal/traffic"
	"github.com/keygate/keygate/internal/usage"
)

// Guarantee: every operation refuses an invalid actor and changes nothing: the zero Actor, an actor with everything
// except a kind, an actor of an unknown kind, and a KeyActor without a key.
func TestUnknownActorsAreRefused(t *testing.T) {
	h := newHarness(t)
	known := h.caller("acme", "admin")
	g := h.gateway(known)
	r := h.route(known, g.ID, "/a", "GET")
	dryRun := must[*control.PushResult](h)(h.PushSpec(ctx(), known, g.ID, spec("/b"), true, nil))
	k := must[*control.NewKey](h)(h.CreateKey(ctx(), known, control.KeyInput{Name: "k", Scope: "read"}))
	as := func(change func(*control.Actor)) *control.Actor {
		c := *known
		change(&c)
		return &c
	}
	for name, c := range map[string]*control.Actor{
		"zero":          {},
		"no kind":       as(func(c *control.Actor) { c.Kind = "" }),
		"unknown kind":  as(func(c *control.Actor) { c.Kind = "user" }),
		"key of nobody": as(func(c *control.Actor) { c.KeyID = "" }),
		"no account":    as(func(c *control.Actor) { c.Account = nil }),
	} {
		of := calls(h, c, target{keyID: k.ID, secret: k.Secret, gatewayID: g.ID, routeID: r.ID, dryRun: dryRun})
		h.wantNoRecords(known.Account.ID, func() {
			for operation, call := range of {
				err := call(ctx())
				if code := fault.CodeOf(err); code != fault.Unauthorized && (code != fault.Forbidden || name != "zero") { // it has no scope either
					t.Errorf("%s by the actor %q: got error %v; want %s", operation, name, err, fault.Unauthorized)
				}
			}
		})
		service := reflect.TypeFor[*control.Service]()
		for i := range service.NumMethod() {
			m := service.Method(i)
			for in := range m.Type.NumIn() {
				if _, tested := of[m.Name]; m.Type.In(in) == reflect.TypeFor[*control.Actor]() && !tested {
					t.Errorf("the operation %s has an actor and is not tested", m.Name)
				}
			}
		}
	}
}

// target is what calls are made on.
type target struct {
	keyID, secret, gatewayID, routeID string
	dryRun                            *control.PushResult
}

// calls returns a valid call by c of every operation that has an actor.
func calls(h *harness, c *control.Actor, on target) map[string]func(ctx context.Context) error {
	p := control.Page{Limit: 1}
	all := map[string]func(ctx context.Context) error{}
	for _, some := range []map[string]func(ctx context.Context) error{
		callsOnGateways(h, c, on), callsOnRoutes(h, c, on), callsOnUpstreams(h, c, on), callsOnRepositories(h, c, on), callsOnWebhooks(h, c), callsOnOwnersAndPlans(h, c, on), callsOnIssuers(h, c), callsOnCertificates(h, c), callsOnUsers(h, c), {
			"AddAccount": func(ctx context.Context) error {
				return second(h.AddAccount(ctx, c, control.AccountInput{Name: "new", Tier: "scale"}))
			},
			"UpdateAccount": func(ctx context.Context) error {
				return second(h.UpdateAccount(ctx, c, "acc_x", control.AccountPatch{Name: value("n")}, nil))
			},
			"DeleteAccount": func(ctx context.Context) error { return second(h.DeleteAccount(ctx, c, "acc_x", nil)) },
			"DeleteNode":    func(ctx context.Context) error { return second(h.DeleteNode(ctx, c, "node_x")) },
			"SignIn": func(ctx context.Context) error {
				_, _, err := h.SignIn(ctx, c)
				return err
			},
			"Key":  func(ctx context.Context) error { return second(h.Key(ctx, c, on.keyID)) },
			"Keys": func(ctx context.Context) error { return second(h.Keys(ctx, c, control.KeyFilter{}, p)) },
			"CreateKey": func(ctx context.Context) error {
				return second(h.CreateKey(ctx, c, control.KeyInput{Name: "n", Scope: "read", Level: string(apikey.GatewayLevel)}))
			},
			"ImportKeys": func(ctx context.Context) error {
				return second(h.ImportKeys(ctx, c, []control.ImportInput{{KeyInput: control.KeyInput{Name: "n", Scope: "read", Level: string(apikey.GatewayLevel)}, Secret: "a-key-of-another-gateway"}}))
			},
			"UpdateKey": func(ctx context.Context) error {
				return second(h.UpdateKey(ctx, c, on.keyID, control.KeyPatch{Name: value("n")}, nil))
			},
			"RotateOwnKey":  func(ctx context.Context) error { return second(h.RotateOwnKey(ctx, c, on.gatewayID, 1)) },
			"UsageOfHolder": func(ctx context.Context) error { return second(h.UsageOfHolder(ctx, c, on.gatewayID)) },
			"RotateKey":     func(ctx context.Context) error { return second(h.RotateKey(ctx, c, on.keyID, 1, "", nil)) },
			"RevokeKey":     func(ctx context.Context) error { return second(h.RevokeKey(ctx, c, on.keyID, nil)) },
			"VerifyKey":     func(ctx context.Context) error { return second(h.VerifyKey(ctx, c, on.secret, "", "", "")) },
			"VerifyToken":   func(ctx context.Context) error { return second(h.VerifyToken(ctx, c, "x", "", "", "")) },
			"AuditLog":      func(ctx context.Context) error { return second(h.AuditLog(ctx, c, audit.Filter{}, p)) },
			"AuditHead":     func(ctx context.Context) error { return second(h.AuditHead(ctx, c)) },
			"AuditChain":    func(ctx context.Context) error { return second(h.AuditChain(ctx, c)) },
			"AuditBlocks":   func(ctx context.Context) error { return second(h.AuditBlocks(ctx, c, 0, 1)) },
			"ExportAudit":   func(ctx context.Context) error { return second(h.ExportAudit(ctx, c, audit.Filter{})) },
			"Traffic":       func(ctx context.Context) error { return second(h.Traffic(ctx, c, traffic.Query{})) },
			"TopTraffic": func(ctx context.Context) error {
				return second(h.TopTraffic(ctx, c, traffic.Query{}, traffic.ByRequests, 1))
			},
			"Request":        func(ctx context.Context) error { return second(h.Request(ctx, c, "req_x")) },
			"Requests":       func(ctx context.Context) error { return second(h.Requests(ctx, c, requestlog.Filter{}, p)) },
			"FollowRequests": func(context.Context) error { return second(h.FollowRequests(c, requestlog.Filter{})) },
		},
	} {
		for operation, call := range some {
			all[operation] = call
		}
	}
	return all
}

func callsOnCertificates(h *harness, c *control.Actor) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"Certificate": func(ctx context.Context) error { return second(h.Certificate(ctx, c, "cert_x")) },
		"Certificates": func(ctx context.Context) error {
			return second(h.Certificates(ctx, c, control.CertificateFilter{}, control.Page{Limit: 1}))
		},
		"RenewCertificate": func(ctx context.Context) error { return second(h.RenewCertificate(ctx, c, "cert_x")) },
	}
}

func callsOnIssuers(h *harness, c *control.Actor) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"Issuer": func(ctx context.Context) error { return second(h.Issuer(ctx, c, "iss_x")) },
		"Issuers": func(ctx context.Context) error {
			return second(h.Issuers(ctx, c, control.IssuerFilter{}, control.Page{Limit: 1}))
		},
		"CreateIssuer": func(ctx context.Context) error {
			return second(h.CreateIssuer(ctx, c, "login", &issuer.Settings{URL: "https://login.example.com", Audiences: []string{"api"}, JWKS: jwksOf("a")}))
		},
		"UpdateIssuer": func(ctx context.Context) error {
			return second(h.UpdateIssuer(ctx, c, "iss_x", func(i *issuer.Issuer) { i.Name = "n" }, nil))
		},
		"Denial": func(ctx context.Context) error { return second(h.Denial(ctx, c, "iss_x", "den_x")) },
		"Denials": func(ctx context.Context) error {
			return second(h.Denials(ctx, c, "iss_x", control.DenialFilter{}, control.Page{Limit: 1}))
		},
		"CreateDenial": func(ctx context.Context) error {
			return second(h.CreateDenial(ctx, c, "iss_x", &issuer.Denial{Subject: "u"}))
		},
		"DeleteDenial":  func(ctx context.Context) error { return second(h.DeleteDenial(ctx, c, "iss_x", "den_x")) },
		"RefreshIssuer": func(ctx context.Context) error { return second(h.RefreshIssuer(ctx, c, "iss_x")) },
		"DeleteIssuer":  func(ctx context.Context) error { return second(h.DeleteIssuer(ctx, c, "iss_x", nil)) },
	}
}

func callsOnOwnersAndPlans(h *harness, c *control.Actor, on target) map[string]func(ctx context.Context) error {
	p := control.Page{Limit: 1}
	return map[string]func(ctx context.Context) error{
		"Owner":        func(ctx context.Context) error { return second(h.Owner(ctx, c, "own_x")) },
		"Owners":       func(ctx context.Context) error { return second(h.Owners(ctx, c, control.OwnerFilter{}, p)) },
		"UsageRecords": func(ctx context.Context) error { return second(h.UsageRecords(ctx, c, usage.Filter{}, control.Page{})) },
		"OpenUsage":    func(ctx context.Context) error { return second(h.OpenUsage(ctx, c, usage.Filter{}, control.Page{})) },
		"ExportUsage":  func(ctx context.Context) error { return second(h.ExportUsage(ctx, c, usage.Filter{}, "")) },
		"ExportOpenUsage": func(ctx context.Context) error {
			return second(h.ExportOpenUsage(ctx, c, usage.Filter{}))
		},
		"OwnerUsage":  func(ctx context.Context) error { return second(h.OwnerUsage(ctx, c, "own_x")) },
		"KeyUsage":    func(ctx context.Context) error { return second(h.KeyUsage(ctx, c, "key_x")) },
		"OwnerGrants": func(ctx context.Context) error { return second(h.OwnerGrants(ctx, c, "own_x", control.Page{Limit: 1})) },
		"KeyGrants":   func(ctx context.Context) error { return second(h.KeyGrants(ctx, c, "key_x", control.Page{Limit: 1})) },
		"GrantToOwner": func(ctx context.Context) error {
			return second(h.GrantToOwner(ctx, c, "own_x", control.GrantInput{Limit: "monthly", Units: 1}))
		},
		"GrantToKey": func(ctx context.Context) error {
			return second(h.GrantToKey(ctx, c, "key_x", control.GrantInput{Limit: "monthly", Units: 1}))
		},
		"CreateOwner": func(ctx context.Context) error {
			return second(h.CreateOwner(ctx, c, control.OwnerInput{ExternalID: "o"}))
		},
		"UpdateOwner": func(ctx context.Context) error {
			return second(h.UpdateOwner(ctx, c, "own_x", control.OwnerPatch{State: value("suspended")}, nil))
		},
		"DeleteOwner": func(ctx context.Context) error { return second(h.DeleteOwner(ctx, c, "own_x", nil)) },
		"Plan":        func(ctx context.Context) error { return second(h.Plan(ctx, c, "plan_x")) },
		"Plans":       func(ctx context.Context) error { return second(h.Plans(ctx, c, control.PlanFilter{}, p)) },
		"KeysOfPlan":  func(ctx context.Context) error { return second(h.KeysOfPlan(ctx, c, "plan_x", p)) },
		"OwnersWithUsage": func(ctx context.Context) error {
			return second(h.OwnersWithUsage(ctx, c, control.OwnerFilter{}, p))
		},
		"OwnersOfPlan": func(ctx context.Context) error { return second(h.OwnersOfPlan(ctx, c, "plan_x", p)) },
		"CreatePlan": func(ctx context.Context) error {
			return second(h.CreatePlan(ctx, c, control.PlanInput{Name: "p"}))
		},
		"UpdatePlan": func(ctx context.Context) error {
			return second(h.UpdatePlan(ctx, c, "plan_x", control.PlanPatch{Title: value("P")}, nil))
		},
		"DeletePlan": func(ctx context.Context) error { return second(h.DeletePlan(ctx, c, "plan_x", nil)) },
		"TryPlan": func(ctx context.Context) error {
			return second(h.TryPlan(ctx, c, "plan_x", control.PlanPatch{Title: value("P")}, nil))
		},
		"PlanEffect": func(ctx context.Context) error { return second(h.PlanEffect(ctx, c, &control.PlanTrial{})) },
		"SimulatePlan": func(ctx context.Context) error {
			return second(h.SimulatePlan(ctx, c, on.gatewayID, control.PlanInput{}))
		},
		"OwnAccount": func(ctx context.Context) error { return second(h.OwnAccount(ctx, c)) },
		"UpdateOwnAccount": func(ctx context.Context) error {
			return second(h.UpdateOwnAccount(ctx, c, control.OwnAccountPatch{}, nil))
		},
	}
}

func callsOnGateways(h *harness, c *control.Actor, on target) map[string]func(ctx context.Context) error {
	id := on.gatewayID
	return map[string]func(ctx context.Context) error{
		"Gateway": func(ctx context.Context) error { return second(h.Gateway(ctx, c, id)) },
		"Gateways": func(ctx context.Context) error {
			return second(h.Gateways(ctx, c, control.GatewayFilter{}, control.Page{Limit: 1}))
		},
		"CreateGateway": func(ctx context.Context) error {
			return second(h.CreateGateway(ctx, c, newGateway("https://h"), emptySpec))
		},
		"CreateGatewayFrom": func(ctx context.Context) error {
			return second(h.CreateGatewayFrom(ctx, c, control.NewGateway{Settings: newGateway("https://h")}))
		},
		"PreviewGateway": func(ctx context.Context) error {
			return second(h.PreviewGateway(ctx, c, control.NewGateway{Settings: newGateway("https://h")}))
		},
		"UpdateGateway": func(ctx context.Context) error {
			return second(h.UpdateGateway(ctx, c, id, newGateway("https://h"), nil))
		},
		"DeleteGateway": func(ctx context.Context) error { return second(h.DeleteGateway(ctx, c, id, nil)) },
		"Limits":        func(ctx context.Context) error { return second(h.Limits(ctx, c, id, control.Page{Limit: 1})) },
		"SimulateLimit": func(ctx context.Context) error {
			limit := ratelimit.Config{Sustained: ratelimit.Rate{Count: 1, Per: time.Second}}
			return second(h.SimulateLimit(ctx, c, id, control.SimulationInput{Limit: limit}))
		},
		"Spec":          func(ctx context.Context) error { return second(h.Spec(ctx, c, id)) },
		"Configuration": func(ctx context.Context) error { return second(h.Configuration(ctx, c, id)) },
		"PushSpec":      func(ctx context.Context) error { return second(h.PushSpec(ctx, c, id, spec("/c"), false, nil)) },
		"PushConfiguration": func(ctx context.Context) error {
			return second(h.PushConfiguration(ctx, c, id, []byte("routes: []"), false, nil))
		},
		"Validation":       func(ctx context.Context) error { return second(h.Validation(ctx, c, id)) },
		"Effect":           func(ctx context.Context) error { return second(h.Effect(ctx, c, on.dryRun)) },
		"Revision":         func(ctx context.Context) error { return second(h.Revision(ctx, c, id, 1)) },
		"RevisionRecord":   func(ctx context.Context) error { return second(h.RevisionRecord(ctx, c, id, 1)) },
		"Revisions":        func(ctx context.Context) error { return second(h.Revisions(ctx, c, id, 1, 0)) },
		"CompareRevisions": func(ctx context.Context) error { return second(h.CompareRevisions(ctx, c, id, 1, 2)) },
		"Rollback":         func(ctx context.Context) error { return second(h.Rollback(ctx, c, id, 1, false, nil)) },
	}
}

func callsOnRoutes(h *harness, c *control.Actor, on target) map[string]func(ctx context.Context) error {
	id, p := on.gatewayID, control.Page{Limit: 1}
	return map[string]func(ctx context.Context) error{
		"Route":        func(ctx context.Context) error { return second(h.Route(ctx, c, id, on.routeID)) },
		"Routes":       func(ctx context.Context) error { return second(h.Routes(ctx, c, id, p)) },
		"SearchRoutes": func(ctx context.Context) error { return second(h.SearchRoutes(ctx, c, id, control.RouteFilter{}, p)) },
		"RecordTry":    func(ctx context.Context) error { return h.RecordTry(ctx, c, id, "GET", "/") },
		"CreateRoute":  func(ctx context.Context) error { return second(h.CreateRoute(ctx, c, id, routeSpec("/z", "GET"))) },
		"UpdateRoute": func(ctx context.Context) error {
			return second(h.UpdateRoute(ctx, c, id, on.routeID, control.RoutePatch{Path: value("/y")}, nil))
		},
		"UpdateRouteLimit": func(ctx context.Context) error {
			p := control.LimitPatch{RateLimit: value(control.RateLimitPatch{Sustained: value("5/s")})}
			return second(h.UpdateRouteLimit(ctx, c, id, on.routeID, p, nil))
		},
		"DeleteRoute": func(ctx context.Context) error { return second(h.DeleteRoute(ctx, c, id, on.routeID, nil)) },
	}
}

func callsOnUpstreams(h *harness, c *control.Actor, on target) map[string]func(ctx context.Context) error {
	id, url := on.gatewayID, "https://orders.internal/base"
	return map[string]func(ctx context.Context) error{
		"Upstreams": func(ctx context.Context) error { return second(h.Upstreams(ctx, c, id, control.Page{Limit: 1})) },
		"Upstream":  func(ctx context.Context) error { return second(h.Upstream(ctx, c, id, "default")) },
		"PutUpstream": func(ctx context.Context) error {
			return second(h.PutUpstream(ctx, c, id, upstreamPatch("next", "http://n"), nil))
		},
		"PatchUpstream": func(ctx context.Context) error {
			return second(h.PatchUpstream(ctx, c, id, upstreamPatch("default", "http://n"), nil))
		},
		"DeleteUpstream": func(ctx context.Context) error { return second(h.DeleteUpstream(ctx, c, id, "next", nil)) },
		"AddTarget": func(ctx context.Context) error {
			return second(h.AddTarget(ctx, c, id, "default", control.NewTarget{Target: gateway.Target{URL: "https://b"}}, nil))
		},
		"PatchTarget": func(ctx context.Context) error {
			return second(h.PatchTarget(ctx, c, id, "default", url, control.TargetPatch{Drain: value(true)}, nil))
		},
		"ReturnTarget": func(ctx context.Context) error { return second(h.ReturnTarget(ctx, c, id, "default", url)) },
		"DeleteTarget": func(ctx context.Context) error { return second(h.DeleteTarget(ctx, c, id, "default", url, nil)) },

		"Canaries": func(ctx context.Context) error { return second(h.Canaries(ctx, c, id, control.Page{Limit: 1})) },
		"Canary":   func(ctx context.Context) error { return second(h.Canary(ctx, c, id, "can_x")) },
		"StartCanary": func(ctx context.Context) error {
			return second(h.StartCanary(ctx, c, id, control.CanaryInput{Upstream: "next"}))
		},
		"PauseCanary":   func(ctx context.Context) error { return second(h.PauseCanary(ctx, c, id, "can_x", nil)) },
		"ResumeCanary":  func(ctx context.Context) error { return second(h.ResumeCanary(ctx, c, id, "can_x", nil)) },
		"PromoteCanary": func(ctx context.Context) error { return second(h.PromoteCanary(ctx, c, id, "can_x", nil)) },
		"AbortCanary":   func(ctx context.Context) error { return second(h.AbortCanary(ctx, c, id, "can_x", nil)) },
	}
}

func callsOnRepositories(h *harness, c *control.Actor, on target) map[string]func(ctx context.Context) error {
	id := on.gatewayID
	return map[string]func(ctx context.Context) error{
		"GetRepository":    func(ctx context.Context) error { return second(h.GetRepository(ctx, c, id)) },
		"PutRepository":    func(ctx context.Context) error { return second(h.PutRepository(ctx, c, id, input(nil), nil)) },
		"SyncRepository":   func(ctx context.Context) error { return second(h.SyncRepository(ctx, c, id, nil)) },
		"ResumeRepository": func(ctx context.Context) error { return second(h.ResumeRepository(ctx, c, id, nil)) },
		"DeleteRepository": func(ctx context.Context) error { return second(h.DeleteRepository(ctx, c, id, nil)) },
	}
}

func callsOnWebhooks(h *harness, c *control.Actor) map[string]func(ctx context.Context) error {
	p := control.Page{Limit: 1}
	return map[string]func(ctx context.Context) error{
		"Webhook":  func(ctx context.Context) error { return second(h.Webhook(ctx, c, "wh_x")) },
		"Webhooks": func(ctx context.Context) error { return second(h.Webhooks(ctx, c, p)) },
		"CreateWebhook": func(ctx context.Context) error {
			return second(h.CreateWebhook(ctx, c, control.WebhookInput{URL: "https://hooks.example", Events: []string{"key.created"}}))
		},
		"UpdateWebhook": func(ctx context.Context) error {
			return second(h.UpdateWebhook(ctx, c, "wh_x", control.WebhookPatch{State: value("active")}, nil))
		},
		"DeleteWebhook": func(ctx context.Context) error { return second(h.DeleteWebhook(ctx, c, "wh_x", nil)) },
		"RotateWebhookSecret": func(ctx context.Context) error {
			return second(h.RotateWebhookSecret(ctx, c, "wh_x", 1, nil))
		},
		"TestWebhook":    func(ctx context.Context) error { return second(h.TestWebhook(ctx, c, "wh_x")) },
		"RecoverWebhook": func(ctx context.Context) error { return second(h.RecoverWebhook(ctx, c, "wh_x", h.clock.now())) },
		"Event":          func(ctx context.Context) error { return second(h.Event(ctx, c, "evt_x")) },
		"Events":         func(ctx context.Context) error { return second(h.Events(ctx, c, control.EventFilter{}, p)) },
		"Delivery":       func(ctx context.Context) error { return second(h.Delivery(ctx, c, "dlv_x")) },
		"Deliveries":     func(ctx context.Context) error { return second(h.Deliveries(ctx, c, control.DeliveryFilter{}, p)) },
		"Redeliver":      func(ctx context.Context) error { return second(h.Redeliver(ctx, c, "dlv_x")) },
	}
}

// Guarantee: only a key can sign in.
func TestOnlyKeysSignIn(t *testing.T) {
	h := newHarness(t)
	_, offline := h.account("acme")
	_, _, err := h.SignIn(ctx(), offline)
	h.wantCode(err, fault.Forbidden, "")
	_, _, err = h.SignIn(ctx(), h.caller("acme", "read"))
	h.must(err)
}
