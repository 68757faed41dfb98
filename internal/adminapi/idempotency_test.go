package adminapi_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// postWithKey sends a POST with an Idempotency-Key.
func (s *server) postWithKey(key, path, idempotencyKey string, body any) *response {
	s.t.Helper()
	return s.do(request{method: "POST", path: path, key: key, body: body, header: map[string]string{"Idempotency-Key": idempotencyKey}})
}

// Guarantee: a repeated call gets the first response without being executed again,
// without secrets, across a restart and for 24 hours.
func TestRepeatedPostIsReplayed(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	oldID := s.newKey(nil).text("key_id")
	routeID := s.newRoute("", gatewayID, "/a")
	s.putSpec(gatewayID, petSpec).want(200)
	newRoutes := s.get("/v1/gateways/" + gatewayID + "/routes").want(200).data()
	if len(newRoutes) != 2 {
		t.Fatalf("got %d routes after the push, want 2 without %s", len(newRoutes), routeID)
	}
	routeID = newRoutes[0]["route_id"].(string)
	hook := s.newWebhook(nil).text("webhook_id")
	calls := []replayedCall{
		{"create an endpoint", "/v1/webhooks", map[string]any{"url": "https://hooks.example.com", "events": []string{"key.created"}}, "signing_secret"},
		{"create an endpoint with a given secret", "/v1/webhooks", map[string]any{"url": "https://hooks.example.com/given", "events": []string{"key.created"}, "signing_secret": "sixteen bytes or so"}, "signing_secret standard_webhooks_secret"},
		{"rotate a secret", "/v1/webhooks/" + hook + "/rotate-secret", nil, "signing_secret"},
		{"test an endpoint", "/v1/webhooks/" + hook + "/test", nil, ""},
		{"recover", "/v1/webhooks/" + hook + "/recover", map[string]any{"since": "2027-03-01"}, ""},
		{"create a key", "/v1/keys", map[string]any{"name": "a", "scope": "read"}, "key"},
		{"rotate a key", "/v1/keys/" + oldID + "/rotate", map[string]any{"overlap_days": 1}, "key"},
		{"create an account", "/v1/accounts", map[string]any{"name": "acme", "plan": "starter"}, "key"},
		{"create a gateway", "/v1/gateways", map[string]any{"name": "a", "upstream_url": "http://x", "upstream_headers": map[string]string{"X-Secret": "hush-hush"}}, ""},
		{"create a route", "/v1/gateways/" + gatewayID + "/routes", map[string]any{"path": "/new", "methods": []string{"GET"}}, ""},
		{"change a limit", "/v1/gateways/" + gatewayID + "/routes/" + routeID, map[string]any{"rate_limit": map[string]any{"sustained": "1/s"}}, ""},
		{"roll back", "/v1/gateways/" + gatewayID + "/revisions/1/rollback", nil, ""},
	}
	post := func(t *testing.T, call *replayedCall) *response {
		t.Helper()
		return s.in(t).postWithKey("", call.path, "again "+call.path+call.secrets, call.body)
	}
	first := make([]*response, len(calls))
	for i := range calls {
		first[i] = post(t, &calls[i])
		if r := first[i]; r.status/100 != 2 || r.header.Get("Idempotent-Replayed") != "" {
			t.Fatalf("%s: got status %d, %v, want success and no replay\n%s", r.what, r.status, r.header, r.raw)
		}
	}
	s.restart()
	s.clock.move(24*time.Hour - time.Second)
	for i := range calls {
		t.Run(calls[i].name, func(t *testing.T) {
			calls[i].wantReplay(t, first[i], post(t, &calls[i]).want(first[i].status))
		})
	}
	s.clock.move(2 * time.Second)
	for i := range calls {
		if r := post(t, &calls[i]); r.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("%s: got a replay after 24 hours, want a new call", r.what)
		}
	}
}

// replayedCall is a call whose response is replayed.
type replayedCall struct {
	name    string
	path    string
	body    any
	secrets string // names of the fields that a replay omits, separated by spaces
}

// wantReplay fails the test unless second is a replay of first.
func (call *replayedCall) wantReplay(t *testing.T, first, second *response) {
	t.Helper()
	if second.header.Get("Idempotent-Replayed") != "true" {
		t.Error("the replay has no Idempotent-Replayed header")
	}
	for _, name := range []string{"Location", "ETag", "Content-Type"} {
		if first.header.Get(name) != second.header.Get(name) {
			t.Errorf("got %s %q in the replay, want %q", name, second.header.Get(name), first.header.Get(name))
		}
	}
	if first.header.Get("X-Request-Id") == second.header.Get("X-Request-Id") {
		t.Error("the replay has the X-Request-Id of the first response, want a new one")
	}
	if strings.Contains(second.raw, "hush-hush") {
		t.Errorf("the replay contains the value of an upstream header: %s", second.raw)
	}
	secrets := strings.Fields(call.secrets)
	if len(secrets) == 0 {
		if first.raw != second.raw {
			t.Errorf("got replay %s, want %s", second.raw, first.raw)
		}
		return
	}
	for _, secret := range secrets {
		if strings.Contains(second.raw, first.text(secret)) || second.json[secret] != nil {
			t.Errorf("the replay contains the secret: %s", second.raw)
		}
	}
	if second.text("message") == "" {
		t.Error("the replay has no message about the missing secret")
	}
	for name, value := range first.json {
		if !slices.Contains(secrets, name) && second.json[name] == nil && value != nil {
			t.Errorf("the replay has no %s, want that of the first response", name)
		}
	}
}

// Guarantee: an Idempotency-Key with a different request is refused, whatever differs.
func TestIdempotencyKeyOfAnotherRequestIsRefused(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	body := `{"name": "a", "scope": "read"}`
	s.postWithKey("", "/v1/keys", "k", body).want(201)
	s.postWithKey("", "/v1/keys", "k", `{"name": "b", "scope": "read"}`).refused(422, "validation_failed", "Idempotency-Key")
	s.postWithKey("", "/v1/keys", "k", body+" ").refused(422, "validation_failed", "Idempotency-Key")
	s.postWithKey("", "/v1/gateways", "k", body).refused(422, "validation_failed", "Idempotency-Key")
	s.postWithKey("", "/v1/gateways/"+gatewayID+"/routes", "k", body).refused(422, "validation_failed", "Idempotency-Key")
	// Stored responses are separate for each calling key.
	if r := s.postWithKey(s.accountKey("write"), "/v1/keys", "k", body).want(201); r.header.Get("Idempotent-Replayed") != "" {
		t.Error("got the response of another calling key")
	}
	// The call is authorized before a stored response is used.
	s.postWithKey("-", "/v1/keys", "k", body).refused(401, "unauthorized", "")
	s.postWithKey(s.accountKey("read"), "/v1/keys", "k", body).refused(403, "forbidden", "")
	// Errors are not stored.
	s.postWithKey("", "/v1/keys", "f", `{"name": "a"}`).refused(422, "validation_failed", "scope")
	s.postWithKey("", "/v1/keys", "f", body).want(201)
}

// Guarantee: an Idempotency-Key is one header of 1 to 255 printable ASCII characters, on
// any POST.
func TestMalformedIdempotencyKeyIsRefused(t *testing.T) {
	s := start(t)
	body := `{"name": "a", "scope": "read"}`
	s.postWithKey("", "/v1/keys", strings.Repeat("k", 255), body).want(201)
	s.postWithKey("", "/v1/keys", strings.Repeat("k", 256), body).refused(400, "invalid_request", "Idempotency-Key")
	s.postWithKey("", "/v1/keys", "é", body).refused(400, "invalid_request", "Idempotency-Key")
	// Also on a POST that changes nothing.
	s.postWithKey("", "/v1/keys/verify", "é", `{"key": "x"}`).refused(400, "invalid_request", "Idempotency-Key")
	first := s.postWithKey("", "/v1/keys/verify", "v", `{"key": "x"}`).want(200)
	if second := s.postWithKey("", "/v1/keys/verify", "v", `{"key": "x"}`).want(200); second.header.Get("Idempotent-Replayed") != "true" || first.raw != second.raw {
		t.Errorf("second verify: got %s, want a replay of %s", second.raw, first.raw)
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
			t.Errorf("%s: got status %d, want 400", name, res.StatusCode)
		}
	}
}

// Guarantee: of concurrent calls with the same Idempotency-Key, exactly one is executed;
// the others are refused or get its response.
func TestConcurrentCallsUnderOneKeyExecuteOnce(t *testing.T) {
	s := start(t)
	const n = 20
	responses := make([]*response, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { responses[i] = s.postWithKey("", "/v1/keys", "once", `{"name": "a", "scope": "read"}`) })
	}
	wg.Wait()
	executed := 0
	for _, r := range responses {
		switch {
		case r.status == 201 && r.header.Get("Idempotent-Replayed") == "":
			executed++
		case r.status == 201 && r.json["key"] != nil:
			t.Error("a replay contains the secret")
		case r.status == 201:
		default:
			r.refused(409, "conflict", "Idempotency-Key")
		}
	}
	if keys := s.get("/v1/keys?level=gateway").want(200).data(); executed != 1 || len(keys) != 1 {
		t.Errorf("got %d executed calls and %d keys, want 1 and 1", executed, len(keys))
	}
}

// Guarantee: a call with an Idempotency-Key whose response exceeds what is kept for the account is a
// 429 that says when to retry. A repeated call still gets its response.
func TestTooManyKeptResponses(t *testing.T) {
	s := start(t)
	s.bounds.Responses = 1
	s.restart()
	body := map[string]any{"name": "a", "scope": "read"}
	s.postWithKey("", "/v1/keys", "first", body).want(201)
	r := s.postWithKey("", "/v1/keys", "second", body).want(429)
	if r.json["error"] != "rate_limit_exceeded" || r.json["limit_scope"] != "account" || r.json["limit"] != 1.0 || r.json["remaining"] != 0.0 ||
		r.json["reset_at"] != float64(s.clock.Now().Unix()+60) || r.header.Get("Retry-After") != "60" || r.header.Get("X-RateLimit-Limit") != "1" {
		t.Errorf("got %v, %s", r.header, r.raw)
	}
	if r := s.postWithKey("", "/v1/keys", "first", body).want(201); r.header.Get("Idempotent-Replayed") != "true" {
		t.Error("the repeated call got no replay")
	}
	s.do(request{method: "POST", path: "/v1/keys", body: body}).want(201)
}
