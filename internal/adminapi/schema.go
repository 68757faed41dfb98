package adminapi

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
)

// unmarshal decodes JSON that checkSyntax has accepted. Field names are
// case-sensitive.
func unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// checkSyntax performs the 400 check of a JSON body: it must be exactly one value,
// in UTF-8, and no object may have a field twice.
func checkSyntax(body []byte) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(body))
	_, err := dec.ReadValue()
	end := int(dec.InputOffset())
	if err == nil {
		if _, err = dec.ReadToken(); errors.Is(err, io.EOF) {
			return nil
		}
		err = document.ErrTrailing
	} else if errors.Is(err, io.EOF) {
		return fault.New(fault.InvalidJSON, "the request body is empty: send a JSON object")
	}
	at, message := document.ExplainJSON(string(body), end, err)
	return fault.New(fault.InvalidJSON, "the request body is not valid JSON, at line %d, column %d: %s", at.Line, at.Column, message)
}

// errEnough ends the check of a body that has fault.MaxProblems problems.
var errEnough = errors.New("the body has more problems than a response lists")

// checkedBody is a JSON body after checkBody.
type checkedBody struct {
	problems []fault.Problem // in the order of the body; the missing fields of an object follow its others
	content  []byte          // the body with null in place of each value that cannot be decoded, and integers in digits; nil if there are too many problems to go on
	order    map[string]int  // position of each field of the body itself
}

// checkBody performs the part of the 422 check that a schema covers, on a body that
// checkSyntax has accepted. It returns an error only if the schema or the decoder fails.
func checkBody(schemas huma.Registry, schema *huma.Schema, body []byte) (checkedBody, error) {
	// checkSyntax has refused duplicate names.
	c := bodyCheck{schemas: schemas, dec: jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true))}
	if c.dec.PeekKind() != '{' {
		return checkedBody{problems: []fault.Problem{{Message: "the request body must be a JSON object"}}}, nil
	}
	err := c.value(schema, "")
	out := checkedBody{problems: c.problems, order: c.order}
	switch {
	case errors.Is(err, errEnough):
		return out, nil
	case err != nil:
		return out, err
	}
	out.content = replaced(body, c.replacements)
	return out, nil
}

// replacement is a value of a body with what is decoded in its place.
type replacement struct {
	start, end int64
	by         string
}

// replaced returns body with the given values replaced. The values are in ascending order and do
// not overlap.
func replaced(body []byte, values []replacement) []byte {
	if len(values) == 0 {
		return body
	}
	var out []byte
	from := int64(0)
	for _, v := range values {
		out = append(append(out, body[from:v.start]...), v.by...)
		from = v.end
	}
	return append(out, body[from:]...)
}

// nullType is the type of the form null.
const nullType = "null"

type bodyCheck struct {
	schemas      huma.Registry
	dec          *jsontext.Decoder
	problems     []fault.Problem
	replacements []replacement
	order        map[string]int
}

// report adds a problem. It fails if that was the last one that a response lists.
func (c *bodyCheck) report(field, format string, args ...any) error {
	c.problems = append(c.problems, fault.Problem{Field: field, Message: fmt.Sprintf(format, args...)})
	if len(c.problems) == fault.MaxProblems {
		return errEnough
	}
	return nil
}

// skip skips a value that cannot be decoded and reports it.
func (c *bodyCheck) skip(field, format string, args ...any) error {
	v, err := c.dec.ReadValue()
	if err != nil {
		return err
	}
	c.replace(v, nullType)
	return c.report(field, format, args...)
}

// replace puts other JSON in the place of v, the value that was read last.
func (c *bodyCheck) replace(v jsontext.Value, by string) {
	end := c.dec.InputOffset()
	c.replacements = append(c.replacements, replacement{end - int64(len(v)), end, by})
}

func (c *bodyCheck) value(s *huma.Schema, field string) error {
	if s.Ref != "" {
		s = c.schemas.SchemaFromRef(s.Ref)
	}
	kind := c.dec.PeekKind()
	if kind == 'n' && s.Nullable || isCostInput(s) || isAny(s) {
		return c.dec.SkipValue()
	}
	if len(s.OneOf) > 0 {
		return c.oneOf(s.OneOf, field)
	}
	var want jsontext.Kind
	switch s.Type {
	case huma.TypeObject:
		want = '{'
	case huma.TypeArray:
		want = '['
	case huma.TypeString:
		want = '"'
	case huma.TypeInteger, huma.TypeNumber:
		want = '0'
	case huma.TypeBoolean:
		if want = 'f'; kind == 't' {
			kind = want
		}
	default:
		return fmt.Errorf("check field %s: unsupported schema type %q", field, s.Type)
	}
	switch {
	case kind == 'n':
		return c.skip(field, "must not be null: give %s, or omit the field if it is optional", describeType(s))
	case kind != want:
		return c.skip(field, "must be %s", describeType(s))
	case want == '{':
		return c.object(s, field)
	case want == '[':
		return c.array(s, field)
	case want == '"':
		return c.text(s, field)
	case want == 'f', s.Type == huma.TypeNumber: // whose value is checked with its setting
		return c.dec.SkipValue()
	default:
		return c.integer(s, field)
	}
}

// oneOf checks a value against one of two forms, of which one is a string and the other is not, or the other is false: the
// form of the value's own kind. A third form may be null.
func (c *bodyCheck) oneOf(forms []*huma.Schema, field string) error {
	kind := c.dec.PeekKind()
	if slices.ContainsFunc(forms, func(s *huma.Schema) bool { return s.Type == huma.TypeBoolean }) {
		switch kind {
		case 'f':
			return c.dec.SkipValue()
		case 't':
			return c.skip(field, "must be %s, or false", describeType(forms[0]))
		}
	}
	for _, s := range forms {
		switch {
		case s.Type == nullType && kind == 'n':
			return c.dec.SkipValue()
		case s.Type == huma.TypeBoolean:
		case s.Type != nullType && kind != 'n' && (s.Type == huma.TypeString) == (kind == '"'):
			return c.value(s, field)
		}
	}
	return c.skip(field, "must be %s", describeType(forms[0]))
}

func (c *bodyCheck) object(s *huma.Schema, field string) error {
	if _, err := c.dec.ReadToken(); err != nil {
		return err
	}
	seen := map[string]int{}
	if field == "" {
		c.order = seen
	}
	for c.dec.PeekKind() != '}' {
		token, err := c.dec.ReadToken()
		if err != nil {
			return err
		}
		name := token.String()
		if len(seen) == maxMembers {
			return cmp.Or(c.report(field, "must have at most %d entries", maxMembers), errEnough)
		}
		seen[name] = len(seen)
		if err := c.member(s, field, name); err != nil {
			return err
		}
	}
	if _, err := c.dec.ReadToken(); err != nil {
		return err
	}
	for _, name := range s.Required {
		if _, given := seen[name]; given {
			continue
		}
		if err := c.report(below(field, name), "is required: add it"); err != nil {
			return err
		}
	}
	if s.MaxProperties != nil && len(seen) > *s.MaxProperties {
		return c.report(field, "must have at most %d entries", *s.MaxProperties)
	}
	return nil
}

// maxMembers is how many fields of an object are checked, which is more than any may have.
const maxMembers = 1000

// member checks the value of the field name of an object.
func (c *bodyCheck) member(s *huma.Schema, field, name string) error {
	property := s.Properties[name]
	if property == nil {
		property, _ = s.AdditionalProperties.(*huma.Schema)
	}
	if property != nil {
		return c.value(property, below(field, name))
	}
	if err := c.dec.SkipValue(); err != nil {
		return err
	}
	return c.report(below(field, name), "is not a valid field: remove it or check its spelling; valid fields are %s", join(slices.Sorted(maps.Keys(s.Properties)), " and "))
}

// maxShownName is how much of a field's name a path contains, in bytes.
const maxShownName = 255

// below returns the path of the field name of an object.
func below(object, name string) string {
	if len(name) > maxShownName {
		name = strings.ToValidUTF8(name[:maxShownName], "") + "…"
	}
	if object == "" {
		return name
	}
	return object + "." + name
}

func (c *bodyCheck) array(s *huma.Schema, field string) error {
	if _, err := c.dec.ReadToken(); err != nil {
		return err
	}
	n := 0
	for ; c.dec.PeekKind() != ']'; n++ {
		if err := c.value(s.Items, field+"["+strconv.Itoa(n)+"]"); err != nil {
			return err
		}
	}
	if _, err := c.dec.ReadToken(); err != nil {
		return err
	}
	if s.MinItems != nil && n < *s.MinItems {
		return c.report(field, "must have at least %s", countOf(*s.MinItems, "item"))
	}
	if s.MaxItems != nil && n > *s.MaxItems {
		return c.report(field, "must have at most %s", countOf(*s.MaxItems, "item"))
	}
	return nil
}

func (c *bodyCheck) text(s *huma.Schema, field string) error {
	token, err := c.dec.ReadToken()
	if err != nil {
		return err
	}
	v := token.String()
	switch n := utf8.RuneCountInString(v); {
	case len(s.Enum) > 0 && !slices.Contains(s.Enum, any(v)):
		return c.report(field, "must be %s", describeType(s))
	case s.MinLength != nil && n < *s.MinLength:
		return c.report(field, "must not be empty")
	case s.MaxLength != nil && n > *s.MaxLength:
		return c.report(field, "must have at most %d characters", *s.MaxLength)
	}
	return nil
}

func (c *bodyCheck) integer(s *huma.Schema, field string) error {
	v, err := c.dec.ReadValue()
	if err != nil {
		return err
	}
	n, ok := document.Integer(string(v))
	if ok && (s.Minimum == nil || n >= int64(*s.Minimum)) && (s.Maximum == nil || n <= int64(*s.Maximum)) {
		if digits := strconv.FormatInt(n, 10); digits != string(v) { // the decoder takes no other form
			c.replace(v, digits)
		}
		return nil
	}
	c.replace(v, nullType)
	return c.report(field, "must be %s", describeType(s))
}

// countOf returns "1 item", "2 items" and so on.
func countOf(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// describeType describes the values that a schema accepts, for the end of a
// sentence such as "must be …".
func describeType(s *huma.Schema) string {
	switch {
	case len(s.Enum) > 0:
		var values []string
		for _, v := range s.Enum {
			if v, isText := v.(string); isText {
				values = append(values, v)
			}
		}
		return joinOr(values)
	case s.Type == huma.TypeObject:
		return "an object"
	case s.Type == huma.TypeArray:
		return "an array"
	case s.Type == huma.TypeString:
		return "a string"
	case s.Type == huma.TypeBoolean:
		return "true or false"
	case s.Type == huma.TypeNumber && s.Minimum != nil && s.Maximum != nil:
		return fmt.Sprintf("a number between %g and %g", *s.Minimum, *s.Maximum)
	case s.Minimum != nil && s.Maximum != nil:
		return fmt.Sprintf("an integer between %d and %d", int64(*s.Minimum), int64(*s.Maximum))
	case s.Minimum != nil:
		return fmt.Sprintf("an integer of at least %d", int64(*s.Minimum))
	default:
		return "an integer"
	}
}
