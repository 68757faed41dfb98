package gateway

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/ratelimit"
)

// valueType is a type of values of a configuration file.
type valueType[T any] struct {
	read   func(n *document.Node, field string) (T, error)
	encode func(b *bytes.Buffer, value T) // after "  name:", with the line break
	schema schema
}

// withDoc returns the schema with a description.
func (v valueType[T]) withDoc(text string) schema {
	s := maps.Clone(v.schema)
	s["description"] = text
	return s
}

// scalar returns an encoder of values that fit on the line of their name.
func scalar[T any](text func(T) string) func(*bytes.Buffer, T) {
	return func(b *bytes.Buffer, value T) { b.WriteString(" " + text(value) + "\n") }
}

// textValue is a string of so many characters.
func textValue(least, most int) valueType[string] {
	return valueType[string]{(*document.Node).ReadText, scalar(document.Scalar), schema{"type": "string", "minLength": least, "maxLength": most}}
}

// choiceValue is one of several strings.
func choiceValue(choices []string) valueType[string] {
	return valueType[string]{(*document.Node).ReadText, scalar(document.Scalar), schema{"type": "string", "enum": choices}}
}

// durationValue is a Go duration.
func durationValue() valueType[string] {
	return valueType[string]{(*document.Node).ReadText, scalar(yamlDuration), schema{"type": "string", "minLength": 2, "examples": []any{"30s"}}}
}

// yamlDuration returns a duration as a scalar. A duration of numbers with units of letters needs no
// quotes.
func yamlDuration(s string) string {
	if strings.Trim(s, "0123456789.hmsnu") == "" {
		return s
	}
	return document.Quoted(s)
}

// certificateValue is a text in PEM that is not secret.
func certificateValue() valueType[string] {
	return valueType[string]{(*document.Node).ReadText, encodeLines, schema{"type": "string", "minLength": 1}}
}

// keyValue is a private key in PEM, or Masked.
func keyValue() valueType[string] {
	return valueType[string]{(*document.Node).ReadText, encodeLines, schema{"type": "string", "minLength": 1, "examples": []any{"${env:CLIENT_KEY}"}}}
}

func boolValue() valueType[bool] {
	return valueType[bool]{readBool, scalar(strconv.FormatBool), schema{"type": "boolean"}}
}

// countValue is a whole number from least to most; 0 for most means no maximum.
func countValue(least, most int64) valueType[int64] {
	s := schema{"type": "integer", "minimum": least}
	if most > 0 {
		s["maximum"] = most
	}
	return valueType[int64]{(*document.Node).ReadCount, scalar(func(n int64) string { return strconv.FormatInt(n, 10) }), s}
}

func globalLimitValue() valueType[ratelimit.Config] {
	return valueType[ratelimit.Config]{ReadLimit, scalar(yamlLimit), globalLimitSchema()}
}

func headersValue() valueType[map[string]string] {
	return valueType[map[string]string]{readHeaders, encodeHeaders, schema{
		"type": "object", "maxProperties": MaxUpstreamHeaders, "additionalProperties": schema{"type": "string", "maxLength": maxUpstreamHeaderSet},
		"examples": []any{schema{"X-Tenant": "${env:TENANT}"}},
	}}
}

func keyHeadersValue() valueType[[]string] {
	return valueType[[]string]{(*document.Node).ReadTexts, scalar(document.Flow), schema{
		"type": "array", "minItems": 1, "maxItems": MaxKeyHeaders, "items": schema{"type": "string", "minLength": 1, "maxLength": maxHeaderName},
		"examples": []any{[]any{"X-API-Key"}},
	}}
}

func issuersValue() valueType[[]string] {
	return valueType[[]string]{(*document.Node).ReadTexts, scalar(document.Flow), schema{
		"type": "array", "maxItems": MaxIssuers, "items": schema{"type": "string", "minLength": 1, "maxLength": maxPlanName},
		"examples": []any{[]any{"login"}},
	}}
}

func corsValue() valueType[CORS] {
	list := func(doc string, least int) schema {
		return schema{"type": "array", "minItems": least, "maxItems": maxCORSMembers, "items": schema{"type": "string", "minLength": 1}, "description": doc}
	}
	return valueType[CORS]{readCORS, encodeCORS, schema{
		"type": "object", "additionalProperties": false, "required": []any{"origins"},
		"properties": schema{
			"origins": list("Allowed origins, such as https://app.example.com, or * for all.", 1),
			"methods": orNull(list("Allowed methods, in upper case.", 0)),
			"headers": orNull(list("Allowed request headers.", 0)),
			"max_age": orNull(schema{"type": "integer", "minimum": 0, "maximum": maxCORSAge, "description": "How long a browser may cache a preflight response, in seconds."}),
		},
	}}
}

func readBool(n *document.Node, field string) (bool, error) {
	switch {
	case n.Kind != document.Bool:
		return false, n.Mismatch(field, document.Bool, "true or false")
	case strings.EqualFold(n.Text, "true"):
		return true, nil
	case strings.EqualFold(n.Text, "false"):
		return false, nil
	}
	return false, n.Invalid(field, "must be true or false") // !!bool yes
}

func readHeaders(n *document.Node, field string) (map[string]string, error) {
	headers := map[string]string{}
	err := n.EachMember(field, func(m *document.Node) error {
		value, err := m.ReadText(field + "." + m.Name)
		headers[strings.Clone(m.Name)] = value
		return err
	})
	return headers, err
}

func readCORS(n *document.Node, field string) (CORS, error) {
	var c CORS
	err := n.EachMember(field, func(m *document.Node) (err error) {
		at := field + "." + m.Name
		switch {
		case !slices.Contains([]string{"origins", "methods", "headers", "max_age"}, m.Name):
			return m.Unknown(at, "is not a field of cors: use origins, methods, headers or max_age")
		case m.Kind == document.Null && m.Name != "origins":
			return nil
		case m.Name == "origins":
			c.Origins, err = m.ReadTexts(at)
		case m.Name == "methods":
			c.Methods, err = m.ReadTexts(at)
		case m.Name == "headers":
			c.Headers, err = m.ReadTexts(at)
		default:
			var seconds int64
			seconds, err = m.ReadCount(at)
			c.MaxAge = int(min(max(seconds, -1), maxCORSAge+1))
		}
		return err
	})
	return c.Normal(), err
}

func encodeHeaders(b *bytes.Buffer, headers map[string]string) {
	if len(headers) == 0 {
		b.WriteString(" {}\n")
		return
	}
	b.WriteByte('\n')
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		fmt.Fprintf(b, "    %s: %s\n", document.Scalar(name), document.Scalar(headers[name]))
	}
}

func encodeCORS(b *bytes.Buffer, c CORS) {
	fmt.Fprintf(b, "\n    origins: %s\n", document.Flow(c.Origins))
	if c.Methods != nil {
		fmt.Fprintf(b, "    methods: %s\n", document.Flow(c.Methods))
	}
	if c.Headers != nil {
		fmt.Fprintf(b, "    headers: %s\n", document.Flow(c.Headers))
	}
	if c.MaxAge != 0 {
		fmt.Fprintf(b, "    max_age: %d\n", c.MaxAge)
	}
}

// encodeLines writes a text of several lines as a block, if every parser reads that block as
// the text, and otherwise in quotes.
func encodeLines(b *bytes.Buffer, text string) {
	body, ends := strings.CutSuffix(text, "\n")
	if !isBlock(body) {
		b.WriteString(" " + document.Scalar(text) + "\n")
		return
	}
	if b.WriteString(" |"); !ends {
		b.WriteByte('-')
	}
	b.WriteByte('\n')
	for line := range strings.SplitSeq(body, "\n") {
		b.WriteString("    " + line + "\n")
	}
}

// isBlock reports whether a text without its last line break is two or more lines of printable
// ASCII. No line may be empty, or begin or end with a space.
func isBlock(text string) bool {
	lines := strings.Split(text, "\n")
	for _, line := range lines {
		if line == "" || strings.Trim(line, " ") != line || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
			return false
		}
	}
	return len(lines) > 1
}
