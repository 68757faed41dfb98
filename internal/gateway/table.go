package gateway

import (
	"fmt"
	"strings"

	"github.com/keygate/keygate/internal/fault"
)

// MaxMethod is the largest number of bytes of a method's name.
const MaxMethod = 32

// CheckTable checks the routes of one gateway together: each path is a
// template, each method one that a route may list, none is listed twice, and
// templates of one place have disjoint methods. Errors name the field as
// "[2].path" or "[2].methods".
func CheckTable(routes []RouteSpec) error {
	type operation struct{ place, method string }
	owner := make(map[operation]int, len(routes))
	for i, r := range routes {
		at := func(field string) string { return fmt.Sprintf("[%d].%s", i, field) }
		t, err := ParseTemplate(r.Path)
		if err != nil {
			return fault.Prefixed(at("path"), err)
		}
		if strings.Contains(r.Path, envMark) {
			return fault.Invalid(at("path"), "%s", envKept)
		}
		if err := CheckMethods(r.Methods); err != nil {
			return fault.Prefixed(fmt.Sprintf("[%d]", i), err)
		}
		for _, method := range r.Methods {
			op := operation{t.Place(), method}
			first, taken := owner[op]
			switch {
			case taken && routes[first].Path == r.Path:
				return fault.Invalid(at("methods"), "%s of %s is listed by another route already", method, r.Path)
			case taken:
				return fault.Invalid(at("methods"), "%s of %s is listed by %s already: paths that differ only in parameter names are one place, so list each method once", method, r.Path, routes[first].Path)
			}
			owner[op] = i
		}
	}
	return nil
}

// CheckMethods checks the methods of one route: at least one, each a method
// that a route may list, none twice. The error is a validation error of the
// field "methods".
func CheckMethods(methods []string) error {
	if len(methods) == 0 {
		return fault.Invalid("methods", "must list at least one method")
	}
	for i, m := range methods {
		switch {
		case m == "CONNECT" || m == "TRACE":
			return fault.Invalid("methods", "%s is always refused, so no route may list it", m)
		case !isMethod(m):
			return fault.Invalid("methods", "%.40q is no method: write it in capitals, as in GET", m)
		}
		for _, earlier := range methods[:i] {
			if earlier == m {
				return fault.Invalid("methods", "%s is listed twice", m)
			}
		}
	}
	return nil
}

// isMethod reports whether m is a capital letter followed by capitals, digits,
// hyphens and underscores.
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
