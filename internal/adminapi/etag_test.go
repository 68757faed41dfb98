package adminapi_test

import "testing"

// Guarantee: the ETag of a route that does not say what it requires changes with default_auth of its gateway, and each one of its
// version is one for If-Match.
func TestETagOfARouteHasTheDefaultAuth(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	path := "/v1/gateways/" + gatewayID + "/routes/" + s.newRoute("", gatewayID, "/a")
	get := func(auth, tag string) string {
		t.Helper()
		r := s.do(request{method: "GET", path: path, header: map[string]string{"If-None-Match": tag}}).want(200)
		if r.json["auth"] != auth {
			t.Errorf("got auth %v, want %s", r.json["auth"], auth)
		}
		return r.header.Get("ETag")
	}
	first := get("key", `"0"`)
	s.do(request{method: "PATCH", path: "/v1/gateways/" + gatewayID, body: `{"default_auth": "token"}`}).want(200)
	second := get("token", first)
	s.do(request{method: "GET", path: path, header: map[string]string{"If-None-Match": second}}).want(304)
	s.do(request{method: "PATCH", path: path, body: `{"auth": "none"}`, header: map[string]string{"If-Match": `"9-token"`}}).refused(412, "precondition_failed", "")
	s.do(request{method: "PATCH", path: path, body: `{"auth": "none"}`, header: map[string]string{"If-Match": second}}).want(200)
	s.do(request{method: "PATCH", path: "/v1/gateways/" + gatewayID, body: `{"default_auth": "optional"}`}).refused(422, "validation_failed", "default_auth")
}

// Guarantee: the ETag of a record changes with each change and only then, and a call
// whose If-Match does not match changes nothing.
func TestETagChangesWithTheRecord(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	routeID := s.newRoute("", gatewayID, "/a")
	keyID := s.newKey(nil).text("key_id")
	hook := s.newWebhook(nil).text("webhook_id")
	owner, plan := s.newOwner("", "customer-42"), s.newPlan("", "free")
	for _, record := range []struct{ path, method, change, other string }{
		{"/v1/gateways/" + gatewayID + "/routes/" + routeID, "POST", `{"rate_limit": {"sustained": "1/s"}}`, `{"rate_limit": {"sustained": "2/s"}}`},
		{"/v1/keys/" + keyID, "PATCH", `{"name": "b"}`, `{"name": "c"}`},
		{"/v1/owners/" + owner, "PATCH", `{"state": "suspended"}`, `{"name": "c"}`},
		{"/v1/plans/" + plan, "PATCH", `{"limits": [{"name": "a", "sustained": "1/s"}]}`, `{"limits": null}`},
		{"/v1/webhooks/" + hook, "PATCH", `{"state": "disabled"}`, `{"events": ["key.expired"]}`},
		{"/v1/gateways/" + gatewayID, "PATCH", `{"name": "b"}`, `{"name": "c"}`},
	} {
		t.Run(record.path, func(t *testing.T) {
			s := s.in(t)
			call := func(method, body, match string) *response {
				q := request{method: method, path: record.path, body: body, header: map[string]string{}}
				if body == "" {
					q.body = nil
				}
				if match != "" {
					q.header["If-Match"] = match
				}
				return s.do(q)
			}
			first := s.get(record.path).want(200).header.Get("ETag")
			if len(first) < 3 || first[0] != '"' || first[len(first)-1] != '"' {
				t.Fatalf("got ETag %s, want a strong one", first)
			}
			second := call(record.method, record.change, first).want(200).header.Get("ETag")
			if second == first || second != s.get(record.path).header.Get("ETag") {
				t.Errorf("got ETag %s after a change, want another than %s, and the same from GET", second, first)
			}
			if again := call(record.method, record.change, "").want(200).header.Get("ETag"); again != second {
				t.Errorf("got ETag %s after a call that changed nothing, want %s", again, second)
			}
			for _, stale := range []string{first, `"other"`, "W/" + second, `"a", ` + first} {
				call(record.method, record.other, stale).refused(412, "precondition_failed", "")
				call("DELETE", "", stale).refused(412, "precondition_failed", "")
			}
			for _, bad := range []string{"3", "", `"`, `"a" "b"`, ",", "*, \"a\"", `"a`} {
				if bad != "" {
					call(record.method, record.other, bad).refused(400, "invalid_request", "If-Match")
				}
			}
			if got := s.get(record.path).header.Get("ETag"); got != second {
				t.Errorf("got ETag %s after refused calls, want %s", got, second)
			}
			call(record.method, record.other, "*").want(200)
			third := s.get(record.path).header.Get("ETag")
			call("DELETE", "", `"a" , `+third).want(200)
		})
	}
}

// Guarantee: a push honors If-Match with the ETag of the gateway.
func TestPushHonorsIfMatch(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	put := func(match string) *response {
		return s.do(request{
			method: "PUT", path: "/v1/gateways/" + gatewayID + "/spec", body: petSpec,
			header: map[string]string{"Content-Type": "application/yaml", "If-Match": match},
		})
	}
	put(`"none"`).refused(412, "precondition_failed", "")
	etag := s.get("/v1/gateways/" + gatewayID).header.Get("ETag")
	put(etag).want(200)
	if after := s.get("/v1/gateways/" + gatewayID).header.Get("ETag"); after == etag {
		t.Errorf("got ETag %s after a push, want another one", after)
	}
}

// Guarantee: a rotation honors If-Match with the ETag of the old key, a rollback with the
// gateway's, and a secret rotation with the endpoint's.
func TestRotationAndRollbackHonorIfMatch(t *testing.T) {
	s := start(t)
	keyID := s.newKey(nil).text("key_id")
	gatewayID := s.newGateway("")
	push := func(doc string) {
		s.do(request{
			method: "PUT", path: "/v1/gateways/" + gatewayID + "/spec", body: doc,
			header: map[string]string{"Content-Type": "application/yaml"},
		}).want(200)
	}
	push(petSpec)
	push(petSpec + "\n# again\n")
	hook := s.newWebhook(nil).text("webhook_id")
	for _, c := range []struct {
		record, path string
		body         any
		status       int
	}{
		{"/v1/keys/" + keyID, "/v1/keys/" + keyID + "/rotate", `{"overlap_days": 1}`, 201},
		{"/v1/gateways/" + gatewayID, "/v1/gateways/" + gatewayID + "/revisions/1/rollback", nil, 200},
		{"/v1/webhooks/" + hook, "/v1/webhooks/" + hook + "/rotate-secret", `{}`, 200},
	} {
		post := func(match string) *response {
			return s.do(request{method: "POST", path: c.path, body: c.body, header: map[string]string{"If-Match": match}})
		}
		etag := s.get(c.record).header.Get("ETag")
		post(`"none"`).refused(412, "precondition_failed", "")
		if after := s.get(c.record).header.Get("ETag"); after != etag {
			t.Errorf("%s: got ETag %s after a refused call, want %s", c.record, after, etag)
		}
		post(etag).want(c.status)
	}
}

// Guarantee: GET with the ETag that a record has is a 304 with that ETag and without a body; with another ETag it
// returns the record.
func TestGetHonorsIfNoneMatch(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	for _, path := range []string{
		"/v1/gateways/" + gatewayID, "/v1/gateways/" + gatewayID + "/routes/" + s.newRoute("", gatewayID, "/a"),
		"/v1/keys/" + s.newKey(nil).text("key_id"), "/v1/webhooks/" + s.newWebhook(nil).text("webhook_id"),
		"/v1/accounts/" + s.get("/v1/account").text("account_id"),
	} {
		get := func(match string) *response {
			return s.do(request{method: "GET", path: path, header: map[string]string{"If-None-Match": match}})
		}
		tag := s.get(path).want(200).header.Get("ETag")
		for _, match := range []string{tag, "W/" + tag, `"other", ` + tag, "*"} {
			if r := get(match).want(304); r.raw != "" || r.header.Get("ETag") != tag || r.header.Get("X-Request-Id") == "" {
				t.Errorf("%s with %s: got %q and the headers %v, want no body and the ETag", path, match, r.raw, r.header)
			}
		}
		for _, match := range []string{`"other"`, "3", `"`, ""} {
			get(match).want(200)
		}
	}
}
