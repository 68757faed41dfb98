package document

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	yamlv4 "go.yaml.in/yaml/v4"
)

// parseYAML reads a text as YAML. The library builds its own tree of about 200
// bytes a value first, so the values are counted beforehand.
func parseYAML(text string) (*Node, error) {
	if bound := countIndicators(text); bound > maxValues {
		return nil, Place{1, 1}.Invalid("", "the document has too many values to be read as YAML: write it as JSON or make it smaller")
	}
	in := strings.NewReader(text)
	root, second, err := decodeYAML(in)
	switch {
	case errors.Is(err, io.EOF):
		return nil, Place{1, 1}.Invalid("", "the document is empty")
	case err != nil:
		return nil, yamlProblem(text[:len(text)-in.Len()], err)
	case second != nil:
		return nil, placeOfNode(second).Invalid("", "there is a second document: only one is read")
	}
	r := &yamlReader{anchors: map[*yaml.Node]*anchored{}}
	var n Node
	if err := r.read(&n, root.Content[0], 0); err != nil {
		return nil, err
	}
	return &n, nil
}

// countIndicators counts the characters that begin values in YAML. There are
// about as many values as this, or fewer.
func countIndicators(text string) int {
	n := 0
	for i := range len(text) {
		switch text[i] {
		case ',', '[', '{':
			n++
		case ':':
			if endsIndicator(text, i) || i > 0 && strings.IndexByte(`"'}]`, text[i-1]) >= 0 {
				n += 2
			}
		case '-', '?':
			if endsIndicator(text, i) {
				n++
			}
		}
	}
	return n
}

// endsIndicator reports whether white space or nothing follows the byte at i.
func endsIndicator(text string, i int) bool {
	return i+1 == len(text) || strings.IndexByte(" \t\r\n", text[i+1]) >= 0
}

// decodeYAML returns the first document, and the second if there is one. The
// library reports all but its own defects as errors; a defect is made an error
// here, since the text is a stranger's.
func decodeYAML(in io.Reader) (first, second *yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("yaml: %v", p)
		}
	}()
	dec := yaml.NewDecoder(in)
	first = new(yaml.Node)
	if err := dec.Decode(first); err != nil {
		return nil, nil, err
	}
	second = new(yaml.Node)
	switch err := dec.Decode(second); {
	case errors.Is(err, io.EOF):
		return first, nil, nil
	case err != nil:
		return nil, nil, err
	}
	return first, second, nil
}

func placeOfNode(n *yaml.Node) Place { return Place{int32(n.Line), int32(n.Column)} }

// yamlReader turns the library's tree into ours.
type yamlReader struct {
	anchors map[*yaml.Node]*anchored
	values  int // aliases expanded
}

// anchored is a node that aliases may name.
type anchored struct {
	node   Node
	values int
	done   bool
}

func (r *yamlReader) read(n *Node, from *yaml.Node, depth int) error {
	place := placeOfNode(from)
	if r.values++; r.values > maxValues {
		return place.Invalid("", "the document has more than %d values, aliases expanded", maxValues)
	}
	if depth > maxDepth {
		return place.Invalid("", "the document nests deeper than %d levels", maxDepth)
	}
	n.Place = place
	if from.Kind == yaml.AliasNode {
		return r.readAlias(n, from)
	}
	if from.Anchor == "" {
		return r.readOwn(n, from, depth)
	}
	a := &anchored{values: r.values}
	r.anchors[from] = a
	if err := r.readOwn(n, from, depth); err != nil {
		return err
	}
	a.node, a.values, a.done = *n, r.values-a.values, true
	return nil
}

// readAlias gives n the content of what the alias names, which stands before it.
func (r *yamlReader) readAlias(n *Node, from *yaml.Node) error {
	a := r.anchors[from.Alias]
	if a == nil || !a.done {
		return n.Invalid("", "the alias *%s stands inside what it names", Short(from.Value))
	}
	if r.values += a.values; r.values > maxValues {
		return n.Invalid("", "the document has more than %d values, aliases expanded", maxValues)
	}
	n.Kind, n.Text, n.Nodes = a.node.Kind, a.node.Text, a.node.Nodes
	return nil
}

func (r *yamlReader) readOwn(n *Node, from *yaml.Node, depth int) error {
	switch from.Kind {
	case yaml.ScalarNode:
		n.Kind, n.Text = scalarKind(from), from.Value
		if n.Kind == Null {
			n.Text = ""
		}
		return nil
	case yaml.SequenceNode:
		n.Kind = Sequence
		n.Nodes = make([]Node, len(from.Content))
		for i, item := range from.Content {
			if err := r.read(&n.Nodes[i], item, depth+1); err != nil {
				return err
			}
		}
		return nil
	case yaml.MappingNode:
		n.Kind = Mapping
		return r.readMembers(n, from, depth)
	}
	return n.Invalid("", "the document cannot be read here")
}

func scalarKind(n *yaml.Node) Kind {
	switch n.ShortTag() {
	case "!!null":
		return Null
	case "!!bool":
		return Bool
	case "!!int", "!!float":
		return Number
	}
	return String
}

func (r *yamlReader) readMembers(n *Node, from *yaml.Node, depth int) error {
	n.Nodes = make([]Node, 0, len(from.Content)/2)
	names := newNameSet(len(from.Content) / 2)
	var merges []*Node
	for i := 0; i+1 < len(from.Content); i += 2 {
		key, value := from.Content[i], from.Content[i+1]
		var child Node
		if err := r.readName(&child, key); err != nil {
			return err
		}
		if !names.add(child.Name) {
			return child.NamePlace.Invalid("", "the name %s stands twice in this mapping", quote(child.Name))
		}
		if err := r.read(&child, value, depth+1); err != nil {
			return err
		}
		if isMerge(key) {
			merges = append(merges, &child)
			continue
		}
		n.Nodes = append(n.Nodes, child)
	}
	for _, m := range merges {
		if err := r.merge(n, m, names); err != nil {
			return err
		}
	}
	return nil
}

// readName reads a key: a scalar, or an alias of one.
func (r *yamlReader) readName(child *Node, key *yaml.Node) error {
	var name Node
	if err := r.read(&name, key, 0); err != nil {
		return err
	}
	if name.Kind == Sequence || name.Kind == Mapping {
		return name.Invalid("", "a name in a mapping must be a string, not %s", name.Kind)
	}
	child.Name, child.NamePlace = name.Text, name.Place
	return nil
}

// isMerge reports whether a key is YAML's merge key.
func isMerge(key *yaml.Node) bool {
	return key.Kind == yaml.ScalarNode && key.Value == "<<" && key.ShortTag() == "!!merge"
}

// merge adds the members of what a merge key names; what n has itself stays.
func (r *yamlReader) merge(n, m *Node, names nameSet) error {
	sources := []Node{*m}
	if m.Kind == Sequence {
		sources = m.Nodes
	}
	for i := range sources {
		if sources[i].Kind != Mapping {
			return sources[i].Invalid("", "<< takes a mapping or a list of mappings, not %s", sources[i].Kind)
		}
		for _, member := range sources[i].Nodes {
			if names.add(member.Name) {
				n.Nodes = append(n.Nodes, member)
			}
		}
	}
	return nil
}

// nameSet tells names that were there already.
type nameSet map[string]struct{}

func newNameSet(size int) nameSet { return make(nameSet, size) }

func (s nameSet) add(name string) bool {
	before := len(s)
	s[name] = struct{}{}
	return len(s) > before
}

// maxFlow bounds the work of yamlProblem: the library that knows columns keeps
// every token of a flow collection until the collection ends.
const maxFlow = 100_000

// yamlProblem tells the place of the mistake that made err, in what was read
// until then. The library that reads knows lines alone, and of the context at that;
// its successor, which is slower by far on flow collections, knows the place.
func yamlProblem(text string, err error) error {
	if r, size := utf8.DecodeLastRuneInString(text); r == utf8.RuneError && size == 1 {
		text = strings.ToValidUTF8(text, "") // less the half character at its end
	}
	for i, r := range text {
		if !isPrintable(r) {
			return placeOf(text, i).Invalid("", "the character U+%04X may not stand in YAML", r)
		}
	}
	var found *yamlv4.LoadError
	if strings.Count(text, ",")+strings.Count(text, "[")+strings.Count(text, "{") <= maxFlow {
		var n yamlv4.Node
		if errors.As(yamlv4.Load([]byte(text), &n), &found) && found.Mark.Line > 0 {
			message := found.Message
			if found.ContextMsg != "" {
				message += " (" + found.ContextMsg + ")"
			}
			return Place{int32(found.Mark.Line), int32(max(1, found.Mark.Column))}.Invalid("", "%s", Short(message))
		}
	}
	line, message := splitLine(strings.TrimPrefix(err.Error(), "yaml: "))
	return Place{line, 1}.Invalid("", "%s", Short(message))
}

// splitLine takes "line 12: " off a message; without one it is line 1.
func splitLine(message string) (int32, string) {
	if rest, ok := strings.CutPrefix(message, "line "); ok {
		number, rest, _ := strings.Cut(rest, ": ")
		if line, err := strconv.ParseInt(number, 10, 32); err == nil {
			return int32(line), rest
		}
	}
	return 1, message
}

// isPrintable reports whether YAML allows r in a text (YAML 1.2.2, 5.1).
func isPrintable(r rune) bool {
	switch {
	case r == '\t' || r == '\n' || r == '\r' || r == 0x85:
		return true
	case r < 0x20, r >= 0x7f && r < 0xa0, r == 0xfffe, r == 0xffff:
		return false
	}
	return true
}

// quote shows a user's text in a message.
func quote(s string) string { return strconv.Quote(Short(s)) }
