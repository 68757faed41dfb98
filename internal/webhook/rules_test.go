package webhook_test

import (
	"encoding/base64"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/webhook"
)

// wantInvalid fails the test unless err is a validation error of the field and its message
// contains text.
func wantInvalid(t *testing.T, err error, field, text string) {
	t.Helper()
	var e *fault.Error
	if !errors.As(err, &e) || e.Code != fault.ValidationFailed || e.Field != field || !strings.Contains(e.Message, text) {
		t.Errorf("got error %v, want a validation error of %s that contains %q", err, field, text)
	}
}

// Guarantee: "auto" and "" generate a secret of 32 random bytes in the form of Standard
// Webhooks. A given secret of 16 to 128 bytes is used unchanged. Any other is rejected, and
// the error does not contain it.
func TestParseSecret(t *testing.T) {
	seen := map[string]bool{}
	for _, given := range []string{"", "auto", "auto"} {
		s, err := webhook.ParseSecret(given)
		text, tagged := strings.CutPrefix(s, "whsec_")
		key, decodeErr := base64.StdEncoding.DecodeString(text)
		if err != nil || !tagged || decodeErr != nil || len(key) != 32 || seen[s] {
			t.Errorf("ParseSecret(%q) = %q, %v; want a new key of 32 bytes in base64 after whsec_", given, s, err)
		}
		seen[s] = true
	}
	for _, given := range []string{strings.Repeat("x", 16), strings.Repeat("x", 128), strings.Repeat("ü", 64), "whsec_not base 64!"} {
		if s, err := webhook.ParseSecret(given); err != nil || s != given {
			t.Errorf("ParseSecret(%q) = %q, %v; want it unchanged", given, s, err)
		}
	}
	for _, given := range []string{"AUTO", "secretsecret123", strings.Repeat("x", 129), strings.Repeat("ü", 65)} {
		_, err := webhook.ParseSecret(given)
		wantInvalid(t, err, "signing_secret", "16 to 128 bytes")
		if err != nil && strings.Contains(err.Error(), given) {
			t.Errorf("the error contains the secret: %v", err)
		}
	}
}

// Guarantee: a secret that a Standard Webhooks library accepts is not converted; every other
// secret is converted to a form that it accepts.
func TestStandardSecret(t *testing.T) {
	for secret, want := range map[string]string{
		webhook.NewSecret(): "", "whsec_AAECAwQFBgcICQoLDA0ODw==": "",
		"sixteen bytes ok":          "whsec_c2l4dGVlbiBieXRlcyBvaw==",
		"whsec_not base 64!":        "whsec_d2hzZWNfbm90IGJhc2UgNjQh",
		"whsec_AAECAwQFBgcICQoLDA":  "whsec_" + base64.StdEncoding.EncodeToString([]byte("whsec_AAECAwQFBgcICQoLDA")),
		"whsec_AAEC\nAwQFBgcICQoL=": "whsec_" + base64.StdEncoding.EncodeToString([]byte("whsec_AAEC\nAwQFBgcICQoL=")),
	} {
		if got := webhook.StandardSecret(secret); got != want {
			t.Errorf("StandardSecret(%q) = %q, want %q", secret, got, want)
		}
	}
}

// Guarantee: an endpoint's URL uses https. Plain http is accepted only where a setting may
// allow it, and the message names the settings (contract, section 6).
func TestURLRule(t *testing.T) {
	strict := webhook.URLRule{}
	local := webhook.URLRule{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}}
	plain := webhook.URLRule{AllowHTTP: true}
	for _, tc := range []struct {
		url  string
		rule webhook.URLRule
		want string // part of the message; "" if the URL is accepted
	}{
		{"https://example.com", strict, ""},
		{"https://example.com/hooks?team=7&x", strict, ""},
		{"https://example.com:8443/a%20b", strict, ""},
		{"https://[2606:2800:220:1:248:1893:25c8:1946]/", strict, ""},
		{"https://a_b.internal./", strict, ""},
		{"https://" + strings.Repeat("a", 63) + ".example/" + strings.Repeat("p", 1900), strict, ""},
		{"http://example.com/", strict, "--webhook-allow-network"},
		{"http://example.com/", strict, "--webhook-allow-http"},
		{"http://127.0.0.1:9000/", strict, "--webhook-allow-network"},
		{"http://127.0.0.1:9000/", local, ""},
		{"http://[::ffff:127.0.0.1]:9000/", local, ""},
		{"http://[fd00::7]/", local, ""},
		{"http://receiver.internal/", local, ""}, // its address is checked on connecting
		{"http://10.0.0.1/", local, "--webhook-allow-network"},
		{"http://[::1]/", local, "--webhook-allow-network"},
		{"http://example.com/", plain, ""},
		{"http://93.184.215.14/", plain, ""},
		{"", strict, "is required"},
		{"example.com/hooks", strict, "https://"},
		{"//example.com/hooks", strict, "https://"},
		{"ftp://example.com/", plain, "https://"},
		{"file:///etc/passwd", plain, "https://"},
		{"https:example.com", strict, "must be a URL"},
		{"https://", strict, "have a host"},
		{"https:///hooks", strict, "have a host"},
		{"https://:443/", strict, "have a host"},
		{"https://a..b/", strict, "have a host"},
		{"https://exa$mple.com/", strict, "have a host"},
		{"https://[fe80::1%25eth0]/", strict, "have a host"},
		{"https://user@example.com/", strict, "user or password"},
		{"https://user:pw@example.com/", strict, "user or password"},
		{"https://example.com/#part", strict, "fragment"},
		{"https://example.com/#", strict, "fragment"},
		{"https://example.com:0/", strict, "port"},
		{"https://example.com:65536/", strict, "port"},
		{"https://example.com:/", strict, "port"},
		{"https://example.com:http/", strict, "must be a URL"},
		{"https://example.com/a b", strict, "must be a URL"},
		{"https://example.com/ü", strict, "must be a URL"},
		{"https://exämple.com/", strict, "must be a URL"},
		{"https://example.com/\r\nX: y", strict, "must be a URL"},
		{"https://example.com/%zz", strict, "must be a URL"},
		{`https://example.com\@127.0.0.1/`, strict, "must be a URL"},
		{"https://example.com/" + strings.Repeat("p", 2048), strict, "2048"},
	} {
		err := tc.rule.Check(tc.url)
		if tc.want == "" {
			if err != nil {
				t.Errorf("Check(%q) = %v, want it accepted", tc.url, err)
			}
			continue
		}
		wantInvalid(t, err, "url", tc.want)
	}
}

// Guarantee: the list of events has at least one known type; unknown types are rejected and
// duplicates removed.
func TestParseEvents(t *testing.T) {
	got, err := webhook.ParseEvents([]string{"key.revoked", "key.created", "key.revoked"})
	if want := []event.Type{event.KeyRevoked, event.KeyCreated}; err != nil || !slices.Equal(got, want) {
		t.Errorf("with a duplicate: got %v, %v; want %v", got, err, want)
	}
	all := webhook.EventTypes()
	names := make([]string, len(all))
	for i, e := range all {
		names[i] = string(e)
	}
	if got, err := webhook.ParseEvents(names); err != nil || len(got) != len(all) {
		t.Errorf("with all types: got %v, %v; want %d types", got, err, len(all))
	}
	_, err = webhook.ParseEvents(nil)
	wantInvalid(t, err, "events", "key.created")
	for _, bad := range []string{"", "*", "key.Created", "webhook.test"} {
		_, err := webhook.ParseEvents([]string{"key.created", bad})
		wantInvalid(t, err, "events[1]", "rate_limit.exceeded")
	}
}
