package adminapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

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
	if err == nil {
		if _, err = dec.ReadToken(); errors.Is(err, io.EOF) {
			return nil
		}
		line, column := lineAndColumn(body, dec.InputOffset())
		return fault.New(fault.InvalidJSON, "the request body has extra text after its JSON value, at line %d, column %d: send one JSON object", line, column)
	}
	var syntax *jsontext.SyntacticError
	switch {
	case errors.Is(err, io.EOF):
		return fault.New(fault.InvalidJSON, "the request body is empty: send a JSON object")
	case errors.Is(err, jsontext.ErrDuplicateName):
		return fault.New(fault.InvalidJSON, "the request body has the same field twice in one object: remove one")
	case errors.As(err, &syntax):
		line, column := lineAndColumn(body, syntax.ByteOffset)
		return fault.New(fault.InvalidJSON, "the request body is not valid JSON, at line %d, column %d", line, column)
	default:
		return fault.New(fault.InvalidJSON, "the request body is not valid JSON")
	}
}

// checkBody performs the part of the 422 check that a schema covers, on a body that
// checkSyntax has accepted. The error names the first invalid field, in the order
// of the body, or else the first missing field of an object.
func checkBody(schemas huma.Registry, schema *huma.Schema, body []byte) error {
	c := bodyCheck{schemas: schemas, dec: jsontext.NewDecoder(bytes.NewBuffer(body))}
	if c.dec.PeekKind() != '{' {
		return fault.New(fault.ValidationFailed, "the request body must be a JSON object")
	}
	return c.value(schema, "")
}

type bodyCheck struct {
	schemas huma.Registry
	dec     *jsontext.Decoder
}

func (c *bodyCheck) value(s *huma.Schema, field string) error {
	if s.Ref != "" {
		s = c.schemas.SchemaFromRef(s.Ref)
	}
	kind := c.dec.PeekKind()
	if kind == 'n' && s.Nullable {
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
	case huma.TypeInteger:
		want = '0'
	default:
		return fmt.Errorf("check field %s: unsupported schema type %q", field, s.Type)
	}
	switch {
	case kind == 'n':
		return fault.Invalid(field, "must not be null: give %s, or omit the field if it is optional", describeType(s))
	case kind != want:
		return fault.Invalid(field, "must be %s", describeType(s))
	case want == '{':
		return c.object(s, field)
	case want == '[':
		return c.array(s, field)
	case want == '"':
		return c.text(s, field)
	default:
		return c.integer(s, field)
	}
}

// oneOf checks a value against the one of two forms that fits its kind: one form
// is a string, and the other is not.
func (c *bodyCheck) oneOf(forms []*huma.Schema, field string) error {
	kind := c.dec.PeekKind()
	for _, s := range forms {
		if (s.Type == huma.TypeString) == (kind == '"') {
			return c.value(s, field)
		}
	}
	return fault.Invalid(field, "must be %s", describeType(forms[0]))
}

func (c *bodyCheck) object(s *huma.Schema, field string) error {
	if _, err := c.dec.ReadToken(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for c.dec.PeekKind() != '}' {
		token, err := c.dec.ReadToken()
		if err != nil {
			return err
		}
		name := token.String()
		seen[name] = true
		path := name
		if field != "" {
			path = field + "." + name
		}
		property := s.Properties[name]
		if property == nil {
			property, _ = s.AdditionalProperties.(*huma.Schema)
		}
		if property == nil {
			return fault.Invalid(path, "is not a valid field: remove it or check its spelling; valid fields are %s", join(slices.Sorted(maps.Keys(s.Properties)), " and "))
		}
		if err := c.value(property, path); err != nil {
			return err
		}
	}
	if _, err := c.dec.ReadToken(); err != nil {
		return err
	}
	for _, name := range s.Required {
		if !seen[name] {
			if field != "" {
				name = field + "." + name
			}
			return fault.Invalid(name, "is required: add it")
		}
	}
	if s.MaxProperties != nil && len(seen) > *s.MaxProperties {
		return fault.Invalid(field, "must have at most %d entries", *s.MaxProperties)
	}
	return nil
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
		return fault.Invalid(field, "must have at least %s", countOf(*s.MinItems, "item"))
	}
	if s.MaxItems != nil && n > *s.MaxItems {
		return fault.Invalid(field, "must have at most %s", countOf(*s.MaxItems, "item"))
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
		return fault.Invalid(field, "must be %s", describeType(s))
	case s.MinLength != nil && n < *s.MinLength:
		return fault.Invalid(field, "must not be empty")
	case s.MaxLength != nil && n > *s.MaxLength:
		return fault.Invalid(field, "must have at most %d characters", *s.MaxLength)
	}
	return nil
}

func (c *bodyCheck) integer(s *huma.Schema, field string) error {
	token, err := c.dec.ReadToken()
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(token.String(), 10, 64)
	switch {
	case err != nil, s.Minimum != nil && n < int64(*s.Minimum), s.Maximum != nil && n > int64(*s.Maximum):
		return fault.Invalid(field, "must be %s", describeType(s))
	}
	return nil
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
	case s.Minimum != nil && s.Maximum != nil:
		return fmt.Sprintf("an integer between %d and %d", int64(*s.Minimum), int64(*s.Maximum))
	case s.Minimum != nil:
		return fmt.Sprintf("an integer of at least %d", int64(*s.Minimum))
	default:
		return "an integer"
	}
}
