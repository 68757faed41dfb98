package gateway

import (
	"strings"

	"github.com/keygate/keygate/internal/fault"
)

// MaxTemplate is the maximum number of bytes of a route path.
const MaxTemplate = 4096

// Template is a parsed route path: an OpenAPI path template, whose segments may combine
// text with one or more parameters. A template that ends in /* matches everything below
// (contract, 4.2). The zero value matches nothing.
type Template struct {
	text     string
	normal   string // text in the normal form of NormalizePath; shares memory with text if that has this form already
	pattern  string
	segments []segment
}

// segmentKind orders segments from the most to the least specific.
type segmentKind uint8

const (
	literalSegment segmentKind = iota
	textSegment                // text with one or more parameters, or several parameters
	paramSegment               // one parameter and no text
	wildcardSegment
)

// segment is one segment of a template, in the normal form of NormalizePath.
type segment struct {
	kind segmentKind
	// texts are the pieces before, between and after the parameters of a textSegment, or
	// the one text of a literalSegment.
	texts []string
	size  int // bytes of text
}

// ParseTemplate parses a route path. The error is a validation error without a field.
func ParseTemplate(s string) (Template, error) {
	switch {
	case s == "" || s[0] != '/':
		return Template{}, fault.Invalid("", "a path must start with a slash, as in /users/{id}")
	case len(s) > MaxTemplate:
		return Template{}, fault.Invalid("", "a path must have at most %d bytes", MaxTemplate)
	}
	t := Template{text: s}
	names := map[string]bool{}
	// The template with each parameter replaced: by x, as written and in normal form, and
	// by {}.
	var raw, example, pattern strings.Builder
	rest := s[1:]
	for more := true; more; {
		var text string
		text, rest, more = cutSegment(rest)
		if text == "*" {
			if more {
				return Template{}, fault.Invalid("", "a * is allowed only as the last segment of a path, where it matches everything below")
			}
			t.segments = append(t.segments, segment{kind: wildcardSegment})
			raw.WriteString("/x")
			example.WriteString("/x")
			pattern.WriteString("/*")
			break
		}
		raw.WriteByte('/')
		seg, err := parseSegment(text, names, &raw)
		if err != nil {
			return Template{}, err
		}
		t.segments = append(t.segments, seg)
		example.WriteString("/" + seg.join("x"))
		pattern.WriteString("/" + seg.join("{}"))
	}
	// A template that no valid request can match is rejected. Its raw text is checked too,
	// because decoding may turn a stray % into an escape.
	for _, path := range []string{raw.String(), example.String()} {
		if problem, _ := InspectPath(path); problem != "" {
			return Template{}, fault.Invalid("", "%s", problem)
		}
	}
	t.pattern = pattern.String()
	t.normal = normalTemplate(s)
	return t, nil
}

// normalTemplate returns a valid template with its text in the normal form of NormalizePath
// and the names of its parameters as they are.
func normalTemplate(s string) string {
	var out []byte // nil while nothing has changed
	for i := 0; i < len(s); {
		open, next := len(s), len(s)
		if j := strings.IndexByte(s[i:], '{'); j >= 0 {
			open = i + j
			next = open + strings.IndexByte(s[open:], '}') + 1
		}
		text := NormalizePath(nil, s[i:open])
		if out == nil && text != s[i:open] {
			out = append(make([]byte, 0, len(s)+8), s[:i]...)
		}
		if out != nil {
			out = append(append(out, text...), s[open:next]...)
		}
		i = next
	}
	if out == nil {
		return s
	}
	return string(out)
}

// cutSegment cuts s after its first segment. Parameter names contain no slash.
func cutSegment(s string) (first, rest string, more bool) { return strings.Cut(s, "/") }

// parseSegment parses a segment other than a wildcard. It adds the parameter names to names,
// and adds the segment, with an x for each parameter, to raw.
func parseSegment(s string, names map[string]bool, raw *strings.Builder) (segment, error) {
	whole := s
	var seg segment
	add := func(text string) error {
		if strings.ContainsAny(text, "}") {
			return fault.Invalid("", "the segment %q has a } without a {", whole)
		}
		if strings.ContainsAny(text, "*") {
			return fault.Invalid("", "the segment %q has a *: it is allowed only alone, as the last segment, where it matches everything below", whole)
		}
		if len(seg.texts) > 0 {
			raw.WriteByte('x')
		}
		raw.WriteString(text)
		text = NormalizePath(nil, text)
		seg.texts = append(seg.texts, text)
		seg.size += len(text)
		return nil
	}
	for {
		before, after, found := strings.Cut(s, "{")
		if err := add(before); err != nil {
			return segment{}, err
		}
		if !found {
			break
		}
		name, after, closed := strings.Cut(after, "}")
		switch {
		case !closed || strings.Contains(name, "{"):
			return segment{}, fault.Invalid("", "the segment %q has a { without a }", whole)
		case name == "":
			return segment{}, fault.Invalid("", "the segment %q has a parameter without a name", whole)
		case names[name]:
			return segment{}, fault.Invalid("", "the path has the parameter {%s} twice: rename one", name)
		}
		names[name] = true
		s = after
	}
	switch {
	case len(seg.texts) == 1:
		seg.kind = literalSegment
	case len(seg.texts) == 2 && seg.size == 0:
		seg.kind, seg.texts = paramSegment, nil
	default:
		seg.kind = textSegment
	}
	return seg, nil
}

// join returns the segment with param for each parameter.
func (s *segment) join(param string) string {
	if s.kind == paramSegment {
		return param
	}
	return strings.Join(s.texts, param)
}

// matches reports whether s matches a segment of a path in normal form. Parameters match at
// least one byte. The match is greedy: each piece of text matches at its first occurrence,
// and the last at the end of the segment; if this fails, no other way of matching succeeds.
func (s *segment) matches(text string) bool {
	switch s.kind {
	case literalSegment:
		return text == s.texts[0]
	case paramSegment:
		return text != ""
	case wildcardSegment:
		return true
	}
	return matchTexts(s.texts, text)
}

// matchTexts is search.matchText for a segment that is split into its texts.
func matchTexts(texts []string, text string) bool {
	last := len(texts) - 1
	first, end := texts[0], texts[last]
	if len(text) <= len(first)+len(end) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, end) {
		return false
	}
	text = text[len(first) : len(text)-len(end)]
	for _, piece := range texts[1:last] {
		i := strings.Index(text[1:], piece)
		if i < 0 {
			return false
		}
		if text = text[1+i+len(piece):]; text == "" {
			return false
		}
	}
	return true
}

// String returns the template as it was written.
func (t Template) String() string { return t.text }

// Pattern returns the template in normal form with its parameter names removed. Templates
// with equal patterns match the same paths.
func (t Template) Pattern() string { return t.pattern }

// Matches reports whether the template matches a path in the normal form of
// NormalizePath.
func (t Template) Matches(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	rest, more := path[1:], true
	for i := range t.segments {
		if !more {
			return false
		}
		if t.segments[i].kind == wildcardSegment {
			return true
		}
		var text string
		text, rest, more = cutSegment(rest)
		if !t.segments[i].matches(text) {
			return false
		}
	}
	return !more
}
