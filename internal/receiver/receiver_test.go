package receiver_test

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/receiver"
	"github.com/keygate/keygate/internal/webhook"
)

// Guarantee: what Keygate signs is handed on byte for byte with its answer, and
// nothing else is.
func TestReceiver(t *testing.T) {
	var handled, refused atomic.Int32
	payload := []byte(`{"id":"evt_1","type":"key.created","created_at":"2027-03-01T12:00:00Z","data":{"a":1}}`)
	r, err := receiver.Start(t.Context(), receiver.Config{
		Name: "test",
		Handle: func(_ context.Context, d *receiver.Delivery) (int, []byte) {
			if !bytes.Equal(d.Payload, payload) || d.Event.ID != "evt_1" || string(d.Event.Data) != `{"a":1}` {
				t.Errorf("got %s", d.Payload)
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
	send := func(url string, header map[string]string, body []byte) int {
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
	message := webhook.Message{EventID: "evt_1", EventType: "key.created", DeliveryID: "dlv_1", Attempt: 1, Payload: payload}
	good := message.Header(time.Now(), webhook.Secrets{Current: r.Secret})
	if status := send(r.URL, good, payload); status != http.StatusTeapot || handled.Load() != 1 {
		t.Errorf("status %d, handled %d", status, handled.Load())
	}
	for name, c := range map[string]struct {
		header map[string]string
		body   []byte
	}{
		"unsigned":       {nil, payload},
		"another secret": {message.Header(time.Now(), webhook.Secrets{Current: "another secret of ours"}), payload},
		"another body":   {good, []byte(strings.Replace(string(payload), "1", "2", 1))},
		"old":            {message.Header(time.Now().Add(-time.Hour), webhook.Secrets{Current: r.Secret}), payload},
		"too long":       {good, make([]byte, 1<<20+1)}, // by the byte that tells: what nobody reads would reset the connection
	} {
		if status := send(r.URL, c.header, c.body); status != http.StatusBadRequest {
			t.Errorf("%s: status %d", name, status)
		}
	}
	if handled.Load() != 1 || refused.Load() != 5 {
		t.Errorf("handled %d, refused %d", handled.Load(), refused.Load())
	}
	if status := send(strings.TrimSuffix(r.URL, "x")+"y", good, payload); status != http.StatusNotFound {
		t.Errorf("another path: status %d", status)
	}
}
