package openapi

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/document"
)

// checkReferences refuses every reference that leaves the document. What looks
// like one in examples, defaults, enumerations and extensions is data; what
// stands under a name that the author chose, as the property "default" of a
// schema, is none.
func (r *reader) checkReferences() error {
	return new(references).value(r.root)
}

// references walks through a document; path is where it is.
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

// keyword looks at a member whose name OpenAPI or JSON Schema defines.
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

// names looks at a member whose members have names of the author's choice,
// beside extensions where the mapping may have them.
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

// examples looks at a schema's list of values, which is data, or at named
// examples, each data or itself a reference.
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
	return ref.Invalid(field, "the reference %q leaves the document: only references that begin with # are followed, so bundle the files into one document", document.Short(ref.Text))
}

// resolve returns what a path item's reference into the document names.
func (r *reader) resolve(ref *document.Node, field string) (*document.Node, error) {
	target, err := readString(ref, field)
	if err != nil {
		return nil, err
	}
	n := r.root
	pointer, err := url.PathUnescape(strings.TrimPrefix(target, "#"))
	if err != nil || pointer != "" && pointer[0] != '/' {
		return nil, ref.Invalid(field, "%q is no reference as in #/components/pathItems/name", document.Short(target))
	}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if n = r.member(n, unescape.Replace(token)); n == nil {
			return nil, ref.Invalid(field, "the document has no %s", document.Short(target))
		}
	}
	if n.Kind != document.Mapping {
		return nil, ref.Invalid(field, "%s is no path item but %s", document.Short(target), n.Kind)
	}
	return n, nil
}

// fewMembers is up to how many members a look at each is as good as an index.
const fewMembers = 16

// member is n.Member, at the same cost however many members n has: as many
// references may lead through one mapping.
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
