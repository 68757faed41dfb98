package validate

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// unsupported is why a schema cannot be compiled, without its position.
type unsupported struct{ message string }

func (e *unsupported) Error() string { return e.message }

func unsupportedf(format string, args ...any) error {
	return &unsupported{fmt.Sprintf(format, args...)}
}

// noLoader loads nothing: what a schema refers to is in its document, or is not supported.
type noLoader struct{}

// Load returns an error.
func (noLoader) Load(string) (any, error) {
	return nil, errors.New("nothing is fetched")
}

// engine compiles JSON values into schemas. Package jsonschema checks them against their metaschema, resolves their
// references and identifiers, and reads their keywords; evaluation is that of this package, because it has to be bounded.
type engine struct {
	compiler *jsonschema.Compiler
	patterns patterns
	docs     map[string]any // by their URLs
	// link returns the schema that the document has at a location for a reference that package jsonschema does not see;
	// locate returns the pointer in the document of a location.
	link   func(location string) *schema
	locate func(location string) string

	static    bool    // there are no dynamic references
	root      *schema // what the schema becomes that is compiled
	compiled  map[*jsonschema.Schema]*schema
	unread    []*jsonschema.Schema
	resources map[string]*resource
	created   []*schema
}

func newEngine(known patterns) *engine {
	e := &engine{
		compiler: jsonschema.NewCompiler(), patterns: known, docs: map[string]any{},
		link:     func(string) *schema { return nil },
		locate:   func(location string) string { return location },
		compiled: map[*jsonschema.Schema]*schema{}, resources: map[string]*resource{},
	}
	e.compiler.DefaultDraft(jsonschema.Draft2020)
	e.compiler.UseLoader(noLoader{})
	e.compiler.UseRegexpEngine(known.engine)
	return e
}

// add adds a document that schemas may refer to by its URL.
func (e *engine) add(url string, doc any) error {
	e.docs[url] = doc
	return e.compiler.AddResource(url, doc)
}

// compile compiles the schema at a URL, into root.
func (e *engine) compile(url string) error {
	root, err := e.compiler.Compile(url)
	if err != nil {
		return e.explain(err)
	}
	e.compiled[root] = e.root
	e.created, e.unread = append(e.created, e.root), append(e.unread, root)
	for len(e.unread) > 0 {
		next := e.unread[len(e.unread)-1]
		e.unread = e.unread[:len(e.unread)-1]
		if err := e.read(e.compiled[next], next); err != nil {
			return err
		}
	}
	return nil
}

// explain returns the error for one of package jsonschema, whose texts have values and URLs.
func (e *engine) explain(err error) error {
	var (
		invalid *jsonschema.SchemaValidationError
		load    *jsonschema.LoadURLError
	)
	switch {
	case errors.As(err, &invalid):
		return unsupportedf("is not a schema of JSON Schema 2020-12%s", e.at(invalid.Err))
	case errors.As(err, &load):
		return unsupportedf("refers to a schema of another document, of which nothing is fetched")
	}
	return unsupportedf("cannot be compiled: its references, anchors or identifiers are not supported")
}

// at names the first keyword that is wrong in a schema.
func (e *engine) at(err error) string {
	var bad *jsonschema.ValidationError
	if !errors.As(err, &bad) {
		return ""
	}
	for len(bad.Causes) > 0 {
		bad = bad.Causes[0]
	}
	if len(bad.InstanceLocation) == 0 {
		return ""
	}
	return fmt.Sprintf(": see %q", shortName(strings.Join(bad.InstanceLocation, "/")))
}

// get returns the schema for one of package jsonschema, which is read later.
func (e *engine) get(from *jsonschema.Schema) *schema {
	if from == nil {
		return nil
	}
	if s := e.compiled[from]; s != nil {
		return s
	}
	s := &schema{location: e.locate(from.Location)}
	e.compiled[from] = s
	e.created = append(e.created, s)
	e.unread = append(e.unread, from)
	return s
}

func (e *engine) list(from []*jsonschema.Schema) []*schema {
	list := make([]*schema, len(from))
	for i := range from {
		list[i] = e.get(from[i])
	}
	return list
}

// read sets the keywords of s.
func (e *engine) read(s *schema, from *jsonschema.Schema) (err error) {
	if from.DraftVersion != 2020 {
		return unsupportedf("is of another version of JSON Schema than 2020-12")
	}
	if !e.static {
		if s.resource, err = e.resource(from.Location); err != nil {
			return err
		}
	}
	if s.ref = e.get(from.Ref); s.ref == nil {
		s.ref = e.link(from.Location)
	}
	if from.Bool != nil && s.ref == nil {
		s.always = from.Bool
		return nil
	}
	if from.DynamicRef != nil {
		s.dynamicRef, s.dynamicName = e.get(from.DynamicRef.Ref), from.DynamicRef.Anchor
	}
	s.dynamicAnchor = from.DynamicAnchor
	s.readTypes(from.Types)
	s.allOf, s.anyOf, s.oneOf = e.list(from.AllOf), e.list(from.AnyOf), e.list(from.OneOf)
	s.not, s.condition, s.then, s.otherwise = e.get(from.Not), e.get(from.If), e.get(from.Then), e.get(from.Else)
	e.readObject(s, from)
	e.readArray(s, from)
	if from.Pattern != nil {
		s.pattern, _ = from.Pattern.(*pattern)
	}
	s.readCounts(from)
	s.readNumbers(from)
	return s.readConstants(from)
}

func (s *schema) readTypes(types *jsonschema.Types) {
	if types == nil {
		return
	}
	number := false
	for _, name := range types.ToStrings() {
		switch name {
		case "null":
			s.kinds |= kindNull
		case "boolean":
			s.kinds |= kindBool
		case "number":
			s.kinds |= kindNumber
			number = true
		case "integer":
			s.kinds |= kindNumber
			s.integer = true
		case "string":
			s.kinds |= kindString
		case "array":
			s.kinds |= kindArray
		case "object":
			s.kinds |= kindObject
		}
	}
	s.integer = s.integer && !number
}

func (e *engine) readObject(s *schema, from *jsonschema.Schema) {
	if len(from.Properties) > 0 {
		s.properties = make(map[string]*schema, len(from.Properties))
		for _, name := range slices.Sorted(maps.Keys(from.Properties)) {
			s.properties[name] = e.get(from.Properties[name])
		}
	}
	for regexp, of := range from.PatternProperties {
		if p, ok := regexp.(*pattern); ok {
			s.patterns = append(s.patterns, patternProperties{p, e.get(of)})
		}
	}
	slices.SortFunc(s.patterns, func(a, b patternProperties) int { return strings.Compare(a.pattern.text, b.pattern.text) })
	switch additional := from.AdditionalProperties.(type) {
	case bool:
		s.additional = &schema{location: s.location, always: &additional}
		e.created = append(e.created, s.additional)
	case *jsonschema.Schema:
		s.additional = e.get(additional)
	}
	s.propertyNames, s.unevaluatedNames = e.get(from.PropertyNames), e.get(from.UnevaluatedProperties)
	s.required = from.Required
	for _, name := range slices.Sorted(maps.Keys(from.DependentRequired)) {
		s.dependencies = append(s.dependencies, dependency{name: name, required: from.DependentRequired[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(from.DependentSchemas)) {
		s.dependencies = append(s.dependencies, dependency{name: name, schema: e.get(from.DependentSchemas[name])})
	}
	for _, name := range slices.Sorted(maps.Keys(from.Dependencies)) { // of earlier versions
		switch of := from.Dependencies[name].(type) {
		case []string:
			s.dependencies = append(s.dependencies, dependency{name: name, required: of})
		case *jsonschema.Schema:
			s.dependencies = append(s.dependencies, dependency{name: name, schema: e.get(of)})
		}
	}
}

func (e *engine) readArray(s *schema, from *jsonschema.Schema) {
	s.prefix, s.items = e.list(from.PrefixItems), e.get(from.Items2020)
	s.contains, s.unevaluatedItems = e.get(from.Contains), e.get(from.UnevaluatedItems)
	s.unique = from.UniqueItems
}

// readCounts sets the keywords that are whole numbers.
func (s *schema) readCounts(from *jsonschema.Schema) {
	for _, one := range []struct {
		to   **int
		from *int
	}{
		{&s.minProperties, from.MinProperties}, {&s.maxProperties, from.MaxProperties},
		{&s.minItems, from.MinItems}, {&s.maxItems, from.MaxItems},
		{&s.minContains, from.MinContains}, {&s.maxContains, from.MaxContains},
		{&s.minLength, from.MinLength}, {&s.maxLength, from.MaxLength},
	} {
		*one.to = one.from
	}
}

func (s *schema) readNumbers(from *jsonschema.Schema) {
	for _, one := range []struct {
		to   **number
		from *big.Rat
	}{
		{&s.minimum, from.Minimum}, {&s.maximum, from.Maximum},
		{&s.aboveMinimum, from.ExclusiveMinimum}, {&s.belowMaximum, from.ExclusiveMaximum}, {&s.multipleOf, from.MultipleOf},
	} {
		if one.from != nil {
			n := exactly(one.from)
			*one.to = &n
		}
	}
}

func (s *schema) readConstants(from *jsonschema.Schema) error {
	if from.Enum != nil {
		s.values = make(map[string]bool, len(from.Enum.Values))
		for _, one := range from.Enum.Values {
			v, ok := fromAny(one)
			if !ok {
				return unsupportedf("lists a number that is too large or too precise")
			}
			s.values[string(v.appendCanonical(nil))] = true
		}
	}
	if from.Const != nil {
		v, ok := fromAny(*from.Const)
		if !ok {
			return unsupportedf("has a number that is too large or too precise")
		}
		text := string(v.appendCanonical(nil))
		s.constant = &text
	}
	return nil
}

// resource returns the resource of a location: the nearest schema around it that has an identifier.
func (e *engine) resource(location string) (*resource, error) {
	url, pointer, _ := strings.Cut(location, "#")
	doc, known := e.docs[url]
	root := ""
	if known {
		at, path := doc, ""
		for _, token := range tokens(pointer) {
			path += "/" + token
			if at = step(at, token); hasID(at) {
				root = path
			}
		}
	}
	key := url + "#" + root
	if of := e.resources[key]; of != nil {
		return of, nil
	}
	of := &resource{anchors: map[string]*schema{}}
	e.resources[key] = of
	if known {
		return of, e.anchors(of, url, root, pointerTo(doc, root))
	}
	// A metaschema, whose only dynamic anchor is that of its root.
	from, err := e.compiler.Compile(url)
	if err == nil && from.DynamicAnchor != "" {
		of.anchors[from.DynamicAnchor] = e.get(from)
	}
	return of, nil
}

// anchors sets the dynamic anchors of a resource: those in the schemas below it that are of no other resource.
func (e *engine) anchors(of *resource, url, path string, at any) error {
	switch x := at.(type) {
	case map[string]any:
		if name, ok := x["$dynamicAnchor"].(string); ok {
			from, err := e.compiler.Compile(url + "#" + encode(path))
			if err != nil {
				return e.explain(err)
			}
			of.anchors[name] = e.get(from)
		}
		for _, name := range slices.Sorted(maps.Keys(x)) {
			if name == "enum" || name == "const" || name == "examples" || name == "default" || hasID(x[name]) {
				continue
			}
			if err := e.anchors(of, url, path+"/"+encode(document.EscapeToken(name)), x[name]); err != nil {
				return err
			}
		}
	case []any:
		for i := range x {
			if hasID(x[i]) {
				continue
			}
			if err := e.anchors(of, url, fmt.Sprintf("%s/%d", path, i), x[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func hasID(at any) bool {
	object, _ := at.(map[string]any)
	id, _ := object["$id"].(string)
	before, _, _ := strings.Cut(id, "#")
	return before != ""
}

// settler finishes schemas.
type settler struct {
	state map[*schema]settling
	bad   func(*schema, error)
}

// settling is how far a schema is finished.
type settling struct {
	begun, done bool
	err         error
}

// settle sets the types that each schema accepts. It calls bad for a schema that refers to itself without going to a
// member or an item, which would never end, and for those that lead to one in the same way.
func settle(created []*schema, bad func(*schema, error)) {
	t := settler{make(map[*schema]settling, len(created)), bad}
	for _, s := range created {
		_, _ = t.visit(s, 0)
	}
}

func (t *settler) visit(s *schema, depth int) (kinds, error) {
	if s.always != nil {
		if *s.always {
			s.accepted = anyKind
		}
		return s.accepted, nil
	}
	state := t.state[s]
	switch {
	case state.done:
		return s.accepted, state.err
	case state.begun:
		return 0, unsupportedf("refers to itself without a property or an item between")
	case depth > maxCalls/2:
		return 0, unsupportedf("has more than %d references that follow one another", maxCalls/2)
	}
	t.state[s] = settling{begun: true}
	accepted, err := t.accepted(s, depth+1)
	if err != nil {
		t.bad(s, err)
	}
	s.accepted = accepted
	t.state[s] = settling{done: true, err: err}
	return accepted, err
}

// accepted returns the types of the values that may meet s, or more.
func (t *settler) accepted(s *schema, depth int) (kinds, error) {
	accepted := anyKind
	if s.kinds != 0 {
		accepted = s.kinds
	}
	if s.constant != nil {
		accepted &= kindOfCanonical(*s.constant)
	}
	if s.values != nil {
		var some kinds
		for text := range s.values {
			some |= kindOfCanonical(text)
		}
		accepted &= some
	}
	for _, one := range append([]*schema{s.ref}, s.allOf...) {
		if one == nil {
			continue
		}
		of, err := t.visit(one, depth)
		if err != nil {
			return 0, err
		}
		accepted &= of
	}
	for _, alternatives := range [][]*schema{s.anyOf, s.oneOf} {
		var some kinds
		for _, one := range alternatives {
			of, err := t.visit(one, depth)
			if err != nil {
				return 0, err
			}
			some |= of
		}
		if len(alternatives) > 0 {
			accepted &= some
		}
	}
	others := []*schema{s.not, s.condition, s.then, s.otherwise}
	for i := range s.dependencies {
		others = append(others, s.dependencies[i].schema)
	}
	for _, one := range others {
		if one != nil {
			if _, err := t.visit(one, depth); err != nil {
				return 0, err
			}
		}
	}
	return accepted, nil
}
