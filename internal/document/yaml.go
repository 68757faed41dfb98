package document

import (
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// parseYAML parses YAML. The values are counted first, because the library builds a tree of
// them.
func parseYAML(text string) (*Node, error) {
	text, err := readDirectives(text)
	if err != nil {
		return nil, err
	}
	m, err := countYAML(text)
	if err != nil {
		return nil, err
	}
	in := strings.NewReader(text)
	dec := yaml.NewDecoder(in)
	root, second, err := decodeYAML(dec)
	marked := false
	if err != nil && !errors.Is(err, io.EOF) {
		if other := markQuestions(text); other != text {
			again, more, failed := decodeYAML(yaml.NewDecoder(strings.NewReader(other)))
			if marked = failed == nil; marked {
				root, second, err = again, more, nil
			}
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil, emptyDocument()
	case err != nil:
		return nil, yamlProblem(dec, text, len(text)-in.Len(), err)
	case second != nil:
		return nil, nodePosition(second).Invalid("", "there is a second document, after a line ---: only one is allowed, so remove it or make it a file of its own")
	}
	r := &yamlReader{anchors: map[*yaml.Node]*anchored{}, memory: m, marked: marked}
	var n Node
	if err := r.read(&n, root.Content[0], 0); err != nil {
		return nil, err
	}
	return &n, nil
}

// What reading YAML takes, in bytes. The library's tree is the larger part. While it is converted,
// each of its nodes is freed when our node for it exists.
const (
	yamlItem    = 280 // of a sequence
	yamlMember  = 490 // of a mapping: two nodes of the library
	yamlTag     = 250
	yamlBreak   = 250 // a line break that is not ASCII
	yamlAnchor  = 300 // with its name
	yamlComment = 260 // that the library has not given to a node yet
)

// countYAML counts the characters that may start values, anchors and comments, and fails if what
// they stand for takes more than the budget. It is not a parser: it also counts characters that are
// only text, and so counts too much rather than too little.
func countYAML(text string) (*memory, error) {
	m := newMemory(text)
	values := 0
	for i := range len(text) {
		switch text[i] {
		case '[':
			if !strings.HasPrefix(text[i:], "[]") {
				values++
				m.add(yamlItem)
			}
		case '{':
			if !strings.HasPrefix(text[i:], "{}") && !namesNext(text[i+1:]) { // {a} has null for a
				values++
				m.add(yamlMember)
			}
		case ',':
			values++
			if m.add(yamlItem); !namesNext(text[i+1:]) {
				m.add(yamlMember - yamlItem)
			}
		case ':':
			if endsIndicator(text, i) || i > 0 && strings.IndexByte(`"'}]`, text[i-1]) >= 0 {
				values += 2
				m.add(yamlMember)
			}
		case '?':
			if endsIndicator(text, i) {
				values += 2
				m.add(yamlMember + yamlItem/4)
			}
		case '-':
			if endsIndicator(text, i) {
				values++
				m.add(yamlItem)
			}
		case '&':
			if !endsIndicator(text, i) {
				m.add(yamlAnchor)
			}
		case '!':
			if startsWord(text, i) {
				m.add(yamlTag)
			}
		case '#':
			if startsWord(text, i) {
				m.add(yamlComment)
			}
		case 0xc2, 0xe2:
			if startsBreak(text[i:]) {
				m.add(yamlBreak)
			}
		case '%':
			if startsLine(text, i) && strings.HasPrefix(text[i:], "%TAG") {
				return nil, positionOf(text, i).Invalid("", "a %%TAG directive is not supported: write the tags in full, or leave them out")
			}
		default:
			continue
		}
		if values > maxValues || m.isExceeded() {
			return nil, m.exceeded(i)
		}
	}
	return m, nil
}

// namesNext reports whether s starts with a plain name and its colon. The colon is counted separately.
func namesNext(s string) bool {
	s = strings.TrimLeft(s, " ")
	end := strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '$' && r != '/'
	})
	return end > 0 && s[end] == ':' && end+1 < len(s) && s[end+1] == ' '
}

// endsIndicator reports whether the byte at i is followed by white space, by the end or, after a
// colon in a flow collection, by an indicator.
func endsIndicator(text string, i int) bool {
	return i+1 == len(text) || strings.IndexByte(" \t\r\n,[]{}", text[i+1]) >= 0 || startsBreak(text[i+1:])
}

// startsWord reports whether the byte at i is at the start or after white space, an indicator of a
// flow collection or a quote.
func startsWord(text string, i int) bool {
	return i == 0 || strings.IndexByte(" \t,[]{}\"'", text[i-1]) >= 0 || startsLine(text, i)
}

// startsLine reports whether the byte at i is the first of a line.
func startsLine(text string, i int) bool {
	if i == 0 || text[i-1] == '\n' || text[i-1] == '\r' {
		return true
	}
	return i >= 2 && startsBreak(text[i-2:]) || i >= 3 && startsBreak(text[i-3:])
}

// startsBreak reports whether s starts with one of the line breaks of YAML 1.1 that are not
// ASCII.
func startsBreak(s string) bool {
	return strings.HasPrefix(s, "\u0085") || strings.HasPrefix(s, "\u2028") || strings.HasPrefix(s, "\u2029")
}

// questionMark stands for ? in a text that is read again. The library does not read a plain text with ? within braces or
// brackets, as in {usage.cached?: 1}, which YAML 1.2 allows.
const questionMark = "\uE000" // a character for private use, one column wide

// markQuestions returns the text with questionMark in the place of each ? within a word, or the text itself if it has that
// character already.
func markQuestions(text string) string {
	if strings.Contains(text, questionMark) || !strings.Contains(text, "?") {
		return text
	}
	var b strings.Builder
	for i, c := range []byte(text) {
		if c == '?' && !startsWord(text, i) {
			b.WriteString(questionMark)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// decodeYAML returns the first document, and the second if there is one. A panic of the
// library becomes an error, because the text comes from outside.
func decodeYAML(dec *yaml.Decoder) (first, second *yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("yaml: %v", p)
		}
	}()
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

func nodePosition(n *yaml.Node) Position { return Position{int32(n.Line), int32(n.Column)} }

// yamlReader converts the library's tree into nodes.
type yamlReader struct {
	anchors map[*yaml.Node]*anchored
	values  int // with aliases expanded
	memory  *memory
	marked  bool // texts have questionMark for ?
}

// anchored is a node with an anchor.
type anchored struct {
	node   Node
	values int
	done   bool
}

func (r *yamlReader) read(n *Node, from *yaml.Node, depth int) error {
	at := nodePosition(from)
	if r.values++; r.values > maxValues {
		return at.Invalid("", "the document has more than %d values, with aliases expanded", maxValues)
	}
	if depth > maxDepth {
		return at.Invalid("", "the document nests deeper than %d levels", maxDepth)
	}
	n.Position = at
	if from.Kind == yaml.AliasNode {
		return r.readAlias(n, from)
	}
	if from.Anchor == "" {
		return r.readContent(n, from, depth)
	}
	a := &anchored{values: r.values}
	r.anchors[from] = a
	if err := r.readContent(n, from, depth); err != nil {
		return err
	}
	a.node, a.values, a.done = *n, r.values-a.values, true
	return nil
}

// readAlias gives n the content of the alias's anchor, which comes earlier in the text.
func (r *yamlReader) readAlias(n *Node, from *yaml.Node) error {
	a := r.anchors[from.Alias]
	if a == nil || !a.done {
		return n.Invalid("", "the alias *%s is inside its own anchor", Short(from.Value))
	}
	if r.values += a.values; r.values > maxValues {
		return n.Invalid("", "the document has more than %d values, with aliases expanded", maxValues)
	}
	n.Kind, n.Text, n.Nodes = a.node.Kind, a.node.Text, a.node.Nodes
	return nil
}

func (r *yamlReader) readContent(n *Node, from *yaml.Node, depth int) error {
	switch from.Kind {
	case yaml.ScalarNode:
		n.Kind, n.Text = scalarKind(from), from.Value
		if r.marked {
			n.Text = strings.ReplaceAll(n.Text, questionMark, "?")
		}
		if n.Kind == Null {
			n.Text = ""
		}
		return nil
	case yaml.SequenceNode:
		n.Kind = Sequence
		for i, item := range from.Content {
			n.Nodes = append(n.Nodes, Node{})
			if err := r.read(&n.Nodes[i], item, depth+1); err != nil {
				return err
			}
			from.Content[i] = nil // so that it need not stay in memory
		}
		return nil
	case yaml.MappingNode:
		n.Kind = Mapping
		return r.readMembers(n, from, depth)
	}
	return n.Invalid("", "this kind of YAML node is not supported")
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
	names := nameSet{}
	var merges []Node
	for i := 0; i+1 < len(from.Content); i += 2 {
		key, value := from.Content[i], from.Content[i+1]
		n.Nodes = append(n.Nodes, Node{})
		child := &n.Nodes[len(n.Nodes)-1]
		if err := r.readName(child, key); err != nil {
			return err
		}
		if !names.add(child.Name) {
			return child.NamePosition.Invalid("", "the name %s is a duplicate in this mapping: remove one", quote(child.Name))
		}
		if err := r.read(child, value, depth+1); err != nil {
			return err
		}
		from.Content[i], from.Content[i+1] = nil, nil
		if isMerge(key) {
			merges = append(merges, *child)
			n.Nodes = n.Nodes[:len(n.Nodes)-1]
		}
	}
	for i := range merges {
		if err := r.merge(n, &merges[i], names); err != nil {
			return err
		}
	}
	return nil
}

// readName reads the name of a member, child: a scalar, or an alias of a scalar.
func (r *yamlReader) readName(child *Node, key *yaml.Node) error {
	if err := r.read(child, key, 0); err != nil {
		return err
	}
	if child.Kind == Sequence || child.Kind == Mapping {
		return child.Invalid("", "a name in a mapping must be a string, not %s: put a value that begins with %s in quotes", child.Kind, map[Kind]string{Mapping: "{", Sequence: "["}[child.Kind])
	}
	*child = Node{Name: child.Text, NamePosition: child.Position}
	return nil
}

// isMerge reports whether key is the YAML merge key, <<.
func isMerge(key *yaml.Node) bool {
	return key.Kind == yaml.ScalarNode && key.Value == "<<" && key.ShortTag() == "!!merge"
}

// merge adds the members of m, the value of a merge key, to n. Members of n itself win.
func (r *yamlReader) merge(n, m *Node, names nameSet) error {
	sources := []Node{*m}
	if m.Kind == Sequence {
		sources = m.Nodes
	}
	for i := range sources {
		if sources[i].Kind != Mapping {
			return sources[i].Invalid("", "<< must have a mapping or a list of mappings, not %s", sources[i].Kind)
		}
		for _, member := range sources[i].Nodes {
			if !names.add(member.Name) {
				continue
			}
			if r.memory.add(2*nodeBytes + nameBytes); r.memory.isExceeded() {
				return m.Invalid("", "%s", r.memory.message())
			}
			n.Nodes = append(n.Nodes, member)
		}
	}
	return nil
}

// nameSet is a set of names.
type nameSet map[string]struct{}

// add reports whether name is new.
func (s nameSet) add(name string) bool {
	before := len(s)
	s[name] = struct{}{}
	return len(s) > before
}

// yamlProblem returns err, with which the *yaml.Decoder dec failed, as a validation error
// with its position. dec had read the first bytes of text by then.
func yamlProblem(dec any, text string, read int, err error) error {
	for i, r := range text[:read] {
		if _, size := utf8.DecodeRuneInString(text[i:]); r == utf8.RuneError && size == 1 {
			break // dec had read half of a character
		}
		if !isPrintable(r) {
			return positionOf(text, i).Invalid("", "the character U+%04X is not allowed in YAML: remove it, or write \"\\x%02x\" in double quotes", r, r)
		}
	}
	line, message := splitLine(strings.TrimPrefix(err.Error(), "yaml: "))
	at, ok := stoppedAt(dec)
	if !ok {
		return Position{line, 1}.Invalid("", "%s", Short(message))
	}
	context, _ := markAt(reflect.ValueOf(dec), "parser", "parser", "context_mark")
	at, message = explainYAML(text, at, context, message)
	return at.Invalid("", "%s", message)
}

// stoppedAt returns the position at which decoder, a *yaml.Decoder, failed. The library's errors
// have only a line, which is often the line of the collection around the mistake. Its parser has
// the exact position, in unexported fields that stoppedAt reads by reflection. If a version of the
// library has other fields, ok is false and stoppedAt does not panic; TestInvalidTextsAreRejected
// then fails.
func stoppedAt(decoder any) (at Position, ok bool) {
	root := reflect.ValueOf(decoder)
	problem, found := intField(root, "parser", "parser", "error")
	if !found {
		return Position{}, false
	}
	if problem == 0 { // not a syntax error but an alias without an anchor: the last event
		return markAt(root, "parser", "event", "start_mark")
	}
	return markAt(root, "parser", "parser", "problem_mark")
}

// markAt returns the position that is at the end of a path of struct fields.
func markAt(root reflect.Value, path ...string) (at Position, ok bool) {
	path = path[:len(path):len(path)]
	line, hasLine := intField(root, append(path, "line")...)
	column, hasColumn := intField(root, append(path, "column")...)
	if !hasLine || !hasColumn || min(line, column) < 0 || max(line, column) >= math.MaxInt32 {
		return Position{}, false
	}
	return Position{int32(line) + 1, int32(column) + 1}, true
}

// intField returns the signed integer at the end of a path of struct fields, following
// pointers. ok is false if there is no such field or a pointer is nil.
func intField(v reflect.Value, path ...string) (n int64, ok bool) {
	for _, name := range path {
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct {
			return 0, false
		}
		field, found := v.Type().FieldByName(name)
		if !found || len(field.Index) != 1 { // a promoted field could be behind a nil pointer
			return 0, false
		}
		v = v.Field(field.Index[0])
	}
	if !v.CanInt() {
		return 0, false
	}
	return v.Int(), true
}

// splitLine cuts "line 12: " off a message. Without it, the line is 1.
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

// quote returns a user's text for a message.
func quote(s string) string { return strconv.Quote(Short(s)) }
