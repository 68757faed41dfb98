package document

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// byteOrderMark is what some editors write before a text in UTF-8. It has no meaning there.
const byteOrderMark = "\ufeff"

// TrimMark returns content without a byte order mark at its start.
func TrimMark(content []byte) []byte { return bytes.TrimPrefix(content, []byte(byteOrderMark)) }

// fileTypes are texts and binary files that people send in the place of a document, by how they
// begin.
var fileTypes = []struct{ start, message string }{
	{"\xff\xfe\x00\x00", "the document must be UTF-8, not UTF-32: save it as UTF-8"},
	{"\x00\x00\xfe\xff", "the document must be UTF-8, not UTF-32: save it as UTF-8"},
	{"\xff\xfe", "the document must be UTF-8, not UTF-16: save it as UTF-8"},
	{"\xfe\xff", "the document must be UTF-8, not UTF-16: save it as UTF-8"},
	{"\x1f\x8b", "this is a file that gzip has compressed: send the document itself"},
	{"PK\x03\x04", "this is a zip archive: send the document itself"},
	{"%PDF-", "this is a PDF file: send a document in YAML or JSON"},
	{"version https://git-lfs.github.com/spec/", "this is a pointer of Git LFS, which stands for the document: send the document itself (git lfs pull), or keep it out of LFS"},
}

// encodingProblem returns where text is not UTF-8, and what to do about it. The message is "" if it
// is UTF-8.
func encodingProblem(text string) (offset int, message string) {
	for _, t := range fileTypes {
		if strings.HasPrefix(text, t.start) {
			return 0, t.message
		}
	}
	if isUTF16(text) {
		return 0, "the document must be UTF-8, and looks like UTF-16: save it as UTF-8"
	}
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && size == 1 {
			return i, fmt.Sprintf("the document must be UTF-8: the byte 0x%02x is invalid here%s", text[i], latin(text[i]))
		}
		i += size
	}
	return 0, ""
}

// isUTF16 reports whether a text without a byte order mark begins like ASCII in UTF-16.
func isUTF16(text string) bool {
	const pairs = 4
	if len(text) < 2*pairs {
		return false
	}
	for zero := range 2 { // its place in each pair
		all := true
		for i := range pairs {
			all = all && text[2*i+zero] == 0 && text[2*i+1-zero] != 0
		}
		if all {
			return true
		}
	}
	return false
}

// latin says what a byte that is not UTF-8 is in the encodings that it most often comes from.
func latin(b byte) string {
	const most = "; it is %q in %s: save the document as UTF-8"
	switch {
	case b >= 0xa0:
		return fmt.Sprintf(most, rune(b), "Latin-1 (ISO 8859-1)")
	case windows[b] != 0:
		return fmt.Sprintf(most, windows[b], "Windows-1252")
	}
	return ": save the document as UTF-8"
}

// windows has what Windows-1252 has in the place of control characters, as far as people type it.
var windows = map[byte]rune{0x80: '€', 0x85: '…', 0x91: '‘', 0x92: '’', 0x93: '“', 0x94: '”', 0x95: '•', 0x96: '–', 0x97: '—', 0x99: '™'}

// lookalikes are characters that editors, chats and web pages put in the place of others, with what
// to write instead.
var lookalikes = map[rune]struct{ name, plain string }{
	'“': {"a typographic quote", `"`}, '”': {"a typographic quote", `"`}, '„': {"a typographic quote", `"`},
	'«': {"a typographic quote", `"`}, '»': {"a typographic quote", `"`}, '＂': {"a full-width quote", `"`},
	'‘': {"a typographic quote", "'"}, '’': {"a typographic quote", "'"}, '‚': {"a typographic quote", "'"},
	'\u00a0': {"a no-break space", "a plain space"}, '\u202f': {"a narrow no-break space", "a plain space"},
	'\u2003': {"a wide space", "a plain space"}, '\u2002': {"a wide space", "a plain space"}, '\u2009': {"a thin space", "a plain space"}, '\u3000': {"a wide space", "a plain space"},
	'\u200b': {"an invisible space", ""}, '\u200c': {"invisible", ""}, '\u200d': {"invisible", ""}, '\u2060': {"invisible", ""},
	'\ufeff': {"a byte order mark, and invisible", ""}, '\u00ad': {"an invisible hyphen", ""}, '\u200e': {"an invisible direction mark", ""}, '\u200f': {"an invisible direction mark", ""},
	'：': {"a full-width colon", ":"}, '，': {"a full-width comma", ","}, '｛': {"a full-width brace", "{"}, '｝': {"a full-width brace", "}"}, '［': {"a full-width bracket", "["}, '］': {"a full-width bracket", "]"}, '／': {"a full-width slash", "/"},
	'–': {"a dash", "-"}, '—': {"a dash", "-"}, '\u2010': {"a hyphen that is not ASCII", "-"}, '\u2011': {"a no-break hyphen", "-"}, '−': {"a minus sign that is not ASCII", "-"},
	'…': {"an ellipsis", "..."},
}

// lookalike says what to write for r, or returns "" if r is no lookalike.
func lookalike(r rune) string {
	l, ok := lookalikes[r]
	switch {
	case !ok:
		return ""
	case l.plain == "":
		return fmt.Sprintf("the character U+%04X is %s: remove it", r, l.name)
	case strings.HasPrefix(l.name, "a ") && strings.HasSuffix(l.name, "space"):
		return fmt.Sprintf("the character U+%04X is %s: write %s", r, l.name, l.plain)
	}
	return fmt.Sprintf("the character %c (U+%04X) is %s: write %s", r, r, l.name, l.plain)
}

// Lookalike says what to write for the first character of s that only looks like another, or is
// invisible. It returns "" if s has none. It is for texts that have to be ASCII.
func Lookalike(s string) string {
	for _, r := range s {
		if r < utf8.RuneSelf {
			continue
		}
		if hint := lookalike(r); hint != "" {
			return hint
		}
	}
	return ""
}
