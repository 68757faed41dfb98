package openapi

import (
	"net/url"
	"strings"

	"github.com/keygate/keygate/internal/document"
)

// resolve returns the path item that a reference refers to, with its JSON pointer.
func (r *reader) resolve(ref *document.Node, field string) (n *document.Node, pointer string, err error) {
	target, err := readString(ref, field)
	if err != nil {
		return nil, "", err
	}
	switch path, _, _ := strings.Cut(target, "#"); {
	case path == "":
	case strings.Contains(path, ":") || strings.HasPrefix(path, "//"):
		return nil, "", ref.Invalid(field, "%q is on another server, from which nothing is fetched: bundle the documents into one first, for example with \"npx @redocly/cli bundle\"", document.Short(target))
	default:
		return nil, "", ref.Invalid(field, "%q is in another file, which the server does not have: push with \"keygate spec push FILE\", which includes local files, or bundle them into one document first, for example with \"npx @redocly/cli bundle\"", document.Short(target))
	}
	n = r.root
	pointer, err = url.PathUnescape(strings.TrimPrefix(target, "#"))
	if err != nil || pointer != "" && pointer[0] != '/' {
		return nil, "", ref.Invalid(field, "%q is not a valid reference: write it like #/components/pathItems/name", document.Short(target))
	}
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if n = r.member(n, document.UnescapeToken(token)); n == nil {
			return nil, "", ref.Invalid(field, "the document has no %s", document.Short(target))
		}
	}
	if n.Kind != document.Mapping {
		return nil, "", ref.Invalid(field, "%s must be a path item, not %s", document.Short(target), n.Kind)
	}
	return n, pointer, nil
}

// fewMembers is the number of members up to which a linear search is as good as an index.
const fewMembers = 16

// member returns n.Member in constant time, because many references may lead through one large
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
