// Package openapi turns an OpenAPI document into the routes of a gateway
// (specification, Gateway; contract, 4.2 and 5).
//
// It reads the version, the first server, the paths, their operations and the extensions
// x-keygate-rate-limit and x-keygate-auth, and ignores the rest. A reference that leaves the
// document is rejected anywhere, also in schemas; nothing is ever fetched.
package openapi

import (
	"fmt"
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/gateway"
)

// maxWarnings is the maximum number of warnings for a document. Further ones are counted.
const maxWarnings = 50

// Many paths may refer to one path item, which may refer to another, so a document of a few
// megabytes can describe more operations than fit into memory. These limits bound them.
const (
	maxOperations = 100_000
	maxExpanded   = 1_000_000 // members of path items, counted for each reference to them
	maxText       = 64 << 20  // bytes of paths and of field names in messages
	maxReferences = 32        // in a chain from one path item
	maxServerURL  = 8192      // bytes, with its variables replaced
)

// Document is what an OpenAPI document says about routes.
type Document struct {
	// Routes has one route for each operation, in the order of the document. A zero
	// RateLimit means that the document has none.
	Routes []gateway.RouteSpec
	// BasePath is the path of the first server, with which every route's path starts; "" if
	// it has none.
	BasePath string

	warnings []string
	unshown  int
}

// Parse parses an OpenAPI document of version 3.0, 3.1 or 3.2 in YAML or JSON. The routes have
// passed gateway.CheckTable. The error is a validation error whose message starts with
// "line 12, column 5: " and whose field is a dotted path in the document, "" for the whole
// document.
func Parse(content []byte) (*Document, error) {
	root, err := document.Parse(content)
	if err != nil {
		return nil, err
	}
	r := &reader{root: root, doc: &Document{}, taken: map[operation]int{}, members: map[*document.Node]map[string]*document.Node{}}
	for _, step := range []func() error{r.readVersion, r.checkReferences, r.checkRoot, r.readServers, r.readPaths, r.checkTable} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return r.doc, nil
}

// Warnings returns the warnings for the author of a document that is pushed to a gateway with
// this upstream URL.
func (d *Document) Warnings(upstreamURL string) []string {
	var all []string
	up, err := gateway.ParseUpstreamURL(upstreamURL)
	if err == nil && d.BasePath != "" && strings.HasSuffix(normal(strings.TrimRight(up.Path, "/")), normal(d.BasePath)) {
		all = append(all, fmt.Sprintf("upstream_url ends with %s, and so does the URL of the document's first server, whose path is prepended to every route: requests will go to %s%s/…; remove the path from upstream_url unless you mean this",
			d.BasePath, strings.TrimRight(up.Path, "/"), d.BasePath))
	}
	all = append(all, d.warnings...)
	if d.unshown > 0 {
		all = append(all, fmt.Sprintf("and %d more warnings", d.unshown))
	}
	return all
}

func normal(path string) string { return gateway.NormalizePath(nil, path) }

// reader reads one document.
type reader struct {
	root  *document.Node
	doc   *Document
	minor byte // '0', '1' or '2' of OpenAPI 3.x

	// origins has the origin of each route of doc; taken maps operations to routes.
	origins []origin
	taken   map[operation]int

	// Counts that the limits above apply to.
	operations, expanded, text int
	// members indexes large mappings that references lead through.
	members map[*document.Node]map[string]*document.Node
}

// warn adds a warning about the field at p.
func (r *reader) warn(p document.Position, field, format string, args ...any) {
	if len(r.doc.warnings) == maxWarnings {
		r.doc.unshown++
		return
	}
	r.doc.warnings = append(r.doc.warnings, fmt.Sprintf("line %d: %s ", p.Line, document.Short(field))+fmt.Sprintf(format, args...))
}

// readVersion checks that this is an OpenAPI document of a supported version.
func (r *reader) readVersion() error {
	if r.root.Kind != document.Mapping {
		return r.root.Invalid("", "not an OpenAPI document: it must be a mapping with the field openapi, not %s", r.root.Kind)
	}
	version := r.root.Member("openapi")
	if version == nil {
		if old := r.root.Member("swagger"); old != nil {
			return old.NamePosition.Invalid("swagger", "Swagger 2.0 is not supported: convert the document to OpenAPI 3.0, 3.1 or 3.2")
		}
		return r.root.Invalid("openapi", "not an OpenAPI document: the field openapi is missing")
	}
	// An unquoted 3.1 is a number in YAML; accept it.
	if version.Kind != document.String && version.Kind != document.Number {
		return version.Invalid("openapi", "must be a version such as 3.1.0, not %s", version.Kind)
	}
	minor, ok := parseVersion(version.Text)
	if !ok {
		return version.Invalid("openapi", "OpenAPI %q is not supported: use 3.0, 3.1 or 3.2", document.Short(version.Text))
	}
	r.minor = minor
	return nil
}

// parseVersion parses 3.0, 3.1 or 3.2, optionally with a patch number and a suffix.
func parseVersion(s string) (minor byte, ok bool) {
	rest, ok := strings.CutPrefix(s, "3.")
	if !ok || rest == "" || rest[0] < '0' || rest[0] > '2' {
		return 0, false
	}
	patch, dotted := strings.CutPrefix(rest[1:], ".")
	switch {
	case rest[1:] == "":
		return rest[0], true
	case !dotted || patch == "" || patch[0] < '0' || patch[0] > '9':
		return 0, false
	}
	number, _, _ := strings.Cut(patch, "-")
	return rest[0], strings.Trim(number, "0123456789") == ""
}

// checkRoot rejects Keygate's extensions where they have no effect.
func (r *reader) checkRoot() error {
	for _, name := range []string{"", "info", "paths", "components"} {
		n, field := r.root, name
		if name != "" {
			n, field = r.root.Member(name), name+"."
		}
		if n == nil || n.Kind != document.Mapping {
			continue
		}
		for i := range n.Nodes {
			if m := &n.Nodes[i]; isKeygate(m.Name) {
				return m.NamePosition.Invalid(field+m.Name, "extensions of Keygate belong on a path item or an operation")
			}
		}
	}
	return nil
}

// readString returns the text of a string. It rejects ${env:NAME}, which the server does not
// replace (contract, section 5).
func readString(n *document.Node, field string) (string, error) {
	if n.Kind != document.String {
		return "", n.Invalid(field, "must be a string, not %s", n.Kind)
	}
	return n.Text, refuseEnv(n.Position, field, n.Text)
}

func refuseEnv(p document.Position, field, text string) error {
	if strings.Contains(text, "${env:") {
		return p.Invalid(field, "${env:…} is not replaced in an OpenAPI document: write the value itself")
	}
	return nil
}
