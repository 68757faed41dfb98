package gateway

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

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
	for i, r := range routes {
		d.Routes[i] = RouteSpec{Path: r.Path, Methods: r.Methods, RateLimit: r.RateLimit, Auth: r.Auth}
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
		methods[i] = yamlString(m)
	}
	fmt.Fprintf(b, "  - path: %s\n    methods: [%s]\n", yamlString(r.Path), strings.Join(methods, ", "))
	if !r.RateLimit.IsZero() {
		fmt.Fprintf(b, "    rate_limit: %s\n", yamlLimit(r.RateLimit))
	}
	if r.Auth == AuthNone {
		fmt.Fprintf(b, "    auth: %s\n", r.Auth)
	}
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

// yamlString returns s as a YAML scalar that every parser, also of YAML 1.1, reads as that
// string: plain if that is safe, otherwise in double quotes.
func yamlString(s string) string {
	if isPlain(s) {
		return s
	}
	return yamlQuoted(s)
}

// yamlQuoted returns s in double quotes on one line, in a form that YAML and JSON share.
func yamlQuoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0xfffe || r == 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// isPlain reports whether s is a plain scalar in block context, and in flow context if it is a
// method: it starts with a letter or slash, contains nothing that could end it, and is not a
// word for a boolean or null.
func isPlain(s string) bool {
	switch strings.ToLower(s) {
	case "", "true", "false", "yes", "no", "on", "off", "y", "n", "null":
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '/':
		case i == 0:
			return false
		case '0' <= c && c <= '9' || strings.IndexByte("-_.~{}*%+=&;!$()@", c) >= 0:
		case c == ':' && i+1 < len(s) && s[i+1] != ' ':
		case c == ' ' && i+1 < len(s):
		default:
			return false
		}
	}
	return true
}
