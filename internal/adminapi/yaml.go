package adminapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"go.yaml.in/yaml/v3"
)

// YAML writes the document with its members in the order in which a reader
// wants them, which the document's own YAML method does not keep.
func YAML(doc *huma.OpenAPI) ([]byte, error) {
	content, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("write the API document: %w", err)
	}
	var root yaml.Node // JSON is YAML in another style
	if err := yaml.Unmarshal(content, &root); err != nil {
		return nil, fmt.Errorf("read the API document: %w", err)
	}
	blockStyle(&root)
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(&root); err != nil {
		return nil, fmt.Errorf("write the API document: %w", err)
	}
	return out.Bytes(), enc.Close()
}

func blockStyle(n *yaml.Node) {
	n.Style = 0
	if n.Kind == yaml.MappingNode {
		sortMembers(n)
	}
	for _, child := range n.Content {
		blockStyle(child)
	}
}

// sortMembers puts the members that introduce an object first, in a fixed
// order, and keeps the order of the rest.
func sortMembers(n *yaml.Node) {
	first := []string{
		"openapi", "info", "servers", "security", "tags", "paths", "operationId", "title", "name", "in", "summary", "description",
		"required", "type", "format", "parameters", "requestBody", "responses", "schema",
	}
	type member struct{ key, value *yaml.Node }
	members := make([]member, 0, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		members = append(members, member{n.Content[i], n.Content[i+1]})
	}
	rank := func(m member) int {
		if i := slices.Index(first, m.key.Value); i >= 0 {
			return i
		}
		return len(first)
	}
	slices.SortStableFunc(members, func(a, b member) int { return rank(a) - rank(b) })
	n.Content = n.Content[:0]
	for _, m := range members {
		n.Content = append(n.Content, m.key, m.value)
	}
}
