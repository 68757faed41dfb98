package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/keygate/keygate/internal/event"
)

// Secrets are an endpoint's signing secrets in plain text. Old is "" unless a rotation
// overlaps.
type Secrets struct {
	Current string
	Old     string
}

// Message is the content of one attempt.
type Message struct {
	EventID    string
	EventType  event.Type
	DeliveryID string
	Attempt    int // from 1
	Payload    []byte
}

// The header fields of a delivery, in the documented spelling (contract, section 6).
const (
	FieldSignature         = "X-Service-Signature"
	FieldPreviousSignature = "X-Service-Signature-Previous"
	FieldEvent             = "X-Service-Event"
	FieldDelivery          = "X-Service-Delivery"
	FieldAttempt           = "X-Service-Attempt"
	FieldID                = "webhook-id"
	FieldTimestamp         = "webhook-timestamp"
	FieldStandard          = "webhook-signature"
)

// UserAgent is the value of User-Agent in deliveries.
const UserAgent = "Keygate"

// Header returns the header fields of an attempt that starts at the time at. It leaves
// out the signatures if there is no current secret.
func (m *Message) Header(at time.Time, s Secrets) map[string]string {
	h := map[string]string{
		"Content-Type": "application/json",
		"User-Agent":   UserAgent,
		FieldEvent:     string(m.EventType),
		FieldDelivery:  m.DeliveryID,
		FieldAttempt:   strconv.Itoa(m.Attempt),
		FieldID:        m.EventID,
		FieldTimestamp: strconv.FormatInt(at.Unix(), 10),
	}
	if s.Current == "" {
		return h
	}
	h[FieldSignature] = Sign(s.Current, m.Payload)
	h[FieldStandard] = SignStandard(s.Current, m.EventID, at, m.Payload)
	if s.Old != "" {
		h[FieldPreviousSignature] = Sign(s.Old, m.Payload)
		h[FieldStandard] += " " + SignStandard(s.Old, m.EventID, at, m.Payload)
	}
	return h
}

// Sign returns the value of X-Service-Signature: the HMAC-SHA256 of payload in hexadecimal.
// The key is the whole secret as shown (specification, Signature).
func Sign(secret string, payload []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(payload)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// SignStandard returns one signature for webhook-signature: the HMAC-SHA256 that Standard
// Webhooks defines for symmetric keys.
func SignStandard(secret, eventID string, at time.Time, payload []byte) string {
	key, _ := standardKey(secret)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(eventID + "." + strconv.FormatInt(at.Unix(), 10) + "."))
	mac.Write(payload)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
