// Package dashboard serves the management listener: the dashboard, which is built from web and embedded
// in the binary, and beside it the management API (contract, sections 1 and 3.4).
package dashboard

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/manual"
)

// files is the built dashboard: index.html and its assets.
//
//go:embed all:dist
var files embed.FS

// The placeholders of index.html for the base path and for the hash of the build.
const (
	basePlaceholder  = "/__base__/"
	buildPlaceholder = "__build__"
)

// Policy is the content security policy of every page and asset.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

// Config configures a Handler.
type Config struct {
	BasePath string       // the path below which everything is: "/", or a path without a slash at its end
	API      http.Handler // serves the paths below /v1, without the base path; required
}

// Handler serves the API at <base>/v1/… and the dashboard at every other path below the base path. It
// redirects / to the base path.
type Handler struct {
	prefix string // the base path without a slash at its end
	api    http.Handler
	index  []byte
	// Assets by the path below "assets/": the hash of the build, a slash and the name. So a page that an
	// earlier version served gets no asset of this build: the files of two builds do not fit together.
	assets map[string]*asset
	icon   *asset
	docs   func() *asset // the documentation as JSON (manual.Manual), which nobody has read before the first call
}

// asset is a file that the page loads. It never changes at its path.
type asset struct {
	name, contentType, tag string
	plain                  []byte
	compressed             func() []byte // with gzip; nil if that is no smaller
}

// New returns a Handler. Its errors are a missing Config.API and a dashboard that was not built.
func New(cfg Config) (*Handler, error) {
	if cfg.API == nil {
		return nil, errors.New("dashboard: Config.API is required")
	}
	h := &Handler{prefix: strings.TrimSuffix(cfg.BasePath, "/"), api: cfg.API, assets: map[string]*asset{}}
	entries, err := fs.ReadDir(files, "dist/assets")
	if err != nil {
		return nil, fmt.Errorf("read the dashboard: %w", err)
	}
	build := sha256.New()
	assets := make([]*asset, len(entries))
	for i, e := range entries {
		content, err := files.ReadFile("dist/assets/" + e.Name())
		if err != nil {
			return nil, fmt.Errorf("read the dashboard: %w", err)
		}
		sum := sha256.Sum256(content)
		_, _ = fmt.Fprintf(build, "%s %x\n", e.Name(), sum)
		assets[i] = newAsset(e.Name(), hex.EncodeToString(sum[:8]), content)
	}
	hash := hex.EncodeToString(build.Sum(nil)[:8])
	for _, a := range assets {
		h.assets[hash+"/"+a.name] = a
	}
	if h.icon = h.assets[hash+"/icon.svg"]; h.icon == nil {
		return nil, errors.New("read the dashboard: it has no icon")
	}
	index, err := files.ReadFile("dist/index.html")
	if err != nil {
		return nil, fmt.Errorf("read the dashboard: %w", err)
	}
	h.docs = sync.OnceValue(docsAsset)
	h.index = []byte(strings.NewReplacer(basePlaceholder, html.EscapeString(h.prefix+"/"), buildPlaceholder, hash).Replace(string(index)))
	return h, nil
}

// docsAsset returns the documentation. It has no secrets, so it needs no session.
func docsAsset() *asset {
	pages, err := json.Marshal(manual.Read())
	if err != nil {
		panic("dashboard: " + err.Error()) // the pages are strings, numbers and lists of these
	}
	sum := sha256.Sum256(pages)
	return newAsset("docs.json", hex.EncodeToString(sum[:8]), pages)
}

func newAsset(name, tag string, content []byte) *asset {
	return &asset{
		name: name, contentType: contentType(name), tag: tag, plain: content,
		// Nothing is compressed before it is requested, because most servers never show the dashboard.
		compressed: sync.OnceValue(func() []byte { return compress(content) }),
	}
}

// contentType does not use the machine's table of types, which may have other types for scripts.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".json":
		return "application/json"
	case ".svg":
		return "image/svg+xml"
	}
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return "application/octet-stream"
}

// compress returns content with gzip, or nil if that saves nothing.
func compress(content []byte) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		panic("dashboard: " + err.Error()) // the level is valid
	}
	_, err = w.Write(content)
	if err := cmp.Or(err, w.Close()); err != nil || out.Len() >= len(content) {
		return nil
	}
	return out.Bytes()
}

// ServeHTTP serves one request of the management listener.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	inner, ok := h.strip(r)
	switch {
	case !ok && r.URL.Path == "/", ok && inner.URL.Path == "":
		h.redirect(w, r)
	case !ok:
		refuse(w, r, fault.New(fault.NotFound, "there is nothing outside of the base path of this server: see --admin-base-path"))
	case strings.Contains(inner.URL.EscapedPath(), "//") && !strings.HasPrefix(inner.URL.Path, "/v1/"):
		refuse(w, r, fault.New(fault.NotFound, "the path has an empty segment, of which there is none: write one slash in the place of //"))
	case inner.URL.Path == "/v1" || strings.HasPrefix(inner.URL.Path, "/v1/"):
		h.api.ServeHTTP(w, inner)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, r, fault.New(fault.MethodNotAllowed, "method %s is not allowed for this path: the API is below /v1", r.Method))
	default:
		h.serveFile(w, inner)
	}
}

// strip returns the request without the base path. It reports false if the path is not below it.
func (h *Handler) strip(r *http.Request) (*http.Request, bool) {
	if h.prefix == "" {
		return r, true
	}
	p, found := strings.CutPrefix(r.URL.Path, h.prefix)
	raw, foundRaw := strings.CutPrefix(r.URL.RawPath, h.prefix)
	if !found || p != "" && p[0] != '/' || r.URL.RawPath != "" && !foundRaw {
		return nil, false
	}
	inner := new(http.Request)
	*inner = *r
	inner.URL = new(url.URL)
	*inner.URL = *r.URL
	inner.URL.Path, inner.URL.RawPath = p, raw
	return inner, true
}

// redirect sends the root, and the base path without its slash, to the dashboard.
func (h *Handler) redirect(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, r, fault.New(fault.MethodNotAllowed, "method %s is not allowed for this path: the API is below %s/v1", r.Method, h.prefix))
		return
	}
	setHeaders(w)
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, h.prefix+"/", http.StatusTemporaryRedirect)
}

func (h *Handler) serveFile(w http.ResponseWriter, r *http.Request) {
	if name, found := strings.CutPrefix(r.URL.Path, "/assets/"); found && h.assets[name] != nil {
		h.assets[name].serve(w, r, "public, max-age=31536000, immutable")
		return
	}
	// A browser requests it when it shows something other than the dashboard, such as a response of the API.
	if r.URL.Path == "/favicon.ico" {
		h.icon.serve(w, r, "public, max-age=86400")
		return
	}
	if r.URL.Path == "/docs.json" {
		h.docs().serve(w, r, "no-cache") // another build may have other pages
		return
	}
	// An unknown page gives the app, which knows its pages; an unknown file does not.
	if strings.HasPrefix(r.URL.Path, "/assets/") || strings.Contains(path.Base(r.URL.Path), ".") && path.Base(r.URL.Path) != "index.html" {
		refuse(w, r, fault.New(fault.NotFound, "there is no such file: load the page again, it may be from an earlier version"))
		return
	}
	setHeaders(w)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(h.index))
}

func (a *asset) serve(w http.ResponseWriter, r *http.Request, cacheControl string) {
	setHeaders(w)
	header := w.Header()
	header.Set("Cache-Control", cacheControl)
	header.Set("Content-Type", a.contentType)
	header.Set("Vary", "Accept-Encoding")
	content, tag := a.plain, a.tag
	if acceptsGzip(r) {
		if compressed := a.compressed(); compressed != nil {
			content, tag = compressed, a.tag+"-gzip"
			header.Set("Content-Encoding", "gzip")
		}
	}
	header.Set("ETag", `"`+tag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// acceptsGzip reports whether Accept-Encoding allows gzip (RFC 9110, section 12.5.3).
func acceptsGzip(r *http.Request) bool {
	for _, one := range strings.Split(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		coding, parameter, _ := strings.Cut(one, ";")
		if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			continue
		}
		quality, given := strings.CutPrefix(strings.TrimSpace(parameter), "q=")
		if !given {
			return true
		}
		q, err := strconv.ParseFloat(quality, 64)
		return err == nil && q > 0
	}
	return false
}

// setHeaders sets the headers of every answer that a browser shows.
func setHeaders(w http.ResponseWriter) {
	header := w.Header()
	header.Set("X-Request-Id", id.New(id.Request))
	header.Set("Content-Security-Policy", Policy)
	header.Set("X-Frame-Options", "DENY")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
}

func refuse(w http.ResponseWriter, r *http.Request, err error) {
	setHeaders(w)
	status, body := fault.Response(err, w.Header().Get("X-Request-Id"))
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) //nolint:gosec // JSON; and the client may be gone
	}
}
