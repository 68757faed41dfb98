package openapi

import (
	"net/url"
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/gateway"
)

// readServers sets the base path to that of the first server.
func (r *reader) readServers() error {
	servers := r.root.Member("servers")
	if servers == nil {
		return nil
	}
	if servers.Kind != document.Sequence {
		return servers.Invalid("servers", "must be a list, not %s", servers.Kind)
	}
	if len(servers.Nodes) == 0 {
		return nil
	}
	base, err := readServer(&servers.Nodes[0], "servers[0]")
	if err != nil {
		return err
	}
	r.doc.BasePath = base
	for i := range servers.Nodes[1:] {
		// A malformed server is ignored, because only the first is used.
		if other, err := readServer(&servers.Nodes[1+i], ""); err == nil && other != base {
			r.warn(servers.Nodes[1+i].Position, "servers", "has servers with other paths: only that of the first, %q, is used", base)
			break
		}
	}
	return nil
}

// readServer returns the path of a server's URL, with variables replaced by their defaults and
// without a trailing slash.
func readServer(n *document.Node, field string) (string, error) {
	if n.Kind != document.Mapping {
		return "", n.Invalid(field, "must be a mapping, not %s", n.Kind)
	}
	at := n.Member("url")
	if at == nil {
		return "", n.Invalid(field+".url", "is missing")
	}
	text, err := readString(at, field+".url")
	if err != nil {
		return "", err
	}
	if text, err = replaceVariables(n, at, text, field); err != nil {
		return "", err
	}
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || strings.ContainsAny(text, "{}") {
		return "", at.Invalid(field+".url", "must be a URL such as https://api.example.com/v1")
	}
	// A relative URL is relative to the URL of the document, which is unknown. Resolve it
	// from the root.
	path := strings.TrimRight((&url.URL{Path: "/"}).ResolveReference(u).EscapedPath(), "/")
	if path == "" {
		return "", nil
	}
	if _, err := gateway.ParseTemplate(path); err != nil || strings.Contains(path, "*") {
		return "", at.Invalid(field+".url", "the path %q cannot be prepended to the paths of routes", document.Short(path))
	}
	return strings.Clone(path), nil // a slice would keep the whole document in memory
}

// replaceVariables replaces the server's variables in its URL by their defaults.
func replaceVariables(server, at *document.Node, text, field string) (string, error) {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, "{")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		name, rest, closed := strings.Cut(after, "}")
		if !closed {
			return "", at.Invalid(field+".url", "has a { without a }")
		}
		text = rest
		var variable, value *document.Node
		if variables := server.Member("variables"); variables != nil {
			variable = variables.Member(name)
		}
		if variable != nil {
			value = variable.Member("default")
		}
		if value == nil || value.Kind == document.Mapping || value.Kind == document.Sequence || value.Kind == document.Null {
			return "", at.Invalid(field+".url", "uses {%s}, which has no default in variables", document.Short(name))
		}
		if err := refuseEnv(value.Position, field+".variables."+name+".default", value.Text); err != nil {
			return "", err
		}
		if out.WriteString(value.Text); out.Len() > maxServerURL {
			return "", at.Invalid(field+".url", "must have at most %d bytes with its variables replaced", maxServerURL)
		}
	}
}
