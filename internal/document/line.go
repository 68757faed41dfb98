package document

import (
	"strings"
	"unicode/utf8"
)

// LineBreak returns the length of the line break at the start of s: "\n", "\r\n" or "\r". It is 0 if
// there is none.
func LineBreak(s string) int {
	switch {
	case strings.HasPrefix(s, "\r\n"):
		return 2
	case strings.HasPrefix(s, "\n"), strings.HasPrefix(s, "\r"):
		return 1
	}
	return 0
}

// advance returns the position after text, which starts at p and does not end within a line break.
func (p Position) advance(text string) Position {
	for {
		next := strings.IndexAny(text, "\r\n")
		if next < 0 {
			p.Column += int32(utf8.RuneCountInString(text))
			return p
		}
		text = text[next+LineBreak(text[next:]):]
		p.Line++
		p.Column = 1
	}
}

// positionOf returns the position of a byte offset.
func positionOf(text string, offset int) Position {
	return Position{1, 1}.advance(text[:min(max(offset, 0), len(text))])
}

// PositionOf returns the position of a byte offset in a text.
func PositionOf(text string, offset int) Position { return positionOf(text, offset) }

// offsetOf returns the byte offset of a position, or of the end of its line if the line is shorter.
func offsetOf(text string, p Position) int {
	at := 0
	for line := int32(1); line < p.Line; line++ {
		next := strings.IndexAny(text[at:], "\r\n")
		if next < 0 {
			return len(text)
		}
		at += next
		at += LineBreak(text[at:])
	}
	for range p.Column - 1 {
		if at == len(text) || LineBreak(text[at:]) > 0 {
			break
		}
		_, size := utf8.DecodeRuneInString(text[at:])
		at += size
	}
	return at
}

// lineOf returns the part of a line that is before an offset, and the rest of it.
func lineOf(text string, offset int) (before, after string) {
	start := strings.LastIndexAny(text[:offset], "\r\n") + 1
	end := strings.IndexAny(text[offset:], "\r\n")
	if end < 0 {
		end = len(text) - offset
	}
	return text[start:offset], text[offset : offset+end]
}
