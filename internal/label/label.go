// Package label checks the texts by which people recognize records: names of accounts, gateways and keys, and
// other texts that are shown as they were given.
package label

import (
	"unicode"
	"unicode/utf8"

	"github.com/keygate/keygate/internal/fault"
)

// MaxName is the maximum number of characters of a name.
const MaxName = 255

// CheckName checks a name. The error is a validation error of the field.
func CheckName(field, name string) error {
	switch n := utf8.RuneCountInString(name); {
	case n == 0 || n > MaxName || !utf8.ValidString(name):
		return fault.Invalid(field, "must have 1 to %d characters", MaxName)
	case isBlank(name):
		return fault.Invalid(field, "must have a visible character, not blanks alone")
	}
	return CheckText(field, name)
}

// CheckText checks that a text contains nothing that makes it look like another text: control characters, and
// invisible ones such as direction marks. The error is a validation error of the field.
func CheckText(field, text string) error {
	if at, found := unshown(text); found {
		if unicode.IsControl(at) {
			return fault.Invalid(field, "must not contain control characters, such as a line break: remove U+%04X", at)
		}
		return fault.Invalid(field, "must not contain invisible characters, such as direction marks: remove U+%04X", at)
	}
	return nil
}

// unshown returns the first character of a text that is not shown.
func unshown(text string) (r rune, found bool) {
	var before rune
	for _, r := range text {
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) && !joins(before, r) {
			return r, true
		}
		before = r
	}
	return 0, false
}

// joins reports whether r is a joiner after a character that can be joined, as in Persian words and in emoji.
func joins(before, r rune) bool {
	return (r == '\u200c' || r == '\u200d') && before > unicode.MaxLatin1 && unicode.In(before, unicode.L, unicode.M, unicode.S)
}

// isBlank reports whether nothing of a text is visible.
func isBlank(text string) bool {
	for _, r := range text {
		switch r {
		case '\u115f', '\u1160', '\u2800', '\u3164', '\uffa0': // letters and symbols without ink
			continue
		}
		if !unicode.IsSpace(r) && !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Z) {
			return false
		}
	}
	return true
}

// The bounds of metadata.
const (
	MaxMetadata = 16  // properties
	maxProperty = 64  // bytes of a name
	maxValue    = 255 // bytes of a value
)

// CheckMetadata checks properties that users give to a record for their own purposes. The error is a validation error
// of the field.
func CheckMetadata(field string, metadata map[string]string) error {
	if len(metadata) > MaxMetadata {
		return fault.Invalid(field, "must have at most %d properties", MaxMetadata)
	}
	for name, value := range metadata {
		if name == "" || len(name) > maxProperty || len(value) > maxValue {
			return fault.Invalid(field, "names must have 1 to %d bytes and values at most %d", maxProperty, maxValue)
		}
		if err := CheckText(field, name); err != nil {
			return err
		}
		for _, r := range value { // which may have several lines
			if unicode.Is(unicode.Bidi_Control, r) {
				return fault.Invalid(field, "must not contain direction marks: remove U+%04X", r)
			}
		}
	}
	return nil
}
