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

// scalar returns an encoder of values that fit on the line of their name.
func scalar[T any](text func(T) string) func(*bytes.Buffer, T) {
	return func(b *bytes.Buffer, value T) { b.WriteString(" " + text(value) + "\n") }
}

// textValue is a string of so many characters.
func textValue(least, most int) valueType[string] {
	return valueType[string]{readText, scalar(yamlString), schema{"type": "string", "minLength": least, "maxLength": most}}
}

// durationValue is a Go duration.
func durationValue() valueType[string] {
	return valueType[string]{readText, scalar(yamlDuration), schema{"type": "string", "minLength": 2, "examples": []any{"30s"}}}
}

// yamlDuration returns a duration as a scalar. A duration of numbers with units of letters needs no
// quotes.
func yamlDuration(s string) string {
	if strings.Trim(s, "0123456789.hmsnu") == "" {
		return s
	}
	return yamlQuoted(s)
}

// certificateValue is a text in PEM that is not secret.
func certificateValue() valueType[string] {
	return valueType[string]{readText, encodeLines, schema{"type": "string", "minLength": 1}}
}

// keyValue is a private key in PEM, or Masked.
func keyValue() valueType[string] {
	return valueType[string]{readText, encodeLines, schema{"type": "string", "minLength": 1, "examples": []any{"${env:CLIENT_KEY}"}}}
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
	return valueType[int64]{readCount, scalar(func(n int64) string { return strconv.FormatInt(n, 10) }), s}
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
	return valueType[[]string]{readTexts, scalar(yamlList), schema{
		"type": "array", "minItems": 1, "maxItems": MaxKeyHeaders, "items": schema{"type": "string", "minLength": 1, "maxLength": maxHeaderName},
		"examples": []any{[]any{"X-API-Key"}},
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

func readCount(n *document.Node, field string) (int64, error) {
	if n.Kind != document.Number {
		return 0, n.Mismatch(field, document.Number, "")
	}
	count, ok := document.Integer(n.Text)
	if !ok {
		return 0, n.Invalid(field, "must be a whole number in decimal digits, such as 1048576: %q is read in several ways, or is none", document.Short(n.Text))
	}
	return count, nil
}

// readTexts reads a list of strings.
func readTexts(n *document.Node, field string) ([]string, error) {
	if n.Kind != document.Sequence {
		return nil, n.Mismatch(field, document.Sequence, "")
	}
	var problems document.Problems
	list := make([]string, len(n.Nodes))
	for i := range n.Nodes {
		var err error
		list[i], err = readText(&n.Nodes[i], fmt.Sprintf("%s[%d]", field, i))
		if problems.Add(err); problems.Full() {
			break
		}
	}
	return list, problems.Err()
}

func readHeaders(n *document.Node, field string) (map[string]string, error) {
	headers := map[string]string{}
	err := eachMember(n, field, func(m *document.Node) error {
		value, err := readText(m, field+"."+m.Name)
		headers[strings.Clone(m.Name)] = value
		return err
	})
	return headers, err
}

func readCORS(n *document.Node, field string) (CORS, error) {
	var c CORS
	err := eachMember(n, field, func(m *document.Node) (err error) {
		at := field + "." + m.Name
		switch {
		case !slices.Contains([]string{"origins", "methods", "headers", "max_age"}, m.Name):
			return m.Unknown(at, "is not a field of cors: use origins, methods, headers or max_age")
		case m.Kind == document.Null && m.Name != "origins":
			return nil
		case m.Name == "origins":
			c.Origins, err = readTexts(m, at)
		case m.Name == "methods":
			c.Methods, err = readTexts(m, at)
		case m.Name == "headers":
			c.Headers, err = readTexts(m, at)
		default:
			var seconds int64
			seconds, err = readCount(m, at)
			c.MaxAge = int(min(max(seconds, -1), maxCORSAge+1))
		}
		return err
	})
	return c.Normal(), err
}

// yamlList returns a flow sequence. It quotes what could end an item.
func yamlList(list []string) string {
	items := make([]string, len(list))
	for i, s := range list {
		items[i] = yamlString(s)
		if strings.ContainsAny(s, "{}") {
			items[i] = yamlQuoted(s)
		}
	}
	return "[" + strings.Join(items, ", ") + "]"
}

func encodeHeaders(b *bytes.Buffer, headers map[string]string) {
	if len(headers) == 0 {
		b.WriteString(" {}\n")
		return
	}
	b.WriteByte('\n')
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		fmt.Fprintf(b, "    %s: %s\n", yamlString(name), yamlString(headers[name]))
	}
}

func encodeCORS(b *bytes.Buffer, c CORS) {
	fmt.Fprintf(b, "\n    origins: %s\n", yamlList(c.Origins))
	if c.Methods != nil {
		fmt.Fprintf(b, "    methods: %s\n", yamlList(c.Methods))
	}
	if c.Headers != nil {
		fmt.Fprintf(b, "    headers: %s\n", yamlList(c.Headers))
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
		b.WriteString(" " + yamlString(text) + "\n")
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
