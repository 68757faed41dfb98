// Package validate holds requests against the OpenAPI document of their gateway (edge.md, section 6): parameters, the
// content type, and bodies in JSON and of forms.
//
// Both sides are hostile: documents come from tenants, and requests from anywhere. Compiling is bounded by the number
// and depth of schemas and by a budget of the caller, a check by a number of steps. Nothing is fetched. What is not
// supported, or goes beyond a bound, leaves an operation unchecked; no problem has a value of a request.
package validate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/document"
)

// Located is a node with its JSON pointer in the document, such as /paths/~1orders/post.
type Located struct {
	Pointer string
	Node    *document.Node
}

// Source is where a document describes an operation.
type Source struct {
	// Path is the path of the route, with the base path of the document.
	Path      string
	Operation Located
	// Items are the path items that apply, the one that takes precedence first.
	Items []Located
	// Several is set if the document has other operations for the requests of the route.
	Several bool
}

// Result is what has become of a Source.
type Result struct {
	// Operation checks requests; nil if the operation is unchecked.
	Operation *Operation
	// Reason says why the operation is unchecked, with the line and column where that is.
	Reason string
	// Bytes is about how much memory the checks of this source and of those before it take. Compiling these sources alone has
	// the same results.
	Bytes int64
}

// Compile compiles operations of an OpenAPI document of version 3.minor. The results are in the order of the sources.
// expired, if it is not nil, is asked again and again whether to stop: the operations that are left are unchecked.
func Compile(root *document.Node, minor byte, sources []Source, expired func() bool) []Result {
	if expired == nil {
		expired = func() bool { return false }
	}
	c := &compiler{
		root: root, old: minor == '0', expired: expired, patterns: patterns{}, parts: map[*document.Node]*part{},
		members: map[*document.Node]map[string]*document.Node{}, owners: map[*schema]*part{},
	}
	results := make([]Result, len(sources))
	operations := make([]*operationReader, len(sources))
	for i := range sources {
		operations[i] = c.readOperation(&sources[i])
		c.compileParts()
		results[i].Bytes = c.bytes
	}
	c.settle()
	for i, o := range operations {
		if o.err == nil {
			o.err = o.checkStyles()
		}
		if err := o.error(); err != nil {
			results[i].Reason = err.Error()
			continue
		}
		results[i].Operation = o.operation
	}
	return results
}

// compiler compiles one document.
type compiler struct {
	root     *document.Node
	old      bool // OpenAPI 3.0, whose schemas are not quite those of JSON Schema
	expired  func() bool
	stopped  error // why nothing is compiled any more
	schemas  int
	bytes    int64
	patterns patterns
	programs int // instructions of patterns
	lookups  int // of properties of parameters

	parts   map[*document.Node]*part
	unread  []*part
	members map[*document.Node]map[string]*document.Node // of large mappings that references lead through
	owners  map[*schema]*part
	created []*schema
}

// part is a schema of the document that is compiled by itself. References lead from part to part.
type part struct {
	node    *document.Node
	pointer string // in the document
	depth   int    // of the node below the schema that a reference names
	schema  *schema
	links   map[string]*part // by the pointers in the part of what refers to them
	users   []*part          // the parts that have links to this one
	err     error

	size, children int // the schemas that are translated, and those with what has become a link
}

// positioned is an error at a position.
type positioned struct {
	at  document.Position
	err error
}

func (p *positioned) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", p.at.Line, p.at.Column, p.err)
}

func at(p document.Position, format string, args ...any) error {
	return &positioned{p, unsupportedf(format, args...)}
}

// part returns the part for a node, which is compiled later. What is kept of the document is cloned: a slice would keep
// the whole of it in memory.
func (c *compiler) part(n *document.Node, pointer string, depth int) *part {
	if p := c.parts[n]; p != nil {
		return p
	}
	pointer = strings.Clone(pointer)
	p := &part{node: n, pointer: pointer, depth: depth, schema: &schema{location: pointer}, links: map[string]*part{}}
	c.parts[n] = p
	c.unread = append(c.unread, p)
	return p
}

// compileParts compiles the parts that were not compiled yet, and those that they refer to.
func (c *compiler) compileParts() {
	for len(c.unread) > 0 {
		p := c.unread[len(c.unread)-1]
		c.unread = c.unread[:len(c.unread)-1]
		if c.stopped == nil && c.expired() {
			c.stopped = at(p.node.Position, "compiling the schemas of the document takes too long: make them fewer or smaller")
		}
		if p.err = c.stopped; p.err == nil {
			p.err = c.compilePart(p)
		}
	}
}

func (c *compiler) compilePart(p *part) error {
	raw, err := c.translate(p, p.node, "", p.depth)
	if err != nil {
		return err
	}
	const address = "keygate:/schema"
	e := newEngine(c.patterns)
	inPart := func(location string) string {
		_, pointer, _ := strings.Cut(location, "#")
		if decoded, err := url.PathUnescape(pointer); err == nil {
			return decoded
		}
		return pointer
	}
	e.locate = func(location string) string { return p.pointer + inPart(location) }
	e.link = func(location string) *schema {
		if to := p.links[inPart(location)]; to != nil {
			return to.schema
		}
		return nil
	}
	e.root = p.schema
	e.static = true
	if err = e.add(address, raw); err == nil {
		err = e.compile(address)
	}
	if err != nil {
		return &positioned{p.node.Position, fmt.Errorf("the schema %w", err)}
	}
	for _, s := range e.created {
		c.owners[s] = p
	}
	c.created = append(c.created, e.created...)
	return nil
}

// settle finishes the schemas of all parts, and makes the parts bad that refer to a bad one.
func (c *compiler) settle() {
	bad := func(s *schema, err error) {
		if p := c.owners[s]; p != nil && p.err == nil {
			p.err = &positioned{p.node.Position, fmt.Errorf("the schema %w", err)}
		}
	}
	settle(c.created, bad)
	var spread []*part
	for _, p := range c.parts {
		if p.err != nil {
			spread = append(spread, p)
		}
	}
	slices.SortFunc(spread, func(a, b *part) int { return strings.Compare(a.pointer, b.pointer) })
	for len(spread) > 0 {
		p := spread[0]
		spread = spread[1:]
		for _, user := range p.users {
			if user.err == nil {
				user.err = p.err
				spread = append(spread, user)
			}
		}
	}
}

// The keywords of schemas, by what they have. Others are annotations, or unknown, which JSON Schema ignores; format is
// an annotation too.
func keywordKind(name string) byte {
	switch name {
	case "not", "if", "then", "else", "additionalProperties", "propertyNames", "items", "contains", "unevaluatedProperties", "unevaluatedItems":
		return 's' // a schema
	case "allOf", "anyOf", "oneOf", "prefixItems":
		return 'l' // a list of schemas
	case "properties", "patternProperties", "dependentSchemas":
		return 'm' // schemas by names
	case "multipleOf", "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum":
		return 'n' // a number
	case "maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties", "maxContains", "minContains":
		return 'c' // a whole number
	case "type", "enum", "const", "uniqueItems", "required", "dependentRequired":
		return 'v' // a value
	case "pattern":
		return 'p'
	case "$id", "$dynamicRef", "$recursiveRef", "$vocabulary":
		return 'u' // unsupported in documents
	case "$schema":
		return 'd'
	}
	return 0
}

// isDialect reports whether a URL is that of the schemas of OpenAPI 3.1 and later, or of JSON Schema 2020-12.
func isDialect(address string) bool {
	return strings.TrimSuffix(address, "#") == "https://json-schema.org/draft/2020-12/schema" || strings.HasPrefix(address, "https://spec.openapis.org/oas/3.")
}

// translate returns a schema of the document as a JSON value of JSON Schema 2020-12, without references, which are links
// of p, and without annotations. here is the pointer of n in p.
func (c *compiler) translate(p *part, n *document.Node, here string, depth int) (any, error) {
	if n.Kind == document.Bool {
		if c.old && here == "" {
			return nil, at(n.Position, "a schema must be a mapping")
		}
		return n.Text == "true", nil
	}
	if n.Kind != document.Mapping {
		return nil, at(n.Position, "a schema must be a mapping, not %s", n.Kind)
	}
	if depth > maxDepth {
		return nil, at(n.Position, "schemas are nested deeper than %d", maxDepth)
	}
	if c.schemas++; c.schemas > maxSchemas {
		c.stopped = at(n.Position, "the operations have more than %d schemas: split the document between several gateways", maxSchemas)
		return nil, c.stopped
	}
	p.size++
	c.bytes += schemaBytes
	schema := map[string]any{}
	if ref := n.Member("$ref"); ref != nil {
		to, pointer, err := c.resolve(ref)
		if err != nil {
			return nil, err
		}
		c.connect(p, here, c.part(to, pointer, 0))
		if c.old {
			return schema, nil
		}
	}
	for i := range n.Nodes {
		if err := c.keyword(p, schema, &n.Nodes[i], here, depth); err != nil {
			return nil, err
		}
	}
	c.adjust(n, schema)
	return schema, nil
}

func (c *compiler) connect(p *part, here string, to *part) {
	p.links[here] = to
	to.users = append(to.users, p)
}

// keyword adds one keyword to schema.
func (c *compiler) keyword(p *part, schema map[string]any, m *document.Node, here string, depth int) error {
	here += "/" + document.EscapeToken(m.Name)
	child := func(n *document.Node, here string) (any, error) {
		if p.children++; p.children > maxChildren {
			return nil, at(n.Position, "a schema has more than %d properties or alternatives", maxChildren)
		}
		if p.size >= maxPart && n.Kind == document.Mapping {
			c.connect(p, here, c.part(n, p.pointer+here, depth+1))
			return map[string]any{}, nil
		}
		return c.translate(p, n, here, depth+1)
	}
	var err error
	switch keywordKind(m.Name) {
	case 's':
		schema[m.Name], err = child(m, here)
	case 'l':
		if m.Kind != document.Sequence {
			return at(m.Position, "%s must be a list of schemas", m.Name)
		}
		list := make([]any, len(m.Nodes))
		for i := range m.Nodes {
			if list[i], err = child(&m.Nodes[i], fmt.Sprintf("%s/%d", here, i)); err != nil {
				return err
			}
		}
		schema[m.Name] = list
	case 'm':
		if m.Kind != document.Mapping {
			return at(m.Position, "%s must be a mapping of schemas", m.Name)
		}
		of := make(map[string]any, len(m.Nodes))
		for i := range m.Nodes {
			one := &m.Nodes[i]
			c.bytes += int64(nameBytes + len(one.Name))
			if m.Name == "patternProperties" {
				if err := c.pattern(one.NamePosition, one.Name); err != nil {
					return err
				}
			}
			if of[strings.Clone(one.Name)], err = child(one, here+"/"+document.EscapeToken(one.Name)); err != nil {
				return err
			}
		}
		schema[m.Name] = of
	case 'u':
		return at(m.NamePosition, "%s in a schema is not supported", m.Name)
	case 'd':
		if !isDialect(m.Text) {
			return at(m.Position, "schemas of %s are not supported: use JSON Schema 2020-12", document.Short(m.Text))
		}
	case 0:
	default:
		schema[m.Name], err = c.scalar(m)
		c.bytes += textBytes(m)
	}
	return err
}

// textBytes is about how much memory the texts below a node take.
func textBytes(n *document.Node) int64 {
	size := int64(nameBytes + len(n.Name) + len(n.Text))
	for i := range n.Nodes {
		size += textBytes(&n.Nodes[i])
	}
	return size
}

// pattern checks that a pattern is supported.
func (c *compiler) pattern(p document.Position, text string) error {
	_, known := c.patterns[text]
	compiled, err := c.patterns.compile(strings.Clone(text))
	if err != nil {
		return at(p, "the pattern %s", err)
	}
	if !known {
		c.programs += compiled.size
		c.bytes += int64(instructionBytes*compiled.size + len(text))
	}
	if c.programs > maxPrograms {
		return at(p, "the patterns of the document are too many or too large")
	}
	return nil
}

// scalar returns the value of a keyword that has no schemas.
func (c *compiler) scalar(m *document.Node) (any, error) {
	switch kind := keywordKind(m.Name); {
	case kind == 'p' && m.Kind == document.String:
		return m.Text, c.pattern(m.Position, m.Text)
	case (kind == 'n' || kind == 'c') && m.Kind == document.Number:
		n, ok := number{}, isNumber(m.Text)
		if ok {
			n, ok = parseNumber(m.Text)
		}
		if !ok {
			return nil, at(m.Position, "%s is a number that is too large or too precise, or not written as in JSON", m.Name)
		}
		const most = 1 << 53
		if kind == 'c' && (n.exact != nil && n.exact.IsInt() || n.exact == nil && n.small > most) {
			return nil, at(m.Position, "%s must be at most 2^53", m.Name)
		}
		return json.Number(m.Text), nil
	}
	return decodeNode(m)
}

// decodeNode returns a node as package json decodes it.
func decodeNode(m *document.Node) (decoded any, err error) {
	text, err := m.JSON(m.Name)
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		err = dec.Decode(&decoded)
	}
	if err != nil {
		return nil, at(m.Position, "%s has a value that JSON does not have", document.Short(m.Name))
	}
	return decoded, nil
}

// adjust makes a schema of OpenAPI one of JSON Schema: nullable and the exclusive bounds of OpenAPI 3.0, and properties
// that are only in responses, which no request requires.
func (c *compiler) adjust(n *document.Node, schema map[string]any) {
	if required, ok := schema["required"].([]any); ok {
		if properties := n.Member("properties"); properties != nil {
			schema["required"] = slices.DeleteFunc(required, func(name any) bool {
				text, _ := name.(string)
				return c.isReadOnly(c.member(properties, text), 0)
			})
		}
	}
	if !c.old {
		return
	}
	if m := n.Member("nullable"); m != nil && m.Kind == document.Bool && m.Text == "true" {
		if name, ok := schema["type"].(string); ok {
			schema["type"] = []any{name, "null"}
			if name == "null" {
				schema["type"] = name
			}
		}
		if values, ok := schema["enum"].([]any); ok && !slices.Contains(values, nil) {
			schema["enum"] = append(values, nil)
		}
	}
	for exclusive, bound := range map[string]string{"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"} {
		is, isBool := schema[exclusive].(bool)
		if !isBool {
			continue
		}
		delete(schema, exclusive)
		if limit, ok := schema[bound]; is && ok {
			schema[exclusive] = limit
			delete(schema, bound)
		}
	}
}

func (c *compiler) isReadOnly(n *document.Node, depth int) bool {
	if n == nil || n.Kind != document.Mapping || depth > maxChain {
		return false
	}
	if m := n.Member("readOnly"); m != nil && m.Kind == document.Bool && m.Text == "true" {
		return true
	}
	if ref := n.Member("$ref"); ref != nil {
		if to, _, err := c.resolve(ref); err == nil {
			return c.isReadOnly(to, depth+1)
		}
	}
	return false
}

// resolve returns what a reference refers to, with its JSON pointer.
func (c *compiler) resolve(ref *document.Node) (n *document.Node, pointer string, err error) {
	if ref.Kind != document.String {
		return nil, "", at(ref.Position, "$ref must be a string")
	}
	fragment, local := strings.CutPrefix(ref.Text, "#")
	if !local {
		return nil, "", at(ref.Position, "%q is in another document, from which nothing is fetched: bundle the documents into one, for example with \"npx @redocly/cli bundle\"", document.Short(ref.Text))
	}
	pointer, err = url.PathUnescape(fragment)
	if err != nil || pointer != "" && pointer[0] != '/' {
		return nil, "", at(ref.Position, "%q is a reference that is not supported: write it like #/components/schemas/name", document.Short(ref.Text))
	}
	n = c.root
	for _, token := range tokens(pointer) {
		if n = c.member(n, document.UnescapeToken(token)); n == nil {
			return nil, "", at(ref.Position, "the document has no %q", document.Short(ref.Text))
		}
	}
	return n, pointer, nil
}

// member returns a member or an item of n, in constant time, because many references may lead through one large mapping.
func (c *compiler) member(n *document.Node, name string) *document.Node {
	if n.Kind == document.Sequence {
		index, ok := document.Integer(name)
		if !ok || index < 0 || index >= int64(len(n.Nodes)) {
			return nil
		}
		return &n.Nodes[index]
	}
	if n.Kind != document.Mapping || len(n.Nodes) <= fewMembers {
		return n.Member(name)
	}
	index := c.members[n]
	if index == nil {
		index = make(map[string]*document.Node, len(n.Nodes))
		for i := range n.Nodes {
			index[n.Nodes[i].Name] = &n.Nodes[i]
		}
		c.members[n] = index
	}
	return index[name]
}

// follow returns the object of the document that n is or refers to.
func (c *compiler) follow(n *document.Node, pointer string) (*document.Node, string, error) {
	for range maxChain {
		ref := n.Member("$ref")
		if ref == nil {
			if n.Kind != document.Mapping {
				return nil, "", at(n.Position, "must be a mapping, not %s", n.Kind)
			}
			return n, pointer, nil
		}
		next, to, err := c.resolve(ref)
		if err != nil {
			return nil, "", err
		}
		n, pointer = next, to
	}
	return nil, "", at(n.Position, "more than %d references follow one another", maxChain)
}
