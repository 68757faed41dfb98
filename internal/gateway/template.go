package gateway

// Template is a parsed route path: an OpenAPI path template, in which text may
// stand around one or more parameters of a segment, or a path that ends in /*
// and stands for everything below (contract, 4.2).
type Template struct {
	text string
}

// ParseTemplate reads a route path. The error is a validation error without a field.
func ParseTemplate(s string) (Template, error) { panic("x") }

// Place returns the template with the names of its parameters left out and its
// percent-encoded unreserved characters decoded: templates of one place match the same paths.
func (t Template) Place() string { panic("x") }

// CheckTable checks the routes of one gateway together: each path is a
// template, each method a method that a route may list, and templates of one place have
// disjoint methods. Errors name the field as "[2].path" or "[2].methods".
func CheckTable(routes []RouteSpec) error { panic("x") }

// NormalizePath appends to dst the path with its percent-encoded unreserved characters decoded.
// (RFC 3986, 6.2.2.2.) If nothing is to be decoded it returns path itself.
func NormalizePath(dst []byte, path string) string { panic("x") }
