package adminapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// path is a path of the API with its operations by method.
type path struct {
	segments []string // "{name}" for a parameter
	calls    map[string]*operation
	allow    string // value of the Allow header
}

// groupByPath groups the operations by path. Paths with fewer parameters come
// first, so that a literal segment takes precedence over a parameter.
func groupByPath(ops []operation) []path {
	var paths []path
	at := map[string]int{}
	for i := range ops {
		op := &ops[i]
		n, known := at[op.path]
		if !known {
			n = len(paths)
			at[op.path] = n
			paths = append(paths, path{segments: strings.Split(op.path, "/"), calls: map[string]*operation{}})
		}
		paths[n].calls[op.method] = op
	}
	for i := range paths {
		var methods []string
		for m := range paths[i].calls {
			methods = append(methods, m)
			if m == http.MethodGet {
				methods = append(methods, http.MethodHead)
			}
		}
		slices.Sort(methods)
		paths[i].allow = strings.Join(methods, ", ")
	}
	slices.SortStableFunc(paths, func(a, b path) int {
		return strings.Count(strings.Join(a.segments, "/"), "{") - strings.Count(strings.Join(b.segments, "/"), "{")
	})
	return paths
}

// match matches the segments of a request's path and returns the values of the
// path parameters.
func (p *path) match(segments []string) (params map[string]string, ok bool) {
	if len(segments) != len(p.segments) {
		return nil, false
	}
	params = map[string]string{}
	for i, want := range p.segments {
		if !strings.HasPrefix(want, "{") {
			if segments[i] != want {
				return nil, false
			}
			continue
		}
		v, err := url.PathUnescape(segments[i])
		if err != nil || v == "" {
			return nil, false
		}
		params[want[1:len(want)-1]] = v
	}
	return params, true
}

// find sets c.op, or the Allow header if the path has no such method. It never fails: charge
// reports an unknown path or method, once the key is checked.
func (c *call) find() error {
	p := c.findPath()
	if p == nil {
		return nil
	}
	method := c.request.Method
	if method == http.MethodHead {
		method = http.MethodGet // net/http does not send the body
	}
	c.op = p.calls[method]
	if c.op == nil {
		c.header.Set("Allow", p.allow)
	}
	return nil
}

// findPath returns the path that the request matches, or nil, and sets c.params.
func (c *call) findPath() *path {
	segments := strings.Split(c.normalPath(), "/")
	for i := range c.api.paths {
		if params, ok := c.api.paths[i].match(segments); ok {
			c.params = params
			return &c.api.paths[i]
		}
	}
	return nil
}

// normalPath returns the path in the form in which scopes and operations are
// matched: percent-encoded unreserved characters are decoded, and nothing else.
func (c *call) normalPath() string {
	return gateway.NormalizePath(nil, c.request.URL.EscapedPath())
}

// noSuchCall returns the error for a request that matches no operation: 405 if
// its path exists, else 404.
func (c *call) noSuchCall() error {
	if c.header.Get("Allow") != "" {
		return fault.New(fault.MethodNotAllowed, "method %s is not allowed for this path: use %s", c.request.Method, c.header.Get("Allow"))
	}
	return fault.New(fault.NotFound, "there is no such path: see GET /v1/openapi.json for all paths")
}
