package admit

import (
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// headers is a Header for a test: alternating names and values.
type headers []string

func (h headers) HeaderValue(name string) (value string, count int) {
	for i := 0; i < len(h); i += 2 {
		if strings.EqualFold(h[i], name) {
			if count++; count == 1 {
				value = h[i+1]
			}
		}
	}
	return value, count
}

// keyHeaderHarness returns a harness with the gateways one.example, which takes keys in
// X-API-Key alone, and three.example, which takes them in apikey and Authorization too.
func keyHeaderHarness(t *testing.T) (h *harness, key string) {
	h = newHarness(t)
	for hostname, list := range map[string][]string{"one.example": {"X-API-Key"}, "three.example": {"X-API-Key", "apikey", "authorization"}} {
		h.gateway(func(g *gateway.Gateway) {
			g.Hostname, g.HostGiven, g.Requests.KeyHeaders = hostname, true, list
		}, route("/a", "GET"), public(route("/open", "GET")))
	}
	_, key = h.key(nil)
	return h, key
}

// Guarantee: contract 4.2, check 3: the key is read from the header of key_headers that is present.
func TestKeyHeaders(t *testing.T) {
	h, key := keyHeaderHarness(t)
	for _, c := range []struct {
		name, host, target string
		header             headers
		code               fault.Code
	}{
		{"the header", "one.example", "/a", headers{"x-api-key", key}, ""},
		{"a bad key", "one.example", "/a", headers{"X-API-Key", "nonsense"}, fault.Unauthorized},
		{"a scheme", "one.example", "/a", headers{"X-API-Key", "Bearer " + key}, fault.Unauthorized},
		{"an empty value wins over a good parameter", "one.example", "/a?api_key=" + key, headers{"X-API-Key", ""}, fault.Unauthorized},
		{"a parameter", "one.example", "/a?api_key=" + key, nil, ""},
		{"Authorization is not in the list", "one.example", "/a", headers{"Authorization", "Bearer " + key}, fault.Unauthorized},
		{"Authorization beside the key", "one.example", "/a", headers{"X-API-Key", key, "Authorization", "Bearer t"}, ""},
		{"two that are not in the list", "one.example", "/a", headers{"X-API-Key", key, "Authorization", "a", "Authorization", "b"}, ""},
		{"another spelling", "one.example", "/a", headers{"X_API_Key", key}, fault.Unauthorized},
		{"the second", "three.example", "/a", headers{"ApiKey", key}, ""},
		{"Authorization", "three.example", "/a", headers{"Authorization", "Bearer " + key}, ""},
		{"another scheme beside the key", "three.example", "/a", headers{"apikey", key, "Authorization", "Basic eDp5"}, ""},
		{"two headers", "three.example", "/a", headers{"X-API-Key", key, "apikey", key}, fault.InvalidRequest},
		{"a header and a bearer", "three.example", "/a", headers{"X-API-Key", key, "Authorization", "Bearer " + key}, fault.InvalidRequest},
		{"one header twice", "three.example", "/a", headers{"apikey", key, "apikey", key}, fault.InvalidRequest},
		{"one empty header twice", "three.example", "/a", headers{"apikey", "", "apikey", ""}, fault.InvalidRequest},
		{"a scheme twice", "three.example", "/a", headers{"X-API-Key", key, "Authorization", "Basic a", "Authorization", "Basic b"}, fault.InvalidRequest},
		{"two on a public route", "three.example", "/open", headers{"X-API-Key", "1", "apikey", "2"}, fault.InvalidRequest},
		{"one on a public route", "three.example", "/open", headers{"X-API-Key", "1"}, ""},
		{"none", "three.example", "/a", nil, fault.Unauthorized},
	} {
		t.Run(c.name, func(t *testing.T) {
			authorization, count := c.header.HeaderValue("Authorization")
			v := h.decide(Request{Host: c.host, Target: c.target, Header: c.header, Authorization: authorization, Authorizations: count})
			if v.Code != c.code {
				t.Errorf("got code %q, want %q", v.Code, c.code)
			}
		})
	}
}

// Guarantee: a 401 says in which headers the gateway expects the key.
func TestUnauthorizedNamesTheKeyHeaders(t *testing.T) {
	h, _ := keyHeaderHarness(t)
	h.gateway(func(g *gateway.Gateway) { g.Hostname, g.HostGiven = "default.example", true }, route("/a", "GET"))
	for host, want := range map[string]string{
		"one.example": "in the header X-API-Key", "default.example": "as Authorization: Bearer <key>",
		"three.example": "in the header X-API-Key or in the header apikey or as Authorization: Bearer <key>",
	} {
		v := h.decide(Request{Host: host, Target: "/a", Header: headers{}})
		if got := v.Fault().Message; !strings.HasSuffix(got, ": send it "+want) {
			t.Errorf("%s: got message %q, want it to end with %q", host, got, want)
		}
	}
}

// Guarantee: contract 3.3, allow_encoded_slashes: an encoded slash is a part of its segment
// for routes and scopes, and is forwarded as sent; other gateways reject it, and unknown
// hosts too.
func TestEncodedSlashes(t *testing.T) {
	h := newHarness(t)
	h.gateway(func(g *gateway.Gateway) {
		g.Hostname, g.HostGiven, g.Requests.AllowEncodedSlashes = "on.example", true, true
	}, route("/projects/{id}", "GET"), route("/projects/{id}/files", "GET"), route("/orders/*", "GET"))
	h.gateway(func(g *gateway.Gateway) { g.Hostname, g.HostGiven = "off.example", true }, route("/*", "GET"))
	any, projects := h.scoped("read"), h.scoped("read:projects")
	for _, c := range []struct {
		host, target, key string
		code              fault.Code
	}{
		{"on.example", "/projects/group%2Fname", any, ""},
		{"on.example", "/projects/group%2fname", projects, ""},
		{"on.example", "/projects/group%5Cname/files", projects, ""},
		{"on.example", "/projects%2Fgroup", any, fault.RouteNotFound},
		{"on.example", "/orders/a%2Fb/c", any, ""},
		{"on.example", "/orders/projects%2Fb", projects, fault.Forbidden},
		{"on.example", "/projects/a%2F..%2Fb", any, fault.InvalidRequest},
		{"on.example", "/projects/a%2F%2e%2e", any, fault.InvalidRequest},
		{"off.example", "/projects/group%2Fname", any, fault.InvalidRequest},
		{"nobody.example", "/projects/group%2Fname", any, fault.InvalidRequest},
	} {
		v := h.decide(Request{Host: c.host, Target: c.target, Authorization: "Bearer " + c.key})
		if v.Code != c.code {
			t.Errorf("%s%s: got code %q, want %q", c.host, c.target, v.Code, c.code)
		}
		if got := string(v.AppendTarget(nil)); c.code == "" && got != c.target {
			t.Errorf("%s%s is forwarded as %s, want it unchanged", c.host, c.target, got)
		}
		if c.code == fault.InvalidRequest && (!v.Close || v.Gateway != nil) {
			t.Errorf("%s%s: got close %t, gateway %v; want the connection closed before a gateway is found", c.host, c.target, v.Close, v.Gateway)
		}
	}
}
