package upstream

import (
	"net/url"
	"strings"
)

// Target returns the URL that forwards to base, an upstream_url, with target,
// an origin-form request target, joined to base's path. It reaches the wire as
// it is given: nothing is decoded or encoded again.
func Target(base *url.URL, target string) *url.URL {
	u := &url.URL{Scheme: base.Scheme, Host: base.Host, Opaque: strings.TrimSuffix(base.EscapedPath(), "/") + target}
	if u.Scheme == "h2c" {
		u.Scheme = "http"
	}
	if strings.HasPrefix(u.Opaque, "//") {
		// net/url would take what follows for an authority, and the wire
		// would carry it as one. An absolute form says the same in a way
		// that every server must accept.
		u.Opaque = u.Scheme + "://" + u.Host + u.Opaque
	}
	return u
}
