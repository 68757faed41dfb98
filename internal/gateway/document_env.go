package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/keygate/keygate/internal/document"
)

// ResolveEnv replaces each ${env:NAME} in the values of a configuration file by the result of
// lookup for NAME (contract, section 5). A value with a replacement is written in quotes, so
// that it stays one string whatever the variable contains. Nothing else changes, and lines keep
// their numbers. Errors are as from ParseDocument; they list every variable that cannot be replaced.
func ResolveEnv(content []byte, lookup func(name string) (value string, ok bool)) ([]byte, error) {
	text := string(document.TrimMark(content))
	if !strings.Contains(text, document.EnvMark) {
		return content, nil
	}
	before, err := document.Parse([]byte(text))
	if err != nil {
		return nil, err
	}
	r := &resolver{text: text, lines: lineStarts(text), lookup: lookup, values: map[string]string{}, edits: map[int]edit{}}
	if r.resolve(before, ""); r.problems.Err() != nil {
		return nil, r.problems.Err()
	}
	resolved := r.apply()
	// The replacements must not have changed anything but those values.
	after, err := document.Parse(resolved)
	if err != nil || !r.equal(before, after) {
		return nil, before.Invalid("", "${env:…} cannot be replaced safely in this file: put each value that has one in double quotes, on one line")
	}
	return resolved, nil
}

// AddMistakes returns err, which ResolveEnv returned for a file, with everything else that is wrong with the file.
func AddMistakes(content []byte, err error) error {
	return AddMistakesOf(content, err, (&Document{}).read)
}

// AddMistakesOf is AddMistakes for a file whose content read reads, as for ReadFile.
func AddMistakesOf(content []byte, err error, read func(root *document.Node) error) error {
	root, unreadable := document.Parse(content)
	if unreadable != nil {
		return err // that is what err says
	}
	var all, variables document.Problems
	refuseEnv(root, "", &variables)
	all.Add(err)
	all.Add(except(read(root), variables.Err()))
	return all.Err()
}

// resolver replaces variables in a text.
type resolver struct {
	text   string
	lines  []int // byte offset of each line
	lookup func(string) (string, bool)
	values map[string]string // from unresolved to resolved values
	edits  map[int]edit      // by byte offset

	problems document.Problems
}

// edit replaces the bytes up to the offset end by a scalar.
type edit struct {
	end    int
	scalar string
}

func lineStarts(text string) []int {
	starts := []int{0}
	for i := 0; i < len(text); i++ {
		if n := document.LineBreak(text[i:]); n > 0 {
			i += n - 1
			starts = append(starts, i+1)
		}
	}
	return starts
}

// resolve collects the edits for n and everything in it.
func (r *resolver) resolve(n *document.Node, field string) {
	if strings.Contains(n.Text, document.EnvMark) {
		r.problems.Add(r.replace(n, field))
		return
	}
	for i := range n.Nodes {
		m := &n.Nodes[i]
		at := fmt.Sprintf("%s[%d]", field, i)
		if n.Kind == document.Mapping {
			at = strings.TrimPrefix(field+"."+m.Name, ".")
		}
		if strings.Contains(m.Name, document.EnvMark) {
			r.problems.Add(m.NamePosition.Invalid(at, "${env:…} is replaced only in values, not in names"))
		}
		if r.resolve(m, at); r.problems.Full() {
			return
		}
	}
}

func (r *resolver) replace(n *document.Node, field string) error {
	value, err := r.expand(n, field)
	if err != nil {
		return err
	}
	r.values[n.Text] = value
	start := r.offset(n.Position)
	if strings.HasPrefix(r.text[start:], "*") {
		return nil // an alias: its anchor is replaced instead
	}
	end := scalarEnd(r.text, start, n.Text)
	if end < 0 {
		return n.Invalid(field, "a value with ${env:…} must be on one line, plain or in quotes")
	}
	r.edits[skipProperties(r.text, start)] = edit{end, document.Quoted(value)}
	return nil
}

// offset returns the byte offset of a position.
func (r *resolver) offset(p document.Position) int {
	at := len(r.text)
	if int(p.Line) <= len(r.lines) {
		at = r.lines[p.Line-1]
	}
	for range p.Column - 1 {
		_, size := utf8.DecodeRuneInString(r.text[at:])
		at += size
	}
	return at
}

// skipProperties returns the offset of a scalar after its anchor and tag.
func skipProperties(text string, at int) int {
	for at < len(text) && (text[at] == '&' || text[at] == '!') {
		end := strings.IndexAny(text[at:], " \t\r\n")
		if end < 0 {
			return len(text)
		}
		at += end
		at += len(text[at:]) - len(strings.TrimLeft(text[at:], " \t"))
	}
	return at
}

// scalarEnd returns the offset of the end of the scalar at an offset, which has the given
// value. It returns -1 if the scalar is not on one line.
func scalarEnd(text string, at int, value string) int {
	at = skipProperties(text, at)
	line := text[at:]
	if end := strings.IndexAny(line, "\r\n"); end >= 0 {
		line = line[:end]
	}
	switch {
	case line == "":
		return -1
	case line[0] == '"':
		for i := 1; i < len(line); i++ {
			switch line[i] {
			case '\\':
				i++
			case '"':
				return at + i + 1
			}
		}
		return -1
	case line[0] == '\'':
		for i := 1; i < len(line); i++ {
			if line[i] != '\'' {
				continue
			}
			if !strings.HasPrefix(line[i+1:], "'") {
				return at + i + 1
			}
			i++
		}
		return -1
	case strings.HasPrefix(line, value):
		return at + len(value)
	}
	return -1
}

// apply returns the text with all edits applied.
func (r *resolver) apply() []byte {
	var out []byte
	done := 0
	for _, start := range slices.Sorted(maps.Keys(r.edits)) {
		e := r.edits[start]
		out = append(append(out, r.text[done:start]...), e.scalar...)
		done = e.end
	}
	return append(out, r.text[done:]...)
}

// equal reports whether after is before with its variables replaced.
func (r *resolver) equal(before, after *document.Node) bool {
	want := before.Text
	if strings.Contains(want, document.EnvMark) {
		want = r.values[want]
	}
	if before.Kind != after.Kind || want != after.Text || before.Name != after.Name || len(before.Nodes) != len(after.Nodes) {
		return false
	}
	for i := range before.Nodes {
		if !r.equal(&before.Nodes[i], &after.Nodes[i]) {
			return false
		}
	}
	return true
}

// expand returns the value of n with its variables replaced. References inside the value of a
// variable are not replaced.
func (r *resolver) expand(n *document.Node, field string) (string, error) {
	var out strings.Builder
	rest := n.Text
	for {
		before, after, found := strings.Cut(rest, document.EnvMark)
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		name, tail, closed := strings.Cut(after, "}")
		if !closed || !isVariable(name) {
			return "", n.Invalid(field, "a variable must be written as ${env:NAME}, where NAME consists of letters, digits and underscores")
		}
		value, ok := r.lookup(name)
		switch {
		case !ok:
			return "", n.Invalid(field, "the environment variable %s is not set", document.Short(name))
		case !utf8.ValidString(value):
			return "", n.Invalid(field, "the environment variable %s is not valid UTF-8", document.Short(name))
		}
		out.WriteString(value)
		rest = tail
	}
}

// isVariable reports whether s is a valid name of an environment variable.
func isVariable(s string) bool {
	for i := range len(s) {
		c := s[i] | 0x20
		if (c < 'a' || c > 'z') && s[i] != '_' && (i == 0 || s[i] < '0' || s[i] > '9') {
			return false
		}
	}
	return s != ""
}
