package wire

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// verdict is the result of matching bytes against a pattern.
type verdict int

const (
	matched verdict = iota
	mismatched
	incomplete // matches as far as the bytes go
)

// pattern describes the bytes that a side must receive.
type pattern struct {
	text  string // as written in the case
	parts []part
}

// part matches the beginning of b. n is the length of the match, or of the part of b that
// matched.
type part func(b []byte) (n int, v verdict)

func (p pattern) match(b []byte) (n int, v verdict) {
	for _, one := range p.parts {
		used, v := one(b[n:])
		n += used
		if v != matched {
			return n, v
		}
	}
	return n, matched
}

// literal matches want itself.
func literal(want string) part {
	return func(b []byte) (int, verdict) {
		n := 0
		for n < len(b) && n < len(want) && b[n] == want[n] {
			n++
		}
		switch {
		case n == len(want):
			return n, matched
		case n == len(b):
			return n, incomplete
		}
		return n, mismatched
	}
}

// line matches the rest of a line, up to its CR, against a regular expression.
func line(expr string) part {
	re := regexp.MustCompile("^(?:" + expr + ")$")
	return func(b []byte) (int, verdict) {
		end := bytes.IndexByte(b, '\r')
		switch {
		case end < 0:
			return 0, incomplete
		case re.Match(b[:end]):
			return end, matched
		}
		return 0, mismatched
	}
}

var limitLine = regexp.MustCompile(`^(X-RateLimit-(Limit|Remaining|Reset)|RateLimit(-Policy)?): [^\r\n]+$`)

// limits matches at least three rate limit fields, without the last CRLF.
func limits(b []byte) (n int, v verdict) {
	seen := 0
	for {
		text, _, whole := bytes.Cut(b[n:], []byte("\r\n"))
		switch {
		case !whole:
			return n, incomplete
		case limitLine.Match(text):
			n += len(text) + 2
			seen++
		case seen >= 3:
			return n - 2, matched
		default:
			return n, mismatched
		}
	}
}

// chunks matches want as the data of chunks of any size, without extensions.
func chunks(want string) part {
	return func(b []byte) (n int, v verdict) {
		left := want
		for left != "" {
			size, _, whole := bytes.Cut(b[n:], []byte("\r\n"))
			if !whole {
				return n, incomplete
			}
			length, err := strconv.ParseUint(string(size), 16, 31)
			if err != nil || length == 0 || length > uint64(len(left)) {
				return n, mismatched
			}
			at := n + len(size) + 2
			if _, v := literal(left[:length] + "\r\n")(b[at:]); v != matched {
				return at, v
			}
			n, left = at+int(length)+2, left[length:]
		}
		return n, matched
	}
}

// variables are the values of the names that a text can have in braces.
type variables map[string]string

// token matches an expression in braces: {name}, {5*text} or {chunks text}.
var token = regexp.MustCompile(`\{([a-z]+[0-9]*|[0-9]+\*[^{}]+|chunks [^{}]*(?:\{[0-9]+\*[^{}]+\})?[^{}]*)\}`)

// compile turns a text of a case into the pattern that received bytes must match.
func compile(t testing.TB, text string, vars variables) pattern {
	t.Helper()
	p := pattern{text: text}
	rest := text
	for rest != "" {
		at := token.FindStringSubmatchIndex(rest)
		if at == nil {
			p.parts = append(p.parts, literal(unescape(t, rest)))
			break
		}
		if at[0] > 0 {
			p.parts = append(p.parts, literal(unescape(t, rest[:at[0]])))
		}
		switch word := rest[at[2]:at[3]]; {
		case word == "id":
			p.parts = append(p.parts, line("req_[0-9a-z]{26}"))
		case word == "date":
			p.parts = append(p.parts, line("[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT"))
		case word == "any":
			p.parts = append(p.parts, line(".*"))
		case word == "limits":
			p.parts = append(p.parts, limits)
		case strings.HasPrefix(word, "chunks "):
			p.parts = append(p.parts, chunks(expand(t, word[len("chunks "):], vars)))
		case vars[word] != "":
			p.parts = append(p.parts, compile(t, vars[word], vars).parts...)
		default:
			p.parts = append(p.parts, literal(expand(t, "{"+word+"}", vars)))
		}
		rest = rest[at[1]:]
	}
	return p
}

// expand turns a text of a case into the bytes to send.
func expand(t testing.TB, text string, vars variables) string {
	t.Helper()
	return unescape(t, token.ReplaceAllStringFunc(text, func(s string) string {
		word := s[1 : len(s)-1]
		if count, unit, ok := strings.Cut(word, "*"); ok {
			n, err := strconv.Atoi(count)
			if err != nil {
				t.Fatal(err)
			}
			return strings.Repeat(unit, n)
		}
		value, ok := vars[word]
		if !ok {
			t.Fatalf("%s is not defined for bytes to send", s)
		}
		return value
	}))
}

// unescape replaces \r, \n, \t, \0, \\ and \xHH by the bytes that they denote.
func unescape(t testing.TB, s string) string {
	t.Helper()
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		i++
		if i == len(s) {
			t.Fatalf("%q ends with a backslash", s)
		}
		switch s[i] {
		case 'r':
			b.WriteByte('\r')
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case '0':
			b.WriteByte(0)
		case '\\':
			b.WriteByte('\\')
		case 'x':
			if i+2 >= len(s) {
				t.Fatalf("\\x needs two digits in %q", s)
			}
			n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
			if err != nil {
				t.Fatalf("\\x in %q: %v", s, err)
			}
			b.WriteByte(byte(n))
			i += 2
		default:
			t.Fatalf("unknown escape \\%c in %q", s[i], s)
		}
	}
	return b.String()
}

// show formats bytes for a failure message.
func show(b []byte) string {
	if len(b) > 4<<10 {
		return show(b[:2<<10]) + fmt.Sprintf("\n… %d bytes …\n", len(b)-(4<<10)) + show(b[len(b)-(2<<10):])
	}
	q := strconv.QuoteToASCII(string(b))
	return strings.ReplaceAll(q[1:len(q)-1], `\r\n`, "\n")
}
