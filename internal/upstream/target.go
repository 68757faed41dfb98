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
	// The path would be read as an authority. The absolute form has the intended meaning, and every
	// server must accept it.
	return scheme(base) + "://" + base.Host + path
}

// Path returns the path of base, an upstream_url, without its final slash. Over HTTP/2, an
// origin-form request target is appended to it.
func Path(base *url.URL) string { return strings.TrimSuffix(base.EscapedPath(), "/") }

// scheme returns the scheme of base in an absolute target.
func scheme(base *url.URL) string {
	if base.Scheme == "h2c" {
		return "http"
	}
	return base.Scheme
}
