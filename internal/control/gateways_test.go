package control_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Guarantee: contract 3.3, what a new gateway has where nothing was given.
func TestCreateGateway(t *testing.T) {
	h := newHouse(t)
	caller := h.caller("acme", "admin")
	var g *gateway.Gateway
	before := h.trace(caller.Account.ID)
	g = h.gateway(caller)
	audits, events, changes := h.trace(caller.Account.ID).since(before).story()
	if !reflect.DeepEqual([][]string{audits, events, changes}, [][]string{{"gateway.create " + g.ID}, nil, {"gateway " + g.ID}}) {
		t.Errorf("left %q, %q, %q", audits, events, changes)
	}
	want := &gateway.Gateway{
		ID: g.ID, AccountID: caller.Account.ID, Name: "orders", UpstreamURL: "https://orders.internal/base",
		Hostname: gateway.MadeHostname(g.ID, domain), Timeout: "60s", CreatedAt: h.clock.now(), Version: 1,
	}
	if !reflect.DeepEqual(g, want) {
		t.Errorf("made %+v; want %+v", g, want)
	}
	if got := must[*gateway.Gateway](h)(h.Gateway(ctx(), caller, g.ID)); !reflect.DeepEqual(got, want) {
		t.Errorf("stored %+v; want %+v", got, want)
	}
}

// Guarantee: every member that a user gives is checked, on creation and on
// update, and what is refused leaves nothing.
func TestGatewayRefuses(t *testing.T) {
	h := newHouse(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	limit := func(sustained, burst, daily string) ratelimit.Config {
		return ratelimit.Config{Sustained: rate(sustained), Burst: rate(burst), Daily: rate(daily)}
	}
	h.wantStory(caller.Account.ID, func() {
		for _, tc := range []struct {
			field  string
			change func(*control.GatewayInput)
			patch  control.GatewayPatch
		}{
			{"name", func(in *control.GatewayInput) { in.Name = "" }, control.GatewayPatch{Name: null[string]()}},
			{"upstream_url", func(in *control.GatewayInput) { in.UpstreamURL = "ftp://x" }, control.GatewayPatch{UpstreamURL: null[string]()}},
			{"hostname", func(in *control.GatewayInput) { in.Hostname = "x." + domain }, control.GatewayPatch{Hostname: value("")}},
			{"hostname", func(in *control.GatewayInput) { in.Hostname = "evil.example" }, control.GatewayPatch{Hostname: value("acme.example")}},
			{"timeout", func(in *control.GatewayInput) { in.Timeout = "2h" }, control.GatewayPatch{Timeout: value("0s")}},
			{"max_body_bytes", func(in *control.GatewayInput) { in.MaxBodyBytes = -1 }, control.GatewayPatch{MaxBodyBytes: value(int64(0))}},
			{"upstream_ca", func(in *control.GatewayInput) { in.UpstreamCA = "x" }, control.GatewayPatch{UpstreamCA: value("")}},
			{"upstream_client_certificate", func(in *control.GatewayInput) { in.UpstreamClientCertificate = "x" }, control.GatewayPatch{UpstreamClientCertificate: value("")}},
			{"upstream_client_key", func(in *control.GatewayInput) { in.UpstreamClientKey = "x" }, control.GatewayPatch{UpstreamClientKey: value("***")}},
			{"upstream_connect_timeout", func(in *control.GatewayInput) { in.UpstreamConnectTimeout = "99ms" }, control.GatewayPatch{UpstreamConnectTimeout: value("")}},
			{"upstream_idle_timeout", func(in *control.GatewayInput) { in.UpstreamIdleTimeout = "61m" }, control.GatewayPatch{UpstreamIdleTimeout: value("0s")}},
			{"upstream_max_connections", func(in *control.GatewayInput) { in.UpstreamMaxConnections = -1 }, control.GatewayPatch{UpstreamMaxConnections: value(int64(100_001))}},
			{"cors.origins", func(in *control.GatewayInput) { in.CORS = &gateway.CORS{} }, control.GatewayPatch{CORS: value(gateway.CORS{})}},
			{"upstream_headers.Host", func(in *control.GatewayInput) { in.UpstreamHeaders = map[string]string{"Host": "x"} }, control.GatewayPatch{UpstreamHeaders: value(map[string]string{"Host": "x"})}},
			{"global_rate_limit.daily", func(in *control.GatewayInput) { in.GlobalLimit = limit("5/s", "", "9/day") }, control.GatewayPatch{GlobalLimit: value(limit("", "", "9/day"))}},
			{"global_rate_limit.sustained", func(in *control.GatewayInput) { in.GlobalLimit = limit("", "5/s", "") }, control.GatewayPatch{GlobalLimit: value(limit("", "5/s", ""))}},
			{"global_rate_limit", func(in *control.GatewayInput) { in.GlobalLimit.Daily = rate("5/s") }, control.GatewayPatch{GlobalLimit: value(ratelimit.Config{})}},
			{"spec", func(in *control.GatewayInput) { in.Spec = "openapi: 3.1.0\npaths: [" }, control.GatewayPatch{Name: value("")}},
		} {
			in := control.GatewayInput{Name: "n", UpstreamURL: "https://h"}
			tc.change(&in)
			field := tc.field
			if field == "global_rate_limit" { // which of the members it names is not said
				field = ""
			}
			_, err := h.CreateGateway(ctx(), caller, in)
			h.wantCode(err, fault.ValidationFailed, field)
			if field == "spec" {
				field = "name"
			}
			_, err = h.UpdateGateway(ctx(), caller, g.ID, tc.patch, never)
			h.wantCode(err, fault.ValidationFailed, field)
			_, err = h.UpdateGateway(ctx(), caller, "gw_none", tc.patch, never)
			h.wantCode(err, fault.ValidationFailed, field)
		}
		_, err := h.UpdateGateway(ctx(), caller, g.ID, control.GatewayPatch{Name: value("x")}, version(2))
		h.wantCode(err, fault.PreconditionFailed, "")
	}, nil, nil, nil)
	if list := must[[]gateway.Gateway](h)(h.Gateways(ctx(), caller, control.Page{Limit: 9})); len(list) != 1 {
		t.Errorf("%d gateways after refused creations", len(list))
	}
}

// Guarantee: contract 4.1, hostnames: unique over all accounts, lower case,
// within the account's patterns, and given back when removed.
func TestHostnames(t *testing.T) {
	h := newHouse(t)
	caller := h.caller("acme", "admin")
	_, operator := h.account("default")
	g := must[*gateway.Gateway](h)(h.CreateGateway(ctx(), caller, control.GatewayInput{Name: "n", UpstreamURL: "https://h", Hostname: "API.acme.example"}))
	if g.Hostname != "api.acme.example" || !g.HostGiven {
		t.Errorf("hostname %q", g.Hostname)
	}
	h.wantStory(operator.Account.ID, func() {
		_, err := h.CreateGateway(ctx(), operator, control.GatewayInput{Name: "n", UpstreamURL: "https://h", Hostname: "api.acme.example", Spec: emptySpec})
		h.wantCode(err, fault.Conflict, "hostname")
	}, nil, nil, nil)
	taken := must[*gateway.Gateway](h)(h.CreateGateway(ctx(), operator, control.GatewayInput{Name: "n", UpstreamURL: "https://h", Hostname: "any.example"}))
	_, err := h.UpdateGateway(ctx(), operator, taken.ID, control.GatewayPatch{Hostname: value("api.acme.example")}, never)
	h.wantCode(err, fault.PreconditionFailed, "")
	_, err = h.UpdateGateway(ctx(), operator, taken.ID, control.GatewayPatch{Hostname: value("api.acme.example")}, nil)
	h.wantCode(err, fault.Conflict, "hostname")
	g = must[*gateway.Gateway](h)(h.UpdateGateway(ctx(), caller, g.ID, control.GatewayPatch{Hostname: null[string]()}, nil))
	if g.Hostname != gateway.MadeHostname(g.ID, domain) || g.HostGiven {
		t.Errorf("hostname %q after it was removed", g.Hostname)
	}
	must[*gateway.Gateway](h)(h.UpdateGateway(ctx(), operator, taken.ID, control.GatewayPatch{Hostname: value("api.acme.example")}, nil))
}

// Guarantee: upstream headers are sealed in the store, never in the audit log,
// and dropped when the origin of the URL changes.
func TestUpstreamHeaders(t *testing.T) {
	h := newHouse(t)
	caller := h.caller("acme", "admin")
	g := must[*gateway.Gateway](h)(h.CreateGateway(ctx(), caller, control.GatewayInput{
		Name: "n", UpstreamURL: "https://h/a", UpstreamHeaders: map[string]string{"Authorization": "Bearer s3cret"},
	}))
	plain, err := h.box.Open(g.UpstreamHeaders["Authorization"])
	if err != nil || string(plain) != "Bearer s3cret" {
		t.Fatalf("opened %q, %v", plain, err)
	}
	patch := func(p control.GatewayPatch) *gateway.Gateway {
		t.Helper()
		return must[*gateway.Gateway](h)(h.UpdateGateway(ctx(), caller, g.ID, p, nil))
	}
	for _, same := range []string{"https://h/b", "https://H:443/"} {
		if got := patch(control.GatewayPatch{UpstreamURL: value(same)}); len(got.UpstreamHeaders) != 1 {
			t.Errorf("%s is the same origin, and the headers are gone", same)
		}
	}
	for _, other := range []string{"http://h:443/", "https://h2/", "https://h:444/", "h2c://h:443"} {
		patch(control.GatewayPatch{UpstreamURL: value("https://h"), UpstreamHeaders: value(map[string]string{"Authorization": "Bearer s3cret"})})
		if got := patch(control.GatewayPatch{UpstreamURL: value(other)}); len(got.UpstreamHeaders) != 0 {
			t.Errorf("%s is another origin, and the headers stayed", other)
		}
	}
	if got := patch(control.GatewayPatch{UpstreamURL: value("https://h9"), UpstreamHeaders: value(map[string]string{"X-New": "s3cret"})}); len(got.UpstreamHeaders) != 1 {
		t.Error("headers given with the URL were dropped")
	}
	v := patch(control.GatewayPatch{UpstreamHeaders: value(map[string]string{"X-New": "s3cret2"})}).Version
	if got := patch(control.GatewayPatch{UpstreamHeaders: null[map[string]string]()}); len(got.UpstreamHeaders) != 0 || got.Version != v+1 {
		t.Errorf("null left %v", got.UpstreamHeaders)
	}
	h.wantStory(caller.Account.ID, func() { patch(control.GatewayPatch{UpstreamHeaders: null[map[string]string](), Name: value("n")}) }, nil, nil, nil)
	for _, r := range h.trace(caller.Account.ID).audits {
		if text := fmt.Sprint(r.Diff); containsAny(text, "s3cret") {
			t.Errorf("audit record %s tells a secret: %s", r.Action, text)
		}
	}
}

// Guarantee: DELETE ends the routes and revokes the keys restricted to the
// gateway, each with its event and audit record, and leaves other keys alone.
func TestDeleteGateway(t *testing.T) {
	h := newHouse(t)
	caller := h.caller("acme", "admin")
	g := must[*gateway.Gateway](h)(h.CreateGateway(ctx(), caller, control.GatewayInput{
		Name: "n", UpstreamURL: "https://h", Hostname: "a.acme.example", Spec: string(spec("/a")),
	}))
	other := h.gateway(caller)
	make := func(gatewayID string) *control.NewKey {
		return must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "k", Scope: "read", GatewayID: gatewayID}))
	}
	bound, gone, free, elsewhere := make(g.ID), make(g.ID), make(""), make(other.ID)
	must[*apikey.Key](h)(h.RevokeKey(ctx(), caller, gone.ID, nil))
	r := must[[]gateway.Route](h)(h.Routes(ctx(), caller, g.ID, control.Page{Limit: 9}))[0]
	_, err := h.DeleteGateway(ctx(), caller, g.ID, never)
	h.wantCode(err, fault.PreconditionFailed, "")
	h.wantStory(caller.Account.ID, func() {
		if got := must[*gateway.Gateway](h)(h.DeleteGateway(ctx(), caller, g.ID, version(g.Version))); got.ID != g.ID || got.Revision != 1 {
			t.Errorf("answered %+v", got)
		}
	}, []string{"key.revoke " + bound.ID, "route.delete " + r.ID, "gateway.delete " + g.ID},
		[]string{"key.revoked " + bound.ID}, []string{"key " + bound.ID, "gateway " + g.ID})
	for id, state := range map[string]apikey.State{bound.ID: apikey.Revoked, gone.ID: apikey.Revoked, free.ID: apikey.Active, elsewhere.ID: apikey.Active} {
		if k := must[*apikey.Key](h)(h.Key(ctx(), caller, id)); k.State(h.clock.now()) != state {
			t.Errorf("key %s is %s; want %s", id, k.State(h.clock.now()), state)
		}
	}
	_, err = h.DeleteGateway(ctx(), caller, g.ID, nil)
	h.wantCode(err, fault.NotFound, "")
	_, err = h.Routes(ctx(), caller, g.ID, control.Page{Limit: 9})
	h.wantCode(err, fault.NotFound, "")
	must[*gateway.Gateway](h)(h.CreateGateway(ctx(), caller, control.GatewayInput{Name: "n", UpstreamURL: "https://h", Hostname: "a.acme.example"}))
}
