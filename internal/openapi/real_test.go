package openapi_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/openapi"
)

// realSpec returns one of the public documents that stand in shared/data/specs
// beside the tree.
func realSpec(tb testing.TB, name string) []byte {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for {
		packed, err := os.ReadFile(filepath.Join(dir, "shared", "data", "specs", name))
		if err == nil {
			return unpack(tb, packed)
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			tb.Skipf("shared/data/specs/%s is missing: it stands beside the tree, not in it", name)
		}
		dir = parent
	}
}

func unpack(tb testing.TB, packed []byte) []byte {
	tb.Helper()
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

// Guarantee: every operation of GitHub's own document is a route, and none is
// refused for the two pairs of paths that differ only in a parameter's name. The one
// operation with its own servers gets a warning.
func TestGitHub(t *testing.T) {
	d, err := openapi.Parse(realSpec(t, "github.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Routes) != 1223 || d.BasePath != "" {
		t.Errorf("got %d routes below %q", len(d.Routes), d.BasePath)
	}
	if w := d.Warnings("https://api.github.com"); len(w) != 1 || !strings.Contains(w[0], "assets.post.servers is ignored") {
		t.Errorf("warnings: %q", w)
	}
	want(t, d, "/repos/{owner}/{repo}/compare/{basehead}", "GET")
}

// Guarantee: of OpenAI's 288 operations those whose paths differ in the query alone
// are one route, with a warning that says so.
func TestOpenAI(t *testing.T) {
	d, err := openapi.Parse(realSpec(t, "openai.yaml.gz"))
	if err != nil {
		t.Fatal(err)
	}
	merged := 0
	for _, w := range d.Warnings("https://api.openai.com/v1") {
		if strings.Contains(w, "is the same route as") {
			merged++
		}
	}
	if len(d.Routes)+merged != 288 || merged == 0 || d.BasePath != "/v1" {
		t.Errorf("got %d routes below %q, and %d merged", len(d.Routes), d.BasePath, merged)
	}
	for _, r := range d.Routes {
		if strings.ContainsRune(r.Path, '?') {
			t.Errorf("the path %s has a query", r.Path)
		}
	}
	if w := d.Warnings("https://api.openai.com/v1")[0]; !strings.Contains(w, "/v1/v1/") {
		t.Errorf("no warning of the path that stands twice, but %q", w)
	}
	if w := d.Warnings("https://api.openai.com")[0]; strings.Contains(w, "upstream_url") {
		t.Errorf("a warning of a path that stands once: %q", w)
	}
	want(t, d, "/v1/responses", "POST")
}

func want(t *testing.T, d *openapi.Document, path, method string) {
	t.Helper()
	for _, r := range d.Routes {
		if r.Path == path && r.Methods[0] == method {
			if !r.RateLimit.IsZero() || r.Auth != gateway.AuthKey {
				t.Errorf("%s %s: %+v", method, path, r)
			}
			return
		}
	}
	t.Errorf("there is no route %s %s", method, path)
}

// The bar for the whole server is 4 s and 400 MB with GitHub's document, 3 s
// with OpenAI's (issue 2).
func BenchmarkGitHub(b *testing.B) { benchmarkReal(b, "github.json.gz") }

func BenchmarkOpenAI(b *testing.B) { benchmarkReal(b, "openai.yaml.gz") }

func benchmarkReal(b *testing.B, name string) {
	content := realSpec(b, name)
	b.SetBytes(int64(len(content)))
	b.ReportAllocs()
	var peak atomic.Uint64
	runtime.GC()
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		watchHeap(&peak, done)
	}()
	for b.Loop() {
		if _, err := openapi.Parse(content); err != nil {
			b.Fatal(err)
		}
	}
	close(done)
	<-stopped
	b.ReportMetric(float64(peak.Load()), "peak-B")
}

// watchHeap keeps the largest heap that it sees until done: what is live, the
// document included, and what is not collected yet.
func watchHeap(peak *atomic.Uint64, done <-chan struct{}) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapInuse))
		}
	}
}
