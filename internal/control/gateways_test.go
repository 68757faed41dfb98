package control_test

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Guarantee: contract 3.3, the defaults of a new gateway, and the records of its creation.
func TestCreateGateway(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	var g *gateway.Gateway
	before := h.records(caller.Account.ID)
	g = h.gateway(caller)
	audits, events, changes := h.records(caller.Account.ID).since(before).summary()
	if !reflect.DeepEqual([][]string{audits, events, changes}, [][]string{{"gateway.create " + g.ID}, nil, {"gateway " + g.ID}}) {
		t.Errorf("got audit records %q, events %q, changes %q; want one audit record and one change", audits, events, changes)
	}
	want := &gateway.Gateway{
		ID: g.ID, AccountID: caller.Account.ID, Name: "orders", SharesName: true, Upstream: gateway.Upstream{URL: "https://orders.internal/base"},
		Hostname: gateway.DefaultHostname(g.ID, domain), Timeout: "60s", CreatedAt: h.clock.now(), Version: 1,
	}
	if !reflect.DeepEqual(g, want) {
		t.Errorf("created %+v; want %+v", g, want)
	}
	if got := must[*gateway.Gateway](h)(h.Gateway(ctx(), caller, g.ID)); !reflect.DeepEqual(got, want) {
		t.Errorf("stored %+v; want %+v", got, want)
	}
}

// invalidSetting is patches that are each rejected, on creation and on update.
type invalidSetting struct {
	name    string
	field   string // "" if any field may be named
	patches []gateway.Patch
}

func invalidSettings() []invalidSetting {
	type settings = gateway.Patch
	limit := func(sustained, burst, daily string) ratelimit.Config {
		return ratelimit.Config{Sustained: rate(sustained), Burst: rate(burst), Daily: rate(daily)}
	}
	host := value(map[string]string{"Host": "x"})
	return []invalidSetting{
		{"name", "name", []settings{{Name: value("")}, {Name: value("  ")}, {Name: value("n\u202e")}, {Name: null[string]()}}},
		{"upstream URL", "upstream_url", []settings{{UpstreamURL: value("ftp://x")}, {UpstreamURL: null[string]()}}},
		{"reserved or empty hostname", "hostname", []settings{{Hostname: value("x." + domain)}, {Hostname: value("")}}},
		{"hostname of another account", "hostname", []settings{{Hostname: value("evil.example")}, {Hostname: value("acme.example")}}},
		{"timeout", "timeout", []settings{{Timeout: value("2h")}, {Timeout: value("0s")}}},
		{"largest body", "max_body_bytes", []settings{{MaxBodyBytes: value(int64(-1))}, {MaxBodyBytes: value(int64(0))}}},
		{"CA", "upstream_ca", []settings{{UpstreamCA: value("x")}, {UpstreamCA: value("")}}},
		{"client certificate", "upstream_client_certificate", []settings{{UpstreamClientCertificate: value("x")}, {UpstreamClientCertificate: value("")}}},
		{"client key", "upstream_client_key", []settings{{UpstreamClientKey: value("x")}, {UpstreamClientKey: value("***")}}},
		{"connect timeout", "upstream_connect_timeout", []settings{{UpstreamConnectTimeout: value("99ms")}, {UpstreamConnectTimeout: value("")}}},
		{"idle timeout", "upstream_idle_timeout", []settings{{UpstreamIdleTimeout: value("61m")}, {UpstreamIdleTimeout: value("0s")}}},
		{"age of connections", "upstream_max_connection_age", []settings{{UpstreamMaxConnectionAge: value("25h")}, {UpstreamMaxConnectionAge: value("999ms")}}},
		{"connections", "upstream_max_connections", []settings{{UpstreamMaxConnections: value(int64(-1))}, {UpstreamMaxConnections: value(int64(100_001))}}},
		{"CORS without origins", "cors.origins", []settings{{CORS: value(gateway.CORS{})}}},
		{"reserved header", "upstream_headers.Host", []settings{{UpstreamHeaders: host}}},
		{"global daily cap", "global_rate_limit.daily", []settings{{GlobalLimit: value(limit("5/s", "", "9/day"))}, {GlobalLimit: value(limit("", "", "9/day"))}}},
		{"burst alone", "global_rate_limit.sustained", []settings{{GlobalLimit: value(limit("", "5/s", ""))}}},
		{"malformed limit", "", []settings{{GlobalLimit: value(ratelimit.Config{Daily: rate("5/s")})}, {GlobalLimit: value(ratelimit.Config{})}}},
	}
}

// Guarantee: every setting is validated, on creation and on update, and a rejected
// call leaves no record.
func TestInvalidGatewaySettingsAreRejected(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	for _, tc := range invalidSettings() {
		t.Run(tc.name, func(t *testing.T) {
			h.wantNoRecords(caller.Account.ID, func() {
				for _, p := range tc.patches {
					creation := p
					if !creation.Name.Present {
						creation.Name = value("n")
					}
					if !creation.UpstreamURL.Present {
						creation.UpstreamURL = value("https://h")
					}
					_, err := h.CreateGateway(ctx(), caller, creation, "")
					h.wantCode(err, fault.ValidationFailed, tc.field)
					for _, id := range []string{g.ID, "gw_none"} { // 422 comes before 404 and 412
						_, err = h.UpdateGateway(ctx(), caller, id, p, never)
						h.wantCode(err, fault.ValidationFailed, tc.field)
					}
				}
			})
		})
	}
	if list := must[[]gateway.Gateway](h)(h.Gateways(ctx(), caller, control.GatewayFilter{}, control.Page{Limit: 9})); len(list) != 1 {
		t.Errorf("got %d gateways after rejected creations; want 1", len(list))
	}
}

// Guarantee: a gateway is not created without a name and an upstream URL or with an invalid
// spec, and not updated if If-Match does not match. Such a call leaves no record.
func TestRejectedGatewayCallsLeaveNothing(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	h.wantNoRecords(caller.Account.ID, func() {
		_, err := h.CreateGateway(ctx(), caller, gateway.Patch{}, "")
		h.wantCode(err, fault.ValidationFailed, "name")
		_, err = h.CreateGateway(ctx(), caller, gateway.Patch{Name: value("n")}, "")
		h.wantCode(err, fault.ValidationFailed, "upstream_url")
		_, err = h.CreateGateway(ctx(), caller, newGateway("https://h"), "openapi: 3.1.0\npaths: [")
		h.wantCode(err, fault.ValidationFailed, "spec")
		_, err = h.UpdateGateway(ctx(), caller, g.ID, gateway.Patch{Name: value("x")}, version(2))
		h.wantCode(err, fault.PreconditionFailed, "")
	})
	if list := must[[]gateway.Gateway](h)(h.Gateways(ctx(), caller, control.GatewayFilter{}, control.Page{Limit: 9})); len(list) != 1 {
		t.Errorf("got %d gateways after rejected creations; want 1", len(list))
	}
}

// Guarantee: contract 4.1, hostnames are unique across accounts, stored in lower
// case, limited to the account's patterns, and free again once removed.
func TestHostnames(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	_, operator := h.account("default")
	named := func(hostname string) gateway.Patch {
		p := newGateway("https://h")
		p.Hostname = value(hostname)
		return p
	}
	g := must[*gateway.Gateway](h)(h.CreateGateway(ctx(), caller, named("API.acme.example"), ""))
	if g.Hostname != "api.acme.example" || !g.HostGiven {
		t.Errorf("got hostname %q, given %t; want api.acme.example, given", g.Hostname, g.HostGiven)
	}
	h.wantNoRecords(operator.Account.ID, func() {
		_, err := h.CreateGateway(ctx(), operator, named("api.acme.example"), emptySpec)
		h.wantCode(err, fault.Conflict, "hostname")
	})
	second := must[*gateway.Gateway](h)(h.CreateGateway(ctx(), operator, named("any.example"), ""))
	taken := gateway.Patch{Hostname: value("api.acme.example")}
	_, err := h.UpdateGateway(ctx(), operator, second.ID, taken, never)
	h.wantCode(err, fault.PreconditionFailed, "")
	_, err = h.UpdateGateway(ctx(), operator, second.ID, taken, nil)
	h.wantCode(err, fault.Conflict, "hostname")
	g = must[*gateway.Gateway](h)(h.UpdateGateway(ctx(), caller, g.ID, gateway.Patch{Hostname: null[string]()}, nil))
	if g.Hostname != gateway.DefaultHostname(g.ID, domain) || g.HostGiven {
		t.Errorf("got hostname %q, given %t, after removing it; want the one made from the identifier", g.Hostname, g.HostGiven)
	}
	must[*gateway.Gateway](h)(h.UpdateGateway(ctx(), operator, second.ID, taken, nil))
}

// Guarantee: upstream headers are sealed in the store, never appear in the audit log,
// and are dropped when the origin of the upstream URL changes.
func TestUpstreamHeaders(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	secret := value(map[string]string{"Authorization": "Bearer s3cret"})
	creation := newGateway("https://h/a")
	creation.UpstreamHeaders = secret
	g := must[*gateway.Gateway](h)(h.CreateGateway(ctx(), caller, creation, ""))
	plain, err := h.box.Open(g.Upstream.Headers["Authorization"])
	if err != nil || string(plain) != "Bearer s3cret" {
		t.Fatalf("opened %q, %v; want the value as given", plain, err)
	}
	patch := func(p gateway.Patch) *gateway.Gateway {
		t.Helper()
		return must[*gateway.Gateway](h)(h.UpdateGateway(ctx(), caller, g.ID, p, nil))
	}
	for _, same := range []string{"https://h/b", "https://H:443/"} {
		if got := patch(gateway.Patch{UpstreamURL: value(same)}); len(got.Upstream.Headers) != 1 {
			t.Errorf("%s, of the same origin, dropped the headers", same)
		}
	}
	for _, other := range []string{"http://h:443/", "https://h2/", "https://h:444/", "h2c://h:443"} {
		patch(gateway.Patch{UpstreamURL: value("https://h"), UpstreamHeaders: secret})
		if got := patch(gateway.Patch{UpstreamURL: value(other)}); len(got.Upstream.Headers) != 0 {
			t.Errorf("%s, of another origin, kept the headers", other)
		}
	}
	if got := patch(gateway.Patch{UpstreamURL: value("https://h9"), UpstreamHeaders: value(map[string]string{"X-New": "s3cret"})}); len(got.Upstream.Headers) != 1 {
		t.Error("headers given with the new URL were dropped")
	}
	v := patch(gateway.Patch{UpstreamHeaders: value(map[string]string{"X-New": "s3cret2"})}).Version
	if got := patch(gateway.Patch{UpstreamHeaders: null[map[string]string]()}); len(got.Upstream.Headers) != 0 || got.Version != v+1 {
		t.Errorf("after null: headers %v, version %d; want none, version %d", got.Upstream.Headers, got.Version, v+1)
	}
	h.wantNoRecords(caller.Account.ID, func() { // the same values again change nothing
		must[*gateway.Gateway](h)(h.UpdateGateway(ctx(), caller, g.ID, gateway.Patch{
			Name: value("n"), UpstreamHeaders: null[map[string]string](),
		}, nil))
	})
	for _, r := range h.records(caller.Account.ID).audits {
		if text := fmt.Sprint(r.Diff); containsAny(text, "s3cret") {
			t.Errorf("the audit record %s shows a secret: %s", r.Action, text)
		}
	}
}

// Guarantee: DELETE removes the routes and revokes the keys restricted to the
// gateway, each with its event and audit record, and leaves other keys alone.
func TestDeleteGateway(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	creation := newGateway("https://h")
	creation.Hostname = value("a.acme.example")
	g := must[*gateway.Gateway](h)(h.CreateGateway(ctx(), caller, creation, string(spec("/a"))))
	other := h.gateway(caller)
	newKey := func(gatewayID string) *control.NewKey {
		return must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "k", Scope: "read", GatewayID: gatewayID}))
	}
	bound, revoked, free, elsewhere := newKey(g.ID), newKey(g.ID), newKey(""), newKey(other.ID)
	must[*apikey.Key](h)(h.RevokeKey(ctx(), caller, revoked.ID, nil))
	r := must[[]gateway.Route](h)(h.Routes(ctx(), caller, g.ID, control.Page{Limit: 9}))[0]
	_, err := h.DeleteGateway(ctx(), caller, g.ID, never)
	h.wantCode(err, fault.PreconditionFailed, "")
	h.wantRecords(caller.Account.ID, func() {
		if got := must[*gateway.Gateway](h)(h.DeleteGateway(ctx(), caller, g.ID, version(g.Version))); got.ID != g.ID || got.Revision != 1 {
			t.Errorf("got gateway %s with revision %d; want %s with revision 1", got.ID, got.Revision, g.ID)
		}
	}, []string{"key.revoke " + bound.ID, "route.delete " + r.ID, "gateway.delete " + g.ID},
		[]string{"key.revoked " + bound.ID}, []string{"key " + bound.ID, "gateway " + g.ID})
	for id, state := range map[string]apikey.State{bound.ID: apikey.Revoked, revoked.ID: apikey.Revoked, free.ID: apikey.Active, elsewhere.ID: apikey.Active} {
		if k := must[*apikey.Key](h)(h.Key(ctx(), caller, id)); k.State(h.clock.now()) != state {
			t.Errorf("key %s is %s; want %s", id, k.State(h.clock.now()), state)
		}
	}
	_, err = h.DeleteGateway(ctx(), caller, g.ID, nil)
	h.wantCode(err, fault.NotFound, "")
	_, err = h.Routes(ctx(), caller, g.ID, control.Page{Limit: 9})
	h.wantCode(err, fault.NotFound, "")
	must[*gateway.Gateway](h)(h.CreateGateway(ctx(), caller, creation, "")) // the hostname is free again
}

// Guarantee: the gateways of an account are bounded, also if many are created at the same time. A
// further gateway is fault.Conflict until one is deleted. Other accounts have bounds of their own, and
// an account that has more already keeps them.
func TestGatewaysOfAnAccountAreBounded(t *testing.T) {
	const most, clients = 3, 8
	h := newHarness(t)
	h.maxGateways = most
	h.serve(h.db)
	caller, other := h.caller("acme", "admin"), h.caller("other", "admin")
	var (
		creating sync.WaitGroup
		created  [clients]*gateway.Gateway
		errs     [clients]error
	)
	for i := range clients {
		creating.Go(func() { created[i], errs[i] = h.CreateGateway(ctx(), caller, newGateway("http://127.0.0.1:9"), "") })
	}
	creating.Wait()
	var ids []string
	for i, err := range errs {
		if err == nil {
			ids = append(ids, created[i].ID)
			continue
		}
		h.wantCode(err, fault.Conflict, "")
	}
	if len(ids) != most {
		t.Fatalf("%d clients created %d gateways; want %d", clients, len(ids), most)
	}
	h.gateway(other)
	must[*gateway.Gateway](h)(h.DeleteGateway(ctx(), caller, ids[0], nil))
	h.gateway(caller)
	h.maxGateways = 1
	h.serve(h.db)
	_, err := h.CreateGateway(ctx(), caller, newGateway("http://127.0.0.1:9"), "")
	h.wantCode(err, fault.Conflict, "")
	if list := must[[]gateway.Gateway](h)(h.Gateways(ctx(), caller, control.GatewayFilter{}, control.Page{Limit: 10})); len(list) != most {
		t.Errorf("got %d gateways; want the %d from before", len(list), most)
	}
}

// Guarantee: contract 3, /v1/gateways. In an account, a second gateway of a name is a conflict that names the first,
// whether it is created, previewed, renamed or named by a file; unless the call allows it. Of creations at the same
// time one succeeds. What has a name twice goes on to work.
func TestNamesOfGatewaysAreUnique(t *testing.T) {
	h := newHarness(t)
	caller, other := h.caller("acme", "admin"), h.caller("other", "admin")
	in := control.NewGateway{Settings: newGateway("https://orders.internal")}
	create := func(c *control.Actor, in control.NewGateway) (*gateway.Gateway, error) {
		return h.CreateGatewayFrom(ctx(), c, in)
	}
	first := must[*gateway.Gateway](h)(create(caller, in))
	must[*gateway.Gateway](h)(create(other, in))
	named := func(what, field string, err error) {
		t.Helper()
		if h.wantCode(err, fault.Conflict, field); !strings.Contains(fault.MessageOf(err), first.ID) {
			t.Errorf("%s: got %q; want it to name %s", what, fault.MessageOf(err), first.ID)
		}
	}
	named("creation", "name", second(create(caller, in)))
	named("preview", "name", second(h.PreviewGateway(ctx(), caller, in)))

	free := in
	free.Settings.Name = value("free")
	g := must[*gateway.Gateway](h)(create(caller, free))
	rename := control.GatewayUpdate{Patch: gateway.Patch{Name: value("n")}}
	update := func(p control.GatewayUpdate) (*gateway.Gateway, error) {
		return h.Service.UpdateGateway(ctx(), caller, g.ID, p, nil)
	}
	named("renaming", "name", second(update(rename)))
	named("a file", "gateway.name", second(h.PushConfiguration(ctx(), caller, g.ID, []byte("gateway: {name: n}\nroutes: []\n"), false, nil)))

	rename.AllowDuplicate = true
	must[*gateway.Gateway](h)(update(rename))
	must[*gateway.Gateway](h)(update(control.GatewayUpdate{Patch: gateway.Patch{Name: value("n"), Timeout: value("7s")}}))
	must[*control.PushResult](h)(h.PushConfiguration(ctx(), caller, g.ID, []byte("gateway: {name: n, timeout: 8s}\nroutes: []\n"), false, nil))
	in.AllowDuplicate = true
	must[*gateway.Gateway](h)(create(caller, in))

	const clients = 8
	var creating sync.WaitGroup
	var errs [clients]error
	racing := control.NewGateway{Settings: newGateway("https://orders.internal")}
	racing.Settings.Name = value("race")
	for i := range clients {
		creating.Go(func() { errs[i] = second(create(caller, racing)) })
	}
	creating.Wait()
	created := 0
	for _, err := range errs {
		if err == nil {
			created++
		} else {
			h.wantCode(err, fault.Conflict, "name")
		}
	}
	if created != 1 {
		t.Errorf("got %d gateways from creations at the same time; want 1", created)
	}
}
