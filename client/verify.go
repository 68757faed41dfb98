package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Headers that sign a delivery (contract, section 6).
const (
	SignatureHeader         = "X-Service-Signature"
	PreviousSignatureHeader = "X-Service-Signature-Previous"
	StandardSignatureHeader = "Webhook-Signature"
	standardIDHeader        = "Webhook-Id"
	standardTimestampHeader = "Webhook-Timestamp"
)

// SignatureError means that a delivery is not authentic or too old.
type SignatureError struct {
	Header string // the header that failed; "" if there is no signature at all
	Reason string
}

func (e *SignatureError) Error() string {
	if e.Header == "" {
		return e.Reason
	}
	return e.Header + ": " + e.Reason
}

// VerifyDelivery verifies that a delivery was signed with secret, the
// signing_secret of its endpoint (contract, section 6). payload is the request
// body, byte for byte. The delivery must have X-Service-Signature, the headers of
// Standard Webhooks, or both, and each of them must be valid. To prevent replays, a
// webhook-timestamp that differs from now by more than tolerance is refused; a
// tolerance of 0 accepts any time. The error is a *SignatureError.
func VerifyDelivery(secret string, header http.Header, payload []byte, now time.Time, tolerance time.Duration) error {
	plain, standard := header.Get(SignatureHeader), header.Get(StandardSignatureHeader)
	if plain == "" && standard == "" {
		return &SignatureError{"", "the request has neither " + SignatureHeader + " nor webhook-signature"}
	}
	if plain != "" {
		if err := verifyPlain(secret, header, payload); err != nil {
			return err
		}
	}
	if standard != "" {
		return verifyStandard(secret, header, payload, now, tolerance)
	}
	return nil
}

// verifyPlain verifies X-Service-Signature or, for a receiver that still has the
// old secret during a rotation, X-Service-Signature-Previous.
func verifyPlain(secret string, header http.Header, payload []byte) error {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(payload)
	want := []byte("sha256=" + hex.EncodeToString(mac.Sum(nil)))
	for _, name := range []string{SignatureHeader, PreviousSignatureHeader} {
		if hmac.Equal([]byte(header.Get(name)), want) {
			return nil
		}
	}
	return &SignatureError{SignatureHeader, "the signature does not match"}
}

// verifyStandard verifies webhook-signature, in which at least one signature must
// match, and then webhook-timestamp.
func verifyStandard(secret string, header http.Header, payload []byte, now time.Time, tolerance time.Duration) error {
	refuse := func(reason string) error { return &SignatureError{"webhook-signature", reason} }
	eventID, stamp := header.Get(standardIDHeader), header.Get(standardTimestampHeader)
	if eventID == "" || stamp == "" {
		return refuse("requires the headers webhook-id and webhook-timestamp: one of them is missing")
	}
	mac := hmac.New(sha256.New, standardKey(secret))
	mac.Write([]byte(eventID + "." + stamp + "."))
	mac.Write(payload)
	want := []byte("v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	matches := false
	for _, given := range strings.Fields(header.Get(StandardSignatureHeader)) {
		matches = matches || hmac.Equal([]byte(given), want)
	}
	if !matches {
		return refuse("the signature does not match")
	}
	return checkAge(stamp, now, tolerance)
}

func checkAge(stamp string, now time.Time, tolerance time.Duration) error {
	refuse := func(reason string) error { return &SignatureError{"webhook-timestamp", reason} }
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return refuse("is not a Unix time in seconds")
	}
	if age := now.Sub(time.Unix(seconds, 0)); tolerance > 0 && (age > tolerance || age < -tolerance) {
		return refuse(fmt.Sprintf("differs from the current time by %s, but at most %s is allowed", age.Abs().Round(time.Second), tolerance))
	}
	return nil
}

// standardKey returns the key of Standard Webhooks: the decoded base64 after
// whsec_, or the bytes of a secret that does not have this form.
func standardKey(secret string) []byte {
	if text, tagged := strings.CutPrefix(secret, "whsec_"); tagged && !strings.ContainsAny(text, "\r\n") {
		if key, err := base64.StdEncoding.DecodeString(text); err == nil && len(key) > 0 {
			return key
		}
	}
	return []byte(secret)
}

// IsSignatureError reports whether err is a *SignatureError.
func IsSignatureError(err error) bool {
	var e *SignatureError
	return errors.As(err, &e)
}
