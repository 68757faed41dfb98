package control_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// create creates a gateway of the caller, with the field default if it is given.
func (h *harness) create(c *control.Actor, isDefault ...bool) *gateway.Gateway {
	h.tb.Helper()
	p := newGateway("https://h")
	for _, v := range isDefault {
		p.Default = value(v)
	}
	return must[*gateway.Gateway](h)(h.CreateGateway(ctx(), c, p, ""))
}

func (h *harness) setDefault(c *control.Actor, gatewayID string, isDefault bool, m control.Match) (*gateway.Gateway, error) {
	return h.UpdateGateway(ctx(), c, gatewayID, gateway.Patch{Default: value(isDefault)}, m)
}

// wantDefault fails unless the gateway is the default gateway of the account; "" means that there is none.
func (h *harness) wantDefault(c *control.Actor, gatewayID string) {
	h.tb.Helper()
	got := ""
	for _, g := range must[[]gateway.Gateway](h)(h.Gateways(ctx(), c, control.GatewayFilter{}, control.Page{Limit: 100})) {
		if g.Default {
			got += g.ID
		}
	}
	if got != gatewayID {
		h.tb.Errorf("the default gateway is %q; want %q", got, gatewayID)
	}
	source := ""
	h.must(h.db.EachGateway(ctx(), func(g *gateway.Gateway, _ []gateway.Route) error {
		if g.Default {
			source += g.ID
		}
		return nil
	}))
	if source != gatewayID {
		h.tb.Errorf("the data plane reads the default gateway %q; want %q", source, gatewayID)
	}
}

// Guarantee: contract 4.1: the first gateway of the account default is the default gateway and stays
// so when another gateway is created, until POST or PATCH moves it. Both changes are in one
// transaction, and both gateways get an audit record and a new version; no other gateway does.
func TestDefaultGatewayMoves(t *testing.T) {
	h := newHarness(t)
	c := h.caller("default", "admin")
	first := h.create(c)
	second := h.create(c)
	bystander := h.create(c, false)
	h.wantDefault(c, first.ID)
	version := func(gatewayID string) int64 {
		return must[*gateway.Gateway](h)(h.Gateway(ctx(), c, gatewayID)).Version
	}
	h.wantRecords(c.Account.ID, func() {
		if g := must[*gateway.Gateway](h)(h.setDefault(c, second.ID, true, nil)); !g.Default || g.Version != 2 {
			t.Errorf("got default %t, version %d; want true, 2", g.Default, g.Version)
		}
	}, []string{"gateway.update " + first.ID, "gateway.update " + second.ID}, nil,
		[]string{"settings " + first.ID, "settings " + second.ID})
	h.wantDefault(c, second.ID)
	before := h.records(c.Account.ID)
	third := h.create(c, true)
	h.wantDefault(c, third.ID)
	audits := h.records(c.Account.ID).since(before).audits
	if len(audits) != 2 || audits[0].Action != audit.GatewayUpdate || audits[0].Target != second.ID || audits[1].Target != third.ID {
		t.Fatalf("got audit records %+v; want the update of %s and the creation of %s", audits, second.ID, third.ID)
	}
	if got, want := fmt.Sprint(audits[0].Diff), "map[default:[true false]]"; got != want {
		t.Errorf("the former default gateway's audit record has the difference %s; want %s", got, want)
	}
	for _, want := range []struct {
		id      string
		version int64
	}{{first.ID, 2}, {second.ID, 3}, {third.ID, 1}, {bystander.ID, 1}} {
		if got := version(want.id); got != want.version {
			t.Errorf("gateway %s has version %d; want %d", want.id, got, want.version)
		}
	}
}

// Guarantee: contract 3.3: false for the default gateway, and any value from another account, is 422
// with the remedy and changes nothing; false for any other gateway, and true for the default
// gateway, change nothing either.
func TestDefaultGatewayIsOnlyMovedByTrue(t *testing.T) {
	h := newHarness(t)
	c, tenant := h.caller("default", "admin"), h.caller("acme", "admin")
	refused := func(c *control.Actor, p gateway.Patch) {
		t.Helper()
		p.Name, p.UpstreamURL = value("n"), value("https://h")
		_, err := h.CreateGateway(ctx(), c, p, "")
		h.wantCode(err, fault.ValidationFailed, "default")
	}
	for _, isDefault := range []control.Optional[bool]{value(true), value(false)} {
		refused(tenant, gateway.Patch{Default: isDefault})
	}
	refused(c, gateway.Patch{Default: value(false)}) // the first one is the default gateway
	refused(c, gateway.Patch{Default: null[bool]()})
	foreign := h.create(tenant)
	h.wantDefault(c, "")
	first, second := h.create(c), h.create(c)
	h.wantNoRecords(c.Account.ID, func() {
		_, err := h.setDefault(c, first.ID, false, nil)
		h.wantCode(err, fault.ValidationFailed, "default")
		_, err = h.setDefault(c, second.ID, true, never)
		h.wantCode(err, fault.PreconditionFailed, "")
		for _, id := range []string{foreign.ID, first.ID} {
			for _, isDefault := range []bool{true, false} {
				_, err = h.setDefault(tenant, id, isDefault, nil)
				h.wantCode(err, fault.ValidationFailed, "default")
			}
		}
		if g := must[*gateway.Gateway](h)(h.setDefault(c, second.ID, false, nil)); g.Default || g.Version != 1 {
			t.Errorf("false for another gateway: got default %t, version %d; want false, 1", g.Default, g.Version)
		}
		if g := must[*gateway.Gateway](h)(h.setDefault(c, first.ID, true, nil)); !g.Default || g.Version != 1 {
			t.Errorf("true for the default gateway: got default %t, version %d; want true, 1", g.Default, g.Version)
		}
	})
	h.wantDefault(c, first.ID)
}

// Guarantee: contract 4.1: after the default gateway is deleted there is none, until one is set or a
// single gateway is left, which then is the default gateway.
func TestDeletingTheDefaultGateway(t *testing.T) {
	h := newHarness(t)
	c := h.caller("default", "admin")
	h.create(h.caller("acme", "admin")) // a tenant's gateway does not count
	var ids []string
	for range 4 {
		ids = append(ids, h.create(c).ID)
	}
	remove := func(id string) func() {
		return func() { must[*gateway.Gateway](h)(h.DeleteGateway(ctx(), c, id, nil)) }
	}
	remove(ids[0])()
	h.wantDefault(c, "")
	h.create(c)
	h.wantDefault(c, "")
	must[*gateway.Gateway](h)(h.setDefault(c, ids[1], true, nil))
	remove(ids[2])()
	h.wantDefault(c, ids[1])
	remove(ids[1])()
	h.wantDefault(c, "")
	last := must[[]gateway.Gateway](h)(h.Gateways(ctx(), c, control.GatewayFilter{}, control.Page{Limit: 1}))[0].ID
	h.wantRecords(c.Account.ID, remove(ids[3]),
		[]string{"gateway.delete " + ids[3], "gateway.update " + last}, nil, []string{"gateway " + ids[3], "settings " + last})
	h.wantDefault(c, last)
	remove(last)()
	h.wantDefault(c, "")
	h.wantDefault(c, h.create(c).ID)
}

// defaultModel is the gateways of the account default as the contract describes them.
type defaultModel struct {
	ids       []string
	isDefault string
}

func (m *defaultModel) remove(i int) {
	if m.isDefault == m.ids[i] {
		m.isDefault = ""
	}
	if m.ids = append(m.ids[:i:i], m.ids[i+1:]...); len(m.ids) == 1 {
		m.isDefault = m.ids[0]
	}
}

// step takes one step of the kind, for the gateway with the index i, in the service and in m.
func (m *defaultModel) step(h *harness, c *control.Actor, kind string, i int) {
	switch kind {
	case "create":
		if m.ids = append(m.ids, h.create(c).ID); len(m.ids) == 1 {
			m.isDefault = m.ids[0]
		}
	case "create as default":
		m.isDefault = h.create(c, true).ID
		m.ids = append(m.ids, m.isDefault)
	case "move":
		must[*gateway.Gateway](h)(h.setDefault(c, m.ids[i], true, nil))
		m.isDefault = m.ids[i]
	case "false":
		if _, err := h.setDefault(c, m.ids[i], false, nil); (err != nil) != (m.ids[i] == m.isDefault) {
			h.tb.Errorf("default false for %s: %v; the default gateway is %q", m.ids[i], err, m.isDefault)
		}
	case "delete":
		must[*gateway.Gateway](h)(h.DeleteGateway(ctx(), c, m.ids[i], nil))
		m.remove(i)
	}
}

// Guarantee: at every step of any sequence of creations, moves and deletions at most one gateway is
// the default gateway, and it is the gateway that contract 4.1 says.
func TestDefaultGatewayFollowsTheContract(t *testing.T) {
	h := newHarness(t)
	c := h.caller("default", "admin")
	rapid.Check(t, func(rt *rapid.T) {
		h.tb = rt
		defer func() { h.tb = t }()
		m := &defaultModel{}
		defer func() {
			for len(m.ids) > 0 {
				m.step(h, c, "delete", 0)
			}
		}()
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			kind, i := "create", 0
			if len(m.ids) > 0 {
				kind = rapid.SampledFrom([]string{"create", "create as default", "move", "false", "delete"}).Draw(rt, "step")
				i = rapid.IntRange(0, len(m.ids)-1).Draw(rt, "gateway")
			}
			m.step(h, c, kind, i)
			h.wantDefault(c, m.isDefault)
		}
	})
}
