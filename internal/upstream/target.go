package upstream

import (
	"net/url"
	"strings"
)

// Prefix returns what precedes an origin-form request target when it is sent to base, an
// upstream_url: the path of base without its final slash.
func Prefix(base *url.URL) string {
	path := Path(base)
	if !strings.HasPrefix(path, "//") {
		return path
	}
	// The path would be read as an authority. The absolute form means the same, and every
	// server must accept it.
	return scheme(base) + "://" + base.Host + path
}

// Path returns the path of base, an upstream_url, without its final slash. Over HTTP/2, an
// origin-form request target is appended to it.
func Path(base *url.URL) string { return strings.TrimSuffix(base.EscapedPath(), "/") }

// Target returns the URL that forwards target, an origin-form request target, to base, an
// upstream_url. The target is appended to base's path and reaches the wire byte for byte:
// nothing is decoded or re-encoded.
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
