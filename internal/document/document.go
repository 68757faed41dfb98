// Package document reads the YAML and JSON texts that users write into nodes
// that know their place, so that whoever finds a mistake can say the line and
// column of it. It is ground floor: it knows no noun of ours.
//
// The texts come from outside. So the work is bounded by the size of the
// text: an alias is shared and not expanded, and a text with too many values,
// too deep a nesting or too large an expansion is refused. What two readers could
// understand differently is refused as well: a name that stands twice in a
// mapping, more than one document, bytes that are no UTF-8.
package document

import (
	"strings"
	"unicode/utf8"

	"github.com/keygate/keygate/internal/fault"
)

const (
	// maxDepth is how deep mappings and sequences may nest.
	maxDepth = 1000
	// maxValues is how many values a document may have, aliases expanded. The
	// densest text of 16 MiB that people write has fewer.
	maxValues = 1_000_000
	// maxShown is how many bytes of a user's text stand in a message.
	maxShown = 200
)

// Kind tells what a node is.
type Kind uint8

// The kinds of nodes.
const (
	Null Kind = iota
	Bool
	Number
	String
	Sequence
	Mapping
)

// String returns the kind with its article, as messages name it.
func (k Kind) String() string {
	switch k {
	case Null:
		return "null"
	case Bool:
		return "a boolean"
	case Number:
		return "a number"
	case String:
		return "a string"
	case Sequence:
		return "a list"
	case Mapping:
		return "a mapping"
	}
	return "nothing"
}

// Place is a place in a text. Both numbers begin with 1; columns count
// characters.
type Place struct{ Line, Column int32 }

// Invalid returns a validation error at p: its message begins with "line 12,
// column 5: ". Field is a dotted path; one beyond all measure is cut.
func (p Place) Invalid(field, format string, args ...any) *fault.Error {
	return fault.Invalid(Short(field), "line %d, column %d: "+format, append([]any{p.Line, p.Column}, args...)...)
}

// Node is a value in a document. Nodes may be shared between places and are
// never changed.
type Node struct {
	Kind Kind
	Place
	// Text is a string's content, or a boolean or number as it was written.
	Text string
	// Name is the name that the node has in its mapping, and NamePlace where that stands.
	Name      string
	NamePlace Place
	// Nodes are the members of a mapping or the items of a sequence, in the
	// order of the text.
	Nodes []Node
}

// Member returns the member of a mapping with the given name, or nil.
func (n *Node) Member(name string) *Node {
	if n.Kind != Mapping {
		return nil
	}
	for i := range n.Nodes {
		if n.Nodes[i].Name == name {
			return &n.Nodes[i]
		}
	}
	return nil
}

// Parse reads one document in JSON or YAML. A text that begins with a bracket
// is read as JSON, and if it is none, as YAML. The error is a
// validation error without a field, with the place in its message.
func Parse(content []byte) (*Node, error) {
	text := strings.TrimPrefix(string(content), "\ufeff")
	if err := checkEncoding(text); err != nil {
		return nil, err
	}
	begin := strings.TrimLeft(text, " \t\r\n")
	if begin == "" {
		return nil, Place{1, 1}.Invalid("", "the document is empty")
	}
	if begin[0] != '{' && begin[0] != '[' {
		return parseYAML(text)
	}
	n, jsonErr := parseJSON(text)
	if jsonErr == nil {
		return n, nil
	}
	n, err := parseYAML(text)
	if err != nil && looksLikeJSON(begin) {
		return nil, jsonErr
	}
	return n, err
}

// looksLikeJSON reports whether a text that begins with a bracket was meant as
// JSON rather than as a YAML flow collection.
func looksLikeJSON(s string) bool {
	next := strings.TrimLeft(s[1:], " \t\r\n")
	return next == "" || strings.IndexByte(`"{[]}`, next[0]) >= 0
}

// checkEncoding refuses what is no UTF-8.
func checkEncoding(text string) error {
	if strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff") {
		return Place{1, 1}.Invalid("", "the document must be UTF-8, not UTF-16")
	}
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && size == 1 {
			return placeOf(text, i).Invalid("", "the document must be UTF-8: the byte 0x%02x is none here", text[i])
		}
		i += size
	}
	return nil
}

// placeOf returns the place of a byte offset.
func placeOf(text string, offset int) Place {
	before := text[:min(offset, len(text))]
	line := 1 + strings.Count(before, "\n")
	column := 1 + utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
	return Place{int32(line), int32(column)}
}

// Short returns s, cut if it is too long for a message.
func Short(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "…"
}
