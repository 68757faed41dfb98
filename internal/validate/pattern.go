package validate

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The size of a pattern: its text, and the instructions of its program. Matching takes time in proportion to the
// product of the instructions and the text.
const (
	maxPattern      = 2000
	maxInstructions = 5000
)

// pattern is a regular expression of ECMA-262 in the syntax and with the automaton of package regexp, which never
// backtracks exponentially.
type pattern struct {
	text   string // as the schema has it
	size   int    // instructions
	regexp *regexp.Regexp
}

// String returns the pattern as its schema has it.
func (p *pattern) String() string { return p.text }

// MatchString reports whether s contains a match.
func (p *pattern) MatchString(s string) bool { return p.regexp.MatchString(s) }

// patterns compiles patterns, each once.
type patterns map[string]compiledPattern

type compiledPattern struct {
	pattern *pattern
	err     error
}

// compile compiles a pattern. The error says what of it is not supported.
func (p patterns) compile(text string) (*pattern, error) {
	if known, ok := p[text]; ok {
		return known.pattern, known.err
	}
	compiled, err := compilePattern(text)
	p[text] = compiledPattern{compiled, err}
	return compiled, err
}

// engine is compile as a jsonschema.RegexpEngine.
func (p patterns) engine(text string) (jsonschema.Regexp, error) {
	compiled, err := p.compile(text)
	if err != nil {
		return nil, err
	}
	return compiled, nil
}

func compilePattern(text string) (*pattern, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("has more than %d bytes", maxPattern)
	}
	translated, err := translate(text)
	if err != nil {
		return nil, err
	}
	parsed, err := syntax.Parse(translated, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("is not a regular expression that Keygate supports")
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil || len(program.Inst) > maxInstructions {
		return nil, fmt.Errorf("is too large with its repetitions written out")
	}
	compiled, err := regexp.Compile(translated)
	if err != nil {
		return nil, fmt.Errorf("is not a regular expression that Keygate supports")
	}
	return &pattern{text, len(program.Inst), compiled}, nil
}

const (
	spaces  = `\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}` // \s of ECMA-262
	anyRune = `(?s:.)`
	noRune  = `[^\x00-\x{10ffff}]`
)

// translate writes a pattern of ECMA-262, with its flag u, in the syntax of package regexp. The error says what has no
// equivalent there.
func translate(text string) (string, error) {
	t := translator{rest: text}
	for t.rest != "" && t.err == nil {
		r, size := utf8.DecodeRuneInString(t.rest)
		switch {
		case r == '\\':
			t.escape()
		case t.inClass:
			t.classRune(r, size)
		default:
			t.rune(r, size)
		}
	}
	return t.out.String(), t.err
}

type translator struct {
	out     strings.Builder
	rest    string
	inClass bool
	err     error
}

// take writes a translation of the next n bytes.
func (t *translator) take(n int, translation string) {
	t.out.WriteString(translation)
	t.rest = t.rest[n:]
}

func (t *translator) fail(format string, args ...any) {
	t.err = fmt.Errorf(format, args...)
}

func (t *translator) classRune(r rune, size int) {
	switch r {
	case ']':
		t.inClass = false
		t.take(1, "]")
	case '[':
		t.take(1, `\[`)
	default:
		t.take(size, t.rest[:size])
	}
}

func (t *translator) rune(r rune, size int) {
	switch r {
	case '.':
		t.take(1, `[^\n\r\x{2028}\x{2029}]`)
	case '[':
		t.class()
	case '(':
		t.group()
	default:
		t.take(size, t.rest[:size])
	}
}

func (t *translator) class() {
	for from, to := range map[string]string{`[]`: noRune, `[^]`: anyRune, `[\s\S]`: anyRune, `[\S\s]`: anyRune} {
		if strings.HasPrefix(t.rest, from) {
			t.take(len(from), to)
			return
		}
	}
	t.inClass = true
	n := 1
	if strings.HasPrefix(t.rest, "[^") {
		n = 2
	}
	t.take(n, t.rest[:n])
}

func (t *translator) group() {
	after, special := strings.CutPrefix(t.rest, "(?")
	switch {
	case !special:
		t.take(1, "(")
	case strings.HasPrefix(after, "=") || strings.HasPrefix(after, "!"):
		t.fail("has a lookahead, which is not supported")
	case strings.HasPrefix(after, "<=") || strings.HasPrefix(after, "<!"):
		t.fail("has a lookbehind, which is not supported")
	case strings.HasPrefix(after, ":"):
		t.take(3, "(?:")
	case strings.HasPrefix(after, "<"):
		t.take(3, "(?P<")
	default:
		t.fail("has a group with modifiers, which is not supported")
	}
}

// escape translates what begins with a backslash.
func (t *translator) escape() {
	if len(t.rest) < 2 {
		t.fail("ends with a backslash")
		return
	}
	r, size := utf8.DecodeRuneInString(t.rest[1:])
	next := t.rest[1]
	switch {
	case r >= utf8.RuneSelf:
		t.take(1+size, string(r))
	case strings.IndexByte("dDwWtnrfv", next) >= 0, next == 'B' && !t.inClass, next == 'b' && !t.inClass:
		t.take(2, t.rest[:2])
	case next == 'b':
		t.take(2, `\x08`)
	case next == 's' && t.inClass:
		t.take(2, spaces)
	case next == 's':
		t.take(2, "["+spaces+"]")
	case next == 'S' && !t.inClass:
		t.take(2, "[^"+spaces+"]")
	case next >= '1' && next <= '9' || next == 'k':
		t.fail("has a backreference, which is not supported")
	case next == '0' && (len(t.rest) == 2 || t.rest[2] < '0' || t.rest[2] > '9'):
		t.take(2, `\x00`)
	case next == 'c' && len(t.rest) > 2 && isLetter(t.rest[2]):
		t.take(3, fmt.Sprintf(`\x%02x`, t.rest[2]%32))
	case next == 'x' && len(t.rest) >= 4:
		t.code(2, 4)
	case next == 'u':
		t.unicode()
	case next == 'p' || next == 'P':
		t.property()
	case isLetter(next) || next >= '0' && next <= '9':
		t.fail("has the escape \\%c, which is not supported", next)
	default:
		t.take(2, t.rest[:2])
	}
}

func isLetter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }

// code translates the hexadecimal number of a character between two offsets.
func (t *translator) code(from, to int) {
	code, err := strconv.ParseUint(t.rest[from:to], 16, 32)
	if err != nil || code > utf8.MaxRune || !utf8.ValidRune(rune(code)) {
		t.fail("has the escape of a character that does not exist")
		return
	}
	if t.rest[to:] != "" && t.rest[from-1] == '{' {
		to++ // the bracket
	}
	t.take(to, fmt.Sprintf(`\x{%x}`, code))
}

// unicode translates \u1234, a pair of surrogates of this form, and \u{12345}.
func (t *translator) unicode() {
	if strings.HasPrefix(t.rest, `\u{`) {
		end := strings.IndexByte(t.rest, '}')
		if end < 0 {
			t.fail("has a \\u{ without a }")
			return
		}
		t.code(3, end)
		return
	}
	if len(t.rest) < 6 {
		t.fail("has a \\u without four digits")
		return
	}
	if high, err := strconv.ParseUint(t.rest[2:6], 16, 32); err == nil && utf16.IsSurrogate(rune(high)) {
		if len(t.rest) >= 12 && t.rest[6:8] == `\u` {
			low, err := strconv.ParseUint(t.rest[8:12], 16, 32)
			if r := utf16.DecodeRune(rune(high), rune(low)); err == nil && r != utf8.RuneError {
				t.take(12, fmt.Sprintf(`\x{%x}`, r))
				return
			}
		}
	}
	t.code(2, 6)
}

// property translates \p{…}, with the name of a general category or a script.
func (t *translator) property() {
	end := strings.IndexByte(t.rest, '}')
	if len(t.rest) < 4 || t.rest[2] != '{' || end < 0 {
		t.fail("has the escape \\%c without a property in braces", t.rest[1])
		return
	}
	name := t.rest[3:end]
	for _, key := range []string{"Script=", "sc=", "General_Category=", "gc="} {
		name = strings.TrimPrefix(name, key)
	}
	t.take(end+1, t.rest[:2]+"{"+name+"}")
}
