package dashboard

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/manual"
)

// recorded is an API that answers with the path it was called with.
var recorded = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, "api "+r.Method+" "+r.URL.EscapedPath())
})

func newHandler(t *testing.T, base string) *Handler {
	t.Helper()
	h, err := New(Config{BasePath: base, API: recorded})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func get(h http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Guarantee: below the base path, /v1 is the API, files are files, and every other path is the
// dashboard; outside there is only the redirect of the root (contract, section 1 and 3.4).
func TestPaths(t *testing.T) {
	for _, c := range []struct {
		base, method, path string
		status             int
		want               string // part of the body, or the Location of a redirect
	}{
		{"/", "GET", "/", 200, `content="/"`},
		{"/", "GET", "/index.html", 200, `content="/"`},
		{"/", "GET", "/keys/key_1?tab=usage", 200, `content="/"`},
		{"/", "GET", "/v1", 200, "api GET /v1"},
		{"/", "DELETE", "/v1/keys/key_1", 200, "api DELETE /v1/keys/key_1"},
		{"/", "GET", "/%761/keys", 200, "api GET /%761/keys"},
		{"/", "GET", "/v1%2Fkeys", 200, "api GET /v1%2Fkeys"},
		{"/", "GET", "/v10", 200, `content="/"`},
		{"/", "GET", "/assets/gone-1234.js", 404, `"not_found"`},
		{"/", "GET", "/assets/", 404, `"not_found"`},
		{"/", "GET", "/assets/index.js", 404, `"not_found"`},
		{"/", "GET", "/assets/__build__/index.js", 404, `"not_found"`},
		{"/", "GET", "/assets/../index.html", 404, `"not_found"`},
		{"/", "GET", "/favicon.ico", 200, "<svg"},
		{"/", "GET", "/docs.json", 200, `{"pages":[`},
		{"/", "GET", "/robots.txt", 404, `"not_found"`},
		{"/", "GET", "//v1/keys", 404, `"not_found"`},
		{"/", "POST", "//v1/keys", 404, `"not_found"`},
		{"/", "GET", "//", 404, `"not_found"`},
		{"/", "GET", "/keys//key_1", 404, `"not_found"`},
		{"/", "GET", "/v1//keys", 200, "api GET /v1//keys"},
		{"/", "POST", "/keys", 405, `"method_not_allowed"`},
		{"/admin/kg", "GET", "/admin/kg/", 200, `content="/admin/kg/"`},
		{"/admin/kg", "GET", "/admin/kg/docs.json", 200, `{"pages":[`},
		{"/admin/kg", "GET", "/admin/kg/keys", 200, `content="/admin/kg/"`},
		{"/admin/kg", "GET", "/admin/kg/v1/keys", 200, "api GET /v1/keys"},
		{"/admin/kg", "GET", "/admin/kg/v1/routes%2Fx", 200, "api GET /v1/routes%2Fx"},
		{"/admin/kg", "GET", "/admin/kg//v1/keys", 404, `"not_found"`},
		{"/admin/kg", "GET", "/", 307, "/admin/kg/"},
		{"/admin/kg", "GET", "/admin/kg", 307, "/admin/kg/"},
		{"/admin/kg", "POST", "/", 405, `"method_not_allowed"`},
		{"/admin/kg", "GET", "/v1/keys", 404, `"not_found"`},
		{"/admin/kg", "GET", "/admin/kgx", 404, `"not_found"`},
		{"/admin/kg", "GET", "/admin%2Fkg/keys", 404, `"not_found"`},
		{"/admin/kg", "GET", "//evil.example/admin/kg", 404, `"not_found"`},
	} {
		w := get(newHandler(t, c.base), c.method, "http://h"+c.path)
		body := w.Body.String() + w.Header().Get("Location")
		if w.Code != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s %s below %s: got %d %.120q, want %d with %q", c.method, c.path, c.base, w.Code, body, c.status, c.want)
		}
		if w.Code == http.StatusTemporaryRedirect && w.Header().Get("Location") != c.want {
			t.Errorf("%s: got the Location %q, want %q", c.path, w.Header().Get("Location"), c.want)
		}
	}
}

// Guarantee: pages, assets, redirects and refusals have the policy, cannot be framed, and have an
// identifier.
func TestHeaders(t *testing.T) {
	h := newHandler(t, "/kg")
	var script string
	for name := range h.assets {
		if strings.HasSuffix(name, ".js") {
			script = name
		}
	}
	for _, p := range []string{"/kg/", "/kg/keys", "/kg/assets/" + script, "/kg/assets/gone.js", "/", "/elsewhere"} {
		header := get(h, "GET", "http://h"+p).Header()
		for name, want := range map[string]string{
			"Content-Security-Policy": Policy, "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff",
			"Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
		} {
			if got := header.Get(name); got != want {
				t.Errorf("%s: got %s %q, want %q", p, name, got, want)
			}
		}
		if !strings.HasPrefix(header.Get("X-Request-Id"), "req_") {
			t.Errorf("%s: got the X-Request-Id %q", p, header.Get("X-Request-Id"))
		}
		cached := strings.Contains(header.Get("Cache-Control"), "immutable")
		if want := strings.HasSuffix(p, script); cached != want {
			t.Errorf("%s: got Cache-Control %q", p, header.Get("Cache-Control"))
		}
	}
}

// Guarantee: an asset is the same with and without compression, is read again only if it has changed,
// and HEAD has no body.
func TestAssets(t *testing.T) {
	h := newHandler(t, "/")
	for name, a := range h.assets {
		plain := get(h, "GET", "http://h/assets/"+name)
		if plain.Code != 200 || !bytes.Equal(plain.Body.Bytes(), a.plain) || plain.Header().Get("Content-Encoding") != "" {
			t.Errorf("%s: got %d and %d bytes, want the file of %d bytes", name, plain.Code, plain.Body.Len(), len(a.plain))
		}
		small := get(h, "GET", "http://h/assets/"+name, "Accept-Encoding", "br, gzip;q=0.5")
		if small.Header().Get("Content-Encoding") == "gzip" {
			r, err := gzip.NewReader(small.Body)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, a.plain) {
				t.Errorf("%s: the compressed file differs: %v", name, err)
			}
		}
		if got := get(h, "GET", "http://h/assets/"+name, "Accept-Encoding", "gzip;q=0"); got.Header().Get("Content-Encoding") != "" {
			t.Errorf("%s: compressed although the client does not accept it", name)
		}
		if got := get(h, "GET", "http://h/assets/"+name, "If-None-Match", plain.Header().Get("ETag")); got.Code != http.StatusNotModified {
			t.Errorf("%s: got %d for a file that the client has, want 304", name, got.Code)
		}
		if got := get(h, "HEAD", "http://h/assets/"+name); got.Code != 200 || got.Body.Len() != 0 {
			t.Errorf("%s: got %d and %d bytes for HEAD", name, got.Code, got.Body.Len())
		}
	}
}

// docsBudget is what the documentation may take, compressed.
const docsBudget = 300 << 10

// Guarantee: the documentation is JSON with the policy of every file, is read again only if it has changed, and is
// small enough to be loaded at once.
func TestDocs(t *testing.T) {
	h := newHandler(t, "/")
	w := get(h, "GET", "http://h/docs.json")
	var docs manual.Manual
	if err := json.Unmarshal(w.Body.Bytes(), &docs); err != nil || len(docs.Pages) < 30 || docs.Page("errors") == nil {
		t.Errorf("got %d pages, %v", len(docs.Pages), err)
	}
	if got := w.Header(); got.Get("Content-Type") != "application/json" || got.Get("Content-Security-Policy") != Policy || got.Get("Cache-Control") != "no-cache" {
		t.Errorf("got the headers %v", got)
	}
	if got := get(h, "GET", "http://h/docs.json", "If-None-Match", w.Header().Get("ETag")); got.Code != http.StatusNotModified {
		t.Errorf("got %d for what the client has, want 304", got.Code)
	}
	if got := len(h.docs().compressed()); got > docsBudget {
		t.Errorf("the documentation takes %d bytes compressed, more than %d", got, docsBudget)
	}
}

// Guarantee: index.html has no script and no style of its own, and no placeholder is left.
func TestIndex(t *testing.T) {
	page := get(newHandler(t, "/kg"), "GET", "http://h/kg/").Body.String()
	if strings.Contains(page, "__") {
		t.Errorf("the page has a placeholder: %s", page)
	}
	for _, bad := range []string{`<script[^>]*>[^<]`, `<style`, `\sstyle=`, `\son\w+=`, `https?://`} {
		if found := regexp.MustCompile(bad).FindString(page); found != "" {
			t.Errorf("the page has %q", found)
		}
	}
}

// Guarantee: a page of another build gets no file of this build, although their names are the same,
// and the refusal is not cached. Scripts name each other without the hash of the build.
func TestOtherBuild(t *testing.T) {
	h := newHandler(t, "/kg")
	for asset, a := range h.assets {
		hash, name, _ := strings.Cut(asset, "/")
		other := strings.Repeat("0", len(hash))
		w := get(h, "GET", "http://h/kg/assets/"+other+"/"+name)
		if w.Code != http.StatusNotFound || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s of another build: got %d with Cache-Control %q, want 404 with no-store", name, w.Code, w.Header().Get("Cache-Control"))
		}
		if bytes.Contains(a.plain, []byte(hash)) || bytes.Contains(a.plain, []byte(buildPlaceholder)) {
			t.Errorf("%s contains the hash of the build, or what stands for it", name)
		}
	}
}

// firstLoadBudget is what the first page may take, compressed.
const firstLoadBudget = 180 << 10

// Guarantee: the first page takes at most 180 KB, compressed as it is served.
func TestFirstLoadBudget(t *testing.T) {
	h := newHandler(t, "/")
	total := len(compress(h.index))
	for _, match := range regexp.MustCompile(`(?:src|href)="/assets/([^"]+)"`).FindAllSubmatch(h.index, -1) {
		a := h.assets[string(match[1])]
		if a == nil {
			t.Fatalf("index.html names %s, which is not there", match[1])
		}
		if body := a.compressed(); body != nil {
			total += len(body)
		} else {
			total += len(a.plain)
		}
	}
	t.Logf("the first page takes %.1f KB compressed, of %d KB", float64(total)/1024, firstLoadBudget>>10)
	if total > firstLoadBudget {
		t.Errorf("the first page takes %d bytes compressed, more than %d", total, firstLoadBudget)
	}
}

// Guarantee: a refusal has the error body of the API.
func TestRefusal(t *testing.T) {
	var body struct {
		Error     string `json:"error"`
		RequestID string `json:"request_id"`
	}
	w := get(newHandler(t, "/"), "GET", "http://h/assets/gone.js")
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || body.Error != "not_found" || body.RequestID != w.Header().Get("X-Request-Id") {
		t.Errorf("got %s (%v)", w.Body, err)
	}
}

func TestNewNeedsAPI(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("got no error without an API")
	}
}
