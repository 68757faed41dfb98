package openapi

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/validate"
)

// operation identifies a route. pattern is the pattern of its path (gateway.Template), without the
// base path.
type operation struct{ pattern, method string }

// origin is where a route comes from in the document, and its policy.
type origin struct {
	itemField    string // of the path item
	itemPosition document.Position
	field        string // of the operation
	position     document.Position
	policy       policy
	bad          bool // the policy is invalid, and was reported
}

// pathItem is a path item, followed by the path items that it refers to. The first layer that
// has a member wins.
type pathItem struct {
	key    *document.Node
	field  string
	layers []*document.Node
	// located are the layers with their JSON pointers.
	located []validate.Located
	policy  policy
	bad     bool // the policy is invalid, and was reported

	// path is the path of the routes, without the base path. cut is true if the key goes on with a
	// query or a fragment, and the author was not warned of it yet.
	path    string
	broken  bool // the key or a reference is invalid, and was reported: the operations are checked, but give no routes
	cut     bool
	advised bool // the author was warned of what the path does not mean
	// pattern is the pattern of path, and full is the base path with path. Both are set with the
	// first operation.
	pattern, full string
}

// readPaths creates a route for each operation.
func (r *reader) readPaths() {
	paths := r.root.Member("paths")
	switch {
	case paths == nil:
		r.stop(r.root.Invalid("paths", "is missing: there is nothing to route"))
		return
	case paths.Kind != document.Mapping:
		r.stop(paths.Mismatch("paths", document.Mapping, ""))
		return
	}
	for i := 0; i < len(paths.Nodes) && !r.done(); i++ {
		if key := &paths.Nodes[i]; !strings.HasPrefix(key.Name, "x-") && !isKeygate(key.Name) {
			r.readPathItem(key)
		}
	}
	if len(r.doc.Routes) == 0 {
		r.warn(paths.Position, "paths", "has no operation: the gateway will have no routes")
	}
}

func (r *reader) readPathItem(key *document.Node) {
	item := &pathItem{key: key, field: "paths." + key.Name, path: key.Name}
	for _, err := range []error{checkKey(item), r.follow(item)} {
		r.problems.Add(err)
		item.broken = item.broken || err != nil
	}
	own, ok := r.readPolicy(item.field, item.layers...)
	item.policy, item.bad = own, !ok // the operations are read nevertheless, so that all mistakes are reported
	seen := map[string]bool{}
	for _, layer := range item.layers {
		r.countMembers(item, layer)
		for i := 0; i < len(layer.Nodes) && !r.done(); i++ {
			if m := &layer.Nodes[i]; !seen[m.Name] {
				seen[m.Name] = true
				r.readItemMember(item, m)
			}
		}
	}
}

// checkKey checks the key of an entry of paths, and removes its query or fragment from the path.
func checkKey(item *pathItem) error {
	key := item.key
	switch {
	case key.Name == "$ref":
		return key.NamePosition.Invalid(item.field, "OpenAPI allows no $ref for all paths, only for each of them: bundle the files into one document first, for example with \"npx @redocly/cli bundle\"")
	case !strings.HasPrefix(key.Name, "/"):
		return badStart(key, item.field)
	case len(key.Name) > gateway.MaxTemplate:
		return key.NamePosition.Invalid(item.field, "a path must have at most %d bytes", gateway.MaxTemplate)
	}
	if i := strings.IndexAny(key.Name, "?#"); i >= 0 {
		item.path, item.cut = key.Name[:i], true
	}
	return refuseEnv(key.NamePosition, item.field, key.Name)
}

// badStart returns the error for a path without a slash at its start.
func badStart(key *document.Node, field string) error {
	hint := ""
	if u, err := url.Parse(key.Name); err == nil && u.Host != "" {
		hint = ": write the path alone, and the rest of the URL in servers"
	} else if odd := document.Lookalike(key.Name); odd != "" {
		hint = ": " + odd
	}
	return key.NamePosition.Invalid(field, "a path must start with a slash%s", hint)
}

// follow sets the layers of item, up to a reference that cannot be followed.
func (r *reader) follow(item *pathItem) error {
	if item.key.Name == "$ref" {
		return nil
	}
	if item.key.Kind != document.Mapping {
		return item.key.Mismatch(item.field, document.Mapping, "")
	}
	seen := map[*document.Node]bool{}
	pointer := "/paths/" + document.EscapeToken(item.key.Name)
	for n := item.key; ; {
		seen[n] = true
		item.layers = append(item.layers, n)
		item.located = append(item.located, validate.Located{Pointer: pointer, Node: n})
		ref := n.Member("$ref")
		if ref == nil {
			return nil
		}
		next, to, err := r.resolve(ref, item.field+".$ref")
		if err != nil {
			return err
		}
		switch {
		case seen[next]:
			return ref.Invalid(item.field+".$ref", "the reference %s is circular", document.Short(ref.Text))
		case len(seen) > maxReferences:
			return ref.Invalid(item.field+".$ref", "more than %d references form a chain: refer to the path item directly", maxReferences)
		}
		n, pointer = next, to
	}
}

// operation returns an operation of the path item with its JSON pointer.
func (item *pathItem) operation(op *document.Node, field string) validate.Located {
	name := document.EscapeToken(op.Name)
	if strings.HasSuffix(field, ".additionalOperations."+op.Name) {
		name = "additionalOperations/" + name
	}
	for _, layer := range item.located {
		within := layer.Node
		if strings.HasPrefix(name, "additionalOperations/") {
			within = within.Member("additionalOperations")
		}
		if within != nil && within.Member(op.Name) == op {
			return validate.Located{Pointer: layer.Pointer + "/" + name, Node: op}
		}
	}
	return validate.Located{Pointer: "/paths/" + document.EscapeToken(item.key.Name) + "/" + name, Node: op}
}

// countMembers counts the members of a path item before they are read.
func (r *reader) countMembers(item *pathItem, n *document.Node) {
	if r.expanded += len(n.Nodes); r.expanded > maxExpanded {
		r.stop(item.key.NamePosition.Invalid(item.field, "the path items have more than %d members, with references followed: split the document between several gateways", maxExpanded))
	}
}

func (r *reader) readItemMember(item *pathItem, m *document.Node) {
	field := item.field + "." + m.Name
	switch m.Name {
	case "get", "put", "post", "delete", "options", "head", "patch":
		r.readOperation(item, m, strings.ToUpper(m.Name), field)
	case "trace":
		r.warn(m.NamePosition, field, "is ignored: Keygate always rejects TRACE")
	case "query":
		if r.minor >= '2' {
			r.readOperation(item, m, "QUERY", field)
			return
		}
		r.warn(m.NamePosition, field, "is ignored: the operation query requires OpenAPI 3.2")
	case "additionalOperations":
		if r.minor >= '2' {
			r.readAdditional(item, m, field)
			return
		}
		r.warn(m.NamePosition, field, "is ignored: it requires OpenAPI 3.2")
	case "servers":
		r.warn(m.NamePosition, field, "is ignored: only the path of the document's first server is used")
	case "$ref", "summary", "description", "parameters":
	case "x-amazon-apigateway-any-method":
		r.warn(m.NamePosition, field, "is ignored, so no method is routed by it: write an operation for each method, such as get, post, put, patch and delete")
	default:
		if !strings.HasPrefix(m.Name, "x-") {
			r.warn(m.NamePosition, field, "is ignored: %s is not an operation of OpenAPI 3.%c%s", document.Short(m.Name), r.minor, likelyOperation(m.Name))
		}
	}
}

// likelyOperation says which operation a name is meant for.
func likelyOperation(name string) string {
	switch plain := strings.ToLower(strings.TrimSpace(name)); plain {
	case "get", "put", "post", "delete", "options", "head", "patch":
		return ": write " + plain
	case "any", "all", "*":
		return ": write an operation for each method"
	}
	return ""
}

// readAdditional reads additionalOperations: operations with methods for which OpenAPI 3.2
// has no field.
func (r *reader) readAdditional(item *pathItem, m *document.Node, field string) {
	if m.Kind != document.Mapping {
		r.problems.Add(m.Mismatch(field, document.Mapping, ""))
		return
	}
	r.countMembers(item, m)
	for i := 0; i < len(m.Nodes) && !r.done(); i++ {
		op := &m.Nodes[i]
		at := field + "." + op.Name
		switch strings.ToUpper(op.Name) {
		case "GET", "PUT", "POST", "DELETE", "OPTIONS", "HEAD", "PATCH", "QUERY":
			r.problems.Add(op.NamePosition.Invalid(at, "must be on the path item itself, as %s", strings.ToLower(op.Name)))
		case "TRACE", "CONNECT":
			r.warn(op.NamePosition, at, "is ignored: Keygate always rejects %s", strings.ToUpper(op.Name))
		default:
			r.readOperation(item, op, strings.Clone(op.Name), at)
		}
	}
}

func (r *reader) readOperation(item *pathItem, op *document.Node, method, field string) {
	if op.Kind != document.Mapping {
		r.problems.Add(op.Mismatch(field, document.Mapping, ""))
		return
	}
	p, ok := r.readPolicy(field, op)
	if servers := op.Member("servers"); servers != nil {
		r.warn(servers.NamePosition, field+".servers", "is ignored: only the path of the document's first server is used")
	}
	if ref := op.Member("$ref"); ref != nil {
		r.warn(ref.NamePosition, field+".$ref", "is ignored: OpenAPI allows no $ref in an operation, so extensions of Keygate behind it have no effect")
	}
	r.operations++
	r.text += len(r.doc.BasePath) + len(item.path) + len(field)
	if r.operations > maxOperations || r.text > maxText {
		r.stop(op.NamePosition.Invalid(field, "the document has more than %d operations, or more than %d MiB of paths: split it between several gateways", maxOperations, maxText>>20))
		return
	}
	from := origin{
		itemField: item.field, itemPosition: item.key.NamePosition,
		field: field, position: op.NamePosition, policy: p.or(item.policy), bad: !ok || item.bad,
	}
	if !r.parseTemplate(item) {
		return
	}
	id := operation{item.pattern, method}
	if i, taken := r.taken[id]; taken {
		r.merge(i, item, from)
		r.doc.operations[i].Several = true
		return
	}
	if item.cut {
		item.cut = false
		r.warn(item.key.NamePosition, item.field, "is matched without its query or fragment, which plays no part in routing")
	}
	if advice := gateway.PathAdvice(item.path); advice != "" && !item.advised {
		item.advised = true
		r.warn(item.key.NamePosition, item.field, "%s", advice)
	}
	if advice := cmp.Or(gateway.MethodAdvice(method), gateway.MethodWarning(method)); advice != "" {
		r.warn(op.NamePosition, field, "%s", advice)
	}
	if advice := gateway.LimitAdvice(from.policy.limit, from.policy.auth); advice != "" {
		r.warn(op.NamePosition, field, "%s", advice)
	}
	r.taken[id] = len(r.origins)
	r.origins = append(r.origins, from)
	r.doc.Routes = append(r.doc.Routes, gateway.RouteSpec{Path: item.full, Methods: []string{method}})
	r.doc.operations = append(r.doc.operations, validate.Source{Path: item.full, Operation: item.operation(op, field), Items: item.located})
}

// parseTemplate sets item.pattern and item.full. It reports whether the path is valid.
func (r *reader) parseTemplate(item *pathItem) bool {
	if item.full != "" || item.broken {
		return !item.broken
	}
	t, err := gateway.ParseTemplate(item.path)
	for _, bad := range fault.ProblemsOf(err) {
		r.problems.Add(item.key.NamePosition.Invalid(item.field, "%s", bad.Message))
	}
	if err != nil {
		item.broken = true
		return false
	}
	item.pattern, item.full = t.Pattern(), r.doc.BasePath+strings.Clone(item.path)
	return true
}

// merge merges an operation into route i, whose path differs only in a query, a fragment or the names
// of parameters. Different policies are an error, also if only one operation has a limit: whichever
// policy the route had, the callers of one operation would meet a limit that its author did not write,
// or none.
func (r *reader) merge(i int, item *pathItem, from origin) {
	reason := "paths that differ only in parameter names are the same path"
	if item.full == r.doc.Routes[i].Path {
		reason = "paths are matched without their query or fragment"
	}
	first := &r.origins[i]
	if extension := first.policy.differs(from.policy); extension != "" && !first.bad && !from.bad {
		r.problems.Add(from.position.Invalid(from.field, "is the same route as %s, because %s, but the two differ in %s: make them equal", document.Short(first.field), reason, extension))
		return
	}
	both := document.Short(from.field) + " and " + document.Short(first.field)
	r.warnAt(position{from.itemPosition.Line, both}, "are one route: "+reason)
}

// checkTable sets the policies of the routes and checks the routes together.
func (r *reader) checkTable() {
	if r.done() {
		return
	}
	for i := range r.doc.Routes {
		p := r.origins[i].policy
		route := &r.doc.Routes[i]
		route.RateLimit, route.Concurrency, route.Cost, route.Auth, route.Handling = p.limit, p.concurrency, p.cost, p.auth, p.handling
		if route.Upstream = gateway.StoredUpstreamName(p.upstream); route.Upstream != "" {
			if r.doc.Upstreams == nil {
				r.doc.Upstreams = map[int]Reference{}
			}
			r.doc.Upstreams[i] = p.upstreamAt
		}
		if route.Split = p.split; p.splitAt != nil {
			if r.doc.Splits == nil {
				r.doc.Splits = map[int]*SplitReference{}
			}
			r.doc.Splits[i] = p.splitAt
		}
	}
	for _, bad := range gateway.CheckTable(r.doc.Routes) {
		from := r.origins[bad.Row]
		switch bad.Field {
		case "path":
			r.problems.Add(from.itemPosition.Invalid(from.itemField, "%s", bad.Message))
		case "cost":
			r.problems.Add(from.position.Invalid(from.field, "its %s %s", costExtension, bad.Message))
		case "split":
			r.problems.Add(from.position.Invalid(from.field, "its %s %s", splitExtension, bad.Message))
		default:
			field, within, _ := strings.Cut(bad.Field, ".")
			if !slices.Contains(gateway.HandlingFields(), field) {
				r.problems.Add(from.position.Invalid(from.field, "%s", bad.Message))
				break
			}
			of := handlingExtension(field)
			if within != "" {
				of += ": " + within
			}
			r.problems.Add(from.position.Invalid(from.field, "its %s %s", of, bad.Message))
		}
	}
}
