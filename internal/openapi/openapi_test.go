package openapi_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/openapi"
)

var update = flag.Bool("update", false, "update the golden files")

// show returns a document as text, with a line for each route and warning.
func show(d *openapi.Document) string {
	var b strings.Builder
	fmt.Fprintf(&b, "base %q\n", d.BasePath)
	for _, r := range d.Routes {
		fmt.Fprintf(&b, "%s %s auth=%s", strings.Join(r.Methods, ","), r.Path, r.Auth)
		for _, m := range [][2]string{{"sustained", r.RateLimit.Sustained.String()}, {"burst", r.RateLimit.Burst.String()}, {"daily", r.RateLimit.Daily.String()}, {"per", r.RateLimit.Per}} {
			if m[1] != "" {
				fmt.Fprintf(&b, " %s=%s", m[0], m[1])
			}
		}
		if c := r.Concurrency; !c.IsZero() {
			fmt.Fprintf(&b, " concurrency=%d", c.Max)
			if c.Per != "" {
				fmt.Fprintf(&b, "/%s", c.Per)
			}
		}
		if r.Cost != nil {
			fmt.Fprintf(&b, " cost=%s", r.Cost.AppendJSON(nil))
		}
		if r.Split != nil {
			fmt.Fprintf(&b, " split=%s", r.Split.AppendJSON(nil))
		}
		if r.Handling != nil {
			fmt.Fprintf(&b, " handling=%s", r.Handling.AppendJSON(nil))
		}
		b.WriteByte('\n')
	}
	for _, w := range d.Warnings("https://upstream.internal/api/v2/") {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	return b.String()
}

// showProblems returns an error as text, with a line for each problem.
func showProblems(err error) string {
	var b strings.Builder
	for _, p := range fault.ProblemsOf(err) {
		fmt.Fprintf(&b, "error: %d:%d %s: %s\n", p.Line, p.Column, p.Field, p.Message)
	}
	return b.String()
}

// Guarantee: each document of testdata has the routes and warnings, or the error, of its
// golden file: all of its problems at once, and each kind of warning once.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil {
		t.Fatal(err)
	}
	cases := 0
	for _, file := range files {
		if filepath.Ext(file) == ".golden" {
			continue
		}
		cases++
		t.Run(filepath.Base(file), func(t *testing.T) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			if d, err := openapi.Parse(content); err != nil {
				got = showProblems(err)
			} else {
				got = show(d)
			}
			golden := file + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
	if cases == 0 {
		t.Fatal("got no documents in testdata; want some")
	}
}

// head is the start of a document. The text after it starts on line 4.
const head = "openapi: 3.1.0\ninfo: {title: t, version: v}\npaths:\n"

// invalidDocument is a document and the error that it must have.
type invalidDocument struct{ text, position, field, message string }

// wantRejected fails unless every document is rejected with its message, position and field.
func wantRejected(t *testing.T, documents []invalidDocument) {
	t.Helper()
	for _, c := range documents {
		_, err := openapi.Parse([]byte(c.text))
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != fault.ValidationFailed {
			t.Errorf("%q: got %v, want a validation error", c.text, err)
			continue
		}
		if !strings.HasPrefix(f.Message, "line "+c.position+": ") || !strings.Contains(f.Message, c.message) || f.Field != c.field {
			t.Errorf("%q: got %q of %q,\nwant %q of %q at line %s", c.text, f.Message, f.Field, c.message, c.field, c.position)
		}
	}
}

// Guarantee: a text that is not an OpenAPI document of a supported version, with paths, is
// rejected with its position and field.
func TestInvalidDocumentsAreRejected(t *testing.T) {
	wantRejected(t, []invalidDocument{
		{"", "1, column 1", "", "empty"},
		{"a: b: c\n", "1, column 5", "", "must be in quotes"},
		{"hello\n", "1, column 1", "", "not an OpenAPI document"},
		{"[]", "1, column 1", "", "not an OpenAPI document"},
		{"info: {}\npaths: {}\n", "1, column 1", "openapi", "the field openapi is missing"},
		{"info: {}\nswagger: '2.0'\n", "2, column 1", "swagger", "Swagger 2.0"},
		{"openapi: 2.0.0\npaths: {}\n", "1, column 10", "openapi", "use 3.0, 3.1 or 3.2"},
		{"openapi: 3.3.0\npaths: {}\n", "1, column 10", "openapi", "use 3.0, 3.1 or 3.2"},
		{"openapi: 3.10.0\npaths: {}\n", "1, column 10", "openapi", "use 3.0, 3.1 or 3.2"},
		{"openapi: 3.0.x\npaths: {}\n", "1, column 10", "openapi", "use 3.0, 3.1 or 3.2"},
		{"openapi: [3.0.0]\npaths: {}\n", "1, column 10", "openapi", "must be a version"},
		{"openapi: 3.0.0\n", "1, column 1", "paths", "missing"},
		{"openapi: 3.0.0\npaths:\n", "2, column 7", "paths", "must be a mapping, not null"},
		{"openapi: 3.0.0\npaths: []\n", "2, column 8", "paths", "must be a mapping"},
	})
}

// Guarantee: an invalid path, path item or operation is rejected with its position and field.
func TestInvalidPathsAreRejected(t *testing.T) {
	wantRejected(t, []invalidDocument{
		{head + "  a: {}\n", "4, column 3", "paths.a", "start with a slash"},
		{head + "  /a/../b: {get: {}}\n", "4, column 3", "paths./a/../b", "dot"},
		{head + "  /a/{b: {get: {}}\n", "4, column 3", "paths./a/{b", "without a }"},
		{head + "  /a: x\n", "4, column 7", "paths./a", "must be a mapping"},
		{head + "  /a:\n    get:\n", "5, column 9", "paths./a.get", "must be a mapping, not null"},
		{head + "  /a/${env:B}: {}\n", "4, column 3", "paths./a/${env:B}", "${env:"},
		{head + "  /a#b/../{: {get: {}}\n  /a/b}#c: {get: {}}\n", "5, column 3", "paths./a/b}#c", "without a {"},
		{strings.Replace(head, "3.1.0", "3.2.0", 1) + "  /a:\n    additionalOperations:\n      POST: {}\n", "6, column 7", "paths./a.additionalOperations.POST", "as post"},
		{strings.Replace(head, "3.1.0", "3.2.0", 1) + "  /a:\n    additionalOperations:\n      copy: {}\n", "6, column 7", "paths./a.additionalOperations.copy", "upper case"},
		{`{"openapi": "3.1.0",` + "\n" + `"paths": {"/a": {}, "/a": {}}}`, "2, column 21", "", "is a duplicate"},
	})
}

// Guarantee: an invalid, unknown or misplaced extension of Keygate is rejected with its position
// and field.
func TestInvalidExtensionsAreRejected(t *testing.T) {
	wantRejected(t, []invalidDocument{
		{"openapi: 3.0.0\nx-keygate-rate-limit: {burst: 5/s}\npaths: {}\n", "2, column 1", "x-keygate-rate-limit", "path item or an operation"},
		{head + "  x-keygate-auth: none\n", "4, column 3", "paths.x-keygate-auth", "path item or an operation"},
		{head + "  /a:\n    x-keygate-ratelimit: {}\n", "5, column 5", "paths./a.x-keygate-ratelimit", "is not an extension"},
		{head + "  /a:\n    get:\n      X-Keygate-Auth: none\n", "6, column 7", "paths./a.get.X-Keygate-Auth", "is not an extension"},
		{head + "  /a:\n    get:\n      x-keygate-auth: open\n", "6, column 23", "paths./a.get.x-keygate-auth", "must be key"},
		{head + "  /a:\n    get:\n      x-keygate-auth: true\n", "6, column 23", "paths./a.get.x-keygate-auth", "must be a string"},
		{head + "  /a:\n    get:\n      x-keygate-rate-limit: 5/s\n", "6, column 29", "paths./a.get.x-keygate-rate-limit", "must be a mapping"},
		{head + "  /a:\n    get:\n      x-keygate-rate-limit:\n        burst: 0/s\n", "7, column 16", "paths./a.get.x-keygate-rate-limit.burst", "is not a valid rate"},
		{head + "  /a:\n    x-keygate-rate-limit:\n      daily: 5/s\n    get: {}\n", "6, column 14", "paths./a.x-keygate-rate-limit.daily", "<count>/day"},
		{head + "  /a:\n    get:\n      x-keygate-rate-limit: {per: key}\n", "6, column 29", "paths./a.get.x-keygate-rate-limit", "at least one"},
		{head + "  /a:\n    get:\n      x-keygate-rate-limit: {burst: 5/s, per: ip}\n", "6, column 47", "paths./a.get.x-keygate-rate-limit.per", "must be \"key\""},
		{head + "  /a:\n    get:\n      x-keygate-rate-limit: {rate: 5/s}\n", "6, column 30", "paths./a.get.x-keygate-rate-limit.rate", "is not a field"},
		{head + "  /a:\n    get:\n      x-keygate-rate-limit: {burst: '${env:B}'}\n", "6, column 37", "paths./a.get.x-keygate-rate-limit.burst", "${env:"},
		{head + "  /a:\n    get: {x-keygate-rate-limit: {burst: 5/s}}\n  /a?b:\n    get: {x-keygate-rate-limit: {burst: 6/s}}\n", "7, column 5", "paths./a?b.get", "differ in x-keygate-rate-limit"},
		{head + "  /a:\n    get: {x-keygate-auth: none}\n  /a?b:\n    get: {}\n", "7, column 5", "paths./a?b.get", "differ in x-keygate-auth"},
		{head + "  /a:\n    get: {x-keygate-rate-limit: {burst: 5/s}}\n  /a#b:\n    get: {x-keygate-rate-limit: {burst: 6/s}}\n", "7, column 5", "paths./a#b.get", "without their query or fragment, but the two differ in x-keygate-rate-limit"},
		{head + "  /a/{x}:\n    get: {x-keygate-rate-limit: {burst: 5/s}}\n  /a/{y}:\n    get: {x-keygate-rate-limit: {daily: 6/day}}\n", "7, column 5", "paths./a/{y}.get", "only in parameter names are the same path, but the two differ in x-keygate-rate-limit"},
		{head + "  /a/{x}:\n    get: {x-keygate-rate-limit: {burst: 5/s}}\n  /a/{y}:\n    get: {}\n", "7, column 5", "paths./a/{y}.get", "differ in x-keygate-rate-limit"},
		{head + "  /a/{x}:\n    get: {}\n  /a/{y}:\n    x-keygate-rate-limit: {burst: 5/s}\n    get: {}\n", "8, column 5", "paths./a/{y}.get", "differ in x-keygate-rate-limit"},
		{head + "  /a:\n    get: {}\n  /a#b:\n    get: {x-keygate-rate-limit: {burst: 5/s}}\n", "7, column 5", "paths./a#b.get", "differ in x-keygate-rate-limit"},
		{head + "  /a/{x}:\n    get: {}\n  /a/{y}:\n    get: {x-keygate-auth: none}\n", "7, column 5", "paths./a/{y}.get", "differ in x-keygate-auth"},
		{`{"openapi": "3.1.0",` + "\n" + `"paths": {"/a": {"get": {"x-keygate-rate-limit": {"burst": 5}}}}}`, "2, column 60", "paths./a.get.x-keygate-rate-limit.burst", "must be a string"},
	})
}

// Guarantee: an invalid server is rejected with its position and field.
func TestInvalidServersAreRejected(t *testing.T) {
	wantRejected(t, []invalidDocument{
		{head + "  /a: {}\nservers: [{url: '${env:B}'}]\n", "5, column 17", "servers[0].url", "${env:"},
		{head + "  /a: {}\nservers: [{url: '{b}', variables: {b: {default: '${env:B}'}}}]\n", "5, column 49", "servers[0].variables.b.default", "${env:"},
		{head + "  /a: {}\nservers: {}\n", "5, column 10", "servers", "must be a list"},
		{head + "  /a: {}\nservers: [{}]\n", "5, column 11", "servers[0].url", "missing"},
		{head + "  /a: {}\nservers: [{url: '/{b}/'}]\n", "5, column 17", "servers[0].url", "{b}"},
		{head + "  /a: {}\nservers: [{url: '/{b'}]\n", "5, column 17", "servers[0].url", "without a }"},
		{head + "  /a: {}\nservers: [{url: 'https://x/a//b'}]\n", "5, column 17", "servers[0].url", "cannot be prepended"},
	})
}

// Guarantee: a reference of a path item that is invalid, circular, or leaves the document is
// rejected with its position and field.
func TestInvalidReferencesAreRejected(t *testing.T) {
	wantRejected(t, []invalidDocument{
		{head + "  /a: {$ref: 'other.yaml'}\n", "4, column 14", "paths./a.$ref", "is in another file, which the server does not have: push with \"keygate spec push FILE\""},
		{head + "  /a: {$ref: '//example.com/x#/a'}\n", "4, column 14", "paths./a.$ref", "is on another server"},
		{head + "  /a: {$ref: 'https://example.com/x#/a'}\n", "4, column 14", "paths./a.$ref", "is on another server, from which nothing is fetched: bundle"},
		{head + "  /a: {$ref: '#/components/pathItems/x'}\n", "4, column 14", "paths./a.$ref", "has no #/components/pathItems/x"},
		{head + "  /a: {$ref: '#/openapi'}\n", "4, column 14", "paths./a.$ref", "must be a path item, not a string"},
		{head + "  /a: {$ref: '#a'}\n", "4, column 14", "paths./a.$ref", "is not a valid reference"},
		{head + "  /a: {$ref: 7}\n", "4, column 14", "paths./a.$ref", "must be a string"},
		{head + "  /a: {$ref: '#/paths/~1a'}\n", "4, column 14", "paths./a.$ref", "is circular"},
		{head + "  /a: {$ref: '#/paths/~1b'}\n  /b: {$ref: '#/paths/%7E1a'}\n", "4, column 14", "paths./b.$ref", "is circular"},
	})
}

// Guarantee: a document has at most 50 warnings, and one more with the number of the others.
// Equal warnings count as one.
func TestManyWarnings(t *testing.T) {
	var b strings.Builder
	b.WriteString(head)
	for i := range 100 {
		fmt.Fprintf(&b, "  /a%d: {trace: {}, unknown%d: {}, get: {}}\n", i, i)
	}
	d, err := openapi.Parse([]byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	w := d.Warnings("https://x")
	if len(w) != 51 || !strings.Contains(w[0], "TRACE (100 of these; next line 5: paths./a1.trace, ") || !strings.Contains(w[50], "51 more") || len(d.Routes) != 100 {
		t.Errorf("got %d routes and %d warnings, the first %q and the last %q; want 100 and 51, with \"100 of these\" and \"51 more\"", len(d.Routes), len(w), w[0], w[len(w)-1])
	}
}

// Guarantee: the first 50 problems of a document are reported at once, in its order, with the number of the others,
// and the first of them is the error's own message and field.
func TestManyProblems(t *testing.T) {
	for name, text := range map[string]string{
		"paths":      head + repeat(200, func(i int) string { return fmt.Sprintf("  a%d: {get: {}}\n", i) }),
		"operations": head + repeat(200, func(i int) string { return fmt.Sprintf("  /a%d: {get: x}\n", i) }),
		"extensions": head + repeat(200, func(i int) string { return fmt.Sprintf("  /a%d: {get: {x-keygate-auth: x}}\n", i) }),
		"methods": strings.Replace(head, "3.1.0", "3.2.0", 1) + "  /a:\n    additionalOperations:\n" +
			repeat(200, func(i int) string { return fmt.Sprintf("      a%d: {}\n", i) }),
	} {
		_, err := openapi.Parse([]byte(text))
		var f *fault.Error
		if !errors.As(err, &f) || len(f.Problems) != fault.MaxProblems || f.Problems[0].Message != f.Message || f.Problems[0].Field != f.Field || f.LeftOut != 200-fault.MaxProblems {
			t.Errorf("%s: got %v, want %d problems that begin with the error's own, and 150 left out", name, err, fault.MaxProblems)
			continue
		}
		for i, p := range f.Problems[1:] {
			if p.Line != f.Problems[0].Line+i+1 {
				t.Errorf("%s: got line %d in problem %d, want %d", name, p.Line, i+1, f.Problems[0].Line+i+1)
			}
		}
	}
}

// FuzzParse looks for a document that makes Parse panic, or return an error without a
// position or routes that conflict.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if filepath.Ext(file) != ".golden" {
			f.Add(content)
		}
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		d, err := openapi.Parse(content)
		if err != nil {
			var bad *fault.Error
			if !errors.As(err, &bad) || bad.Code != fault.ValidationFailed || !strings.HasPrefix(bad.Message, "line ") {
				t.Fatalf("got %v, want a validation error with a position", err)
			}
			return
		}
		if err := gateway.CheckTable(d.Routes); err != nil {
			t.Fatal(err)
		}
		d.Warnings("https://upstream.internal/v1")
	})
}

// Guarantee: requests that the document has several operations for are held against none of them, and the reason says so.
func TestSeveralOperationsOfARouteAreUnchecked(t *testing.T) {
	doc, err := openapi.Parse([]byte("openapi: 3.1.0\ninfo: {title: t, version: '1'}\npaths:\n  /a?b=c: {get: {}}\n  /a?b=d: {get: {}}\n  /b: {get: {}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	results := doc.Compile(len(doc.Routes))
	if len(results) != 2 || results[0].Operation != nil || !strings.Contains(results[0].Reason, "several operations") || results[1].Operation == nil {
		t.Errorf("got %+v, want the first unchecked", results)
	}
}
