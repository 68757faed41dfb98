package gateway

// Template is a parsed route path: an OpenAPI path template, in which text may
// stand around one or more parameters of a segment, or a path that ends in /*
// and stands for everything below (contract, 4.2).
type Template struct {
	text string
}

// ParseTemplate reads a route path. The error is a validation error without a field.
func ParseTemplate(s string) (Template, error) { panic("x") }

// String returns the template as it was written.
func (t Template) String() string { return t.text }

// Place returns the template with the names of its parameters left out and in
// the normal form of NormalizePath: templates of one place match the same paths.
func (t Template) Place() string { panic("x") }

// Matches reports whether the template matches a path in the normal form.
func (t Template) Matches(path string) bool { panic("x") }

// CheckTable checks the routes of one gateway together: each path is a
// template, each method one that a route may list, none is listed twice, and
// templates of one place have disjoint methods. Errors name the field as
// "[2].path" or "[2].methods".
func CheckTable(routes []RouteSpec) error { panic("x") }

// CheckMethods checks the methods of one route: at least one, each a method
// that a route may list, none twice. The error is a validation error of the
// field "methods".
func CheckMethods(methods []string) error { panic("x") }

// CheckPath checks that a request's path is well formed (contract, 4.5). The
// error is a validation error without a field, whose message says what is wrong.
func CheckPath(path string) error { panic("x") }

// NormalizePath returns the form of a path in which routes and scopes are
// matched: percent-encoded unreserved characters are decoded (RFC 3986,
// 6.2.2.2), the digits of the other escapes are upper case, and bytes that
// cannot stand in a path are escaped. If path has that form already it is
// returned as it is; otherwise the new one is appended to dst, which must be empty.
func NormalizePath(dst []byte, path string) string { panic("x") }
