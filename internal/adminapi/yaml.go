package adminapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"go.yaml.in/yaml/v3"
)

// YAML encodes the document with its fields in an order that suits readers. The
// document's own YAML method does not keep an order.
func YAML(doc *huma.OpenAPI) ([]byte, error) {
	content, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encode the OpenAPI document as JSON: %w", err)
	}
	var root yaml.Node // JSON is a subset of YAML
	if err := yaml.Unmarshal(content, &root); err != nil {
		return nil, fmt.Errorf("decode the OpenAPI document: %w", err)
	}
	blockStyle(&root)
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(&root); err != nil {
		return nil, fmt.Errorf("encode the OpenAPI document as YAML: %w", err)
	}
	return out.Bytes(), enc.Close()
}

// blockStyle removes the JSON style from a node and sorts its fields.
func blockStyle(n *yaml.Node) {
	n.Style = 0
	if n.Kind == yaml.MappingNode {
		sortFields(n)
	}
	for _, child := range n.Content {
		blockStyle(child)
	}
}

// sortFields puts the fields that introduce an object first, in a fixed order,
// and keeps the order of the others.
func sortFields(n *yaml.Node) {
	first := []string{
		"openapi", "info", "servers", "security", "tags", "paths", "operationId", "title", "name", "in", "summary", "description",
		"required", "type", "format", "parameters", "requestBody", "responses", "schema",
	}
	type field struct{ key, value *yaml.Node }
	fields := make([]field, 0, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		fields = append(fields, field{n.Content[i], n.Content[i+1]})
	}
	rank := func(f field) int {
		if i := slices.Index(first, f.key.Value); i >= 0 {
			return i
		}
		return len(first)
	}
	slices.SortStableFunc(fields, func(a, b field) int { return rank(a) - rank(b) })
	n.Content = n.Content[:0]
	for _, f := range fields {
		n.Content = append(n.Content, f.key, f.value)
	}
}
