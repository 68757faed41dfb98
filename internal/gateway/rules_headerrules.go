package gateway

import (
	"maps"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/cookie"
	"github.com/keygate/keygate/internal/fault"
)

// Bounds of the headers that a gateway or a route sets and removes (edge.md, section 2).
const (
	MaxHeaderRules     = 32
	maxHeaderRuleBytes = 8 << 10 // of all names and values together
	maxHeaderVariables = 32      // in all values together
)

// foldHeader returns the form of a header's name in which names are the same header: services that follow CGI treat "_" and "-" as
// the same character.
func foldHeader(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

func sortedNames(h map[string]string) []string { return slices.Sorted(maps.Keys(h)) }

// checkRuleHeaders checks headers that are set, in the field of, and adds their names to those seen. Errors are validation errors of the
// field, or of fields of it.
func checkRuleHeaders(of string, set map[string]string, seen map[string]bool) error {
	if n := len(set); n > MaxHeaderRules {
		return fault.Invalid(of, "must not have more than %d headers, not %d", MaxHeaderRules, n)
	}
	if size := headerBytes(set); size > maxHeaderRuleBytes {
		return fault.Invalid(of, "must have at most %d bytes, all names and values together, not %d", maxHeaderRuleBytes, size)
	}
	var problems []error
	for _, name := range sortedNames(set) {
		problems = append(problems, checkRuleName(of, of+"."+name, name, seen))
		switch value := set[name]; {
		case !isASCIIValue(value):
			problems = append(problems, fault.Invalid(of+"."+name, "must have printable ASCII characters only, and no spaces at either end"))
		case foldHeader(name) == "set-cookie" && cookie.SetsSession(value):
			problems = append(problems, fault.Invalid(of+"."+name, "must not set the cookie of sessions on the management API: choose another name for the cookie"))
		}
	}
	return fault.Join(problems...)
}

// checkRuleName checks the name of a header that a gateway or a route sets or removes, and adds it to those seen. Errors are of the field
// at, or of the field of for what is no name.
func checkRuleName(of, at, name string, seen map[string]bool) error {
	if !isToken(name) || len(name) > maxHeaderName {
		return fault.Invalid(of, "%.40q is not a valid header name", name)
	}
	folded := foldHeader(name)
	repeated := seen[folded]
	seen[folded] = true
	switch {
	case repeated:
		return fault.Invalid(at, "is a duplicate: names that differ only in case, or in - and _, are the same header")
	case isRuleReserved(folded):
		return fault.Invalid(at, "is reserved: it frames the message, names its host or client, holds a credential, or Keygate sets it")
	}
	return nil
}

// isRuleReserved reports whether no rule may name a header. name is folded.
func isRuleReserved(name string) bool {
	switch name {
	case "authorization", "retry-after", "date", "alt-svc", "grpc-timeout":
		return true
	}
	return isReservedHeader(name) || beginsWith(name, "x-keygate", "x-forwarded", "x-ratelimit", "ratelimit")
}

// isASCIIValue reports whether s is a value of a header in visible ASCII, with spaces and tabs within.
func isASCIIValue(s string) bool {
	return isHeaderValue(s) && strings.IndexFunc(s, func(r rune) bool { return r > '~' }) < 0
}
