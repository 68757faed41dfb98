package gateway

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
)

// maxUpstreamURL is the maximum number of bytes of an upstream URL.
const maxUpstreamURL = 2048

// UpstreamURL is the parsed base URL of an upstream service.
type UpstreamURL struct {
	Scheme string // http, https or h2c
	Host   string // lower case, without port; an IPv6 address without brackets
	Port   string // decimal; the scheme's own if none was given
	Path   string // as written, percent-encoding included
}

// Origin returns the scheme, host and port. Credentials for one origin are never sent to
// another.
func (u UpstreamURL) Origin() string {
	return u.Scheme + "://" + net.JoinHostPort(u.Host, u.Port)
}

// ParseUpstreamURL parses the base URL of an upstream service: http, https or h2c, a host,
// and optionally a port and a path, without userinfo, query or fragment (contract, 3.3).
// The error is a validation error of the field "upstream_url".
func ParseUpstreamURL(s string) (UpstreamURL, error) {
	if len(s) > maxUpstreamURL {
		return UpstreamURL{}, badUpstream("must have at most 2048 characters")
	}
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" || strings.ContainsFunc(s, notInURL) || strings.ContainsFunc(u.Host, notInURL) {
		return UpstreamURL{}, badUpstream("must be a URL such as https://orders.internal/base" + upstreamRemedy(s))
	}
	up := UpstreamURL{Scheme: u.Scheme, Host: strings.ToLower(u.Hostname()), Port: u.Port(), Path: u.EscapedPath()}
	switch up.Scheme {
	case "http", "h2c":
		up.Port = orDefault(up.Port, "80")
	case "https":
		up.Port = orDefault(up.Port, "443")
	case "ws", "wss":
		return UpstreamURL{}, badUpstream("must start with http:// or https:// for a service with WebSockets too: upgrades pass")
	case "grpc", "grpcs":
		return UpstreamURL{}, badUpstream("must start with h2c:// for gRPC without TLS, or https:// with it")
	default:
		return UpstreamURL{}, badUpstream("must start with http://, https:// or h2c://")
	}
	switch {
	case u.User != nil:
		return UpstreamURL{}, badUpstream("must not contain a user or password: send credentials with upstream_headers")
	case u.RawQuery != "" || u.ForceQuery:
		return UpstreamURL{}, badUpstream("must not contain a query")
	case strings.Contains(s, "#"):
		return UpstreamURL{}, badUpstream("must not contain a fragment")
	case !isUpstreamHost(up.Host):
		return UpstreamURL{}, badUpstream("must contain a host: a DNS name or an IP address")
	case !isPort(up.Port) || strings.HasSuffix(u.Host, ":"):
		return UpstreamURL{}, badUpstream("must have a port between 1 and 65535, or none")
	case !isBasePath(up.Path):
		return UpstreamURL{}, badUpstream("has a path that cannot be forwarded: remove dot segments, empty segments and encoded slashes")
	}
	return up, nil
}

// notInURL reports whether r is not allowed in a request line. net/url accepts some of
// these characters in a path.
func notInURL(r rune) bool { return r <= 0x20 || r >= 0x7f || strings.ContainsRune(`\"<>^`+"`{|}", r) }

// upstreamRemedy says what to change in a text that is not a URL.
func upstreamRemedy(s string) string {
	switch {
	case strings.TrimSpace(s) != s:
		return ": remove the space around it"
	case document.Lookalike(s) != "":
		return ": " + document.Lookalike(s)
	case strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }):
		return ": it must be ASCII, so write a host in its punycode form, such as xn--bcher-kva.example, and percent-encode a path"
	case strings.ContainsAny(s, "{}"):
		return ": it has no variables"
	case !strings.Contains(s, "://"):
		return ": write http:// or https:// before the host"
	}
	return ""
}

func badUpstream(message string) error { return fault.Invalid("upstream_url", "%s", message) }

func orDefault(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0 && s[0] != '0'
}

// isUpstreamHost also accepts names that resolvers of private networks accept, with underscores or
// a trailing dot. It rejects addresses with a zone.
func isUpstreamHost(s string) bool {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Zone() == ""
	}
	return isDNSName(strings.ReplaceAll(strings.TrimSuffix(s, "."), "_", "x"))
}

// isBasePath reports whether all servers read a request path joined to p in the same
// way. It rejects paths that the data plane rejects in a request (contract, 4.5).
func isBasePath(p string) bool {
	problem, _ := InspectPath(p)
	return p == "" || problem == ""
}
