package receiver

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/webhook"
)

// post sends body to url and returns the status of the response.
func post(t *testing.T, url string, header map[string]string, body []byte) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

// Guarantee: a delivery that Keygate signed reaches the handler byte for byte,
// and the handler's response reaches the sender. Anything else is refused.
func TestReceiverPassesOnlySignedDeliveries(t *testing.T) {
	var handled, refused atomic.Int32
	payload := []byte(`{"id":"evt_1","type":"key.created","created_at":"2027-03-01T12:00:00Z","data":{"a":1}}`)
	r, err := Start(t.Context(), Config{
		Name: "test",
		Handle: func(_ context.Context, d *Delivery) (int, []byte) {
			if !bytes.Equal(d.Payload, payload) || d.Event.ID != "evt_1" || string(d.Event.Data) != `{"a":1}` {
				t.Errorf("handler got %s (event %+v), want the payload as sent", d.Payload, d.Event)
			}
			handled.Add(1)
			return http.StatusTeapot, []byte("tea")
		},
		Refused: func(error) { refused.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	message := webhook.Message{EventID: "evt_1", EventType: "key.created", DeliveryID: "dlv_1", Attempt: 1, Payload: payload}
	good := message.Header(time.Now(), webhook.Secrets{Current: r.Secret})
	if status := post(t, r.URL, good, payload); status != http.StatusTeapot || handled.Load() != 1 {
		t.Errorf("signed delivery: status %d, %d handled; want the handler's 418 and 1 handled", status, handled.Load())
	}
	for name, c := range map[string]struct {
		header map[string]string
		body   []byte
	}{
		"unsigned":                   {nil, payload},
		"signed with another secret": {message.Header(time.Now(), webhook.Secrets{Current: "another secret of ours"}), payload},
		"another body":               {good, []byte(strings.Replace(string(payload), "1", "2", 1))},
		"signed an hour ago":         {message.Header(time.Now().Add(-time.Hour), webhook.Secrets{Current: r.Secret}), payload},
		// One byte too long and no more: the unread rest of a longer body would reset the connection.
		"too long": {good, make([]byte, maxPayload+1)},
	} {
		if status := post(t, r.URL, c.header, c.body); status != http.StatusBadRequest {
			t.Errorf("%s: status %d, want 400", name, status)
		}
	}
	if handled.Load() != 1 || refused.Load() != 5 {
		t.Errorf("%d handled and %d refused, want 1 and 5", handled.Load(), refused.Load())
	}
	if status := post(t, strings.TrimSuffix(r.URL, "x")+"y", good, payload); status != http.StatusNotFound {
		t.Errorf("delivery to another path: status %d, want 404", status)
	}
}
