// Package openapi turns an OpenAPI document into the routes of a gateway
// (specification, Gateway; contract, 4.2 and 5).
//
// Of a document only the version, the first server, the paths, their operations
// and the extensions x-keygate-rate-limit and x-keygate-auth are read.
// Schemas are looked at for one thing: a reference that leaves the document is
// refused wherever it stands, and nothing is ever fetched.
package openapi

import (
	"fmt"
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/gateway"
)

// maxWarnings is how many warnings a document gives; the rest are counted.
const maxWarnings = 50

// A document of a few megabytes can describe what no memory holds, since a path
// item may be named by many paths and may itself name another. These bound what
// one may become.
const (
	maxOperations = 100_000
	maxExpanded   = 1_000_000 // members of path items, those behind references counted each time
	maxText       = 64 << 20  // bytes of paths and of places in messages
	maxReferences = 32        // from one path item on
	maxServerURL  = 8192      // bytes, its variables replaced
)

// Document is what an OpenAPI document says about routes.
type Document struct {
	// Routes has one route for each operation, in the order of the document. A
	// zero RateLimit means that the document carries none.
	Routes []gateway.RouteSpec
	// BasePath is the path of the first server, with which every route's path
	// begins; "" if it has none.
	BasePath string

	warnings []string
	unshown  int
}

// Parse reads an OpenAPI document of version 3.0, 3.1 or 3.2 in YAML or JSON.
// The routes have passed gateway.CheckTable. The error is a validation error
// whose message begins with "line 12, column 5: " and whose field is the dotted
// path of the place in the document, "" for the document as a whole.
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

// Warnings returns what the author should know about the document when it is
// pushed to a gateway with this upstream URL.
func (d *Document) Warnings(upstreamURL string) []string {
	var all []string
	up, err := gateway.ParseUpstreamURL(upstreamURL)
	if err == nil && d.BasePath != "" && strings.HasSuffix(normal(strings.TrimRight(up.Path, "/")), normal(d.BasePath)) {
		all = append(all, fmt.Sprintf("upstream_url ends with %s, and so does the URL of the document's first server, whose path is put before every route: the upstream will be asked for %s%s/…; take it off upstream_url unless that is meant",
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

	// origins tells for each route of doc where it comes from, and taken which
	// route has an operation.
	origins []origin
	taken   map[operation]int

	// What was read so far, of the bounds above.
	operations, expanded, text int
	// members finds the members of mappings that references led through.
	members map[*document.Node]map[string]*document.Node
}

// warn adds a warning about what stands at p.
func (r *reader) warn(p document.Place, field, format string, args ...any) {
	if len(r.doc.warnings) == maxWarnings {
		r.doc.unshown++
		return
	}
	r.doc.warnings = append(r.doc.warnings, fmt.Sprintf("line %d: %s ", p.Line, document.Short(field))+fmt.Sprintf(format, args...))
}

// readVersion finds out whether this is a document that we read.
func (r *reader) readVersion() error {
	if r.root.Kind != document.Mapping {
		return r.root.Invalid("", "this is no OpenAPI document: it must be a mapping that begins with openapi, not %s", r.root.Kind)
	}
	version := r.root.Member("openapi")
	if version == nil {
		if old := r.root.Member("swagger"); old != nil {
			return old.NamePlace.Invalid("swagger", "Swagger 2.0 is not read: convert the document to OpenAPI 3.0, 3.1 or 3.2")
		}
		return r.root.Invalid("openapi", "this is no OpenAPI document: it has no member openapi")
	}
	// An unquoted 3.1 is a number in YAML, and clear enough.
	if version.Kind != document.String && version.Kind != document.Number {
		return version.Invalid("openapi", "must be a version as in 3.1.0, not %s", version.Kind)
	}
	minor, ok := parseVersion(version.Text)
	if !ok {
		return version.Invalid("openapi", "OpenAPI %q is not read: only 3.0, 3.1 and 3.2 are", document.Short(version.Text))
	}
	r.minor = minor
	return nil
}

// parseVersion reads 3.0, 3.1 or 3.2, perhaps with a patch number and what
// follows it.
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

// checkRoot refuses our extensions where they mean nothing.
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
			if m := &n.Nodes[i]; isOurs(m.Name) {
				return m.NamePlace.Invalid(field+m.Name, "extensions of Keygate stand on a path item or an operation")
			}
		}
	}
	return nil
}

// readString returns the text of a string that we use. In a document that
// reaches the server ${env:NAME} is refused (contract, section 5).
func readString(n *document.Node, field string) (string, error) {
	if n.Kind != document.String {
		return "", n.Invalid(field, "must be a string, not %s", n.Kind)
	}
	return n.Text, refuseEnv(n.Place, field, n.Text)
}

func refuseEnv(p document.Place, field, text string) error {
	if strings.Contains(text, "${env:") {
		return p.Invalid(field, "${env:…} is not replaced in an OpenAPI document: write the value itself")
	}
	return nil
}
