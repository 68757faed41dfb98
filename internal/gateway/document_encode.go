package gateway

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Export returns a gateway and its routes, sorted by path, as a configuration file: all settings
// that are not at their default, and the global limit in any case. Secrets are Masked. Applying
// the file to the same gateway changes nothing.
func Export(g *Gateway, routes []Route) *Document {
	d := &Document{Routes: make([]RouteSpec, len(routes))}
	for _, s := range Settings() {
		s.values.export(&d.Gateway, g)
	}
	d.Gateway.exportUpstreams(g)
	for i, r := range routes {
		d.Routes[i] = RouteSpec{Path: r.Path, Methods: r.Methods, RateLimit: r.RateLimit, Concurrency: r.Concurrency, Cost: r.Cost, Upstream: r.Upstream, Split: r.Split, Auth: r.Auth}
	}
	slices.SortFunc(d.Routes, func(a, b RouteSpec) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), slices.Compare(a.Methods, b.Methods))
	})
	return d
}

// Encode returns the document as YAML, with rates as they were written. ParseDocument turns it
// into an equal document.
func (d *Document) Encode() []byte {
	var b bytes.Buffer
	if !d.Gateway.IsEmpty() {
		b.WriteString("gateway:\n")
		d.Gateway.encode(&b)
	}
	if len(d.Routes) == 0 {
		b.WriteString("routes: []\n")
		return b.Bytes()
	}
	b.WriteString("routes:\n")
	for _, r := range d.Routes {
		r.encode(&b)
	}
	return b.Bytes()
}

func (r *RouteSpec) encode(b *bytes.Buffer) {
	methods := make([]string, len(r.Methods))
	for i, m := range r.Methods {
		methods[i] = document.Scalar(m)
	}
	fmt.Fprintf(b, "  - path: %s\n    methods: [%s]\n", document.Scalar(r.Path), strings.Join(methods, ", "))
	if !r.RateLimit.IsZero() {
		fmt.Fprintf(b, "    rate_limit: %s\n", yamlLimit(r.RateLimit))
	}
	if !r.Concurrency.IsZero() {
		fmt.Fprintf(b, "    concurrency: %s\n", yamlConcurrency(r.Concurrency))
	}
	if len(r.Cost) > 0 {
		b.WriteString("    cost:\n" + r.Cost.YAML(6))
	}
	if r.Upstream != "" {
		fmt.Fprintf(b, "    upstream: %s\n", document.Scalar(r.Upstream))
	}
	if r.Split != nil {
		b.WriteString("    split:")
		encodeSplit(b, r.Split, "      ")
	}
	if r.Auth != AuthKey && r.Auth != "" {
		fmt.Fprintf(b, "    auth: %s\n", r.Auth)
	}
}

// yamlConcurrency returns a bound of requests in flight as a flow mapping.
func yamlConcurrency(c ratelimit.Concurrency) string {
	if c.Per == "" {
		return fmt.Sprintf("{max: %d}", c.Max)
	}
	return fmt.Sprintf("{max: %d, per: %s}", c.Max, document.Scalar(c.Per))
}

// yamlLimit returns a limit as a flow mapping. Rates need no quotes.
func yamlLimit(c ratelimit.Config) string {
	var members []string
	for _, m := range []struct {
		name string
		rate ratelimit.Rate
	}{{"sustained", c.Sustained}, {"burst", c.Burst}, {"daily", c.Daily}} {
		if !m.rate.IsZero() {
			members = append(members, m.name+": "+m.rate.String())
		}
	}
	if c.Per != "" {
		members = append(members, "per: "+c.Per)
	}
	return "{" + strings.Join(members, ", ") + "}"
}
