package validate

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/keygatetest/needtest"
	"github.com/keygate/keygate/internal/keygatetest/proctest"
)

// realSpec returns a public document from shared/data/specs beside the tree. It skips the test if there is none.
func realSpec(tb testing.TB, name string) []byte {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for {
		packed, err := os.ReadFile(filepath.Join(dir, "shared", "data", "specs", name))
		if err == nil {
			z, err := gzip.NewReader(bytes.NewReader(packed))
			if err != nil {
				tb.Fatal(err)
			}
			content, err := io.ReadAll(z)
			if err != nil {
				tb.Fatal(err)
			}
			return content
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			needtest.Missing(tb, "shared/data/specs/%s is missing: it belongs beside the tree, not in it", name)
		}
		dir = parent
	}
}

// sources returns the operations of a document, in its order.
func sources(tb testing.TB, text []byte) (root *document.Node, minor byte, list []Source) {
	tb.Helper()
	root, err := document.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}
	version := root.Member("openapi")
	paths := root.Member("paths")
	if version == nil || paths == nil {
		return root, '1', nil
	}
	for i := range paths.Nodes {
		item := &paths.Nodes[i]
		pointer := "/paths/" + document.EscapeToken(item.Name)
		for j := range item.Nodes {
			if n := &item.Nodes[j]; slices.Contains([]string{"get", "put", "post", "patch", "delete"}, n.Name) {
				list = append(list, Source{Path: item.Name, Operation: Located{pointer + "/" + n.Name, n}, Items: []Located{{pointer, item}}})
			}
		}
	}
	return root, strings.TrimPrefix(version.Text, "3.")[0], list
}

// Guarantee: nearly every operation of large public documents is checked, and compiling them takes much less than the
// CPU time of an account.
func TestRealDocuments(t *testing.T) {
	// Of OpenAI's, ten have a $recursiveRef, and one an exclusiveMinimum that is a boolean in OpenAPI 3.1.
	for name, unchecked := range map[string]int{"github.json.gz": 0, "openai.yaml.gz": 11} {
		root, minor, list := sources(t, realSpec(t, name))
		start := proctest.CPUTime(t)
		results := Compile(root, minor, list, nil)
		if took := proctest.CPUTime(t) - start; took > 20*time.Second {
			t.Errorf("%s: compiling took %s of CPU time, want at most 20s", name, took)
		} else {
			t.Logf("%s: %d operations in %s of CPU time", name, len(list), took)
		}
		n := 0
		for i := range results {
			if results[i].Operation == nil {
				n++
				t.Logf("%s: %s: %s", name, list[i].Operation.Pointer, results[i].Reason)
			}
		}
		if n > unchecked {
			t.Errorf("%s: got %d unchecked operations, want at most %d", name, n, unchecked)
		}
	}
}
