package gateway

import (
	"maps"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/fault"
)

// Bounds of the headers that a gateway or a route sets and removes (edge.md, section 2).
const (
	MaxHeaderRules     = 32
	maxHeaderRuleBytes = 8 << 10 // of all names and values together
)

// foldHeader returns the form of a header's name in which names are the same header: services that follow CGI treat "_" and "-" as
// the same character.
func foldHeader(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

func sortedNames(h map[string]string) []string { return slices.Sorted(maps.Keys(h)) }

// checkHeaderRules checks headers that are set in the field of, and names that are removed in removeField of it. Errors are validation
// errors of these fields.
func checkHeaderRules(of string, set map[string]string, remove []string) error {
	if n := len(set) + len(remove); n > MaxHeaderRules {
		return fault.Invalid(of, "must not have more than %d headers, not %d", MaxHeaderRules, n)
	}
	size := headerBytes(set)
	for _, name := range remove {
		size += len(name)
	}
	if size > maxHeaderRuleBytes {
		return fault.Invalid(of, "must have at most %d bytes, all names and values together, not %d", maxHeaderRuleBytes, size)
	}
	var problems []error
	seen := map[string]bool{}
	for _, name := range sortedNames(set) {
		problems = append(problems, checkRuleName(of, name, seen))
		if value := set[name]; !isASCIIValue(value) {
			problems = append(problems, fault.Invalid(of+"."+name, "must have printable ASCII characters only, and no spaces at either end"))
		}
	}
	return fault.Join(problems...)
}

// checkRuleName checks the name of a header that a gateway or a route sets or removes, and adds it to those seen.
func checkRuleName(of, name string, seen map[string]bool) error {
	if !isToken(name) || len(name) > maxHeaderName {
		return fault.Invalid(of, "%.40q is not a valid header name", name)
	}
	folded := foldHeader(name)
	repeated := seen[folded]
	seen[folded] = true
	switch {
	case repeated:
		return fault.Invalid(of+"."+name, "is a duplicate: names that differ only in case, or in - and _, are the same header")
	case isRuleReserved(folded):
		return fault.Invalid(of+"."+name, "is reserved: it frames the message, names its host or client, or Keygate sets it")
	}
	return nil
}

// isRuleReserved reports whether no rule may name a header. name is folded.
func isRuleReserved(name string) bool {
	return isReservedHeader(name) || name == "retry-after" || name == "date" || name == "alt-svc" || beginsWith(name, "x-keygate", "x-forwarded", "x-ratelimit", "ratelimit")
}

// isASCIIValue reports whether s is a value of a header in visible ASCII, with spaces and tabs within.
func isASCIIValue(s string) bool {
	return isHeaderValue(s) && strings.IndexFunc(s, func(r rune) bool { return r > '~' }) < 0
}
