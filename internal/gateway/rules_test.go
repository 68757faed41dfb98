package gateway_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// wantField fails unless err is a validation error of field, or nil if field
// is "".
func wantField(t *testing.T, what string, err error, field string) {
	t.Helper()
	var f *fault.Error
	switch {
	case field == "" && err != nil:
		t.Errorf("%s: got %v; want no error", what, err)
	case field != "" && (!errors.As(err, &f) || f.Code != fault.ValidationFailed || f.Field != field):
		t.Errorf("%s: got %v; want a validation error of %s", what, err, field)
	}
}

// Guarantee: contract 4.1, a hostname is a DNS name in lower case, and neither an address nor
// the server's own domain or a name that the server generates.
func TestParseHostname(t *testing.T) {
	for name, ok := range map[string]bool{
		"api.example.com": true, "API.Example.COM": true, "a": true, "xn--bcher-kva.example": true, "1.example": true,
		"0xg.0xz": true, strings.Repeat("a", 63) + ".example": true, "notgw.example.org": true, "gw.example.org.evil.com": true,
		"": false, "localhost": false, "LOCALHOST": false, "gw.example.org": false, "gw-01ab.GW.example.org": false, "Gw-x.y.gw.example.org": false,
		"orders.GW.example.org": true, "orders.gw-01ab.gw.example.org": true, "gw-01ab.example.org": true,
		"127.0.0.1": false, "1.2.3": false, "2130706433": false, "0x7f.1": false, "0x7f000001": false, "::1": false, "[::1]": false,
		"api.example.com:8080": false, "api.example.com.": false, "*.example.com": false, "a..b": false, "-a.example": false,
		"a-.example": false, "a_b.example": false, "bücher.example": false, "a b": false,
		"\u212aeygate.example": false, "ap\u0131.example": false, "\u0130.example": false, "\uff41.example": false, "a\xff.example": false, "a/b": false,
		strings.Repeat("a", 64) + ".example": false, strings.Repeat("a.", 127) + "aa": false,
	} {
		field := "hostname"
		if ok {
			field = ""
		}
		got, err := gateway.ParseHostname(name, "gw.Example.org")
		wantField(t, name, err, field)
		if want := strings.ToLower(name); err == nil && got != want {
			t.Errorf("ParseHostname(%q): got %q; want %q", name, got, want)
		}
	}
	_, err := gateway.ParseHostname("b\u00fccher.example", "gw.example.org")
	if err == nil || !strings.Contains(err.Error(), "xn--") {
		t.Errorf("got %v for letters beyond ASCII; want an error that names the punycode form", err)
	}
	if got := gateway.DefaultHostname("gw_01ab", "Localhost"); got != "gw-01ab.localhost" {
		t.Errorf("got default hostname %q; want gw-01ab.localhost", got)
	}
}

// Guarantee: contract 3.3, an upstream URL has a supported scheme, a host and at most a port and
// a plain path. Its origin is the scheme, host and port.
func TestParseUpstreamURL(t *testing.T) {
	for text, origin := range map[string]string{
		"http://orders":                       "http://orders:80",
		"https://Orders.Internal/base":        "https://orders.internal:443",
		"h2c://grpc:9000":                     "h2c://grpc:9000",
		"HTTP://h/":                           "http://h:80",
		"http://my_service:8080/a/b/":         "http://my_service:8080",
		"http://[2001:db8::1]:81":             "http://[2001:db8::1]:81",
		"http://127.0.0.1:65535/a%20b":        "http://127.0.0.1:65535",
		"https://svc.cluster.local.:443/v1.2": "https://svc.cluster.local.:443",
		"":                                    "", "orders": "", "orders:80": "", "/orders": "", "//orders": "", "http:": "", "http://": "", "http:///x": "",
		"http:orders": "", "ftp://h": "", "ws://h": "", "unix:///run/x": "", "http://u@h": "", "http://u:p@h": "", "http://@h": "",
		"http://h?x": "", "http://h?": "", "http://h#x": "", "http://h#": "", "http://h/#": "", "http://h:": "", "http://h:0": "", "http://h:65536": "",
		"http://h:080": "", "http://h:x": "", "http://[fe80::1%25eth0]": "", "http://h/../x": "", "http://h/a/./b": "", "http://h/%2e%2E/x": "",
		"http://h/a//b": "", "http://h//": "", "http://h/a%2fb": "", "http://h/..;/b": "", "http://h/a/.%3Bx": "", "http://h/%c0%ae/a": "", "http://h/a%5Cb": "", `http://h/a\b`: "", "http://h/a b": "", "http://h/a%00b": "",
		"http://h/é": "", "http://bücher": "", "http://%E2%84%AA.example": "", "http://a b/": "", "http://*.h": "", "http://-h": "", "http://h,i": "", "http://h\n": "", "http://h/{x}": "",
		"http://h/" + strings.Repeat("a", 2048): "",
	} {
		field := ""
		if origin == "" {
			field = "upstream_url"
		}
		got, err := gateway.ParseUpstreamURL(text)
		wantField(t, text, err, field)
		if err == nil && got.Origin() != origin {
			t.Errorf("got origin %q of %q; want %q", got.Origin(), text, origin)
		}
	}
}

// Guarantee: contract 3.3, upstream_headers cannot set a header that frames the message or that
// Keygate sets, in any spelling.
func TestCheckUpstreamHeaders(t *testing.T) {
	for _, name := range []string{"Authorization", "X-Api-Key", "x_tenant", "Cookie", "User-Agent", "Accept-Encoding"} {
		wantField(t, name, gateway.CheckUpstreamHeaders(map[string]string{name: "a b\tc"}), "")
	}
	for _, name := range []string{
		"Host", "content-length", "Content_Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Proxy-Connection", "TE", "Trailer",
		"Upgrade", "Expect", "Proxy-Authorization", "Via", "Forwarded", "X-Forwarded-For", "x_forwarded_host", "X-Request-Id",
		"X-Keygate-Key-Id", "X_Keygate_Owner", "x-keygate-", "X-RateLimit-Limit", "RateLimit", "RateLimit-Policy", "Sec-WebSocket-Key",
	} {
		wantField(t, name, gateway.CheckUpstreamHeaders(map[string]string{name: "v"}), "upstream_headers."+name)
	}
	for _, name := range []string{"", "a b", "a:b", "a\r\nb", "ä", strings.Repeat("a", 129)} {
		wantField(t, name, gateway.CheckUpstreamHeaders(map[string]string{name: "v"}), "upstream_headers")
	}
	for _, value := range []string{"a\r\nB: c", "a\nb", "a\x00", "a\x7f", " a", "a ", "***"} {
		wantField(t, value, gateway.CheckUpstreamHeaders(map[string]string{"X-A": value}), "upstream_headers.X-A")
	}
	wantField(t, "4 KiB", gateway.CheckUpstreamHeaders(map[string]string{"X-A": strings.Repeat("a", 2000), "X-B": strings.Repeat("b", 2090)}), "")
	wantField(t, "more than 4 KiB", gateway.CheckUpstreamHeaders(map[string]string{"X-A": strings.Repeat("a", 2000), "X-B": strings.Repeat("b", 2091)}), "upstream_headers")
	if err := gateway.CheckUpstreamHeaders(map[string]string{"X-A": "1", "x_a": "2"}); fault.CodeOf(err) != fault.ValidationFailed {
		t.Errorf("got %v for two spellings of one name; want a validation error", err)
	}
	many := map[string]string{}
	for i := range gateway.MaxUpstreamHeaders {
		many[fmt.Sprintf("X-%d", i)] = ""
	}
	wantField(t, "16", gateway.CheckUpstreamHeaders(many), "")
	many["X-More"] = ""
	wantField(t, "17", gateway.CheckUpstreamHeaders(many), "upstream_headers")
}

// Guarantee: contract 3.3, a gateway's timeout, name, global limit and CORS settings are
// validated.
func TestGatewayFields(t *testing.T) {
	for text, ok := range map[string]bool{
		"1s": true, "60s": true, "1h": true, "1m30s": true, "1500ms": true,
		"": false, "60": false, "999ms": false, "1h1s": false, "-5s": false, "x": false, "NaN": false,
	} {
		field := "timeout"
		if ok {
			field = ""
		}
		wantField(t, text, gateway.CheckTimeout(text), field)
	}
	wantField(t, "no name", gateway.CheckName(""), "name")
	wantField(t, "255", gateway.CheckName(strings.Repeat("é", 255)), "")
	wantField(t, "256", gateway.CheckName(strings.Repeat("é", 256)), "name")
	wantField(t, "no UTF-8", gateway.CheckName("a\xff"), "name")
	wantField(t, "a variable", gateway.CheckName("a ${env:HOME}"), "name")
	wantField(t, "a dollar", gateway.CheckName("${HOME} $env"), "")
	if p := gateway.CheckTable([]gateway.RouteSpec{{Path: "/a/${env:HOME}", Methods: []string{"GET"}}}); len(p) != 1 || p[0].Field != "path" {
		t.Errorf("a variable in a path: got %v, want a problem of path", p)
	}
	for _, tc := range []struct{ sustained, burst, daily, per, field string }{
		{"60/min", "", "", "", ""},
		{"60/min", "10/s", "", "", ""},
		{"", "10/s", "", "", "sustained"},
		{"60/min", "", "9/day", "", "daily"},
		{"60/min", "", "", "key", "per"},
	} {
		c, err := ratelimit.ParseConfig(tc.sustained, tc.burst, tc.daily, tc.per)
		if err != nil {
			t.Fatal(err)
		}
		wantField(t, fmt.Sprint(tc), gateway.CheckGlobalLimit(c), tc.field)
	}
	for _, tc := range []struct {
		cors  gateway.CORS
		field string
	}{
		{gateway.CORS{Origins: []string{"https://app.example.com", "http://localhost:3000", "*"}, Methods: []string{"GET"}, Headers: []string{"X-A", "*"}, MaxAge: 600}, ""},
		{gateway.CORS{}, "origins"},
		{gateway.CORS{Origins: []string{"*", "https://a/"}}, "origins[1]"},
		{gateway.CORS{Origins: []string{"null"}}, "origins[0]"},
		{gateway.CORS{Origins: []string{"https://*.example.com"}}, "origins[0]"},
		{gateway.CORS{Origins: []string{"https://a.example/x"}}, "origins[0]"},
		{gateway.CORS{Origins: []string{"*"}, Methods: []string{"get"}}, "methods[0]"},
		{gateway.CORS{Origins: []string{"*"}, Headers: []string{"a b"}}, "headers[0]"},
		{gateway.CORS{Origins: []string{"*"}, MaxAge: -1}, "max_age"},
		{gateway.CORS{Origins: []string{"*"}, MaxAge: 86401}, "max_age"},
	} {
		wantField(t, fmt.Sprint(tc.cors), tc.cors.Validate(), tc.field)
	}
}
