package gateway

import "github.com/keygate/keygate/internal/ratelimit"

// Document is a configuration file (specification, Rate limit configuration;
// contract, section 5).
type Document struct {
	Gateway Section
	Routes  []RouteSpec
}

// Section is the section gateway of a configuration file. The zero value
// changes nothing.
type Section struct {
	Name        Member[string]
	UpstreamURL Member[string]
	GlobalLimit Member[ratelimit.Config]
}

// Member is a member of a section: absent, null (which removes), or a value.
type Member[T any] struct {
	Present bool
	Null    bool
	Value   T
}

// ParseDocument reads a configuration file: YAML, and so JSON. The routes have passed
// CheckTable. The error is a validation error whose message begins with "line 12,
// column 5: " and whose field is the dotted path of the place, "" for the
// document as a whole.
func ParseDocument(content []byte) (*Document, error) { panic("x") }

// Export returns the configuration file of a gateway as it stands.
func Export(g *Gateway, routes []Route) *Document { panic("x") }

// Encode writes the document as YAML. ParseDocument of it gives an equal document.
func (d *Document) Encode() []byte { panic("x") }

// ResolveEnv replaces each ${env:NAME} in the values of a configuration file by what
// lookup returns for NAME. A resolved value is always a string, whatever it holds.
// Lines stay where they are. The error is a validation error with the place, as for
// ParseDocument.
func ResolveEnv(content []byte, lookup func(name string) (value string, ok bool)) ([]byte, error) {
	panic("x")
}
