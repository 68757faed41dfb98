// Package document parses the YAML and JSON that users write into nodes with positions, so
// that errors can name the line and column. It knows nothing of gateways or OpenAPI.
//
// The texts are not trusted, so the work and the memory are bounded by their size: aliases are
// shared, not expanded, and a text with too many values, too deep nesting or too large an
// expansion is rejected. So is a text that two parsers could read differently: one with duplicate names
// in a mapping, several documents, or invalid UTF-8.
package document

import (
	"strings"

	"github.com/keygate/keygate/internal/fault"
)

const (
	// maxDepth is how deeply mappings and sequences may nest.
	maxDepth = 1000
	// maxValues is the maximum number of values in a document, with aliases expanded. Even the
	// densest text of 16 MiB that people write has fewer.
	maxValues = 1_000_000
	// maxShown is the maximum number of bytes of a user's text in a message.
	maxShown = 200
)

// Kind is the kind of a node.
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

// String returns the kind with its article, for messages.
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

// Position is a position in a text. Lines and columns count from 1; columns count characters.
type Position struct{ Line, Column int32 }

// Invalid returns a validation error at p. Its message starts with "line 12, column 5: ".
// field is a dotted path, and is shortened if it is very long.
func (p Position) Invalid(field, format string, args ...any) *fault.Error {
	e := fault.Invalid(Short(field), "line %d, column %d: "+format, append([]any{p.Line, p.Column}, args...)...)
	e.Problems = []fault.Problem{{Field: e.Field, Message: e.Message, Line: int(p.Line), Column: int(p.Column)}}
	return e
}

// Node is a value in a document. Aliases share nodes, so a node must not be changed.
type Node struct {
	Kind Kind
	Position
	// Text is the content of a string, or a boolean or number as written.
	Text string
	// Name is the name of the node in its mapping, and NamePosition the position of that name.
	Name         string
	NamePosition Position
	// Nodes are the members of a mapping or the items of a sequence, in the order of the
	// text.
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

// EnvMark starts a reference to an environment variable in a configuration file, which the command line replaces.
const EnvMark = "${env:"

// Parse parses one document in JSON or YAML. A text that starts with a bracket is parsed as
// JSON, and if that fails, as YAML. It does not change content. The error is a validation error
// without a field, whose message has the position. A document whose reading would take more memory
// than Budget allows is such an error too.
func Parse(content []byte) (*Node, error) {
	content = TrimMark(content)
	text := string(content)
	if err := checkEncoding(text); err != nil {
		return nil, err
	}
	begin := strings.TrimLeft(text, " \t\r\n")
	if begin == "" {
		return nil, emptyDocument()
	}
	if begin[0] != '{' && begin[0] != '[' {
		return parseYAML(text)
	}
	n, jsonErr := parseJSON(content, text)
	if jsonErr == nil {
		return n, nil
	}
	n, err := parseYAML(text)
	if err != nil && looksLikeJSON(begin) {
		return nil, jsonErr
	}
	return n, err
}

func emptyDocument() error { return Position{1, 1}.Invalid("", "the document is empty") }

// IsEmpty reports whether err says that Parse got a document of nothing but white space and
// comments.
func IsEmpty(err error) bool {
	return err != nil && err.Error() == emptyDocument().Error()
}

// looksLikeJSON reports whether a text that starts with a bracket is meant as JSON rather than
// as a YAML flow collection.
func looksLikeJSON(s string) bool {
	next := strings.TrimLeft(s[1:], " \t\r\n")
	return next == "" || strings.IndexByte(`"{[]}`, next[0]) >= 0 || strings.HasPrefix(next, "//") || strings.HasPrefix(next, "/*")
}

// checkEncoding rejects text that is not UTF-8.
func checkEncoding(text string) error {
	at, message := encodingProblem(text)
	if message == "" {
		return nil
	}
	return positionOf(text, at).Invalid("", "%s", message)
}

// Short returns s, shortened if it is too long for a message.
func Short(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "…"
}
