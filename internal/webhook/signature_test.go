package webhook_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/keygate/keygate/internal/webhook"
)

// The digests were computed with OpenSSL:
//
//	printf '%s' "$payload" | openssl dgst -sha256 -hmac "$secret"
//	printf '%s' "evt_1.1767225600.$payload" | openssl dgst -sha256 -mac HMAC -macopt hexkey:… -binary | base64
const (
	vectorSecret  = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	vectorPayload = `{"id":"evt_1","type":"key.created","created_at":"2026-01-01T00:00:00Z","data":{}}`
)

var vectorTime = time.Unix(1767225600, 0)

// Guarantee: X-Service-Signature is the HMAC of the payload in lower-case hexadecimal. Its
// key is the whole secret as shown (specification, Signature).
func TestSign(t *testing.T) {
	const want = "sha256=6ce791020c3b89f35bb38ccf9693ce30cd976c51c6cbe91282e401c6567f7325"
	if got := webhook.Sign(vectorSecret, []byte(vectorPayload)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Guarantee: the key of webhook-signature is the decoded base64 of the secret.
func TestSignStandard(t *testing.T) {
	const want = "v1,nTGPvm+tHpPVj80wnLorICEmk9toSiP84tPMPOMkoPo="
	if got := webhook.SignStandard(vectorSecret, "evt_1", vectorTime, []byte(vectorPayload)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// sent is a request as a receiver gets it, with the secret to verify it.
type sent struct {
	Secret  string            `json:"secret"`
	Payload string            `json:"payload"`
	Headers map[string]string `json:"headers"`
}

// deliveries returns requests with secrets of every form, each once for both secrets of an
// overlap.
func deliveries(t *testing.T) []sent {
	t.Helper()
	payloads := []string{vectorPayload, `{"id":"evt_2","data":{"name":"Grüße, 世界 \u003c&> \\ \n"}}`}
	secrets := []string{
		webhook.NewSecret(), vectorSecret, "sixteen bytes ok", strings.Repeat("ü", 64), "whsec_not base 64!",
		"whsec_AAECAwQFBgcICQoLDA0ODxAR\nEhMUFRYXGBkaGxwdHh8=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
	}
	var all []sent
	for _, payload := range payloads {
		for i, secret := range secrets {
			old := secrets[(i+1)%len(secrets)]
			m := webhook.Message{EventID: "evt_1", EventType: "key.created", DeliveryID: "dlv_1", Attempt: 1, Payload: []byte(payload)}
			header := m.Header(time.Now(), webhook.Secrets{Current: secret, Old: old})
			all = append(all, sent{standard(secret), payload, header}, sent{standard(old), payload, header})
		}
	}
	return all
}

// standard returns secret in the form that a Standard Webhooks library accepts.
func standard(secret string) string {
	if s := webhook.StandardSecret(secret); s != "" {
		return s
	}
	return secret
}

// damaged returns d with one byte of the payload changed.
func damaged(d sent) sent {
	d.Payload = strings.Replace(d.Payload, "evt_", "evt-", 1)
	return d
}

// Guarantee: the Standard Webhooks library for Go accepts a delivery with either secret of an
// overlap, and rejects it if a byte was changed.
func TestStandardGo(t *testing.T) {
	verify := func(d sent) error {
		h := http.Header{}
		for name, value := range d.Headers {
			h.Set(name, value)
		}
		w, err := standardwebhooks.NewWebhook(d.Secret)
		if err != nil {
			t.Fatal(err)
		}
		return w.Verify([]byte(d.Payload), h)
	}
	for i, d := range deliveries(t) {
		if err := verify(d); err != nil {
			t.Errorf("request %d was rejected: %v", i, err)
		}
		if err := verify(damaged(d)); err == nil {
			t.Errorf("request %d was accepted with a changed payload", i)
		}
	}
}

// Guarantee: so does the Standard Webhooks library for Node.js.
func TestStandardNode(t *testing.T) {
	modules, err := filepath.Abs("../../tools/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(modules, "standardwebhooks")); err != nil {
		t.Fatalf("the npm package standardwebhooks is needed; make deps installs it: %v", err)
	}
	all := deliveries(t)
	for _, d := range all {
		all = append(all, damaged(d))
	}
	input, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", filepath.Join("testdata", "verify.cjs"))
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("Node.js is needed; make deps installs it: %v", err)
	}
	var results []string
	if err := json.Unmarshal(out, &results); err != nil || len(results) != len(all) {
		t.Fatalf("got %d results (%v), want %d: %s", len(results), err, len(all), out)
	}
	genuine := len(all) / 2
	for i, result := range results[:genuine] {
		if result != "ok" {
			t.Errorf("request %d was rejected: %s", i, result)
		}
	}
	for i, result := range results[genuine:] {
		if result == "ok" {
			t.Errorf("request %d was accepted with a changed payload", i)
		}
	}
}

// Guarantee: an attempt sends the header fields of the contract, with signatures of the old
// secret only during an overlap.
func TestHeader(t *testing.T) {
	m := webhook.Message{EventID: "evt_1", EventType: "key.created", DeliveryID: "dlv_9", Attempt: 3, Payload: []byte(vectorPayload)}
	one, two := webhook.Sign("first secret 1234", m.Payload), webhook.Sign("second secret 123", m.Payload)
	v1 := webhook.SignStandard("first secret 1234", "evt_1", vectorTime, m.Payload)
	v2 := webhook.SignStandard("second secret 123", "evt_1", vectorTime, m.Payload)
	base := map[string]string{
		"Content-Type": "application/json", "User-Agent": "Keygate",
		"X-Service-Event": "key.created", "X-Service-Delivery": "dlv_9", "X-Service-Attempt": "3",
		"webhook-id": "evt_1", "webhook-timestamp": "1767225600",
	}
	for name, tc := range map[string]struct {
		secrets webhook.Secrets
		more    map[string]string
	}{
		"no secret":  {webhook.Secrets{}, nil},
		"one secret": {webhook.Secrets{Current: "first secret 1234"}, map[string]string{"X-Service-Signature": one, "webhook-signature": v1}},
		"overlap": {webhook.Secrets{Current: "first secret 1234", Old: "second secret 123"}, map[string]string{
			"X-Service-Signature": one, "X-Service-Signature-Previous": two, "webhook-signature": v1 + " " + v2,
		}},
	} {
		got := m.Header(vectorTime, tc.secrets)
		if len(got) != len(base)+len(tc.more) {
			t.Errorf("%s: got the header fields %v, want %d of them", name, got, len(base)+len(tc.more))
		}
		for _, want := range []map[string]string{base, tc.more} {
			for field, value := range want {
				if got[field] != value {
					t.Errorf("%s: got %s: %q, want %q", name, field, got[field], value)
				}
			}
		}
	}
}
