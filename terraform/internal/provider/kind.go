package provider

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// Attributes of the provider's own, beside those of the API.
const (
	secretsVersion = "secrets_version" // a change sends what is write-only again
	secretFile     = "secret_file"     // gets the secret that the server generates
	keySecret      = "key"             // of keygate_key: the key in clear, which is imported
)

// kind is a kind of resource.
type kind struct {
	noun        string // in the name of the type: key of keygate_key
	description string
	// secret is the field of the response to a creation that has a secret that the server generated, or "". It goes to the
	// file secretFile.
	secret string
	// given is the write-only attribute that has the secret if the server does not generate it, or "".
	given string
	// first are attributes that a creation needs, although they may be left out later.
	first []string
	// destination has the attributes that say where secrets go: when one changes, an update gives the secrets again, and so
	// the attributes in identity, since the API then removes them or refuses the update.
	destination, identity []string
	// lasting is the name of a record that is made and deleted with another one, or "".
	lasting string
	// aliases are attributes that another attribute changes too.
	aliases map[string]string
	// deleted reports whether a record that the API still shows counts as deleted; nil means never.
	deleted func(record map[string]any) bool

	Path       string                `json:"path"`       // of a record, with the names of attributes in braces
	Collection bool                  `json:"collection"` // a record is created in the collection, by POST, and not by its path
	Attributes map[string]*attribute `json:"attributes"`
}

// attribute is an attribute, which is a field of the API.
type attribute struct {
	Type        string                `json:"type"` // string, int, number, bool, list, map, object, or any: any JSON
	Description string                `json:"description"`
	Of          *attribute            `json:"of"`         // the elements of a list or map
	Attributes  map[string]*attribute `json:"attributes"` // of an object
	Required    bool                  `json:"required"`   // in a creation
	Create      bool                  `json:"create"`     // a creation takes it
	Patch       bool                  `json:"patch"`      // an update takes it
	Record      bool                  `json:"record"`     // the record has it
	Null        bool                  `json:"null"`       // an update takes null for its default
	Merge       bool                  `json:"merge"`      // an update of the object leaves members as they are that it does not have
	Secret      bool                  `json:"secret"`     // the record does not show it
	Choices     []string              `json:"choices"`    // the only values
	Least       *float64              `json:"least"`      // smallest number, or fewest characters, elements or members
	Most        *float64              `json:"most"`       // largest or most of the same
	Form        string                `json:"form"`       // one of forms that a string, or each string of a list, has
}

//go:embed schema.gen.json
var generated []byte

// kinds returns all kinds of resources.
func kinds() []*kind {
	byNoun := map[string]*kind{}
	if err := json.Unmarshal(generated, &byNoun); err != nil {
		panic(fmt.Sprintf("schema.gen.json: %v", err))
	}
	plans := map[string]string{"plan": "plan_id", "plan_id": "plan"}
	rows := []*kind{
		{noun: "account", secret: "key", description: "An account, which owns gateways, keys and everything else. Only an admin key of the account default may manage accounts. " +
			"Deleting an account deletes everything in it; the API does so only after its state has been set to suspended."},
		{noun: "gateway", first: []string{"name", "upstream_url"}, aliases: map[string]string{"default_plan": "default_plan_id", "default_plan_id": "default_plan"},
			destination: []string{"upstream_url", "upstream_host", "upstream_ca"}, identity: []string{"upstream_client_certificate"},
			description: "A gateway: a hostname whose requests go to upstreams. Its upstream default has the settings upstream_*."},
		{noun: "issuer", description: "An issuer of tokens (JSON Web Tokens) that gateways take in the place of keys."},
		{noun: "key", secret: "key", given: keySecret, aliases: plans, description: "An API key. The state never holds it: it is given in " + keySecret +
			", which is write-only, or written to " + secretFile + ". Destroying the resource revokes the key.",
			deleted: func(record map[string]any) bool { return record["state"] == "revoked" }},
		{noun: "owner", aliases: plans, description: "An owner: a customer or team whose keys they are."},
		{noun: "plan", description: "A plan: a named set of limits that keys, owners and gateways share."},
		{noun: "route", description: "A route of a gateway."},
		{noun: "upstream", first: []string{"targets"}, lasting: "default", destination: []string{"targets", "host", "ca"}, identity: []string{"client_certificate"},
			description: "An upstream of a gateway: the targets where its requests go. The one with the name default exists as long as its gateway: a creation changes what is configured, and a destruction leaves it as it is."},
		{noun: "webhook", secret: "signing_secret", given: "signing_secret", description: "A webhook endpoint. The state never holds its signing secret."},
	}
	for _, k := range rows {
		g := byNoun[k.noun]
		k.Path, k.Collection, k.Attributes = g.Path, g.Collection, g.Attributes
	}
	return rows
}

var parameter = regexp.MustCompile(`\{([a-z_]+)\}`)

// parameters returns the attributes that the path of a record has, in order.
func (k *kind) parameters() []string {
	var names []string
	for _, m := range parameter.FindAllStringSubmatch(k.Path, -1) {
		names = append(names, m[1])
	}
	return names
}

// hasSecrets reports whether an update can send a secret.
func (k *kind) hasSecrets() bool {
	for _, a := range k.Attributes {
		if a.Patch && (a.Secret || a.hidesSecret()) {
			return true
		}
	}
	return false
}

// schema returns the schema of the resource.
func (k *kind) schema() schema.Schema {
	attributes := map[string]schema.Attribute{}
	for name, a := range k.Attributes {
		attributes[name] = a.schema(a.computed(), true)
	}
	if k.given == keySecret {
		attributes[keySecret] = schema.StringAttribute{Optional: true, WriteOnly: true, Sensitive: true,
			Description: "The key in clear, which is imported: 22 to 512 printable ASCII characters that do not have the form of Keygate's own keys. Write-only, so that it can come from an ephemeral resource. Either this or " + secretFile + " is needed for a new key."}
	}
	if k.secret != "" {
		attributes[secretFile] = schema.StringAttribute{Optional: true,
			Description: "Path of a file that does not exist yet, to which the provider writes the secret when the server has generated it, with mode 0600. Nothing else has the secret. A change has no effect on what exists."}
	}
	if k.hasSecrets() || k.given != "" {
		effect := "A change sends what is write-only again."
		if k.given != "" {
			effect = "A change replaces the resource, and so its secret."
		}
		attributes[secretsVersion] = schema.StringAttribute{Optional: true, Description: "Any text. Terraform cannot see that something write-only has changed, so this says so. " + effect}
	}
	return schema.Schema{Description: k.description, Attributes: attributes}
}

// object returns the type of the values of the resource.
func (k *kind) object() tftypes.Object {
	object, _ := k.schema().Type().TerraformType(context.Background()).(tftypes.Object)
	return object
}

// computed reports whether the API says the value of an attribute that is not configured.
func (a *attribute) computed() bool { return a.Record && !a.Required && !a.Secret && !a.hidesSecret() }

// hidesSecret reports whether a member is secret.
func (a *attribute) hidesSecret() bool {
	for _, member := range a.Attributes {
		if member.Secret {
			return true
		}
	}
	return a.Of != nil && a.Of.hidesSecret()
}

// given reports whether a user can set the attribute.
func (a *attribute) given() bool { return a.Create || a.Patch || a.Required }

// schema returns an attribute for Terraform. Only at the top can it be computed or hold any JSON.
func (a *attribute) schema(computed, top bool) schema.Attribute {
	required, optional := a.Required, !a.Required && (a.given() || !top)
	secret, text := a.Secret, a.Description
	switch a.Type {
	case "bool":
		return schema.BoolAttribute{Required: required, Optional: optional, Computed: computed, Description: text}
	case "int":
		return schema.Int64Attribute{Required: required, Optional: optional, Computed: computed, Description: text}
	case "number":
		return schema.NumberAttribute{Required: required, Optional: optional, Computed: computed, Description: text}
	case "map":
		return schema.MapAttribute{Required: required, Optional: optional, Computed: computed, WriteOnly: secret, Sensitive: secret, Description: text, ElementType: a.Of.element()}
	case "object":
		return schema.SingleNestedAttribute{Required: required, Optional: optional, Computed: computed, Description: text, Attributes: a.members()}
	case "list":
		if a.Of.Type == "object" {
			return schema.ListNestedAttribute{Required: required, Optional: optional, Computed: computed, Description: text, NestedObject: schema.NestedAttributeObject{Attributes: a.Of.members()}}
		}
		return schema.ListAttribute{Required: required, Optional: optional, Computed: computed, Description: text, ElementType: a.Of.element()}
	case "any":
		if top {
			return schema.DynamicAttribute{Required: required, Optional: optional, Computed: computed, Description: text}
		}
		text += " A value that is not a string is given by jsonencode."
	}
	return schema.StringAttribute{Required: required, Optional: optional, Computed: computed, WriteOnly: secret, Sensitive: secret, Description: text}
}

func (a *attribute) members() map[string]schema.Attribute {
	members := map[string]schema.Attribute{}
	for name, m := range a.Attributes {
		members[name] = m.schema(false, false)
	}
	return members
}

// element returns the type of an element that has no attributes.
func (a *attribute) element() attr.Type {
	switch a.Type {
	case "bool":
		return types.BoolType
	case "int":
		return types.Int64Type
	case "number":
		return types.NumberType
	case "list":
		return types.ListType{ElemType: a.Of.element()}
	case "map":
		return types.MapType{ElemType: a.Of.element()}
	default:
		return types.StringType
	}
}
