package provider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// core does with the provider what OpenTofu does, over the protocol of plugins, and checks what OpenTofu checks.
type core struct {
	t      *testing.T
	keys   *keygatetest.Server
	server tfprotov6.ProviderServer
}

// start starts a server, and the provider for it.
func start(t *testing.T) *core {
	t.Helper()
	c := &core{t, keygatetest.Start(t), providerserver.NewProtocol6(New("test")())()}
	object := tftypes.Object{AttributeTypes: map[string]tftypes.Type{"url": tftypes.String, "api_key": tftypes.String}}
	config := tftypes.NewValue(object, map[string]tftypes.Value{
		"url": tftypes.NewValue(tftypes.String, c.keys.AdminURL()), "api_key": tftypes.NewValue(tftypes.String, c.keys.AdminKey),
	})
	res, err := c.server.ConfigureProvider(t.Context(), &tfprotov6.ConfigureProviderRequest{Config: c.encode(config)})
	c.must(err, res.Diagnostics)
	return c
}

// block is a resource block of a configuration, and what OpenTofu keeps about it.
type block struct {
	*core
	kind    *kind
	state   tftypes.Value
	private []byte
}

// fields are attributes in the form of JSON.
type fields map[string]any

// unknownValue is an attribute whose value the plan does not know yet.
const unknownValue = "\x00unknown"

func (c *core) block(noun string) *block {
	for _, k := range kinds() {
		if k.noun == noun {
			return &block{core: c, kind: k, state: tftypes.NewValue(k.object(), nil)}
		}
	}
	c.t.Fatalf("there is no kind %q", noun)
	return nil
}

// config returns a configuration.
func (b *block) config(f fields) tftypes.Value {
	b.t.Helper()
	content, err := json.Marshal(f)
	if err != nil {
		b.t.Fatal(err)
	}
	parsed, err := parse(content)
	if err != nil {
		b.t.Fatal(err)
	}
	values := map[string]tftypes.Value{}
	given, _ := parsed.(map[string]any)
	for name, t := range b.kind.object().AttributeTypes {
		if values[name], err = fromJSON(t, shown(b.kind.Attributes[name]), given[name]); err != nil {
			b.t.Fatal(err)
		}
		if given[name] == unknownValue {
			values[name] = tftypes.NewValue(t, tftypes.UnknownValue)
		}
		delete(given, name)
	}
	if len(given) > 0 {
		b.t.Fatalf("the configuration has %v, which the schema has not", given)
	}
	return tftypes.NewValue(b.kind.object(), values)
}

// shown returns the attribute with nothing in it secret.
func shown(a *attribute) *attribute {
	if a == nil {
		return nil
	}
	c := *a
	c.Secret, c.Of, c.Attributes = false, shown(a.Of), map[string]*attribute{}
	for name, m := range a.Attributes {
		c.Attributes[name] = shown(m)
	}
	return &c
}

// proposed returns the state that OpenTofu proposes: the configuration, and the prior value of what is computed and not
// configured. What is write-only is null.
func (b *block) proposed(config tftypes.Value) tftypes.Value {
	values, prior := b.values(config), b.values(b.state)
	for name, t := range b.kind.object().AttributeTypes {
		a := b.kind.Attributes[name]
		if a == nil {
			if name == keySecret {
				values[name] = tftypes.NewValue(t, nil)
			}
			continue
		}
		if values[name].IsNull() && a.computed() && !b.state.IsNull() {
			values[name] = prior[name]
		}
		values[name] = withoutSecrets(b.t, values[name], a)
	}
	return tftypes.NewValue(b.kind.object(), values)
}

func withoutSecrets(t *testing.T, v tftypes.Value, a *attribute) tftypes.Value {
	t.Helper()
	if a.Secret {
		return tftypes.NewValue(v.Type(), nil)
	}
	if !a.hidesSecret() || v.IsNull() {
		return v
	}
	var members map[string]tftypes.Value
	if err := v.As(&members); err != nil {
		t.Fatal(err)
	}
	members = maps.Clone(members)
	for name := range members {
		members[name] = withoutSecrets(t, members[name], a.Attributes[name])
	}
	return tftypes.NewValue(v.Type(), members)
}

func (b *block) values(v tftypes.Value) map[string]tftypes.Value {
	b.t.Helper()
	var values map[string]tftypes.Value
	if err := v.As(&values); err != nil {
		b.t.Fatal(err)
	}
	return maps.Clone(values)
}

// plan validates and plans a configuration. It checks that the plan has what the configuration has.
func (b *block) plan(config tftypes.Value) (*tfprotov6.PlanResourceChangeResponse, tftypes.Value) {
	b.t.Helper()
	valid, err := b.server.ValidateResourceConfig(b.t.Context(), &tfprotov6.ValidateResourceConfigRequest{
		TypeName: b.typeName(), Config: b.encode(config), ClientCapabilities: &tfprotov6.ValidateResourceConfigClientCapabilities{WriteOnlyAttributesAllowed: true},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	if failed(valid.Diagnostics) {
		return &tfprotov6.PlanResourceChangeResponse{Diagnostics: valid.Diagnostics}, tftypes.Value{}
	}
	proposed := b.proposed(config)
	res, err := b.server.PlanResourceChange(b.t.Context(), &tfprotov6.PlanResourceChangeRequest{
		TypeName: b.typeName(), Config: b.encode(config), PriorState: b.encode(b.state), ProposedNewState: b.encode(proposed), PriorPrivate: b.private,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	if failed(res.Diagnostics) {
		return res, tftypes.Value{}
	}
	planned := b.decode(res.PlannedState)
	values, wanted := b.values(planned), b.values(proposed)
	for name, v := range b.values(config) {
		if a := b.kind.Attributes[name]; !v.IsNull() && !values[name].Equal(wanted[name]) || v.IsNull() && (a == nil || !a.computed()) && !values[name].IsNull() {
			b.t.Errorf("keygate_%s: the plan has %s = %v, want %v as configured", b.kind.noun, name, values[name], wanted[name])
		}
	}
	return res, planned
}

// commit applies a plan. It checks that the state has what the plan has.
func (b *block) commit(config tftypes.Value, res *tfprotov6.PlanResourceChangeResponse, planned tftypes.Value) []*tfprotov6.Diagnostic {
	b.t.Helper()
	made, err := b.server.ApplyResourceChange(b.t.Context(), &tfprotov6.ApplyResourceChangeRequest{
		TypeName: b.typeName(), Config: b.encode(config), PriorState: b.encode(b.state), PlannedState: b.encode(planned), PlannedPrivate: res.PlannedPrivate,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.state, b.private = b.decode(made.NewState), made.Private
	if failed(made.Diagnostics) {
		return made.Diagnostics
	}
	if !b.state.IsFullyKnown() {
		b.t.Errorf("keygate_%s: the state has unknown values after it was applied: %v", b.kind.noun, b.state)
	}
	state := b.values(b.state)
	for name, v := range b.values(planned) {
		if v.IsKnown() && !v.Equal(state[name]) {
			b.t.Errorf("keygate_%s: %s is %v after it was applied, want %v as planned", b.kind.noun, name, state[name], v)
		}
	}
	return made.Diagnostics
}

// apply plans and applies a configuration, which must succeed, and checks that there is nothing to do afterwards. It returns the
// attributes of the state.
func (b *block) apply(f fields) fields {
	b.t.Helper()
	config := b.config(f)
	res, planned := b.plan(config)
	b.must(nil, res.Diagnostics)
	if len(res.RequiresReplace) > 0 && !b.state.IsNull() {
		b.destroy()
		res, planned = b.plan(config)
		b.must(nil, res.Diagnostics)
	}
	b.must(nil, b.commit(config, res, planned))
	b.refresh()
	b.settled(f)
	return b.fields()
}

// settled checks that a configuration needs no change.
func (b *block) settled(f fields) {
	b.t.Helper()
	res, planned := b.plan(b.config(f))
	b.must(nil, res.Diagnostics)
	if diff, err := planned.Diff(b.state); err != nil || len(diff) > 0 {
		b.t.Errorf("keygate_%s: there are changes after it was applied: %v, %v", b.kind.noun, diff, err)
	}
}

// refresh reads the record into the state.
func (b *block) refresh() {
	b.t.Helper()
	res, err := b.server.ReadResource(b.t.Context(), &tfprotov6.ReadResourceRequest{TypeName: b.typeName(), CurrentState: b.encode(b.state), Private: b.private})
	b.must(err, res.Diagnostics)
	b.state, b.private = b.decode(res.NewState), res.Private
}

// imported replaces the state by that of an import.
func (b *block) imported(id string) {
	b.t.Helper()
	res, err := b.server.ImportResourceState(b.t.Context(), &tfprotov6.ImportResourceStateRequest{TypeName: b.typeName(), ID: id})
	b.must(err, res.Diagnostics)
	b.state, b.private = b.decode(res.ImportedResources[0].State), res.ImportedResources[0].Private
	b.refresh()
}

// destroy destroys the record.
func (b *block) destroy() {
	b.t.Helper()
	none := tftypes.NewValue(b.kind.object(), nil)
	res, err := b.server.PlanResourceChange(b.t.Context(), &tfprotov6.PlanResourceChangeRequest{
		TypeName: b.typeName(), Config: b.encode(none), PriorState: b.encode(b.state), ProposedNewState: b.encode(none), PriorPrivate: b.private,
	})
	b.must(err, res.Diagnostics)
	made, err := b.server.ApplyResourceChange(b.t.Context(), &tfprotov6.ApplyResourceChangeRequest{
		TypeName: b.typeName(), Config: b.encode(none), PriorState: b.encode(b.state), PlannedState: res.PlannedState, PlannedPrivate: res.PlannedPrivate,
	})
	b.must(err, made.Diagnostics)
	b.state, b.private = none, nil
}

// fields returns the attributes of the state that are not null.
func (b *block) fields() fields {
	b.t.Helper()
	f := fields{}
	for name, v := range b.values(b.state) {
		if v.IsNull() {
			continue
		}
		value, err := toJSON(v, b.kind.Attributes[name], false)
		if err != nil {
			b.t.Fatal(err)
		}
		f[name] = value
	}
	return f
}

// holds reports whether a text is in what OpenTofu writes into its state.
func (b *block) holds(text string) bool {
	return bytes.Contains([]byte(fmt.Sprint(b.fields())), []byte(text)) || bytes.Contains(b.private, []byte(text))
}

func (b *block) typeName() string { return "keygate_" + b.kind.noun }

func (b *block) decode(v *tfprotov6.DynamicValue) tftypes.Value {
	b.t.Helper()
	value, err := v.Unmarshal(b.kind.object())
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

func (c *core) encode(v tftypes.Value) *tfprotov6.DynamicValue {
	c.t.Helper()
	encoded, err := tfprotov6.NewDynamicValue(v.Type(), v)
	if err != nil {
		c.t.Fatal(err)
	}
	return &encoded
}

// must ends the test after an error.
func (c *core) must(err error, diags []*tfprotov6.Diagnostic) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, d := range diags {
		if d.Severity == tfprotov6.DiagnosticSeverityError {
			c.t.Fatalf("%s: %s (%v)", d.Summary, d.Detail, d.Attribute)
		}
	}
}

func failed(diags []*tfprotov6.Diagnostic) bool {
	for _, d := range diags {
		if d.Severity == tfprotov6.DiagnosticSeverityError {
			return true
		}
	}
	return false
}
