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
	for i := range routes {
		d.Routes[i] = routes[i].Spec()
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
	keyIsDefault := d.Gateway.DefaultAuth.Value == "" // of what is left out, earlier versions have stored "key"
	for _, r := range d.Routes {
		if r.Auth == AuthKey && keyIsDefault {
			r.Auth = ""
		}
		r.encode(&b)
	}
	return b.Bytes()
}

// member is a member of a route in a configuration file, in flow style. block writes it after its name in block style; nil if that
// is the same.
type member struct {
	name, flow string
	block      func(b *bytes.Buffer)
}

// members returns what a configuration file says of a route: all that is not at its default.
func (r *RouteSpec) members() []member {
	methods := make([]string, len(r.Methods))
	for i, m := range r.Methods {
		methods[i] = document.Scalar(m)
	}
	list := []member{{"path", inFlow(r.Path), func(b *bytes.Buffer) { b.WriteString(" " + document.Scalar(r.Path) + "\n") }}, {"methods", "[" + strings.Join(methods, ", ") + "]", nil}}
	add := func(is bool, m member) {
		if is {
			list = append(list, m)
		}
	}
	add(!r.RateLimit.IsZero(), member{"rate_limit", yamlLimit(r.RateLimit), nil})
	add(!r.Concurrency.IsZero(), member{"concurrency", yamlConcurrency(r.Concurrency), nil})
	add(len(r.Cost) > 0, member{"cost", string(r.Cost.AppendJSON(nil)), func(b *bytes.Buffer) { b.WriteString("\n" + r.Cost.YAML(6)) }})
	add(r.Upstream != "", member{"upstream", document.Scalar(r.Upstream), nil})
	add(r.Split != nil, member{"split", flowSplit(r.Split), func(b *bytes.Buffer) { encodeSplit(b, r.Split, "      ") }})
	list = append(list, handlingMembers(r.Handling)...)
	add(r.Auth != "", member{"auth", string(r.Auth), nil})
	return list
}

func (r *RouteSpec) encode(b *bytes.Buffer) {
	bullet := "  - "
	for _, m := range r.members() {
		b.WriteString(bullet + m.name + ":")
		if bullet = "    "; m.block != nil {
			m.block(b)
		} else {
			b.WriteString(" " + m.flow + "\n")
		}
	}
}

// Line returns the entry of a route in a configuration file, on one line.
func (r *RouteSpec) Line() string {
	var texts []string
	for _, m := range r.members() {
		texts = append(texts, m.name+": "+m.flow)
	}
	return "{" + strings.Join(texts, ", ") + "}"
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
