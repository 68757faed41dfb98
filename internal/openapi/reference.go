package openapi

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/document"
)

// checkReferences rejects every reference that leaves the document. A $ref inside an example,
// default, enumeration or extension is data and ignored. A member whose name the author chose,
// such as a property called "default", is not one of these.
func (r *reader) checkReferences() error {
	return new(references).value(r.root)
}

// references walks through a document; path is the current position.
type references struct{ path []string }

func (w *references) value(n *document.Node) error {
	switch n.Kind {
	case document.Mapping:
		for i := range n.Nodes {
			w.path = append(w.path, n.Nodes[i].Name)
			if err := w.keyword(&n.Nodes[i]); err != nil {
				return err
			}
			w.path = w.path[:len(w.path)-1]
		}
	case document.Sequence:
		for i := range n.Nodes {
			w.path = append(w.path, "["+strconv.Itoa(i)+"]")
			if err := w.value(&n.Nodes[i]); err != nil {
				return err
			}
			w.path = w.path[:len(w.path)-1]
		}
	}
	return nil
}

// keyword checks a member whose name OpenAPI or JSON Schema defines.
func (w *references) keyword(m *document.Node) error {
	switch m.Name {
	case "$ref", "$dynamicRef":
		if m.Kind == document.String {
			return w.check(m)
		}
	case "example", "default", "enum", "const":
		return nil
	case "examples":
		return w.examples(m)
	case "properties", "patternProperties", "dependentSchemas", "$defs", "definitions",
		"schemas", "parameters", "requestBodies", "headers", "securitySchemes", "links",
		"pathItems", "mediaTypes", "webhooks", "content", "encoding", "variables", "mapping", "scopes", "additionalOperations":
		return w.names(m, false)
	case "paths", "responses", "callbacks":
		return w.names(m, true)
	}
	if strings.HasPrefix(m.Name, "x-") {
		return nil
	}
	return w.value(m)
}

// names checks a mapping whose names the author chose. If it is extensible, members whose names
// start with x- are extensions.
func (w *references) names(m *document.Node, extensible bool) error {
	if m.Kind != document.Mapping {
		return w.value(m)
	}
	for i := range m.Nodes {
		child := &m.Nodes[i]
		if extensible && strings.HasPrefix(child.Name, "x-") {
			continue
		}
		w.path = append(w.path, child.Name)
		if err := w.value(child); err != nil {
			return err
		}
		w.path = w.path[:len(w.path)-1]
	}
	return nil
}

// examples checks the examples of a schema, which are a list of data, or named examples, each of
// which is data or a reference.
func (w *references) examples(m *document.Node) error {
	if m.Kind != document.Mapping {
		return nil
	}
	for i := range m.Nodes {
		ref := m.Nodes[i].Member("$ref")
		if ref == nil || ref.Kind != document.String {
			continue
		}
		w.path = append(w.path, m.Nodes[i].Name, "$ref")
		if err := w.check(ref); err != nil {
			return err
		}
		w.path = w.path[:len(w.path)-2]
	}
	return nil
}

func (w *references) check(ref *document.Node) error {
	if ref.Text == "" || ref.Text[0] == '#' {
		return nil
	}
	field := strings.ReplaceAll(strings.Join(w.path, "."), ".[", "[")
	return ref.Invalid(field, "the reference %q leaves the document: only references that start with # are followed, so bundle the files into one document", document.Short(ref.Text))
}

// resolve returns the path item that a reference refers to.
func (r *reader) resolve(ref *document.Node, field string) (*document.Node, error) {
	target, err := readString(ref, field)
	if err != nil {
		return nil, err
	}
	n := r.root
	pointer, err := url.PathUnescape(strings.TrimPrefix(target, "#"))
	if err != nil || pointer != "" && pointer[0] != '/' {
		return nil, ref.Invalid(field, "%q is not a valid reference: write it like #/components/pathItems/name", document.Short(target))
	}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if n = r.member(n, unescape.Replace(token)); n == nil {
			return nil, ref.Invalid(field, "the document has no %s", document.Short(target))
		}
	}
	if n.Kind != document.Mapping {
		return nil, ref.Invalid(field, "%s must be a path item, not %s", document.Short(target), n.Kind)
	}
	return n, nil
}

// fewMembers is the number of members up to which a linear search is as good as an index.
const fewMembers = 16

// member is n.Member in constant time, because many references may lead through one large
// mapping.
func (r *reader) member(n *document.Node, name string) *document.Node {
	if n.Kind != document.Mapping || len(n.Nodes) <= fewMembers {
		return n.Member(name)
	}
	index := r.members[n]
	if index == nil {
		index = make(map[string]*document.Node, len(n.Nodes))
		for i := range n.Nodes {
			index[n.Nodes[i].Name] = &n.Nodes[i]
		}
		r.members[n] = index
	}
	return index[name]
}
