package bundle_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/openapi"
	"github.com/keygate/keygate/internal/openapi/bundle"
)

// head is the start of a document. The text after it starts on line 2.
const head = "openapi: 3.1.0\n"

func files(texts ...string) fstest.MapFS {
	f := fstest.MapFS{}
	for i := 0; i < len(texts); i += 2 {
		f[texts[i]] = &fstest.MapFile{Data: []byte(texts[i+1])}
	}
	return f
}

// routesOf returns the routes of a document that the server accepts.
func routesOf(t *testing.T, content []byte) string {
	t.Helper()
	d, err := openapi.Parse(content)
	if err != nil {
		t.Fatalf("got %v, want no error for\n%s", err, content)
	}
	var routes []string
	for _, r := range d.Routes {
		text := r.Methods[0] + " " + r.Path
		if r.Auth == gateway.AuthNone {
			text += " open"
		}
		if burst := r.RateLimit.Burst.String(); burst != "" {
			text += " " + burst
		}
		routes = append(routes, text)
	}
	return strings.Join(routes, ", ")
}

// Guarantee: path items of other files are in the bundle, as if they were written in the
// document: nested references are relative to their own file, and members beside a reference take
// precedence.
func TestFilesOfPathItemsAreIncluded(t *testing.T) {
	fsys := files(
		"api/paths/users.yaml", "get: {summary: All users}\npost: {x-keygate-rate-limit: {burst: 5/s}}\n",
		"api/paths/all.yaml", "common: &c\n  x-keygate-auth: none\n  get: {operationId: 'a'}\norders:\n  <<: *c\n  delete: {}\n\"a/b~c\": {$ref: '#/orders'}\nhop: {$ref: ../more.json#/x, put: {x-keygate-rate-limit: {burst: 9/s}}}\n",
		"api/more.json", `{"x": {"put": {}, "head": {"summary": "\ud83d\ude00 \u003c"}, "patch": {"$ref": "gone.yaml"}}}`,
	)
	for _, c := range []struct{ paths, want string }{
		{"  /u: {$ref: paths/users.yaml}\n", "GET /u, POST /u 5/s"},
		{"  /u: {$ref: './paths/users.yaml'}\n  /v: {$ref: paths/users.yaml#}\n", "GET /u, POST /u 5/s, GET /v, POST /v 5/s"},
		{"  /u:\n    post: {}\n    $ref: paths/users.yaml\n    x-keygate-auth: none\n", "POST /u open, GET /u open"},
		{"  /o: {$ref: paths/all.yaml#/orders}\n", "DELETE /o open, GET /o open"},
		{"  /o: {$ref: paths/%61ll.yaml#/a~1b~0c}\n", "DELETE /o open, GET /o open"},
		{"  /o: {$ref: paths/all.yaml#/hop}\n", "PUT /o 9/s, HEAD /o, PATCH /o"},
		{"  /o: {$ref: '#/components/pathItems/o'}\ncomponents: {pathItems: {o: {$ref: paths/users.yaml, put: {}}}}\n", "PUT /o, GET /o, POST /o 5/s"},
		{"  /o: &o {$ref: paths/users.yaml}\n  /p: *o\n", "GET /o, POST /o 5/s, GET /p, POST /p 5/s"},
		{"  /o: *o\nx-o: &o {}\n", ""},
		{"  /o: {<<: {$ref: paths/users.yaml}}\n", "GET /o, POST /o 5/s"},
	} {
		b, err := bundle.New([]byte(head+"paths:\n"+c.paths), "api/openapi.yaml", fsys)
		if c.want == "" {
			if err != nil || b.Files != 0 {
				t.Errorf("%s: got %v, want a document that cannot be read to be left alone", c.paths, err)
			}
			continue
		}
		if err != nil || b.Files == 0 {
			t.Errorf("%s: got %v, want a bundle", c.paths, err)
			continue
		}
		if got := routesOf(t, b.Content); got != c.want {
			t.Errorf("%s: got routes %s, want %s; the bundle is\n%s", c.paths, got, c.want, b.Content)
		}
		again, err := bundle.New(b.Content, "api/openapi.yaml", fsys)
		if err != nil || again.Files != 0 {
			t.Errorf("%s: got %v, want a bundle that needs no files", c.paths, err)
		}
	}
}

// Guarantee: a document that needs no other file is not changed by a single byte, whatever its
// form.
func TestSelfContainedDocumentsAreUnchanged(t *testing.T) {
	for _, text := range []string{
		head + "paths:   {/a: {'get':   {}}}   # comment\n",
		head + "paths:\n  /a: {$ref: '#/components/pathItems/a'}\n  /b: {$ref: '#/gone'}\n  /c: {$ref: 7}\n  /d: {$ref: '#/paths/~1d'}\n",
		head + "paths:\n  /a: {get: {responses: {$ref: other.yaml}}}\n",
		"{\"paths\": 5}", "[1]", "5", "", "a: b: c", head, head + "paths: [/a, {}]\n",
	} {
		b, err := bundle.New([]byte(text), "openapi.yaml", files())
		if err != nil || b.Files != 0 || string(b.Content) != text {
			t.Errorf("%q: got %+v, %v; want it unchanged", text, b, err)
		}
	}
}

// Guarantee: a bundle keeps the language, the comments and the order of its document.
func TestBundleLooksLikeItsDocument(t *testing.T) {
	fsys := files("u.yaml", "# Users\nget: # read\n  tags: [a]\n", "u.json", `{"get": {"tags": ["no", "1"], "x-n": 1.50, "x-b": true, "x-z": null, "x-e": {}, "x-l": []}}`)
	for _, c := range []struct{ text, want string }{
		{
			"# A comment\nopenapi: 3.1.0 # version\npaths:\n  # of /u\n  /u: {$ref: u.yaml}\n  /j: {$ref: u.json} # from JSON\nzebra: 'x'\napple: \"y\"\n",
			"# A comment\nopenapi: 3.1.0 # version\npaths:\n  # of /u\n  /u:\n    # Users\n    get: # read\n      tags: [a]\n  # from JSON\n  /j:\n    get:\n      tags:\n        - \"no\"\n        - \"1\"\n      x-n: 1.50\n      x-b: true\n      x-z: null\n      x-e: {}\n      x-l: []\nzebra: 'x'\napple: \"y\"\n",
		},
		{
			`{"openapi":"3.1.0","x":"<\ud83d\ude00","paths":{"/u":{"$ref":"u.yaml"},"/j":{"$ref":"u.json"}}}`,
			"{\n  \"openapi\": \"3.1.0\",\n  \"x\": \"<\U0001F600\",\n  \"paths\": {\n    \"/u\": {\n      \"get\": {\n        \"tags\": [\n          \"a\"\n        ]\n      }\n    },\n    \"/j\": {\n      \"get\": {\n        \"tags\": [\n          \"no\",\n          \"1\"\n        ],\n        \"x-n\": 1.50,\n        \"x-b\": true,\n        \"x-z\": null,\n        \"x-e\": {},\n        \"x-l\": []\n      }\n    }\n  }\n}\n",
		},
	} {
		b, err := bundle.New([]byte(c.text), "openapi", fsys)
		if err != nil {
			t.Errorf("%s: got %v, want no error", c.text, err)
		} else if string(b.Content) != c.want {
			t.Errorf("got\n%s\nwant\n%s", b.Content, c.want)
		}
	}
}

// Guarantee: a mistake that the server finds in a bundle has its position in the file that it
// comes from.
func TestPositionsAreThoseOfTheFiles(t *testing.T) {
	fsys := files("paths/u.yaml", "users:\n  get: {}\n  put: {x-keygate-auth: open}\n", "paths/o.json", "{\n \"post\": 7}")
	for _, document := range []string{
		"openapi: 3.1.0\npaths:\n  /u:\n    $ref: paths/u.yaml#/users\n  /o: {$ref: paths/o.json}\n  no-slash: {}\n",
		"{\"openapi\": \"3.1.0\",\n\"paths\": {\n\"/u\":\n{\"$ref\": \"paths/u.yaml#/users\"}, \"/o\": {\"$ref\": \"paths/o.json\"},\n\n \"no-slash\": {}}}",
	} {
		b, err := bundle.New([]byte(document), "openapi.yaml", fsys)
		if err != nil {
			t.Fatal(err)
		}
		_, err = openapi.Parse(b.Content)
		var got []string
		for _, p := range fault.ProblemsOf(err) {
			at, ok := b.Position(p.Line, p.Column)
			got = append(got, fmt.Sprintf("%s:%d:%d %t", at.File, at.Line, at.Column, ok))
		}
		want := "paths/u.yaml:3:25 true, paths/o.json:2:10 true, openapi.yaml:6:3 true"
		if strings.HasPrefix(document, "{") {
			want = strings.Replace(want, "6:3", "6:2", 1)
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("got %v, want %s for\n%s", got, want, b.Content)
		}
	}
}

// Guarantee: a reference that cannot be followed is reported with the position of the reference,
// and all of them at once.
func TestReferencesThatCannotBeFollowed(t *testing.T) {
	fsys := files(
		"api/a.yaml", "x: {$ref: b.yaml#/y}\nloop: {$ref: '#/loop'}\nlist: [1]\nnumber: {$ref: 7}\n",
		"api/b.yaml", "y:\n  $ref: gone.yaml\n", "api/bad.yaml", "a: b: c\n", "outside.yaml", "get: {}\n", "api/big.yaml", strings.Repeat("#", 64<<20),
	)
	for _, c := range []struct{ ref, want string }{
		{"gone.yaml", `api/openapi.yaml:3:14: paths./a.$ref: the reference "gone.yaml" leads to the file api/gone.yaml, which cannot be read: there is no such file`},
		{"a.yaml#/x", `api/b.yaml:2:9: paths./a.$ref: the reference "gone.yaml" leads to the file api/gone.yaml, which cannot`},
		{"a.yaml#/loop", `api/a.yaml:2:14: paths./a.$ref: the reference "#/loop" is circular`},
		{"openapi.yaml#/paths/~1a", `api/openapi.yaml:3:14: paths./a.$ref: the reference "openapi.yaml#/paths/~1a" is circular`},
		{"a.yaml#/none", "leads to nothing: the file api/a.yaml has no #/none"},
		{"a.yaml#/list", "does not lead to a path item: in api/a.yaml, line 3"},
		{"a.yaml#/number", `api/a.yaml:4:16: paths./a.$ref: the reference "7" must be a string`},
		{"a.yaml#x", "is not valid"},
		{"bad.yaml", "line 1, column 5: a value that has a colon"},
		{"big.yaml", "more than 64 MiB in total"},
		{"../outside.yaml", "leaves the directory of the document: name a directory that has both files with --ref-root"},
		{"../../outside.yaml", "leaves the directory of the document"},
		{"%2e%2e/outside.yaml", "leaves the directory of the document"},
		{"/outside.yaml", "must be relative"},
		{"https://example.com/a.yaml", "is on another server, from which nothing is fetched"},
		{"file:///etc/passwd", "is on another server"},
		{"//example.com/a.yaml", "is on another server"},
	} {
		sub, err := fs.Sub(fsys, "api")
		if err != nil {
			t.Fatal(err)
		}
		_, err = bundle.New([]byte(head+"paths:\n  /a: {$ref: '"+c.ref+"'}\n"), "openapi.yaml", sub)
		if want := strings.ReplaceAll(c.want, "api/", ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", c.ref, err, want)
		}
	}
	_, err := bundle.New([]byte(head+"paths:\n  /a: {$ref: x.yaml}\n  /b: {$ref: y.yaml}\n"), "openapi.yaml", fsys)
	var bad *bundle.Error
	if !errors.As(err, &bad) || len(bad.Problems) != 2 || bad.Problems[1].Line != 4 {
		t.Errorf("got %v, want two problems", err)
	}
}

// Guarantee: files cannot make the document larger than the server accepts, and chains of
// references end.
func TestBundlesAreBounded(t *testing.T) {
	chain := files()
	for i := range 40 {
		chain[fmt.Sprintf("%d.yaml", i)] = &fstest.MapFile{Data: fmt.Appendf(nil, "$ref: %d.yaml\n", i+1)}
	}
	chain["40.yaml"] = &fstest.MapFile{Data: []byte("get: {}\n")}
	large := files("x.yaml", "get: {x: ["+strings.Repeat("1,", 40_000)+"]}\n")
	var copies strings.Builder
	for i := range 26 {
		fmt.Fprintf(&copies, "  /a%d: {$ref: x.yaml}\n", i)
	}
	for name, c := range map[string]struct {
		paths, want string
		fsys        fs.FS
	}{
		"a chain":      {"  /a: {$ref: 0.yaml}\n", "more than 32", chain},
		"large copies": {copies.String(), "larger than 1000000 values", large},
	} {
		if _, err := bundle.New([]byte(head+"paths:\n"+c.paths), "openapi.yaml", c.fsys); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// Guarantee: symbolic links cannot reach files outside of the directory either, and only regular
// files are opened.
func TestDirIsConfined(t *testing.T) {
	outside, inside := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret.yaml"), []byte("get: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(outside, "secret.yaml"), filepath.Join(inside, "link.yaml")); err != nil {
		t.Skip(err)
	}
	for _, name := range []string{"link.yaml", "."} {
		if f, err := bundle.Dir(inside).Open(name); err == nil {
			_ = f.Close()
			t.Errorf("got %s opened, want an error", name)
		}
	}
}
