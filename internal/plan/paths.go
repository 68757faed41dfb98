package plan

import "strings"

// Paths is the routes that a limit names, in a form that is asked often. It is immutable. A nil Paths is every route.
type Paths struct {
	exact map[string]struct{}
	below map[string]struct{} // "/prefix" for "/prefix/*"
}

// NewPaths returns the routes that patterns name, or nil if there are none.
func NewPaths(patterns []string) *Paths {
	if len(patterns) == 0 {
		return nil
	}
	p := &Paths{exact: map[string]struct{}{}, below: map[string]struct{}{}}
	for _, pattern := range patterns {
		p.exact[pattern] = struct{}{}
		if prefix, ok := strings.CutSuffix(pattern, "/*"); ok {
			p.exact[prefix] = struct{}{}
			p.below[prefix] = struct{}{}
		}
	}
	return p
}

// Cover reports whether the route with the path, a template, is among p. Its cost does not depend on the number of
// patterns, and it does not allocate.
func (p *Paths) Cover(path string) bool {
	if p == nil {
		return true
	}
	if _, ok := p.exact[path]; ok {
		return true
	}
	if len(p.below) == 0 {
		return false
	}
	for i := range len(path) {
		if path[i] != '/' {
			continue
		}
		if _, ok := p.below[path[:i]]; ok {
			return true
		}
	}
	return false
}
