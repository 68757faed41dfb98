// Package openapi turns an OpenAPI document into the routes of a gateway
// (specification, Gateway; contract, 4.2 and 5).
//
// It reads the version, the first server, the paths, their operations and the extensions x-keygate-rate-limit,
// x-keygate-concurrency, x-keygate-auth, x-keygate-cost and x-keygate-upstream, and those of what routes do with their requests.
// Parse does not look at schemas, parameters and references to them: Document.Compile does. References of path items within the
// document are followed, and nothing is fetched.
package openapi

import (
	"strings"

	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/validate"
)

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
	// RateLimit means that the document has none, and so does an empty Cost.
	Routes []gateway.RouteSpec
	// BasePath is the path of the first server, with which every route's path starts; "" if
	// it has none.
	BasePath string
	// Upstreams says where the routes that name an upstream name it, by their indexes in Routes.
	Upstreams map[int]Reference
	// Splits says where the splits of the routes name their upstreams, by the indexes of those that have one.
	Splits map[int]*SplitReference

	warnings []*warning
	unshown  int

	root       *document.Node
	minor      byte
	operations []validate.Source
}

// Compile compiles the checks of requests against the document, one for each of the first n Routes, in their order
// (validate.Compile).
func (d *Document) Compile(n int) []validate.Result {
	return validate.Compile(d.root, d.minor, d.operations[:min(n, len(d.operations))], nil)
}

// SplitReference is where a document names the upstreams of a split.
type SplitReference struct {
	Field     string // of the split
	Upstreams []document.Position
}

// Reference is where a document names something.
type Reference struct {
	Field string
	document.Position
}

// Parse parses an OpenAPI document of version 3.0, 3.1 or 3.2 in YAML or JSON. The routes have
// passed gateway.CheckTable. The error is a validation error that lists everything that is
// wrong, in the order of the document. Each message starts with "line 12, column 5: ", and
// each field is a dotted path in the document, "" for the whole document.
func Parse(content []byte) (*Document, error) {
	root, err := document.Parse(content)
	if err != nil {
		return nil, err
	}
	r := &reader{
		root: root, doc: &Document{}, warned: map[string]*warning{},
		taken: map[operation]int{}, members: map[*document.Node]map[string]*document.Node{},
	}
	if err := r.readVersion(); err != nil {
		if r.minor == 0 {
			return nil, err
		}
		r.problems.Add(err)
	}
	r.checkRoot()
	r.problems.Add(r.readServers())
	r.readPaths()
	r.checkTable()
	if err := r.problems.Err(); err != nil {
		return nil, err
	}
	r.doc.root, r.doc.minor = r.root, r.minor
	return r.doc, nil
}

// reader reads one document.
type reader struct {
	root  *document.Node
	doc   *Document
	minor byte // '0', '1' or '2' of OpenAPI 3.x

	problems document.Problems
	stopped  bool                // a limit is exceeded: the rest is not read
	warned   map[string]*warning // of doc, by their message

	// origins has the origin of each route of doc; taken maps operations to routes.
	origins []origin
	taken   map[operation]int
	costs   cost.Cache

	// Counts that the limits above apply to.
	operations, expanded, text int
	// members indexes large mappings that references lead through.
	members map[*document.Node]map[string]*document.Node
}

// done reports whether the rest of the document need not be read.
func (r *reader) done() bool { return r.stopped || r.problems.Full() }

// stop adds err, because of which the rest of the document is not read.
func (r *reader) stop(err error) {
	r.problems.Add(err)
	r.stopped = true
}

// readVersion checks that this is an OpenAPI document of a supported version. If it is of another version 3, the rest is
// read as the newest.
func (r *reader) readVersion() error {
	if r.root.Kind != document.Mapping {
		return r.root.Invalid("", "not an OpenAPI document: it must be a mapping with the field openapi, not %s", r.root.Kind)
	}
	version := r.root.Member("openapi")
	if version == nil {
		if old := r.root.Member("swagger"); old != nil {
			return old.NamePosition.Invalid("swagger", "Swagger 2.0 is not supported: convert the document to OpenAPI 3 first, for example with \"npx swagger2openapi FILE -o openapi.json\" or at https://converter.swagger.io")
		}
		return r.root.Invalid("openapi", "not an OpenAPI document: the field openapi is missing")
	}
	// An unquoted 3.1 is a number in YAML; accept it.
	if version.Kind != document.String && version.Kind != document.Number {
		return version.Mismatch("openapi", document.String, "a version such as 3.1.0")
	}
	minor, ok := parseVersion(version.Text)
	if !ok {
		if strings.HasPrefix(version.Text, "3") {
			r.minor = '2'
		}
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

// checkRoot rejects Keygate's extensions where they have no effect, and warns of the fields that
// Swagger 2.0 had instead of servers.
func (r *reader) checkRoot() {
	for _, name := range []string{"host", "basePath", "schemes", "server"} {
		if m := r.root.Member(name); m != nil {
			r.warn(m.NamePosition, name, "is not a field of OpenAPI 3 and has no effect: write the address in servers, as in servers: [{url: https://api.example.com/v1}]")
		}
	}
	for _, name := range []string{"", "info", "paths", "components"} {
		n, field := r.root, name
		if name != "" {
			n, field = r.root.Member(name), name+"."
		}
		if n == nil || n.Kind != document.Mapping {
			continue
		}
		for i := range n.Nodes {
			if m := &n.Nodes[i]; isKeygate(m.Name) && !r.done() {
				r.problems.Add(m.NamePosition.Invalid(field+m.Name, "extensions of Keygate belong on a path item or an operation"))
			}
		}
	}
}

// readString returns the text of a string. It rejects ${env:NAME}, which the server does not
// replace (contract, section 5).
func readString(n *document.Node, field string) (string, error) {
	if n.Kind != document.String {
		return "", n.Mismatch(field, document.String, "")
	}
	return n.Text, refuseEnv(n.Position, field, n.Text)
}

func refuseEnv(p document.Position, field, text string) error {
	if strings.Contains(text, document.EnvMark) {
		return p.Invalid(field, "${env:…} is not replaced in an OpenAPI document: write the value itself")
	}
	return nil
}
