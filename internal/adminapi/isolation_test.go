package adminapi_test

import (
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/adminapi"
)

// operations returns a request for every call of the document, with a valid body.
func operations(t *testing.T) []request {
	t.Helper()
	bodies := map[string]string{
		"createGateway": `{"name": "a", "upstream_url": "http://x"}`, "updateGateway": `{"name": "a"}`,
		"putGatewaySpec": petSpec, "putGatewayConfig": "routes: []", "createRoute": `{"path": "/z", "methods": ["GET"]}`,
		"updateRouteLimit": `{"rate_limit": null}`, "updateRoute": `{"path": "/z"}`, "createKey": `{"name": "a", "scope": "read"}`, "importKeys": `{"keys": [{"name": "a", "scope": "read", "key": "a-key-of-another-gateway"}]}`, "updateKey": `{"name": "a"}`,
		"rotateKey": `{"overlap_days": 1}`, "verifyKey": `{"key": "x"}`,
		"putRepository": `{"url": "https://git.example.com/a.git", "branch": "main", "path": "openapi.yaml", "kind": "spec"}`,
		"createWebhook": `{"url": "https://hooks.example.com", "events": ["key.created"]}`, "updateWebhook": `{"state": "active"}`,
		"rotateWebhookSecret": `{"overlap_hours": 1}`, "recoverWebhook": `{"since": "2027-03-01"}`,
		"simulateLimit": `{"rate_limit": {"sustained": "1/s"}}`,
		"tryGateway":    `{"method": "GET", "path": "/"}`,
		"createOwner":   `{"external_id": "o"}`, "updateOwner": `{"state": "suspended"}`, "createPlan": `{"name": "p"}`, "updatePlan": `{"title": "P"}`,
		"createIssuer": `{"name": "i", "issuer": "https://login.example.com", "audiences": ["api"], "jwks": ` + edJWKS + `}`, "updateIssuer": `{"leeway": "5s"}`, "createDenial": `{"subject": "u"}`,
		"createInvitation": `{"email": "ada@example.com", "role": "viewer"}`, "decideDevice": `{"user_code": "BBBB-BBBB", "approve": false}`, "updateUser": `{"role": "viewer"}`,
		"createOwnerGrant": `{"limit": "l", "units": 1}`, "createKeyGrant": `{"limit": "l", "units": 1}`,
		"putUpstream": `{"targets": [{"url": "http://a"}]}`, "updateUpstream": `{"timeout": "5s"}`, "addTarget": `{"url": "http://a"}`, "startCanary": `{"upstream": "default"}`, "updateTarget": `{"drain": true}`,
		"updateAccountDefaults": `{"default_plan": null}`,
		"createAccount":         `{"name": "acme", "plan": "starter"}`, "updateAccount": `{"plan": "scale"}`,
	}
	var out []request
	for path, item := range adminapi.Document().Paths {
		for _, op := range []*huma.Operation{item.Get, item.Put, item.Post, item.Patch, item.Delete} {
			if op == nil || len(op.Security) > 0 { // a call that needs no key
				continue
			}
			q := request{method: op.Method, path: path}
			for _, p := range op.Parameters {
				if p.In == "query" && p.Required {
					q.path += "?" + p.Name + "=x"
				}
			}
			if op.RequestBody != nil {
				body, known := bodies[op.OperationID]
				if !known {
					t.Fatalf("no body for %s", op.OperationID)
				}
				q.body = body
			}
			if strings.HasPrefix(op.OperationID, "putGateway") {
				q.header = map[string]string{"Content-Type": "text/plain"}
			}
			out = append(out, q)
		}
	}
	return out
}

// Guarantee: for every call, the records of another account do not exist.
func TestAccountsSeeNothingOfEachOther(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	routeID := s.newRoute("", gatewayID, "/a")
	s.putSpec(gatewayID, petSpec+"  /a:\n    get: {responses: {}}\n").want(200)
	key := s.newKey(map[string]any{"gateway_id": gatewayID})
	hook := s.newWebhook(nil).text("webhook_id")
	owner, plan, issuer := s.newOwner("", "customer-42"), s.newPlan("", "free"), s.newIssuer("", "login").text("issuer_id")
	certificate := s.newCertificate("", "shop.example.com")
	denial := s.newDenial("", issuer).text("denial_id")
	s.newKey(nil) // raises an event, which is delivered
	delivery := s.get("/v1/webhook-deliveries").want(200).data()[0]["delivery_id"].(string)
	event := s.get("/v1/events").want(200).data()[0]["id"].(string)
	stranger := s.newAccount("other")
	strangersGateway := s.newGateway(stranger)

	ours := strings.NewReplacer("{user_id}", "usr_x", "{token_id}", "tok_x", "{invitation_id}", "inv_x", "{owner_id}", owner, "{plan_id}", plan, "{issuer_id}", issuer, "{certificate_id}", certificate, "{denial_id}", denial, "{webhook_id}", hook, "{delivery_id}", delivery, "{event_id}", event,
		"{gateway_id}", gatewayID, "{upstream}", "default", "{route_id}", routeID, "{key_id}", key.text("key_id"), "{number}", "1")
	mixed := strings.NewReplacer("{gateway_id}", strangersGateway, "{route_id}", routeID, "{key_id}", key.text("key_id"), "{number}", "1")
	for _, q := range operations(t) {
		if !strings.Contains(q.path, "{") || strings.HasPrefix(q.path, "/v1/accounts") || strings.HasPrefix(q.path, "/v1/nodes") { // the operator's: a 403
			continue
		}
		template := q.path
		q.key = stranger
		q.path = ours.Replace(template)
		s.do(q).refused(404, "not_found", "")
		if strings.Contains(template, "{route_id}") || strings.Contains(template, "{number}") {
			q.path = mixed.Replace(template) // a route of the first account in a gateway of the other
			s.do(q).refused(404, "not_found", "")
		}
		s.clock.move(1e9)
	}
	for _, path := range []string{"/v1/gateways", "/v1/keys", "/v1/webhooks", "/v1/webhook-deliveries", "/v1/webhook-deliveries?webhook_id=" + hook, "/v1/events",
		"/v1/owners", "/v1/owners?external_id=customer-42", "/v1/owners?plan_id=" + plan, "/v1/plans", "/v1/plans?name=free", "/v1/keys?plan_id=" + plan, "/v1/issuers", "/v1/issuers?name=login", "/v1/certificates", "/v1/certificates?hostname=shop.example.com"} {
		r := s.do(request{method: "GET", path: path, key: stranger}).want(200)
		for _, id := range []string{owner, plan, issuer, certificate, gatewayID, key.text("key_id"), hook, delivery, event} {
			if strings.Contains(r.raw, id) {
				t.Errorf("%s contains a record of another account: %s", path, r.raw)
			}
		}
	}
	verify := s.do(request{method: "POST", path: "/v1/keys/verify", key: stranger, body: map[string]any{"key": key.text("key")}}).want(200)
	if verify.json["valid"] != false || verify.json["key_id"] != nil || verify.json["code"] != "key_invalid" {
		t.Errorf("verify of another account's key: got %s, want key_invalid", verify.raw)
	}
	s.do(request{method: "POST", path: "/v1/keys", key: stranger, body: map[string]any{
		"name": "a", "scope": "read", "gateway_id": gatewayID,
	}}).refused(422, "validation_failed", "gateway_id")
	s.wantNoPlanOf(stranger, strangersGateway, gatewayID, plan)
	// None of the calls had an effect.
	s.get("/v1/gateways/" + gatewayID).want(200)
	if s.get("/v1/keys/"+key.text("key_id")).want(200).text("state") != "active" {
		t.Error("another account revoked the key")
	}
	if w := s.get("/v1/webhooks/" + hook).want(200); w.text("state") != "active" || w.header.Get("ETag") != `"1"` {
		t.Error("another account changed the endpoint")
	}
	if s.get("/v1/owners/"+owner).want(200).text("state") != "active" || s.get("/v1/plans/" + plan).want(200).json["title"] != nil {
		t.Error("another account changed the owner or the plan")
	}
}

// wantNoPlanOf fails unless every field that names a plan, and the gateway of a limit, is refused to the stranger as if
// there were no such record, and an owner's external ID names the stranger's own owner.
func (s *server) wantNoPlanOf(stranger, strangersGateway, gatewayID, planID string) {
	s.t.Helper()
	own := s.newOwner(stranger, "customer-42")
	key := s.do(request{method: "POST", path: "/v1/keys", key: stranger, body: map[string]any{"name": "a", "scope": "read", "owner": "customer-42"}}).want(201)
	if key.text("owner_id") != own {
		s.t.Errorf("got the owner %s, want the stranger's own, %s", key.text("owner_id"), own)
	}
	for field, value := range map[string]string{"plan_id": planID, "plan": "free"} {
		for _, q := range []request{
			{method: "POST", path: "/v1/keys", body: map[string]any{"name": "a", "scope": "read", field: value}},
			{method: "PATCH", path: "/v1/keys/" + key.text("key_id"), body: map[string]any{field: value}},
			{method: "POST", path: "/v1/owners", body: map[string]any{"external_id": "a", field: value}},
			{method: "PATCH", path: "/v1/owners/" + own, body: map[string]any{field: value}},
		} {
			q.key = stranger
			s.do(q).refused(422, "validation_failed", field)
		}
		s.do(request{method: "PATCH", path: "/v1/account", key: stranger, body: map[string]any{"default_" + field: value}}).refused(422, "validation_failed", "default_"+field)
	}
	s.do(request{method: "PATCH", path: "/v1/gateways/" + strangersGateway, key: stranger, body: map[string]any{"default_plan": "free"}}).refused(422, "validation_failed", "default_plan")
	limits := []any{map[string]any{"name": "a", "sustained": "1/s", "gateway_id": gatewayID}}
	s.do(request{method: "POST", path: "/v1/plans", key: stranger, body: map[string]any{"name": "a", "limits": limits}}).refused(422, "validation_failed", "limits[0].gateway_id")
	s.do(request{method: "POST", path: "/v1/gateways/" + strangersGateway + "/limits/simulate", key: stranger, body: map[string]any{"plan": map[string]any{"limits": limits}}}).
		refused(422, "validation_failed", "plan.limits[0].gateway_id")
}

// Guarantee: every call needs the scope for its method (specification, Authentication,
// 3), and a resource that covers its path.
func TestEveryCallNeedsItsScope(t *testing.T) {
	s := start(t)
	s.handler.EndStreams() // so that each ends as soon as it has begun
	ids := strings.NewReplacer("{user_id}", "usr_x", "{token_id}", "tok_x", "{invitation_id}", "inv_x", "{owner_id}", "own_x", "{upstream}", "default", "{plan_id}", "plan_x", "{issuer_id}", "iss_x", "{certificate_id}", "cert_x", "{denial_id}", "den_x", "{gateway_id}", "gw_x", "{route_id}", "rt_x", "{key_id}", "key_x", "{number}", "1", "{webhook_id}", "wh_x", "{delivery_id}", "dlv_x", "{canary_id}", "can_x", "{event_id}", "evt_x", "{account_id}", "acct_x")
	keys := map[string]string{}
	for _, scope := range []string{"admin:webhooks", "write:webhooks", "write:webhook-deliveries", "read:events", "read", "write", "admin", "read:keys", "write:keys", "admin:keys", "write:issuers", "admin:issuers", "admin:gateways", "admin:gateway", "read:keys/verify", "admin:gateways/gw_x", "admin:gateways/gw_x/upstreams", "read:keys write:gateways", "read admin:webhooks"} {
		keys[scope] = s.accountKey(scope)
	}
	for _, q := range operations(t) {
		path := ids.Replace(q.path)
		for scope, key := range keys {
			need := map[string]string{"GET": "read", "DELETE": "admin"}[q.method]
			if need == "" {
				need = "write"
			}
			if path == "/v1/keys/verify" {
				need = "read"
			}
			if need == "write" && strings.HasPrefix(path, "/v1/issuers") && !strings.HasSuffix(path, "/refresh") && !strings.HasSuffix(path, "/denials") { // gives tokens any scope
				need = "admin"
			}
			power := "read write admin"
			allowed := path == "/v1/account" && q.method == "GET" || path == "/v1/session"
			for one := range strings.FieldsSeq(scope) {
				word, resource, _ := strings.Cut(one, ":")
				within := resource == "" || path == "/v1/"+resource || strings.HasPrefix(path, "/v1/"+resource+"/")
				allowed = allowed || within && strings.Index(power, word) >= strings.Index(power, need)
			}
			if strings.HasPrefix(path, "/v1/users") { // decides who may do everything
				allowed = scope == "admin"
			}
			if strings.HasPrefix(path, "/v1/session/device") { // for the sessions of users
				allowed = false
			}
			if path == "/v1/accounts" && q.method == "POST" { // issues a key with the scope admin
				allowed = scope == "admin"
			}
			call := q
			call.path, call.key = path, key
			r := s.do(call)
			if allowed && r.status == 403 {
				t.Errorf("%s with scope %s: got 403, want the call to be allowed\n%s", r.what, scope, r.raw)
			}
			if !allowed && r.status != 403 {
				t.Errorf("%s with scope %s: got %d, want 403\n%s", r.what, scope, r.status, r.raw)
			}
			if r.status == 403 && (r.refused(403, "forbidden", "").text("code") != "scope_insufficient") {
				t.Errorf("%s with scope %s: got code %v, want scope_insufficient", r.what, scope, r.json["code"])
			}
		}
		s.clock.move(1e9)
	}
}

// Guarantee: no key grants more than it has, for every combination of the calling key's
// scope with the level and scope of the other key.
func TestNoKeyGrantsMoreThanItHas(t *testing.T) {
	s := start(t)
	rank := map[string]int{"read": 1, "write": 2, "admin": 3}
	callers := []string{"read", "write", "admin", "write:keys", "admin:keys"}
	for _, caller := range callers {
		key := s.accountKey(caller)
		word, resource, _ := strings.Cut(caller, ":")
		full := word == "admin" && resource == ""
		for _, level := range []string{"gateway", "account"} {
			for _, granted := range []string{"read", "write", "admin", "read:orders", "admin:orders"} {
				grantedWord, _, _ := strings.Cut(granted, ":")
				may := word != "read" && (full || level == "gateway" && rank[grantedWord] <= rank[word])
				check := func(what string, r *response, done int) {
					t.Helper()
					want := 403
					if may {
						want = done
					}
					if r.status != want {
						t.Errorf("%s: a key with scope %s %s a %s-level key with scope %s: got status %d, want %d", r.what, caller, what, level, granted, r.status, want)
					}
				}
				body := map[string]any{"name": "a", "scope": granted, "level": level}
				check("creates", s.do(request{method: "POST", path: "/v1/keys", key: key, body: body}), 201)
				target := s.newKey(map[string]any{"scope": granted, "level": level}).text("key_id")
				check("rotates", s.do(request{method: "POST", path: "/v1/keys/" + target + "/rotate", key: key, body: `{"overlap_days": 1}`}), 201)
				if level == "account" {
					target = s.newKey(map[string]any{"scope": granted, "level": level}).text("key_id")
					check("patches", s.do(request{method: "PATCH", path: "/v1/keys/" + target, key: key, body: `{"name": "b"}`}), 200)
					check("revokes", s.do(request{method: "DELETE", path: "/v1/keys/" + target, key: key}), 200)
				}
				s.clock.move(1e9)
			}
		}
	}
}

// Guarantee: a key may revoke itself, whatever its scope, but no other key.
func TestKeyMayRevokeItself(t *testing.T) {
	s := start(t)
	for _, scope := range []string{"read", "write", "read:gateways", "admin:keys", "admin"} {
		own := s.newKey(map[string]any{"level": "account", "scope": scope})
		other := s.newKey(map[string]any{"level": "account"}).text("key_id")
		if scope != "admin" {
			s.do(request{method: "DELETE", path: "/v1/keys/" + other, key: own.text("key")}).refused(403, "forbidden", "")
		}
		r := s.do(request{method: "DELETE", path: "/v1/keys/" + own.text("key_id"), key: own.text("key")}).want(200)
		if r.text("state") != "revoked" {
			t.Errorf("scope %s: got state %s, want revoked", scope, r.text("state"))
		}
		s.do(request{method: "GET", path: "/v1/account", key: own.text("key")}).refused(401, "unauthorized", "")
	}
}
