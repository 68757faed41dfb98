package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
)

// callWebhooks calls every method for webhooks, deliveries and events.
func callWebhooks(ctx context.Context, c *client.Client, discard func(any, error)) {
	for range c.Webhooks(ctx, client.ListOptions{}) {
		break
	}
	discard(c.CreateWebhook(ctx, client.CreateWebhookRequest{}))
	discard(c.Webhook(ctx, "{webhook_id}"))
	discard(c.UpdateWebhook(ctx, "{webhook_id}", client.WebhookPatch{}))
	discard(c.DeleteWebhook(ctx, "{webhook_id}"))
	discard(c.RotateWebhookSecret(ctx, "{webhook_id}", 24))
	discard(c.TestWebhook(ctx, "{webhook_id}"))
	discard(c.RecoverWebhook(ctx, "{webhook_id}", time.Time{}))
	for range c.Deliveries(ctx, client.DeliveryFilter{}) {
		break
	}
	discard(c.Delivery(ctx, "{delivery_id}"))
	discard(c.Redeliver(ctx, "{delivery_id}"))
	for range c.Events(ctx, client.EventFilter{}) {
		break
	}
	discard(c.Event(ctx, "{event_id}"))
}

// Guarantee: filters and bodies are sent with the names of the API document, and the data
// of an event is returned byte for byte.
func TestWebhookCallsMatchTheDocument(t *testing.T) {
	var got []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, r.URL.RawQuery+string(body))
		_, _ = io.WriteString(w, `{"data": {"b": 1, "a": 2}, "deliveries": 3, "delivery_id": "dlv_1"}`)
	})
	since := time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)
	for range c.Deliveries(t.Context(), client.DeliveryFilter{WebhookID: "wh_1", EventID: "evt_1", State: "failed", EventType: "key.created", Since: since, Until: since}) {
		break
	}
	for range c.Events(t.Context(), client.EventFilter{Type: "key.created", Since: since, Until: since}) {
		break
	}
	if n, err := c.RecoverWebhook(t.Context(), "wh_1", since); n != 3 || err != nil {
		t.Errorf("got %d recovered deliveries, error %v, want 3", n, err)
	}
	if id, err := c.TestWebhook(t.Context(), "wh_1"); id != "dlv_1" || err != nil {
		t.Errorf("got delivery %s, error %v, want dlv_1", id, err)
	}
	if _, err := c.RotateWebhookSecret(t.Context(), "wh_1", 0); err != nil {
		t.Error(err)
	}
	if _, err := c.UpdateWebhook(t.Context(), "wh_1", client.WebhookPatch{State: client.Set("active")}); err != nil {
		t.Error(err)
	}
	if e, err := c.Event(t.Context(), "evt_1"); err != nil || string(e.Data) != `{"b": 1, "a": 2}` {
		t.Errorf("got event %+v, error %v, want the data as sent", e, err)
	}
	at := "2027-03-01T12%3A00%3A00Z"
	want := []string{
		"event_id=evt_1&event_type=key.created&limit=100&since=" + at + "&state=failed&until=" + at + "&webhook_id=wh_1",
		"limit=100&since=" + at + "&type=key.created&until=" + at,
		`{"since":"2027-03-01T12:00:00Z"}`, "", `{"overlap_hours":0}`, `{"state":"active"}`, "",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// Test vectors, computed with Python's hmac.
const (
	body      = `{"id":"evt_1","type":"key.created"}`
	secret    = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	plain     = "sha256=23748c666abc36e7c6e4a7fd59aff2dc91110a3f625a1bda5f2163e0d0655afd"
	standard  = "v1,ZFTtqTMlRRda5DrUfeU+38hZESobOIEF+oBEo6hfW7Y="
	given     = "sixteen bytes or more"
	givenSum  = "sha256=822a9e1642d44a3029a8c308fc0bea90cf1bd62d596a4293d815e05a6e3b6f72"
	givenSign = "v1,1EjYyDR1QlIBKL1o62x4k3TiJVi9mX6Xv0HCc1IP+Jw="
	stamp     = "1893456000"
)

// Guarantee: VerifyDelivery accepts a delivery that is signed with the secret, and no
// other.
func TestVerifyDeliveryAcceptsOnlyItsSecret(t *testing.T) {
	signed := time.Unix(1893456000, 0)
	for _, tc := range []struct {
		name, secret, body string
		header             []string // names and values in turn
		now                time.Time
		failed             string // header of the error; "" if the delivery is valid
		unsigned           bool   // there is no signature at all
	}{
		{"X-Service-Signature", secret, body, []string{"X-Service-Signature", plain}, signed, "", false},
		{"Standard Webhooks", secret, body, []string{"webhook-id", "evt_1", "webhook-timestamp", stamp, "webhook-signature", standard}, signed, "", false},
		{"both signatures", secret, body, []string{"X-Service-Signature", plain, "webhook-id", "evt_1", "webhook-timestamp", stamp, "webhook-signature", standard}, signed, "", false},
		{"one of several signatures", secret, body, []string{"webhook-id", "evt_1", "webhook-timestamp", stamp, "webhook-signature", "v1a,x v1,AAAA " + standard}, signed, "", false},
		{"given secret", given, body, []string{"X-Service-Signature", givenSum, "webhook-id", "evt_1", "webhook-timestamp", stamp, "webhook-signature", givenSign}, signed, "", false},
		{"old secret during an overlap", secret, body, []string{"X-Service-Signature", givenSum, "X-Service-Signature-Previous", plain}, signed, "", false},
		{"exactly at the tolerance", secret, body, []string{"webhook-id", "evt_1", "webhook-timestamp", stamp, "webhook-signature", standard}, signed.Add(5 * time.Minute), "", false},

		{"no signature", secret, body, []string{"webhook-id", "evt_1"}, signed, "", true},
		{"another body", secret, body + " ", []string{"X-Service-Signature", plain}, signed, "X-Service-Signature", false},
		{"another secret", given, body, []string{"X-Service-Signature", plain}, signed, "X-Service-Signature", false},
		{"upper-case signature", secret, body, []string{"X-Service-Signature", strings.ToUpper(plain)}, signed, "X-Service-Signature", false},
		{"empty signature", secret, body, []string{"X-Service-Signature", "sha256="}, signed, "X-Service-Signature", false},
		{"only X-Service-Signature valid", secret, body, []string{"X-Service-Signature", plain, "webhook-id", "evt_1", "webhook-timestamp", stamp, "webhook-signature", givenSign}, signed, "webhook-signature", false},
		{"only webhook-signature valid", secret, body, []string{"X-Service-Signature", givenSum, "webhook-id", "evt_1", "webhook-timestamp", stamp, "webhook-signature", standard}, signed, "X-Service-Signature", false},
		{"another event", secret, body, []string{"webhook-id", "evt_2", "webhook-timestamp", stamp, "webhook-signature", standard}, signed, "webhook-signature", false},
		{"another timestamp", secret, body, []string{"webhook-id", "evt_1", "webhook-timestamp", "1893456001", "webhook-signature", standard}, signed, "webhook-signature", false},
		{"no timestamp", secret, body, []string{"webhook-id", "evt_1", "webhook-signature", standard}, signed, "webhook-signature", false},
		{"too old", secret, body, []string{"webhook-id", "evt_1", "webhook-timestamp", stamp, "webhook-signature", standard}, signed.Add(5*time.Minute + time.Second), "webhook-timestamp", false},
		{"too far in the future", secret, body, []string{"webhook-id", "evt_1", "webhook-timestamp", stamp, "webhook-signature", standard}, signed.Add(-6 * time.Minute), "webhook-timestamp", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			header := http.Header{}
			for i := 0; i < len(tc.header); i += 2 {
				header.Set(tc.header[i], tc.header[i+1])
			}
			err := client.VerifyDelivery(tc.secret, header, []byte(tc.body), tc.now, 5*time.Minute)
			var invalid *client.SignatureError
			switch valid := tc.failed == "" && !tc.unsigned; {
			case valid && err != nil:
				t.Errorf("got error %v, want none", err)
			case !valid && (!errors.As(err, &invalid) || invalid.Header != tc.failed || !client.IsSignatureError(err)):
				t.Errorf("got error %v, want a *SignatureError of header %q", err, tc.failed)
			}
		})
	}
	// A tolerance of 0 accepts any age.
	header := http.Header{"Webhook-Id": {"evt_1"}, "Webhook-Timestamp": {stamp}, "Webhook-Signature": {standard}}
	if err := client.VerifyDelivery(secret, header, []byte(body), signed.AddDate(10, 0, 0), 0); err != nil {
		t.Error(err)
	}
}
