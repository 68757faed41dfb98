package control_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// settingsPatch draws a patch of any of the settings of a gateway.
func settingsPatch(pair certificatetest.Pair) *rapid.Generator[gateway.Patch] {
	return rapid.Custom(func(t *rapid.T) gateway.Patch {
		text := func(label string, of ...string) control.Optional[string] {
			s := rapid.SampledFrom(append(of, "")).Draw(t, label)
			return control.Optional[string]{Present: s != "", Value: s}
		}
		some := func(label string) bool { return rapid.Bool().Draw(t, label) }
		p := gateway.Patch{
			Name: text("name", "a: b", "null", " \"'"), Hostname: text("hostname", "drawn.acme.example"),
			DefaultPlan: text("plan", "drawn"), Timeout: text("timeout", "60s", "1m", "1.5s"), AllowEncodedSlashes: control.Optional[bool]{Present: true, Value: some("slashes")},
			CutStreams:             control.Optional[bool]{Present: true, Value: some("streams")},
			UpstreamConnectTimeout: text("connect", "100ms"), UpstreamIdleTimeout: text("idle", "1h"), UpstreamMaxConnectionAge: text("age", "24h"), UpstreamCA: text("ca", string(pair.Cert)),
		}
		if some("limited") {
			p.GlobalLimit = value(ratelimit.Config{Sustained: rate("600/minute"), Burst: rate("5/s")})
		}
		if some("cors") {
			p.CORS = value(gateway.CORS{Origins: []string{"*"}, Methods: rapid.SampledFrom([][]string{nil, {"GET", "NO"}}).Draw(t, "methods"), MaxAge: rapid.IntRange(0, 5).Draw(t, "max age")})
		}
		if some("body") {
			p.MaxBodyBytes = value(int64(1 << 40))
		}
		if some("connections") {
			p.UpstreamMaxConnections = value(int64(7))
		}
		if some("keys") {
			p.KeyHeaders = value(rapid.SampledFrom([][]string{{"Authorization"}, {"X-API-Key", "y"}}).Draw(t, "key headers"))
		}
		if some("headers") {
			p.UpstreamHeaders = value(map[string]string{"X-Token": "s3cret: x", "a.b": ""})
		}
		if some("certificate") {
			p.UpstreamClientCertificate, p.UpstreamClientKey = value(string(pair.Cert)), value(string(pair.Key))
		}
		return p
	})
}

// Guarantee: contract 5, the export of any gateway, applied to it, changes nothing and writes nothing,
// whether its routes come from calls, a spec or a configuration.
func TestAppliedExportWritesNothing(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	h.plan(caller, planOf("drawn"))
	pair := certificatetest.New(t, "client")
	rapid.Check(t, func(rt *rapid.T) {
		h.tb = rt
		defer func() { h.tb = t }()
		g := h.gateway(caller)
		switch rapid.SampledFrom([]string{"api", "spec", "config", "none"}).Draw(rt, "source") {
		case "api":
			r := h.route(caller, g.ID, "/a/{b}", "GET", "PUT")
			h.limitByAPI(caller, g.ID, r.ID, "5/s")
		case "spec":
			h.push(caller, g.ID, spec("/a 5/s", "/b"))
		case "config":
			h.configure(caller, g.ID, "routes:\n  - {path: /a, methods: [GET], auth: none}\n")
		}
		patch := settingsPatch(pair).Draw(rt, "settings")
		before := must[*gateway.Gateway](h)(h.UpdateGateway(ctx(), caller, g.ID, patch, nil))
		exported := must[[]byte](h)(h.Configuration(ctx(), caller, g.ID))
		newest, published := fmt.Sprint(h.newest(caller.Account.ID, 1, 1)), h.pub.count()
		for range 2 {
			if got := h.configure(caller, g.ID, string(exported)); got.Revision != 0 || len(got.Settings) != 0 {
				rt.Fatalf("got revision %d and settings %v from\n%s\nwant none", got.Revision, got.Settings, exported)
			}
		}
		if now := fmt.Sprint(h.newest(caller.Account.ID, 1, 1)); now != newest || h.pub.count() != published {
			rt.Fatalf("got the records %s and %d publications; want none", now, h.pub.count()-published)
		}
		after := must[*gateway.Gateway](h)(h.Gateway(ctx(), caller, g.ID))
		if after.Version != before.Version || after.Revision != before.Revision {
			rt.Fatalf("got version %d and revision %d; want %d and %d", after.Version, after.Revision, before.Version, before.Revision)
		}
		must[*gateway.Gateway](h)(h.DeleteGateway(ctx(), caller, g.ID, nil)) // gives back the hostname
	})
}

// configured is one gateway of the account acme, with a secret header and a route.
type configured struct {
	*harness
	caller *control.Actor
	id     string
}

const (
	headerSecret = "s3cret-value"
	secretConfig = "# token: " + headerSecret + "\ngateway:\n  upstream_headers: {X-Token: " + headerSecret + "}\n  timeout: 30s\nroutes:\n  - {path: /a, methods: [GET]}\n"
)

func newConfigured(t *testing.T) *configured {
	t.Helper()
	h := newHarness(t)
	c := &configured{harness: h, caller: h.caller("acme", "admin")}
	c.id = h.gateway(c.caller).ID
	return c
}

func (c *configured) apply(doc string) *control.PushResult {
	c.tb.Helper()
	return c.configure(c.caller, c.id, doc)
}

func (c *configured) now() *gateway.Gateway {
	c.tb.Helper()
	return must[*gateway.Gateway](c.harness)(c.Gateway(ctx(), c.caller, c.id))
}

// header returns a header's value in clear; "" if there is none.
func (c *configured) header(name string) string {
	c.tb.Helper()
	sealed := c.now().Upstream.Headers[name]
	if sealed == nil {
		return ""
	}
	return string(must[[]byte](c.harness)(c.box.Open(sealed)))
}

// wantRefused applies doc, and fails unless that is a validation error with these problems. It returns
// the message of the first.
func (c *configured) wantRefused(doc string, want ...string) string {
	c.tb.Helper()
	var message string
	c.wantNoRecords(c.caller.Account.ID, func() {
		_, err := c.PushConfiguration(ctx(), c.caller, c.id, []byte(doc), false, nil)
		var got []string
		for _, p := range fault.ProblemsOf(err) {
			got = append(got, fmt.Sprintf("%s at %d:%d", p.Field, p.Line, p.Column))
		}
		if !slices.Equal(got, want) {
			c.tb.Fatalf("got problems of %q (%v); want %q", got, err, want)
		}
		message = fault.MessageOf(err)
	})
	return message
}

// Guarantee: every setting of a file is applied, as a dry run says, and exported again.
func TestEverySettingIsAppliedAndExported(t *testing.T) {
	h := newHarness(t)
	operator := h.caller("default", "admin")
	h.gateway(operator)
	g := h.gateway(operator)
	h.plan(operator, planOf("free"))
	h.issuer(operator, "login", login("a"))
	pair := certificatetest.New(t, "client")
	quote := func(text []byte) string {
		quoted, err := json.Marshal(string(text))
		h.must(err)
		return string(quoted)
	}
	doc := "gateway:\n  name: shop\n  hostname: Shop.example\n  default: true\n  upstream_url: https://shop.internal\n  global_rate_limit: {sustained: 6000/min}\n  anonymous_limit: {sustained: 60/min}\n  default_plan: free\n" +
		"  timeout: 30s\n  upstream_headers: {X-Token: " + headerSecret + "}\n  upstream_ca: " + quote(pair.Cert) + "\n  upstream_client_certificate: " + quote(pair.Cert) +
		"\n  upstream_client_key: " + quote(pair.Key) + "\n  upstream_connect_timeout: 2s\n  upstream_idle_timeout: 30s\n  upstream_max_connection_age: 1m\n" +
		"  upstream_max_connections: 200\n  cors: {origins: [\"*\"]}\n  max_body_bytes: 1024\n  key_headers: [X-API-Key]\n  issuers: [login]\n  default_auth: any\n" +
		"  upstream_host: preserve\n  self_service: {usage: true, rotate: true}\n  error_format: problem\n  validate: report\n  split: [{upstream: default, weight: 5}]\n  drain_timeout: 5m\n" +
		"  allow_ips: [203.0.113.0/24]\n  deny_ips: [203.0.113.7/32]\n  maintenance: {message: back soon, allow: [203.0.113.0/24]}\n" +
		"  request_headers: {set: {X-Client: \"${client_ip}\"}, remove: [X-Debug]}\n  response_headers: {remove: [X-Powered-By]}\n"
	for _, s := range gateway.Settings() {
		if s.Kind == gateway.KindBool && s.Name != "default" {
			doc += fmt.Sprintf("  %s: %t\n", s.Name, s.Default() != true)
		}
	}
	doc += "routes: []\n"
	dry := must[*control.PushResult](h)(h.PushConfiguration(ctx(), operator, g.ID, []byte(doc), true, nil))
	got := h.configure(operator, g.ID, doc)
	var names []string
	for _, s := range got.Settings {
		names = append(names, s.Field)
	}
	if !slices.Equal(names, gateway.SettingNames()) {
		t.Errorf("got changes of %q; want of every setting, %q", names, gateway.SettingNames())
	}
	if shown := fmt.Sprint(got.Settings); strings.Contains(shown, headerSecret) || strings.Contains(shown, "PRIVATE") || shown != fmt.Sprint(dry.Settings) {
		t.Errorf("got changes %s; want those of the dry run, %v, without secrets", shown, dry.Settings)
	}
	exported := must[[]byte](h)(h.Configuration(ctx(), operator, g.ID))
	d, err := gateway.ParseDocument(exported)
	h.must(err)
	want, err := gateway.ParseDocument([]byte(strings.Replace(doc, "Shop.example", "shop.example", 1)))
	h.must(err)
	want.Gateway = want.Gateway.WithoutSecrets()
	if !bytes.Equal(d.Encode(), want.Encode()) {
		t.Errorf("got export\n%s\nwant\n%s", exported, want.Encode())
	}
	if now := must[*gateway.Gateway](h)(h.Gateway(ctx(), operator, g.ID)); !now.Default || now.Upstream.Timeouts.Connect != "2s" {
		t.Errorf("got gateway %+v; want the default gateway, with its settings", now)
	}
	if list := must[[]gateway.Gateway](h)(h.Gateways(ctx(), operator, control.GatewayFilter{}, control.Page{Limit: 9})); list[1].Default {
		t.Error("got two default gateways; want one")
	}
}

// Guarantee: a secret of a file is in no stored byte in clear, in no revision, audit record, event or
// export. The same secret again, or *** for it, changes nothing.
func TestSecretOfAFileIsSealed(t *testing.T) {
	c := newConfigured(t)
	got := c.apply(secretConfig)
	if got.Revision != 1 || c.header("X-Token") != headerSecret {
		t.Fatalf("got revision %d and the header %q; want 1 and the secret", got.Revision, c.header("X-Token"))
	}
	rev := must[*gateway.Revision](c.harness)(c.Revision(ctx(), c.caller, c.id, 1))
	exported := must[[]byte](c.harness)(c.Configuration(ctx(), c.caller, c.id))
	logs := c.logs(c.caller.Account.ID)
	for what, text := range map[string]string{
		"the revision": string(rev.Content), "the export": string(exported), "the audit log": fmt.Sprint(logs.audits), "the result": fmt.Sprint(got.Settings),
	} {
		if strings.Contains(text, headerSecret) || !strings.Contains(text, "***") {
			t.Errorf("got %s in %s; want ***", text, what)
		}
	}
	for _, e := range logs.events {
		if strings.Contains(string(e.Payload), headerSecret) {
			t.Errorf("got the secret in the event %s", e.Payload)
		}
	}
	c.wantNoRecords(c.caller.Account.ID, func() {
		c.apply(secretConfig)
		c.apply(string(exported))
		c.apply(string(rev.Content))
	})
	c.close()
	defer c.open()
	for _, suffix := range []string{"", "-wal"} {
		stored, err := os.ReadFile(c.path + suffix)
		if err != nil && suffix == "" {
			t.Fatal(err)
		}
		if bytes.Contains(stored, []byte(headerSecret)) {
			t.Errorf("got the secret in the file %s of the database", c.path+suffix)
		}
	}
}

// Guarantee: *** keeps only a secret that the gateway has, for the same origin. Elsewhere it is refused
// with its position and the remedy, and nothing changes.
func TestMaskedSecretsAreKeptOrRefused(t *testing.T) {
	c := newConfigured(t)
	masked := "gateway:\n  upstream_headers: {X-Token: '***', X-Other: y}\n  upstream_client_key: '***'\nroutes: []\n"
	message := c.wantRefused(masked, "gateway.upstream_headers.X-Token at 2:31", "gateway.upstream_client_key at 3:24")
	if !strings.Contains(message, "${env:NAME}") {
		t.Errorf("got %q; want the remedy in it", message)
	}
	c.apply(secretConfig)
	c.wantRefused("gateway:\n  upstream_url: https://evil.example\n  upstream_headers: {X-Token: '***'}\nroutes: []\n", "gateway.upstream_headers.X-Token at 3:31")
	if got := c.apply("gateway:\n  upstream_url: https://orders.internal/other\n  upstream_headers: {X-Token: '***', X-Other: y}\nroutes: []\n"); len(got.Settings) != 2 {
		t.Errorf("got changes %v; want of the URL and the headers", got.Settings)
	}
	if c.header("X-Token") != headerSecret || c.header("X-Other") != "y" {
		t.Errorf("got the headers %q and %q; want the secret and y", c.header("X-Token"), c.header("X-Other"))
	}
}

// Guarantee: problems of a file that only the server can find have their positions too.
func TestServerProblemsOfSettingsHavePositions(t *testing.T) {
	c := newConfigured(t)
	pair := certificatetest.New(t, "client")
	cert := strings.ReplaceAll(string(pair.Cert), "\n", "\\n")
	c.wantRefused("gateway:\n  default: true\n  hostname: a.other.example\nroutes: []\n", "gateway.hostname at 3:13", "gateway.default at 2:12")
	c.wantRefused("gateway:\n  upstream_url: http://a\n  upstream_ca: \""+cert+"\"\nroutes: []\n", "gateway.upstream_ca at 3:16")
	c.wantRefused("gateway:\n  upstream_client_certificate: \""+cert+"\"\nroutes: []\n", "gateway.upstream_client_key at 2:3")
}

// Guarantee: a rollback restores the settings that the file of the revision names. It keeps secrets, and
// says which secrets it cannot restore. It never moves the default gateway.
func TestRollbackRestoresSettings(t *testing.T) {
	t.Run("with the secret", func(t *testing.T) {
		c := newConfigured(t)
		c.apply(secretConfig)
		c.apply("gateway: {timeout: 45s, upstream_headers: {X-Token: new, X-More: a}}\nroutes: []\n")
		got := must[*control.PushResult](c.harness)(c.Rollback(ctx(), c.caller, c.id, 1, false, nil))
		if g := c.now(); g.Timeout != "30s" || c.header("X-Token") != "new" || len(g.Upstream.Headers) != 1 || len(got.Warnings) != 0 || len(got.Settings) != 2 {
			t.Errorf("got %+v, settings %v and warnings %q; want the timeout and the headers of revision 1, with the present secret", g, got.Settings, got.Warnings)
		}
	})
	t.Run("without the secret", func(t *testing.T) {
		c := newConfigured(t)
		c.apply(secretConfig)
		c.apply("gateway: {timeout: 45s, upstream_headers: null}\nroutes: []\n")
		got := must[*control.PushResult](c.harness)(c.Rollback(ctx(), c.caller, c.id, 1, false, nil))
		if c.now().Timeout != "30s" || c.header("X-Token") != "" || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "upstream_headers.X-Token") {
			t.Errorf("got warnings %q and the header %q; want the other settings restored, and a warning of the header", got.Warnings, c.header("X-Token"))
		}
	})
	t.Run("to another origin", func(t *testing.T) {
		c := newConfigured(t)
		pair := certificatetest.New(t, "client")
		files := []string{"https://a", "https://b"}
		for _, url := range files {
			cert, key := strings.ReplaceAll(string(pair.Cert), "\n", "\\n"), strings.ReplaceAll(string(pair.Key), "\n", "\\n")
			c.apply(`{"gateway": {"upstream_url": "` + url + `", "upstream_headers": {"X-Token": "of ` + url + `"}, "upstream_client_certificate": "` + cert + `", "upstream_client_key": "` + key + `"}, "routes": []}`)
		}
		got := must[*control.PushResult](c.harness)(c.Rollback(ctx(), c.caller, c.id, 1, false, nil))
		if u := c.now().Upstream; u.URL != "https://a" || len(u.Headers) != 0 || u.TLS.ClientCertificate != "" || u.TLS.ClientKey != nil || len(got.Warnings) != 2 {
			t.Errorf("got upstream %+v and warnings %q; want the URL of revision 1, no secret of another origin, and two warnings", u, got.Warnings)
		}
	})
	t.Run("of the default gateway", func(t *testing.T) {
		h := newHarness(t)
		operator := h.caller("default", "admin")
		first, second := h.gateway(operator), h.gateway(operator)
		h.configure(operator, first.ID, "gateway: {default: true, name: a}\nroutes: []\n")
		h.configure(operator, second.ID, "gateway: {default: true}\nroutes: []\n")
		h.configure(operator, first.ID, "gateway: {name: b}\nroutes: []\n")
		must[*control.PushResult](h)(h.Rollback(ctx(), operator, first.ID, 1, false, nil))
		if g := must[*gateway.Gateway](h)(h.Gateway(ctx(), operator, first.ID)); g.Default || g.Name != "a" {
			t.Errorf("got name %q, default %v; want a, and the default gateway where it was", g.Name, g.Default)
		}
	})
}

// Guarantee: a gateway is created from a file as a whole, with all of its settings and routes as revision
// 1 and without an event, or not at all. A dry run returns what would be created, and changes nothing.
func TestGatewayIsCreatedFromAFile(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	const file = "gateway:\n  name: shop\n  upstream_url: https://shop.internal\n  hostname: shop.acme.example\n  upstream_headers: {X-Token: " + headerSecret + "}\nroutes:\n  - {path: /a, methods: [GET]}\n"
	in := control.NewGateway{Settings: gateway.Patch{Timeout: value("30s"), Name: value("other")}, Config: file}
	var dry *control.PushResult
	h.wantNoRecords(caller.Account.ID, func() { dry = must[*control.PushResult](h)(h.PreviewGateway(ctx(), caller, in)) })
	const want = "[{name <nil> shop} {hostname <nil> shop.acme.example} {upstream_url <nil> https://shop.internal} {timeout <nil> 30s} {upstream_headers <nil> map[X-Token:***]}]"
	if got := fmt.Sprint(dry.Settings); got != want || show(dry) != "0: +[GET /a] -[] ~[] =0" || dry.Added[0].RouteID != "" {
		t.Errorf("got %s of %s; want %s and the route", show(dry), got, want)
	}

	before := h.records(caller.Account.ID)
	g := must[*gateway.Gateway](h)(h.CreateGatewayFrom(ctx(), caller, in))
	audits, events, _ := h.records(caller.Account.ID).since(before).summary()
	if len(audits) != 1 || len(events) != 0 || g.Revision != 1 || g.Name != "shop" || g.Timeout != "30s" || g.Hostname != "shop.acme.example" {
		t.Errorf("got audit records %q, events %q and gateway %+v; want one record and the gateway of the file", audits, events, g)
	}
	rev := must[*gateway.Revision](h)(h.Revision(ctx(), caller, g.ID, 1))
	if rev.Kind != gateway.ConfigDocument || len(rev.Routes) != 1 || strings.Contains(string(rev.Content), headerSecret) {
		t.Errorf("got revision %+v; want the configuration without its secret", rev)
	}
	if again := h.configure(caller, g.ID, file); again.Revision != 0 {
		t.Errorf("got revision %d of the same file; want none", again.Revision)
	}
	empty := must[*gateway.Gateway](h)(h.CreateGatewayFrom(ctx(), caller, control.NewGateway{Config: "gateway: {name: a, upstream_url: 'http://a'}\nroutes: []\n"}))
	if empty.Revision != 1 {
		t.Errorf("got revision %d of a file without routes; want 1", empty.Revision)
	}
}

// Guarantee: a file that cannot make a gateway makes nothing, also in a dry run, and each problem has its
// field and position.
func TestInvalidCreationsFromAFile(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	taken := newGateway("http://a")
	taken.Hostname = value("taken.acme.example")
	must[*gateway.Gateway](h)(h.CreateGateway(ctx(), h.caller("default", "admin"), taken, ""))
	const valid = "gateway: {name: a, upstream_url: 'http://a'}\nroutes: []\n"
	for _, tc := range []struct {
		name string
		in   control.NewGateway
		code fault.Code
		want string // the problems
	}{
		{"two documents", control.NewGateway{Config: valid, Spec: emptySpec}, fault.ValidationFailed, "config 0:0"},
		{"no upstream", control.NewGateway{Config: "gateway: {name: a}\nroutes: []\n"}, fault.ValidationFailed, "upstream_url 0:0"},
		{"neither", control.NewGateway{Config: "routes: []\n"}, fault.ValidationFailed, "name 0:0 upstream_url 0:0"},
		{"a bad file", control.NewGateway{Config: "gateway: {nam: a}\nroutes: [5]\n"}, fault.ValidationFailed, "config.gateway.nam 1:11 config.routes[0] 2:10"},
		{"a bad setting beside it", control.NewGateway{Config: "routes: 5\n", Settings: gateway.Patch{Timeout: value("1ms")}}, fault.ValidationFailed, "timeout 0:0 config.routes 1:9"},
		{"a hostname", control.NewGateway{Config: "gateway: {name: a, upstream_url: 'http://a', hostname: a.other.example}\nroutes: []\n"}, fault.ValidationFailed, "config.gateway.hostname 1:56"},
		{"a masked secret", control.NewGateway{Config: "gateway: {name: a, upstream_url: 'http://a', upstream_headers: {A: '***'}}\nroutes: []\n"}, fault.ValidationFailed, "config.gateway.upstream_headers.A 1:68"},
		{"a certificate for http", control.NewGateway{Config: "gateway: {name: a, upstream_url: 'http://a', upstream_client_key: null, cors: {origins: []}}\nroutes: []\n"}, fault.ValidationFailed, "config.gateway.cors.origins 1:89"},
		{"a hostname in use", control.NewGateway{Config: "gateway: {name: a, upstream_url: 'http://a', hostname: taken.acme.example}\nroutes: []\n"}, fault.Conflict, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for what, call := range map[string]func() error{
				"creation": func() error { return second(h.CreateGatewayFrom(ctx(), caller, tc.in)) },
				"dry run":  func() error { return second(h.PreviewGateway(ctx(), caller, tc.in)) },
			} {
				var err error
				h.wantNoRecords(caller.Account.ID, func() { err = call() })
				var got []string
				for _, p := range fault.ProblemsOf(err) {
					got = append(got, fmt.Sprintf("%s %d:%d", p.Field, p.Line, p.Column))
				}
				if fault.CodeOf(err) != tc.code || tc.want != "" && strings.Join(got, " ") != tc.want {
					t.Errorf("%s: got %v with problems %q; want %s %s", what, err, got, tc.code, tc.want)
				}
			}
		})
	}
}

// Guarantee: a dry run refuses a hostname that another account has, as the push does. If another gateway
// of the account has the hostname, the dry run only warns, because that gateway may give it up first; the
// push refuses it.
func TestDryRunOfAHostnameInUse(t *testing.T) {
	c := newConfigured(t)
	give := func(account, hostname string) {
		t.Helper()
		in := newGateway("http://a")
		in.Hostname = value(hostname)
		must[*gateway.Gateway](c.harness)(c.CreateGateway(ctx(), c.harness.caller(account, "admin"), in, ""))
	}
	give("acme", "ours.acme.example")
	give("default", "theirs.acme.example")
	push := func(hostname string, dryRun bool) (*control.PushResult, error) {
		return c.PushConfiguration(ctx(), c.caller, c.id, []byte("gateway: {hostname: "+hostname+"}\nroutes: []\n"), dryRun, nil)
	}
	for _, dryRun := range []bool{true, false} {
		c.wantCode(second(push("theirs.acme.example", dryRun)), fault.Conflict, "gateway.hostname")
	}
	dry := must[*control.PushResult](c.harness)(push("ours.acme.example", true))
	if len(dry.Warnings) != 1 || !strings.Contains(dry.Warnings[0], "ours.acme.example") {
		t.Errorf("got warnings %q; want one of the hostname", dry.Warnings)
	}
	c.wantCode(second(push("ours.acme.example", false)), fault.Conflict, "hostname")
}
