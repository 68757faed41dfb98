package gateway

import (
	"errors"
	"fmt"
	"strings"

	"github.com/keygate/keygate/internal/fault"
)

// MaxMethod is the maximum number of bytes of a method.
const MaxMethod = 32

// RowProblem is what is wrong with one field of a route in a table. Row counts from 0.
type RowProblem struct {
	Row            int
	Field, Message string
}

// CheckTable checks the routes of one gateway together: each path is a valid template, each
// method may be routed and is listed once, and templates that match the same paths have no
// method in common. It returns at most fault.MaxProblems problems, in the order of the rows.
func CheckTable(routes []RouteSpec) []RowProblem {
	c := tableCheck{routes: routes, owner: make(map[operation]int, len(routes))}
	for i := range routes {
		if c.row(i); len(c.problems) >= fault.MaxProblems {
			return c.problems[:fault.MaxProblems]
		}
	}
	return c.problems
}

// operation identifies what a route answers: two routes may not have one in common.
type operation struct{ pattern, method string }

type tableCheck struct {
	routes   []RouteSpec
	owner    map[operation]int // the row of each operation
	problems []RowProblem
}

func (c *tableCheck) add(row int, field, format string, args ...any) {
	c.problems = append(c.problems, RowProblem{row, field, fmt.Sprintf(format, args...)})
}

func (c *tableCheck) row(i int) {
	r := &c.routes[i]
	before := len(c.problems)
	t, err := ParseTemplate(r.Path)
	switch {
	case err != nil:
		c.add(i, "path", "%s", messageOf(err))
	case strings.Contains(r.Path, envMark):
		c.add(i, "path", "%s", envForbidden)
	}
	if err := CheckMethods(r.Methods); err != nil {
		c.add(i, "methods", "%s", messageOf(err))
	}
	if len(c.problems) > before {
		return
	}
	for _, method := range r.Methods {
		op := operation{t.Pattern(), method}
		first, taken := c.owner[op]
		switch {
		case !taken:
			c.owner[op] = i
		case c.routes[first].Path == r.Path:
			c.add(i, "methods", "%s of %s is already listed by another route", method, r.Path)
		default:
			c.add(i, "methods", "%s of %s is already listed by %s: paths that differ only in parameter names are the same path, so list each method once", method, r.Path, c.routes[first].Path)
		}
		if len(c.problems) > before {
			return
		}
	}
}

// messageOf returns the public message of a validation error.
func messageOf(err error) string {
	var bad *fault.Error
	if errors.As(err, &bad) {
		return bad.Message
	}
	return err.Error()
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
