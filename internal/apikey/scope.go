package apikey

import (
	"strings"
	"unicode"

	"github.com/keygate/keygate/internal/gateway"
)

// Word is the part of a scope that says which methods it allows.
type Word uint8

// The scope words, from the least to the most power.
const (
	Read Word = iota + 1
	Write
	Admin
)

func (w Word) String() string {
	switch w {
	case Read:
		return "read"
	case Write:
		return "write"
	case Admin:
		return "admin"
	default:
		return ""
	}
}

// AllowsMethod reports whether the word allows the HTTP method (contract, 4.2, 6): read
// allows GET, HEAD and OPTIONS; write also POST, PUT and PATCH; admin every method.
func (w Word) AllowsMethod(method string) bool {
	switch method {
	case "GET", "HEAD", "OPTIONS":
		return w >= Read
	case "POST", "PUT", "PATCH":
		return w >= Write
	default:
		return w >= Admin
	}
}

// Scope is what a key may do: a word and, for a path-specific scope, the resource whose
// paths it is limited to.
type Scope struct {
	Word     Word
	Resource string // without leading and trailing slashes; "" for every path
}

// ParseWord returns the scope word that text names.
func ParseWord(text string) (w Word, ok bool) {
	for _, w := range [...]Word{Read, Write, Admin} {
		if text == w.String() {
			return w, true
		}
	}
	return 0, false
}

// ParseScope returns the one scope that s is. ok is false if it is none.
func ParseScope(s string) (sc Scope, ok bool) {
	if strings.ContainsFunc(s, unicode.IsSpace) {
		return Scope{}, false
	}
	sc, problem := parseScope(s)
	return sc, problem == ""
}

// parseScope parses "read", "write", "admin" or "<word>:<resource>", where the resource is
// one or more path segments joined by slashes. problem is "" or says what is wrong.
func parseScope(s string) (sc Scope, problem string) {
	word, resource, specific := strings.Cut(s, ":")
	sc.Word, _ = ParseWord(word)
	if sc.Resource = resource; !specific && sc.Word != 0 {
		return sc, ""
	}
	for _, check := range []struct {
		wrong   bool
		problem string
	}{
		{strings.ContainsFunc(s, unicode.IsControl), "must not contain control characters"},
		{strings.Contains(s, ","), "several scopes are separated by single spaces, not by commas"},
		{strings.Contains(s, "*"), "a scope has no wildcards, because it allows its resource and every path below it"},
		{strings.ContainsAny(s, "?#"), "the resource is a path without a query or a fragment"},
		{strings.Contains(s, `\`), "the segments of the resource are joined by slashes, not by backslashes"},
		{sc.Word == 0, "must be read, write, admin, or one of them with a resource, as in read:orders"},
		{len(resource) == 0 || len(resource) > 255, "the resource after the colon must have 1 to 255 characters"},
		{!isResource(resource), "the resource must consist of letters, digits and the characters - . _ ~ ! $ & ' ( ) + ; = : @ / and %, as in a path"},
	} {
		if check.wrong {
			return Scope{}, check.problem
		}
	}
	// A resource that is not valid in a request's path could never match. Encoded slashes are
	// valid at gateways that allow them.
	if problem, _, _ := gateway.InspectRequestPath("/" + resource); problem != "" || strings.HasSuffix(resource, "/") {
		return Scope{}, "the resource must be path segments joined by single slashes, as in read:orders/items, and valid in a request's path: without dot segments, encoded control bytes, or a % that two hexadecimal digits do not follow"
	}
	return sc, ""
}

// isResource reports whether s has only characters of a URL path (RFC 3986: pchar or "/"),
// except the wildcard * and the comma.
func isResource(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~!$&'()+;=:@/%", c) >= 0) {
			return false
		}
	}
	return true
}

func (s Scope) String() string {
	if s.Resource == "" {
		return s.Word.String()
	}
	return s.Word.String() + ":" + s.Resource
}

// Allows reports whether the scope allows method on path, which is matched by whole
// segments (contract, 4.2, 6). path begins with a slash, and its percent-encoded unreserved
// characters are decoded.
func (s Scope) Allows(method, path string) bool {
	return s.Word.AllowsMethod(method) && s.Covers(path)
}

// Covers reports whether path is within the scope's resource, whatever the method.
func (s Scope) Covers(path string) bool {
	if s.Resource == "" {
		return true
	}
	n := len(s.Resource)
	if len(path) < n+1 || path[0] != '/' || path[1:n+1] != s.Resource {
		return false
	}
	return len(path) == n+1 || path[n+1] == '/'
}
