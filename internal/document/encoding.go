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

// fileType is a kind of file that people send instead of a document, recognized by its first bytes.
type fileType struct{ start, message string }

func fileTypes() []fileType {
	return []fileType{
		{"\xff\xfe\x00\x00", "the document must be UTF-8, not UTF-32: save it as UTF-8"},
		{"\x00\x00\xfe\xff", "the document must be UTF-8, not UTF-32: save it as UTF-8"},
		{"\xff\xfe", "the document must be UTF-8, not UTF-16: save it as UTF-8"},
		{"\xfe\xff", "the document must be UTF-8, not UTF-16: save it as UTF-8"},
		{"\x1f\x8b", "this is a file that gzip has compressed: send the document itself"},
		{"PK\x03\x04", "this is a zip archive: send the document itself"},
		{"%PDF-", "this is a PDF file: send a document in YAML or JSON"},
		{"version https://git-lfs.github.com/spec/", "this is a pointer of Git LFS, which stands for the document: send the document itself (git lfs pull), or keep it out of LFS"},
	}
}

// encodingProblem returns where text is not UTF-8, and what to do about it. The message is "" if it
// is UTF-8.
func encodingProblem(text string) (offset int, message string) {
	for _, t := range fileTypes() {
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

// latin says which character a byte that is not UTF-8 stands for in the encodings that such bytes most often come from.
func latin(b byte) string {
	const most = "; it is %q in %s: save the document as UTF-8"
	// The characters that people type among the characters that Windows-1252 has instead of control characters.
	windows := map[byte]rune{0x80: '€', 0x85: '…', 0x91: '‘', 0x92: '’', 0x93: '“', 0x94: '”', 0x95: '•', 0x96: '–', 0x97: '—', 0x99: '™'}
	switch {
	case b >= 0xa0:
		return fmt.Sprintf(most, rune(b), "Latin-1 (ISO 8859-1)")
	case windows[b] != 0:
		return fmt.Sprintf(most, windows[b], "Windows-1252")
	}
	return ": save the document as UTF-8"
}

// alike says what to write instead of r, if editors, chats and web pages put r in the place of
// another character. kind says what r is, and is "" for any other character; plain is the character
// to write, and is "" if r is to be removed.
func alike(r rune) (kind, plain string) {
	switch r {
	case '“', '”', '„', '«', '»':
		return "a typographic quote", `"`
	case '‘', '’', '‚':
		return "a typographic quote", "'"
	case '＂':
		return "a full-width quote", `"`
	case '\u00a0':
		return "a no-break space", "a plain space"
	case '\u202f':
		return "a narrow no-break space", "a plain space"
	case '\u2002', '\u2003', '\u3000':
		return "a wide space", "a plain space"
	case '\u2009':
		return "a thin space", "a plain space"
	case '\u200b':
		return "an invisible space", ""
	case '\u200c', '\u200d', '\u2060':
		return "invisible", ""
	case '\u00ad':
		return "an invisible hyphen", ""
	case '\u200e', '\u200f':
		return "an invisible direction mark", ""
	case '\ufeff':
		return "a byte order mark, and invisible", ""
	case '：':
		return "a full-width colon", ":"
	case '，':
		return "a full-width comma", ","
	case '｛', '｝', '［', '］', '／':
		return "a full-width character", string(r - 0xfee0)
	case '–', '—', '\u2010', '\u2011', '−':
		return "a dash that is not ASCII", "-"
	case '…':
		return "an ellipsis", "..."
	}
	return "", ""
}

// lookalike says what to write for r, or returns "" if r is no lookalike.
func lookalike(r rune) string {
	kind, plain := alike(r)
	switch {
	case kind == "":
		return ""
	case plain == "":
		return fmt.Sprintf("the character U+%04X is %s: remove it", r, kind)
	case plain == "a plain space":
		return fmt.Sprintf("the character U+%04X is %s: write %s", r, kind, plain)
	}
	return fmt.Sprintf("the character %c (U+%04X) is %s: write %s", r, r, kind, plain)
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
