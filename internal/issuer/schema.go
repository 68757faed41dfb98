package issuer

import (
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/jwk"
)

// schema is a JSON Schema, or a part of one.
type schema = map[string]any

// FileSchema returns the JSON Schema of files of issuers, for editors. As that of gateway.Schema, it checks less than
// ParseFile.
func FileSchema() map[string]any {
	return schema{
		"type": "object", "additionalProperties": false, "required": []any{"issuers"},
		"description": "The issuers of tokens of an account. What an issuer leaves out has its default.",
		"properties": schema{
			"$schema": schema{"type": "string", "description": "Address of this schema, for editors. Keygate ignores it."},
			"issuers": schema{"type": "array", "maxItems": MaxIssuers, "items": issuerSchema(), "description": "Issuers: who signs tokens, what they must have, and what they give their bearer."},
		},
	}
}

// issuerSchema returns the schema of an issuer. What fields are for is said by Fields.
func issuerSchema() schema {
	const orEnv = `|.*\$\{env:.*)$`
	text := func(most int) schema { return schema{"type": "string", "minLength": 1, "maxLength": most} }
	url := schema{"type": "string", "pattern": "^(https://.*" + orEnv, "maxLength": maxURL}
	texts := func(most int) schema { return schema{"type": "array", "maxItems": most, "items": text(maxText)} }
	value := schema{"type": []any{"string", "number", "boolean"}}
	algorithms := make([]any, 0, len(jwk.Algorithms()))
	for _, a := range jwk.Algorithms() {
		algorithms = append(algorithms, string(a))
	}
	forms := map[string]schema{
		"name":   {"type": "string", "minLength": 1, "maxLength": 64, "pattern": `^([a-z0-9_-]+` + orEnv, "examples": []any{"login"}},
		"issuer": url, "jwks_url": url, "ca": text(64 << 10), "leeway": text(maxText), "max_lifetime": text(maxText), "typ": text(maxText),
		"jwks":      {"type": "object", "required": []any{"keys"}, "properties": schema{"keys": schema{"type": "array", "maxItems": jwk.MaxKeys, "items": schema{"type": "object"}}}},
		"audiences": {"type": "array", "minItems": 1, "maxItems": MaxAudiences, "items": text(maxText)}, "default_scopes": texts(16),
		"algorithms": {"type": "array", "minItems": 1, "items": schema{"enum": algorithms}},
		"required": {"type": "object", "maxProperties": MaxRequired, "additionalProperties": schema{
			"anyOf": []any{value, schema{"type": "array", "minItems": 1, "maxItems": MaxValues, "items": value}},
		}},
		"claims": {"type": "object", "additionalProperties": false, "properties": schema{
			"scope": gateway.OrNull(text(maxText)), "owner": gateway.OrNull(text(maxText)), "plan": gateway.OrNull(text(maxText)),
		}},
		"scope_map":     {"type": "object", "maxProperties": MaxScopeMap, "additionalProperties": text(maxText)},
		"owner_prefix":  {"type": "string", "maxLength": maxPrefix},
		"claim_headers": {"type": "object", "maxProperties": MaxClaimHeaders, "additionalProperties": text(maxText)},
		"forward_token": {"type": "boolean"},
	}
	required := []any{"name", "issuer", "audiences"}
	properties := schema{}
	for _, f := range Fields() {
		one := forms[f.Name]
		described := schema{"description": f.Doc}
		for name, part := range one {
			described[name] = part
		}
		if f.Name != "name" && f.Name != "issuer" && f.Name != "audiences" {
			described = gateway.OrNull(described)
		}
		properties[f.Name] = described
	}
	return schema{"type": "object", "additionalProperties": false, "required": required, "properties": properties}
}
