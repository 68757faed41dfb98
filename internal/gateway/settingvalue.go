package gateway

import (
	"strings"

	"github.com/keygate/keygate/internal/document"
)

// SettingValues returns the settings that the section "gateway" of a configuration file has, by their
// names, in the form that JSON has for them: a number is an int64, and null is nil. The file was valid
// when it was pushed; its settings are not checked again.
func SettingValues(content []byte) (map[string]any, error) {
	root, err := document.Parse(content)
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	if section := root.Member("gateway"); section != nil {
		for i := range section.Nodes {
			values[section.Nodes[i].Name] = valueOf(&section.Nodes[i])
		}
	}
	return values, nil
}

func valueOf(n *document.Node) any {
	switch n.Kind {
	case document.Null:
		return nil
	case document.Bool:
		return strings.EqualFold(n.Text, "true")
	case document.Number:
		if v, ok := document.Integer(n.Text); ok {
			return v
		}
	case document.Sequence:
		list := make([]any, len(n.Nodes))
		for i := range n.Nodes {
			list[i] = valueOf(&n.Nodes[i])
		}
		return list
	case document.Mapping:
		members := make(map[string]any, len(n.Nodes))
		for i := range n.Nodes {
			members[n.Nodes[i].Name] = valueOf(&n.Nodes[i])
		}
		return members
	case document.String:
	}
	return n.Text
}
