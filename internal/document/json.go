package document

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// parseJSON parses strict JSON (RFC 8259, with the unique names of RFC 7493). It creates nodes
// directly from tokens: strings without escapes are slices of the text.
func parseJSON(text string) (*Node, error) {
	r := &jsonReader{text: text, dec: jsontext.NewDecoder(bytes.NewBufferString(text)), at: Position{1, 1}}
	var root Node
	if err := r.read(&root, 0); err != nil {
		return nil, err
	}
	if _, err := r.dec.ReadToken(); !errors.Is(err, io.EOF) {
		if err == nil {
			return nil, positionOf(text, int(r.dec.InputOffset())-1).Invalid("", "there is text after the end of the JSON value")
		}
		return nil, r.failed(err)
	}
	return &root, nil
}

type jsonReader struct {
	text   string
	dec    *jsontext.Decoder
	values int

	// at is the position of the byte offset seen. It moves forward only, so that a text of
	// one long line is counted once.
	at   Position
	seen int

	// open has the children of the collections that are not closed yet.
	open []Node
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
	first := len(r.open)
	for kind := r.dec.PeekKind(); kind != '}' && kind != ']'; kind = r.dec.PeekKind() {
		var child Node
		if mapping {
			name, at, err := r.readScalar()
			if err != nil {
				return err
			}
			child.Name, child.NamePosition = name, at
		}
		if err := r.read(&child, depth+1); err != nil {
			return err
		}
		if r.values++; r.values > maxValues {
			return child.Invalid("", "the document has more than %d values", maxValues)
		}
		r.open = append(r.open, child)
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return r.failed(err)
	}
	n.Nodes = append([]Node(nil), r.open[first:]...)
	clear(r.open[first:])
	r.open = r.open[:first]
	return nil
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

// position returns the position of a byte offset, which must not be less than that of an
// earlier call.
func (r *jsonReader) position(offset int) Position {
	passed := r.text[r.seen:offset]
	if last := strings.LastIndexByte(passed, '\n'); last >= 0 {
		r.at.Line += int32(strings.Count(passed, "\n"))
		r.at.Column = 1
		passed = passed[last+1:]
	}
	r.at.Column += int32(utf8.RuneCountInString(passed))
	r.seen = offset
	return r.at
}

// failed returns an error of the decoder as a validation error with its position.
func (r *jsonReader) failed(err error) error {
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		// The text ends where a value is expected.
		return positionOf(r.text, len(r.text)).Invalid("", "the JSON text ends too early")
	}
	message := syntax.Err.Error()
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		message = "the JSON text ends too early"
	case errors.Is(err, jsontext.ErrDuplicateName):
		message = "the name " + quote(syntax.JSONPointer.LastToken()) + " is a duplicate in this object"
	}
	return positionOf(r.text, int(syntax.ByteOffset)).Invalid("", "%s", message)
}
