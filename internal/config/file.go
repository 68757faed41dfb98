package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
)

// parseFile parses a configuration file and returns its values by key. path is used in
// error messages.
func parseFile(path string, content []byte) (map[string]value, error) {
	values := map[string]value{}
	root, err := document.Parse(content)
	switch {
	case document.IsEmpty(err):
		return values, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, plain(err))
	case root.Kind == document.Null:
		return values, nil
	case root.Kind != document.Mapping:
		return nil, fmt.Errorf("%s:%d: must contain one setting per line, as in gateway_addr: 127.0.0.1:8080", path, root.Line)
	}
	known := settings()
	for i := range root.Nodes {
		node := &root.Nodes[i]
		at := Origin{Kind: File, Name: path, Line: int(node.NamePosition.Line), Key: node.Name}
		n := slices.IndexFunc(known, func(s setting) bool { return s.fileKey() == node.Name })
		if n < 0 {
			return nil, &Error{at, unknownKey(node.Name, known)}
		}
		text, err := textOf(node, known[n].isList || known[n].isJoined)
		if err != nil {
			return nil, &Error{at, err}
		}
		values[node.Name] = value{text, at}
	}
	return values, nil
}

// plain returns the public message of an error of package document, which has the position.
func plain(err error) error {
	var public *fault.Error
	if errors.As(err, &public) {
		return errors.New(public.Message)
	}
	return err
}

func unknownKey(key string, known []setting) error {
	if hint := document.Lookalike(key); hint != "" {
		return errors.New("unknown setting: " + hint)
	}
	for _, likely := range []string{strings.ReplaceAll(key, "-", "_"), strings.ToLower(key), strings.TrimPrefix(strings.ToLower(key), "keygate_")} {
		if likely != key && slices.ContainsFunc(known, func(s setting) bool { return s.fileKey() == likely }) {
			return fmt.Errorf("unknown setting: did you mean %s?", likely)
		}
	}
	return errors.New("unknown setting: keygate serve --help lists all settings")
}

// textOf returns a scalar as it is written, or a list of scalars joined by commas.
func textOf(n *document.Node, isList bool) (string, error) {
	switch {
	case n.Kind == document.Null:
		return "", errors.New("has no value: set one, or remove the line")
	case isScalar(n):
		return n.Text, nil
	case n.Kind == document.Sequence && isList:
		parts := make([]string, len(n.Nodes))
		for i := range n.Nodes {
			if !isScalar(&n.Nodes[i]) {
				return "", errors.New("must be a list of plain values")
			}
			parts[i] = n.Nodes[i].Text
		}
		return strings.Join(parts, ","), nil
	case isList:
		return "", errors.New("must be a list of plain values")
	default:
		return "", errors.New("must be one plain value")
	}
}

func isScalar(n *document.Node) bool {
	return n.Kind == document.String || n.Kind == document.Number || n.Kind == document.Bool
}
