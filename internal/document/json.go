package document

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// parseJSON parses strict JSON (RFC 8259, with the unique names of RFC 7493). content and text are
// the same. It creates nodes directly from tokens: strings without escapes are slices of the
// text. Before that it counts the values, so that all nodes are one allocation of the right size.
func parseJSON(content []byte, text string) (*Node, error) {
	count, err := countJSON(text)
	if err != nil {
		return nil, err
	}
	r := &jsonReader{
		text: text, dec: jsontext.NewDecoder(bytes.NewBuffer(content)), at: Position{1, 1},
		nodes: make([]Node, count.values), children: count.children,
	}
	var root Node
	if err := r.read(&root, 0); err != nil {
		return nil, err
	}
	end := int(r.dec.InputOffset())
	if _, err := r.dec.ReadToken(); !errors.Is(err, io.EOF) {
		at, message := ExplainJSON(text, end, ErrTrailing)
		return nil, at.Invalid("", "%s", message)
	}
	return &root, nil
}

type jsonReader struct {
	text   string
	dec    *jsontext.Decoder
	values int

	// at is the position of the byte offset seen. It only moves forward, so that even one long line
	// is counted only once.
	at   Position
	seen int

	// nodes are the nodes that are not in use yet, and children the numbers of members or items
	// of the collections that were not read yet, in the order of the text.
	nodes    []Node
	children []int32
}

// jsonCount is what countJSON counts.
type jsonCount struct {
	values   int     // below the root
	children []int32 // of each collection, in the order of the text
}

// The bytes that reading JSON takes in addition to nodes.
const (
	jsonCollection = 24 // in jsonCount.children, while that grows
	jsonName       = 96 // of an open object, whose names the decoder compares
)

// countJSON counts the values of a JSON text, and fails if they take more than the budget. For a
// text that is not JSON, the count may be anything.
func countJSON(text string) (jsonCount, error) {
	type collection struct {
		at     int32 // in c.children
		object bool
	}
	var c jsonCount
	var open []collection
	m := newMemory(text)
	names := 0 // in the objects that are open
	add := func() {
		if len(open) == 0 {
			return
		}
		in := open[len(open)-1]
		c.children[in.at]++
		c.values++
		m.add(nodeBytes)
		if in.object {
			names++
			m.peak(names * jsonName)
		}
	}
	empty := true // nothing was read of the innermost collection yet
	for i := 0; i < len(text); i++ {
		switch b := text[i]; b {
		case ' ', '\t', '\r', '\n', ':':
			continue
		case '}', ']':
			if len(open) == 0 {
				return c, nil // not JSON
			}
			if in := open[len(open)-1]; in.object {
				names -= int(c.children[in.at])
			}
			open, empty = open[:len(open)-1], false
			continue
		case ',':
			add()
			continue
		}
		if empty {
			add()
			empty = false
		}
		switch text[i] {
		case '{', '[':
			if len(open) > maxDepth {
				return c, nil // the reader fails here
			}
			m.add(jsonCollection)
			open = append(open, collection{int32(len(c.children)), text[i] == '{'})
			c.children, empty = append(c.children, 0), true
		case '"':
			i += stringLength(text[i+1:])
		}
		if m.isExceeded() {
			return c, m.exceeded(i)
		}
	}
	return c, nil
}

// stringLength returns the length of the rest of a string, with the quote at its end.
func stringLength(rest string) int {
	for i := 0; i < len(rest); i++ {
		next := strings.IndexAny(rest[i:], `"\\`)
		if next < 0 {
			break
		}
		if i += next; rest[i] == '"' {
			return i + 1
		}
		i++
	}
	return len(rest)
}

// read parses the next value into n.
func (r *jsonReader) read(n *Node, depth int) error {
	switch kind := r.dec.PeekKind(); kind {
	case '{', '[':
		return r.readCollection(n, kind == '{', depth)
	default:
		value, at, err := r.readScalar()
		if err != nil {
			return err
		}
		n.Position, n.Text = at, value
		switch kind {
		case '"':
			n.Kind = String
		case '0':
			n.Kind = Number
		case 't', 'f':
			n.Kind = Bool
		case 'n':
			n.Kind, n.Text = Null, ""
		}
		return nil
	}
}

func (r *jsonReader) readCollection(n *Node, mapping bool, depth int) error {
	if _, err := r.dec.ReadToken(); err != nil {
		return r.failed(err)
	}
	n.Kind, n.Position = Sequence, r.position(int(r.dec.InputOffset())-1)
	if mapping {
		n.Kind = Mapping
	}
	if depth == maxDepth {
		return n.Invalid("", "the document nests deeper than %d levels", maxDepth)
	}
	r.reserve(n)
	for kind := r.dec.PeekKind(); kind != '}' && kind != ']'; kind = r.dec.PeekKind() {
		n.Nodes = append(n.Nodes, Node{})
		child := &n.Nodes[len(n.Nodes)-1]
		if mapping {
			name, at, err := r.readScalar()
			if err != nil {
				return err
			}
			child.Name, child.NamePosition = name, at
		}
		if err := r.read(child, depth+1); err != nil {
			return err
		}
		if r.values++; r.values > maxValues {
			return child.Invalid("", "the document has more than %d values", maxValues)
		}
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return r.failed(err)
	}
	return nil
}

// reserve gives the next collection, n, the nodes for its members or items.
func (r *jsonReader) reserve(n *Node) {
	if len(r.children) == 0 {
		return // not JSON
	}
	most := min(int(r.children[0]), len(r.nodes))
	n.Nodes, r.nodes, r.children = r.nodes[:0:most], r.nodes[most:], r.children[1:]
}

// readScalar reads a name, or a value other than a collection.
func (r *jsonReader) readScalar() (string, Position, error) {
	value, err := r.dec.ReadValue()
	if err != nil {
		return "", Position{}, r.failed(err)
	}
	end := int(r.dec.InputOffset())
	start := end - len(value)
	at := r.position(start)
	switch {
	case value[0] != '"':
		return r.text[start:end], at, nil
	case bytes.IndexByte(value, '\\') < 0:
		return r.text[start+1 : end-1], at, nil
	}
	plain, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		return "", Position{}, at.Invalid("", "the string is malformed")
	}
	return string(plain), at, nil
}

// position returns the position of a byte offset, which must not be less than in an earlier call.
func (r *jsonReader) position(offset int) Position {
	r.at = r.at.advance(r.text[r.seen:offset])
	r.seen = offset
	return r.at
}

// failed returns an error of the decoder as a validation error with its position.
func (r *jsonReader) failed(err error) error {
	at, message := ExplainJSON(r.text, int(r.dec.InputOffset()), err)
	return at.Invalid("", "%s", message)
}
