package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/keygate/keygate/internal/document"
)

// objectPart is a member with an object, which null leaves out. required are the members that it must have.
func objectPart[T any](name string, to **T, parts func(*T) []part, required ...string) part {
	var none T
	list := make([]any, len(required))
	for i, s := range required {
		list[i] = s
	}
	return part{name, func(m *document.Node, at string) error {
		var v T
		var problems document.Problems
		problems.Add(readParts(m, at, name, parts(&v)))
		if m.Kind == document.Mapping {
			for _, s := range required {
				if m.Member(s) == nil && !m.HasLike(s) {
					problems.Add(m.Invalid(at+"."+s, "is missing"))
				}
			}
		}
		*to = &v
		return problems.Err()
	}, schemaOf(parts(&none), list...)}
}

// wholePart is a member with a whole number.
func wholePart(name string, to *int64, s schema) part {
	return part{name, func(m *document.Node, at string) (err error) {
		*to, err = m.ReadCount(at)
		return err
	}, s}
}

func (r *Redirect) parts() []part {
	return []part{
		textPart("to", &r.To, schema{"type": "string", "minLength": 1, "maxLength": MaxRedirectTo, "description": "Value of Location, as it is: a URL, or a path with an optional query.", "examples": []any{"https://example.com"}}),
		wholePart("status", &r.Status, schema{"enum": []any{301, 302, 307, 308}, "description": "Status of the redirect. 307 and 308 keep the method and the body."}),
		boolPart("keep_path", &r.KeepPath, "Append the path of the request, as it came. Default: false."),
		boolPart("keep_query", &r.KeepQuery, "Append the query of the request, without api_key. Default: false."),
	}
}

func (r *Respond) parts() []part {
	return []part{
		wholePart("status", &r.Status, schema{"type": "integer", "minimum": 200, "maximum": 599, "description": "Status of the response."}),
		textPart("content_type", &r.ContentType, orNull(schema{"type": "string", "minLength": 1, "maxLength": maxHeaderName, "description": "Media type of the body.", "examples": []any{"application/json"}})),
		textPart("body", &r.Body, orNull(schema{"type": "string", "maxLength": MaxRespondBody, "description": "Body of the response, at most 64 KiB. Default: none."})),
		{"headers", func(m *document.Node, at string) (err error) {
			r.Headers, err = readHeaders(m, at)
			return err
		}, orNull(ruleHeadersSchema("Headers of the response."))},
	}
}

func ruleHeadersSchema(doc string) schema {
	return schema{"type": "object", "maxProperties": MaxHeaderRules, "additionalProperties": schema{"type": "string", "maxLength": maxHeaderRuleBytes}, "description": doc}
}

// handlingSchemas adds the schemas of the fields of a route that are its Handling.
func handlingSchemas(properties schema) {
	for _, f := range handlingFields() {
		p := f.part(&Handling{})
		properties[f.name] = withDescription(orNull(p.schema), f.doc)
	}
}

// ReadHandling reads a field of a route from a document into h, without checking it. known is false if the field is none of a Handling. A field
// that is null is absent. The error is a validation error with the positions.
func ReadHandling(h *Handling, name string, m *document.Node, at string) (known bool, err error) {
	for _, f := range handlingFields() {
		if f.name != name {
			continue
		}
		if m.Kind == document.Null {
			return true, nil
		}
		if err := f.part(h).read(m, at); err != nil {
			f.copyTo(h, &Handling{}) // what is not known is not checked
			return true, err
		}
		if !f.present(h) && !f.mayBeEmpty {
			return true, m.Invalid(at, "must not be empty: leave it out instead")
		}
		return true, nil
	}
	return false, nil
}

// ParseRespond parses a file with the response of a route alone, a mapping in YAML or JSON. The error is as from ParseDocument.
func ParseRespond(content []byte) (*Respond, error) {
	var h Handling
	_, err := ReadFile(content, func(root *document.Node) error {
		if _, err := ReadHandling(&h, "respond", root, ""); err != nil {
			return err
		}
		if h.Respond == nil {
			return root.Mismatch("", document.Mapping, "")
		}
		return withPosition(h.Respond.check(), root, "")
	})
	return h.Respond, err
}

// handlingMembers returns the members of a route in a file for its handling, which may be nil.
func handlingMembers(h *Handling) (list []member) {
	if h == nil {
		return nil
	}
	for _, f := range handlingFields() {
		if f.present(h) {
			list = append(list, member{f.name, flowOf(f.value(h)), nil})
		}
	}
	return list
}

// flowOf returns a value of the API as YAML in one line.
func flowOf(v any) string {
	content, err := json.Marshal(v)
	if err != nil {
		panic(err) // it consists of texts, numbers and bools
	}
	d := json.NewDecoder(bytes.NewReader(content))
	d.UseNumber()
	return flowNext(d)
}

// flowNext writes the next value of a JSON text as YAML in one line, with the members in their order.
func flowNext(d *json.Decoder) string {
	t, _ := d.Token()
	switch t := t.(type) {
	case json.Delim:
		var items []string
		for d.More() {
			name := ""
			if t == '{' {
				token, _ := d.Token()
				text, _ := token.(string)
				name = inFlow(text) + ": "
			}
			items = append(items, name+flowNext(d))
		}
		_, _ = d.Token()
		if t == '{' {
			return "{" + strings.Join(items, ", ") + "}"
		}
		return "[" + strings.Join(items, ", ") + "]"
	case string:
		return inFlow(t)
	default:
		return fmt.Sprint(t)
	}
}
