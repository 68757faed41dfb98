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

// clientPair changes the client certificate of one gateway.
type clientPair struct {
	*harness
	t      *testing.T
	caller *control.Actor
	g      *gateway.Gateway
}

// newClientPair creates a gateway with the upstream https://h/a that presents pair.
func newClientPair(t *testing.T, pair certificatetest.Pair) *clientPair {
	t.Helper()
	h := newHarness(t)
	c := &clientPair{harness: h, t: t, caller: h.caller("acme", "admin")}
	creation := newGateway("https://h/a")
	creation.UpstreamClientCertificate, creation.UpstreamClientKey = value(string(pair.Cert)), value(string(pair.Key))
	c.g = must[*gateway.Gateway](h)(h.CreateGateway(ctx(), c.caller, creation, ""))
	return c
}

func pairPatch(p certificatetest.Pair) gateway.Patch {
	return gateway.Patch{UpstreamClientCertificate: value(string(p.Cert)), UpstreamClientKey: value(string(p.Key))}
}

func noPair() gateway.Patch {
	return gateway.Patch{UpstreamClientCertificate: null[string](), UpstreamClientKey: null[string]()}
}

func (c *clientPair) patch(p gateway.Patch) *gateway.Gateway {
	c.t.Helper()
	return must[*gateway.Gateway](c.harness)(c.UpdateGateway(ctx(), c.caller, c.g.ID, p, nil))
}

// wantRejected fails unless p is rejected for the field and leaves no record.
func (c *clientPair) wantRejected(p gateway.Patch, field string) {
	c.t.Helper()
	c.wantNoRecords(c.caller.Account.ID, func() {
		_, err := c.UpdateGateway(ctx(), c.caller, c.g.ID, p, nil)
		c.wantCode(err, fault.ValidationFailed, field)
	})
}

func (c *clientPair) wantPair(g *gateway.Gateway, want certificatetest.Pair) {
	c.t.Helper()
	plain, err := c.box.Open(g.Upstream.TLS.ClientKey)
	if err != nil {
		c.t.Errorf("open the stored key: %v", err)
	}
	if !bytes.Equal(plain, want.Key) {
		c.t.Errorf("the stored key has %d bytes and is another than the one given", len(plain))
	}
	if got := g.Upstream.TLS.ClientCertificate; got != string(want.Cert) {
		c.t.Errorf("got certificate %q; want %q", got, want.Cert)
	}
}

func (c *clientPair) wantNoPair(g *gateway.Gateway, after string) {
	c.t.Helper()
	if tls := g.Upstream.TLS; tls.ClientCertificate != "" || tls.ClientKey != nil {
		c.t.Errorf("after %s: certificate %q and a key of %d bytes; want neither", after, tls.ClientCertificate, len(tls.ClientKey))
	}
}

// Guarantee: a client certificate and its key belong together, are set and cleared
// together, and need an https upstream.
func TestClientCertificateAndKeyBelongTogether(t *testing.T) {
	one, two := certificatetest.New(t, "one"), certificatetest.New(t, "two")
	c := newClientPair(t, one)
	c.wantPair(c.g, one)
	c.wantPair(must[*gateway.Gateway](c.harness)(c.UpdateGateway(ctx(), c.caller, c.g.ID, gateway.Patch{Name: value("renamed")}, nil)), one)
	// A renewed certificate for the stored key, followed by its issuers.
	chain := certificatetest.Pair{Cert: append(append([]byte{}, one.Cert...), two.Cert...), Key: one.Key}
	c.wantPair(c.patch(gateway.Patch{UpstreamClientCertificate: value(string(chain.Cert))}), chain)

	c.wantRejected(gateway.Patch{UpstreamClientCertificate: value(string(two.Cert))}, "upstream_client_key")
	c.wantRejected(gateway.Patch{UpstreamClientKey: value(string(two.Key))}, "upstream_client_key")
	c.wantRejected(gateway.Patch{UpstreamClientCertificate: null[string]()}, "upstream_client_certificate")
	c.wantRejected(gateway.Patch{UpstreamClientKey: null[string]()}, "upstream_client_key")
	creation := newGateway("https://h")
	creation.UpstreamClientCertificate = value(string(one.Cert))
	_, err := c.CreateGateway(ctx(), c.caller, creation, "")
	c.wantCode(err, fault.ValidationFailed, "upstream_client_key")

	replaced := c.patch(pairPatch(two))
	c.wantPair(replaced, two)
	// Sealed again, the same key cannot be told from another.
	if again := c.patch(pairPatch(two)); again.Version <= replaced.Version {
		t.Errorf("giving the key again left version %d; want a later one", again.Version)
	}
	c.wantNoPair(c.patch(noPair()), "null for both")
	c.wantNoRecords(c.caller.Account.ID, func() { c.patch(noPair()) })
}

// Guarantee: the client certificate and its key are dropped when the origin of the
// upstream URL changes, unless the same call gives new ones.
func TestClientCertificateIsDroppedWithItsOrigin(t *testing.T) {
	one, two := certificatetest.New(t, "one"), certificatetest.New(t, "two")
	c := newClientPair(t, one)
	c.wantPair(c.patch(gateway.Patch{UpstreamURL: value("https://H:443/b")}), one) // the same origin
	for _, other := range []string{"http://h:443/", "https://h2/", "h2c://h:443"} {
		c.patch(gateway.Patch{UpstreamURL: value("https://h")})
		c.patch(pairPatch(one))
		c.wantNoPair(c.patch(gateway.Patch{UpstreamURL: value(other)}), other)
	}
	moved := pairPatch(two)
	moved.UpstreamURL = value("https://h9")
	c.wantPair(c.patch(moved), two)
	c.wantRejected(gateway.Patch{UpstreamURL: value("https://h10"), UpstreamClientCertificate: value(string(two.Cert))}, "upstream_client_key")
	moved.UpstreamURL = value("http://h9")
	c.wantRejected(moved, "upstream_client_certificate")
}

// Guarantee: the audit log records that the pair was replaced, but never its content.
func TestClientCertificateInAuditLog(t *testing.T) {
	one, two := certificatetest.New(t, "one"), certificatetest.New(t, "two")
	c := newClientPair(t, one)
	c.patch(pairPatch(two))
	c.patch(noPair())
	recorded := false
	for _, r := range c.records(c.caller.Account.ID).audits {
		text := fmt.Sprint(r.Diff)
		recorded = recorded || strings.Contains(text, "upstream_client_key:[*** ***]")
		for _, p := range []certificatetest.Pair{one, two} {
			if containsAny(text, strings.Split(string(p.Key), "\n")[1], strings.Split(string(p.Cert), "\n")[1]) {
				t.Errorf("the audit record %s shows the pair: %s", r.Action, text)
			}
		}
	}
	if !recorded {
		t.Error("no audit record says that the key was replaced")
	}
}

// Guarantee: the limits on connections are stored as given, the audit log records
// both values of a change, and null restores the server's default.
func TestConnectionLimits(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	creation := newGateway("http://h")
	creation.UpstreamConnectTimeout, creation.UpstreamIdleTimeout, creation.UpstreamMaxConnections = value("1500ms"), value("60s"), value(int64(7))
	creation.UpstreamMaxConnectionAge = value("90s")
	g := must[*gateway.Gateway](h)(h.CreateGateway(ctx(), caller, creation, ""))
	want := func(after string, connect, idle, age string, connections, version int64) {
		t.Helper()
		if u := g.Upstream; u.MaxConnectionAge != age {
			t.Errorf("after %s: got age %q, want %q", after, u.MaxConnectionAge, age)
		}
		if u := g.Upstream; u.Timeouts != (gateway.UpstreamTimeouts{Connect: connect, Idle: idle}) || u.MaxConnections != connections || g.Version != version {
			t.Errorf("after %s: %+v, %d connections, version %d; want connect %q, idle %q, %d connections, version %d",
				after, u.Timeouts, u.MaxConnections, g.Version, connect, idle, connections, version)
		}
	}
	patch := func(p gateway.Patch) {
		t.Helper()
		g = must[*gateway.Gateway](h)(h.UpdateGateway(ctx(), caller, g.ID, p, nil))
	}
	want("creation", "1500ms", "60s", "90s", 7, 1)
	patch(gateway.Patch{UpstreamMaxConnections: value(int64(8)), UpstreamMaxConnectionAge: value("24h"), UpstreamIdleTimeout: null[string]()})
	want("a change", "1500ms", "", "24h", 8, 2)
	patch(gateway.Patch{UpstreamMaxConnections: null[int64](), UpstreamMaxConnectionAge: null[string](), UpstreamConnectTimeout: null[string]()})
	want("null", "", "", "", 0, 3)

	var diffs []string
	for _, r := range h.records(caller.Account.ID).audits {
		if r.Action == audit.GatewayUpdate {
			diffs = append(diffs, fmt.Sprint(r.Diff))
		}
	}
	wantDiffs := []string{
		"map[upstream_idle_timeout:[60s <nil>] upstream_max_connection_age:[90s 24h] upstream_max_connections:[7 8]]",
		"map[upstream_connect_timeout:[1500ms <nil>] upstream_max_connection_age:[24h <nil>] upstream_max_connections:[8 <nil>]]",
	}
	slices.Sort(diffs)
	slices.Sort(wantDiffs)
	if !slices.Equal(diffs, wantDiffs) {
		t.Errorf("got audited differences %q; want %q", diffs, wantDiffs)
	}
}
