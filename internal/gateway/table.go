package gateway

import (
	"fmt"
	"strings"

	"github.com/keygate/keygate/internal/fault"
)

// MaxMethod is the maximum number of bytes of a method.
const MaxMethod = 32

// CheckTable checks the routes of one gateway together: each path is a valid template, each
// method may be routed and is listed once, and templates that match the same paths have no
// method in common. Errors name the field as "[2].path" or "[2].methods".
func CheckTable(routes []RouteSpec) error {
	type operation struct{ pattern, method string }
	owner := make(map[operation]int, len(routes))
	for i, r := range routes {
		at := func(field string) string { return fmt.Sprintf("[%d].%s", i, field) }
		t, err := ParseTemplate(r.Path)
		if err != nil {
			return fault.Prefixed(at("path"), err)
		}
		if strings.Contains(r.Path, envMark) {
			return fault.Invalid(at("path"), "%s", envForbidden)
		}
		if err := CheckMethods(r.Methods); err != nil {
			return fault.Prefixed(fmt.Sprintf("[%d]", i), err)
		}
		for _, method := range r.Methods {
			op := operation{t.Pattern(), method}
			first, taken := owner[op]
			switch {
			case taken && routes[first].Path == r.Path:
				return fault.Invalid(at("methods"), "%s of %s is already listed by another route", method, r.Path)
			case taken:
				return fault.Invalid(at("methods"), "%s of %s is already listed by %s: paths that differ only in parameter names are the same path, so list each method once", method, r.Path, routes[first].Path)
			}
			owner[op] = i
		}
	}
	return nil
}

// CheckMethods checks the methods of one route: at least one, all of which may be routed,
// and no duplicates. The error is a validation error of the field "methods".
func CheckMethods(methods []string) error {
	if len(methods) == 0 {
		return fault.Invalid("methods", "must contain at least one method")
	}
	for i, m := range methods {
		switch {
		case m == "CONNECT" || m == "TRACE":
			return fault.Invalid("methods", "%s cannot be routed: Keygate always rejects it", m)
		case !isMethod(m):
			return fault.Invalid("methods", "%.40q is not a valid method: write it in upper case, such as GET", m)
		}
		for _, earlier := range methods[:i] {
			if earlier == m {
				return fault.Invalid("methods", "%s is listed twice", m)
			}
		}
	}
	return nil
}

// isMethod reports whether m is an upper-case letter followed by upper-case letters,
// digits, hyphens and underscores.
func isMethod(m string) bool {
	if m == "" || len(m) > MaxMethod {
		return false
	}
	for i := range len(m) {
		c := m[i]
		switch {
		case 'A' <= c && c <= 'Z':
		case i > 0 && ('0' <= c && c <= '9' || c == '-' || c == '_'):
		default:
			return false
		}
	}
	return true
}
