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

// wantInvalid fails the test unless err is a validation error of the field whose
// message holds text.
func wantInvalid(t *testing.T, err error, field, text string) {
	t.Helper()
	var e *fault.Error
	if !errors.As(err, &e) || e.Code != fault.ValidationFailed || e.Field != field || !strings.Contains(e.Message, text) {
		t.Errorf("error %v; want one of %s that says %q", err, field, text)
	}
}

// Guarantee: "auto" and nothing make a secret of 32 random bytes in the form of
// Standard Webhooks; a given one of 16 to 128 bytes is taken as it is; another is
// refused without being repeated.
func TestParseSecret(t *testing.T) {
	seen := map[string]bool{}
	for _, given := range []string{"", "auto", "auto"} {
		s, err := webhook.ParseSecret(given)
		text, tagged := strings.CutPrefix(s, "whsec_")
		key, decodeErr := base64.StdEncoding.DecodeString(text)
		if err != nil || !tagged || decodeErr != nil || len(key) != 32 || seen[s] {
			t.Errorf("%q gives %q, %v", given, s, err)
		}
		seen[s] = true
	}
	for _, given := range []string{strings.Repeat("x", 16), strings.Repeat("x", 128), strings.Repeat("ü", 64), "whsec_not base 64!"} {
		if s, err := webhook.ParseSecret(given); err != nil || s != given {
			t.Errorf("%q gives %q, %v", given, s, err)
		}
	}
	for _, given := range []string{"AUTO", "secretsecret123", strings.Repeat("x", 129), strings.Repeat("ü", 65)} {
		_, err := webhook.ParseSecret(given)
		wantInvalid(t, err, "signing_secret", "16 to 128 bytes")
		if err != nil && strings.Contains(err.Error(), given) {
			t.Errorf("the error repeats the secret: %v", err)
		}
	}
}

// Guarantee: a secret that a Standard Webhooks library takes needs no other
// form, and every other secret has one.
func TestStandardSecret(t *testing.T) {
	for secret, want := range map[string]string{
		webhook.NewSecret(): "", "whsec_AAECAwQFBgcICQoLDA0ODw==": "",
		"sixteen bytes ok":          "whsec_c2l4dGVlbiBieXRlcyBvaw==",
		"whsec_not base 64!":        "whsec_d2hzZWNfbm90IGJhc2UgNjQh",
		"whsec_AAECAwQFBgcICQoLDA":  "whsec_" + base64.StdEncoding.EncodeToString([]byte("whsec_AAECAwQFBgcICQoLDA")),
		"whsec_AAEC\nAwQFBgcICQoL=": "whsec_" + base64.StdEncoding.EncodeToString([]byte("whsec_AAEC\nAwQFBgcICQoL=")),
	} {
		if got := webhook.StandardSecret(secret); got != want {
			t.Errorf("%q gives %q, want %q", secret, got, want)
		}
	}
}

// Guarantee: an endpoint's URL is https; plain http passes only where a setting
// may allow it, and the message names the settings (contract, 6).
func TestURLRule(t *testing.T) {
	strict := webhook.URLRule{}
	local := webhook.URLRule{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}}
	plain := webhook.URLRule{AllowHTTP: true}
	for _, tc := range []struct {
		url  string
		rule webhook.URLRule
		want string // part of the message; "" if it passes
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
		{"http://receiver.internal/", local, ""}, // where it is, is seen when connecting
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
		{"https://", strict, "name a host"},
		{"https:///hooks", strict, "name a host"},
		{"https://:443/", strict, "name a host"},
		{"https://a..b/", strict, "name a host"},
		{"https://exa$mple.com/", strict, "name a host"},
		{"https://[fe80::1%25eth0]/", strict, "name a host"},
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
				t.Errorf("%q: %v", tc.url, err)
			}
			continue
		}
		wantInvalid(t, err, "url", tc.want)
	}
}

// Guarantee: an endpoint asks for known events, at least one, each of which it
// gets once.
func TestParseEvents(t *testing.T) {
	got, err := webhook.ParseEvents([]string{"key.revoked", "key.created", "key.revoked"})
	if want := []event.Type{event.KeyRevoked, event.KeyCreated}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	all := webhook.EventTypes()
	names := make([]string, len(all))
	for i, e := range all {
		names[i] = string(e)
	}
	if got, err := webhook.ParseEvents(names); err != nil || len(got) != 7 {
		t.Errorf("%v, %v", got, err)
	}
	_, err = webhook.ParseEvents(nil)
	wantInvalid(t, err, "events", "key.created")
	for _, bad := range []string{"", "*", "key.Created", "webhook.test"} {
		_, err := webhook.ParseEvents([]string{"key.created", bad})
		wantInvalid(t, err, "events[1]", "rate_limit.exceeded")
	}
}
