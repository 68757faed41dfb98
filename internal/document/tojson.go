package document

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// JSON returns the value of n, which is at a field, as JSON. The error is a validation error for a number that JSON does
// not have.
func (n *Node) JSON(field string) ([]byte, error) {
	var b bytes.Buffer
	err := n.writeJSON(&b, field)
	return b.Bytes(), err
}

func (n *Node) writeJSON(b *bytes.Buffer, field string) error {
	switch n.Kind {
	case Null:
		b.WriteString("null")
	case Bool:
		b.WriteString(boolOf(n.Text))
	case Number:
		if !json.Valid([]byte(n.Text)) {
			return n.Invalid(field, "must be a number as JSON has it, in decimal digits: %q is read in several ways, or is none", Short(n.Text))
		}
		b.WriteString(n.Text)
	case String:
		b.WriteString(Quoted(n.Text))
	case Sequence:
		return n.writeNodes(b, '[', ']', func(i int, one *Node) error { return one.writeJSON(b, fmt.Sprintf("%s[%d]", field, i)) })
	case Mapping:
		return n.writeNodes(b, '{', '}', func(_ int, one *Node) error {
			b.WriteString(Quoted(one.Name))
			b.WriteByte(':')
			return one.writeJSON(b, Below(field, one.Name))
		})
	}
	return nil
}

// writeNodes writes the nodes below n between two brackets.
func (n *Node) writeNodes(b *bytes.Buffer, begin, end byte, write func(i int, one *Node) error) error {
	b.WriteByte(begin)
	for i := range n.Nodes {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := write(i, &n.Nodes[i]); err != nil {
			return err
		}
	}
	b.WriteByte(end)
	return nil
}
