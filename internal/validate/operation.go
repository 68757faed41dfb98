package validate

import (
	"mime"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/document"
)

// Operation checks the requests of one operation. It may be used by many at once.
type Operation struct {
	pointer    string
	path       template
	parameters []parameter
	body       *body // nil if the document has none
}

// parameter is a parameter of an operation.
type parameter struct {
	in, name, style string
	explode         bool
	required        bool
	emptyAllowed    bool
	json            bool // the value is a JSON text
	pointer         string
	schema          *schema // nil if only its presence is checked
}

// body is the body of an operation.
type body struct {
	required bool
	pointer  string
	types    []mediaType
}

// mediaType is a media type of a body, or a range of them.
type mediaType struct {
	name    string   // such as application/json, text/* or */*
	form    formKind // of a request's body: that of a range is not known
	pointer string
	schema  *schema              // nil if there is nothing to check
	fields  map[string]parameter // of a form: those with a style of their own
}

// formKind is how a body is read.
type formKind uint8

const (
	unchecked formKind = iota // it may be anything
	jsonText
	urlEncoded
	multipartForm
)

// formOf returns how a body of a media type is read.
func formOf(name string) formKind {
	switch {
	case name == "application/x-www-form-urlencoded":
		return urlEncoded
	case name == "multipart/form-data":
		return multipartForm
	case isJSON(name):
		return jsonText
	}
	return unchecked
}

// mayBeRead reports whether bodies of a media type of a document, or of some in its range, are read.
func mayBeRead(name string, schema *document.Node) bool {
	if kind, isRange := strings.CutSuffix(name, "/*"); isRange {
		isBinary := textOf(schema, "type") == "string" && textOf(schema, "format") == "binary" // any bytes, as OpenAPI 3.0 writes it
		return !isBinary && (kind == "*" || kind == "application" || kind == "multipart" || kind == "text")
	}
	return formOf(name) != unchecked
}

// operationReader reads one operation.
type operationReader struct {
	compiler  *compiler
	operation *Operation
	parts     []*part
	err       error
}

// error returns why the operation is unchecked, or nil.
func (o *operationReader) error() error {
	if o.err != nil {
		return o.err
	}
	for _, p := range o.parts {
		if p.err != nil {
			return p.err
		}
	}
	return nil
}

func (c *compiler) readOperation(source *Source) *operationReader {
	o := &operationReader{compiler: c, operation: &Operation{pointer: strings.Clone(source.Operation.Pointer), path: parseTemplate(source.Path)}}
	if c.stopped != nil {
		o.err = c.stopped
		return o
	}
	if source.Several {
		o.err = at(source.Operation.Node.NamePosition, "the document has several operations for these requests")
		return o
	}
	if dialect := c.root.Member("jsonSchemaDialect"); dialect != nil && !isDialect(dialect.Text) {
		o.err = at(dialect.Position, "schemas of %s are not supported: use JSON Schema 2020-12", document.Short(dialect.Text))
		return o
	}
	o.err = o.readParameters(source)
	if request := source.Operation.Node.Member("requestBody"); o.err == nil && request != nil {
		o.err = o.readBody(request, source.Operation.Pointer+"/requestBody")
	}
	return o
}

// schema returns the schema of a node, which is compiled later.
func (o *operationReader) schema(n *document.Node, pointer string) *schema {
	p := o.compiler.part(n, pointer, 0)
	o.parts = append(o.parts, p)
	return p.schema
}

// readParameters reads the parameters of the operation and of its path items. The first of a name counts.
func (o *operationReader) readParameters(source *Source) error {
	type key struct{ in, name string }
	seen := map[key]bool{}
	for _, from := range append([]Located{source.Operation}, source.Items...) {
		list := from.Node.Member("parameters")
		if list == nil {
			continue
		}
		if list.Kind != document.Sequence {
			return at(list.Position, "parameters must be a list")
		}
		for j := range list.Nodes {
			n, where, err := o.compiler.follow(&list.Nodes[j], from.Pointer+"/parameters/"+itoa(j))
			if err != nil {
				return err
			}
			p, err := o.readParameter(n, where)
			if err != nil {
				return err
			}
			id := key{p.in, p.name}
			if p.in == InHeader {
				id.name = strings.ToLower(p.name)
			}
			if seen[id] || p.in == InHeader && slices.Contains([]string{"accept", "content-type", "authorization"}, id.name) {
				continue // OpenAPI gives a parameter of these three names no meaning
			}
			seen[id] = true
			o.compiler.bytes += int64(parameterBytes + len(p.name) + len(p.pointer))
			if o.operation.parameters = append(o.operation.parameters, p); len(o.operation.parameters) > maxParameters {
				return at(n.Position, "an operation has more than %d parameters", maxParameters)
			}
		}
	}
	return nil
}

func textOf(n *document.Node, name string) string {
	if m := n.Member(name); m != nil && m.Kind == document.String {
		return m.Text
	}
	return ""
}

// flag returns a boolean of n, or what it is without one.
func flag(n *document.Node, name string, otherwise bool) bool {
	if m := n.Member(name); m != nil && m.Kind == document.Bool {
		return m.Text == "true"
	}
	return otherwise
}

func (o *operationReader) readParameter(n *document.Node, pointer string) (parameter, error) {
	p := parameter{in: strings.Clone(textOf(n, "in")), name: strings.Clone(textOf(n, "name")), pointer: strings.Clone(pointer)}
	if p.name == "" {
		return p, at(n.Position, "a parameter must have a name")
	}
	styles := map[string][]string{ // the first is the default
		InPath: {"simple", "label", "matrix"}, InQuery: {"form", "spaceDelimited", "pipeDelimited", "deepObject"},
		InHeader: {"simple"}, InCookie: {"form", "cookie"},
	}[p.in]
	if styles == nil {
		return p, at(n.Position, "a parameter in %q is not supported: use path, query, header or cookie", document.Short(p.in))
	}
	p.style = styles[0]
	if style := textOf(n, "style"); style != "" {
		p.style = strings.Clone(style)
	}
	if !slices.Contains(styles, p.style) {
		return p, at(n.Position, "the style %q of a parameter in %s is not supported", document.Short(p.style), p.in)
	}
	p.explode = flag(n, "explode", p.style == "form" || p.style == "cookie")
	p.required = p.in == InPath || flag(n, "required", false)
	p.emptyAllowed = flag(n, "allowEmptyValue", false)
	if m := n.Member("schema"); m != nil {
		p.schema = o.schema(m, pointer+"/schema")
		return p, nil
	}
	content := n.Member("content")
	if content == nil {
		return p, at(n.Position, "the parameter %q has neither schema nor content", document.Short(p.name))
	}
	if content.Kind != document.Mapping || len(content.Nodes) != 1 {
		return p, at(content.Position, "the content of a parameter must have exactly one media type")
	}
	named := &content.Nodes[0]
	of, where, err := o.compiler.follow(named, pointer+"/content/"+document.EscapeToken(named.Name))
	if err != nil {
		return p, err
	}
	if m := of.Member("schema"); m != nil && isJSON(named.Name) {
		p.json = true
		p.schema = o.schema(m, where+"/schema")
	}
	return p, nil
}

// isJSON reports whether a media type is JSON (RFC 6839).
func isJSON(name string) bool {
	essence, _, _ := strings.Cut(strings.ToLower(name), ";")
	essence = strings.TrimSpace(essence)
	return essence == "application/json" || essence == "text/json" || strings.HasSuffix(essence, "+json")
}

func (o *operationReader) readBody(request *document.Node, pointer string) error {
	n, pointer, err := o.compiler.follow(request, pointer)
	if err != nil {
		return err
	}
	content := n.Member("content")
	if content == nil || content.Kind != document.Mapping || len(content.Nodes) == 0 {
		return at(n.Position, "requestBody must have content with a media type")
	}
	b := &body{required: flag(n, "required", false), pointer: strings.Clone(pointer)}
	for i := range content.Nodes {
		named := &content.Nodes[i]
		var t mediaType
		if t.name, _, err = mime.ParseMediaType(named.Name); err != nil || !strings.Contains(t.name, "/") {
			return at(named.NamePosition, "%q is not a media type", document.Short(named.Name))
		}
		if slices.ContainsFunc(b.types, func(other mediaType) bool { return other.name == t.name }) {
			return at(named.NamePosition, "several media types that differ in their parameters only are not supported")
		}
		of, where, err := o.compiler.follow(named, pointer+"/content/"+document.EscapeToken(named.Name))
		if err != nil {
			return err
		}
		t.name, t.pointer = strings.Clone(t.name), strings.Clone(where)
		for _, name := range []string{"itemSchema", "prefixEncoding", "itemEncoding"} {
			if m := of.Member(name); m != nil {
				return at(m.NamePosition, "%s is not supported", name)
			}
		}
		if m := of.Member("schema"); m != nil && mayBeRead(t.name, m) {
			t.schema = o.schema(m, t.pointer+"/schema")
		}
		if t.schema != nil {
			if err := o.readEncoding(of, &t); err != nil {
				return err
			}
		}
		o.compiler.bytes += int64(parameterBytes + len(t.name) + len(t.pointer))
		b.types = append(b.types, t)
	}
	o.operation.body = b
	return nil
}

// readEncoding reads how the fields of a form are written.
func (o *operationReader) readEncoding(of *document.Node, t *mediaType) error {
	encoding := of.Member("encoding")
	if encoding == nil {
		return nil
	}
	t.fields = map[string]parameter{}
	for i := range encoding.Nodes {
		n := &encoding.Nodes[i]
		p := parameter{in: InBody, name: strings.Clone(n.Name), style: "form", pointer: t.pointer + "/encoding/" + document.EscapeToken(n.Name)}
		if style := textOf(n, "style"); style != "" {
			p.style = strings.Clone(style)
		}
		p.json = isJSON(textOf(n, "contentType"))
		if formOf(t.name) == multipartForm { // a field is a part, whatever its style is
			if p.json {
				p.style = plainStyle
				t.fields[p.name] = p
			}
			continue
		}
		if !slices.Contains([]string{"form", "spaceDelimited", "pipeDelimited", "deepObject"}, p.style) {
			return at(n.Position, "the style %q of a form's field is not supported", document.Short(p.style))
		}
		p.explode = flag(n, "explode", p.style == "form")
		t.fields[p.name] = p
	}
	return nil
}

// checkStyles returns an error if a parameter or a field has a value that its style cannot write.
func (o *operationReader) checkStyles() error {
	for i := range o.operation.parameters {
		if p := &o.operation.parameters[i]; p.style == "deepObject" && p.schema != nil {
			if err := o.checkDeep(p.schema, "parameter", p.name); err != nil {
				return err
			}
		}
	}
	if o.operation.body == nil {
		return nil
	}
	for _, t := range o.operation.body.types {
		for name, p := range t.fields {
			if p.style != "deepObject" || t.schema == nil {
				continue
			}
			if of := t.schema.property(&o.compiler.lookups, name); of != nil {
				if err := o.checkDeep(of, "field", name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// checkDeep returns an error if s has a property that is an array or an object.
func (o *operationReader) checkDeep(s *schema, what, name string) error {
	steps := &o.compiler.lookups
	known := map[string]bool{}
	isDeep := false
	s.lookup(steps, func(one *schema) *schema {
		*steps += len(one.properties)
		if *steps > maxLookups {
			return one
		}
		for property, of := range one.properties {
			isDeep = isDeep || !known[property] && of.accepted&^(kindArray|kindObject) == 0
			known[property] = true
		}
		return nil
	})
	switch {
	case *steps > maxLookups:
		return unsupportedf("the parameters of the document have too many properties: make the schemas of those with the style deepObject smaller")
	case isDeep:
		return unsupportedf("the %s %q has the style deepObject, which is not defined for a property that is an array or an object", what, document.Short(name))
	}
	return nil
}
