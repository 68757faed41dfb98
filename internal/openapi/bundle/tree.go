package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"go.yaml.in/yaml/v3"
)

// pair is a member of a mapping.
type pair struct{ key, value *yaml.Node }

// resolved returns what an alias stands for, or n.
func resolved(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// members returns the members of a mapping, with the members that the YAML merge key << adds.
func members(n *yaml.Node) []pair {
	var own, merged []pair
	seen := map[string]bool{}
	n = resolved(n)
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], resolved(n.Content[i+1])
		switch {
		case key.ShortTag() != "!!merge":
			seen[key.Value] = true
			own = append(own, pair{key, n.Content[i+1]})
		case value.Kind == yaml.SequenceNode:
			for _, source := range value.Content {
				merged = append(merged, members(source)...)
			}
		default:
			merged = append(merged, members(value)...)
		}
	}
	for _, m := range merged {
		if !seen[m.key.Value] {
			seen[m.key.Value] = true
			own = append(own, m)
		}
	}
	return own
}

// member returns a member of a mapping, or nil.
func member(n *yaml.Node, name string) *pair {
	for _, m := range members(n) {
		if m.key.Value == name {
			return &pair{m.key, resolved(m.value)}
		}
	}
	return nil
}

// encode returns the text of a document, in the language in which it was written.
func encode(f *file) ([]byte, error) {
	var out bytes.Buffer
	if f.isJSON {
		writeJSON(&out, f.node)
		var indented bytes.Buffer
		err := json.Indent(&indented, out.Bytes(), "", "  ")
		return append(indented.Bytes(), '\n'), err
	}
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(f.whole); err != nil {
		return nil, err
	}
	// What was written must say the same as the tree.
	var written yaml.Node
	if err := yaml.Unmarshal(out.Bytes(), &written); err != nil {
		return nil, err
	}
	if !equal(written.Content[0], f.node) {
		return nil, errors.New("its YAML cannot be written again without changes")
	}
	return out.Bytes(), nil
}

func equal(a, b *yaml.Node) bool {
	if a.Kind != b.Kind || a.ShortTag() != b.ShortTag() || a.Value != b.Value || len(a.Content) != len(b.Content) {
		return false
	}
	for i := range a.Content {
		if !equal(a.Content[i], b.Content[i]) {
			return false
		}
	}
	return true
}

func writeJSON(out *bytes.Buffer, n *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		out.WriteByte('{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				out.WriteByte(',')
			}
			writeText(out, n.Content[i].Value)
			out.WriteByte(':')
			writeJSON(out, n.Content[i+1])
		}
		out.WriteByte('}')
	case yaml.SequenceNode:
		out.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				out.WriteByte(',')
			}
			writeJSON(out, item)
		}
		out.WriteByte(']')
	default:
		writeScalar(out, n)
	}
}

func writeScalar(out *bytes.Buffer, n *yaml.Node) {
	tag := n.ShortTag()
	switch {
	case tag == "!!null":
		out.WriteString("null")
	case tag == "!!bool":
		out.WriteString(strings.ToLower(n.Value))
	case (tag == "!!int" || tag == "!!float") && json.Valid([]byte(n.Value)):
		out.WriteString(n.Value)
	default:
		writeText(out, n.Value)
	}
}

// writeText writes a JSON string.
func writeText(out *bytes.Buffer, s string) {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic("bundle: " + err.Error()) // a string always has a JSON form
	}
	out.Truncate(out.Len() - 1) // the encoder ends the line
}

// position is a position in a bundle.
type position struct{ line, column int }

// Position returns where the value or name at a position of Content comes from. It is the position
// itself if the bundle has no other files. ok is false if nothing begins there.
func (b *Bundle) Position(line, column int) (p Position, ok bool) {
	if b.positions == nil {
		b.positions = map[position]Position{}
		var written yaml.Node
		if b.root != nil && yaml.Unmarshal(b.Content, &written) == nil {
			b.align(written.Content[0], b.root.node, b.root)
		}
	}
	p, ok = b.positions[position{line, column}]
	return p, ok
}

// align records the positions of a tree that was written from the tree from, in the file f.
func (b *Bundle) align(written, from *yaml.Node, f *file) {
	if owner := b.owners[from]; owner != nil {
		f = owner
	}
	b.positions[position{written.Line, written.Column}] = Position{f.name, from.Line, from.Column}
	for i := range min(len(written.Content), len(from.Content)) {
		b.align(written.Content[i], from.Content[i], f)
	}
}
