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

	"github.com/keygate/keygate/internal/keygatetest/needtest"
)

// realSpec returns one of the real OpenAPI documents that are kept next to the
// repository. It skips the test if they are not there.
func realSpec(t *testing.T, name string) []byte {
	t.Helper()
	path := filepath.Join("..", "..", "shared", "data", "specs", name)
	f, err := os.Open(path)
	if err != nil {
		needtest.Missing(t, "needs the OpenAPI document %s, which is kept next to the repository: %v", name, err)
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

// Guarantee: after a push of a service's own OpenAPI document, its operations can be
// called through the gateway, and the paths and queries that clients send reach the
// upstream byte for byte.
func TestRealDocumentsAreServed(t *testing.T) {
	for _, c := range []struct {
		file, contentType string
		operations        int // in the document
	}{
		{"github.json.gz", "application/json", 1223},
		{"openai.yaml.gz", "application/yaml", 288},
	} {
		t.Run(c.file, func(t *testing.T) {
			doc := realSpec(t, c.file)
			up := newRecordingUpstream(t)
			s := startServer(t)
			id := s.call(http.StatusCreated, "POST", "/v1/gateways", map[string]any{"name": "real", "upstream_url": up.URL + "/base"}).field(t, "gateway_id")
			result := s.call(http.StatusOK, "PUT", "/v1/gateways/"+id+"/spec", doc, "Content-Type: "+c.contentType).json(t)
			added := result["added"].([]any)
			if len(added) > c.operations || len(added) < c.operations*9/10 {
				t.Fatalf("got %d routes, want at least 90 %% of %d operations", len(added), c.operations)
			}
			if back := s.call(http.StatusOK, "GET", "/v1/gateways/"+id+"/spec", nil); !bytes.Equal(back.body, doc) {
				t.Fatal("GET returned another document than the one that was pushed")
			}
			again := s.call(http.StatusOK, "PUT", "/v1/gateways/"+id+"/spec", doc, "Content-Type: "+c.contentType).json(t)
			if again["revision"] != nil || int(again["unchanged"].(float64)) != len(added) {
				t.Fatalf("second push of the document: got revision %v, %v routes unchanged, want no revision and %d", again["revision"], again["unchanged"], len(added))
			}
			_, key := s.newKey(nil)
			r := rand.New(rand.NewPCG(1, 2))
			for i := range 200 {
				route := added[i*len(added)/200].(map[string]any)
				method := route["methods"].([]any)[0].(string)
				target := fillTemplate(r, route["path"].(string))
				a := s.mustSend(http.StatusOK, method, target, key)
				if string(a.body) != "upstream" && method != http.MethodHead {
					t.Fatalf("%s %s: got body %q, want that of the upstream", method, target, a.body)
				}
				got := up.take()
				if len(got) != 1 || got[0].target != "/base"+target || got[0].method != method {
					t.Fatalf("%s %s reached the upstream as %+v, want the same method and target below /base", method, target, got)
				}
			}
		})
	}
}

// fillTemplate replaces the parameters of a template with values that are hard to
// preserve, and adds such a query.
func fillTemplate(r *rand.Rand, template string) string {
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

// Guarantee: an invalid document changes nothing, and the error names the line.
func TestBadDocumentChangesNothing(t *testing.T) {
	up := newRecordingUpstream(t)
	s := startServer(t)
	id := s.newGateway(up.URL, nil)
	for name, doc := range map[string]string{
		"no OpenAPI":     "just: yaml\n",
		"broken":         "openapi: 3.0.0\npaths: [\n",
		"bad limit":      "openapi: 3.0.0\ninfo: {title: x, version: '1'}\npaths:\n  /a:\n    get:\n      x-keygate-rate-limit: {sustained: 5/fortnight}\n      responses: {}\n",
		"two limits":     "openapi: 3.0.0\ninfo: {title: x, version: '1'}\npaths:\n  /a/{b}: {get: {x-keygate-rate-limit: {sustained: 5/min}, responses: {}}}\n  /a/{c}: {get: {x-keygate-rate-limit: {sustained: 6/min}, responses: {}}}\n",
		"remote $ref":    "openapi: 3.0.0\ninfo: {title: x, version: '1'}\npaths:\n  /a: {$ref: 'https://example.com/a.yaml'}\n",
		"environment":    "openapi: 3.0.0\ninfo: {title: x, version: '1'}\nservers: [{url: '${env:BASE}'}]\npaths: {/a: {get: {responses: {}}}}\n",
		"another format": "swagger: '2.0'\npaths: {}\n",
	} {
		a := s.call(http.StatusUnprocessableEntity, "PUT", "/v1/gateways/"+id+"/spec", doc, "Content-Type: application/yaml")
		m := a.json(t)
		if m["error"] != "validation_failed" || !strings.Contains(fmt.Sprint(m["message"]), "line ") {
			t.Errorf("%s: got %s, want validation_failed with a line", name, a.body)
		}
	}
	if list := s.call(http.StatusOK, "GET", "/v1/gateways/"+id+"/revisions", nil).json(t)["data"].([]any); len(list) != 0 {
		t.Errorf("invalid documents created revisions: %v", list)
	}
	if list := s.call(http.StatusOK, "GET", "/v1/gateways/"+id+"/routes", nil).json(t)["data"].([]any); len(list) != 1 {
		t.Errorf("invalid documents changed the routes: got %v, want 1 route", list)
	}
}
