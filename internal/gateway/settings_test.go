package gateway_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// drawGateway draws a valid gateway with any of the settings.
func drawGateway(t *rapid.T, pairs ...certificatetest.Pair) *gateway.Gateway {
	some := func(label string) bool { return rapid.Bool().Draw(t, label) }
	text := func(label string, of ...string) string { return rapid.SampledFrom(append(of, "")).Draw(t, label) }
	g := &gateway.Gateway{
		Name:     rapid.StringN(1, 30, -1).Filter(func(s string) bool { return gateway.CheckName(s) == nil }).Draw(t, "name"),
		Upstream: gateway.Upstream{URL: "https://orders.internal:8443/" + text("base", "a%20b", "x:y,z")},
		Default:  some("default"),
		Timeout:  rapid.SampledFrom([]string{"60s", "1m", "1h0m0s"}).Draw(t, "timeout"),
	}
	if g.Hostname = text("hostname", "a.example", "xn--bcher-kva.example"); g.Hostname != "" {
		g.HostGiven = true
	}
	if some("limited") {
		g.GlobalLimit = limit(t, rates().Draw(t, "sustained"), maybe(rates()).Draw(t, "burst"), "", "")
	}
	if some("anonymous") {
		l := limit(t, rates().Draw(t, "anonymous sustained"), maybe(rates()).Draw(t, "anonymous burst"), "", "")
		g.Requests.AnonymousLimit = gateway.AnonymousLimit{Sustained: l.Sustained, Burst: l.Burst}
	}
	if some("cors") {
		lists := rapid.SampledFrom([][]string{nil, {}, {"GET"}, {"X-A", "NO", "~", "#"}})
		g.CORS = &gateway.CORS{
			Origins: rapid.SliceOfN(rapid.SampledFrom([]string{"*", "https://app.example.com", "http://localhost:3000", "http://[::1]:8080"}), 1, 3).Draw(t, "origins"),
			Methods: lists.Draw(t, "methods"), Headers: lists.Draw(t, "headers"), MaxAge: rapid.IntRange(0, 86400).Draw(t, "max age"),
		}
	}
	if some("keys") {
		g.Requests.KeyHeaders = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"Authorization", "X-API-Key", "true", "a.b"}), 1, 4, rapid.ID).Draw(t, "key headers")
	}
	g.Requests.AllowEncodedSlashes, g.Requests.KeepStreams = some("slashes"), some("streams")
	if some("addresses") {
		g.Requests.AllowIPs, g.Requests.DenyIPs = []string{"10.0.0.0/8", "2001:db8::/32"}, []string{"::/0"}
	}
	if some("maintenance") {
		g.Requests.Maintenance = &gateway.Maintenance{Message: text("message", "back: soon", "true")}
		if some("exempt") {
			g.Requests.Maintenance.Allow = []string{"203.0.113.0/24"}
		}
	}
	if some("rules") {
		g.Requests.RequestHeaders = &gateway.HeaderRules{Set: map[string]string{rapid.SampledFrom([]string{"X-A", "true"}).Draw(t, "name"): rapid.SampledFrom([]string{"a: b", "${client_ip}, x", "null"}).Draw(t, "value")}, Remove: rapid.SampledFrom([][]string{nil, {"X-B", "no"}}).Draw(t, "removed")}
		g.Requests.ResponseHeaders = &gateway.HeaderRules{Remove: []string{"X-A"}}
	}
	g.Requests.SelfService = gateway.SelfService{Usage: some("usage"), Rotate: some("rotate")}
	if some("body") {
		g.MaxBodyBytes = rapid.Int64Min(1).Draw(t, "max body")
	}
	u := &g.Upstream
	if names := rapid.SliceOfDistinct(rapid.SampledFrom([]string{"X-Token", "no", "a.b", "!#$", "Authorization"}), rapid.ID).Draw(t, "headers"); len(names) > 0 {
		u.Headers = map[string][]byte{}
		for _, name := range names {
			u.Headers[name] = []byte("sealed")
		}
	}
	u.Timeouts.Connect, u.Timeouts.Idle, u.MaxConnectionAge = text("connect", "100ms"), text("idle", "1h"), text("age", "24h")
	if some("connections") {
		u.MaxConnections = rapid.Int64Range(1, gateway.MaxUpstreamConnections).Draw(t, "most")
	}
	if len(pairs) > 0 && some("certificate") {
		p := rapid.SampledFrom(pairs).Draw(t, "pair")
		u.TLS.ClientCertificate, u.TLS.ClientKey = string(p.Cert), []byte("sealed")
		u.TLS.CA = rapid.SampledFrom([]string{"# roots\n" + string(p.Cert), "\n" + string(p.Cert), strings.TrimSpace(string(p.Cert)), string(p.Cert) + "\n\n"}).Draw(t, "ca")
	}
	if some("several") {
		drawUpstream(t, u, "https")
	}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "true", "1", "-", "next_one"}), 0, 3, rapid.ID).Draw(t, "others") {
		other := gateway.Upstream{Name: name, Timeout: text("its timeout", "1s"), MaxConnections: rapid.Int64Range(0, 3).Draw(t, "its connections"), TLS: u.TLS}
		if some("its headers") {
			other.Headers = map[string][]byte{"X-Token": []byte("sealed")}
		}
		other.Host = text("its host", "a.example", gateway.PreserveHost)
		drawUpstream(t, &other, rapid.SampledFrom([]string{"http", "https", "h2c"}).Draw(t, "its scheme"))
		g.PutUpstream(other)
	}
	return g
}

// drawUpstream draws what only upstreams have.
func drawUpstream(t *rapid.T, u *gateway.Upstream, scheme string) {
	urls := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"10.0.0.1:8443", "[::1]:80/a", "b.internal/x,y", "true", "c/a%20b"}), 1, 4, rapid.ID).Draw(t, "targets")
	list := make([]gateway.Target, len(urls))
	for i, url := range urls {
		list[i] = gateway.Target{URL: scheme + "://" + url, Weight: rapid.IntRange(0, gateway.MaxTargetWeight).Draw(t, "weight"), Backup: rapid.Bool().Draw(t, "backup"), Drain: rapid.Bool().Draw(t, "drain")}
		list[i].Resolve = rapid.SampledFrom([]gateway.Resolve{"", gateway.ResolveNone, gateway.ResolveA}).Draw(t, "resolve")
		if !strings.Contains(url, ":") && rapid.Bool().Draw(t, "srv") {
			list[i].Resolve = gateway.ResolveSRV
		}
	}
	u.Refresh = rapid.SampledFrom([]string{"", "1s", "1h"}).Draw(t, "refresh")
	u.SetTargets(list)
	u.Balance.Policy = rapid.SampledFrom([]gateway.Policy{"", gateway.RoundRobin, gateway.Hash}).Draw(t, "balance")
	if u.Balance.Policy == gateway.Hash {
		u.Balance.HashOn = rapid.SampledFrom([]string{gateway.HashPrincipal, gateway.HashAddress, "header:X-A"}).Draw(t, "hash on")
	}
	on := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{gateway.OnConnect, gateway.OnTimeout, gateway.On502, gateway.OnGRPCUnavailable}), 1, 4, rapid.ID)
	u.Ejection = rapid.SampledFrom([]*gateway.Ejection{nil, {Off: true}, {Failures: 2, On: on.Draw(t, "ejected on"), Base: "100ms", Max: "1h0m0s", MaxPercent: 0}}).Draw(t, "ejection")
	u.Retries = rapid.SampledFrom([]*gateway.Retries{nil, {On: []string{}}, {Attempts: 5, BudgetPercent: 100, On: on.Draw(t, "retried on"), IdempotencyKey: true}}).Draw(t, "retries")
	u.Health = rapid.SampledFrom([]*gateway.Health{
		nil, {Path: "/healthz?a={b},c", Interval: "10s", Timeout: "2s", Unhealthy: 2, Healthy: 100, Statuses: "200-399", Sealed: map[string][]byte{"X-Probe": []byte("sealed")}},
		{Path: "/", Interval: "1h0m0s", Timeout: "100ms", Unhealthy: 1, Healthy: 1, Statuses: "204"}, {TCP: true, Interval: "1s", Timeout: "1m", Unhealthy: 2, Healthy: 2},
		{Path: "/", Interval: "1s", Timeout: "1s", Unhealthy: 2, Healthy: 2, Statuses: "200,204,300-302"},
	}).Draw(t, "health")
	if scheme != "http" && rapid.Bool().Draw(t, "grpc") {
		u.Health = &gateway.Health{GRPC: rapid.SampledFrom([]*string{new(""), new("orders.v1.Orders"), new("true")}).Draw(t, "service"), Interval: "10s", Timeout: "2s", Unhealthy: 2, Healthy: 2}
	}
}

const everySetting = `gateway:
  name: orders
  hostname: api.example.com
  default: true
  upstream_url: https://orders.internal
  global_rate_limit: {sustained: 6000/min, burst: 200/s}
  anonymous_limit: {sustained: 60/min, burst: 20/s}
  default_plan: free
  timeout: 30s
  upstream_headers:
    X-Token: "***"
  upstream_ca: |
%s  upstream_client_certificate: |
%s  upstream_client_key: "***"
  upstream_connect_timeout: 2s
  upstream_idle_timeout: 30s
  upstream_max_connection_age: 1m
  upstream_max_connections: 200
  upstream_host: preserve
  cors:
    origins: [https://app.example.com]
    methods: [GET]
    headers: [X-A]
    max_age: 600
  max_body_bytes: 1048576
  key_headers: [X-API-Key]
  issuers: [login]
  default_auth: token
%s  drain_timeout: 5m
  allow_ips: ["203.0.113.0/24", "2001:db8::/32"]
  deny_ips: ["203.0.113.7/32"]
  maintenance:
    message: back at 14:00 UTC
    allow: ["203.0.113.0/24"]
  request_headers:
    set:
      X-Real-IP: "${client_ip}"
      X-Tenant: acme
    remove: [X-Debug]
  response_headers:
    remove: [Server, X-Powered-By]
  self_service:
    usage: true
    rotate: true
  split:
    - {upstream: next, when: {header: {X-Beta: "1"}}, fallback: true}
    - {upstream: next, weight: 0.25, sticky: false}
  error_format: openai
  validate: enforce
  upstreams:
    - name: next
      targets:
        - {url: https://10.0.0.1:8443, weight: 2}
        - {url: https://orders-dr.internal, backup: true}
routes: []
`

// withEverySetting returns a file that has every setting, none of them at its default.
func withEverySetting(t *testing.T) string {
	t.Helper()
	indented := "    " + strings.ReplaceAll(strings.TrimSpace(string(certificatetest.New(t, "ca").Cert)), "\n", "\n    ") + "\n"
	booleans := ""
	for _, s := range gateway.Settings() {
		if s.Kind == gateway.KindBool && s.Name != "default" {
			booleans += fmt.Sprintf("  %s: %t\n", s.Name, s.Default() != true)
		}
	}
	return fmt.Sprintf(everySetting, indented, indented, booleans)
}

// Guarantee: a file can give every setting, and is encoded as it was.
func TestEverySettingOfAFile(t *testing.T) {
	text := withEverySetting(t)
	d, err := gateway.ParseDocument([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	section := reflect.ValueOf(d.Gateway)
	for i := range section.NumField() {
		if section.Type().Field(i).Name == "UpstreamOnly" {
			continue
		}
		if !section.Field(i).FieldByName("Present").Bool() {
			t.Errorf("got no %s; want every setting", section.Type().Field(i).Name)
		}
	}
	if got, want := section.NumField(), len(gateway.SettingNames())+2; got != want {
		t.Errorf("got %d fields of a section; want one for each of the rows of the table, for the upstreams, and for what only these have: %d", got, want)
	}
	if got := string(d.Encode()); got != text {
		t.Errorf("got encoded:\n%s\nwant:\n%s", got, text)
	}
}

// Guarantee: null removes every setting except the name, the upstream URL and default, which cannot be null.
func TestNullSettings(t *testing.T) {
	for _, name := range gateway.SettingNames() {
		text := "gateway:\n  " + name + ": null\nroutes: []\n"
		d, err := gateway.ParseDocument([]byte(text))
		if slices.Contains([]string{"name", "upstream_url", "default"}, name) {
			wantProblem(t, text, err, fmt.Sprintf("2, column %d", len(name)+5), "gateway."+name, "not null")
			continue
		}
		if err != nil || string(d.Encode()) != text {
			t.Errorf("%s: got %v; want the same file", name, err)
		}
	}
}

// Guarantee: a setting of a file is checked as it is in the API, and a problem has the position of
// the wrong value.
func TestInvalidSettingsAreRejected(t *testing.T) {
	for _, c := range []struct {
		text           string
		column         int
		field, message string
	}{
		{"hostname: api.example.com:80", 13, "hostname", "DNS name without a port"},
		{"default: 'true'", 12, "default", "must be true or false, not a string"},
		{"timeout: 2h", 12, "timeout", "between 1s and 1h"},
		{"timeout: 30", 12, "timeout", "must be a string, not a number"},
		{"upstream_headers: [a]", 21, "upstream_headers", "must be a mapping"},
		{"upstream_headers: {X-Token: 5}", 31, "upstream_headers.X-Token", "must be a string"},
		{"upstream_headers: {Host: a}", 28, "upstream_headers.Host", "is reserved"},
		{"upstream_headers: {a.b: x, Via: '***'}", 35, "upstream_headers.Via", "is reserved"},
		{"upstream_headers: {a.b: x, a.B: x}", 27, "upstream_headers.a.b", "duplicate"},
		{"upstream_ca: x", 16, "upstream_ca", "certificates in PEM"},
		{"upstream_client_key: x", 24, "upstream_client_key", "private key in PEM"},
		{"upstream_connect_timeout: 1ms", 29, "upstream_connect_timeout", "between 100ms and 1m"},
		{"upstream_max_connections: 0", 29, "upstream_max_connections", "between 1 and 100000"},
		{"upstream_max_connections: 1_000", 29, "upstream_max_connections", "whole number"},
		{"max_body_bytes: 0x10", 19, "max_body_bytes", "whole number"},
		{"max_body_bytes: -1", 19, "max_body_bytes", "at least 1"},
		{"cors: {}", 9, "cors.origins", "at least one origin"},
		{"cors: {origins: [a, '*']}", 20, "cors.origins[0]", "must be an origin"},
		{"cors: {origins: ['*'], max_age: 86401}", 35, "cors.max_age", "between 0 and 86400"},
		{"cors: {origins: ['*'], max_age: 9223372036854775808}", 35, "cors.max_age", "whole number"},
		{"cors: {origins: ['*'], methods: null, age: 1}", 41, "cors.age", "is not a field"},
		{"key_headers: []", 16, "key_headers", "at least one"},
		{"key_headers: [X-API-Key, Cookie]", 28, "key_headers[1]", "another meaning"},
		{"allow_ips: [10.0.0.0/8, 10.0.0.1]", 27, "allow_ips[1]", "write 10.0.0.1/32"},
		{"deny_ips: [10.0.0.1/8]", 14, "deny_ips[0]", "write 10.0.0.0/8"},
		{"deny_ips: 10.0.0.0/8", 13, "deny_ips", "must be a list"},
		{"maintenance: true", 16, "maintenance", "must be a mapping"},
		{"maintenance: {until: 5}", 17, "maintenance.until", "use message or allow"},
		{"maintenance: {allow: [office]}", 25, "maintenance.allow[0]", "is not a network"},
		{"maintenance: {message: \"a\\tb\"}", 26, "maintenance.message", "control characters"},
		{"request_headers: true", 20, "request_headers", "must be a mapping"},
		{"request_headers: {put: {}}", 21, "request_headers.put", "use set, remove"},
		{"request_headers: {set: {Host: a}}", 33, "request_headers.set.Host", "is reserved"},
		{"response_headers: {set: {X-A: \"${ip}\"}}", 33, "response_headers.set.X-A", "the variables are ${request_id}"},
		{"response_headers: {remove: [X-A, x_a]}", 36, "response_headers.remove[1]", "is a duplicate"},
		{"allow_encoded_slashes: !!bool yes", 26, "allow_encoded_slashes", "true or false"},
	} {
		_, err := gateway.ParseDocument([]byte("gateway:\n  " + c.text + "\nroutes: []\n"))
		wantProblem(t, c.text, err, fmt.Sprintf("2, column %d", c.column), "gateway."+c.field, c.message)
	}
}

// Guarantee: a secret of a file is found, masked, and in no error.
func TestSecretsOfAFile(t *testing.T) {
	const secret = "s3cret-value"
	for text, want := range map[string]bool{
		"upstream_headers: {A: '***', B: " + secret + "}":                true,
		"upstream_headers: {A: '***'}":                                   false,
		"upstream_headers: null":                                         false,
		"upstream_client_key: '***'":                                     false,
		"upstream_client_key: null":                                      false,
		"name: " + secret:                                                false,
		"upstreams: [{name: a, headers: {A: '***', B: " + secret + "}}]": true,
		"upstreams: [{name: a, headers: {A: '***'}}]":                    false,
	} {
		d, err := gateway.ParseDocument([]byte("gateway: {" + text + "}\nroutes: []\n"))
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Gateway.HasSecrets(); got != want {
			t.Errorf("%s: got secrets %v; want %v", text, got, want)
		}
		if d.Gateway = d.Gateway.WithoutSecrets(); d.Gateway.HasSecrets() || want && strings.Contains(string(d.Encode()), secret) {
			t.Errorf("%s: got a secret in\n%s", text, d.Encode())
		}
	}
	key := string(certificatetest.New(t, "client").Key)
	d, err := gateway.ParseDocument([]byte(fmt.Sprintf(`{"gateway": {"upstream_client_key": %q}, "routes": []}`, key)))
	if err != nil || !d.Gateway.HasSecrets() || strings.Contains(string((&gateway.Document{Gateway: d.Gateway.WithoutSecrets()}).Encode()), "PRIVATE") {
		t.Errorf("got %v and %v; want the key to be a secret, and masked", err, d)
	}
	for _, text := range []string{
		"upstream_headers: {A: ' " + secret + "'}", "upstream_headers: {'" + secret + " ': x, A: \"" + secret + "\\n\"}", "upstream_client_key: " + secret,
		"upstream_headers: {A: {" + secret + ": 1}}", "upstream_client_key: [" + secret + "]", "upstream_headers: " + secret, "upstream_client_key: &a " + secret + "\n  x: *b",
	} {
		_, err := gateway.ParseDocument([]byte("gateway:\n  " + text + "\nroutes: []\n"))
		var f *fault.Error
		if !errors.As(err, &f) {
			t.Errorf("%s: got %v; want an error", text, err)
		} else if all := fmt.Sprint(f.Problems, f.Message); strings.Contains(all, secret) && !strings.Contains(text, "'"+secret+" '") {
			t.Errorf("%s: got %s; want no secret in it", text, all)
		}
	}
}

// Guarantee: a problem that is found without the file's text gets the position of the setting that
// it names, or of the nearest setting around it.
func TestPositionsOfSettings(t *testing.T) {
	_, positions, err := gateway.LocateDocument([]byte("gateway:\n  name: a\n  upstream_headers:\n    X-A: b\n    c.d: e\n  key_headers: [X-B]\nroutes: []\n"))
	if err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]string{
		"gateway.name": "2:9", "gateway.upstream_headers.X-A": "4:10", "gateway.upstream_headers.c.d": "5:10", "gateway.upstream_headers.Z": "4:5",
		"gateway.key_headers[0]": "6:17", "gateway.cors.origins": "2:3", "number": "0:0",
	} {
		p := fault.ProblemsOf(positions.In(fault.Invalid(field, "is bad")))[0]
		if got := fmt.Sprintf("%d:%d", p.Line, p.Column); got != want || p.Field != field || !strings.HasSuffix(p.Message, "is bad") {
			t.Errorf("%s: got %s %q at %s; want it at %s", field, p.Field, p.Message, got, want)
		}
	}
}

// Guarantee: a file that gives only one of the switches of self_service keeps the other, null switches both off, and other
// fields are named.
func TestSelfServiceOfAFile(t *testing.T) {
	row := gateway.Settings()[slices.Index(gateway.SettingNames(), "self_service")]
	for text, want := range map[string]gateway.SelfService{
		"{usage: true}":                {Usage: true, Rotate: true},
		"{rotate: false}":              {},
		"{usage: true, rotate: false}": {Usage: true},
		"{}":                           {Rotate: true},
		"null":                         {},
	} {
		d, err := gateway.ParseDocument([]byte("gateway:\n  self_service: " + text + "\nroutes: []\n"))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		set, err := row.Change(&d.Gateway)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		g := gateway.Gateway{Requests: gateway.Requests{SelfService: gateway.SelfService{Rotate: true}}}
		if set(&g); g.Requests.SelfService != want {
			t.Errorf("%s: got %+v; want %+v", text, g.Requests.SelfService, want)
		}
	}
	for text, want := range map[string]string{
		"{usage: 1}":     "gateway.self_service.usage",
		"{rotate: null}": "gateway.self_service.rotate",
		"{revoke: true}": "gateway.self_service.revoke",
		"true":           "gateway.self_service",
	} {
		_, err := gateway.ParseDocument([]byte("gateway:\n  self_service: " + text + "\nroutes: []\n"))
		problems := fault.ProblemsOf(err)
		if len(problems) != 1 || problems[0].Field != want {
			t.Errorf("%s: got problems %+v (%v); want one of the field %s", text, problems, err, want)
		}
	}
}
