// Package openapi turns an OpenAPI document into the routes of a gateway
// (specification, Gateway; contract, 4.2 and 5).
package openapi

import "github.com/keygate/keygate/internal/gateway"

// Document is what an OpenAPI document says about routes.
type Document struct {
	// Routes has one route for each operation, in the order of the document. A
	// zero RateLimit means that the document carries none.
	Routes []gateway.RouteSpec
	// BasePath is the path of the first server, which every route's path begins
	// with; "" if it has none.
	BasePath string

	warnings []string
}

// Parse reads an OpenAPI document of version 3.0, 3.1 or 3.2 in YAML or JSON. The
// routes have passed gateway.CheckTable. The error is a validation error
// whose message begins with "line 12, column 5: " and whose field is the dotted
// path of the place in the document, "" for the document as a whole.
func Parse(content []byte) (*Document, error) { panic("x") }

// Warnings returns what the author should know about the document when it
// is pushed to a gateway with this upstream URL.
func (d *Document) Warnings(upstreamURL string) []string { panic("x") }
