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

// The header fields that sign a delivery (contract, section 6).
const (
	SignatureHeader         = "X-Service-Signature"
	PreviousSignatureHeader = "X-Service-Signature-Previous"
	StandardSignatureHeader = "Webhook-Signature"
	standardIDHeader        = "Webhook-Id"
	standardTimestampHeader = "Webhook-Timestamp"
)

// SignatureError tells that a delivery is not to be believed.
type SignatureError struct {
	Header string // whose signature it is; "" if there is none at all
	Reason string
}

func (e *SignatureError) Error() string {
	if e.Header == "" {
		return e.Reason
	}
	return e.Header + ": " + e.Reason
}

// VerifyDelivery checks that a delivery was signed with secret, the
// signing_secret of its endpoint: whichever of X-Service-Signature and the fields
// of Standard Webhooks are there must hold, and one of the two must be. payload is
// the body, byte for byte. A webhook-timestamp further than tolerance from now is
// refused, so that what was recorded cannot be sent again later; 0 takes any. The
// error is a *SignatureError.
func VerifyDelivery(secret string, header http.Header, payload []byte, now time.Time, tolerance time.Duration) error {
	plain, standard := header.Get(SignatureHeader), header.Get(StandardSignatureHeader)
	if plain == "" && standard == "" {
		return &SignatureError{"", "there is no " + SignatureHeader + " and no webhook-signature"}
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

// verifyPlain checks X-Service-Signature and, for a receiver that still has the
// old secret of a rotation, X-Service-Signature-Previous.
func verifyPlain(secret string, header http.Header, payload []byte) error {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(payload)
	want := []byte("sha256=" + hex.EncodeToString(mac.Sum(nil)))
	for _, name := range []string{SignatureHeader, PreviousSignatureHeader} {
		if hmac.Equal([]byte(header.Get(name)), want) {
			return nil
		}
	}
	return &SignatureError{SignatureHeader, "the signature does not hold"}
}

func verifyStandard(secret string, header http.Header, payload []byte, now time.Time, tolerance time.Duration) error {
	refuse := func(reason string) error { return &SignatureError{"webhook-signature", reason} }
	eventID, stamp := header.Get(standardIDHeader), header.Get(standardTimestampHeader)
	if eventID == "" || stamp == "" {
		return refuse("webhook-id and webhook-timestamp belong with it: one of them is missing")
	}
	mac := hmac.New(sha256.New, standardKey(secret))
	mac.Write([]byte(eventID + "." + stamp + "."))
	mac.Write(payload)
	want := []byte("v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	holds := false
	for _, given := range strings.Fields(header.Get(StandardSignatureHeader)) {
		holds = holds || hmac.Equal([]byte(given), want)
	}
	if !holds {
		return refuse("the signature does not hold")
	}
	return checkAge(stamp, now, tolerance)
}

func checkAge(stamp string, now time.Time, tolerance time.Duration) error {
	refuse := func(reason string) error { return &SignatureError{"webhook-timestamp", reason} }
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return refuse("it is no Unix second")
	}
	if age := now.Sub(time.Unix(seconds, 0)); tolerance > 0 && (age > tolerance || age < -tolerance) {
		return refuse(fmt.Sprintf("it is %s away from now, and may be %s", age.Abs().Round(time.Second), tolerance))
	}
	return nil
}

// standardKey is the key that Standard Webhooks signs with: what the base 64
// after whsec_ stands for, or the bytes of a secret that has no such form.
func standardKey(secret string) []byte {
	if text, tagged := strings.CutPrefix(secret, "whsec_"); tagged && !strings.ContainsAny(text, "\r\n") {
		if key, err := base64.StdEncoding.DecodeString(text); err == nil && len(key) > 0 {
			return key
		}
	}
	return []byte(secret)
}

// IsSignatureError reports whether err tells that a delivery is not to be
// believed.
func IsSignatureError(err error) bool {
	var e *SignatureError
	return errors.As(err, &e)
}
