package upstream

import (
	"net/url"
	"strings"
)

// Prefix returns what stands before an origin-form request target on its way to base, an
// upstream_url: the path of base without its final slash.
func Prefix(base *url.URL) string {
	path := strings.TrimSuffix(base.EscapedPath(), "/")
	if !strings.HasPrefix(path, "//") {
		return path
	}
	// It would be read as an authority. The absolute form says the same in a way that
	// every server must accept.
	return scheme(base) + "://" + base.Host + path
}

// Target returns the URL that forwards to base, an upstream_url, with an origin-form
// request target joined to base's path. It reaches the wire as it is given: nothing is
// decoded or encoded again.
func Target(base *url.URL, target string) *url.URL {
	return &url.URL{Scheme: scheme(base), Host: base.Host, Opaque: Prefix(base) + target}
}

// scheme returns the scheme of base as net/http knows it.
func scheme(base *url.URL) string {
	if base.Scheme == "h2c" {
		return "http"
	}
	return base.Scheme
}
