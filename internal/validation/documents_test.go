package validation_test

import (
	"context"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/validation"
)

// Guarantee: requests with HEAD are held against the operation of the document for HEAD, also if that is unchecked, and without one against
// that for GET.
func TestOperationOfHEAD(t *testing.T) {
	const text = `{openapi: 3.1.0, info: {title: a, version: "1"}, servers: [{url: "https://a.example"}], paths: {
  /a: {get: {responses: {}}},
  /b: {get: {responses: {}}, head: {responses: {}, parameters: [{in: query, name: n, schema: {pattern: "(?=a)"}}]}}}}`
	documents, err := validation.New(validation.Config{
		Read: func(context.Context, string, int64) ([]byte, error) { return []byte(text), nil },
		Mono: func() time.Duration { return 0 }, Heavy: make(chan struct{}, 1),
	})
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway.Gateway{ID: "gw_a", Revision: 1}
	g.Requests.Checks.Operations = 3
	d := documents.Of(g)
	for path, checked := range map[string]bool{"/a": true, "/b": false} {
		get, err := d.Operation(t.Context(), "GET", path)
		if err != nil || get == nil {
			t.Fatalf("GET %s: got %v, %v, want an operation", path, get, err)
		}
		head, err := d.Operation(t.Context(), "HEAD", path)
		if err != nil || checked != (head == get) || checked != (head != nil) {
			t.Errorf("HEAD %s: got %v, %v, want checked: %t", path, head, err, checked)
		}
	}
}
