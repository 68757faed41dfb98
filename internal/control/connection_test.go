package control_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// Guarantee: a client certificate and its key are given and taken away together,
// belong together, are for https alone, and go when the origin of the URL changes;
// the key is sealed in the store, and never in the audit log.
func TestClientCertificate(t *testing.T) {
	h := newHouse(t)
	caller := h.caller("acme", "admin")
	one, two := certificatetest.New(t, "one"), certificatetest.New(t, "two")
	pair := func(p certificatetest.Pair) control.GatewayPatch {
		return control.GatewayPatch{UpstreamClientCertificate: value(string(p.Cert)), UpstreamClientKey: value(string(p.Key))}
	}
	none := control.GatewayPatch{UpstreamClientCertificate: null[string](), UpstreamClientKey: null[string]()}
	g := must[*gateway.Gateway](h)(h.CreateGateway(ctx(), caller, control.GatewayInput{
		Name: "n", UpstreamURL: "https://h/a", UpstreamClientCertificate: string(one.Cert), UpstreamClientKey: string(one.Key),
	}))
	patch := func(p control.GatewayPatch) *gateway.Gateway {
		t.Helper()
		return must[*gateway.Gateway](h)(h.UpdateGateway(ctx(), caller, g.ID, p, nil))
	}
	refused := func(p control.GatewayPatch, field string) {
		t.Helper()
		h.wantStory(caller.Account.ID, func() {
			_, err := h.UpdateGateway(ctx(), caller, g.ID, p, nil)
			h.wantCode(err, fault.ValidationFailed, field)
		}, nil, nil, nil)
	}
	has := func(g *gateway.Gateway, want certificatetest.Pair) {
		t.Helper()
		plain, err := h.box.Open(g.UpstreamClientKey)
		if err != nil || !bytes.Equal(plain, want.Key) || g.UpstreamClientCertificate != string(want.Cert) {
			t.Errorf("it has %q and %d bytes of a key, %v", g.UpstreamClientCertificate, len(g.UpstreamClientKey), err)
		}
	}
	has(g, one)
	has(patch(control.GatewayPatch{Name: value("renamed")}), one)
	has(patch(control.GatewayPatch{UpstreamURL: value("https://H:443/b")}), one) // the same origin
	// A certificate for the key that is stored: renewed, with its issuers.
	chain := certificatetest.Pair{Cert: append(append([]byte{}, one.Cert...), two.Cert...), Key: one.Key}
	has(patch(control.GatewayPatch{UpstreamClientCertificate: value(string(chain.Cert))}), chain)
	refused(control.GatewayPatch{UpstreamClientCertificate: value(string(two.Cert))}, "upstream_client_key")
	refused(control.GatewayPatch{UpstreamClientKey: value(string(two.Key))}, "upstream_client_key")
	refused(control.GatewayPatch{UpstreamClientCertificate: null[string]()}, "upstream_client_certificate")
	refused(control.GatewayPatch{UpstreamClientKey: null[string]()}, "upstream_client_key")
	has(patch(pair(two)), two)
	before := g.Version
	if g = patch(pair(two)); g.Version <= before { // sealed anew, it is not told from another
		t.Error("a key that was given left the version")
	}
	if got := patch(none); got.UpstreamClientCertificate != "" || got.UpstreamClientKey != nil {
		t.Errorf("null left %q, %d bytes", got.UpstreamClientCertificate, len(got.UpstreamClientKey))
	}
	h.wantStory(caller.Account.ID, func() { patch(none) }, nil, nil, nil)

	for _, other := range []string{"http://h:443/", "https://h2/", "h2c://h:443"} {
		patch(control.GatewayPatch{UpstreamURL: value("https://h")})
		patch(pair(one))
		if got := patch(control.GatewayPatch{UpstreamURL: value(other)}); got.UpstreamClientCertificate != "" || got.UpstreamClientKey != nil {
			t.Errorf("%s is another origin, and the certificate stayed", other)
		}
	}
	moved := pair(two)
	moved.UpstreamURL = value("https://h9")
	has(patch(moved), two)
	refused(control.GatewayPatch{UpstreamURL: value("https://h10"), UpstreamClientCertificate: value(string(two.Cert))}, "upstream_client_key")
	moved.UpstreamURL = value("http://h9")
	refused(moved, "upstream_client_certificate")
	_, err := h.CreateGateway(ctx(), caller, control.GatewayInput{Name: "n", UpstreamURL: "https://h", UpstreamClientCertificate: string(one.Cert)})
	h.wantCode(err, fault.ValidationFailed, "upstream_client_key")

	told := false
	for _, r := range h.trace(caller.Account.ID).audits {
		text := fmt.Sprint(r.Diff)
		told = told || strings.Contains(text, "upstream_client_key:[*** ***]")
		for _, p := range []certificatetest.Pair{one, two} {
			if containsAny(text, strings.Split(string(p.Key), "\n")[1], strings.Split(string(p.Cert), "\n")[1]) {
				t.Errorf("audit record %s tells of the pair: %s", r.Action, text)
			}
		}
	}
	if !told {
		t.Error("no audit record tells that the key was replaced")
	}
}

// Guarantee: the bounds on connections are kept as they were given, each change
// is told with both values, and null goes back to the server's own.
func TestConnectionBounds(t *testing.T) {
	h := newHouse(t)
	caller := h.caller("acme", "admin")
	g := must[*gateway.Gateway](h)(h.CreateGateway(ctx(), caller, control.GatewayInput{
		Name: "n", UpstreamURL: "http://h", UpstreamConnectTimeout: "1500ms", UpstreamIdleTimeout: "60s", UpstreamMaxConnections: 7,
	}))
	if g.UpstreamConnectTimeout != "1500ms" || g.UpstreamIdleTimeout != "60s" || g.UpstreamMaxConnections != 7 {
		t.Errorf("made %+v", g)
	}
	g = must[*gateway.Gateway](h)(h.UpdateGateway(ctx(), caller, g.ID, control.GatewayPatch{UpstreamMaxConnections: value(int64(8)), UpstreamIdleTimeout: null[string]()}, nil))
	if g.UpstreamConnectTimeout != "1500ms" || g.UpstreamIdleTimeout != "" || g.UpstreamMaxConnections != 8 || g.Version != 2 {
		t.Errorf("after a change %+v", g)
	}
	g = must[*gateway.Gateway](h)(h.UpdateGateway(ctx(), caller, g.ID, control.GatewayPatch{UpstreamMaxConnections: null[int64](), UpstreamConnectTimeout: null[string]()}, nil))
	if g.UpstreamConnectTimeout != "" || g.UpstreamMaxConnections != 0 {
		t.Errorf("null left %+v", g)
	}
	var diffs []string
	for _, r := range h.trace(caller.Account.ID).audits {
		if r.Action == audit.GatewayUpdate {
			diffs = append(diffs, fmt.Sprint(r.Diff))
		}
	}
	want := []string{
		"map[upstream_idle_timeout:[60s <nil>] upstream_max_connections:[7 8]]",
		"map[upstream_connect_timeout:[1500ms <nil>] upstream_max_connections:[8 <nil>]]",
	}
	slices.Sort(diffs)
	slices.Sort(want)
	if !slices.Equal(diffs, want) {
		t.Errorf("the audit log tells %q; want %q", diffs, want)
	}
}
