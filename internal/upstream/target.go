package upstream

import (
	"net/url"
	"strings"
)

// Path returns the path of base, an upstream_url, without its final slash. The target of a request is
// appended to it.
func Path(base *url.URL) string { return strings.TrimSuffix(base.EscapedPath(), "/") }

// Scheme returns the scheme of base, an upstream_url, in the URLs of its resources.
func Scheme(base *url.URL) string {
	if base.Scheme == "h2c" {
		return "http"
	}
	return base.Scheme
}
