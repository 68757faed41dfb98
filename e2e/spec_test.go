package e2e

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// realSpec reads one of the real documents that are kept beside the project;
// elsewhere the test says what it misses and is skipped.
func realSpec(t *testing.T, name string) []byte {
	t.Helper()
	path := filepath.Join("..", "..", "shared", "data", "specs", name)
	f, err := os.Open(path)
	if err != nil {
		t.Skipf("needs the real document %s, which is kept beside the project: %v", name, err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Guarantee: a service's own OpenAPI document, pushed as it is, makes a gateway
// through which its operations can be called, and the paths that the callers
// wrote reach the upstream byte for byte.
func TestRealDocumentsAreServed(t *testing.T) {
	for _, c := range []struct {
		file, contentType string
		operations        int // how many the document has
	}{
		{"github.json.gz", "application/json", 1223},
		{"openai.yaml.gz", "application/yaml", 288},
	} {
		t.Run(c.file, func(t *testing.T) {
			doc := realSpec(t, c.file)
			up := newRecorder(t)
			s := startServer(t)
			id := s.call(http.StatusCreated, "POST", "/v1/gateways", map[string]any{"name": "real", "upstream_url": up.URL + "/base"}).str(t, "gateway_id")
			result := s.call(http.StatusOK, "PUT", "/v1/gateways/"+id+"/spec", doc, "Content-Type: "+c.contentType).json(t)
			added := result["added"].([]any)
			if len(added) > c.operations || len(added) < c.operations*9/10 {
				t.Fatalf("%d routes of %d operations", len(added), c.operations)
			}
			if back := s.call(http.StatusOK, "GET", "/v1/gateways/"+id+"/spec", nil); !bytes.Equal(back.body, doc) {
				t.Fatal("the document that GET gives differs from the one that was pushed")
			}
			again := s.call(http.StatusOK, "PUT", "/v1/gateways/"+id+"/spec", doc, "Content-Type: "+c.contentType).json(t)
			if again["revision"] != nil || int(again["unchanged"].(float64)) != len(added) {
				t.Fatalf("pushing the same again: revision %v, unchanged %v", again["revision"], again["unchanged"])
			}
			_, key := s.newKey(nil)
			r := rand.New(rand.NewPCG(1, 2))
			for i := range 200 {
				route := added[i*len(added)/200].(map[string]any)
				method := route["methods"].([]any)[0].(string)
				target := fill(r, route["path"].(string))
				a := s.mustThrough(http.StatusOK, method, target, key)
				if string(a.body) != "upstream" && method != http.MethodHead {
					t.Fatalf("%s %s answered %q", method, target, a.body)
				}
				got := up.take()
				if len(got) != 1 || got[0].target != "/base"+target || got[0].method != method {
					t.Fatalf("%s %s reached the upstream as %+v", method, target, got)
				}
			}
		})
	}
}

// fill replaces the parameters of a template with awkward values and adds an
// awkward query.
func fill(r *rand.Rand, template string) string {
	values := []string{"1", "abc", "%41b", "a%20b", "x.y", "~u", "caf%C3%A9", "a+b", "a:b@c", "a,b;c=1", "!$&'()*"}
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(template, "{")
		b.WriteString(before)
		if !found {
			break
		}
		_, after, _ := strings.Cut(rest, "}")
		b.WriteString(values[r.IntN(len(values))])
		template = after
	}
	queries := []string{"", "?", "?a=1&b=%20&c", "?x[]=1&x[]=2", "?q=%e2%9c%93&empty="}
	return b.String() + queries[r.IntN(len(queries))]
}

// Guarantee: a bad document changes nothing and its error has a place.
func TestBadDocumentChangesNothing(t *testing.T) {
	up := newRecorder(t)
	s := startServer(t)
	id := s.newGateway(up.URL, nil)
	for name, doc := range map[string]string{
		"no OpenAPI":     "just: yaml\n",
		"broken":         "openapi: 3.0.0\npaths: [\n",
		"bad limit":      "openapi: 3.0.0\ninfo: {title: x, version: '1'}\npaths:\n  /a:\n    get:\n      x-keygate-rate-limit: {sustained: 5/fortnight}\n      responses: {}\n",
		"overlap":        "openapi: 3.0.0\ninfo: {title: x, version: '1'}\npaths:\n  /a/{b}: {get: {responses: {}}}\n  /a/{c}: {get: {responses: {}}}\n",
		"remote $ref":    "openapi: 3.0.0\ninfo: {title: x, version: '1'}\npaths:\n  /a: {$ref: 'https://example.com/a.yaml'}\n",
		"environment":    "openapi: 3.0.0\ninfo: {title: x, version: '1'}\nservers: [{url: '${env:BASE}'}]\npaths: {/a: {get: {responses: {}}}}\n",
		"another format": "swagger: '2.0'\npaths: {}\n",
	} {
		a := s.call(http.StatusUnprocessableEntity, "PUT", "/v1/gateways/"+id+"/spec", doc, "Content-Type: application/yaml")
		m := a.json(t)
		if m["error"] != "validation_failed" || !strings.Contains(fmt.Sprint(m["message"]), "line ") {
			t.Errorf("%s: %s", name, a.body)
		}
	}
	if list := s.call(http.StatusOK, "GET", "/v1/gateways/"+id+"/revisions", nil).json(t)["data"].([]any); len(list) != 0 {
		t.Errorf("bad documents made revisions: %v", list)
	}
	if list := s.call(http.StatusOK, "GET", "/v1/gateways/"+id+"/routes", nil).json(t)["data"].([]any); len(list) != 1 {
		t.Errorf("bad documents changed the routes: %v", list)
	}
}
