package openapi

import (
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/gateway"
)

// operation identifies a route; path has no query.
type operation struct{ path, method string }

// origin is where a route comes from in the document, and its policy.
type origin struct {
	itemField    string // of the path item
	itemPosition document.Position
	field        string // of the operation
	position     document.Position
	policy       policy
}

// pathItem is a path item, followed by the path items that it refers to. The first layer that
// has a member wins.
type pathItem struct {
	key    *document.Node
	field  string
	layers []*document.Node
}

// readPaths creates a route for each operation.
func (r *reader) readPaths() error {
	paths := r.root.Member("paths")
	if paths == nil {
		return r.root.Invalid("paths", "is missing: there is nothing to route")
	}
	if paths.Kind != document.Mapping {
		return paths.Invalid("paths", "must be a mapping, not %s", paths.Kind)
	}
	for i := range paths.Nodes {
		if err := r.readPathItem(&paths.Nodes[i]); err != nil {
			return err
		}
	}
	if len(r.doc.Routes) == 0 {
		r.warn(paths.Position, "paths", "has no operation: the gateway will have no routes")
	}
	return nil
}

func (r *reader) readPathItem(key *document.Node) error {
	if strings.HasPrefix(key.Name, "x-") {
		return nil
	}
	item := pathItem{key: key, field: "paths." + key.Name}
	if !strings.HasPrefix(key.Name, "/") {
		return key.NamePosition.Invalid(item.field, "a path must start with a slash")
	}
	if len(key.Name) > gateway.MaxTemplate {
		return key.NamePosition.Invalid(item.field, "a path must have at most %d bytes", gateway.MaxTemplate)
	}
	if err := refuseEnv(key.NamePosition, item.field, key.Name); err != nil {
		return err
	}
	if err := r.follow(&item); err != nil {
		return err
	}
	own, err := readPolicy(item.field, item.layers...)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, layer := range item.layers {
		if err := r.countMembers(&item, layer); err != nil {
			return err
		}
		for i := range layer.Nodes {
			if m := &layer.Nodes[i]; !seen[m.Name] {
				seen[m.Name] = true
				if err := r.readItemMember(&item, own, m); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// follow sets the layers of item.
func (r *reader) follow(item *pathItem) error {
	if item.key.Kind != document.Mapping {
		return item.key.Invalid(item.field, "must be a mapping, not %s", item.key.Kind)
	}
	seen := map[*document.Node]bool{}
	for n := item.key; ; {
		seen[n] = true
		item.layers = append(item.layers, n)
		ref := n.Member("$ref")
		if ref == nil {
			return nil
		}
		next, err := r.resolve(ref, item.field+".$ref")
		if err != nil {
			return err
		}
		switch {
		case seen[next]:
			return ref.Invalid(item.field+".$ref", "the reference %s is circular", document.Short(ref.Text))
		case len(seen) > maxReferences:
			return ref.Invalid(item.field+".$ref", "more than %d references form a chain: refer to the path item directly", maxReferences)
		}
		n = next
	}
}

// countMembers counts the members of a path item before they are read.
func (r *reader) countMembers(item *pathItem, n *document.Node) error {
	if r.expanded += len(n.Nodes); r.expanded > maxExpanded {
		return item.key.NamePosition.Invalid(item.field, "the path items have more than %d members, with references followed: split the document between several gateways", maxExpanded)
	}
	return nil
}

func (r *reader) readItemMember(item *pathItem, own policy, m *document.Node) error {
	field := item.field + "." + m.Name
	switch m.Name {
	case "get", "put", "post", "delete", "options", "head", "patch":
		return r.readOperation(item, own, m, strings.ToUpper(m.Name), field)
	case "trace":
		r.warn(m.NamePosition, field, "is ignored: Keygate always rejects TRACE")
	case "query":
		if r.minor >= '2' {
			return r.readOperation(item, own, m, "QUERY", field)
		}
		r.warn(m.NamePosition, field, "is ignored: the operation query requires OpenAPI 3.2")
	case "additionalOperations":
		if r.minor >= '2' {
			return r.readAdditional(item, own, m, field)
		}
		r.warn(m.NamePosition, field, "is ignored: it requires OpenAPI 3.2")
	case "servers":
		r.warn(m.NamePosition, field, "is ignored: only the path of the document's first server is used")
	case "$ref", "summary", "description", "parameters":
	default:
		if !strings.HasPrefix(m.Name, "x-") {
			r.warn(m.NamePosition, field, "is ignored: it is not an operation of OpenAPI 3.%c", r.minor)
		}
	}
	return nil
}

// readAdditional reads additionalOperations: operations with methods for which OpenAPI 3.2
// has no field.
func (r *reader) readAdditional(item *pathItem, own policy, m *document.Node, field string) error {
	if m.Kind != document.Mapping {
		return m.Invalid(field, "must be a mapping, not %s", m.Kind)
	}
	if err := r.countMembers(item, m); err != nil {
		return err
	}
	for i := range m.Nodes {
		op := &m.Nodes[i]
		at := field + "." + op.Name
		switch strings.ToUpper(op.Name) {
		case "GET", "PUT", "POST", "DELETE", "OPTIONS", "HEAD", "PATCH", "QUERY":
			return op.NamePosition.Invalid(at, "must be on the path item itself, as %s", strings.ToLower(op.Name))
		case "TRACE", "CONNECT":
			r.warn(op.NamePosition, at, "is ignored: Keygate always rejects %s", strings.ToUpper(op.Name))
			continue
		}
		if err := r.readOperation(item, own, op, strings.Clone(op.Name), at); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) readOperation(item *pathItem, own policy, op *document.Node, method, field string) error {
	if op.Kind != document.Mapping {
		return op.Invalid(field, "must be a mapping, not %s", op.Kind)
	}
	p, err := readPolicy(field, op)
	if err != nil {
		return err
	}
	if servers := op.Member("servers"); servers != nil {
		r.warn(servers.NamePosition, field+".servers", "is ignored: only the path of the document's first server is used")
	}
	path, _, hasQuery := strings.Cut(item.key.Name, "?")
	r.operations++
	r.text += len(r.doc.BasePath) + len(path) + len(field)
	if r.operations > maxOperations || r.text > maxText {
		return op.NamePosition.Invalid(field, "the document has more than %d operations, or more than %d MiB of paths: split it between several gateways", maxOperations, maxText>>20)
	}
	from := origin{
		itemField: item.field, itemPosition: item.key.NamePosition,
		field: field, position: op.NamePosition, policy: p.or(own),
	}
	if i, taken := r.taken[operation{path, method}]; taken {
		return r.merge(i, from)
	}
	if hasQuery {
		r.warn(item.key.NamePosition, field, "is matched without its query, which plays no part in routing")
	}
	r.taken[operation{path, method}] = len(r.origins)
	r.origins = append(r.origins, from)
	r.doc.Routes = append(r.doc.Routes, gateway.RouteSpec{Path: r.doc.BasePath + strings.Clone(path), Methods: []string{method}})
	return nil
}

// merge merges an operation into route i, whose path differs only in the query. A policy that
// one of the two has is the route's; contradicting policies are an error, because one would
// have no effect.
func (r *reader) merge(i int, from origin) error {
	first := &r.origins[i]
	if extension := first.policy.contradicts(from.policy); extension != "" {
		return from.position.Invalid(from.field, "is the same route as %s, because paths are matched without their query, but the two differ in %s: make them equal", document.Short(first.field), extension)
	}
	first.policy = first.policy.or(from.policy)
	r.warn(from.itemPosition, from.field, "is the same route as %s: paths are matched without their query", document.Short(first.field))
	return nil
}

// checkTable sets the policies of the routes and checks the routes together.
func (r *reader) checkTable() error {
	for i := range r.doc.Routes {
		p := r.origins[i].policy
		r.doc.Routes[i].RateLimit, r.doc.Routes[i].Auth = p.limit, p.authOrKey()
	}
	err := gateway.CheckTable(r.doc.Routes)
	row, bad, ok := gateway.TableRow(err)
	if !ok {
		return err
	}
	from := r.origins[row]
	if bad.Field == "path" {
		return from.itemPosition.Invalid(from.itemField, "%s", bad.Message)
	}
	return from.position.Invalid(from.field, "%s", bad.Message)
}
