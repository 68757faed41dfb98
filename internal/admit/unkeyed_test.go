package admit

import (
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/gateway"
)

// Guarantee: the verdict of a 401 for a key says what was wrong with it, the response is the same for all, and the
// distinction allocates nothing.
func TestVerdictSaysWhatWasWrongWithTheKey(t *testing.T) {
	h, key := keyHeaderHarness(t)
	h.gateway(func(g *gateway.Gateway) { g.Hostname, g.HostGiven = "plain.example", true }, route("/a", "GET"))
	unknown, err := apikey.Generate(apikey.GatewayLevel, h.random)
	if err != nil {
		t.Fatal(err)
	}
	typo := key[:len(key)-1] + "0"
	if strings.HasSuffix(key, "0") {
		typo = key[:len(key)-1] + "1"
	}
	responses := map[string]string{}
	for _, c := range []struct {
		name, host string
		header     headers
		want       accesslog.Reason
	}{
		{"no key", "plain.example", nil, accesslog.NoKey},
		{"an empty bearer", "plain.example", headers{"Authorization", "Bearer"}, accesslog.NoKey},
		{"another scheme", "plain.example", headers{"Authorization", "Basic eDp5"}, accesslog.NoKey},
		{"no scheme", "plain.example", headers{"Authorization", key}, accesslog.KeyWithoutScheme},
		{"a scheme of another product", "plain.example", headers{"Authorization", "ApiKey " + key + " "}, accesslog.KeyWithoutScheme},
		{"no scheme beside another key header", "three.example", headers{"Authorization", key}, accesslog.KeyWithoutScheme},
		{"another header", "plain.example", headers{"x-api-key", key}, accesslog.KeyInOtherHeader},
		{"another header, with a scheme", "plain.example", headers{"X-Auth-Token", "Bearer " + key}, accesslog.KeyInOtherHeader},
		{"another header with something else", "plain.example", headers{"X-API-Key", "s3cret"}, accesslog.NoKey},
		{"Authorization is not read", "one.example", headers{"Authorization", "Bearer " + key}, accesslog.KeyInOtherHeader},
		{"a wrong checksum", "plain.example", headers{"Authorization", "Bearer " + typo}, accesslog.MistypedKey},
		{"cut off", "plain.example", headers{"Authorization", "Bearer " + key[:20]}, accesslog.MistypedKey},
		{"a wrong checksum in a header", "one.example", headers{"X-API-Key", typo}, accesslog.MistypedKey},
		{"another product's key", "plain.example", headers{"Authorization", "Bearer sk-1"}, accesslog.NotAKey},
		{"a scheme in a key header", "one.example", headers{"X-API-Key", "Bearer " + key}, accesslog.NotAKey},
		{"unknown", "plain.example", headers{"Authorization", "Bearer " + unknown}, accesslog.UnknownKey},
	} {
		t.Run(c.name, func(t *testing.T) {
			authorization, count := c.header.HeaderValue("Authorization")
			var header Header = c.header
			req := Request{Method: "GET", Host: c.host, Target: "/a", Header: header, Authorization: authorization, Authorizations: count}
			v := h.decide(req)
			var r accesslog.Record
			if v.Record(&r); r.Result != accesslog.KeyInvalid || v.KeyReason != c.want {
				t.Errorf("got result %d for %q, want %d for %q", r.Result, v.KeyReason, accesslog.KeyInvalid, c.want)
			}
			if first, known := responses[c.host]; known && v.Fault().Message != first {
				t.Errorf("got the response %q, want %q as for all", v.Fault().Message, first)
			}
			responses[c.host] = v.Fault().Message
			if n := testing.AllocsPerRun(10, func() { h.admit.Decide(&req, v) }); n != 0 {
				t.Errorf("the decision made %v allocations, want 0", n)
			}
		})
	}
	req := Request{Method: "GET", Host: "plain.example", Target: "/a", Authorization: "Bearer " + key, Authorizations: 1}
	if v := h.decide(req); v.KeyReason != accesslog.NoReason {
		t.Errorf("an admitted request has the reason %q, want none", v.KeyReason)
	}
}
