package openapi

import (
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/gateway"
)

// operation is what a request is matched by, after the query of a path key is off.
type operation struct{ path, method string }

// origin tells where a route comes from, and what it says itself.
type origin struct {
	itemField string // of the path item
	itemPlace document.Place
	field     string // of the operation
	place     document.Place
	policy    policy
}

// pathItem is a path item with what its references name: the first layer that
// has a member counts.
type pathItem struct {
	key    *document.Node
	field  string
	layers []*document.Node
}

// readPaths makes a route of each operation.
func (r *reader) readPaths() error {
	paths := r.root.Member("paths")
	if paths == nil {
		return r.root.Invalid("paths", "is missing: the document describes nothing that could be routed")
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
		r.warn(paths.Place, "paths", "has no operation: the gateway will have no routes")
	}
	return nil
}

func (r *reader) readPathItem(key *document.Node) error {
	if strings.HasPrefix(key.Name, "x-") {
		return nil
	}
	item := pathItem{key: key, field: "paths." + key.Name}
	if !strings.HasPrefix(key.Name, "/") {
		return key.NamePlace.Invalid(item.field, "a path must begin with a slash")
	}
	if len(key.Name) > gateway.MaxTemplate {
		return key.NamePlace.Invalid(item.field, "a path must have at most %d bytes", gateway.MaxTemplate)
	}
	if err := refuseEnv(key.NamePlace, item.field, key.Name); err != nil {
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
		if err := r.expand(&item, layer); err != nil {
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

// follow fills the layers of item.
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
			return ref.Invalid(item.field+".$ref", "the reference %s leads back to itself", document.Short(ref.Text))
		case len(seen) > maxReferences:
			return ref.Invalid(item.field+".$ref", "more than %d references lead from one to the next: name the path item itself", maxReferences)
		}
		n = next
	}
}

// expand counts the members of a path item before they are read.
func (r *reader) expand(item *pathItem, n *document.Node) error {
	if r.expanded += len(n.Nodes); r.expanded > maxExpanded {
		return item.key.NamePlace.Invalid(item.field, "the document's path items have more than %d members, references followed: split the document over several gateways", maxExpanded)
	}
	return nil
}

func (r *reader) readItemMember(item *pathItem, own policy, m *document.Node) error {
	field := item.field + "." + m.Name
	switch m.Name {
	case "get", "put", "post", "delete", "options", "head", "patch":
		return r.readOperation(item, own, m, strings.ToUpper(m.Name), field)
	case "trace":
		r.warn(m.NamePlace, field, "is left out: TRACE is always refused")
	case "query":
		if r.minor >= '2' {
			return r.readOperation(item, own, m, "QUERY", field)
		}
		r.warn(m.NamePlace, field, "is left out: the operation query came with OpenAPI 3.2")
	case "additionalOperations":
		if r.minor >= '2' {
			return r.readAdditional(item, own, m, field)
		}
		r.warn(m.NamePlace, field, "are left out: they came with OpenAPI 3.2")
	case "servers":
		r.warn(m.NamePlace, field, "are not used: every path is put behind that of the document's first server")
	case "$ref", "summary", "description", "parameters":
	default:
		if !strings.HasPrefix(m.Name, "x-") {
			r.warn(m.NamePlace, field, "is left out: it is no operation of OpenAPI 3.%c", r.minor)
		}
	}
	return nil
}

// readAdditional reads the operations whose methods OpenAPI 3.2 has no name for.
func (r *reader) readAdditional(item *pathItem, own policy, m *document.Node, field string) error {
	if m.Kind != document.Mapping {
		return m.Invalid(field, "must be a mapping, not %s", m.Kind)
	}
	if err := r.expand(item, m); err != nil {
		return err
	}
	for i := range m.Nodes {
		op := &m.Nodes[i]
		at := field + "." + op.Name
		switch strings.ToUpper(op.Name) {
		case "GET", "PUT", "POST", "DELETE", "OPTIONS", "HEAD", "PATCH", "QUERY":
			return op.NamePlace.Invalid(at, "must stand on the path item itself, as %s", strings.ToLower(op.Name))
		case "TRACE", "CONNECT":
			r.warn(op.NamePlace, at, "is left out: %s is always refused", strings.ToUpper(op.Name))
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
		r.warn(servers.NamePlace, field+".servers", "are not used: every path is put behind that of the document's first server")
	}
	path, _, hasQuery := strings.Cut(item.key.Name, "?")
	r.operations++
	r.text += len(r.doc.BasePath) + len(path) + len(field)
	if r.operations > maxOperations || r.text > maxText {
		return op.NamePlace.Invalid(field, "the document has more than %d operations, or more than %d MiB of paths: split it over several gateways", maxOperations, maxText>>20)
	}
	from := origin{
		itemField: item.field, itemPlace: item.key.NamePlace,
		field: field, place: op.NamePlace, policy: p.or(own),
	}
	if i, taken := r.taken[operation{path, method}]; taken {
		return r.join(i, from)
	}
	if hasQuery {
		r.warn(item.key.NamePlace, field, "counts by its path alone: the query takes no part in finding a route")
	}
	r.taken[operation{path, method}] = len(r.origins)
	r.origins = append(r.origins, from)
	r.doc.Routes = append(r.doc.Routes, gateway.RouteSpec{Path: r.doc.BasePath + strings.Clone(path), Methods: []string{method}})
	return nil
}

// join makes one route of two operations whose paths differ in the query
// alone. A limit that one of them carries is the route's; where they contradict each
// other the author has to decide, for one of the two would not get what it says.
func (r *reader) join(i int, from origin) error {
	first := &r.origins[i]
	if extension := first.policy.contradicts(from.policy); extension != "" {
		return from.place.Invalid(from.field, "is one route with %s, since a path counts without its query, and the two differ in %s", document.Short(first.field), extension)
	}
	first.policy = first.policy.or(from.policy)
	r.warn(from.itemPlace, from.field, "is one route with %s: a path counts without its query", document.Short(first.field))
	return nil
}

// checkTable gives the routes their policies and checks them together.
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
		return from.itemPlace.Invalid(from.itemField, "%s", bad.Message)
	}
	return from.place.Invalid(from.field, "%s", bad.Message)
}
