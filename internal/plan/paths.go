package plan

import "strings"

// Paths is the routes that a limit names, in a form that is asked often. It is immutable. A nil Paths is every route.
type Paths struct {
	exact map[string]struct{} // as Nameless returns them
	below map[string]struct{} // "/prefix" for "/prefix/*"
}

// NewPaths returns the routes that patterns name, or nil if there are none.
func NewPaths(patterns []string) *Paths {
	if len(patterns) == 0 {
		return nil
	}
	p := &Paths{exact: map[string]struct{}{}, below: map[string]struct{}{}}
	for _, pattern := range patterns {
		pattern = Nameless(pattern)
		p.exact[pattern] = struct{}{}
		if prefix, ok := strings.CutSuffix(pattern, "/*"); ok {
			p.exact[prefix] = struct{}{}
			p.below[prefix] = struct{}{}
		}
	}
	return p
}

// Cover reports whether the route with the path, a template, is among p, whatever its parameters are called. Its cost does not
// depend on the number of patterns, and it does not allocate.
func (p *Paths) Cover(path string) bool {
	if p == nil {
		return true
	}
	if strings.IndexByte(path, '{') < 0 {
		return cover(p, path)
	}
	var kept [maxPath + 1]byte // a path that is cut off is longer than any of a limit
	return cover(p, appendNameless(kept[:0], path))
}

// cover reports whether the route with a path without names is in p.
func cover[T string | []byte](p *Paths, path T) bool {
	if _, ok := p.exact[string(path)]; ok {
		return true
	}
	if len(p.below) == 0 {
		return false
	}
	for i := range len(path) {
		if path[i] != '/' {
			continue
		}
		if _, ok := p.below[string(path[:i])]; ok {
			return true
		}
	}
	return false
}

// Nameless returns a template without the names of its parameters: /orders/{} for /orders/{id}. Two templates that differ in
// these names alone are of the same route.
func Nameless(template string) string {
	if strings.IndexByte(template, '{') < 0 {
		return template
	}
	return string(appendNameless(make([]byte, 0, len(template)), template))
}

// appendNameless appends Nameless(template), or as much of it as dst has room for, to dst.
func appendNameless(dst []byte, template string) []byte {
	named := false
	for i := range len(template) {
		c := template[i]
		if named && c != '}' {
			continue
		}
		if len(dst) == cap(dst) {
			break
		}
		named = c == '{'
		dst = append(dst, c)
	}
	return dst
}
