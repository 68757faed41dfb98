package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parseFile parses a configuration file and returns its values by key. path is used in
// error messages.
func parseFile(path string, content []byte) (map[string]value, error) {
	root, err := parseDocument(path, content)
	if err != nil {
		return nil, err
	}
	values := map[string]value{}
	if root.Kind == 0 { // only space and comments
		return values, nil
	}
	doc := root.Content[0]
	if doc.Kind == yaml.ScalarNode && doc.Tag == "!!null" {
		return values, nil
	}
	if doc.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: must contain one setting per line, as in gateway_addr: 127.0.0.1:8080", path, doc.Line)
	}
	known := settings()
	for i := 0; i+1 < len(doc.Content); i += 2 {
		key, node := doc.Content[i], doc.Content[i+1]
		at := Origin{Kind: File, Name: path, Line: key.Line, Key: key.Value}
		n := slices.IndexFunc(known, func(s setting) bool { return s.fileKey() == key.Value })
		if n < 0 {
			return nil, &Error{at, unknownKey(key.Value, known)}
		}
		if earlier, twice := values[key.Value]; twice {
			return nil, &Error{at, fmt.Errorf("is already set on line %d: remove one of them", earlier.origin.Line)}
		}
		text, err := textOf(node, known[n].isList || known[n].isJoined)
		if err != nil {
			return nil, &Error{at, err}
		}
		values[key.Value] = value{text, at}
	}
	return values, nil
}

// parseDocument returns the document of a file, which may be empty. A second one is an error.
func parseDocument(path string, content []byte) (*yaml.Node, error) {
	var first, second yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(content))
	for _, to := range []*yaml.Node{&first, &second} {
		if err := documents.Decode(to); err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if second.Kind != 0 && !(second.Content[0].Kind == yaml.ScalarNode && second.Content[0].Tag == "!!null") {
		return nil, fmt.Errorf("%s:%d: a second document begins here, and settings are read from one only: remove the line --- or the settings after it", path, second.Content[0].Line)
	}
	return &first, nil
}

func unknownKey(key string, known []setting) error {
	if dashed := strings.ReplaceAll(key, "-", "_"); dashed != key {
		for i := range known {
			if known[i].fileKey() == dashed {
				return fmt.Errorf("unknown setting: did you mean %s?", dashed)
			}
		}
	}
	return errors.New("unknown setting: keygate serve --help lists all settings")
}

// textOf returns a scalar as it is written, or a list of scalars joined by commas.
func textOf(n *yaml.Node, isList bool) (string, error) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return "", errors.New("has no value: set one, or remove the line")
	case n.Kind == yaml.ScalarNode:
		return n.Value, nil
	case n.Kind == yaml.SequenceNode && isList:
		parts := make([]string, len(n.Content))
		for i, item := range n.Content {
			if item.Kind != yaml.ScalarNode {
				return "", errors.New("must be a list of plain values")
			}
			parts[i] = item.Value
		}
		return strings.Join(parts, ","), nil
	case isList:
		return "", errors.New("must be a list of plain values")
	default:
		return "", errors.New("must be one plain value")
	}
}
