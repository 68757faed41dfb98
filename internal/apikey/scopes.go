package apikey

import (
	"slices"
	"strings"
	"unicode"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// MaxScopes is the largest number of scopes of a key.
const MaxScopes = 16

// Scopes is what a key may do: one or more scopes, any one of which suffices to allow a
// request (contract, 3.1).
type Scopes []Scope

// ParseScopes parses 1 to MaxScopes scopes separated by single spaces. No two may be the
// same. The error is a validation error of the field "scope", and shows the right form if
// it can be guessed.
func ParseScopes(s string) (Scopes, error) {
	if n := strings.Count(s, " ") + 1; n > MaxScopes && !strings.Contains(s, "  ") {
		return nil, fault.Invalid("scope", "must have at most %d scopes", MaxScopes)
	}
	if badSpacing(s) {
		return nil, badScopes(s, "several scopes are separated by single spaces, and no other white space is allowed")
	}
	var all, normal Scopes
	for text := range strings.SplitSeq(s, " ") {
		one, problem := parseScope(text)
		if problem != "" {
			return nil, badScopes(s, problem)
		}
		all = append(all, one)
		n := one.normal()
		if slices.Contains(normal, n) {
			return nil, fault.Invalid("scope", "has %s twice: remove one", one)
		}
		normal = append(normal, n)
	}
	return all, nil
}

// badSpacing reports whether s has white space other than single spaces between scopes.
func badSpacing(s string) bool {
	return strings.HasPrefix(s, " ") || strings.HasSuffix(s, " ") || strings.Contains(s, "  ") ||
		strings.Contains(s, ": ") || strings.ContainsFunc(s, func(r rune) bool { return r != ' ' && unicode.IsSpace(r) })
}

func badScopes(s, problem string) error {
	if form := rightForm(s); form != "" {
		return fault.Invalid("scope", "%s: write %q", problem, form)
	}
	return fault.Invalid("scope", "%s", problem)
}

// rightForm returns the scopes that the user probably meant by s, or "".
func rightForm(s string) string {
	if len(s) > 4096 {
		return ""
	}
	texts := strings.FieldsFunc(s, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	var all Scopes
	for i := 0; i < len(texts); i++ {
		text := texts[i]
		if strings.HasSuffix(text, ":") && i+1 < len(texts) { // read: orders
			i++
			text += texts[i]
		}
		var before Scope
		if len(all) > 0 {
			before = all[len(all)-1]
		}
		one, problem := parseScope(guess(text, before))
		if problem != "" {
			return ""
		}
		if !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	if len(all) > MaxScopes {
		return ""
	}
	return all.String()
}

// guess returns what the user probably meant by one scope. before is the scope in front of it.
func guess(text string, before Scope) string {
	text = strings.ReplaceAll(strings.Map(withoutControl, text), `\`, "/")
	word, resource, specific := strings.Cut(text, ":")
	switch _, isWord := ParseWord(strings.ToLower(word)); {
	case isWord:
		word = strings.ToLower(word)
	case !specific && before.Resource != "": // read:orders,customers
		word, resource = before.Word.String(), word
	default: // orders:read
		word, resource = strings.ToLower(resource), word
	}
	if i := strings.IndexAny(resource, "?#"); i >= 0 {
		resource = resource[:i]
	}
	for more := true; more; { // at the end, wildcards and parameters only say "below"
		resource = strings.Trim(strings.TrimRight(resource, "*"), "/")
		i := strings.LastIndexByte(resource, '/') + 1
		last := resource[i:]
		if more = strings.HasPrefix(last, "{") && strings.HasSuffix(last, "}"); more {
			resource = resource[:i]
		}
	}
	if resource == "" {
		return word
	}
	return word + ":" + resource
}

func withoutControl(r rune) rune {
	if unicode.IsControl(r) {
		return -1
	}
	return r
}

// String returns the scopes as users write them.
func (s Scopes) String() string {
	if len(s) == 1 {
		return s[0].String()
	}
	var b strings.Builder
	for i := range s {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(s[i].String())
	}
	return b.String()
}

// Allows reports whether one of the scopes allows method on path, as Scope.Allows does.
func (s Scopes) Allows(method, path string) bool {
	for i := range s {
		if s[i].Allows(method, path) {
			return true
		}
	}
	return false
}

// Word returns the highest word of the scopes, or 0 if there are none.
func (s Scopes) Word() Word {
	var highest Word
	for i := range s {
		highest = max(highest, s[i].Word)
	}
	return highest
}

// WordOn returns the highest word of the scopes that cover path, or 0 if none does.
func (s Scopes) WordOn(path string) Word {
	var highest Word
	for i := range s {
		if s[i].Covers(path) {
			highest = max(highest, s[i].Word)
		}
	}
	return highest
}

// Normal returns the scopes with their resources in the normal form of the paths that they
// are compared with.
func (s Scopes) Normal() Scopes {
	normal := make(Scopes, len(s))
	for i := range s {
		normal[i] = s[i].normal()
	}
	return normal
}

func (s Scope) normal() Scope {
	return Scope{Word: s.Word, Resource: gateway.NormalizePath(nil, s.Resource)}
}
