package apply

import (
	"cmp"
	"slices"
	"strings"
)

// Secrets are the values of environment variables in a file, which are not shown to people.
type Secrets map[string]string // from the values to ${env:NAME}

// shortestSecret is the least number of bytes of a value that is replaced in messages. Shorter
// values would be found in unrelated text.
const shortestSecret = 4

// remember returns a function that looks a variable up as lookup does, and has Hide replace its
// value.
func (f *File) remember(lookup func(string) (string, bool)) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := lookup(name)
		if ok && len(value) >= shortestSecret {
			if f.Secrets == nil {
				f.Secrets = Secrets{}
			}
			f.Secrets[value] = "${env:" + name + "}"
		}
		return value, ok
	}
}

// Hide replaces the values of environment variables in a text by the names of the variables,
// whatever their case: the server may have changed it.
func (s Secrets) Hide(text string) string {
	if len(s) == 0 {
		return text
	}
	values := make([]string, 0, len(s))
	for v := range s {
		values = append(values, v)
	}
	slices.SortFunc(values, func(x, y string) int { return cmp.Or(len(y)-len(x), cmp.Compare(x, y)) })
	for _, v := range values {
		text = replaceFold(text, v, s[v])
	}
	return text
}

// replaceFold replaces each occurrence of old in a text, whatever the case of ASCII letters.
func replaceFold(text, old, by string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		if len(text)-i >= len(old) && strings.EqualFold(text[i:i+len(old)], old) {
			b.WriteString(by)
			i += len(old)
			continue
		}
		b.WriteByte(text[i])
		i++
	}
	return b.String()
}
