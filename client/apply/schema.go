package apply

import (
	"encoding/json"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/plan"
)

// Schema returns the JSON Schema (draft 2020-12) of configuration files, for editors: of files of gateways, and of the
// files of plans and of issuers.
func Schema() []byte {
	var whole map[string]any
	if err := json.Unmarshal(gateway.Schema(), &whole); err != nil {
		panic(err) // it is always the same
	}
	ofGateway := map[string]any{}
	for name, part := range whole {
		switch name {
		case "$schema", "$id", "title":
		default:
			ofGateway[name] = part
			delete(whole, name)
		}
	}
	whole["type"] = "object"
	whole["if"] = map[string]any{"required": []any{"plans"}}
	whole["then"], whole["else"] = plan.FileSchema(), map[string]any{
		"if":   map[string]any{"required": []any{"issuers"}, "not": map[string]any{"required": []any{"routes"}}},
		"then": issuer.FileSchema(), "else": ofGateway,
	}
	content, err := json.MarshalIndent(whole, "", "  ")
	if err != nil {
		panic(err) // the schema consists of maps, lists, strings and numbers
	}
	return append(content, '\n')
}
