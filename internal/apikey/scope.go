package apikey

import (
	"strings"

	"github.com/keygate/keygate/internal/fault"
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

// ParseScope parses "read", "write", "admin" or "<word>:<resource>", where the resource is
// one or more path segments joined by slashes. The error is a validation error of the field
// "scope".
func ParseScope(s string) (Scope, error) {
	word, resource, specific := strings.Cut(s, ":")
	var sc Scope
	switch word {
	case "read":
		sc.Word = Read
	case "write":
		sc.Word = Write
	case "admin":
		sc.Word = Admin
	default:
		return Scope{}, fault.Invalid("scope", "must be read, write, admin, or one of them with a resource, as in read:orders")
	}
	if !specific {
		return sc, nil
	}
	if len(resource) == 0 || len(resource) > 255 {
		return Scope{}, fault.Invalid("scope", "the resource after the colon must have 1 to 255 characters")
	}
	for i := range len(resource) {
		if !isResourceByte(resource[i]) {
			return Scope{}, fault.Invalid("scope", "the resource must consist of letters, digits and the characters - . _ ~ ! $ & ' ( ) * + , ; = : @ / and %%, as in a path")
		}
	}
	// A resource that is not valid in a request's path could never match.
	if problem, _ := gateway.InspectPath("/" + resource); problem != "" || strings.HasSuffix(resource, "/") {
		return Scope{}, fault.Invalid("scope", "the resource must be path segments joined by single slashes, as in read:orders/items, and valid in a request's path: without dot segments, encoded slashes, encoded control bytes, or a %% that two hexadecimal digits do not follow")
	}
	sc.Resource = resource
	return sc, nil
}

// isResourceByte reports whether c is allowed in a URL path (RFC 3986: pchar or "/").
func isResourceByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		strings.IndexByte("-._~!$&'()*+,;=:@/%", c) >= 0
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
	return s.Word.AllowsMethod(method) && s.covers(path)
}

func (s Scope) covers(path string) bool {
	if s.Resource == "" {
		return true
	}
	n := len(s.Resource)
	if len(path) < n+1 || path[0] != '/' || path[1:n+1] != s.Resource {
		return false
	}
	return len(path) == n+1 || path[n+1] == '/'
}
