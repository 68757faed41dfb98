package openapi_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/openapi"
)

// repeat returns n lines.
func repeat(n int, line func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(line(i))
	}
	return b.String()
}

// Guarantee: a document within the maximum size of a request is rejected if its references or
// variables would expand to more than the limits.
func TestBounds(t *testing.T) {
	const head = "openapi: 3.2.0\n"
	for name, c := range map[string]struct{ doc, message string }{
		"a chain of references": {
			head + "paths:\n" + repeat(3000, func(i int) string { return fmt.Sprintf("  /a%d: {$ref: \"#/paths/~1a%d\"}\n", i, i+1) }) + "  /a3000: {get: {}}\n",
			"more than 32 references",
		},
		"many operations behind one reference": {
			head + "paths:\n" + repeat(2000, func(i int) string { return fmt.Sprintf("  /a%d: {$ref: \"#/components/pathItems/x\"}\n", i) }) +
				"components: {pathItems: {x: {additionalOperations: {" + repeat(2000, func(i int) string { return fmt.Sprintf("M%d: {}, ", i) }) + "}}}}\n",
			"more than 100000 operations",
		},
		"many members behind one reference": {
			head + "paths:\n" + repeat(2000, func(i int) string { return fmt.Sprintf("  /a%d: {$ref: \"#/components/pathItems/x\"}\n", i) }) +
				"components: {pathItems: {x: {" + repeat(2000, func(i int) string { return fmt.Sprintf("x-%d: 1, ", i) }) + "}}}\n",
			"more than 1000000 members",
		},
		"a long base path before many operations": {
			head + "servers: [{url: \"/" + strings.Repeat("a", 4000) + "\"}]\npaths:\n" +
				repeat(20000, func(i int) string { return fmt.Sprintf("  /a%d: {get: {}}\n", i) }),
			"more than 64 MiB",
		},
		"a long path with many operations": {
			`{"openapi": "3.2.0", "paths": {"/` + strings.Repeat("a", 1<<20) + `": {"additionalOperations": {` +
				repeat(2000, func(i int) string { return fmt.Sprintf(`"M%d": {}, `, i) }) + `"M": {}}}}}`,
			"at most 4096 bytes",
		},
		"a server's variable used often": {
			`{"openapi": "3.2.0", "servers": [{"url": "/` + strings.Repeat("{a}", 100000) + `", "variables": {"a": {"default": "` + strings.Repeat("a", 1<<20) + `"}}}], "paths": {}}`,
			"at most 8192 bytes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := openapi.Parse([]byte(c.doc))
			var f *fault.Error
			if !errors.As(err, &f) || f.Code != fault.ValidationFailed || !strings.Contains(f.Message, c.message) {
				t.Errorf("got %.300v, want a validation error with %q", err, c.message)
			}
		})
	}
}

// Guarantee: many paths may refer to the same path item.
func TestSharedPathItem(t *testing.T) {
	const paths = 10000
	doc := "openapi: 3.1.0\npaths:\n" +
		repeat(paths, func(i int) string {
			return fmt.Sprintf("  /a%d: {$ref: \"#/components/pathItems/x%d\"}\n", i, paths-1-i%2)
		}) +
		"components:\n  pathItems:\n" + repeat(paths, func(i int) string { return fmt.Sprintf("    x%d: {get: {}}\n", i) })
	d, err := openapi.Parse([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Routes) != paths {
		t.Errorf("got %d routes, want %d", len(d.Routes), paths)
	}
}

// Guarantee: many paths may refer to a path item with a large cost, which is read once.
func TestSharedCost(t *testing.T) {
	const paths = 20000
	doc := "openapi: 3.1.0\npaths:\n" +
		repeat(paths, func(i int) string { return fmt.Sprintf("  /a%d: {$ref: \"#/components/pathItems/x\"}\n", i) }) +
		"components:\n  pathItems:\n    x:\n      get: {}\n      x-keygate-cost:\n        - meter: tokens\n          max: 5\n          from:\n            json: {a: 1}\n            by: model\n            prices:\n" +
		repeat(64, func(i int) string { return fmt.Sprintf("              m%d: {a: 1, b: 2, c: 3, d: 4}\n", i) })
	d, err := openapi.Parse([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range d.Routes {
		if len(r.Cost) != 1 || &r.Cost[0] != &d.Routes[0].Cost[0] {
			t.Fatalf("%s does not share the cost of %s", r.Path, d.Routes[0].Path)
		}
	}
}
