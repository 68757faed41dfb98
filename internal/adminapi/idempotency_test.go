package adminapi_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func (s *server) postWithKey(key, path, idempotencyKey string, body any) *reply {
	s.t.Helper()
	return s.do(request{method: "POST", path: path, key: key, body: body, header: map[string]string{"Idempotency-Key": idempotencyKey}})
}

// A repeated call is answered as the first was, without doing it again, without
// secrets, through a restart and for 24 hours.
func TestReplay(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	oldID := s.newKey(nil).text("key_id")
	routeID := s.newRoute("", gatewayID, "/a")
	s.putSpec(gatewayID, petSpec).want(200)
	newRoutes := s.get("/v1/gateways/" + gatewayID + "/routes").want(200).data()
	if len(newRoutes) != 2 {
		t.Fatalf("%d routes after the push, want 2 without %s", len(newRoutes), routeID)
	}
	routeID = newRoutes[0]["route_id"].(string)
	hook := s.newWebhook(nil).text("webhook_id")
	for _, call := range []struct {
		path   string
		body   any
		secret string
	}{
		{"/v1/webhooks", map[string]any{"url": "https://hooks.example.com", "events": []string{"key.created"}}, "signing_secret"},
		{"/v1/webhooks", map[string]any{"url": "https://hooks.example.com", "events": []string{"key.created"}, "signing_secret": "sixteen bytes or so"}, "signing_secret standard_webhooks_secret"},
		{"/v1/webhooks/" + hook + "/rotate-secret", nil, "signing_secret"},
		{"/v1/webhooks/" + hook + "/test", nil, ""},
		{"/v1/webhooks/" + hook + "/recover", map[string]any{"since": "2027-03-01"}, ""},
		{"/v1/keys", map[string]any{"name": "a", "scope": "read"}, "key"},
		{"/v1/keys/" + oldID + "/rotate", map[string]any{"overlap_days": 1}, "key"},
		{"/v1/gateways", map[string]any{"name": "a", "upstream_url": "http://x", "upstream_headers": map[string]string{"X-Secret": "hush-hush"}}, ""},
		{"/v1/gateways/" + gatewayID + "/routes", map[string]any{"path": "/new", "methods": []string{"GET"}}, ""},
		{"/v1/gateways/" + gatewayID + "/routes/" + routeID, map[string]any{"rate_limit": map[string]any{"sustained": "1/s"}}, ""},
		{"/v1/gateways/" + gatewayID + "/revisions/1/rollback", nil, ""},
	} {
		idempotencyKey := "again " + call.path + call.secret
		first := s.postWithKey("", call.path, idempotencyKey, call.body)
		if first.status/100 != 2 || first.header.Get("Idempotent-Replayed") != "" {
			t.Fatalf("first: %d %v\n%s", first.status, first.header, first.raw)
		}
		s.restart()
		s.clock.move(24*time.Hour - time.Second)
		second := s.postWithKey("", call.path, idempotencyKey, call.body).want(first.status)
		if second.header.Get("Idempotent-Replayed") != "true" {
			t.Error("Idempotent-Replayed is missing")
		}
		for _, name := range []string{"Location", "ETag", "Content-Type"} {
			if first.header.Get(name) != second.header.Get(name) {
				t.Errorf("%s was %q, is %q", name, first.header.Get(name), second.header.Get(name))
			}
		}
		if first.header.Get("X-Request-Id") == second.header.Get("X-Request-Id") {
			t.Error("X-Request-Id is replayed")
		}
		if call.secret == "" {
			if first.raw != second.raw {
				t.Errorf("first  %s\nsecond %s", first.raw, second.raw)
			}
		} else {
			secrets := strings.Fields(call.secret)
			for _, secret := range secrets {
				if strings.Contains(second.raw, first.text(secret)) || second.json[secret] != nil {
					t.Errorf("the replay holds the secret: %s", second.raw)
				}
			}
			if second.text("message") == "" {
				t.Error("the replay does not say what is missing")
			}
			for name, value := range first.json {
				if !slices.Contains(secrets, name) && second.json[name] == nil && value != nil {
					t.Errorf("%s is missing from the replay", name)
				}
			}
		}
		if strings.Contains(second.raw, "hush-hush") {
			t.Errorf("a header's value is shown: %s", second.raw)
		}
		s.clock.move(2 * time.Second)
		third := s.postWithKey("", call.path, idempotencyKey, call.body)
		if third.header.Get("Idempotent-Replayed") != "" {
			t.Error("replayed after 24 hours")
		}
	}
}

// The same key with any other call is refused, whatever differs.
func TestReplayOfAnotherCall(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	body := `{"name": "a", "scope": "read"}`
	s.postWithKey("", "/v1/keys", "k", body).want(201)
	s.postWithKey("", "/v1/keys", "k", `{"name": "b", "scope": "read"}`).refused(422, "validation_failed", "Idempotency-Key")
	s.postWithKey("", "/v1/keys", "k", body+" ").refused(422, "validation_failed", "Idempotency-Key")
	s.postWithKey("", "/v1/gateways", "k", body).refused(422, "validation_failed", "Idempotency-Key")
	s.postWithKey("", "/v1/gateways/"+gatewayID+"/routes", "k", body).refused(422, "validation_failed", "Idempotency-Key")
	// Another calling key has answers of its own.
	if r := s.postWithKey(s.accountKey("write"), "/v1/keys", "k", body).want(201); r.header.Get("Idempotent-Replayed") != "" {
		t.Error("another key's answer was given")
	}
	// The caller is authorised first.
	s.postWithKey("-", "/v1/keys", "k", body).refused(401, "unauthorized", "")
	s.postWithKey(s.accountKey("read"), "/v1/keys", "k", body).refused(403, "forbidden", "")
	// A call that failed keeps nothing.
	s.postWithKey("", "/v1/keys", "f", `{"name": "a"}`).refused(422, "validation_failed", "scope")
	s.postWithKey("", "/v1/keys", "f", body).want(201)
}

func TestIdempotencyKeyForm(t *testing.T) {
	s := start(t)
	body := `{"name": "a", "scope": "read"}`
	s.postWithKey("", "/v1/keys", strings.Repeat("k", 255), body).want(201)
	s.postWithKey("", "/v1/keys", strings.Repeat("k", 256), body).refused(400, "invalid_request", "Idempotency-Key")
	s.postWithKey("", "/v1/keys", "é", body).refused(400, "invalid_request", "Idempotency-Key")
	// On any POST, those that change nothing included.
	s.postWithKey("", "/v1/keys/verify", "é", `{"key": "x"}`).refused(400, "invalid_request", "Idempotency-Key")
	first := s.postWithKey("", "/v1/keys/verify", "v", `{"key": "x"}`).want(200)
	if second := s.postWithKey("", "/v1/keys/verify", "v", `{"key": "x"}`).want(200); second.header.Get("Idempotent-Replayed") != "true" || first.raw != second.raw {
		t.Errorf("verify was not replayed: %s, then %s", first.raw, second.raw)
	}
	s.postWithKey("", "/v1/keys/verify", "v", `{"key": "y"}`).refused(422, "validation_failed", "Idempotency-Key")
	for name, values := range map[string][]string{"empty": {""}, "two": {"a", "b"}} {
		req, err := http.NewRequest("POST", s.http.URL+"/v1/keys", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Authorization": {"Bearer " + s.admin}, "Content-Type": {"application/json"}, "Idempotency-Key": values}
		res, err := s.http.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 400 {
			t.Errorf("%s: status %d", name, res.StatusCode)
		}
	}
}

// However many calls run at once under one key, exactly one is carried out; the
// others are refused or given its answer.
func TestConcurrentCallsUnderOneKey(t *testing.T) {
	s := start(t)
	const n = 20
	replies := make([]*reply, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { replies[i] = s.postWithKey("", "/v1/keys", "once", `{"name": "a", "scope": "read"}`) })
	}
	wg.Wait()
	made := 0
	for _, r := range replies {
		switch {
		case r.status == 201 && r.header.Get("Idempotent-Replayed") == "":
			made++
		case r.status == 201 && r.json["key"] != nil:
			t.Error("the secret was given twice")
		case r.status == 201:
		default:
			r.refused(409, "conflict", "Idempotency-Key")
		}
	}
	if keys := s.get("/v1/keys?level=gateway").want(200).data(); made != 1 || len(keys) != 1 {
		t.Errorf("%d answers of a creation, %d keys", made, len(keys))
	}
}
