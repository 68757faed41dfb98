package openapi

import (
	"net/url"
	"strings"
	"unicode"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/gateway"
)

// readServers sets the base path to the path of the first server's URL.
func (r *reader) readServers() error {
	servers := r.root.Member("servers")
	if servers == nil {
		return nil
	}
	if servers.Kind != document.Sequence {
		return servers.Mismatch("servers", document.Sequence, "")
	}
	if len(servers.Nodes) == 0 {
		return nil
	}
	base, err := readServer(&servers.Nodes[0], "servers[0]")
	if err != nil {
		return err
	}
	r.doc.BasePath = base
	r.warnOfServer(&servers.Nodes[0], base)
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
		return "", n.Mismatch(field, document.Mapping, "")
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
	if err != nil || u.Opaque != "" || strings.ContainsAny(text, "{} \t") || isHostWithoutScheme(text) {
		return "", at.Invalid(field+".url", "must be a URL such as https://api.example.com/v1%s", serverRemedy(text))
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

// isHostWithoutScheme reports whether a URL, which is a relative path as it is, begins like the name of
// a host.
func isHostWithoutScheme(text string) bool {
	first, _, _ := strings.Cut(text, "/")
	name := strings.Trim(first, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.") == ""
	labels := strings.Split(first, ".")
	last := labels[len(labels)-1]
	return name && len(labels) > 1 && labels[0] != "" && strings.ContainsFunc(last, unicode.IsLetter) && !strings.ContainsAny(last, "0123456789") || first == "localhost"
}

// serverRemedy says what to write in the place of what is no URL.
func serverRemedy(text string) string {
	switch {
	case strings.TrimSpace(text) != text:
		return ": remove the space around it"
	case document.Lookalike(text) != "":
		return ": " + document.Lookalike(text)
	case !strings.Contains(text, "://") && text != "":
		return ": write https:// before a host, or the path alone, as in /v1"
	}
	return ""
}

// warnOfServer warns of parts of the first server's URL that Keygate does not use.
func (r *reader) warnOfServer(server *document.Node, base string) {
	at := server.Member("url")
	const field = "servers[0].url"
	_, path, _ := strings.Cut(strings.TrimPrefix(at.Text, "//"), "://")
	if !strings.Contains(at.Text, "://") {
		path = strings.TrimPrefix(at.Text, "//")
	}
	if strings.Contains(at.Text, "//") {
		_, path, _ = strings.Cut(path, "/")
	}
	if strings.ContainsAny(path, "?#") {
		r.warn(at.Position, field, "has a query or a fragment, which is ignored: only its path is put before the paths of routes")
	}
	if path != "" && !strings.Contains(at.Text, "//") && path[0] != '/' && path[0] != '{' {
		r.warn(at.Position, field, "is relative to the address of the document, which Keygate does not know: it is read as %q; write that, or the whole URL", base+"/")
	}
	variables := server.Member("variables")
	if variables == nil {
		return
	}
	for i := range variables.Nodes {
		v := &variables.Nodes[i]
		if values := v.Member("enum"); values != nil && len(values.Nodes) > 1 && strings.Contains(path, "{"+v.Name+"}") {
			r.warn(at.Position, field, "has {%s} in its path, of which only the default is used: the routes are below %q alone", document.Short(v.Name), base+"/")
		}
	}
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
