package gateway

import (
	"errors"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/fault"
)

// Guarantee: contract 3.3, key_headers: one to four headers without duplicates, none of which
// has another meaning in a request. The error names the item.
func TestCheckKeyHeaders(t *testing.T) {
	for _, list := range []string{"Authorization", "authorization", "X-API-Key", "apikey,api-key,X-Goog-Api-Key,Authorization", "Ocp_Apim_Subscription_Key"} {
		if err := CheckKeyHeaders(strings.Split(list, ",")); err != nil {
			t.Errorf("%s: got %v, want no error", list, err)
		}
	}
	for _, c := range []struct{ list, field string }{
		{"", "key_headers[0]"},
		{"X-API-Key,", "key_headers[1]"},
		{"a,b,c,d,e", "key_headers"},
		{"X-API-Key,x-api-key", "key_headers[1]"},
		{"X-API-Key,x_api_key", "key_headers[1]"},
		{"Authorization,AUTHORIZATION", "key_headers[1]"},
		{"X API Key", "key_headers[0]"},
		{"X-API-Key:", "key_headers[0]"},
		{strings.Repeat("x", 129), "key_headers[0]"},
		{"a,b,Host", "key_headers[2]"},
	} {
		wantKeyHeaderError(t, strings.Split(c.list, ","), c.field)
	}
	wantKeyHeaderError(t, nil, "key_headers")
	wantKeyHeaderError(t, []string{}, "key_headers")
	for _, name := range []string{
		"Host", "Content-Length", "Content_Length", "Transfer-Encoding", "Connection", "TE", "Trailer", "Upgrade", "Expect",
		"Proxy-Authorization", "Cookie", "Set-Cookie", "X-Keygate-Key-Id", "x_forwarded_for", "Forwarded", "Via", "X-Request-Id",
		"X-Real-IP", "Origin", "Access-Control-Request-Method", "Content-Type", "Accept", "If-Match", "Sec-WebSocket-Key", "Range", "traceparent",
	} {
		wantKeyHeaderError(t, []string{name}, "key_headers[0]")
	}
}

func wantKeyHeaderError(t *testing.T, list []string, field string) {
	t.Helper()
	var e *fault.Error
	if err := CheckKeyHeaders(list); !errors.As(err, &e) || e.Code != fault.ValidationFailed || e.Field != field {
		t.Errorf("%.80q: got %v, want a validation error of %s", list, err, field)
	}
}
