package document

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrTrailing is the error of JSON with text after its end, for ExplainJSON.
var ErrTrailing = errors.New("there is text after the end of the JSON value")

// ExplainJSON says why a text is not JSON, in words for its author: where, and what to do. err is the
// error of a jsontext.Decoder, or ErrTrailing, and offset where the decoder stopped, for errors that
// have no offset of their own.
func ExplainJSON(text string, offset int, err error) (Position, string) {
	if at, message := encodingProblem(text); message != "" {
		return positionOf(text, at), strings.Replace(message, "the document must", "the text must", 1)
	}
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) && !errors.Is(err, ErrTrailing) {
		return jsonEnd(text) // the text ends where a value is expected
	}
	if syntax != nil {
		offset = int(syntax.ByteOffset)
	}
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return jsonEnd(text)
	case errors.Is(err, jsontext.ErrDuplicateName):
		return positionOf(text, offset), "the name " + quote(syntax.JSONPointer.LastToken()) + " is a duplicate in this object: remove one"
	}
	offset = min(max(offset, 0), len(text))
	m := jsonMistake{text: text, at: offset, inString: syntax != nil && strings.Contains(syntax.Err.Error(), "string")}
	if !m.inString {
		m.at += len(text[offset:]) - len(strings.TrimLeft(text[offset:], " \t\r\n"))
	}
	message := m.explain()
	if message == "" {
		message = ErrTrailing.Error() + ": send one value"
		if syntax != nil {
			message = syntax.Err.Error()
		}
	}
	return positionOf(text, m.at), message
}

// jsonMistake is a place where a text is not JSON.
type jsonMistake struct {
	text     string
	at       int
	inString bool // in the middle of a string, or in the place of a name
}

// explain returns what is wrong at m.at, and moves m.at to the text that is to be changed. It returns
// "" for a mistake that it has no advice for.
func (m *jsonMistake) explain() string {
	if m.at == len(m.text) {
		return ""
	}
	rest := m.text[m.at:]
	r, _ := utf8.DecodeRuneInString(rest)
	if m.inString && r == '\\' && !strings.HasPrefix(rest, `\u`) {
		return "in a string, \\ begins an escape such as \\n: write \\\\ for a backslash"
	}
	if r < 0x20 {
		return controlInJSON(r)
	}
	before := strings.TrimRight(m.text[:m.at], " \t\r\n")
	switch {
	case strings.HasPrefix(rest, "//"), strings.HasPrefix(rest, "/*"), r == '#':
		return "JSON has no comments: remove it"
	case (r == '}' || r == ']') && strings.HasSuffix(before, ","):
		m.at = len(before) - 1
		return fmt.Sprintf("there is a comma before the closing %c: remove it", r)
	case r == '}' || r == ']':
		return m.closer(r)
	case r == '\'':
		return `names and strings need double quotes: write " instead of '`
	case r == '`':
		return "names and strings need double quotes: write \" instead of `"
	case r == '=':
		return "a name and its value are separated by a colon, not by ="
	case lookalike(r) != "":
		return lookalike(r)
	}
	return m.explainWord(rest, before)
}

// explainWord explains a number or a word, or a value whose comma or colon is missing.
func (m *jsonMistake) explainWord(rest, before string) string {
	// The decoder may stop within a number or word.
	start := m.at
	for start > 0 && isWordByte(m.text[start-1]) {
		start--
	}
	word := m.text[start:]
	word = word[:wordLength(word)]
	inner := m.inner(start)
	if inner == 0 && before != "" {
		return "" // text after the end
	}
	switch {
	case inner == '{' && strings.HasSuffix(before, `"`) && rest[0] != ',' && m.isName(before):
		return "a colon is missing between a name and its value"
	case word != "" && isNumberLike(word):
		m.at = start
		return "this is not a number in JSON: write it in decimal digits, without zeros or a sign + in front, as in 16 or 0.5, or put a text in double quotes"
	case jsonWord(word) != "":
		m.at = start
		return fmt.Sprintf("%s is not a value in JSON: write %s", word, jsonWord(word))
	case m.inString && word != "" && inner == '{' && (strings.HasSuffix(before, "{") || strings.HasSuffix(before, ",")):
		m.at = start
		return "a name needs double quotes: write " + quote(word)
	case start < m.at, word != "" && !strings.HasSuffix(before, `"`) && !endsValue(before):
		m.at = start
		return "this is not a value in JSON: put a text in double quotes" // it may be secret
	case inner != 0 && endsValue(before) && strings.IndexByte(`"{[`, rest[0]) >= 0:
		return "a comma is missing before this"
	case inner != 0 && strings.HasSuffix(before, `"`) && word != "":
		return "a comma is missing before this, or the string before it has a quote too many or too few: write \\\" for a quote in a string"
	}
	return ""
}

func isWordByte(b byte) bool {
	return b == '_' || b == '+' || b == '-' || b == '.' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}

func wordLength(s string) int {
	n := 0
	for n < len(s) && isWordByte(s[n]) {
		n++
	}
	return n
}

func isNumberLike(word string) bool {
	digits := strings.TrimLeft(word, "+-.")
	return digits != "" && digits[0] >= '0' && digits[0] <= '9'
}

// jsonWord returns what a word of another language is in JSON, or "".
func jsonWord(word string) string {
	switch word {
	case "True", "TRUE", "yes", "on":
		return "true"
	case "False", "FALSE", "no", "off":
		return "false"
	case "None", "nil", "NULL", "Null":
		return "null"
	case "undefined":
		return "null, or leave the field out"
	case "NaN", "Infinity", "-Infinity":
		return "null, or a number"
	}
	return ""
}

func endsValue(before string) bool {
	return before != "" && (strings.IndexByte(`}]"`, before[len(before)-1]) >= 0 || isWordByte(before[len(before)-1]))
}

func controlInJSON(r rune) string {
	switch r {
	case 0:
		return "the character U+0000 is not allowed: if the file is not damaged, save it as UTF-8"
	case '\n', '\r':
		return "a string must end on its line: close it with \", and write \\n for a line break in it"
	case '\t':
		return "a tab is not allowed in a string: write \\t"
	}
	return fmt.Sprintf("the control character U+%04X is not allowed: remove it, or write \\u%04x in a string", r, r)
}

// bracket is a bracket that is open in a JSON text.
type bracket struct {
	at   int
	open byte
}

// openBrackets returns the brackets that are open at an offset, and where an open string begins, or -1.
func openBrackets(text string) (open []bracket, quoted int) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{', '[':
			open = append(open, bracket{i, text[i]})
		case '}', ']':
			open = open[:max(len(open)-1, 0)]
		case '"':
			start := i
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			if i >= len(text) {
				return open, start
			}
		}
	}
	return open, -1
}

// inner returns the innermost bracket that is open at an offset, or 0.
func (m *jsonMistake) inner(offset int) byte {
	open, _ := openBrackets(m.text[:offset])
	if len(open) == 0 {
		return 0
	}
	return open[len(open)-1].open
}

// isName reports whether the string at the end of before is in the place of a name.
func (m *jsonMistake) isName(before string) bool {
	if !strings.HasSuffix(before, `"`) {
		return false
	}
	start := len(before) - 1
	for start > 0 {
		start = strings.LastIndexByte(before[:start], '"')
		if start < 0 {
			return false
		}
		slashes := len(before[:start]) - len(strings.TrimRight(before[:start], `\`))
		if slashes%2 == 0 {
			break
		}
	}
	ahead := strings.TrimRight(before[:start], " \t\r\n")
	return strings.HasSuffix(ahead, "{") || strings.HasSuffix(ahead, ",")
}

// closer explains a closing bracket.
func (m *jsonMistake) closer(r rune) string {
	open, _ := openBrackets(m.text[:m.at])
	if len(open) == 0 {
		return fmt.Sprintf("there is a %c too many: nothing is open that it closes", r)
	}
	last := open[len(open)-1]
	if want := last.open + 2; rune(want) != r { // in ASCII, ] and } are two behind [ and {
		p := positionOf(m.text, last.at)
		return fmt.Sprintf("this %c does not close the %c of line %d, column %d: write %c", r, last.open, p.Line, p.Column, want)
	}
	return fmt.Sprintf("a value is missing before the %c", r)
}

// jsonEnd explains a text that ends too early.
func jsonEnd(text string) (Position, string) {
	end := positionOf(text, len(text))
	open, quoted := openBrackets(text)
	switch {
	case quoted >= 0:
		return positionOf(text, quoted), `the JSON text ends too early: this string has no quote at its end: close it with "`
	case len(open) > 0:
		last := open[len(open)-1]
		p := positionOf(text, last.at)
		return end, fmt.Sprintf("the JSON text ends too early: close the %c of line %d, column %d with %c", last.open, p.Line, p.Column, last.open+2)
	case strings.TrimSpace(text) == "":
		return Position{1, 1}, "the text is empty"
	}
	return end, "the JSON text ends too early"
}
