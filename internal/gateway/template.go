package gateway

import (
	"strings"

	"github.com/keygate/keygate/internal/fault"
)

// MaxTemplate is the largest number of bytes of a route path.
const MaxTemplate = 4096

// Template is a parsed route path: an OpenAPI path template, in which text may
// stand around one or more parameters of a segment, or a path that ends in /*
// and stands for everything below (contract, 4.2). The zero value is none.
type Template struct {
	text     string
	place    string
	segments []segment
}

// segmentKind orders segments from the most to the least specific.
type segmentKind uint8

const (
	literalSegment segmentKind = iota
	textSegment                // text around one or more parameters, or several parameters
	paramSegment               // one parameter alone
	wildcardSegment
)

// segment is one segment of a template, in the normal form of NormalizePath.
type segment struct {
	kind segmentKind
	// texts are the pieces before, between and after the parameters of a
	// textSegment, or the text of a literalSegment alone.
	texts []string
	size  int // bytes of text
}

// ParseTemplate reads a route path. The error is a validation error without a
// field.
func ParseTemplate(s string) (Template, error) {
	switch {
	case s == "" || s[0] != '/':
		return Template{}, fault.Invalid("", "a path must begin with a slash, as in /users/{id}")
	case len(s) > MaxTemplate:
		return Template{}, fault.Invalid("", "a path must have at most %d bytes", MaxTemplate)
	}
	t := Template{text: s}
	names := map[string]bool{}
	var raw, example, place strings.Builder // the template with an x, as written and in the normal form, or {}, for each parameter
	rest := s[1:]
	for more := true; more; {
		var text string
		text, rest, more = cutSegment(rest)
		if text == "*" {
			if more {
				return Template{}, fault.Invalid("", "a * may stand only as the last segment of a path, for everything below")
			}
			t.segments = append(t.segments, segment{kind: wildcardSegment})
			raw.WriteString("/x")
			example.WriteString("/x")
			place.WriteString("/*")
			break
		}
		raw.WriteByte('/')
		seg, err := parseSegment(text, names, &raw)
		if err != nil {
			return Template{}, err
		}
		t.segments = append(t.segments, seg)
		example.WriteString("/" + seg.join("x"))
		place.WriteString("/" + seg.join("{}"))
	}
	// Whatever a request may not hold could never match. The text is looked at as
	// it was written, too: decoding may make an escape out of a stray %.
	for _, path := range []string{raw.String(), example.String()} {
		if problem, _ := InspectPath(path); problem != "" {
			return Template{}, fault.Invalid("", "%s", problem)
		}
	}
	t.place = place.String()
	return t, nil
}

// cutSegment cuts s after its first segment: at the first slash, for none may
// stand in a parameter's name.
func cutSegment(s string) (first, rest string, more bool) { return strings.Cut(s, "/") }

// parseSegment reads one segment that is no wildcard. It adds the names of
// parameters to names, and to raw the segment with an x for each of them.
func parseSegment(s string, names map[string]bool, raw *strings.Builder) (segment, error) {
	whole := s
	var seg segment
	add := func(text string) error {
		if strings.ContainsAny(text, "}") {
			return fault.Invalid("", "the segment %q has a } without a {", whole)
		}
		if strings.ContainsAny(text, "*") {
			return fault.Invalid("", "the segment %q has a *: it may stand only alone, as the last segment, for everything below", whole)
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
			return segment{}, fault.Invalid("", "the parameter {%s} stands twice in the path", name)
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

// matches reports whether a segment of a path, in the normal form, matches. Each
// piece is taken where it first fits behind a parameter of at least one byte,
// and the last where it ends the segment; if that fails nothing else fits.
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

// compare orders segments from the most specific to the least: a literal, text
// with a parameter (more text first, then fewer parameters), a parameter, a
// wildcard. What is equal so far goes by its text, so that the order does not
// depend on who came first.
func (s *segment) compare(o *segment) int {
	switch {
	case s.kind != o.kind:
		return int(s.kind) - int(o.kind)
	case s.size != o.size && s.kind == textSegment:
		return o.size - s.size
	case len(s.texts) != len(o.texts):
		return len(s.texts) - len(o.texts)
	default:
		return strings.Compare(s.join("{}"), o.join("{}"))
	}
}

// String returns the template as it was written.
func (t Template) String() string { return t.text }

// Place returns the template with the names of its parameters left out and in
// the normal form of NormalizePath: templates of one place match the same paths.
func (t Template) Place() string { return t.place }

// Matches reports whether the template matches a path in the normal form.
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
