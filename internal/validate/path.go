package validate

import (
	"strings"

	"github.com/keygate/keygate/internal/gateway"
)

// template is a path of a document, whose segments combine text with parameters.
type template struct{ segments []templateSegment }

// templateSegment has one text more than names: texts[0] names[0] texts[1] …
type templateSegment struct{ texts, names []string }

// parseTemplate parses a path that gateway.ParseTemplate accepts.
func parseTemplate(path string) template {
	var t template
	for text := range strings.SplitSeq(path, "/") {
		var s templateSegment
		for {
			before, after, found := strings.Cut(text, "{")
			s.texts = append(s.texts, strings.Clone(gateway.NormalizePath(nil, before)))
			if !found {
				break
			}
			var name string
			name, text, _ = strings.Cut(after, "}")
			s.names = append(s.names, strings.Clone(name))
		}
		t.segments = append(t.segments, s)
	}
	return t
}

// value returns the text of a parameter in a path in normal form that matches t. Of several parameters in a segment, each but
// the last is as short as can be, as in the regular expression (.+?)-(.+).
func (t *template) value(path, name string) (raw string, ok bool) {
	for i := range t.segments {
		text, rest, _ := strings.Cut(path, "/")
		path = rest
		s := &t.segments[i]
		if len(s.names) == 0 {
			continue
		}
		if len(text) < len(s.texts[0]) {
			return "", false
		}
		text = text[len(s.texts[0]):]
		for j := range s.names {
			value, after := s.cut(text, j)
			if s.names[j] == name {
				return value, value != ""
			}
			text = after
		}
	}
	return "", false
}

// cut cuts the value of parameter j from text, which begins with it, and the text that follows it.
func (s *templateSegment) cut(text string, j int) (value, after string) {
	next := s.texts[j+1]
	if j == len(s.names)-1 {
		return text[:max(0, len(text)-len(next))], ""
	}
	if text == "" {
		return "", ""
	}
	i := strings.Index(text[1:], next)
	if i < 0 {
		return "", ""
	}
	return text[:1+i], text[1+i+len(next):]
}
