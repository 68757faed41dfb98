package document

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// plainDirective is a line %YAML with its version.
var plainDirective = regexp.MustCompile(`^%YAML[ \t]+([0-9]+\.[0-9]+)[ \t]*(#.*)?$`)

// readDirectives returns text for the library, which knows YAML 1.1 alone: it reads both versions
// alike, so %YAML 1.2 becomes %YAML 1.1, of the same length. It rejects directives whose meaning the
// library ignores.
func readDirectives(text string) (string, error) {
	var seen Position // of the first directive
	for at := 0; at < len(text); {
		_, line := lineOf(text, at)
		switch plain := strings.TrimSpace(line); {
		case strings.HasPrefix(line, "%"):
			version := plainDirective.FindStringSubmatchIndex(line)
			message := badDirective(line, version)
			if message == "" && seen.Line > 0 {
				message = "there is a second %YAML directive: remove one"
			}
			if message != "" {
				return "", positionOf(text, at).Invalid("", "%s", message)
			}
			if seen = positionOf(text, at); line[version[2]:version[3]] == "1.2" {
				text = text[:at+version[3]-1] + "1" + text[at+version[3]:]
			}
		case plain != "" && plain[0] != '#':
			if seen.Line > 0 && !strings.HasPrefix(line, "---") {
				return "", positionOf(text, at).Invalid("", "after the directive of line %d, the document must begin with a line ---", seen.Line)
			}
			return text, nil
		}
		at += len(line)
		at += LineBreak(text[at:])
	}
	return text, nil
}

// badDirective says what is wrong with a line that begins with %. version is what plainDirective found
// in it.
func badDirective(line string, version []int) string {
	switch {
	case strings.HasPrefix(line, "%TAG"):
		return "a %TAG directive is not supported: write the tags in full, or leave them out"
	case version == nil && strings.HasPrefix(line, "%YAML"):
		return "the directive %YAML has no version: write %YAML 1.2, or remove it"
	case version == nil:
		name, _, _ := strings.Cut(line, " ")
		return fmt.Sprintf("a line that begins with %% is a directive of YAML, and %s is none: remove it; if it is of a template, send what the template makes", quote(name))
	}
	if v := line[version[2]:version[3]]; v != "1.1" && v != "1.2" {
		return fmt.Sprintf("YAML %s is not supported: write %%YAML 1.2, or remove the directive", Short(v))
	}
	return ""
}

// Plain returns a document that parses without a byte order mark, and in a form that the YAML library
// reads itself. Its lines and columns are the same.
func Plain(content []byte) []byte {
	text, err := readDirectives(string(TrimMark(content)))
	if err != nil {
		return content
	}
	return []byte(text)
}

// yamlMistake is a place where a text is not YAML.
type yamlMistake struct {
	text    string
	at      Position
	context Position // start of what was being read there; the zero value if unknown
	// before and after are the parts of the line at the place, and first is the character there.
	before, after string
	first         rune
}

// explainYAML returns what is wrong at a position, in words for the author, and the position of the
// text to change. message is the library's message, which is used if there is no better explanation.
func explainYAML(text string, at, context Position, message string) (Position, string) {
	if line := conflictMarker(text); line > 0 {
		return Position{line, 1}, "this line is a conflict marker of Git: resolve the conflict"
	}
	offset := offsetOf(text, at)
	m := yamlMistake{text: text, at: at, context: context}
	m.before, m.after = lineOf(text, offset)
	m.first, _ = utf8.DecodeRuneInString(m.after)
	if m.after == "" {
		m.first = 0
	}
	if explained := m.explain(message); explained != "" {
		return m.at, explained
	}
	return m.at, message
}

// conflictMarker returns the line of a marker that Git leaves in a file, or 0.
func conflictMarker(text string) int32 {
	line := int32(1)
	for at := 0; at < len(text); line++ {
		_, rest := lineOf(text, at)
		if strings.HasPrefix(rest, "<<<<<<< ") || strings.HasPrefix(rest, ">>>>>>> ") || rest == "=======" {
			return line
		}
		at += len(rest)
		at += LineBreak(text[at:])
	}
	return 0
}

func (m *yamlMistake) explain(message string) string {
	switch {
	case strings.Contains(message, "cannot start any token"), strings.Contains(message, "tab character"):
		return m.start()
	case strings.Contains(message, "mapping values are not allowed"):
		return m.colon()
	case strings.Contains(message, "did not find expected key"), strings.Contains(message, "expected '-' indicator"):
		return m.key()
	case strings.Contains(message, "could not find expected ':'"):
		return m.noColon()
	case strings.Contains(message, "did not find expected ',' or"), strings.Contains(message, "expected node content"):
		return m.flow(message)
	case strings.Contains(message, "alphabetic or numeric character"):
		return fmt.Sprintf("a value that begins with %s is %s: put it in quotes, as in \"%[1]s\"", m.indicator(), map[string]string{"*": "an alias", "&": "an anchor"}[m.indicator()])
	case strings.Contains(message, "comment or line break"), strings.Contains(message, "indentation indicator"):
		return "a value that begins with | or > is a block, which begins on the next line: put the value in quotes"
	case strings.Contains(message, "unexpected end of stream"):
		return m.openQuote()
	case strings.Contains(message, "unknown escape character"), strings.Contains(message, "hexdecimal number"), strings.Contains(message, "invalid Unicode character escape"):
		return `in double quotes, \ begins an escape such as \n: write \\ for a backslash, or use single quotes`
	case strings.Contains(message, "unknown anchor"):
		return message + ": no value before this has that name after an &; if it is a text, put it in quotes"
	case strings.Contains(message, "expected <document start>"), strings.Contains(message, "expected <stream-start>"):
		return "the document has ended before this line: is it YAML? Its fields are written as name: value"
	}
	return ""
}

// indicator returns the * or & before the place.
func (m *yamlMistake) indicator() string {
	if strings.HasSuffix(m.before, "*") || m.first == '*' {
		return "*"
	}
	return "&"
}

// start explains a character that begins nothing.
func (m *yamlMistake) start() string {
	if blank := strings.Trim(m.before, " \t") == ""; m.first == '\t' || blank && strings.ContainsRune(m.before+m.after[:len(m.after)-len(strings.TrimLeft(m.after, " \t"))], '\t') {
		return "a tab is not allowed in the indentation of YAML: use spaces"
	}
	switch {
	case m.first == 0:
		return ""
	case strings.TrimSpace(m.before) == "{" && m.first == '%':
		return "this is the language of a template: send what the template makes"
	case lookalike(m.first) != "":
		return lookalike(m.first)
	}
	return fmt.Sprintf("a plain value cannot begin with %c: put it in quotes", m.first)
}

// colon explains a colon that cannot end a name.
func (m *yamlMistake) colon() string {
	if strings.Contains(m.before, ": ") || strings.Contains(strings.TrimLeft(m.before, " -"), " :") {
		return "a value that has a colon and a space must be in quotes"
	}
	if hint := m.lineAbove(); hint != "" {
		return hint
	}
	indent := len(m.before) - len(strings.TrimLeft(m.before, " "))
	m.at.Column = int32(indent) + 1
	return fmt.Sprintf("the indentation of this line (%s) does not fit the line before it, which has a value already or no colon: indent the fields of one mapping alike, and end a name with a colon", spaces(indent))
}

// lineAbove looks for a slip in the line above that makes the line at the position invalid. If there is one,
// it moves the position there.
func (m *yamlMistake) lineAbove() (hint string) {
	if m.at.Line == 1 {
		return ""
	}
	_, line := lineOf(m.text, offsetOf(m.text, Position{m.at.Line - 1, 1}))
	plain := strings.TrimLeft(line, " ")
	first, _ := utf8.DecodeRuneInString(plain)
	switch {
	case plain != "" && lookalike(first) != "":
		hint = lookalike(first)
	case len(plain) > 1 && plain[0] == '-' && plain[1] != ' ' && plain[1] != '-':
		hint = "write a space after the dash, as in - name: value"
	case isJoined(plain):
		hint = "write a space after the colon, as in name: value"
	default:
		return ""
	}
	m.at = Position{m.at.Line - 1, int32(len(line)-len(plain)) + 1}
	return hint
}

func spaces(n int) string {
	if n == 1 {
		return "1 space"
	}
	return fmt.Sprintf("%d spaces", n)
}

// key explains text that is not a further field or item.
func (m *yamlMistake) key() string {
	indent := len(m.before) - len(strings.TrimLeft(m.before, " "))
	switch {
	case strings.TrimSpace(m.before) == "":
		return fmt.Sprintf("the indentation of this line (%s) is not that of the fields or items above it: indent those of one mapping or list alike", spaces(indent))
	case m.first == '}' || m.first == ']':
		return fmt.Sprintf("there is a %c too many: nothing is open that it closes; if it is of a text, put the text in quotes", m.first)
	case lookalike(m.first) != "":
		return lookalike(m.first)
	}
	return "there is text after the quote at the end of a value: write '' for ' in single quotes, \\\" for \" in double quotes, or put all of the value in quotes"
}

// noColon explains a line without a colon.
func (m *yamlMistake) noColon() string {
	line, shown := m.at.Line, ""
	if m.context.Line > 0 {
		line = m.context.Line
		_, rest := lineOf(m.text, offsetOf(m.text, Position{line, 1}))
		shown = strings.TrimSpace(rest)
	}
	hint := "end a name with a colon and a space, as in name: value"
	if strings.Contains(shown, ":") {
		hint = "write a space after the colon, as in name: value"
	}
	if hidden := Lookalike(shown); hidden != "" {
		hint = hidden
	}
	if m.context.Line > 0 {
		m.at = m.context
	}
	return fmt.Sprintf("line %d has no name with a colon: %s", line, hint)
}

// flow explains a collection in brackets that is not closed, or has a character that belongs in
// quotes.
func (m *yamlMistake) flow(message string) string {
	open := m.opened()
	switch {
	case m.first == '{' || m.first == '[':
		return fmt.Sprintf("a text with %c inside of brackets must be in quotes, as in \"/orders/{id}\"", m.first)
	case strings.HasPrefix(m.after, "//"), strings.HasPrefix(m.after, "/*"):
		return "YAML has comments with # alone: remove this"
	case m.first == 0 && offsetOf(m.text, m.at) >= len(strings.TrimRight(m.text, " \r\n")):
		return "the document ends too early: " + open
	case strings.Contains(message, "node content"):
		if m.first == 0 {
			return ""
		}
		return fmt.Sprintf("a value is missing before the %c, or must be in quotes", m.first)
	}
	return "a comma is missing before this, or a bracket is not closed: " + open
}

// opened names the bracket that is open.
func (m *yamlMistake) opened() string {
	if m.context.Line == 0 {
		return "close what is open with ] or }"
	}
	_, rest := lineOf(m.text, offsetOf(m.text, m.context))
	closing := "}"
	switch {
	case strings.HasPrefix(rest, "["):
		closing = "]"
	case !strings.HasPrefix(rest, "{"):
		return "close what is open with ] or }"
	}
	return fmt.Sprintf("close the bracket of line %d, column %d with %s", m.context.Line, m.context.Column, closing)
}

// openQuote explains a quote that nothing closes.
func (m *yamlMistake) openQuote() string {
	if m.context.Line == 0 {
		return "the document ends within a value in quotes: close it"
	}
	_, rest := lineOf(m.text, offsetOf(m.text, m.context))
	m.at = m.context
	r, _ := utf8.DecodeRuneInString(rest)
	return fmt.Sprintf("the value that begins here has no quote at its end: close it with %c", r)
}
