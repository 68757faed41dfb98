package adminapi_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
	"github.com/keygate/keygate/internal/webhook/sender/sendertest"
)

const (
	webhookFields  = "webhook_id url events state disabled_reason paused_until created_at"
	deliveryFields = "delivery_id webhook_id event_id event_type state trigger attempts next_attempt_at created_at"
)

// newWebhook creates an endpoint for key.created with the given additional fields.
func (s *server) newWebhook(fields map[string]any) *response {
	s.t.Helper()
	body := map[string]any{"url": "https://hooks.example.com/in", "events": []string{"key.created"}, "allow_duplicate": true}
	for k, v := range fields {
		body[k] = v
	}
	return s.post("/v1/webhooks", body).want(201)
}

// attempt records attempt a for all deliveries that are due, as a sender does. A state
// other than RetryScheduled ends the deliveries.
func (s *server) attempt(state webhook.DeliveryState, a webhook.Attempt) {
	s.t.Helper()
	ctx := context.Background()
	now := s.clock.Now()
	jobs := must(sendertest.ClaimAll(ctx, s.db, sender.Claim{Now: now, Token: "t" + now.String(), Until: now.Add(time.Minute)}, 100))(s.t)
	var results []sender.Result
	for _, j := range jobs {
		r := sender.Result{Lease: j.Lease, Attempt: a, State: state}
		r.Attempt.Number, r.Attempt.StartedAt = j.Attempt, now
		if state == webhook.RetryScheduled {
			r.NextAttemptAt = now.Add(10 * time.Second)
		}
		results = append(results, r)
	}
	if late := must(s.db.FinishDeliveries(ctx, results))(s.t); late != 0 || len(jobs) == 0 {
		s.t.Fatalf("got %d due deliveries, %d results too late, want some and none", len(jobs), late)
	}
}

// Guarantee: an endpoint is created, changed, rotated and deleted with the fields of the
// contract (section 3.3). Only the creation and a rotation return a secret.
func TestWebhookIsCreatedRotatedAndDeleted(t *testing.T) {
	s := start(t)
	created := s.newWebhook(map[string]any{"events": []string{"key.revoked", "key.created", "key.revoked"}, "signing_secret": "auto"})
	id := created.text("webhook_id")
	wantFields(t, created.json, webhookFields+" signing_secret")
	if created.header.Get("Location") != "/v1/webhooks/"+id || created.header.Get("ETag") != `"1"` || !strings.HasPrefix(id, "wh_") ||
		created.text("state") != "active" || created.json["disabled_reason"] != nil || created.text("created_at") != "2027-03-01T12:00:00Z" ||
		fmt.Sprint(created.json["events"]) != "[key.revoked key.created]" {
		t.Errorf("got %v\n%s\nwant an active endpoint with two events, Location and ETag 1", created.header, created.raw)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(created.text("signing_secret"), "whsec_"))
	if err != nil || len(key) != 32 {
		t.Errorf("got secret %s, want whsec_ and the base64 of 32 bytes", created.text("signing_secret"))
	}
	got := s.get("/v1/webhooks/" + id).want(200)
	wantFields(t, got.json, webhookFields)
	list := s.get("/v1/webhooks").want(200)
	wantFields(t, list.data()[0], webhookFields)

	t.Run("PATCH disables and enables the endpoint", func(t *testing.T) {
		s := s.in(t)
		patched := s.do(request{method: "PATCH", path: "/v1/webhooks/" + id, body: `{"url": "https://other.example.com", "events": ["gateway.spec_pushed"], "state": "disabled"}`}).want(200)
		wantFields(t, patched.json, webhookFields)
		if patched.text("url") != "https://other.example.com" || patched.text("state") != "disabled" || patched.text("disabled_reason") == "" {
			t.Errorf("got %s, want the new URL, state disabled and a reason", patched.raw)
		}
		s.post("/v1/webhooks/"+id+"/test", nil).refused(409, "conflict", "")
		enabled := s.do(request{method: "PATCH", path: "/v1/webhooks/" + id, body: `{"state": "active"}`}).want(200)
		if enabled.text("state") != "active" || enabled.json["disabled_reason"] != nil {
			t.Errorf("got %s, want state active and no reason", enabled.raw)
		}
	})
	t.Run("a rotation returns a new secret", func(t *testing.T) {
		s := s.in(t)
		rotated := s.post("/v1/webhooks/"+id+"/rotate-secret", nil).want(200) // the body is optional
		wantFields(t, rotated.json, webhookFields+" signing_secret")
		if rotated.text("signing_secret") == created.text("signing_secret") {
			t.Error("got the old secret, want a new one")
		}
		for _, path := range []string{"/v1/webhooks", "/v1/webhooks/" + id} {
			if strings.Contains(s.get(path).want(200).raw, "whsec_") {
				t.Errorf("%s contains a secret", path)
			}
		}
		s.post("/v1/webhooks/"+id+"/rotate-secret", `{"overlap_hours": 0}`).want(200)
		s.post("/v1/webhooks/"+id+"/rotate-secret", `{"overlap_hours": null}`).want(200)
	})
	t.Run("a deleted endpoint does not exist", func(t *testing.T) {
		s := s.in(t)
		wantFields(t, s.do(request{method: "DELETE", path: "/v1/webhooks/" + id}).want(200).json, webhookFields)
		for _, q := range []request{
			{method: "GET"}, {method: "DELETE"}, {method: "PATCH", body: `{"state": "active"}`}, {method: "POST", path: "/rotate-secret", body: `{}`},
			{method: "POST", path: "/test"}, {method: "POST", path: "/recover", body: `{"since": "2027-03-01"}`},
		} {
			q.path = "/v1/webhooks/" + id + q.path
			s.do(q).refused(404, "not_found", "")
		}
	})
}

// Guarantee: a given secret is used as it is. If it does not have the form of Standard
// Webhooks, the response also has it in that form.
func TestGivenSecretIsUsedUnchanged(t *testing.T) {
	s := start(t)
	for given, standard := range map[string]string{
		"exactly 16 bytes":           "whsec_ZXhhY3RseSAxNiBieXRlcw==",
		strings.Repeat("x", 128):     "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", 128))),
		"whsec_not base 64 at all":   "whsec_" + base64.StdEncoding.EncodeToString([]byte("whsec_not base 64 at all")),
		"whsec_MDEyMzQ1Njc4OWFiY2Rl": "",
	} {
		created := s.newWebhook(map[string]any{"signing_secret": given})
		if created.text("signing_secret") != given {
			t.Errorf("got signing_secret %s, want %s", created.text("signing_secret"), given)
		}
		if got, _ := created.json["standard_webhooks_secret"].(string); got != standard {
			t.Errorf("%s: got standard_webhooks_secret %q, want %q", given, got, standard)
		}
	}
}

// Guarantee: events are returned byte for byte as they are delivered, with or without an
// endpoint. The list does not contain test events.
func TestEventsAreReturnedAsDelivered(t *testing.T) {
	s := start(t)
	first := s.newKey(map[string]any{"name": "a <b> & \u00e9\U0001f511"}).text("key_id")
	hook := s.newWebhook(nil).text("webhook_id")
	s.clock.move(time.Second)
	second := s.newKey(nil).text("key_id")
	s.do(request{method: "DELETE", path: "/v1/keys/" + second}).want(200)
	s.post("/v1/webhooks/"+hook+"/test", nil).want(200)

	all := s.get("/v1/events").want(200)
	if len(all.data()) != 4 { // including the creation of the first admin key
		t.Fatalf("got %s, want 4 events", all.raw)
	}
	for _, e := range all.data() {
		wantFields(t, e, "id type created_at data")
		one := s.get("/v1/events/" + e["id"].(string)).want(200)
		if one.header.Get("Content-Type") != "application/json" || !strings.Contains(all.raw, one.raw) {
			t.Errorf("got %s, want the bytes in the list %s", one.raw, all.raw)
		}
	}
	newest := all.data()[0]
	if newest["type"] != "key.revoked" || newest["data"].(map[string]any)["key_id"] != second {
		t.Errorf("got newest event %v, want key.revoked of %s", newest, second)
	}
	for query, want := range map[string]int{
		"type=key.created": 3, "type=key.revoked": 1, "type=key.expired": 0, "since=2027-03-01T12:00:01Z": 2, "until=2027-03-01T12:00:01Z": 2,
		"type=key.created&since=2027-03-01T12:00:01Z": 1, "since=2027-03-02": 0, "since=2027-03-01": 4,
	} {
		if n := len(s.get("/v1/events?" + query).want(200).data()); n != want {
			t.Errorf("%s: got %d events, want %d", query, n, want)
		}
	}
	delivered := s.get("/v1/webhook-deliveries?event_type=key.created").want(200).data()
	if len(delivered) != 1 { // not the events from before the endpoint
		t.Fatalf("got deliveries %v, want 1", delivered)
	}
	one := s.get("/v1/webhook-deliveries/" + delivered[0]["delivery_id"].(string)).want(200)
	if one.text("payload") != s.get("/v1/events/"+one.text("event_id")).want(200).raw {
		t.Errorf("got payload %s, want the bytes of the event", one.text("payload"))
	}
	test := s.get("/v1/webhook-deliveries?event_type=webhook.test").want(200).data()[0]
	s.get("/v1/events/"+test["event_id"].(string)).refused(404, "not_found", "")
	if !strings.Contains(all.raw, first) {
		t.Error("the list has no event from before the endpoint was created")
	}
	for _, id := range []string{"evt_00000000000000000000000000", "x", strings.Replace(newest["id"].(string), "evt", "key", 1)} {
		s.get("/v1/events/"+id).refused(404, "not_found", "")
	}
}

// Guarantee: a delivery has its attempts. It can be redelivered when it has failed, but
// not while its first attempt is pending. While a retry is scheduled, this makes the retry due now
// and returns the same delivery, with 200 and without a Location.
func TestFailedDeliveryCanBeRedelivered(t *testing.T) {
	s := start(t)
	hook := s.newWebhook(nil).text("webhook_id")
	s.newKey(nil)
	list := s.get("/v1/webhook-deliveries").want(200).data()
	if len(list) != 1 {
		t.Fatalf("got deliveries %v, want 1", list)
	}
	id := list[0]["delivery_id"].(string)
	one := s.get("/v1/webhook-deliveries/" + id).want(200)
	wantFields(t, list[0], deliveryFields)
	wantFields(t, one.json, deliveryFields+" payload request_headers")
	for name, want := range map[string]string{
		"webhook_id": `"` + hook + `"`, "event_type": `"key.created"`, "state": `"pending"`, "trigger": `"event"`, "attempts": `[]`,
		"next_attempt_at": `"2027-03-01T12:00:00Z"`, "created_at": `"2027-03-01T12:00:00Z"`,
	} {
		if got, _ := json.Marshal(one.json[name]); string(got) != want {
			t.Errorf("got %s = %s, want %s", name, got, want)
		}
	}
	s.post("/v1/webhook-deliveries/"+id+"/redeliver", nil).refused(409, "conflict", "")

	// No response, a response with an error status, and an incomplete response that is
	// not valid UTF-8.
	s.attempt(webhook.RetryScheduled, webhook.Attempt{Duration: 1500 * time.Microsecond, Error: "connection refused"})
	s.clock.move(time.Second)
	same := s.post("/v1/webhook-deliveries/"+id+"/redeliver", nil).want(200)
	wantFields(t, same.json, deliveryFields)
	if same.text("delivery_id") != id || same.text("state") != "retry_scheduled" || same.text("next_attempt_at") != "2027-03-01T12:00:01Z" || same.header.Get("Location") != "" {
		t.Errorf("got %v\n%s\nwant the same delivery, due now", same.header, same.raw)
	}
	s.clock.move(time.Minute - time.Second)
	s.attempt(webhook.RetryScheduled, webhook.Attempt{Duration: time.Second, Status: 500, Response: []byte("oh <no>")})
	s.clock.move(time.Minute)
	s.attempt(webhook.Failed, webhook.Attempt{Duration: 30 * time.Second, Status: 200, Error: "no whole answer within 30 s", Response: []byte("a\xff")})
	one = s.get("/v1/webhook-deliveries/" + id).want(200)
	want := `[{"duration_ms":1,"error":"connection refused","number":1,"response_body":null,"started_at":"2027-03-01T12:00:00Z","status":null},` +
		`{"duration_ms":1000,"error":null,"number":2,"response_body":"oh <no>","started_at":"2027-03-01T12:01:00Z","status":500},` +
		`{"duration_ms":30000,"error":"no whole answer within 30 s","number":3,"response_body":"a` + "\uFFFD" + `","started_at":"2027-03-01T12:02:00Z","status":200}]`
	if got := compact(t, one.json["attempts"]); got != want {
		t.Errorf("got attempts  %s\nwant attempts %s", got, want)
	}
	if one.text("state") != "failed" || one.json["next_attempt_at"] != nil {
		t.Errorf("got %s, want state failed and no next attempt", one.raw)
	}
	headers := one.json["request_headers"].(map[string]any)
	if headers["webhook-id"] != one.text("event_id") || headers["X-Service-Delivery"] != id || !strings.HasPrefix(fmt.Sprint(headers["X-Service-Signature"]), "sha256=") {
		t.Errorf("got request headers %v, want those of the delivery, signed", headers)
	}

	again := s.post("/v1/webhook-deliveries/"+id+"/redeliver", nil).want(201)
	wantFields(t, again.json, deliveryFields)
	if again.text("trigger") != "manual" || again.text("event_id") != one.text("event_id") || again.text("delivery_id") == id ||
		again.header.Get("Location") != "/v1/webhook-deliveries/"+again.text("delivery_id") {
		t.Errorf("got %v\n%s\nwant a new delivery of the same event with trigger manual", again.header, again.raw)
	}
	fresh := s.get("/v1/webhook-deliveries/" + again.text("delivery_id")).want(200)
	if fresh.text("payload") != one.text("payload") {
		t.Errorf("got payload %s of the new delivery, want %s", fresh.text("payload"), one.text("payload"))
	}
	s.get("/v1/webhook-deliveries/dlv_00000000000000000000000000").refused(404, "not_found", "")
}

// compact returns v as JSON without HTML escapes.
func compact(t *testing.T, v any) string {
	t.Helper()
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}

// Guarantee: each filter of the list of deliveries returns exactly the matching deliveries, and a
// list has no payloads.
func TestDeliveryFiltersMatchExactly(t *testing.T) {
	s := start(t)
	first := s.newWebhook(nil).text("webhook_id")
	s.newKey(nil)
	s.attempt(webhook.Failed, webhook.Attempt{Status: 500})
	s.clock.move(time.Hour)
	second := s.newWebhook(map[string]any{"events": []string{"key.revoked"}}).text("webhook_id")
	key := s.newKey(nil).text("key_id")
	s.attempt(webhook.Delivered, webhook.Attempt{Status: 200})
	s.do(request{method: "DELETE", path: "/v1/keys/" + key}).want(200)
	s.attempt(webhook.RetryScheduled, webhook.Attempt{Status: 500})
	test := s.post("/v1/webhooks/"+first+"/test", nil).want(200)
	wantFields(t, test.json, "delivery_id")

	event := s.get("/v1/webhook-deliveries?state=delivered").want(200).data()[0]["event_id"].(string)
	for query, want := range map[string]int{
		"": 4, "webhook_id=" + first: 3, "webhook_id=" + second: 1, "webhook_id=wh_00000000000000000000000000": 0, "webhook_id=x": 0,
		"state=failed": 1, "state=delivered": 1, "state=retry_scheduled": 1, "state=pending": 1,
		"event_type=key.created": 2, "event_type=key.revoked": 1, "event_type=webhook.test": 1, "event_type=key.expired": 0,
		"since=2027-03-01T13:00:00Z": 3, "until=2027-03-01T13:00:00Z": 1, "since=2027-03-01&until=2027-03-02": 4,
		"webhook_id=" + first + "&state=delivered&event_type=key.created&since=2027-03-01T12:30:00Z": 1,
		"webhook_id=" + second + "&state=delivered":                                                  0,
		"event_id=" + event: 1, "event_id=evt_00000000000000000000000000": 0, "event_id=x": 0, "event_id=" + event + "&webhook_id=" + first: 1,
		"event_id=" + event + "&webhook_id=" + second: 0, "event_id=" + event + "&state=failed": 0, "event_id=" + event + "&event_type=key.created": 1,
		"event_id=" + event + "&event_type=key.revoked": 0, "event_id=" + event + "&until=2027-03-01T13:00:00Z": 0,
	} {
		r := s.get("/v1/webhook-deliveries?" + query).want(200)
		if n := len(r.data()); n != want {
			t.Errorf("%s: got %d deliveries, want %d", query, n, want)
		}
		if strings.Contains(r.raw, "payload") {
			t.Error("the list contains a payload")
		}
	}
	// Pages of a filtered list.
	r := s.get("/v1/webhook-deliveries?limit=2&webhook_id=" + first).want(200)
	if len(r.data()) != 2 || r.data()[0]["delivery_id"] != test.text("delivery_id") {
		t.Errorf("got first page %s, want 2 deliveries, the test first", r.raw)
	}
	r = s.get("/v1/webhook-deliveries?limit=2&webhook_id=" + first + "&cursor=" + r.text("next_cursor")).want(200)
	if len(r.data()) != 1 || r.json["next_cursor"] != nil {
		t.Errorf("got last page %s, want 1 delivery and no cursor", r.raw)
	}
}

// Guarantee: an endpoint has paused_until while its circuit breaker postpones deliveries, in the list and in the record. The
// deliveries that it postpones show no attempt before that.
func TestPausedEndpoint(t *testing.T) {
	s := start(t)
	hook := s.newWebhook(nil).text("webhook_id")
	s.newKey(nil)
	now := s.clock.Now()
	job := must(sendertest.ClaimAll(t.Context(), s.db, sender.Claim{Now: now, Token: "t", Until: now.Add(time.Minute)}, 1))(t)[0]
	must(s.db.FinishDeliveries(t.Context(), []sender.Result{{
		Lease: job.Lease, State: webhook.Failed, PausedUntil: now.Add(5 * time.Minute), Attempt: webhook.Attempt{Number: 1, StartedAt: now, Status: 500},
	}}))(t)
	s.clock.move(time.Minute)
	s.newKey(nil)
	const until = "2027-03-01T12:05:00Z"
	if got := s.get("/v1/webhooks/" + hook).want(200); got.json["paused_until"] != until || got.text("state") != "active" {
		t.Errorf("got %s, want it active and paused until %s", got.raw, until)
	}
	if got := s.get("/v1/webhooks").want(200).data()[0]["paused_until"]; got != until {
		t.Errorf("got an endpoint in the list that is paused until %v, want %s", got, until)
	}
	if got := s.get("/v1/webhook-deliveries?state=pending").want(200).data()[0]["next_attempt_at"]; got != until {
		t.Errorf("got a postponed delivery whose next attempt is at %v, want %s", got, until)
	}
	s.clock.move(4 * time.Minute)
	if got := s.get("/v1/webhooks/" + hook).want(200).json["paused_until"]; got != nil {
		t.Errorf("got an endpoint that is paused until %v after the pause, want null", got)
	}
}

// Guarantee: a recovery redelivers the deliveries that failed at or after since, each event once.
func TestRecoverRedeliversEachFailedEventOnce(t *testing.T) {
	s := start(t)
	hook := s.newWebhook(nil).text("webhook_id")
	for range 3 {
		s.newKey(nil)
		s.attempt(webhook.Failed, webhook.Attempt{Status: 500})
		s.clock.move(time.Hour)
	}
	recover := func(since string) any {
		t.Helper()
		r := s.post("/v1/webhooks/"+hook+"/recover", map[string]any{"since": since}).want(200)
		wantFields(t, r.json, "deliveries")
		return r.json["deliveries"]
	}
	if got := recover("2027-03-01T14:00:00Z"); got != 1.0 {
		t.Errorf("got %v recovered deliveries, want 1, the last", got)
	}
	if got := recover("2027-03-01"); got != 2.0 {
		t.Errorf("got %v recovered deliveries, want 2, the others", got)
	}
	if got := recover("2027-03-01"); got != 0.0 {
		t.Errorf("got %v recovered deliveries the second time, want 0", got)
	}
	begun := s.get("/v1/webhook-deliveries?state=pending").want(200).data()
	if len(begun) != 3 || begun[0]["trigger"] != "recover" {
		t.Errorf("got pending deliveries %v, want 3 with trigger recover", begun)
	}
}
