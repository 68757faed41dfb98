package repository

import (
	"strings"
	"unicode/utf8"
)

// windows1252 has the characters of Windows-1252 that Latin-1 lacks, at its control characters 0x80
// to 0x9f. U+FFFD stands for a byte without a character.
const windows1252 = "€\ufffd‚ƒ„…†‡ˆ‰Š‹Œ\ufffdŽ\ufffd\ufffd‘’“”•–—˜™š›œ\ufffdžŸ"

// commitText returns a text of a commit in UTF-8. encoding is the commit's header of that name, or "". A
// text in Latin-1 or Windows-1252, or in an unknown encoding that is not UTF-8, is read as
// Windows-1252, which has all letters of Latin-1.
func commitText(text, encoding string) string {
	if !isLatin(encoding) && utf8.ValidString(text) {
		return text
	}
	high := []rune(windows1252)
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case c >= 0x80 && c < 0xa0:
			b.WriteRune(high[c-0x80])
		default:
			b.WriteRune(rune(c))
		}
	}
	return b.String()
}

// isLatin reports whether an encoding is Latin-1 or Windows-1252, by one of the names that people give
// to i18n.commitEncoding.
func isLatin(encoding string) bool {
	switch strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(encoding)) {
	case "iso88591", "latin1", "l1", "windows1252", "cp1252":
		return true
	}
	return false
}
