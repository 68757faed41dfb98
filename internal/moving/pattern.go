package moving

import (
	"fmt"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// piece is a segment of a pattern.
type piece struct {
	kind pieceKind
	pre  string // the text before the parameter of textPiece, and that of literalPiece
	name string // of the parameter
}

type pieceKind uint8

const (
	literalPiece pieceKind = iota
	textPiece              // text and a parameter
	paramPiece
	wildPiece // everything below; the last one
)

// pattern is the path of a route of Keygate in its segments.
type pattern []piece

// String returns the pattern as the path of a route.
func (p pattern) String() string {
	var b strings.Builder
	used := map[string]bool{}
	for i, s := range p {
		b.WriteByte('/')
		name := s.name
		for n := 1; name == "" || used[name]; n++ {
			name = fmt.Sprintf("p%d", i+n)
		}
		switch s.kind {
		case literalPiece:
			b.WriteString(s.pre)
		case textPiece:
			used[name] = true
			b.WriteString(s.pre + "{" + name + "}")
		case paramPiece:
			used[name] = true
			b.WriteString("{" + name + "}")
		case wildPiece:
			b.WriteByte('*')
		}
	}
	return b.String()
}

// id returns the pattern without the names of parameters.
func (p pattern) id() string {
	var b strings.Builder
	for _, s := range p {
		b.WriteByte('/')
		switch s.kind {
		case literalPiece:
			b.WriteString(s.pre)
		case textPiece:
			b.WriteString(s.pre + "{}")
		case paramPiece:
			b.WriteString("{}")
		case wildPiece:
			b.WriteByte('*')
		}
	}
	return b.String()
}

// stem returns the text with which every path of the pattern begins.
func (p pattern) stem() string {
	var b strings.Builder
	for _, s := range p {
		b.WriteByte('/')
		b.WriteString(s.pre)
		if s.kind != literalPiece {
			break
		}
	}
	return b.String()
}

func with(p pattern, more ...piece) pattern {
	return append(append(make(pattern, 0, len(p)+len(more)), p...), more...)
}

// matches reports whether the text of a segment matches.
func (s piece) matches(text string) bool {
	switch s.kind {
	case literalPiece:
		return s.pre == text
	case textPiece:
		return len(text) > len(s.pre) && strings.HasPrefix(text, s.pre)
	case paramPiece:
		return text != ""
	}
	return true
}

func (s piece) covers(o piece) bool {
	switch {
	case s.kind == wildPiece:
		return true
	case o.kind == wildPiece:
		return false
	case o.kind == literalPiece:
		return s.matches(o.pre)
	case s.kind == paramPiece:
		return true
	case s.kind == textPiece && o.kind == textPiece:
		return strings.HasPrefix(o.pre, s.pre)
	}
	return false
}

// covers reports whether every path that o matches is one that p matches.
func (p pattern) covers(o pattern) bool {
	for i, s := range p {
		switch {
		case i >= len(o):
			return false
		case s.kind == wildPiece:
			return true
		case !s.covers(o[i]):
			return false
		}
	}
	return len(p) == len(o)
}

// and returns the segment that both match, if there is one. If neither covers the other, no text matches both.
func (s piece) and(o piece) (both piece, some bool) {
	switch {
	case s.covers(o):
		return o, true
	case o.covers(s):
		return s, true
	}
	return piece{}, false
}

// and returns the pattern of the paths that both match, if there are any.
func (p pattern) and(o pattern) (both pattern, some bool) {
	for i := 0; ; i++ {
		switch {
		case i == len(p) && i == len(o):
			return both, true
		case i < len(p) && p[i].kind == wildPiece && i < len(o):
			return with(both, o[i:]...), true
		case i < len(o) && o[i].kind == wildPiece && i < len(p):
			return with(both, p[i:]...), true
		case i == len(p) || i == len(o):
			return nil, false
		}
		s, overlap := p[i].and(o[i])
		if !overlap {
			return nil, false
		}
		both = append(both, s)
	}
}

// meets reports whether a path matches both patterns.
func (p pattern) meets(o pattern) bool {
	_, some := p.and(o)
	return some
}

// matcher is the path of a route of Kong, and what it is in patterns.
type matcher struct {
	text   string
	line   int
	prefix string // of a prefix; "" for a regular expression
	regex  bool
	narrow bool // the patterns match more than the regular expression
	hull   bool // the regular expression is no template: the patterns are those of all paths that begin as it does

	main []pattern // what a reader expects: /orders and /orders/*
	more []pattern // the rest of what a prefix means in Kong: /orders-old and below

	stems  []pattern // what strip_path cuts off, in whole segments
	ragged bool      // what strip_path cuts off may end within a segment, or be all of a longer path
}

// cut returns how many segments of the paths of p strip_path cuts off. ok is false if these are not whole segments.
func (s *matcher) cut(p pattern) (n int, ok bool) {
	for _, stem := range s.stems {
		begins := len(p) >= len(stem)
		for i := 0; begins && i < len(stem); i++ {
			begins = p[i].kind != wildPiece && stem[i].covers(p[i])
		}
		switch {
		case !begins:
		case ok && n != len(stem):
			return 0, false
		default:
			n, ok = len(stem), true
		}
	}
	return n, ok && !s.ragged
}

// isTemplate reports whether the path is a regular expression that is a template.
func (s *matcher) isTemplate() bool { return s.regex && s.prefix == "" }

func (s *matcher) patterns() []pattern { return append(s.main[:len(s.main):len(s.main)], s.more...) }

// covers reports whether the path in Kong matches every path of p, or with a regular expression that is no template, may
// match some.
func (s *matcher) covers(p pattern) bool {
	if s.prefix != "" {
		return strings.HasPrefix(p.stem(), s.prefix)
	}
	covers := func(own pattern) bool { return own.covers(p) }
	return slices.ContainsFunc(s.main, covers) || slices.ContainsFunc(s.more, covers)
}

// expects reports whether p is one of the patterns that a reader expects.
func (s *matcher) expects(p pattern) bool {
	return slices.ContainsFunc(s.main, func(own pattern) bool { return own.id() == p.id() })
}

// literals returns a path of literal segments.
func literals(path string) pattern {
	var p pattern
	for text := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		p = append(p, piece{kind: literalPiece, pre: text})
	}
	return p
}

// prefixMatcher returns a path that is a prefix. problem is not "" if it cannot be the path of a route.
func prefixMatcher(text string, line int) (s matcher, problem string) {
	s = matcher{text: text, line: line, prefix: text}
	if strings.ContainsAny(text, "{}*") {
		return s, "the characters { } and * have a meaning in paths of Keygate"
	}
	s.main, s.more = below(literals(text))
	s.stems = []pattern{stemOf(literals(text))}
	for _, p := range s.main {
		if _, err := gateway.ParseTemplate(p.String()); err != nil {
			return s, fault.ProblemsOf(err)[0].Message
		}
	}
	return s, ""
}

// stemOf returns a path without its last slash.
func stemOf(p pattern) pattern {
	if last := p[len(p)-1]; last.kind == literalPiece && last.pre == "" {
		return p[:len(p)-1]
	}
	return p
}

// below returns the patterns of all paths that begin with the last literal of p.
func below(p pattern) (main, more []pattern) {
	last := p[len(p)-1]
	wild := piece{kind: wildPiece}
	if last.kind == literalPiece && last.pre == "" {
		return []pattern{with(p[:len(p)-1], wild)}, nil
	}
	main = []pattern{p, with(p, wild)}
	if last.kind == literalPiece {
		longer := with(p[:len(p)-1], piece{kind: textPiece, pre: last.pre, name: "rest"})
		more = []pattern{longer, with(longer, wild)}
	}
	return main, more
}

// regexMatcher returns a path that is a regular expression. If it is no template, hull is set.
func regexMatcher(text string, line int) matcher {
	s := matcher{text: text, line: line, regex: true}
	for _, one := range alternatives(text) {
		t := &regexReader{rest: strings.TrimPrefix(one, "^")}
		if !t.read() {
			return hullOf(text, line)
		}
		t.addTo(&s)
	}
	for _, p := range s.patterns() {
		if _, err := gateway.ParseTemplate(p.String()); err != nil {
			return hullOf(text, line)
		}
	}
	return s
}

// maxAlternatives is into how many expressions one is split.
const maxAlternatives = 32

// alternatives splits an expression at groups of literals, such as (v1|v2).
func alternatives(text string) []string {
	list := []string{text}
	for i := 0; i < len(list) && len(list) <= maxAlternatives; {
		s := list[i]
		begin, end, choices := literalGroup(s)
		if choices == nil {
			i++
			continue
		}
		list = slices.Delete(list, i, i+1)
		for _, c := range choices {
			list = append(list, s[:begin]+c+s[end:])
		}
	}
	if len(list) > maxAlternatives {
		return []string{text}
	}
	return list
}

// literalGroup finds a group of literals that has no quantifier.
func literalGroup(s string) (begin, end int, choices []string) {
	for from := 0; ; {
		open := strings.IndexByte(s[from:], '(')
		if open < 0 {
			return 0, 0, nil
		}
		begin = from + open
		inner := strings.TrimPrefix(s[begin+1:], "?:")
		content, rest, found := strings.Cut(inner, ")")
		escaped := begin > 0 && s[begin-1] == '\\'
		if found && !escaped && strings.Contains(content, "|") && isLiterals(content) && (rest == "" || strings.IndexByte("*?{+", rest[0]) < 0) {
			return begin, len(s) - len(rest), strings.Split(content, "|")
		}
		from = begin + 1
	}
}

// isLiterals reports whether a text has only plain characters and bars between them.
func isLiterals(s string) bool {
	for i := range len(s) {
		if !isPlainByte(s[i]) && s[i] != '|' {
			return false
		}
	}
	return !strings.HasPrefix(s, "|") && !strings.HasSuffix(s, "|") && !strings.Contains(s, "||")
}

// hullOf returns a prefix that every path which matches the regular expression has.
func hullOf(text string, line int) matcher {
	s := matcher{text: text, line: line, regex: true, hull: true, narrow: true}
	rest := strings.TrimPrefix(text, "^")
	stem := ""
	if !hasTopBar(text) { // else the beginning may be one of several
		for len(rest) > 0 {
			c, size := rest[0], 1
			if c == '\\' && len(rest) > 1 && strings.IndexByte(`./-_~`, rest[1]) >= 0 {
				c, size = rest[1], 2
			}
			if size == 1 && !isPlainByte(c) || len(rest) > size && strings.IndexByte("*?{+", rest[size]) >= 0 {
				break
			}
			stem += string(c)
			rest = rest[size:]
		}
	}
	if p, problem := prefixMatcher(stem, line); strings.HasPrefix(stem, "/") && problem == "" {
		s.prefix, s.main, s.more = stem, p.main, p.more
		return s
	}
	s.prefix = "/"
	s.main = []pattern{{{kind: wildPiece}}}
	return s
}

// hasTopBar reports whether an expression has a bar outside of groups, or may have one.
func hasTopBar(s string) bool {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '[':
			return strings.Contains(s[i:], "|") // a class may have brackets
		case '(':
			depth++
		case ')':
			depth--
		case '|':
			if depth <= 0 {
				return true
			}
		}
	}
	return false
}

func isPlainByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("/-_~%@:!&=,;", c) >= 0
}

// regexReader reads a regular expression that is a template.
type regexReader struct {
	rest   string
	path   pattern
	narrow bool
	tail   string // what is behind path: "" for anything, "$", "/?$", "/*", "(/*)"
	greedy bool   // it matches what is behind path too
}

// read reads the whole expression, and reports whether it is a template.
func (t *regexReader) read() bool {
	if r, ok := t.cut(`\/`, "/"); ok {
		t.rest = "/" + r
	}
	if !strings.HasPrefix(t.rest, "/") {
		return false
	}
	t.rest = t.rest[1:]
	current := piece{kind: literalPiece}
	for {
		switch t.rest {
		case "":
			t.path = append(t.path, current)
			return true
		case "$":
			t.path, t.tail = append(t.path, current), "$"
			return true
		case "/?$", `\/?$`:
			t.path, t.tail = append(t.path, current), "/?$"
			return true
		case ".*", ".*$", "(.*)", "(.*)$", "(/.*)?", "(?:/.*)?":
			t.path, t.greedy = append(t.path, current), true
			return true
		case "(/.*)?$", "(?:/.*)?$":
			t.path, t.tail, t.greedy = append(t.path, current), "(/*)", true
			return true
		}
		if r, ok := t.cut(`\/`, "/"); ok {
			if t.rest = r; strings.HasPrefix(r, "?") {
				return false
			}
			t.path, current = append(t.path, current), piece{kind: literalPiece}
			continue
		}
		if text, ok := t.literal(); ok {
			if current.kind == literalPiece {
				current.pre += text
			} else {
				return false // text behind a parameter
			}
			continue
		}
		name, ok := t.param()
		if !ok || current.kind != literalPiece {
			return false
		}
		current.kind, current.name = textPiece, name
		if current.pre == "" {
			current.kind = paramPiece
		}
	}
}

// cut returns the rest behind the first of the texts that it begins with.
func (t *regexReader) cut(texts ...string) (string, bool) {
	for _, text := range texts {
		if r, ok := strings.CutPrefix(t.rest, text); ok {
			return r, true
		}
	}
	return "", false
}

// literal reads one character that stands for itself and is not followed by a quantifier.
func (t *regexReader) literal() (string, bool) {
	c, size := t.rest[0], 1
	if c == '\\' {
		if len(t.rest) < 2 || strings.IndexByte(`.-_~`, t.rest[1]) < 0 {
			return "", false
		}
		c, size = t.rest[1], 2
	} else if !isPlainByte(c) {
		return "", false
	}
	if len(t.rest) > size && strings.IndexByte("*?{+", t.rest[size]) >= 0 {
		return "", false
	}
	t.rest = t.rest[size:]
	return string(c), true
}

// param reads a class of characters with a quantifier, perhaps in a group, that takes at least one character and no slash.
func (t *regexReader) param() (name string, ok bool) {
	inner, group := t.rest, false
	for _, open := range []string{"(?<", "(?P<"} {
		if r, found := strings.CutPrefix(t.rest, open); found {
			group = true
			if name, inner, found = strings.Cut(r, ">"); !found || !isName(name) {
				return "", false
			}
		}
	}
	if !group {
		for _, open := range []string{"(?:", "("} {
			if r, found := strings.CutPrefix(t.rest, open); found {
				inner, group = r, true
				break
			}
		}
	}
	rest, narrow, ok := class(inner)
	if !ok {
		return "", false
	}
	if group {
		if rest, ok = strings.CutPrefix(rest, ")"); !ok {
			return "", false
		}
		if rest != "" && strings.IndexByte("*?{+", rest[0]) >= 0 {
			return "", false
		}
	}
	t.rest, t.narrow = rest, t.narrow || narrow
	return name, true
}

func isName(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// class reads a class and its quantifier. narrow is whether it matches less than a parameter.
func class(s string) (rest string, narrow, ok bool) {
	switch {
	case strings.HasPrefix(s, `\d`), strings.HasPrefix(s, `\w`):
		rest, narrow = s[2:], true
	case strings.HasPrefix(s, "["):
		end := strings.IndexByte(s, ']')
		if end < 2 {
			return "", false, false
		}
		content := s[1:end]
		rest = s[end+1:]
		switch {
		case content == "^/" || content == `^\/`:
		case content[0] == '^':
			if narrow = true; !strings.Contains(content, "/") {
				return "", false, false
			}
		default:
			// A range could have the slash between its ends, as in [--~].
			if narrow = true; strings.Contains(content, "/") || strings.ContainsAny(content, `[&|`) || oddRange(content) {
				return "", false, false
			}
		}
	default:
		return "", false, false
	}
	if r, found := strings.CutPrefix(rest, "+"); found {
		if r != "" && strings.IndexByte("?+*{", r[0]) >= 0 {
			return "", false, false
		}
		return r, narrow, true
	}
	if strings.HasPrefix(rest, "{") {
		count, r, found := strings.Cut(rest[1:], "}")
		if !found || count == "" || count[0] == '0' || count[0] == ',' || strings.Trim(count, "0123456789,") != "" || r != "" && strings.IndexByte("?+*{", r[0]) >= 0 {
			return "", false, false
		}
		return r, true, true
	}
	return "", false, false
}

// oddRange reports whether a class has other ranges than those of letters and digits, or escapes but those of \w, \d and
// punctuation.
func oddRange(content string) bool {
	for _, known := range []string{"a-z", "A-Z", "0-9", "a-f", "A-F", `\w`, `\d`, `\-`, `\.`, `\_`} {
		content = strings.ReplaceAll(content, known, "")
	}
	content = strings.Trim(content, "-")
	return strings.ContainsAny(content, `-\^`)
}

// addTo adds the patterns of the expression.
func (t *regexReader) addTo(s *matcher) {
	s.narrow = s.narrow || t.narrow
	s.stems = append(s.stems, stemOf(t.path))
	s.ragged = s.ragged || t.greedy || t.narrow && t.tail == "" && t.path[len(t.path)-1].kind != literalPiece
	wild := piece{kind: wildPiece}
	switch t.tail {
	case "$":
		s.main = append(s.main, t.path)
	case "/?$":
		s.main = append(s.main, t.path, with(t.path, piece{kind: literalPiece}))
	case "(/*)":
		s.main = append(s.main, t.path, with(t.path, wild))
	default:
		main, more := below(t.path)
		s.main, s.more = append(s.main, main...), append(s.more, more...)
	}
}
