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

	"github.com/keygate/keygate/internal/keygatetest/needtest"
	"github.com/keygate/keygate/internal/openapi"
)

// realSpec returns a public document from shared/data/specs beside the tree. It skips the test
// if there is none.
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
			needtest.Missing(tb, "shared/data/specs/%s is missing: it belongs beside the tree, not in it", name)
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

// Guarantee: every operation of GitHub's document is a route, including the operations of the two
// pairs of paths that differ only in the name of a parameter. The one operation with servers of its
// own gets a warning.
func TestGitHub(t *testing.T) {
	d, err := openapi.Parse(realSpec(t, "github.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Routes) != 1223 || d.BasePath != "" {
		t.Errorf("got %d routes with the base path %q, want 1223 without one", len(d.Routes), d.BasePath)
	}
	if w := d.Warnings("https://api.github.com"); len(w) != 1 || !strings.Contains(w[0], "assets.post.servers is ignored") {
		t.Errorf("got warnings %q, want one of assets.post.servers", w)
	}
	want(t, d, "/repos/{owner}/{repo}/compare/{basehead}", "GET")
}

// Guarantee: each of OpenAI's 288 operations is a route, except that operations whose paths
// differ only in the query are one route. One warning counts them.
func TestOpenAI(t *testing.T) {
	d, err := openapi.Parse(realSpec(t, "openai.yaml.gz"))
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Routes) != 281 || d.BasePath != "/v1" {
		t.Errorf("got %d routes with the base path %q, want 281 with /v1", len(d.Routes), d.BasePath)
	}
	if w := strings.Join(d.Warnings("https://api.openai.com"), "\n"); !strings.Contains(w, "are one route: paths are matched without their query or fragment (7 of these; ") {
		t.Errorf("got warnings:\n%s\nwant one of 7 merged operations", w)
	}
	for _, r := range d.Routes {
		if strings.ContainsRune(r.Path, '?') {
			t.Errorf("got path %s, want it without a query", r.Path)
		}
	}
	if w := d.Warnings("https://api.openai.com/v1")[0]; !strings.Contains(w, "/v1/v1/") {
		t.Errorf("got first warning %q, want one of the duplicate base path /v1/v1/", w)
	}
	if w := d.Warnings("https://api.openai.com")[0]; strings.Contains(w, "upstream_url") {
		t.Errorf("got first warning %q, want none of upstream_url", w)
	}
	want(t, d, "/v1/responses", "POST")
}

func want(t *testing.T, d *openapi.Document, path, method string) {
	t.Helper()
	for _, r := range d.Routes {
		if r.Path == path && r.Methods[0] == method {
			if !r.RateLimit.IsZero() || r.Auth != "" {
				t.Errorf("got route %+v, want %s %s with a key and no rate limit", r, method, path)
			}
			return
		}
	}
	t.Errorf("got no route %s %s, want one", method, path)
}

// The limit for a push to the server is 4 s and 400 MB with GitHub's document, and 3 s with
// OpenAI's.
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
		recordPeak(&peak, done)
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

// recordPeak stores the largest size of the heap in peak until done is closed. It includes the
// document and garbage that is not collected yet.
func recordPeak(peak *atomic.Uint64, done <-chan struct{}) {
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
