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

// unmarshal reads JSON that checkSyntax has passed. Member names must match to
// the letter.
func unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// checkSyntax is the check 400 of a JSON body: exactly one value, in UTF-8,
// without a member twice in one object.
func checkSyntax(body []byte) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(body))
	_, err := dec.ReadValue()
	if err == nil {
		if _, err = dec.ReadToken(); errors.Is(err, io.EOF) {
			return nil
		}
		line, column := lineAndColumn(body, dec.InputOffset())
		return fault.New(fault.InvalidJSON, "the body goes on after its JSON value at line %d, column %d: send one JSON object", line, column)
	}
	var syntax *jsontext.SyntacticError
	switch {
	case errors.Is(err, io.EOF):
		return fault.New(fault.InvalidJSON, "the body is empty: send a JSON object")
	case errors.Is(err, jsontext.ErrDuplicateName):
		return fault.New(fault.InvalidJSON, "the body has a member twice in one object: leave one out")
	case errors.As(err, &syntax):
		line, column := lineAndColumn(body, syntax.ByteOffset)
		return fault.New(fault.InvalidJSON, "the body is not valid JSON at line %d, column %d", line, column)
	default:
		return fault.New(fault.InvalidJSON, "the body is not valid JSON")
	}
}

// checkBody is the part of the check 422 that a schema can tell, of a body that
// checkSyntax has passed. It names the first member, in the order of the body,
// that is wrong; of an object whose members are all right, the first that is
// noSuchCall.
func checkBody(schemas huma.Registry, schema *huma.Schema, body []byte) error {
	c := bodyCheck{schemas: schemas, dec: jsontext.NewDecoder(bytes.NewBuffer(body))}
	if c.dec.PeekKind() != '{' {
		return fault.New(fault.ValidationFailed, "the body must be a JSON object")
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
		return fmt.Errorf("the schema of %s has the type %q, which no body has", field, s.Type)
	}
	switch {
	case kind == 'n':
		return fault.Invalid(field, "must not be null: give %s, or leave it out if it is optional", describeType(s))
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

// oneOf takes a string as the form that is one, and anything else as the other:
// there are never more of them in a body.
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
		place := name
		if field != "" {
			place = field + "." + name
		}
		member := s.Properties[name]
		if member == nil {
			member, _ = s.AdditionalProperties.(*huma.Schema)
		}
		if member == nil {
			return fault.Invalid(place, "is no member here: leave it out, or check its spelling; there are %s", join(slices.Sorted(maps.Keys(s.Properties)), " and "))
		}
		if err := c.value(member, place); err != nil {
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
		return fault.Invalid(field, "must have at most %d members", *s.MaxProperties)
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
		return fault.Invalid(field, "must have at least %d", *s.MinItems)
	}
	if s.MaxItems != nil && n > *s.MaxItems {
		return fault.Invalid(field, "must have at most %d", *s.MaxItems)
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

// describeType says what a schema wants.
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
		return "a list"
	case s.Type == huma.TypeString:
		return "a string"
	case s.Minimum != nil && s.Maximum != nil:
		return fmt.Sprintf("a whole number from %d to %d", int64(*s.Minimum), int64(*s.Maximum))
	case s.Minimum != nil:
		return fmt.Sprintf("a whole number of at least %d", int64(*s.Minimum))
	default:
		return "a whole number"
	}
}
