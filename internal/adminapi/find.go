package adminapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// path is a path of the API with its calls by method.
type path struct {
	segments []string // "{name}" for a parameter
	calls    map[string]*operation
	allow    string
}

// groupByPath groups the operations by path, literal segments before parameters.
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

// match returns the parameters of a path's segments; ok is false if it is
// another path.
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

// find looks the call up. It fails only on a path that needs no key: what else
// it does not find is told after the key is known, by charge.
func (c *call) find() error {
	p := c.findPath()
	if p == nil {
		return nil
	}
	method := c.request.Method
	if method == http.MethodHead {
		method = http.MethodGet // the server drops the body
	}
	c.op = p.calls[method]
	if c.op == nil {
		c.header.Set("Allow", p.allow)
	}
	return nil
}

// findPath returns the path of the request, or nil if the API has none such.
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

// normalPath is the path as scopes and routes see it: with percent-encoded
// unreserved characters decoded, and nothing else.
func (c *call) normalPath() string {
	return gateway.NormalizePath(nil, c.request.URL.EscapedPath())
}

// noSuchCall returns the error for a request that is no call of the API.
func (c *call) noSuchCall() error {
	if c.header.Get("Allow") != "" {
		return fault.New(fault.MethodNotAllowed, "this path takes %s", c.header.Get("Allow"))
	}
	return fault.New(fault.NotFound, "there is no such path: GET /v1/openapi.json lists them all")
}
