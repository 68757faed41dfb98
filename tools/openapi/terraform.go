package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/adminapi"
	"github.com/keygate/keygate/internal/gateway"
)

// terraformKind is a kind of resource of the Terraform provider: the schemas of the API that it is made from. The path is that
// of one record, and each of its parameters is an attribute.
type terraformKind struct {
	noun, path            string
	create, patch, record string   // schemas; create is "" if a record is created by its path
	skip                  []string // fields that are no attributes
	shows                 []string // fields that the record alone has
}

func terraformKinds() []terraformKind {
	return []terraformKind{
		{"account", "/v1/accounts/{account_id}", "CreateAccountRequest", "UpdateAccountRequest", "Account", nil, []string{"account_id", "created_at"}},
		{"gateway", "/v1/gateways/{gateway_id}", "CreateGatewayRequest", "UpdateGatewayRequest", "Gateway", []string{"config", "spec", "upstreams"}, []string{"gateway_id", "created_at"}},
		{"issuer", "/v1/issuers/{issuer_id}", "CreateIssuerRequest", "UpdateIssuerRequest", "Issuer", nil, []string{"issuer_id", "created_at"}},
		{"key", "/v1/keys/{key_id}", "CreateKeyRequest", "UpdateKeyRequest", "Key", nil, []string{"key_id", "key_prefix", "created_at"}},
		{"owner", "/v1/owners/{owner_id}", "CreateOwnerRequest", "UpdateOwnerRequest", "Owner", nil, []string{"owner_id", "created_at"}},
		{"plan", "/v1/plans/{plan_id}", "CreatePlanRequest", "UpdatePlanRequest", "Plan", nil, []string{"plan_id", "created_at"}},
		{"route", "/v1/gateways/{gateway_id}/routes/{route_id}", "CreateRouteRequest", "PatchRouteRequest", "Route", nil, []string{"route_id", "created_at"}},
		{"upstream", "/v1/gateways/{gateway_id}/upstreams/{name}", "", "UpstreamRequest", "Upstream", nil, nil},
		{"webhook", "/v1/webhooks/{webhook_id}", "CreateWebhookRequest", "UpdateWebhookRequest", "Webhook", nil, []string{"webhook_id", "created_at"}},
	}
}

// terraformAttribute is what the Terraform provider reads about an attribute, which is a field of the API.
type terraformAttribute struct {
	Type        string                         `json:"type"` // string, int, number, bool, list, map, object, or any: any JSON
	Description string                         `json:"description,omitempty"`
	Of          *terraformAttribute            `json:"of,omitempty"`         // the elements of a list or map
	Attributes  map[string]*terraformAttribute `json:"attributes,omitempty"` // of an object
	Required    bool                           `json:"required,omitempty"`   // in a creation
	Create      bool                           `json:"create,omitempty"`     // a creation takes it
	Patch       bool                           `json:"patch,omitempty"`      // an update takes it
	Record      bool                           `json:"record,omitempty"`     // the record has it
	Null        bool                           `json:"null,omitempty"`       // an update takes null for its default
	Merge       bool                           `json:"merge,omitempty"`      // an update of the object leaves members as they are that it does not have
	Secret      bool                           `json:"secret,omitempty"`     // the record does not show it
	Choices     []string                       `json:"choices,omitempty"`    // the only values
	Least       *float64                       `json:"least,omitempty"`      // smallest number, or fewest characters, elements or members
	Most        *float64                       `json:"most,omitempty"`       // largest or most of the same
	Form        string                         `json:"form,omitempty"`       // what a string has to be: duration, rate or quota; or what those of a list have to be: networks
}

type terraformResource struct {
	Path       string                         `json:"path"`
	Collection bool                           `json:"collection,omitempty"` // a record is created in the collection, and not by its path
	Attributes map[string]*terraformAttribute `json:"attributes"`
}

// terraform returns terraform/internal/provider/schema.gen.json.
func terraform() ([]byte, error) {
	schemas := adminapi.Document().Components.Schemas.Map()
	resources := map[string]terraformResource{}
	for _, r := range terraformKinds() {
		t := terraformSchemas{schemas}
		attributes := map[string]*terraformAttribute{}
		for _, shown := range r.shows {
			attributes[shown] = t.attribute(schemas[r.record].Properties[shown])
		}
		t.add(attributes, r.patch, func(a *terraformAttribute) { a.Patch, a.Create = true, r.create == "" })
		if r.create != "" {
			t.add(attributes, r.create, func(a *terraformAttribute) { a.Create = true })
			for _, name := range schemas[r.create].Required {
				attributes[name].Required = true
			}
		}
		for _, name := range r.skip {
			delete(attributes, name)
		}
		for _, m := range pathParam.FindAllStringSubmatch(r.path, -1) {
			if attributes[m[1]] == nil {
				attributes[m[1]] = &terraformAttribute{Type: "string", Required: true, Description: "The " + strings.ReplaceAll(strings.TrimSuffix(m[1], "_id"), "name", "name of the "+r.noun) + " that the path of the API has."}
			}
		}
		for name, a := range attributes {
			_, a.Record = schemas[r.record].Properties[name]
		}
		markSettings(attributes, r.noun)
		markNetworks(attributes)
		resources[r.noun] = terraformResource{r.path, r.create != "", attributes}
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	err := enc.Encode(resources)
	return out.Bytes(), err
}

// markSettings marks what the tables of settings say: what the API never returns, as the signing secret of an endpoint, and
// durations.
func markSettings(attributes map[string]*terraformAttribute, noun string) {
	var settings []gateway.Setting
	switch noun {
	case "gateway":
		settings = gateway.Settings()
	case "upstream":
		settings = gateway.UpstreamSettings()
	case "webhook":
		attributes["signing_secret"].Secret = true
	}
	for _, s := range settings {
		a := attributes[s.Name]
		a.mark(s.Kind)
		for _, p := range s.Parts {
			if a.Attributes[p.Name] != nil {
				a.Attributes[p.Name].mark(p.Kind)
			}
		}
	}
}

func (a *terraformAttribute) mark(kind gateway.Kind) {
	a.Secret = kind.IsSecret()
	if kind == gateway.KindDuration {
		a.Form = "duration"
	}
}

// markNetworks marks the lists of networks.
func markNetworks(attributes map[string]*terraformAttribute) {
	for name, a := range attributes {
		if a.Type == "list" && (name == "allow_ips" || name == "deny_ips" || name == "allow") {
			a.Form = "networks"
		}
		markNetworks(a.Attributes)
	}
}

// bound adds what a schema says about the values.
func (a *terraformAttribute) bound(s *huma.Schema) {
	for _, choice := range s.Enum {
		if text, ok := choice.(string); ok {
			a.Choices = append(a.Choices, text)
		}
	}
	a.Least, a.Most = s.Minimum, s.Maximum
	for _, b := range []struct{ least, most *int }{{s.MinLength, s.MaxLength}, {s.MinItems, s.MaxItems}, {s.MinProperties, s.MaxProperties}} {
		if b.least != nil {
			a.Least = new(float64(*b.least))
		}
		if b.most != nil {
			a.Most = new(float64(*b.most))
		}
	}
	switch {
	case s.Type != "string":
	case strings.Contains(a.Description, "<count>/<unit>") || strings.Contains(a.Description, "<count>/day"):
		a.Form = "rate"
	case strings.Contains(a.Description, "<count>/<window>"):
		a.Form = "quota"
	}
}

// terraformSchemas makes attributes from schemas.
type terraformSchemas struct{ named map[string]*huma.Schema }

// add adds the properties of a schema to attributes, each marked.
func (t terraformSchemas) add(attributes map[string]*terraformAttribute, schema string, mark func(*terraformAttribute)) {
	for name, property := range t.named[schema].Properties {
		if attributes[name] == nil {
			attributes[name] = t.attribute(property)
		}
		mark(attributes[name])
	}
}

// attribute returns the attribute of a schema.
func (t terraformSchemas) attribute(s *huma.Schema) *terraformAttribute {
	description := s.Description
	ref := s.Ref[strings.LastIndex(s.Ref, "/")+1:]
	if ref != "" {
		s = t.named[ref]
	}
	a := &terraformAttribute{Type: "any", Description: description, Null: s.Nullable, Merge: strings.HasSuffix(ref, "Patch")}
	a.bound(s)
	elements, typed := s.AdditionalProperties.(*huma.Schema)
	switch {
	case len(s.OneOf) > 0:
		a.Null = slices.ContainsFunc(s.OneOf, func(one *huma.Schema) bool { return one.Nullable || one.Type == "null" })
	case s.Type == "boolean":
		a.Type = "bool"
	case s.Type == "integer":
		a.Type = "int"
	case s.Type == "string" || s.Type == "number":
		a.Type = s.Type
	case s.Type == "array":
		a.Type, a.Of = "list", t.attribute(s.Items)
	case len(s.Properties) > 0:
		a.Type, a.Attributes = "object", map[string]*terraformAttribute{}
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			a.Attributes[name] = t.attribute(s.Properties[name])
			a.Attributes[name].Required = slices.Contains(s.Required, name)
			if of := a.Attributes[name].Of; of != nil && of.Type == "any" { // which no list has
				return &terraformAttribute{Type: "any", Description: description, Null: s.Nullable}
			}
		}
	case typed && (elements.Type != "" || elements.Ref != ""):
		a.Type, a.Of = "map", t.attribute(elements)
	}
	if a.Type == "any" && a.Description == "" {
		a.Description = fmt.Sprintf("See %s.", ref)
	}
	return a
}
